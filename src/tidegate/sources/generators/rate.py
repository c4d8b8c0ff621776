"""Generates rows like Spark's ``rate`` source: increasing numbers, and evenly spread times.

Rows are generated for whole seconds since the clock started, so they do not depend on when runs take place.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tidegate.spec.trial_options import ROWS_AT_MOST, RateOptions

_SECOND_US = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(NamedTuple):
    """When the source started, for how many seconds rows were generated, and the next value."""

    started_us: int
    seconds: int
    value: int


def make_rows(options: RateOptions, clock: Clock, now_us: int) -> tuple[bytes, Clock, int]:
    """Generate the rows of the past seconds as JSON lines, up to the limit of one run. Returns them, the clock after
    them, and how many rows are left for later runs."""
    passed = (now_us - clock.started_us) // _SECOND_US
    second, value = clock.seconds, clock.value
    lines: list[str] = []
    while second < passed and len(lines) + (count := _count_in(second, options)) <= ROWS_AT_MOST:
        begin = clock.started_us + second * _SECOND_US
        for number in range(count):
            at = _EPOCH + timedelta(microseconds=begin + number * _SECOND_US // count)
            lines.append(f'{{"timestamp":"{at:%Y-%m-%dT%H:%M:%S.%f}Z","value":{value + number}}}\n')
        second, value = second + 1, value + count
    left = _total(passed, options) - _total(second, options) if second < passed else 0
    return "".join(lines).encode(), Clock(clock.started_us, second, value), left


def clock_after(clock: Clock, row: Mapping[str, Any]) -> Clock:
    """Return the clock after the second whose last row this is."""
    at = (datetime.fromisoformat(row["timestamp"]) - _EPOCH) // timedelta(microseconds=1)
    return Clock(clock.started_us, (at - clock.started_us) // _SECOND_US + 1, int(row["value"]) + 1)


def _count_in(second: int, options: RateOptions) -> int:
    return _total(second + 1, options) - _total(second, options)


def _total(seconds: int, options: RateOptions) -> int:
    """Rows up to the end of a second, as Spark computes it: the rate grows by the same step each second of the ramp."""
    ramp = min(seconds, options.ramp_up)
    step = max(1, options.rows_per_second // (options.ramp_up + 1))
    return step * ramp * (ramp + 1) // 2 + (seconds - ramp) * options.rows_per_second
