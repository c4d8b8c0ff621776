"""Replacing rows, within an increment (fold) and in the table (merge): writes files, publishes nothing.

Update mode: a row replaces the one with the same keys. NULL equals NULL here: a new row without a customer replaces the
one row without a customer. Complete mode: each batch is the whole result and replaces all rows. A file that loses rows
is copied without them into a staging folder: no file is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from tidegate.core import storage
from tidegate.spec.models import MergeMode
from tidegate.state.manifest import StagedFile
from tidegate.table import errors
from tidegate.table.log.snapshot import Replacement
from tidegate.table.log.state import DataFile
from tidegate.table.upsert.rewrite import copy_rows

KeyTypes = Mapping[str, str]
"""Each key column, spelled as in the rows, with its Delta type."""

Batches = Mapping[int, Sequence[StagedFile]]
"""The staged files of each batch of an increment, in order of batch."""
COPIED_BYTES_AT_MOST = 128 << 20
"""Files that lose rows are copied into one up to this total size; a larger file is copied alone."""


def read_keys(path: Path, partition: Mapping[str, str | None], types: KeyTypes, groups: Sequence[int]) -> pa.Table:
    """Read the keys of the rows in some row groups of a file, as an Arrow table of the columns of ``types``, in order.

    A column that is not in the file is a partition column, or was added to the table later (NULL).
    """
    with pq.ParquetFile(storage.address(path)) as file:
        stored = [name for name in types if name in file.schema_arrow.names]
        part = file.read_row_groups(list(groups), columns=stored)
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
    columns = {}
    for name, kind in types.items():
        if name in stored:
            columns[name] = part.column(name).cast(arrow_type(kind), safe=False)
        else:
            text = pa.scalar(partition.get(name) or None, pa.string())
            columns[name] = pa.chunked_array([pa.repeat(text.cast(arrow_type(kind)), rows)])
    return pa.table(columns)


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type in which the values of a key column are compared; strings may exceed 2 GB in total."""
    if kind.startswith("decimal"):
        precision, _, scale = kind.removeprefix("decimal").strip("()").partition(",")
        return pa.decimal128(int(precision or 10), int(scale or 0))
    return {
        "string": pa.large_string(), "binary": pa.large_binary(), "long": pa.int64(), "integer": pa.int32(),
        "short": pa.int16(), "byte": pa.int8(), "boolean": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[kind]  # fmt: skip


class KeyIndex:
    """Gives each of the known keys a number, by which rows are compared.

    The values of the first column are numbered, then the pairs (number so far, number in the next column), and so on.
    So keys are not concatenated as text, and NULL needs no special case.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        self._number(keys, learn=True)

    def find(self, keys: pa.Table) -> pa.ChunkedArray:
        """The number of each row's key; NULL for an unknown key."""
        return self._number(keys, learn=False)

    def _number(self, keys: pa.Table, *, learn: bool) -> pa.ChunkedArray:
        total: pa.ChunkedArray | None = None
        for position, column in enumerate(keys.columns):
            if learn:
                self._values.append(pc.unique(column))
            values = self._values[position]
            number = pc.index_in(column, value_set=values)
            if total is None:
                total = number
                continue
            pair = pc.add(pc.multiply(total.cast(pa.int64()), len(values)), number.cast(pa.int64()))
            if learn:
                self._pairs.append(pc.unique(pair))
            total = pc.index_in(pair, value_set=self._pairs[position - 1])
        return total


def find_repeated(keys: pa.Table, numbers: pa.ChunkedArray, at_most: int = 3) -> list[str]:
    """A few keys that more than one row has, as text; ``numbers`` are from a :class:`KeyIndex`."""
    if len(pc.unique(numbers)) == len(numbers):
        return []
    counts = pc.value_counts(numbers)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1)).slice(0, at_most)
    rows = keys.take(pa.array([pc.index(numbers, number).as_py() for number in repeated], pa.int64()))
    return [
        ", ".join(f"{name}={_text(rows.column(name)[row])}" for name in rows.column_names) for row in range(len(rows))
    ]


