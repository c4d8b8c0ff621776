"""Columns of a file by a look at its first lines, or of a topic's records, for ``tidegate new --from``: without Spark,
in Spark's words.
"""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import UsageError
from tidegate.ingest.columns import read_footers
from tidegate.run.csv_sample import UnreadableSample, read_csv_sample
from tidegate.run.value_kinds import Kinds, note_all
from tidegate.spec.ddl import Column, DdlError, quote_name, refuse_twins, show_ddl
from tidegate.spec.models import FilesSource

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".log": "text",
    ".parquet": "parquet",
    ".orc": "orc",
}
"""The format that a file's name speaks of."""
_LINES_AT_MOST = 10_000
_LONGEST_INTEGER = 40
_BY_HAND = "write the source by hand: docs/how-to/kafka.md"


def choose_format(file: Path) -> str:
    """The format of a file by its name. Raises UsageError FORMAT_UNKNOWN."""
    endings = [ending.lower() for ending in file.suffixes if ending.lower() != ".gz"]
    if endings and endings[-1] in FORMATS:
        return FORMATS[endings[-1]]
    raise UsageError(
        "FORMAT_UNKNOWN",
        f"the name of {file.name} does not tell its format",
        where=str(file),
        next_run="is refused again; nothing was written",
        fix="add --format json, csv, text, parquet or orc",
    )


@dataclass(frozen=True)
class Inferred:
    """What a sample tells: columns as DDL, reader options, by what they are told, and what to know about columns."""

    columns: str
    options: dict[str, Any] = field(default_factory=dict)
    told_by: str | None = None
    notes: tuple[str, ...] = ()


def infer_columns(file: Path, kind: str) -> Inferred:
    """The columns of a file of format ``kind``. Raises UsageError CANNOT_INFER."""
    import pyarrow as pa

    try:
        if kind == "text":
            return Inferred("value STRING")
        if kind in ("csv", "json"):
            found = (_infer_csv if kind == "csv" else _infer_json)(*_read_head(file))
        else:
            found = _infer_columnar(file, kind)
        if not found.columns:
            raise _cannot(file.name, str(file), kind, "it has no columns")
        return found
    except (OSError, EOFError, UnreadableSample, pa.ArrowException, DdlError) as error:
        raise _cannot(file.name, str(file), kind, str(error).partition("\n")[0]) from error


def infer_record_columns(values: Sequence[bytes], place: str) -> tuple[str, int]:
    """(columns as DDL, how many records they are told by) of JSON records; others than JSON objects tell nothing.

    ``place`` is where they come from. Raises UsageError CANNOT_INFER.
    """
    objects = [one for value in values if isinstance(one := _parse_json(value), dict)]
    if not objects:
        raise _cannot(place, place, "json", f"none of {len(values)} records is a JSON object", _BY_HAND)
    try:
        columns = _show_objects(objects)
        if not columns:
            raise _cannot(place, place, "json", "no record has a field", _BY_HAND)
        return columns, len(objects)
    except (UnreadableSample, DdlError) as error:
        raise _cannot(place, place, "json", str(error), _BY_HAND) from error


def _cannot(name: str, place: str, kind: str, why: str, fix: str | None = None) -> UsageError:
    by_hand = f"tidegate new NAME --bare --format {kind}, and write path and columns in jobs/NAME/pipeline.yaml"
    return UsageError(
        "CANNOT_INFER",
        f"the columns of {name} cannot be told as {kind}: {why}",
        where=place,
        next_run="is refused again; nothing was written",
        fix=fix or f"name the right --format, or write the schema by hand: {by_hand}",
    )


def _show(columns: list[Column]) -> str:
    refuse_twins([column.name for column in columns], None)
    return show_ddl(columns)


def _read_head(file: Path) -> tuple[bytes, bool]:
    """(the first lines of a file, whether it goes on behind them)."""
    with gzip.open(file) if file.name.lower().endswith(".gz") else open(file, "rb") as reader:
        head = b"".join(islice(reader, _LINES_AT_MOST))
        return head, bool(reader.read(1))


