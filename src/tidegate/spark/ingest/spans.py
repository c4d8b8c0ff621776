"""The event times from which the rows of a day come, for a query with state: from the text of the day's column.

Only what Spark makes of ``window`` over a source's own event time is recognized, character by character; of anything
else they are unknown, and a rebuild of a day reads everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidegate.spec.models import PipelineSpec

_DATE = re.compile(
    r"\(*to_date\(\(*(?P<made>.*?)\)*(?:\.(?P<part>start|end))?\)*, None, Some\(UTC\), (?:true|false)\)*"
)
_NUMBERS = re.compile(r"- (?P<offset>-?\d+)\) % (?P<slide>\d+)\).* \+ (?P<length>\d+)\), LongType")
_DAY_MICROSECONDS = 86_400_000_000
_ALONE = {"Aggregate", "Deduplicate"}
"""Operators with state whose rows are of records of one event time, or of one window."""


def describe_span(made: Mapping[str, str], operators: Collection[str], spec: PipelineSpec) -> str | None:
    """:data:`tidegate.state.manifest.SPAN` of the columns ``made``, {column: what it is made of}; None where it is
    not known. ``operators`` keep the query's state."""
    if len(spec.streams) != 1 or set(operators) - _ALONE:
        return None
    source = next(iter(spec.streams))
    event_time = spec.event_times.get(source)
    if event_time is None or source not in spec.watermarks:
        return None
    for column, text in made.items():
        found = _DATE.fullmatch(text)
        if found is None:
            continue
        if found["made"] == f"{source}.{event_time}" and found["part"] is None:
            return json.dumps([column, source, 0, 0])
        windows = _windows(found["made"], f"{source}.{event_time}")
        if windows is not None and found["part"] is not None:
            return json.dumps([column, source, *windows.margins(found["part"])])
    return None


@dataclass(frozen=True)
class _Windows:
    """Windows that begin every ``slide``, by ``offset`` after 1970; all in microseconds."""

    offset: int
    slide: int
    length: int

    def margins(self, part: str) -> tuple[int, int]:
        """The milliseconds before and after a day in which records of windows that start, or end, in it can be."""
        is_aligned = _DAY_MICROSECONDS % self.slide == 0
        if part == "start":
            # The last that starts in the day does so by one slide before its end, or less for the offset's sake.
            spared = self.slide - self.offset % self.slide if is_aligned else 0
            return 0, _milliseconds(self.length - spared)
        spared = (self.offset + self.length) % self.slide if is_aligned else 0
        return _milliseconds(self.length - spared), 0


def _milliseconds(microseconds: int) -> int:
    return max(-(-microseconds // 1000), 0)


def _windows(text: str, event_time: str) -> _Windows | None:
    """The windows, tumbling or sliding, in a text."""
    numbers = _NUMBERS.search(text.partition(" | ")[0])
    if numbers is None:
        return None
    found = _Windows(*(int(numbers[name]) for name in ("offset", "slide", "length")))
    spelled = [_window(event_time, found, number) for number in range(-(-found.length // found.slide))]
    return found if text.rstrip(")") == " | ".join(spelled).rstrip(")") else None


def _window(event_time: str, windows: _Windows, number: int) -> str:
    """The window of an event time that began ``number`` slides before its last one, as Spark spells it."""
    slide = windows.slide
    at = f"precisetimestampconversion({event_time}, TimestampType, LongType)"
    past = f"(({at} - {windows.offset}) % {slide})"
    start = (
        f"(({at} - CASE WHEN ({past} < cast(0 as bigint)) THEN ({past} + {slide}) ELSE {past} END) - {number * slide})"
    )
    ends = [
        f"knownnullable(precisetimestampconversion({one}, LongType, TimestampType))"
        for one in (start, f"({start} + {windows.length})")
    ]
    return f"named_struct(start, {ends[0]}, end, {ends[1]})"
