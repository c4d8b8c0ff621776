"""Replacing rows, within an increment (fold) and in the table (merge): writes files, publishes nothing.

Update mode: a row replaces the one with the same keys, unless that one is greater in the columns of ``order_by``. NULL
equals NULL in a key: a new row without a customer replaces the one row without a customer. In the order NULL and NaN
are less than any value. Complete mode: each batch is the whole result and replaces all rows. A file that loses rows is
copied without them into a staging folder: no file is changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
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
from tidegate.table.upsert.columns import UpsertColumns
from tidegate.table.upsert.rewrite import copy_rows

Batches = Mapping[int, Sequence[StagedFile]]
"""The staged files of each batch of an increment, in order of batch."""
COPIED_BYTES_AT_MOST = 128 << 20
"""Files that lose rows are copied into one up to this total size; a larger file is copied alone."""


def read_columns(
    path: Path, partition: Mapping[str, str | None], types: Mapping[str, str], groups: Sequence[int]
) -> pa.Table:
    """Read the columns of ``types`` (name: Delta type) of some row groups of a file, in that order, for comparison.

    A column that is not in the file is a partition column, or was added to the table later (NULL).
    """
    with pq.ParquetFile(storage.open_input(path)) as file:
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
    """The Arrow type in which the values of a column are compared; strings may exceed 2 GB in total."""
    if kind.startswith("decimal"):
        precision, _, scale = kind.removeprefix("decimal").strip("()").partition(",")
        return pa.decimal128(int(precision or 10), int(scale or 0))
    return {
        "string": pa.large_string(), "binary": pa.large_binary(), "long": pa.int64(), "integer": pa.int32(),
        "short": pa.int16(), "byte": pa.int8(), "boolean": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "float": pa.float32(), "double": pa.float64(),
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


def _read_staged(files: Sequence[StagedFile], state: Path, columns: UpsertColumns) -> pa.Table:
    """Read the columns of all rows of staged files; without files, the result has no rows."""
    empty = pa.table({name: pa.array([], arrow_type(kind)) for name, kind in columns.all.items()})
    parts = []
    for file in files:
        groups = range(pq.read_metadata(storage.open_input(state / file.path)).num_row_groups)
        parts.append(read_columns(state / file.path, file.partition, columns.all, groups))
    return pa.concat_tables([empty, *parts])


def fold(
    batches: Batches, mode: MergeMode, columns: UpsertColumns, state: Path, folder: Path
) -> tuple[list[StagedFile], dict[int, int]]:
    """The remaining rows of the batches of one increment, as files whose paths are relative to ``state``; and how many
    rows of each batch others replaced.

    Update mode: for each key the row with the greatest values of the order, and of equal ones that of the last batch,
    or, in a batch, the last one in its files. Complete mode: the last batch. A file whose rows all remain is used as it
    is; others are copied into ``folder`` without the replaced rows. Raises UsageError UPDATE_KEYS_NOT_UNIQUE when rows
    of one batch have equal keys and no column tells which of them is newer.
    """
    if mode == "complete":
        last = max(batches)
        gone = {batch: sum(file.rows for file in files) for batch, files in batches.items() if batch != last}
        return _with_rows(batches[last]), {batch: rows for batch, rows in gone.items() if rows}
    files = [file for batch in sorted(batches) for file in _with_rows(batches[batch])]
    rows = {batch: sum(file.rows for file in batches[batch]) for batch in sorted(batches)}
    table = _read_staged(files, state, columns)
    keys = table.select(list(columns.keys))
    numbers = KeyIndex(keys).find(keys)
    if not columns.order:
        _refuse_repeated(table, numbers, rows, state.name)
    replaced = pc.invert(find_newest(numbers, table.select(list(columns.order))))
    kept = drop_rows(files, replaced, state, folder)
    return kept, count_by_batch(replaced, rows)


def _refuse_repeated(table: pa.Table, numbers: pa.ChunkedArray, rows: Mapping[int, int], name: str) -> None:
    begin = 0
    for batch, count in rows.items():
        if repeated := find_repeated(table.slice(begin, count), numbers.slice(begin, count)):
            raise errors.UPDATE_KEYS_NOT_UNIQUE(
                name=name,
                where=f"pipeline.yaml, table.keys; batch {batch}",
                batch=batch,
                keys=", ".join(table.column_names),
                example="; ".join(repeated),
            )
        begin += count


def find_newest(numbers: pa.ChunkedArray, order: pa.Table) -> pa.ChunkedArray:
    """A boolean per row: whether of the rows with its number it is the one with the greatest values in ``order``, and
    of equal ones the last. ``numbers`` are from a :class:`KeyIndex`."""
    places = np.arange(len(numbers))
    ranked = places
    if order.num_columns:
        by = [*map(_without_nan, order.columns), pa.chunked_array([places])]
        falling = [(str(number), "descending") for number in range(len(by))]  # NULL is the last then
        sortable = pa.table({name: column for (name, _), column in zip(falling, by, strict=True)})
        ranked = pc.sort_indices(sortable, sort_keys=falling).to_numpy()[::-1]
    newest = np.zeros(len(numbers), np.int64)
    own = numbers.to_numpy()
    newest[own[ranked]] = ranked  # of several rows with one number the last assignment counts
    return pa.chunked_array([newest[own] == places])


def _is_greater(left: pa.Table, right: pa.Table) -> pa.ChunkedArray:
    """A boolean per row: whether the values of ``left`` are greater, column by column."""
    greater = equal = None
    for name in left.column_names:
        mine, other = _without_nan(left.column(name)), _without_nan(right.column(name))
        is_above = pc.coalesce(pc.greater(mine, other), pc.and_(mine.is_valid(), other.is_null()))
        is_same = pc.coalesce(pc.equal(mine, other), pc.and_(mine.is_null(), other.is_null()))
        greater = is_above if greater is None else pc.or_(greater, pc.and_(equal, is_above))
        equal = is_same if equal is None else pc.and_(equal, is_same)
    return greater


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with NULL for NaN."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def replace_rows(
    new: Sequence[StagedFile],
    columns: UpsertColumns,
    table_path: Path,
    table_files: Sequence[DataFile],
    *,
    state: Path,
    folder: Path,
) -> tuple[Replacement, pa.ChunkedArray]:
    """The changes to the table's files by publishing ``new``, whose rows replace those with the same keys, or all rows
    where there are no keys; copies are written to ``folder``, which is in ``state``. And a boolean per row of ``new``:
    whether the table has a newer row, so that it must not be published.

    The files of the table are examined one at a time. Those whose partition or footer shows that they have none of the
    keys are not read; of the others only the compared columns are.
    """
    if not columns.keys or not new:
        none = pa.chunked_array([pa.repeat(False, sum(file.rows for file in new))])
        return Replacement([] if columns.keys else list(table_files)), none
    incoming = _Incoming(_read_staged(new, state, columns), columns)
    in_folders = [name for name in columns.keys if name in new[0].partition]
    places = {_place(file.partition, in_folders) for file in new}
    remove: list[DataFile] = []
    losing: list[_Losing] = []
    for file in table_files:
        path = table_path / file.path
        if _place(file.partition, in_folders) not in places:
            continue
        try:
            gone = _find_rows(path, file, incoming)
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
    return Replacement(remove, carried), pa.chunked_array([incoming.older])


class _Incoming:
    """New rows with distinct keys, compared with rows of the table. Afterwards ``older`` has a boolean per new row:
    whether the table has a newer one."""

    def __init__(self, rows: pa.Table, columns: UpsertColumns) -> None:
        self.columns = columns
        self.older = np.zeros(rows.num_rows, bool)
        # Keys are distinct, so the number of a key is the place of its row.
        self._index = KeyIndex(rows.select(list(columns.keys)))
        self._order = rows.select(list(columns.order)).combine_chunks()
        self._bounds = {name: _Bounds.of(rows.column(name)) for name in columns.keys}

    def find_groups(self, path: Path) -> tuple[list[int], set[int]]:
        """The number of rows of each row group of a file; and those that may have one of the keys, by the footer."""
        with pq.ParquetFile(storage.open_input(path)) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
        likely = set(range(metadata.num_row_groups))
        file_system = None if storage.is_object(path) else LocalFileSystem()
        fragment = ds.ParquetFileFormat().make_fragment(storage.open_input(path), filesystem=file_system)
        for name, bounds in self._bounds.items():
            if name in schema.names:
                some = fragment.subset(bounds.condition(name, schema.field(name).type), schema=schema)
                likely &= {group.id for group in some.row_groups}
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)], likely

    def find_replaced(self, rows: pa.Table) -> pa.ChunkedArray:
        """A boolean per row of the table: whether a new row replaces it. Notes the new rows that are older."""
        numbers = self._index.find(rows.select(list(self.columns.keys)))
        is_known = numbers.is_valid()
        if not self.columns.order:
            return is_known
        order = rows.select(list(self.columns.order))
        is_newer = pc.and_(is_known, _is_greater(order, self._order.take(numbers)))
        self.older[numbers.filter(is_newer).to_numpy()] = True
        return pc.and_not(is_known, is_newer)


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
        schema = pq.read_schema(storage.open_input(file.path))
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


def _find_rows(path: Path, file: DataFile, incoming: _Incoming) -> pa.ChunkedArray:
    """A boolean per row of a table's file: whether a new row replaces it. Empty when the footer excludes all rows."""
    sizes, likely = incoming.find_groups(path)
    if not likely:
        return pa.chunked_array([], pa.bool_())
    parts = []
    for group, rows in enumerate(sizes):
        if group in likely:
            parts += incoming.find_replaced(read_columns(path, file.partition, incoming.columns.all, [group])).chunks
        else:
            parts.append(pa.repeat(False, rows))
    return pa.chunked_array(parts, pa.bool_())


def drop_rows(files: Sequence[StagedFile], gone: pa.ChunkedArray, state: Path, folder: Path) -> list[StagedFile]:
    """Staged files without the rows for which ``gone`` (a boolean per row of all of them) is true: a file that loses
    some is copied into ``folder``."""
    kept = []
    begin = 0
    for number, file in enumerate(files):
        here = gone.slice(begin, file.rows)
        begin += file.rows
        count = _count(here)
        if count == 0:
            kept.append(file)
        elif count < file.rows:
            # below state/<query>/<batch>/<attempt>/ the copies have the paths of the originals
            target = folder / f"{number:05d}" / Path(*Path(file.path).parts[4:])
            kept.append(_copy([_Losing(state / file.path, file.partition, here, file.size_bytes)], target, state))
    storage.sync_names_in(folder, state)
    return kept


def count_by_batch(mask: pa.ChunkedArray, rows: Mapping[int, int]) -> dict[int, int]:
    """Count the true values of a boolean per row by batch, without batches that have none. ``rows`` is the number of
    rows of each batch, in their order."""
    counts = {}
    begin = 0
    for batch, length in rows.items():
        counts[batch] = _count(mask.slice(begin, length))
        begin += length
    return {batch: count for batch, count in counts.items() if count}


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
