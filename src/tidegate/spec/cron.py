"""Whether a schedule is cron as Airflow reads it. The common forms are checked here, the others by croniter."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from croniter import croniter

PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_ITEM = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")
_NAMES = re.compile(r"[A-Za-z#?]")


def describe_unusable_schedule(text: str) -> str | None:
    """Why ``text`` is not a schedule, or None: five fields of cron, or one of Airflow's presets (``@daily``)."""
    if text in PRESETS:
        return None
    if text.startswith("@"):
        return f"of the presets only {', '.join(PRESETS)} are schedules"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"it has {len(fields)} field{'' if len(fields) == 1 else 's'}, cron has 5"
    if _NAMES.search(text):
        try:
            _ticks(text, datetime(2000, 1, 1))
        except ValueError:
            return "croniter, which Airflow uses, does not understand it"
        return None
    for field, (name, low, high) in zip(fields, _FIELDS, strict=True):
        for item in field.split(","):
            match = _ITEM.fullmatch(item)
            if match is None:
                return f"{item!r} is not a valid {name}"
            first, last, step = (int(part) if part is not None else None for part in match.groups())
            if any(value is not None and not low <= value <= high for value in (first, last)):
                return f"{item!r}: the {name} is {low} to {high}"
            if first is not None and last is not None and last < first:
                return f"{item!r} ends before it begins"
            if step == 0:
                return f"{item!r} has a step of 0; it must be at least 1"
    return _find_never(fields)


def find_previous_ticks(schedule: str, now: datetime, count: int) -> list[datetime]:
    """The last ``count`` ticks of a schedule up to ``now``, newest first, in UTC as Airflow has them."""
    ticks = _ticks(schedule, now)
    return [ticks.get_prev(datetime) for _ in range(count)]


def find_next_tick(schedule: str, after: datetime) -> datetime:
    """The first tick of a schedule after a moment, in its zone."""
    found: datetime = _ticks(schedule, after).get_next(datetime)
    return found


def _ticks(schedule: str, start: datetime) -> croniter:
    from croniter import croniter  # most checks of a schedule do without

    return croniter("0 0 1 1,4,7,10 *" if schedule == "@quarterly" else schedule, start)


def _find_never(fields: list[str]) -> str | None:
    """Days that no month of the list has: such a schedule would never run."""
    day, month = fields[2], fields[3]
    if fields[4] == "*" and day.isdigit() and all(item.isdigit() for item in month.split(",")):
        longest = max(29 if item == 2 else 30 if item in (4, 6, 9, 11) else 31 for item in map(int, month.split(",")))
        if int(day) > longest:
            return f"there is no day {day} in month {month}"
    return None
