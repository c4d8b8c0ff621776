"""What drivers note of a query with state, and the watermark by which a run closes what is open."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.staged import QUERY, make_paths
from tidegate.state.manifest import BatchManifest, SourceRange
from tidegate.state.open_state import OpenState, closing_watermark, note_batch, note_drained, read_open_state

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


def batch(number: int, event_time: int, rows: int) -> BatchManifest:
    state: list[dict[str, Any]] = [{"numRowsTotal": rows, "memoryUsedBytes": 1}]
    sources = {"shown": SourceRange(rows=1, malformed=0, max_event_time_ms=event_time)}
    return BatchManifest(
        "orders", "r", QUERY, number, "a", sources, 0, 0, 0, [], [], 0, "{}", watermark_ms=event_time, state=state
    )


def test_a_late_note_changes_nothing(tmp_path: Path) -> None:
    """A driver that was frozen notes its batch after others went on."""
    paths = make_paths(tmp_path)
    note_batch(paths, batch(3, 1000, 7), open_until_ms=2000, windows=[], now_ms=1)
    note_batch(paths, batch(4, 5000, 9), open_until_ms=6000, windows=[[5000, 6000]], now_ms=2)
    note_drained(paths, QUERY, 4)
    newest = read_open_state(paths, QUERY)
    assert newest is not None and (newest.rows, newest.drained_batch) == (9, 4)
    note_batch(paths, batch(3, 1000, 7), open_until_ms=2000, windows=[], now_ms=1)
    assert read_open_state(paths, QUERY) == newest
    assert read_open_state(paths, "another") is None and read_open_state(paths, None) is None


def test_a_batch_that_is_run_again_is_noted_again(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    note = note_batch(paths, batch(0, 1000, 7), open_until_ms=None, windows=[], now_ms=1)
    assert note_batch(paths, batch(0, 1000, 7), open_until_ms=None, windows=[], now_ms=1) == note
    assert read_open_state(paths, QUERY) == note
