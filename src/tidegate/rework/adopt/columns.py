"""The columns of a table to adopt, by the footers of its files and the names of its ``column=value`` folders.

No row is read. Files that Spark wrote contain its schema. For others the parquet types are used, where every reader of
a table maps them to the same type. The type of a folder's column is that of the column of this name in a source of the
spec; without one, it is what plain readers infer from the folder names: a date when all are dates, a number when all
are plain numbers, else text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.core.hive_names import NULL_NAME, unescape_name
from tidegate.core.words import list_first
from tidegate.spec.ddl import PARTITION_TYPES
from tidegate.table.footer import count_nulls
from tidegate.table.schema import (
    DataType,
    Field,
    fields_of,
    is_changed_by_readers,
    is_date,
    normalise_schema,
    partition_folder,
    type_text,
)

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
_EXAMPLES = 3
_INTEGERS = {"tinyint": ("byte", 7), "smallint": ("short", 15), "int": ("integer", 31), "bigint": ("long", 63)}
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


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
    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(lambda name: _read_footer(table_path, name), names, chunksize=64))


def _read_footer(table_path: Path, name: str) -> FileFooter:
    path = table_path / name
    found = storage.stat(path)
    size, modified = found.size_bytes, found.modified_ns
    try:
        metadata = pq.read_metadata(storage.open_input(path))
        int96 = _list_int96(metadata)
        written = (metadata.metadata or {}).get(_SPARK_ROW)
        columns = (
            _spark_columns(written)
            if written is not None
            else _columns_of(metadata.schema.to_arrow_schema().remove_metadata(), frozenset(int96))
        )
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


def _list_int96(metadata: pq.FileMetaData) -> set[str]:
    """The top-level columns that contain INT96."""
    schema = metadata.schema
    leaves = (schema.column(index) for index in range(metadata.num_columns))
    return {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


@lru_cache(maxsize=64)
def _columns_of(schema: pa.Schema, int96: frozenset[str]) -> str:
    return schema_of([_as_field(one.name, _spark_type(one.type, one.name, one.name in int96)) for one in schema])


def _as_field(name: str, kind: DataType) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _spark_type(kind: pa.DataType, name: str, is_int96: bool) -> DataType:
    """The Spark type of a parquet type. Raises _NotInTableError for one that some reader of the table lacks."""
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
        fields = [_as_field(one.name, _spark_type(one.type, f"{name}.{one.name}", is_int96)) for one in inner]
        return {"type": "struct", "fields": fields}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _spark_type(kind.value_type, f"{name}.element", is_int96)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_map(kind):
        key = _spark_type(kind.key_type, f"{name}.key", is_int96)
        value = _spark_type(kind.item_type, f"{name}.value", is_int96)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise _NotInTableError(f"column {name!r} is {kind}, which readers of a table map to different types")


def join_columns(
    footers: Sequence[FileFooter], partition_by: Sequence[str]
) -> tuple[list[Field], list[str], list[str]]:
    """Return (columns, faults, notes): every column in the order of the newest files, each with the type that most
    files have. A column that some files lack is null there, as for every reader.

    ``partition_by`` are columns whose values are in the folder names, and so must not be in the files.
    """
    faults = [f"{footer.path}: {footer.fault}" for footer in footers if footer.fault is not None]
    files = [footer for footer in footers if footer.fault is None]
    texts = Counter(footer.columns for footer in files)
    parsed: dict[str, list[Field]] = {}
    for text in texts:
        try:
            parsed[text] = fields_of(normalise_schema(text))
        except UsageError as error:
            faults += [f"{name}: {error.message}" for name in _files_with(files, [text])]
    kinds: dict[str, DataType] = {}
    where: dict[str, dict[str, list[str]]] = {}
    """{column: {its type: the schemas that have it so}}."""
    for text, fields in parsed.items():
        for one in fields:
            kind = type_text(one["type"])
            kinds[kind] = one["type"]
            where.setdefault(one["name"], {}).setdefault(kind, []).append(text)
    notes = []
    columns: list[Field] = []
    for name, schemas in where.items():
        counts = {kind: sum(texts[text] for text in some) for kind, some in schemas.items()}
        wanted = max(counts, key=lambda kind: counts[kind])
        columns.append(_as_field(name, kinds[wanted]))
        others = f"{counts[wanted]:,} {'other' if counts[wanted] == 1 else 'others'}"
        for kind, some in schemas.items():
            if kind != wanted:
                shown = list_first(_files_with(files, some), _EXAMPLES)
                faults.append(f"column {name!r} is {kind} in {shown}, and {wanted} in {others}")
        lacking = sum(texts[text] for text in parsed) - sum(counts.values())
        if lacking:
            notes.append(f"column {name} is null in the rows of {lacking:,} of {len(files):,} files, which lack it")
    spelled: dict[str, list[str]] = {}
    for name in where:
        spelled.setdefault(name.lower(), []).append(name)
    faults += [f"a column is spelt {' and '.join(map(repr, some))}" for some in spelled.values() if len(some) > 1]
    inside = {one.lower() for one in partition_by} & {name.lower() for name in where}
    faults += [f"column {name!r} is in the files and in the names of their folders" for name in sorted(inside)]
    return columns, faults, notes


def compare_with_rows(columns: Sequence[Field], declared: Mapping[str, str]) -> list[str]:
    """List differences between the table and the rows of a spec without a transform; ``declared`` is {name: type}."""
    kinds = {field["name"].lower(): type_text(field["type"]) for field in columns}
    given = {name.lower(): kind for name, kind in declared.items()}
    faults = [
        f"column {name!r} is {kind} in the table and {given[name].upper()} in the spec"
        for name, kind in kinds.items()
        if name in given and _squeeze(kind) != _squeeze(given[name])
    ]
    missing = [f"column {name!r} of the table is not in the spec" for name in kinds if name not in given]
    return faults + missing


def schema_of(columns: Sequence[Field]) -> str:
    """The columns as a schema in Spark's JSON."""
    return json.dumps({"type": "struct", "fields": list(columns)}, ensure_ascii=False)


