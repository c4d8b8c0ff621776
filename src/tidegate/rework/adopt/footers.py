"""Read the footers of a table's files: rows, nulls and columns of each. No row is read.

Files that Spark wrote contain its schema. For others the parquet types are used, where every reader of a table maps
them to the same type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.table.footer import count_nulls
from tidegate.table.schema import DataType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

_READERS = 4
"""Files that are read at once: more threads would only wait for the disk."""
_SPARK_ROW = b"org.apache.spark.sql.parquet.row.metadata"
_PLAIN = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}


@dataclass(frozen=True)
class FileFooter:
    """The footer of a file. ``columns``: its schema in Spark's JSON; ``fault``: why the file cannot be in a table, in
    which case nothing else counts; ``has_int96``: it has time stamps in the form without a zone."""

    path: str
    size_bytes: int
    modified_ns: int
    rows: int = 0
    nulls: tuple[tuple[str, int], ...] = ()
    columns: str = ""
    fault: str | None = None
    has_int96: bool = False


def read_footers(table_path: Path, names: Iterable[str]) -> list[FileFooter]:
    """The footers of these files, paths relative to the table, in their order."""
    import pyarrow.parquet  # noqa: F401 - import once, before the threads start

    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(lambda name: _read_footer(table_path, name), names, chunksize=64))


def _read_footer(table_path: Path, name: str) -> FileFooter:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = table_path / name
    found = storage.stat(path)
    size, modified = found.size_bytes, found.modified_ns
    try:
        metadata = pq.read_metadata(storage.address(path))
        int96 = _list_int96(metadata)
        written = (metadata.metadata or {}).get(_SPARK_ROW)
        columns = _spark_columns(written) if written is not None else _arrow_columns(metadata, frozenset(int96))
    except pa.ArrowException as error:
        return FileFooter(
            name, size, modified, fault=f"it is not a complete parquet file: {str(error).splitlines()[0]}"
        )
    except _NotInTableError as error:
        return FileFooter(name, size, modified, fault=str(error))
    nulls = tuple(count_nulls(metadata).items())
    return FileFooter(name, size, modified, metadata.num_rows, nulls, columns, has_int96=bool(int96))


class _NotInTableError(Exception):
    pass


@lru_cache(maxsize=64)
def _spark_columns(written: bytes) -> str:
    try:
        value = json.loads(written)
        return json.dumps({"type": "struct", "fields": value["fields"]}, ensure_ascii=False)
    except (ValueError, KeyError, TypeError) as error:
        raise _NotInTableError(f"Spark's schema in it cannot be read: {error}") from error


def _list_int96(metadata: FileMetaData) -> set[str]:
    """The top-level columns that contain INT96."""
    schema = metadata.schema
    leaves = (schema.column(index) for index in range(metadata.num_columns))
    return {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def _arrow_columns(metadata: FileMetaData, int96: frozenset[str]) -> str:
    return _columns_of(metadata.schema.to_arrow_schema().remove_metadata(), int96)


@lru_cache(maxsize=64)
def _columns_of(schema: pa.Schema, int96: frozenset[str]) -> str:
    fields = [
        {"name": field.name, "type": _type_of(field.type, field.name, field.name in int96), "nullable": True}
        for field in schema
    ]
    whole = [{**field, "metadata": {}} for field in fields]
    return json.dumps({"type": "struct", "fields": whole}, ensure_ascii=False)


def _type_of(kind: pa.DataType, name: str, is_int96: bool) -> DataType:
    """The Spark type of a parquet type. Raises _NotInTableError for one that some reader of the table lacks."""
    import pyarrow as pa

    plain = _PLAIN.get(str(kind))
    if plain is not None:
        return plain
    if pa.types.is_timestamp(kind):
        if is_int96 or (kind.tz is not None and kind.unit in ("us", "ms")):
            return "timestamp"
        lack = "has no time zone" if kind.tz is None else "is in nanoseconds, which Spark does not read"
        raise _NotInTableError(f"column {name!r} is a time stamp that {lack}")
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        inner = (kind.field(index) for index in range(kind.num_fields))
        return {
            "type": "struct",
            "fields": [
                {
                    "name": one.name,
                    "type": _type_of(one.type, f"{name}.{one.name}", is_int96),
                    "nullable": True,
                    "metadata": {},
                }
                for one in inner
            ],
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _type_of(kind.value_type, f"{name}.element", is_int96)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_map(kind):
        key = _type_of(kind.key_type, f"{name}.key", is_int96)
        value = _type_of(kind.item_type, f"{name}.value", is_int96)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise _NotInTableError(f"column {name!r} is {kind}, which readers of a table map to different types")
