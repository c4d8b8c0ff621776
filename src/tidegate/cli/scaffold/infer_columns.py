"""Infer columns from the first lines of a file, or a topic's records, for ``tidegate new --from``, without Spark."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from tidegate.cli import errors
from tidegate.cli.scaffold.csv_sample import UnreadableSample, read_csv_sample
from tidegate.cli.scaffold.local_forms import guess_local_forms
from tidegate.cli.scaffold.value_kinds import Kinds, note_all
from tidegate.core.errors import UsageError
from tidegate.sources.files.columnar_files import read_schema
from tidegate.sources.files.forms import find_fault
from tidegate.sources.readers.unreadable import DamagedFile
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
    ".xml": "xml",
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
}
"""The format by the ending of a file's name."""
_LINES_AT_MOST = 10_000
_LONGEST_INTEGER = 40
_NOTES_AT_MOST = 10


def choose_format(file: Path) -> str:
    """The format of a file by its name. Raises UsageError BAD_OPTIONS."""
    endings = [ending.lower() for ending in file.suffixes if ending.lower() != ".gz"]
    if endings and endings[-1] in FORMATS:
        return FORMATS[endings[-1]]
    raise errors.BAD_OPTIONS(
        where=str(file),
        fault=f"--from: the format of {file.name} cannot be recognized by its name",
        fix="add --format json, csv, text, parquet, orc or avro; save a workbook of a spreadsheet program as csv first",
    )


@dataclass(frozen=True)
class Inferred:
    """The result: columns as DDL, reader options, what they were inferred from, and notes on columns."""

    columns: str
    options: dict[str, bool | str] = field(default_factory=dict)
    inferred_from: str | None = None
    notes: tuple[str, ...] = ()


def infer_columns(file: Path, kind: str) -> Inferred:
    """Infer the columns of a file of format ``kind``. Raises UsageError CANNOT_INFER."""
    try:
        if kind == "text":
            return Inferred("value STRING")
        if kind == "xml":
            raise UnreadableSample("which element is a record is not guessed")
        if kind in ("csv", "json"):
            found = (_infer_csv if kind == "csv" else _infer_json)(*_read_head(file))
        else:
            found = _infer_columnar(file, kind)
        if not found.columns:
            raise _cannot_infer(file, kind, "it has no columns")
        return found
    except (OSError, EOFError, UnreadableSample, pa.ArrowException, DdlError, DamagedFile) as error:
        raise _cannot_infer(file, kind, str(error).partition("\n")[0]) from error


def infer_record_columns(values: Sequence[bytes], place: str) -> tuple[Inferred, int]:
    """Infer columns from JSON records; returns them and the number of records used. Other values are skipped.

    ``place`` is where the records come from. Raises UsageError CANNOT_INFER.
    """
    objects = [one for value in values if isinstance(one := _parse_json(value), dict)]
    if not objects:
        raise _cannot_infer_topic(place, f"none of {len(values)} records is a JSON object")
    try:
        found = _infer_objects(objects)
        if not found.columns:
            raise _cannot_infer_topic(place, "no record has a field")
        return found, len(objects)
    except (UnreadableSample, DdlError) as error:
        raise _cannot_infer_topic(place, str(error)) from error


def _cannot_infer_topic(place: str, why: str) -> UsageError:
    fix = "write the source by hand: docs/how-to/kafka.md"
    return errors.CANNOT_INFER(where=place, name=place, kind="json", why=why, fix=fix)


def _cannot_infer(file: Path, kind: str, why: str) -> UsageError:
    by_hand = f"tidegate new NAME --bare --format {kind}, and write path and columns in jobs/NAME/pipeline.yaml"
    if kind == "xml":
        by_hand = "tidegate new NAME --bare, then format: xml, options: {rowTag: ...} and schema: docs/how-to/files.md"
    fix = f"name the right --format, or write the schema by hand: {by_hand}"
    return errors.CANNOT_INFER(where=str(file), name=file.name, kind=kind, why=why, fix=fix)


def _show(columns: list[Column]) -> str:
    refuse_twins([column.name for column in columns], None)
    return show_ddl(columns)


def _read_head(file: Path) -> tuple[bytes, bool]:
    """(the first lines of a file, whether more follow)."""
    with gzip.open(file) if file.name.lower().endswith(".gz") else open(file, "rb") as reader:
        head = b"".join(islice(reader, _LINES_AT_MOST))
        return head, bool(reader.read(1))


def _parse_json(text: bytes) -> object:
    """A value of JSON whose numbers keep their digits; None for what is not JSON."""
    try:
        return json.loads(text, parse_float=Decimal, parse_int=_parse_integer)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _parse_integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _LONGEST_INTEGER else Decimal(text)


def _infer_objects(objects: Iterable[dict[str, object]]) -> Inferred:
    fields = note_all(objects).fields
    if "" in fields:
        raise UnreadableSample("a field has an empty name")
    return _infer_kinds(fields.items())


def _infer_kinds(columns: Iterable[tuple[str, Kinds]], types_: Mapping[str, str] | None = None) -> Inferred:
    """The columns of values of known kinds, and why some are STRING; ``types_`` has those that are known otherwise."""
    named, known = list(columns), types_ or {}
    notes = [note for name, kinds in named if name not in known for note in kinds.describe_mixed(name)]
    if (more := len(notes) - _NOTES_AT_MOST) > 0:
        notes[_NOTES_AT_MOST:] = [f"{more:,} more are STRING for such reasons"]
    shown = _show([Column(name, known.get(name) or kinds.show_type(), True) for name, kinds in named])
    return Inferred(shown, notes=tuple(notes))


