"""Joined pipelines and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.streams.windows import at

if TYPE_CHECKING:
    pass


TIMED = {"event_time": "dt", "watermark": "30 minutes"}


def event(name: str, clock: str) -> dict[str, Any]:
    return {"id": name, "dt": at(clock).isoformat()}
