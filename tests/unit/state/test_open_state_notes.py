"""What a query with state has open between runs, as it is noted with every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.staged import make_paths
from tidegate.core.paths import PipelinePaths
from tidegate.state.manifest import BatchManifest, SourceRange
from tidegate.state.open_state import (
    WINDOWS_AT_MOST,
    OpenState,
    describe_open_state,
    note_batch,
    note_drained,
    reached_watermark,
    read_open_state,
    text_of_ms,
)

QUERY = "aaaaaaaa-0000-0000-0000-000000000001"
OTHER = "bbbbbbbb-0000-0000-0000-000000000002"
MINUTE = 60_000
NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return make_paths(tmp_path)


def manifest(
    query_id: str = QUERY,
    *,
    event_times: dict[str, int | None] | None = None,
    watermark_ms: int | None = 0,
    state: list[dict[str, Any]] | None = None,
    rows: int = 1,
    batch_id: int = 0,
) -> BatchManifest:
    """A batch with ``rows`` of each source in ``event_times``."""
    sources = {name: SourceRange(rows, 0, max_event_time_ms=moment) for name, moment in (event_times or {}).items()}
    return BatchManifest(
        "orders",
        "r",
        query_id,
        batch_id,
        "a",
        sources,
        0,
        0,
        0,
        [],
        [],
        0,
        "{}",
        watermark_ms=watermark_ms,
        state=state or [],
    )


def operator(rows: int, memory: int) -> dict[str, Any]:
    return {"numRowsTotal": rows, "memoryUsedBytes": memory}


def take(
    paths: PipelinePaths,
    batch: BatchManifest,
    *,
    open_until_ms: int | None = None,
    windows: list[list[int]] | None = None,
    now_ms: int = 1,
) -> OpenState:
    """Note a batch; what is returned is what is on disk."""
    note = note_batch(paths, batch, open_until_ms=open_until_ms, windows=windows or [], now_ms=now_ms)
    assert read_open_state(paths, batch.query_id) == note
    return note


def test_a_first_batch(paths: PipelinePaths) -> None:
    assert read_open_state(paths, QUERY) is None
    batch = manifest(event_times={"trades": NOON, "classes": None}, state=[operator(3, 100), operator(4, 50)])
    note = take(paths, batch, open_until_ms=NOON + MINUTE, windows=[[NOON, NOON + MINUTE]], now_ms=7)
    assert note == OpenState(
        QUERY,
        event_times={"trades": NOON},
        open_until_ms=NOON + MINUTE,
        windows=[[NOON, NOON + MINUTE]],
        rows=7,
        memory_bytes=150,
        watermark_ms=0,
        last_data_at_ms=7,
        drained_batch=-1,
    )


def test_what_was_reached_stays_when_a_later_batch_has_less(paths: PipelinePaths) -> None:
    """News of one source only, and older than what came before: times never go back, and nothing is forgotten."""
    take(
        paths,
        manifest(event_times={"a": NOON, "b": NOON + MINUTE}, watermark_ms=NOON - MINUTE, state=[operator(5, 10)]),
        open_until_ms=NOON + MINUTE,
    )
    note = take(paths, manifest(event_times={"a": NOON - MINUTE}, watermark_ms=None, state=[operator(2, 4)]))
    assert note.event_times == {"a": NOON, "b": NOON + MINUTE}
    assert (note.watermark_ms, note.open_until_ms) == (NOON - MINUTE, NOON + MINUTE)
    assert (note.rows, note.memory_bytes) == (2, 4), "what is kept is as the last batch left it"


def test_windows_leave_the_note_when_the_watermark_has_passed_them(paths: PipelinePaths) -> None:
    one, two, three = ([NOON + at * MINUTE, NOON + (at + 1) * MINUTE] for at in range(3))
    assert take(paths, manifest(), windows=[two, one]).windows == [one, two]
    assert take(paths, manifest(watermark_ms=one[1]), windows=[three, two]).windows == [two, three]
    assert take(paths, manifest(watermark_ms=three[1])).windows == []


def test_only_the_newest_windows_are_named(paths: PipelinePaths) -> None:
    windows = [[at, at + 1] for at in range(1, WINDOWS_AT_MOST + 3)]
    assert take(paths, manifest(), windows=windows).windows == windows[2:]


def test_a_batch_that_is_run_again_is_noted_once(paths: PipelinePaths) -> None:
    batch = manifest(event_times={"a": NOON}, state=[operator(5, 10)])
    first = take(paths, batch, open_until_ms=NOON, windows=[[NOON, NOON + 1]], now_ms=3)
    assert take(paths, batch, open_until_ms=NOON, windows=[[NOON, NOON + 1]], now_ms=3) == first
    assert [path.name for path in (paths.open_state / QUERY).iterdir()] == ["0.json"]


def test_only_records_are_news(paths: PipelinePaths) -> None:
    """A closing batch reads nothing: `close_windows: {when}` waits for records, not for batches."""
    take(paths, manifest(event_times={"a": NOON}), now_ms=100)
    assert take(paths, manifest(watermark_ms=NOON), now_ms=200).last_data_at_ms == 100
    assert take(paths, manifest(event_times={"a": NOON}, rows=0), now_ms=300).last_data_at_ms == 100
    assert take(paths, manifest(event_times={"a": NOON}), now_ms=400).last_data_at_ms == 400


def test_the_note_of_another_query_is_none_of_ours(paths: PipelinePaths) -> None:
    """After a repair the state begins again, and so does what is open."""
    take(paths, manifest(OTHER, event_times={"a": NOON}, watermark_ms=NOON), windows=[[NOON, NOON + MINUTE]], now_ms=9)
    note_drained(paths, OTHER, 5)
    assert read_open_state(paths, QUERY) is None
    assert read_open_state(paths, None) is None
    note_drained(paths, QUERY, 0)
    assert take(paths, manifest(event_times={"b": MINUTE})) == OpenState(
        QUERY, event_times={"b": MINUTE}, last_data_at_ms=1
    )
    theirs = read_open_state(paths, OTHER)
    assert theirs is not None and (theirs.drained_batch, theirs.event_times) == (5, {"a": NOON}), "not touched by ours"


def test_how_far_drivers_came_to_their_end(paths: PipelinePaths) -> None:
    note_drained(paths, QUERY, 0)
    assert not paths.open_state.exists(), "a query without state has no note"
    take(paths, manifest(event_times={"a": NOON}))
    note_drained(paths, QUERY, 4)
    note = take(paths, manifest(event_times={"a": NOON + 1}, batch_id=5))
    assert note.drained_batch == 4, "a batch alone is not the end of its driver"
    note_drained(paths, QUERY, 5)
    later = read_open_state(paths, QUERY)
    assert later is not None and (later.drained_batch, later.event_times) == (5, {"a": NOON + 1})


@pytest.mark.parametrize(
    ("event_times", "policy", "expected"),
    [
        ({"a": NOON, "b": NOON}, "min", NOON - 10 * MINUTE),
        ({"a": NOON, "b": NOON}, "max", NOON - 5 * MINUTE),
        ({"a": NOON, "b": NOON - 60 * MINUTE}, "min", NOON - 70 * MINUTE),
        ({"a": NOON - 60 * MINUTE, "b": NOON}, "min", NOON - 65 * MINUTE),
        ({"a": NOON - 60 * MINUTE, "b": NOON}, "max", NOON - 10 * MINUTE),
        ({"a": NOON}, "min", None),
        ({"a": NOON}, "max", NOON - 5 * MINUTE),
        ({}, "min", None),
        ({}, "max", None),
        ({"gone": NOON}, "max", None),
        ({"gone": NOON + 99, "a": NOON, "b": NOON}, "max", NOON - 5 * MINUTE),
    ],
)
def test_the_watermark_of_one_uninterrupted_query(
    event_times: dict[str, int], policy: Any, expected: int | None
) -> None:
    """a may be 5 minutes late, b 10. A source that has had nothing yet holds min back, as it does in Spark."""
    note = OpenState(QUERY, event_times=event_times)
    assert reached_watermark(note, {"a": 300.0, "b": 600.0}, policy) == expected


def test_a_delay_below_a_millisecond_is_rounded() -> None:
    note = OpenState(QUERY, event_times={"a": NOON})
    assert reached_watermark(note, {"a": 0.0014}, "min") == NOON - 1
    assert reached_watermark(note, {}, "min") is None


def test_how_it_is_shown() -> None:
    note = OpenState(QUERY, {"a": NOON, "b": 0}, NOON + MINUTE, [[NOON, NOON + MINUTE]], rows=3, memory_bytes=9)
    assert describe_open_state(note) == {
        "rows": 3,
        "memory_bytes": 9,
        "open_windows": [["2026-01-01T12:00:00.000+00:00", "2026-01-01T12:01:00.000+00:00"]],
        "event_times": {"a": "2026-01-01T12:00:00.000+00:00", "b": None},
    }
    assert text_of_ms(None) is None
