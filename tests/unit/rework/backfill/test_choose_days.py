"""Which days one driver of a backfill reads: as much as a batch has by default, and days that it reads anyway."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.rework.backfill import choose
from tidegate.rework.backfill.choose import choose_days
from tidegate.rework.backfill.span import Interval
from tidegate.sources.files.batch_plan import BATCH_BYTES
from tidegate.sources.kafka.batch_plan import BATCH_OFFSETS

HALF = {"bytes": BATCH_BYTES // 2, "offsets": BATCH_OFFSETS // 2}


@pytest.mark.parametrize(
    ("days", "together"),
    [
        ([{"a": "bytes"}, {"b": "bytes"}, {"c": "bytes"}], 2),
        ([{"a": "offsets"}, {"b": "offsets"}, {"c": "offsets"}], 2),
        ([{"a": "bytes"}, {"b": "offsets"}, {"c": "bytes"}], 2),
        ([{"a": "bytes", "b": "bytes", "c": "bytes"}, {"a": "bytes", "b": "bytes", "d": "bytes"}], 2),
        ([{"a": "bytes", "b": "bytes", "c": "bytes"}, {"a": "bytes", "d": "bytes", "e": "bytes"}], 1),
        ([{"a": "bytes", "b": "bytes", "c": "bytes"}, {}, {"d": "bytes"}], 2),
    ],
)
def test_days_that_one_driver_reads(monkeypatch: pytest.MonkeyPatch, days: list[dict[str, str]], together: int) -> None:
    """Each day is read from some parts of half a batch, which other days may need too."""

    def choose_records(_scope: object, interval: Interval) -> Any:
        parts = {name: kind for day in interval.days for name, kind in days[int(day.within["day"][0])].items()}
        return SimpleNamespace(**{kind: size * [*parts.values()].count(kind) for kind, size in HALF.items()})

    monkeypatch.setattr(choose, "choose_records", choose_records)
    intervals = [Interval({"day": [str(number)]}) for number in range(len(days))]
    scope: Any = SimpleNamespace(intervals=intervals)
    assert choose_days(scope) == intervals[:together]
