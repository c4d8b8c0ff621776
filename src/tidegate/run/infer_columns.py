"""Columns of a file by a look at its first lines, or of a topic's records, for ``tidegate new --from``: without Spark,
in Spark's words.

Rather a text too many: what is not one kind of value throughout is STRING, and so is a number that begins with a zero.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import UsageError
from tidegate.spec.ddl import Column, DdlError, quote_name, refuse_twins, show_ddl

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
_CODE_LIKE = re.compile(r"[+-]?0\d")


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


def infer_columns(file: Path, kind: str) -> tuple[str, dict[str, Any]]:
    """(columns as DDL, reader options) of a file of format ``kind``. Raises UsageError CANNOT_INFER."""
    import pyarrow as pa

    options: dict[str, Any] = {}
    try:
        if kind == "text":
            return "value STRING", options
        if kind == "csv":
            fields, options = _read_csv(file)
        else:
            fields = _read_json(file) if kind == "json" else _read_columnar(file, kind)
        if not fields:
            raise _cannot(file.name, str(file), kind, "it has no columns")
        return _show(fields), options
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, pa.ArrowException, DdlError) as error:
        raise _cannot(file.name, str(file), kind, str(error).partition("\n")[0]) from error


def infer_record_columns(values: Sequence[bytes], place: str) -> tuple[str, int]:
    """(columns as DDL, how many records they are told by) of JSON records; others than JSON objects tell nothing.

    ``place`` is where they come from. Raises UsageError CANNOT_INFER.
    """
    import pyarrow as pa
    from pyarrow import json as pa_json

    lines = [line for value in values if _is_object(line := value.replace(b"\n", b" ").replace(b"\r", b" "))]
    if not lines:
        raise _cannot(place, place, "json", f"none of {len(values)} records is a JSON object")
    try:
        fields = list(pa_json.read_json(io.BytesIO(b"\n".join(lines))).schema)
        if not fields:
            raise _cannot(place, place, "json", "no record has a field")
        return _show(fields), len(lines)
    except (pa.ArrowException, DdlError) as error:
        raise _cannot(place, place, "json", str(error).partition("\n")[0]) from error


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _show(fields: Sequence[pa.Field]) -> str:
    columns = [Column(field.name, _spark_type(field.type), True) for field in fields]
    refuse_twins([column.name for column in columns], None)
    return show_ddl(columns)


def _cannot(name: str, place: str, kind: str, why: str) -> UsageError:
    return UsageError(
        "CANNOT_INFER",
        f"the columns of {name} cannot be told as {kind}: {why}",
        where=place,
        next_run="is refused again; nothing was written",
        fix="name the right --format, or write the schema by hand: tidegate new NAME --bare",
    )


def _head(file: Path) -> bytes:
    with gzip.open(file) if file.name.lower().endswith(".gz") else open(file, "rb") as reader:
        return b"".join(islice(reader, _LINES_AT_MOST)).removeprefix(b"\xef\xbb\xbf")


def _read_json(file: Path) -> list[pa.Field]:
    from pyarrow import json as pa_json

    return list(pa_json.read_json(io.BytesIO(_head(file))).schema)


def _read_columnar(file: Path, kind: str) -> list[pa.Field]:
    if kind == "parquet":
        import pyarrow.parquet as pq

        return list(pq.read_schema(file))
    from pyarrow import orc

    return list(orc.ORCFile(file).schema)


def _read_csv(file: Path) -> tuple[list[pa.Field], dict[str, Any]]:
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    head = _head(file)
    text = head.decode("utf-8")
    dialect = csv.Sniffer().sniff(text[:65536], delimiters=",;\t|")
    header = csv.Sniffer().has_header(text[:65536])
    read = pa_csv.ReadOptions(autogenerate_column_names=not header)
    parse = pa_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)
    table = pa_csv.read_csv(io.BytesIO(head), read_options=read, parse_options=parse)
    as_text = pa_csv.ConvertOptions(column_types=dict.fromkeys(table.column_names, pa.string()))
    texts = pa_csv.read_csv(io.BytesIO(head), read_options=read, parse_options=parse, convert_options=as_text)
    fields = [
        pa.field(field.name, pa.string())
        if pa.types.is_integer(field.type) and any(_CODE_LIKE.match(one or "") for one in column.to_pylist())
        else field
        for field, column in zip(table.schema, texts.columns, strict=True)
    ]
    return fields, {"header": header, **({} if dialect.delimiter == "," else {"sep": dialect.delimiter})}


def _spark_type(kind: pa.DataType) -> str:
    """Spark's name for an Arrow type; STRING for what has none, and for what had no value to tell by."""
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
        (types.is_int32, "INT"),
        (types.is_integer, "BIGINT"),
        (types.is_float32, "FLOAT"),
        (types.is_floating, "DOUBLE"),
        (types.is_date, "DATE"),
        (types.is_binary, "BINARY"),
    ]
    return next((name for fits, name in names if fits(kind)), "STRING")
