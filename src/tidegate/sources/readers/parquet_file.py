"""Reads rows of parquet files: the row groups that begin in a range of bytes, in batches of limited size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.links import find_source, open_link
from tidegate.sources.readers.rows import BATCH_BYTES, BATCH_ROWS, Calendar, Rows, calendar_of, without_columns
from tidegate.sources.readers.unreadable import DamagedFile

_BUFFER_BYTES = 1 << 20
_SAMPLE_ROWS = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_LARGEST_COLUMN_BYTES = 512 << 20
"""A column of a row group that has more, and whose values are too large on average, is not read."""
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"


class ParquetRows(Rows):
    """A parquet file, open. ``options`` are those of the source."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._size = _check_ends(path)
        how = {"page_checksum_verification": True, "buffer_size": _BUFFER_BYTES, "pre_buffer": False}
        try:
            self._file = pq.ParquetFile(find_source(path), coerce_int96_timestamp_unit="us", **how)
            self._metadata, self._leaves = self._file.metadata, self._file.schema
            self.schema = self._file.schema_arrow
            self._look(path, options, how)
        except pa.ArrowNotImplementedError as error:
            raise DamagedFile("it has columns of a kind that is not known") from error
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            raise DamagedFile.of(error, "its footer is damaged") from error

    def _look(self, path: str, options: Mapping[str, str], how: Mapping[str, int]) -> None:
        leaves = [self._leaves.column(at) for at in range(len(self._leaves))]
        self._intervals = [leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"]
        self._old = [
            name
            for name in self.schema.names
            if any(_is_within(leaf.path, name) for leaf in leaves if leaf.physical_type == "INT96")
        ]
        self._fine = pq.ParquetFile(find_source(path), **how) if self._old else None
        metadata = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (self._metadata.metadata or {}).items()
        }
        self.calendar = calendar_of(metadata, options.get("datetimeRebaseMode"), (3, 0), "legacyDateTime")
        self._old_calendar = calendar_of(metadata, options.get("int96RebaseMode"), (3, 1), "legacyINT96")

    def calendar_for(self, name: str) -> Calendar:
        return self._old_calendar if name in self._old else self.calendar

    def read(self, names: Sequence[str], begin: int, end: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        for name in names:
            if any(_is_within(path, name) for path in self._intervals):
                raise DamagedFile(f"column {name} is an interval, which no column holds")
        groups = [self._metadata.row_group(number) for number in range(self._metadata.num_row_groups)]
        whole = sum(group.total_byte_size for group in groups) or 1
        first = before = 0
        for number, group in enumerate(groups):
            # Its share of the file, not its offset: pyarrow ends the process for some damaged columns of a footer.
            place = self._size * before // whole
            if group.num_rows and begin <= place and (end is None or place < end):
                yield from self._read_group(number, group, list(names), first)
            first, before = first + group.num_rows, before + group.total_byte_size

    def close(self) -> None:
        self._file.close()
        if self._fine is not None:
            self._fine.close()

    def _read_group(
        self, number: int, group: pq.RowGroupMetaData, names: list[str], first: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not names:
            for start in range(0, group.num_rows, BATCH_ROWS):
                yield first + start, without_columns(min(BATCH_ROWS, group.num_rows - start))
            return
        # What the footer says of columns is looked at when pyarrow has found it sound, by reading some rows.
        sample = next(self._batches(self._file, _SAMPLE_ROWS, number, names), None)
        if sample is None:
            raise DamagedFile(f"row group {number + 1} has fewer rows than the footer says")
        size = sum(self._bytes_at_least(group, name, first) for name in names) // group.num_rows
        count = max(1, min(BATCH_ROWS, BATCH_BYTES // max(size, sample.nbytes // max(len(sample), 1), 1)))
        batches = self._batches(self._file, count, number, names)
        olds = [name for name in names if name in self._old]
        fine = self._batches(self._fine, count, number, olds) if olds else None
        end = first + group.num_rows
        for batch in batches:
            if fine is not None:
                self.fine = dict(zip(olds, next(fine).columns, strict=True))
            yield first, batch
            first += len(batch)
        if first != end:
            raise DamagedFile(f"row group {number + 1} has fewer rows than the footer says")

    def _batches(self, file: pq.ParquetFile, count: int, number: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in file.iter_batches(count, [number], names, use_threads=False):
                # A name may be that of a path too; nothing is asked for twice.
                yield batch.select(names) if batch.schema.names != names else batch
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            place = f"row group {number + 1} of {self._metadata.num_row_groups}"
            raise DamagedFile.of(error, f"{place}: {_explain(str(error))}") from error

    def _bytes_at_least(self, group: pq.RowGroupMetaData, name: str, first: int) -> int:
        """The bytes that a column has by the footer, unpacked. Raises DamagedFile where they are too many to look."""
        size = 0
        for at in range(group.num_columns):
            chunk, leaf = group.column(at), self._leaves.column(at)
            if _is_within(leaf.path, name):
                unpacked = chunk.num_values * _WIDTHS.get(leaf.physical_type, 4)
                is_text = leaf.physical_type not in _WIDTHS
                size += max(unpacked, chunk.total_uncompressed_size) if is_text else unpacked
        if size > max(_LARGEST_COLUMN_BYTES, group.num_rows * LONGEST_RECORD_BYTES):
            rows = f"rows {first + 1:,} to {first + group.num_rows:,}: column {name} has {size:,} bytes"
            raise DamagedFile(f"{rows}; the limit is {LONGEST_RECORD_BYTES:,} bytes a value")
        return size


def _explain(text: str) -> str:
    """Explain an error of pyarrow."""
    if "CRC" in text or "checksum" in text:
        return "a checksum is wrong"
    return "its codec is not known" if "codec" in text else "its pages are damaged or of an unknown kind"


def _is_within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _check_ends(path: str) -> int:
    """The size of a file that begins and ends as parquet files do."""
    with open_link(path) as file:
        size = file.seek(0, 2)
        begin_end = b""
        if size >= 12:
            file.seek(0)
            begin_end = file.read(4)
            file.seek(size - 4)
            begin_end += file.read(4)
    if _ENCRYPTED in (begin_end[:4], begin_end[4:]):
        raise DamagedFile("it is encrypted")
    if begin_end[:4] != _MAGIC:
        raise DamagedFile("it does not begin as a parquet file")
    if begin_end[4:] != _MAGIC:
        raise DamagedFile("it has no footer: it is cut off, or not yet whole")
    return size
