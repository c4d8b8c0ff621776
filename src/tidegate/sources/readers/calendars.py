"""Converts dates of older writers: Spark before 3.0 and Hive used the Julian calendar until 4 October 1582."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers.arrow_nested import Refusals, Spot

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


def julian_to_gregorian(days: Any) -> tuple[Any, Any]:
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


def _without(numbers: pa.Array, places: Any) -> pa.Array:
    mask = np.zeros(len(numbers), bool)
    mask[places] = True
    return pc.if_else(pa.array(mask), None, numbers)