def _parse_json(text: bytes) -> Any:
    """A value of JSON whose numbers keep their digits; None for what is not JSON."""
    try:
        return json.loads(text, parse_float=Decimal, parse_int=_parse_integer)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _parse_integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _LONGEST_INTEGER else Decimal(text)


def _show_objects(objects: Iterable[dict[str, Any]]) -> str:
    fields = note_all(objects).fields
    if "" in fields:
        raise UnreadableSample("a field has an empty name")
    return _show([Column(name, kinds.show_type(), True) for name, kinds in fields.items()])


def _infer_json(head: bytes, _: bool) -> Inferred:
    head = head.removeprefix(codecs.BOM_UTF8)
    lines = [line for line in head.split(b"\n") if line.strip()]
    objects = [one for line in lines if isinstance(one := _parse_json(line), dict)]
    options: dict[str, Any] = {}
    left = len(lines) - len(objects)
    if left > len(objects) and (document := _parse_json(head)) is not None:
        objects = [one for one in (document if isinstance(document, list) else [document]) if isinstance(one, dict)]
        options, left = {"multiLine": True}, 0
    if not objects:
        raise UnreadableSample(f"none of {len(lines)} lines is a JSON object" if lines else "it is empty")
    told_by = f"{len(objects):,} objects; lines that are not JSON objects: {left:,}" if left else None
    return Inferred(_show_objects(objects), options, told_by)


def _infer_csv(head: bytes, goes_on: bool) -> Inferred:
    sample = read_csv_sample(head, goes_on)
    columns = []
    for number, name in enumerate(sample.names):
        kinds = Kinds()
        for row in sample.rows:
            kinds.add_text(row[number])
        columns.append(Column(name, kinds.show_type(), True))
    return Inferred(_show(columns), sample.options, sample.told_by)


def _infer_columnar(file: Path, kind: str) -> Inferred:
    if kind == "parquet":
        import pyarrow.parquet as pq

        fields = list(pq.read_schema(file))
    else:
        from pyarrow import orc

        fields = list(orc.ORCFile(file).schema)
    columns = _show([Column(one.name, _spark_type(one.type), True) for one in fields])
    return Inferred(columns, notes=_find_unreadable(file, kind, columns)) if fields else Inferred("")


def _find_unreadable(file: Path, kind: str, columns: str) -> tuple[str, ...]:
    """What a run would say of the file's types, and how to write them."""
    spec = FilesSource.model_validate({"type": "files", "path": file.name, "format": kind, "schema": columns})
    fault = next((footer.fault for footer in read_footers(file.parent, [file.name], spec).values()), None)
    return (f"Spark cannot read a file such as this: {fault}",) if fault else ()


def _spark_type(kind: pa.DataType) -> str:
    """Spark's name for an Arrow type; STRING for a type without one, and for a column that holds only nulls."""
    from pyarrow import types

    if types.is_struct(kind):
        inner = ", ".join(f"{quote_name(field.name)}: {_spark_type(field.type)}" for field in kind)
        return f"STRUCT<{inner}>" if inner else "STRING"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"ARRAY<{_spark_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"MAP<{_spark_type(kind.key_type)}, {_spark_type(kind.item_type)}>"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "TIMESTAMP"
    names = [
        (types.is_boolean, "BOOLEAN"),
        (types.is_int8, "TINYINT"),
        (types.is_int16, "SMALLINT"),
        (types.is_uint8, "SMALLINT"),
        (types.is_int32, "INT"),
        (types.is_uint16, "INT"),
        (types.is_uint64, "DECIMAL(20, 0)"),
        (types.is_integer, "BIGINT"),
        (types.is_float32, "FLOAT"),
        (types.is_floating, "DOUBLE"),
        (types.is_date, "DATE"),
        (types.is_binary, "BINARY"),
    ]
    return next((name for fits, name in names if fits(kind)), "STRING")
