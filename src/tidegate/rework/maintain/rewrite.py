"""Rewrite small files as larger ones, without publishing them.

A thread reads ahead, since opening a small file costs more than reading its rows. Memory is bounded: a few chunks, and
the rows of one row group, or of one file if rows are sorted.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.rework import errors
from tidegate.state.manifest import StagedFile
from tidegate.table import errors as table_errors
from tidegate.table.log.snapshot import partition_of
from tidegate.table.log.state import DataFile
from tidegate.table.upsert.rewrite import HELD_BYTES, open_writer

FILE_BYTES = 128 << 20
"""The size at which a file is full and the next one is started."""
_SORTED_BYTES = 64 << 20
"""The size of the input that is held in memory and sorted into one file."""

_ASKED_FIRST = 100
"""Up to this number of files the footers are read first, so that no file is written in vain. With more files, schemas
are compared when they are read."""
_AHEAD = 4
"""Chunks that are read ahead, so that the reader has work while a row group is written."""
_CHUNK_BYTES = 4 << 20
_CHUNK_FILES = 100
_SORTED_GROUP_ROWS = 128 * 1024
"""Rows of a row group in a sorted file: the unit that a reader can skip."""


@dataclass
class Rewritten:
    """The result of a rewrite: ``files`` have the rows of ``replaced``; ``left`` stay as they are, because no other
    file has their columns, or because their footer disagrees with the log."""

    files: list[StagedFile] = field(default_factory=list)
    replaced: list[DataFile] = field(default_factory=list)
    left: list[DataFile] = field(default_factory=list)


@dataclass(frozen=True)
class Layout:
    """The layout of new files: ``cluster_by`` are the columns that rows are sorted by, nulls last, where the files have
    them; files smaller than ``below`` bytes are small."""

    cluster_by: Sequence[str]
    below: int

    def full_bytes(self, *, is_sorted: bool) -> int:
        """The size at which a file is full: large enough that it is never compacted again."""
        return max(_SORTED_BYTES if is_sorted else FILE_BYTES, 2 * self.below)


def rewrite_bin(
    one: Sequence[DataFile], table_path: Path, new_paths: Iterator[Path], state: Path, layout: Layout
) -> Rewritten:
    """Write the rows of small files of one partition durably to as few files as possible: one group per schema, with
    the columns and settings of the replaced files. ``new_paths`` are their paths, below the folder ``state``.

    Raises DisagreementError TABLE_FILES_GONE, DefectError COMPACTION_LOST_ROWS, TryAgainError DISK_FULL.
    """
    groups: list[_Group] = []
    files = choose_alike(one, table_path) if len(one) <= _ASKED_FIRST else one
    chosen = {file.path for file in files}
    done = Rewritten(left=[file for file in one if file.path not in chosen])
    for some in _read_ahead(files, table_path):
        if some.schema is None:
            done.left += some.files
            continue
        group = _group_of(groups, some.schema, new_paths, layout)
        group.replaced += some.files
        for table in some.tables:
            group.add(table)
        group.end_of_files(sum(file.size_bytes for file in some.files))
    for group in groups:
        group.close()
        if len(group.paths) >= len(group.replaced):  # not fewer files than before
            done.left += group.replaced
            for path in group.paths:
                storage.remove(path)
            continue
        done.replaced += group.replaced
        done.files += [_staged(path, state, one[0].partition) for path in group.paths]
    written, before = sum(file.rows for file in done.files), sum(file.rows for file in done.replaced)
    if written != before:
        raise errors.COMPACTION_LOST_ROWS(where=str(table_path), before=before, written=written)
    return done


def choose_alike(one: Sequence[DataFile], table_path: Path) -> list[DataFile]:
    """The small files that :func:`rewrite_bin` replaces, by their footers alone. Raises TABLE_FILES_GONE."""
    alike: list[tuple[pa.Schema, list[DataFile]]] = []
    for file in one:
        with _open(table_path, file) as parquet:
            if parquet.metadata.num_rows != file.rows:
                continue
            schema = parquet.schema_arrow
        found = next((files for known, files in alike if known.equals(schema, check_metadata=True)), None)
        if found is None:
            alike.append((schema, [file]))
        else:
            found.append(file)
    return [file for _, files in alike if len(files) > 1 for file in files]


class _Alike(NamedTuple):
    """Consecutive files of one schema, and their rows; without a schema, files whose row count differs from the log."""

    files: list[DataFile]
    schema: pa.Schema | None
    tables: Iterable[pa.Table]


@dataclass
class _Group:
    """The output of files of one schema."""

    schema: pa.Schema
    new_paths: Iterator[Path]
    order: list[tuple[str, str]]
    full_bytes: int
    replaced: list[DataFile] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    _held: list[pa.Table] = field(default_factory=list)
    _held_bytes: int = 0
    _source_bytes: int = 0
    _writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Add rows; unsorted rows are written when there are enough of them."""
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= HELD_BYTES and not self.order:
            self._flush()

    def end_of_files(self, size_bytes: int) -> None:
        """Count the bytes of added files; sorted rows are written when these are enough for a file."""
        self._source_bytes += size_bytes
        if self._source_bytes >= self.full_bytes and self.order:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows."""
        self._flush()
        self._end_file()

    def _flush(self) -> None:
        rows = pa.concat_tables(self._held) if self._held else None
        self._held, self._held_bytes, self._source_bytes = [], 0, 0
        if rows is None or not rows.num_rows:
            return
        if self.order:
            rows = rows.take(pc.sort_indices(rows, sort_keys=self.order))
        try:
            if self._writer is None:
                self.paths.append(next(self.new_paths))
                self._writer = open_writer(self.paths[-1], self.schema, rows)
            self._writer.write_table(rows, row_group_size=_SORTED_GROUP_ROWS if self.order else None)
        except OSError as error:
            if storage.is_disk_full(error):
                raise storage.disk_full(self.paths[-1]) from error
            raise
        if self.order or storage.stat(self.paths[-1]).size_bytes >= self.full_bytes:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            storage.sync_file(self.paths[-1])


def _group_of(groups: list[_Group], schema: pa.Schema, new_paths: Iterator[Path], layout: Layout) -> _Group:
    for group in groups:
        if group.schema.equals(schema, check_metadata=True):
            return group
    spelt = {name.lower(): name for name in schema.names}
    order = [(spelt[name.lower()], "ascending") for name in layout.cluster_by if name.lower() in spelt]
    groups.append(_Group(schema, new_paths, order, layout.full_bytes(is_sorted=bool(order))))
    return groups[-1]


def _staged(path: Path, state: Path, partition: Mapping[str, str | None]) -> StagedFile:
    rows = pq.read_metadata(storage.address(path)).num_rows
    size = storage.stat(path).size_bytes
    return StagedFile(str(path.relative_to(state)), rows, size, dict(partition_of(partition)), storage.digest(path))


def _read_ahead(files: Sequence[DataFile], table_path: Path) -> Iterator[_Alike]:
    """Read the files: small ones together, a large one row group by row group."""
    chunks = deque(_divide(files))
    with ThreadPoolExecutor(1, thread_name_prefix="read") as pool:
        waiting: deque[tuple[Sequence[DataFile], Future[list[_Alike]]]] = deque()
        while chunks or waiting:
            while chunks and len(waiting) < _AHEAD:
                chunk = chunks.popleft()
                waiting.append((chunk, pool.submit(_read_small, chunk, table_path)))
            chunk, future = waiting.popleft()
            found = future.result()
            yield from found
            if not found:
                with _open(table_path, chunk[0]) as parquet:
                    groups = map(parquet.read_row_group, range(parquet.num_row_groups))
                    fits = parquet.metadata.num_rows == chunk[0].rows
                    yield _Alike([chunk[0]], parquet.schema_arrow if fits else None, groups if fits else ())


def _divide(files: Sequence[DataFile]) -> Iterator[Sequence[DataFile]]:
    """Divide into chunks of small files; each large file is its own chunk."""
    begin = size = 0
    for number, file in enumerate(files):
        if number > begin and (size + file.size_bytes > _CHUNK_BYTES or number - begin >= _CHUNK_FILES):
            yield files[begin:number]
            begin, size = number, 0
        size += file.size_bytes
    if files:
        yield files[begin:]


def _read_small(files: Sequence[DataFile], table_path: Path) -> list[_Alike]:
    """Read small files; [] for a large one, which the caller reads row group by row group."""
    if files[0].size_bytes > _CHUNK_BYTES:
        return []
    runs: list[tuple[list[DataFile], pa.Schema | None, list[pa.Table]]] = []
    for file in files:
        with _gone_is_named(table_path, file):
            data = storage.read(table_path / file.path)
        # From a buffer: given a path, pyarrow resolves its file system each time, which costs more than a small file.
        table = pq.ParquetFile(pa.py_buffer(data)).read(use_threads=False)
        if table.num_rows != file.rows:
            runs.append(([file], None, []))
        elif runs and runs[-1][1] is not None and runs[-1][1].equals(table.schema, check_metadata=True):
            runs[-1][0].append(file)
            runs[-1][2].append(table)
        else:
            runs.append(([file], table.schema, [table]))
    return [
        _Alike(run, schema, [pa.concat_tables(tables).combine_chunks()] if tables else ())
        for run, schema, tables in runs
    ]


def _open(table_path: Path, file: DataFile) -> pq.ParquetFile:
    with _gone_is_named(table_path, file):
        return pq.ParquetFile(storage.address(table_path / file.path))


@contextlib.contextmanager
def _gone_is_named(table_path: Path, file: DataFile) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise table_errors.TABLE_FILES_GONE(where=str(table_path), file_path=file.path) from error
