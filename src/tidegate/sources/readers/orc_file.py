"""Reads rows of ORC files: the stripes that begin in a range of bytes, in batches of limited size.

pyarrow has times in 64-bit nanoseconds and refuses a whole stripe for one that is out of range, such as 9999-12-31. So
it gets each stripe as a separate file whose times are whole numbers, and the times are computed here.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as kinds
from pyarrow import orc

from tidegate.sources.readers.arrow_nested import null_mask, open_list, open_map
from tidegate.sources.readers.links import open_link
from tidegate.sources.readers.orc_format import (
    TIMESTAMP,
    TIMESTAMP_INSTANT,
    NanosecondStream,
    OrcFooter,
    Stripe,
    Type,
)
from tidegate.sources.readers.rows import BATCH_BYTES, BATCH_ROWS, Calendar, Rows
from tidegate.sources.readers.unreadable import DamagedFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TIMES = (TIMESTAMP, TIMESTAMP_INSTANT)
_FAR = 10**12
"""Seconds that are beyond every year a column holds."""
_EPOCH_YEAR = pa.scalar("2015-01-01T00:00:00").cast(pa.timestamp("s"))


class OrcRows(Rows):
    """An ORC file, open."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        with contextlib.ExitStack() as opened:
            self._file = opened.enter_context(open_link(path))
            self._look()
            opened.pop_all()  # it is closed with this
        self.calendar = Calendar("LEGACY") if self._footer.is_julian else Calendar()

    def _look(self) -> None:
        try:
            self._footer = OrcFooter(self._file)
            schema = orc.ORCFile(pa.PythonFile(self._file, "r")).schema
            self._columns = dict(zip(schema.names, self._footer.types[0].inside, strict=True))
            self.schema = pa.schema(
                [field.with_type(self._type_of(field.type, self._columns[field.name])) for field in schema]
            )
        except pa.ArrowNotImplementedError as error:
            raise DamagedFile("it has columns of a kind that is not known") from error
        except (pa.ArrowException, OSError, ValueError, IndexError) as error:
            raise DamagedFile.of(error, "its footer is damaged") from error

    def read(self, names: Sequence[str], begin: int, end: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = 0
        for number, stripe in enumerate(self._footer.stripes):
            behind = first + stripe.rows
            if begin <= stripe.begin and (end is None or stripe.begin < end):
                try:
                    for batch in self._read_stripe(stripe, list(names)):
                        yield first, batch
                        first += len(batch)
                except (pa.ArrowException, OSError, ValueError, IndexError, OverflowError, zlib.error) as error:
                    why = f"stripe {number + 1} of {len(self._footer.stripes)} is damaged"
                    raise DamagedFile.of(error, why) from error
                if first != behind:
                    raise DamagedFile(f"stripe {number + 1} has not as many rows as the footer says")
            first = behind

    def close(self) -> None:
        self._file.close()

    def _type_of(self, kind: pa.DataType, number: int) -> pa.DataType:
        """The type of a column with its times in microseconds."""
        inside = self._footer.types[number].inside
        if kinds.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if kinds.is_struct(kind):
            return pa.struct([one.with_type(self._type_of(one.type, n)) for one, n in zip(kind, inside, strict=True)])
        if kinds.is_list(kind):
            return pa.list_(self._type_of(kind.value_type, inside[0]))
        if kinds.is_map(kind):
            return pa.map_(self._type_of(kind.key_type, inside[0]), self._type_of(kind.item_type, inside[1]))
        return kind

    def _read_stripe(self, stripe: Stripe, names: list[str]) -> Iterator[pa.RecordBatch]:
        within = {number for name in names for number in self._list_within(self._columns[name])}
        self._footer.check_lengths(stripe, within)
        timed = {number for number in within if self._footer.types[number].kind in _TIMES}
        streams, zone = self._footer.read_nanoseconds(stripe, timed) if timed else ({}, "UTC")
        alone = pa.PythonFile(_Spliced(self._file, self._footer.data_end, self._footer.tail_of(stripe)), "r")
        count = max(1, min(BATCH_ROWS, BATCH_BYTES * stripe.rows // max(stripe.data, 1)))
        # Nothing is read ahead: a batch may be large.
        scanner = (
            ds.OrcFileFormat()
            .make_fragment(alone)
            .scanner(columns=names, batch_size=count, batch_readahead=0, fragment_readahead=0, use_threads=False)
        )
        for batch in scanner.to_batches():
            if not len(batch):
                continue
            times = _Times(streams, zone, self._footer.types)
            columns = [
                times.restore(batch.column(name), self._columns[name], self.schema.field(name).type) for name in names
            ]
            self.fine = {}
            if times.has_finer:
                times.in_nanoseconds = True
                self.fine = {
                    name: times.restore(batch.column(name), self._columns[name], self.schema.field(name).type)
                    for name in names
                }
            yield pa.RecordBatch.from_arrays(columns, names) if names else batch

    def _list_within(self, number: int) -> Iterator[int]:
        """The number of a column, and those of the columns in it."""
        yield number
        for inner in self._footer.types[number].inside:
            yield from self._list_within(inner)


class _Times:
    """The times of one batch."""

    def __init__(self, streams: Mapping[int, NanosecondStream], zone: str, types: Sequence[Type]) -> None:
        self._streams, self._zone, self._types = streams, zone, types
        self._taken: dict[int, NDArray[np.int64]] = {}
        self.has_finer = self.in_nanoseconds = False

    def restore(self, array: pa.Array, number: int, wanted: pa.DataType) -> pa.Array:
        """The column ``number`` with times in place of its whole numbers."""
        if array.type == wanted:
            return array
        inside = self._types[number].inside
        if kinds.is_timestamp(wanted):
            return self._restore_times(array, number, wanted)
        mask = null_mask(array)
        if kinds.is_struct(wanted):
            parts = [
                self.restore(part, inner, field.type)
                for part, inner, field in zip(array.flatten(), inside, wanted, strict=True)
            ]
            names = [field.name for field in wanted]
            return pa.StructArray.from_arrays(parts, names, mask=mask)
        if kinds.is_map(wanted):
            ends, keys, items = open_map(array)
            keys = self.restore(keys, inside[0], wanted.key_type)
            items = self.restore(items, inside[1], wanted.item_type)
            return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, items, mask=mask)
        ends, items = open_list(array)
        items = self.restore(items, inside[0], wanted.value_type)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=mask)

    def _restore_times(self, array: pa.Array, number: int, wanted: pa.TimestampType) -> pa.Array:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        if number not in self._taken:
            stream = self._streams.get(number)
            self._taken[number] = stream.take(int(valid.sum())) if stream else np.zeros(int(valid.sum()), np.int64)
        nanoseconds = np.zeros(len(array), np.int64)
        nanoseconds[valid] = self._taken[number]
        seconds = _to_wall(array, self._zone, is_instant=wanted.tz is not None)
        # So the format writes a time before 1970 that has a part of a second.
        seconds = np.where((seconds < 0) & (nanoseconds > 999_999), seconds - 1, seconds)
        seconds = np.clip(seconds, -_FAR, _FAR)
        if self.in_nanoseconds:
            with np.errstate(over="ignore"):
                numbers, unit = seconds * 10**9 + nanoseconds, "ns"
        else:
            self.has_finer = self.has_finer or bool((nanoseconds % 1000).any())
            numbers, unit = seconds * 10**6 + nanoseconds // 1000, "us"
        return pa.array(numbers, mask=~valid).view(pa.timestamp(unit, wanted.tz))


def _to_wall(array: pa.Array, zone: str, *, is_instant: bool) -> NDArray[np.int64]:
    """Seconds since 1970, as a clock of ``zone`` shows them, of seconds since 2015 by that clock."""
    epoch = pc.assume_timezone(_EPOCH_YEAR, zone).cast(pa.int64()).as_py() if zone != "UTC" else 1_420_070_400
    seconds = np.clip(array.fill_null(0).to_numpy(zero_copy_only=False), -_FAR, _FAR) + epoch
    if is_instant or zone in ("UTC", "GMT", "Etc/UTC"):
        return seconds
    return pc.local_timestamp(pa.array(seconds).view(pa.timestamp("s", zone))).view(pa.int64()).to_numpy()


class _Spliced(io.RawIOBase):
    """The first ``count`` bytes of a file, and others behind them."""

    def __init__(self, file: BinaryIO, count: int, tail: bytes) -> None:
        self._file, self._count, self._tail, self._at = file, count, tail, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._count + len(self._tail))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._count + len(self._tail)
        until = end if size < 0 else min(self._at + size, end)
        content = b""
        if self._at < self._count:
            self._file.seek(self._at)
            content = self._file.read(min(until, self._count) - self._at)
        if until > self._count:
            content += self._tail[max(self._at - self._count, 0) : until - self._count]
        self._at += len(content)
        return content