def _text(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    shown = repr(value.as_py()) if pa.types.is_large_binary(value.type) else str(value.cast(pa.string()))
    return shown if len(shown) <= 80 else shown[:77] + "..."


def join_keys(tables: Iterable[pa.Table], types: KeyTypes) -> pa.Table:
    """Concatenate tables of :func:`read_keys`; without tables, the result has no rows."""
    empty = pa.table({name: pa.array([], arrow_type(kind)) for name, kind in types.items()})
    return pa.concat_tables([empty, *tables])


def fold(
    batches: Batches, mode: MergeMode, types: KeyTypes, state: Path, folder: Path
) -> tuple[list[StagedFile], dict[int, int]]:
    """The remaining rows of the batches of one increment, as files whose paths are relative to ``state``; and how many
    rows of each batch a later batch replaced.

    Update mode: for each key the row of the last batch that has it. Complete mode: the last batch. A file whose rows
    all remain is used as it is; others are copied into ``folder`` without the replaced rows. Raises UsageError
    UPDATE_KEYS_NOT_UNIQUE when rows of one batch have equal keys: it is unknown which of them is newer.
    """
    if mode == "complete":
        last = max(batches)
        gone = {batch: sum(file.rows for file in files) for batch, files in batches.items() if batch != last}
        return _with_rows(batches[last]), {batch: rows for batch, rows in gone.items() if rows}
    keys = {
        batch: join_keys((_keys_of(state / file.path, file.partition, types) for file in _with_rows(files)), types)
        for batch, files in batches.items()
    }
    index = KeyIndex(join_keys(keys.values(), types))
    numbers = {batch: index.find(table) for batch, table in keys.items()}
    for batch, table in keys.items():
        if repeated := find_repeated(table, numbers[batch]):
            raise errors.UPDATE_KEYS_NOT_UNIQUE(
                name=state.name,
                where=f"pipeline.yaml, table.keys; batch {batch}",
                batch=batch,
                keys=", ".join(types),
                example="; ".join(repeated),
            )
    kept: dict[int, list[StagedFile]] = {}
    superseded: dict[int, int] = {}
    later: pa.Array | None = None
    for batch in sorted(batches, reverse=True):
        own = numbers[batch]
        gone = pa.chunked_array([pa.repeat(False, len(own))]) if later is None else pc.is_in(own, value_set=later)
        later = pc.unique(own if later is None else pa.chunked_array([later, *own.chunks]))
        count = _count(gone)
        if count:
            superseded[batch] = count
        kept[batch] = _drop_rows(_with_rows(batches[batch]), gone, state, folder / str(batch))
    storage.sync_names_in(folder, state)
    return [file for batch in sorted(kept) for file in kept[batch]], dict(sorted(superseded.items()))


def replace_rows(
    new: Sequence[StagedFile],
    types: KeyTypes,
    table_path: Path,
    table_files: Sequence[DataFile],
    *,
    state: Path,
    folder: Path,
) -> Replacement:
    """The changes to the table's files by publishing ``new``, whose rows replace those with the same keys (``types``),
    or all rows where there are no keys; copies are written to ``folder``, which is in ``state``.

    The files of the table are examined one at a time. Those whose partition or footer shows that they have none of the
    keys are not read; of the others only the key columns are.
    """
    if not types:
        return Replacement(list(table_files))
    if not new:
        return Replacement()
    wanted = join_keys((_keys_of(state / file.path, file.partition, types) for file in new), types)
    index = KeyIndex(wanted)
    bounds = {name: _Bounds.of(wanted.column(name)) for name in types}
    in_folders = [name for name in types if name in new[0].partition]
    places = {_place(file.partition, in_folders) for file in new}
    remove: list[DataFile] = []
    losing: list[_Losing] = []
    for file in table_files:
        path = table_path / file.path
        if _place(file.partition, in_folders) not in places:
            continue
        try:
            gone = _find_rows(path, file, index, types, bounds)
        except FileNotFoundError as error:
            raise errors.TABLE_FILES_GONE(where=str(table_path), file_path=file.path) from error
        count = _count(gone)
        if not count:
            continue
        remove.append(file)
        if count < len(gone):
            losing.append(_Losing(path, file.partition, gone, file.size_bytes))
    carried = [
        _copy(together, folder / f"{number:05d}.parquet", state) for number, together in enumerate(_group(losing))
    ]
    storage.sync_names_in(folder, state)
    return Replacement(remove, carried)


@dataclass(frozen=True)
class _Losing:
    """A file that keeps the rows for which ``gone`` is false."""

    path: Path
    partition: Mapping[str, str | None]
    gone: pa.ChunkedArray
    size_bytes: int


def _group(files: Sequence[_Losing]) -> list[list[_Losing]]:
    """Group the files that are copied into one: small ones of the same partition and schema.

    Each run adds files. If each were copied alone, a table whose keys repeat would have more files to copy with every
    run.
    """
    groups: list[list[_Losing]] = []
    open_groups: dict[tuple[object, bytes], tuple[list[_Losing], int]] = {}
    for file in files:
        schema = pq.read_schema(storage.address(file.path))
        kind = (tuple(sorted(file.partition.items())), schema.serialize().to_pybytes())
        group, size = open_groups.get(kind, ([], 0))
        if not group or size + file.size_bytes > COPIED_BYTES_AT_MOST:
            group, size = [], 0
            groups.append(group)
        group.append(file)
        open_groups[kind] = (group, size + file.size_bytes)
    return groups


@dataclass(frozen=True)
class _Bounds:
    """The minimum and maximum of the wanted values of a key column, and whether NULL is wanted."""

    least: pa.Scalar
    greatest: pa.Scalar
    null: bool

    @staticmethod
    def of(column: pa.ChunkedArray) -> _Bounds:
        limits = pc.min_max(column)
        return _Bounds(limits["min"], limits["max"], column.null_count > 0)

    def condition(self, name: str, kind: pa.DataType) -> ds.Expression:
        """The bounds as a condition on a column, which has the type ``kind`` in the file."""
        column, is_null = ds.field(name), ds.field(name).is_null()
        if not self.least.is_valid:
            return is_null
        within = (column >= self.least.cast(kind)) & (column <= self.greatest.cast(kind))
        return within | is_null if self.null else within


def _find_rows(
    path: Path, file: DataFile, index: KeyIndex, types: KeyTypes, bounds: Mapping[str, _Bounds]
) -> pa.ChunkedArray:
    """A boolean per row of a table's file: whether the index has its key. Empty when the footer excludes all rows."""
    with pq.ParquetFile(storage.address(path)) as parquet:
        schema, metadata = parquet.schema_arrow, parquet.metadata
    groups = list(range(metadata.num_row_groups))
    likely = set(groups)
    fragment = ds.ParquetFileFormat().make_fragment(storage.address(path), filesystem=LocalFileSystem())
    for name in types:
        if name in schema.names:
            some = fragment.subset(bounds[name].condition(name, schema.field(name).type), schema=schema)
            likely &= {group.id for group in some.row_groups}
    if not likely:
        return pa.chunked_array([], pa.bool_())
    parts = []
    for group in groups:
        if group in likely:
            parts += index.find(read_keys(path, file.partition, types, [group])).is_valid().chunks
        else:
            parts.append(pa.repeat(False, metadata.row_group(group).num_rows))
    return pa.chunked_array(parts, pa.bool_())


def _keys_of(path: Path, partition: Mapping[str, str | None], types: KeyTypes) -> pa.Table:
    return read_keys(path, partition, types, range(pq.read_metadata(storage.address(path)).num_row_groups))


def _drop_rows(files: Sequence[StagedFile], gone: pa.ChunkedArray, state: Path, folder: Path) -> list[StagedFile]:
    """The files of a batch without the rows for which ``gone`` (a boolean per row of all of them) is true."""
    kept = []
    begin = 0
    for file in files:
        here = gone.slice(begin, file.rows)
        begin += file.rows
        count = _count(here)
        if count == 0:
            kept.append(file)
        elif count < file.rows:
            # below state/<query>/<batch>/<attempt>/ the copies have the paths of the originals
            inside = Path(*Path(file.path).parts[4:])
            kept.append(
                _copy([_Losing(state / file.path, file.partition, here, file.size_bytes)], folder / inside, state)
            )
    return kept


def _copy(files: Sequence[_Losing], target: Path, state: Path) -> StagedFile:
    copy_rows([(file.path, pc.invert(file.gone)) for file in files], target)
    rows = sum(len(file.gone) - _count(file.gone) for file in files)
    name = str(target.relative_to(state))
    return StagedFile(name, rows, storage.stat(target).size_bytes, dict(files[0].partition), storage.digest(target))


def _with_rows(files: Sequence[StagedFile]) -> list[StagedFile]:
    return [file for file in files if file.rows]


def _place(partition: Mapping[str, str | None], names: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(partition.get(name) or None for name in names)


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)
