"""Columns of times by the clocks of a time zone in UTC, a day at a time."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

_HOURS = [dt.timedelta(hours=hour) for hour in range(25)]
_DURATION = pa.duration("us")


class Clocks:
    """The clocks of ``zone``: how far they are from UTC on each day that was asked for."""

    def __init__(self, zone: dt.tzinfo) -> None:
        self._zone = zone
        self._offsets: dict[dt.date, dt.timedelta | None] = {}

    def to_utc(self, times: pa.Array) -> pa.Array:
        """``times`` (without a zone, in microseconds) in UTC; null where a clock was changed on that day, or close to
        it."""
        days = times.cast(pa.date32(), safe=False).dictionary_encode()
        offsets = pa.array([self._find_offset(day) for day in days.dictionary.to_pylist()], _DURATION)
        return pc.subtract(times, offsets.take(days.indices)).cast(pa.timestamp("us", tz="UTC"))

    def _find_offset(self, day: dt.date) -> dt.timedelta | None:
        """How far the clocks are from UTC all day long; None where they are changed, and at the calendar's ends."""
        if day in self._offsets:
            return self._offsets[day]
        found: set[dt.timedelta | None] = set()
        if dt.date.min < day < dt.date.max:
            midnight = dt.datetime.combine(day, dt.time(), self._zone)
            found = {(midnight + hour).replace(fold=fold).utcoffset() for hour in _HOURS for fold in (0, 1)}
        offset = found.pop() if len(found) == 1 else None
        if len(self._offsets) < _DAYS_AT_MOST:
            self._offsets[day] = offset
        return offset


_DAYS_AT_MOST = 100_000
