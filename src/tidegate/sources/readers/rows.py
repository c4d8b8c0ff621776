"""Files that describe themselves, as rows of Arrow in the types that the file has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers.arrow_nested import Refusals, Spot
from tidegate.sources.readers.form import Form, load_reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

Mode = Literal["CORRECTED", "LEGACY", "EXCEPTION"]
_SWITCH = -141_427
"""15 October 1582, the first day on which both calendars agree."""
_ZONED = -25_567
"""1 January 1900: before it, libraries disagree about the offsets of zones."""


@dataclass(frozen=True)
class Calendar:
    """The calendar of a file: ``CORRECTED`` is today's, ``LEGACY`` that of older writers; with ``EXCEPTION`` it is not
    known, and days that depend on it are refused. ``zone`` is that of the writer."""

    mode: Mode = "CORRECTED"
    zone: str = "UTC"

    def rebase(self, numbers: pa.Array, per_day: int, spot: Spot, found: Refusals, name: str) -> pa.Array:
        """Convert ``numbers``, of which a day has ``per_day``, to the date that the writer meant. Ambiguous values are
        refused."""
        if self.mode == "CORRECTED":
            return numbers
        is_time = per_day > 1
        is_zoned = is_time and (self.mode == "EXCEPTION" or self.zone not in ("UTC", "Etc/UTC", "GMT", "Z"))
        first = (_ZONED if is_zoned else _SWITCH) * per_day
        least = pc.min(numbers).as_py()
        if least is None or least >= first:
            return numbers
        values = numbers.fill_null(first).to_numpy(zero_copy_only=False).copy()
        early = np.flatnonzero(values < first)
        if self.mode == "EXCEPTION" or is_zoned:
            year = "1900" if is_zoned else "15 October 1582"
            why = f"{name} before {year} of a writer whose "
            option = "set datetimeRebaseMode, for INT96 int96RebaseMode, to CORRECTED or LEGACY"
            reason = f"calendar is not known: {option}" if self.mode == "EXCEPTION" else f"zone was {self.zone}"
            found.refuse(spot, early, why + reason)
            return _without(numbers, early)
        days, rest = np.divmod(values[early], per_day)
        meant, missing = julian_to_gregorian(days)
        values[early] = meant * per_day + rest
        found.refuse(spot, early[missing], f"{name} on 29 February of a year that has none by now")
        return _without(pc.if_else(numbers.is_valid(), pa.array(values, numbers.type), None), early[missing])


def julian_to_gregorian(days: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the days since 1970 that have the same date today as ``days`` in the Julian calendar, and which of them
    are a 29 February that does not exist today."""
    # Year, month and day of a Julian day, counted from March: 1 March of year 0 is day -719470 by that calendar.
    since = days.astype(np.int64) + 719_470
    year = (4 * since + 3) // 1461
    of_year = since - 1461 * year // 4
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5
    # The same date in the Gregorian calendar, which has no leap day in three of four centuries.
    gregorian = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_468
    leap = year + 1  # the year in which this February is
    has_leap_day = (leap % 4 == 0) & ((leap % 100 != 0) | (leap % 400 == 0))
    return gregorian, (month == 11) & (day == 28) & ~has_leap_day


def _without(numbers: pa.Array, places: NDArray[np.int64]) -> pa.Array:
    mask = np.zeros(len(numbers), bool)
    mask[places] = True
    return pc.if_else(pa.array(mask), None, numbers)


BATCH_ROWS, BATCH_BYTES = 10_000, 4 << 20
_WRITER = "org.apache.spark."


class Rows(ABC):
    """A file, open. ``options`` are those of the source for the parser."""

    @abstractmethod
    def __init__(self, path: str, options: Mapping[str, str]) -> None: ...

    schema: pa.Schema
    calendar = Calendar()
    fine: Mapping[str, pa.Array] = {}
    """Of the newest batch, columns of times in microseconds as they are in nanoseconds."""

    def calendar_for(self, name: str) -> Calendar:
        """How dates and times of the column ``name`` were counted."""
        return self.calendar

    @abstractmethod
    def read(self, names: Sequence[str], begin: int, end: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns ``names`` of what begins in the bytes [begin, end) of the file, each batch with the number of
        rows of the file before it. Raises DamagedFile."""

    def check(self) -> None:  # noqa: B027 - most have nothing to look at
        """Look at what can be looked at without reading the values. Raises DamagedFile."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_OPENERS = {"parquet": "parquet_file.ParquetRows", "orc": "orc_file.OrcRows", "avro": "avro_records.AvroRows"}


def open_rows(path: str, form: Form) -> Rows:
    """A file that describes itself, in the types that it has. Raises DamagedFile, OSError."""
    opener: type[Rows] = load_reader(_OPENERS[form.format])
    return opener(path, form.options)


def without_columns(count: int) -> pa.RecordBatch:
    """So many rows of which no column is asked for."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays([], fields=[], mask=pa.repeat(False, count)))


def calendar_of(metadata: Mapping[str, str], mode: str | None, since: tuple[int, int], mark: str) -> Calendar:
    """Find the calendar of a file from the metadata of Spark; ``mode`` is for files without them."""
    version = metadata.get(f"{_WRITER}version")
    zone = metadata.get(f"{_WRITER}timeZone", "UTC")
    if version is not None:
        numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
        is_legacy = numbers < since or f"{_WRITER}{mark}" in metadata
        return Calendar("LEGACY" if is_legacy else "CORRECTED", zone)
    if mode == "LEGACY":
        return Calendar("LEGACY", zone)
    return Calendar("EXCEPTION" if mode == "EXCEPTION" else "CORRECTED")
