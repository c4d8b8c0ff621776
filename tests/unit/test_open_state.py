"""The watermark by which a run closes what is open, from the note that the drivers leave."""

from __future__ import annotations

from typing import Literal

import pytest

from tidegate.staging.open_state import OpenState, closing_watermark

DELAYS = {"shown": 2.0, "clicked": 1.0}


@pytest.mark.parametrize(
    ("event_times", "policy", "everything", "expected"),
    [
        ({"shown": 10_000, "clicked": 20_000}, "min", False, 8_000),
        ({"shown": 10_000, "clicked": 20_000}, "max", False, 19_000),
        ({"shown": 10_000}, "min", False, 0),
        ({"shown": 10_000}, "max", False, 8_000),
        ({}, "max", False, 0),
        ({"shown": 10_000}, "min", True, 30_000),
        ({"shown": 50_000, "clicked": 50_000}, "min", True, 48_000),
    ],
)
def test_closing_watermark(
    event_times: dict[str, int], policy: Literal["min", "max"], everything: bool, expected: int
) -> None:
    note = OpenState("query", event_times, open_until_ms=30_000)
    assert closing_watermark(note, DELAYS, policy, everything=everything) == expected