def _infer_json(head: bytes, has_more: bool) -> Inferred:
    options: dict[str, bool | str] = {}
    if encoding := _wide_encoding(head):
        head, options = head.decode(encoding, "replace").encode(), {"encoding": encoding}
    head = head.removeprefix(codecs.BOM_UTF8)
    if b"\0" in head:
        raise UnreadableSample("it holds zero bytes: it is not JSON, or UTF-16 or UTF-32 without a byte order mark")
    lines = [line for line in head.split(b"\n") if line.strip()]
    objects = [one for line in lines if isinstance(one := _parse_json(line), dict)]
    left = len(lines) - len(objects)
    begins_an_array = bool(lines) and lines[0].strip() == b"["
    if left > len(objects) or begins_an_array:
        values, why_not = _cut_apart(head.decode(errors="replace"), has_more)
        found = [one for one in values if isinstance(one, dict)]
        if found and why_not is None:
            objects, left = found, len(values) - len(found)
            options["multiLine"] = True
        elif begins_an_array or (lines and not objects):
            raise UnreadableSample(
                "it is neither one JSON object a line, nor objects or one array of objects over several lines: "
                + (why_not or "there is no object in it")
            )
    if not objects:
        raise UnreadableSample("it is empty")
    what = "elements" if "multiLine" in options else "lines"
    inferred_from = f"{len(objects):,} objects; {what} that are not JSON objects: {left:,}" if left else None
    return replace(_infer_objects(objects), options=options, inferred_from=inferred_from)


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 where the file begins with its byte order mark."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    return "UTF-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else None


def _cut_apart(text: str, has_more: bool) -> tuple[list[object], str | None]:
    """The elements of an array of JSON, or values that follow each other, and why not all of the text is that. With
    ``has_more`` the file has more lines: then the last value need not be whole."""
    decoder = json.JSONDecoder(parse_float=Decimal, parse_int=_parse_integer)
    at = len(text) - len(text.lstrip())
    is_array = text.startswith("[", at)
    at += is_array
    found: list[object] = []
    try:
        while (at := _skip(text, at)) < len(text) and not (is_array and text[at] == "]"):
            value, at = decoder.raw_decode(text, at)
            found.append(value)
            at = _skip(text, at)
            if is_array and text[at : at + 1] == ",":
                at += 1
            elif is_array and at < len(text) and text[at] != "]":
                raise json.JSONDecodeError("a comma or ] is missing", text, at)
        if is_array and at >= len(text) and not has_more:
            raise json.JSONDecodeError("the array does not end", text, at)
        if is_array and (at := _skip(text, at + 1)) < len(text):
            raise json.JSONDecodeError("text after the array", text, at)
    except json.JSONDecodeError as error:
        if has_more and not text[error.pos + 1 :].strip():
            return found, None
        return found, f"{error.msg} (line {error.lineno}, column {error.colno})"
    except (ValueError, ArithmeticError, RecursionError) as error:
        return found, str(error)
    return found, None


def _skip(text: str, at: int) -> int:
    """The next place that is not blank."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _infer_csv(head: bytes, has_more: bool) -> Inferred:
    sample = read_csv_sample(head, has_more)
    columns = [(name, Kinds()) for name in sample.names]
    for row in sample.rows:
        for (_, kinds), text in zip(columns, row, strict=True):
            kinds.add_text(text)
    plain = {name: kinds.show_type() for name, kinds in columns}
    texts = {name: {row[at] for row in sample.rows if row[at]} for at, name in enumerate(sample.names)}
    local = guess_local_forms(texts, plain)
    found = _infer_kinds(columns, local.types)
    notes = (*filter(None, [sample.note]), *local.notes, *found.notes)
    options = {**sample.options, **local.options}
    return replace(found, options=options, inferred_from=sample.inferred_from, notes=notes)


def _infer_columnar(file: Path, kind: str) -> Inferred:
    fields = list(read_schema(file, kind))
    local = "TIMESTAMP_NTZ" if kind == "avro" else "TIMESTAMP"
    columns = _show([Column(one.name, _spark_type(one.type, local), True) for one in fields])
    return Inferred(columns, notes=_find_unreadable(file, kind, columns)) if fields else Inferred("")


def _find_unreadable(file: Path, kind: str, columns: str) -> tuple[str, ...]:
    """A note where a run would reject the file for the types of its columns."""
    spec = FilesSource.read({"type": "files", "path": file.name, "format": kind, "schema": columns})
    fault = find_fault(file.absolute(), spec)
    return (f"a file such as this is quarantined whole: {fault}",) if fault else ()


def _spark_type(kind: pa.DataType, local: str) -> str:
    """Spark's name for an Arrow type; STRING for a type without one, and for a column that holds only nulls. ``local``
    is that of a time without a time zone."""
    if types.is_struct(kind):
        inner = ", ".join(f"{quote_name(field.name)}: {_spark_type(field.type, local)}" for field in kind)
        return f"STRUCT<{inner}>" if inner else "STRING"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"ARRAY<{_spark_type(kind.value_type, local)}>"
    if types.is_map(kind):
        return f"MAP<{_spark_type(kind.key_type, local)}, {_spark_type(kind.item_type, local)}>"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else local
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
