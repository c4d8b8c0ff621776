"""Converts columns of local times of a time zone to UTC, hour by hour."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_END_OF_HOUR = dt.timedelta(hours=1) - _MICROSECOND
_HOURS_AT_MOST = 100_000


class Clocks:
    """The clocks of ``zone``: how far they are from UTC in each hour that was asked for."""

    def __init__(self, zone: dt.tzinfo) -> None:
        self._zone = zone
        self._offsets: dict[int, int | None] = {}

    def to_utc(self, times: pa.Array) -> pa.Array:
        """``times`` (without a zone, in microseconds) in UTC; null where a clock was changed within that hour."""
        hours = pc.floor_temporal(times, unit="hour").cast(pa.int64()).dictionary_encode()
        offsets = pa.array(list(map(self._find_offset, hours.dictionary.to_pylist())), pa.int64())
        return pc.subtract(times.cast(pa.int64()), offsets.take(hours.indices)).cast(pa.timestamp("us", tz="UTC"))

    def _find_offset(self, hour: int) -> int | None:
        """How far the clocks are from UTC all ``hour`` long, in microseconds; None where they are changed, and at the
        ends of the calendar."""
        if hour in self._offsets:
            return self._offsets[hour]
        begin = _EPOCH + dt.timedelta(microseconds=hour)
        offset = None
        if dt.date.min < begin.date() < dt.date.max:
            ends = (begin.replace(tzinfo=self._zone), (begin + _END_OF_HOUR).replace(tzinfo=self._zone))
            found = {end.replace(fold=fold).utcoffset() for end in ends for fold in (0, 1)}
            if len(found) == 1 and (distance := found.pop()) is not None:
                offset = distance // _MICROSECOND
        if len(self._offsets) < _HOURS_AT_MOST:
            self._offsets[hour] = offset
        return offset
