"""Days of the Julian calendar, judged by the rule that both calendars had 4 and 15 October 1582 on two days running."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from tidegate.sources.readers.arrow_nested import TOP, Refusals
from tidegate.sources.readers.rows import Calendar, julian_to_gregorian

_SWITCH = (dt.date(1582, 10, 15) - dt.date(1970, 1, 1)).days


def test_every_julian_day_since_year_1() -> None:
    """Counted back a day at a time."""
    year, month, day = 1582, 10, 4
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    wanted: list[dt.date | None] = []
    while year >= 1:
        wanted.append(None if (month, day) == (2, 29) and year % 100 == 0 and year % 400 else dt.date(year, month, day))
        day -= 1
        if day == 0:
            year, month = (year - 1, 12) if month == 1 else (year, month - 1)
            day = 29 if month == 2 and year % 4 == 0 else lengths[month - 1]
    days = _SWITCH - 1 - np.arange(len(wanted))
    meant, missing = julian_to_gregorian(days)
    epoch = dt.date(1970, 1, 1)
    got = [None if gone else epoch + dt.timedelta(int(n)) for n, gone in zip(meant, missing, strict=True)]
    assert got == wanted


@pytest.mark.parametrize(
    ("calendar", "per_day", "reason"),
    [
        (Calendar("LEGACY"), 86_400_000_000, None),
        (Calendar("LEGACY", "Europe/Berlin"), 86_400_000_000, "T before 1900 of a writer whose zone was Europe/Berlin"),
        (Calendar("LEGACY", "Europe/Berlin"), 1, None),
        (Calendar("EXCEPTION"), 1, "T before 15 October 1582 of a writer whose calendar is not known: "),
        (Calendar("EXCEPTION"), 86_400_000_000, "T before 1900 of a writer whose calendar is not known: "),
    ],
)
def test_what_cannot_be_known_is_refused(calendar: Calendar, per_day: int, reason: str | None) -> None:
    days = [-200_000, None, 0]
    numbers = pa.array([None if day is None else day * per_day + (per_day > 1) for day in days], pa.int64())
    found = Refusals()
    got = calendar.rebase(numbers, per_day, TOP.below("t"), found, "T").to_pylist()
    assert got[1:] == numbers.to_pylist()[1:]
    if reason is None:
        meant = int(julian_to_gregorian(np.array([-200_000]))[0][0])
        assert not found.faults and got[0] == meant * per_day + (per_day > 1) and meant != -200_000
    else:
        [(row, [fault])] = found.faults.items()
        assert (row, got[0]) == (0, None) and str(fault).startswith(f"t: {reason}")
