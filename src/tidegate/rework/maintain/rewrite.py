"""Rewrite small files as larger ones, without publishing them.

Memory is bounded: a row group that is read, and the rows of one that is written, or of one file if rows are sorted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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

_SMALL_BYTES = 4 << 20
"""Files up to this size are read at once, which costs less than seeking in them."""
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
    done = Rewritten()
    for schema, files in find_alike(one, table_path):
        output = _Output(schema, new_paths, layout)
        for file in files:
            for rows in _read(file, table_path):
                output.add(rows)
            output.count_source(file.size_bytes)
        output.close()
        if len(output.paths) < len(files):
            done.replaced += files
            done.files += [_staged(path, state, one[0].partition) for path in output.paths]
        else:  # not fewer files than before
            for path in output.paths:
                storage.remove(path)
    replaced = {file.path for file in done.replaced}
    done.left = [file for file in one if file.path not in replaced]
    written, before = sum(file.rows for file in done.files), sum(file.rows for file in done.replaced)
    if written != before:
        raise errors.COMPACTION_LOST_ROWS(where=str(table_path), before=before, written=written)
    return done


def find_alike(one: Sequence[DataFile], table_path: Path) -> list[tuple[pa.Schema, list[DataFile]]]:
    """Group files by their schemas, from their footers. Files that are alone with theirs are excluded, and files whose
    row count differs from the log. Raises TABLE_FILES_GONE."""
    alike: list[tuple[pa.Schema, list[DataFile]]] = []
    for file in one:
        with _gone_is_named(table_path, file):
            metadata = pq.read_metadata(storage.open_input(table_path / file.path))
        if metadata.num_rows != file.rows:
            continue
        schema = metadata.schema.to_arrow_schema()
        found = next((files for known, files in alike if known.equals(schema, check_metadata=True)), None)
        if found is None:
            alike.append((schema, [file]))
        else:
            found.append(file)
    return [(schema, files) for schema, files in alike if len(files) > 1]


def _read(file: DataFile, table_path: Path) -> Iterator[pa.Table]:
    """Read the rows of a file, a row group at a time."""
    path = table_path / file.path
    with _gone_is_named(table_path, file):
        # From a buffer: given a path, pyarrow resolves its file system each time, which costs more than a small file.
        is_small = file.size_bytes <= _SMALL_BYTES
        source = pa.py_buffer(storage.read(path)) if is_small else storage.open_input(path)
        with pq.ParquetFile(source) as parquet:
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, use_threads=False)


class _Output:
    """The new files with the rows of files of one schema."""

    def __init__(self, schema: pa.Schema, new_paths: Iterator[Path], layout: Layout) -> None:
        spelt = {name.lower(): name for name in schema.names}
        self._order = [(spelt[name.lower()], "ascending") for name in layout.cluster_by if name.lower() in spelt]
        self._full_bytes = layout.full_bytes(is_sorted=bool(self._order))
        self._schema, self._new_paths = schema, new_paths
        self.paths: list[Path] = []
        self._held: list[pa.Table] = []
        self._held_bytes = self._source_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Add rows; unsorted rows are written when there are enough of them."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= HELD_BYTES and not self._order:
            self._flush()

    def count_source(self, size_bytes: int) -> None:
        """Count the bytes of an added file; sorted rows are written when these are enough for a new file."""
        self._source_bytes += size_bytes
        if self._source_bytes >= self._full_bytes and self._order:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows."""
        self._flush()
        self._end_file()

    def _flush(self) -> None:
        rows = pa.concat_tables(self._held).combine_chunks() if self._held else None
        self._held, self._held_bytes, self._source_bytes = [], 0, 0
        if rows is None or not rows.num_rows:
            return
        if self._order:
            rows = rows.take(pc.sort_indices(rows, sort_keys=self._order))
        try:
            if self._writer is None:
                self.paths.append(next(self._new_paths))
                self._writer = open_writer(self.paths[-1], self._schema)
            self._writer.write_table(rows, row_group_size=_SORTED_GROUP_ROWS if self._order else None)
        except OSError as error:
            if storage.is_disk_full(error):
                raise storage.disk_full(self.paths[-1]) from error
            raise
        if self._order or storage.stat(self.paths[-1]).size_bytes >= self._full_bytes:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            storage.sync_file(self.paths[-1])


def _staged(path: Path, state: Path, partition: Mapping[str, str | None]) -> StagedFile:
    rows = pq.read_metadata(storage.open_input(path)).num_rows
    size = storage.stat(path).size_bytes
    return StagedFile(str(path.relative_to(state)), rows, size, dict(partition_of(partition)), storage.digest(path))


@contextlib.contextmanager
def _gone_is_named(table_path: Path, file: DataFile) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise table_errors.TABLE_FILES_GONE(where=str(table_path), file_path=file.path) from error
