"""From which event times the rows of a day come: every record of a day's windows is within the margins, and for windows
that divide the day the margins are no larger than they have to be."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tidegate.spark.ingest.query import describe_span
from tidegate.spec.models import PipelineSpec

MINUTE, DAY = 60_000_000, 86_400_000_000


def spec(**more: object) -> PipelineSpec:
    source = {"type": "files", "path": "in", "format": "json", "schema": "id STRING, at TIMESTAMP", **more}
    return PipelineSpec.read({"version": 1, "name": "flow", "schedule": None, "sources": {"events": source}})


TIMED = spec(event_time="at", watermark="20 minutes")


def spelled(length: int, slide: int, offset: int = 0) -> str:
    """A window of ``events.at`` as Spark 4.2 spells it."""
    at = "precisetimestampconversion(events.at, TimestampType, LongType)"
    past = f"(({at} - {offset}) % {slide})"
    windows = []
    for back in range(0, length, slide):
        start = f"(({at} - CASE WHEN ({past} < cast(0 as bigint)) THEN ({past} + {slide}) ELSE {past} END) - {back})"
        until = f"knownnullable(precisetimestampconversion(({start} + {length}), LongType, TimestampType))"
        begin = f"knownnullable(precisetimestampconversion({start}, LongType, TimestampType))"
        windows.append(f"named_struct(start, {begin}, end, {until})")
    return " | ".join(windows)


def day_of(made: str) -> dict[str, str]:
    return {"day": f"(to_date({made}, None, Some(UTC), true))"}


CASES = [
    (length, slide, offset)
    for length, slide in [(10, 10), (360, 360), (120, 60), (100, 30), (420, 420), (1440, 1440), (2880, 1440), (7, 7)]
    for offset in (0, 5, -7)
]


@pytest.mark.parametrize(("length", "slide", "offset"), CASES)
@pytest.mark.parametrize("part", ["start", "end"])
def test_margins_hold_every_record_of_a_days_windows(length: int, slide: int, offset: int, part: str) -> None:
    text = spelled(length * MINUTE, slide * MINUTE, offset * MINUTE)
    found = describe_span(day_of(f"(({text})).{part}"), ["Aggregate"], TIMED)
    assert found is not None
    column, source, before, after = json.loads(found)
    assert (column, source) == ("day", "events")
    first = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp()) // 60
    needed = []
    for start in range(first - 4 * 1440, first + 4 * 1440):
        if (start - offset) % slide == 0 and first <= start + (length if part == "end" else 0) < first + 1440:
            needed += [start, start + length - 1]  # minutes in which records of the window are
    assert first * 60_000 - before <= min(needed) * 60_000
    assert (max(needed) + 1) * 60_000 <= (first + 1440) * 60_000 + after
    if 1440 % slide == 0:
        is_tight = (
            max(first - min(needed), 0) * 60_000 == before,
            max(max(needed) + 1 - first - 1440, 0) * 60_000 == after,
        )
        assert is_tight == (True, True)


def test_what_is_not_such_a_window_says_nothing() -> None:
    tumbling = spelled(10 * MINUTE, 10 * MINUTE)
    made = day_of(f"(({tumbling})).start")
    assert describe_span(made, ["Aggregate"], TIMED) is not None
    assert describe_span(day_of("events.at"), ["Deduplicate"], TIMED) == '["day", "events", 0, 0]'
    assert describe_span(made, ["Aggregate", "Join"], TIMED) is None
    assert describe_span(made, ["Aggregate"], spec()) is None
    others = [
        day_of("events.id"),
        day_of(f"(({tumbling}))"),
        day_of(f"(({tumbling.replace('events.at', 'events.id')})).start"),
        day_of(f"(({tumbling.replace('% 600000000', '% 60000000')})).start"),
        day_of(f"(({tumbling})).start + 1"),
        {"day": f"date_add(to_date((({tumbling})).start, None, Some(UTC), true), 1)"},
        {"day": f"to_date((({tumbling})).start, None, Some(Europe/Oslo), true)"},
    ]
    assert [describe_span(one, ["Aggregate"], TIMED) for one in others] == [None] * len(others)