def _squeeze(kind: str) -> str:
    return kind.lower().replace(" ", "")


def _files_with(files: Sequence[FileFooter], texts: Sequence[str]) -> list[str]:
    return [footer.path for footer in files if footer.columns in texts]


@dataclass
class Folders:
    """``columns`` of the table that are in folder names; ``values`` of each folder, in Delta's string form; ``renames``
    are folders (deepest first) with names from which no reader infers another type."""

    columns: list[Field] = field(default_factory=list)
    values: dict[str, dict[str, str | None]] = field(default_factory=dict)
    renames: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_folders(
    folders: Collection[str], partition_by: Sequence[str], declared: Mapping[str, str], *, may_rename: bool
) -> Folders:
    """Read partition columns and values from the folders of the table's files.

    Args:
        folders: relative to the table, "" for the table itself.
        declared: the types of columns in sources, {lower-case name: type}.
        may_rename: if False, a note says how plain readers read ambiguous folders.
    """
    found = Folders()
    parts: dict[str, list[str | None]] = {}
    for folder in sorted(folders):
        values = _split(folder, partition_by)
        if values is None:
            wanted = "/".join(f"{name}=..." for name in partition_by) or "none: the spec has no partition_by"
            found.faults.append(f"folder {folder or '(the table itself)'} has files; the folders should be {wanted}")
        else:
            parts[folder] = values
    for index, name in enumerate(partition_by):
        texts = {values[index] for values in parts.values()}
        kind = _type_of(name, declared.get(name.lower()), {text for text in texts if text is not None}, found)
        found.columns.append(_as_field(name, kind))
    if found.faults:
        return found
    for folder, values in parts.items():
        found.values[folder] = dict(zip(partition_by, values, strict=True))
    _find_renames(found, parts, partition_by, may_rename)
    return found


def _split(folder: str, partition_by: Sequence[str]) -> list[str | None] | None:
    """The values of a folder; None when its name does not match ``partition_by``."""
    parts = folder.split("/") if folder else []
    if len(parts) != len(partition_by):
        return None
    values: list[str | None] = []
    for part, wanted in zip(parts, partition_by, strict=True):
        name, equals, value = part.partition("=")
        if not equals or unescape_name(name) != wanted:
            return None
        values.append(None if value in (NULL_NAME, "") else unescape_name(value))
    return values


def _type_of(name: str, declared: str | None, texts: set[str], found: Folders) -> str:
    if declared in PARTITION_TYPES:
        wrong = sorted(text for text in texts if not _fits(text, declared))
        if wrong:
            found.faults.append(f"folder {name}={wrong[0]}: {name} is {declared.upper()} in the spec")
        return _INTEGERS[declared][0] if declared in _INTEGERS else declared
    if texts and all(map(is_date, texts)):
        kind = "date"
    elif texts and all(_NUMBER.fullmatch(text) and _fits(text, "bigint") for text in texts):
        kind = "integer" if all(_fits(text, "int") for text in texts) else "long"
    else:
        kind = "string"
    found.notes.append(
        f"partition column {name} is taken for {kind.upper()} by its folders; a transform that gives another type is "
        "refused by the first run, before it writes"
    )
    return kind


def _fits(text: str, kind: str) -> bool:
    if kind == "date":
        return is_date(text)
    if kind in _INTEGERS:
        bits = _INTEGERS[kind][1]
        return _NUMBER.fullmatch(text) is not None and -(1 << bits) <= int(text) < 1 << bits
    return True


def _find_renames(
    found: Folders, parts: Mapping[str, Sequence[str | None]], partition_by: Sequence[str], may_rename: bool
) -> None:
    """Find folders of text that plain readers would change to another one, as they take it for a number or a date."""
    schema = schema_of(found.columns)
    texts = {column["name"] for column in found.columns if column["type"] == "string"}
    renamed: dict[str, str] = {}
    for folder, values in parts.items():
        here = folder.split("/")
        for depth, (name, value) in enumerate(zip(partition_by, values, strict=True)):
            now = here[depth].partition("=")[2]
            if name in texts and value is not None and is_changed_by_readers(value) and "%" not in now:
                wanted = partition_folder([name], {name: value}, schema).partition("=")[2]
                at = "/".join(here[: depth + 1])
                renamed[at] = "/".join([*here[:depth], f"{here[depth].partition('=')[0]}={wanted}"])
    if renamed and not may_rename:
        example = min(renamed)
        found.notes.append(
            f"plain readers take folders such as {example} for numbers or dates, and read another text than Delta "
            "readers: they did before, and the names stay, since the log has them"
        )
    elif both := sorted(new for new in renamed.values() if any(f"{one}/".startswith(f"{new}/") for one in parts)):
        found.faults += [f"folder {new}: another folder has the same value" for new in both]
    elif renamed:
        found.renames = sorted(renamed.items(), key=lambda one: (-one[0].count("/"), one[0]))


def renamed(path: str, renames: Iterable[tuple[str, str]]) -> str:
    """The path of a file once the folders above it are renamed."""
    by_folder = dict(renames)
    parts = path.split("/")
    for depth in range(len(parts) - 1):
        new = by_folder.get("/".join(path.split("/")[: depth + 1]))
        if new is not None:
            parts[depth] = new.rpartition("/")[2]
    return "/".join(parts)
