"""Windowed pipelines and their records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


SCHEMA = "id STRING, dt TIMESTAMP, n INT"


TIMED = {"event_time": "dt", "watermark": "20 minutes"}


def at(clock: str) -> datetime:
    """A time of the one day of these tests."""
    hours, minutes = clock.split(":")
    return datetime(2026, 1, 1, int(hours), int(minutes), tzinfo=UTC)


def row(name: str, clock: str, n: int = 1) -> dict[str, Any]:
    return {"id": name, "dt": at(clock).isoformat(), "n": n}


def windows(frame: str) -> str:
    return (
        f"def transform(trades):\n    w = [{frame}]\n    out = trades.groupBy(*w).agg(F.count('*').alias('count'), "
        "F.sum('n').alias('sum'))\n    return out.select('{kind}.start', '{kind}.end', 'count', 'sum')\n"
    )


TUMBLING = windows("F.window('dt', '10 minutes')").replace("{kind}", "window")
