"""Batches that a run plans by itself to close what is open: after a kill, and when nothing new has come for long."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.keyed import FakeLease
from tests.support.staged import make_paths
from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.runs.drain import close_idle, make_up_closing
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import Pending
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import new_report
from tidegate.sources.port import Arrival
from tidegate.spec.models import PipelineSpec, ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.checkpoint import CheckpointState, read_checkpoint
from tidegate.state.open_state import OpenState

NAME = "orders"
QUERY = "aaaaaaaa-0000-0000-0000-000000000001"
OTHER = "bbbbbbbb-0000-0000-0000-000000000002"
MINUTE = 60_000
NOON = 1_767_268_800_000
NOTHING_NEW = Pending({})
NEWS = Pending({"trades": Arrival({}, files=1)})
NOTE = OpenState(
    QUERY,
    event_times={"trades": NOON, "orders": NOON - MINUTE},
    open_until_ms=NOON + 5 * MINUTE,
    windows=[[NOON - 5 * MINUTE, NOON + 5 * MINUTE]],
    rows=3,
    watermark_ms=NOON - 20 * MINUTE,
    drained_batch=1,
)


def make_context(root: Path, close_windows: Any = None, *, is_held: bool = True) -> RunContext:
    """A run of a query whose batch 1 ran with a watermark 20 minutes before noon, and left one 10 minutes before it."""
    source = {"type": "files", "path": "in", "format": "json", "schema": "at TIMESTAMP", "event_time": "at"}
    spec = PipelineSpec.read(
        {
            "version": 1,
            "name": NAME,
            "sources": {"trades": {**source, "watermark": "10 minutes"}},
            "close_windows": close_windows,
        }
    )
    paths = make_paths(root, NAME)
    for name in ("offsets", "commits"):
        (paths.checkpoint / name).mkdir(parents=True)
    (paths.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch, watermark in ((0, 0), (1, NOON - 20 * MINUTE)):
        planned = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 1, "conf": {}})
        (paths.checkpoint / "offsets" / str(batch)).write_text(f'v2\n{planned}\ntrades:{{"t":{{"0":1}}}}')
        (paths.checkpoint / "commits" / str(batch)).write_text(f'v1\n{{"nextBatchWatermarkMs":{NOON - 10 * MINUTE}}}')
    lease = cast(Any, FakeLease(lambda: is_held))
    return RunContext(Project(root, ProjectSpec()), spec, paths, lease, new_report(NAME, "r"))


def facts_of(context: RunContext) -> Facts:
    return Facts(read_checkpoint(context.paths.checkpoint), None, {}, None, None, {})


def note(context: RunContext, value: OpenState) -> None:
    storage.write_note(context.paths.open_state / value.query_id, 0, asdict(value))


def planned(context: RunContext) -> int | None:
    """The watermark of the batch in flight; None when there is none."""
    state = read_checkpoint(context.paths.checkpoint)
    assert state.faults == []
    if state.in_flight is None:
        return None
    lines = (context.paths.checkpoint / "offsets" / str(state.in_flight)).read_text().splitlines()
    assert lines[2:] == ['trades:{"t":{"0":1}}'], "it reads nothing"
    return int(json.loads(lines[1])["batchWatermarkMs"])


def test_a_batch_whose_driver_was_killed_is_followed_by_the_one_that_closes(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    note(context, replace(NOTE, drained_batch=0))
    assert make_up_closing(context, NOTHING_NEW, facts_of(context))
    assert planned(context) == NOON - 10 * MINUTE


@pytest.mark.parametrize(
    "value",
    [
        NOTE,
        replace(NOTE, drained_batch=0, rows=0),
        replace(NOTE, drained_batch=0, query_id=OTHER),
        None,
    ],
    ids=["the driver came to its end", "nothing is kept", "of another query", "no state at all"],
)
def test_nothing_is_made_up_without_need(tmp_path: Path, value: OpenState | None) -> None:
    context = make_context(tmp_path)
    if value is not None:
        note(context, value)
    assert not make_up_closing(context, NOTHING_NEW, facts_of(context))
    assert planned(context) is None


def test_a_watermark_that_did_not_move_closes_nothing(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.paths.checkpoint / "commits/1").write_text(f'v1\n{{"nextBatchWatermarkMs":{NOON - 20 * MINUTE}}}')
    note(context, replace(NOTE, drained_batch=0, event_times={"trades": NOON - 10 * MINUTE}))
    assert not make_up_closing(context, NOTHING_NEW, facts_of(context))
    assert planned(context) is None


def test_a_first_run_makes_nothing_up(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    facts = replace(facts_of(context), checkpoint=CheckpointState(exists=False))
    assert not make_up_closing(context, NOTHING_NEW, facts)
    assert not close_idle(context, NOTHING_NEW, facts)


def ago(minutes: float) -> int:
    return round(time.time() * 1000 - minutes * MINUTE)


AFTER_AN_HOUR = {"when": "1 hour"}


def test_a_file_that_still_settles_has_come(tmp_path: Path) -> None:
    """Its records would be late otherwise."""
    context = make_context(tmp_path, AFTER_AN_HOUR)
    note(context, replace(NOTE, last_data_at_ms=ago(61)))
    settling = Pending({"trades": Arrival({}, comes_later=True)})
    assert not close_idle(context, settling, facts_of(context))


def test_what_is_open_is_closed_when_nothing_has_come_for_so_long(tmp_path: Path) -> None:
    """As if event time had gone on while nothing came."""
    context = make_context(tmp_path, AFTER_AN_HOUR)
    note(context, replace(NOTE, last_data_at_ms=ago(61)))
    assert close_idle(context, NOTHING_NEW, facts_of(context))
    assert planned(context) == NOON + 60 * MINUTE


def test_a_window_that_ends_later_than_that_is_closed_too(tmp_path: Path) -> None:
    context = make_context(tmp_path, AFTER_AN_HOUR)
    note(context, replace(NOTE, last_data_at_ms=ago(61), open_until_ms=NOON + 90 * MINUTE))
    assert close_idle(context, NOTHING_NEW, facts_of(context))
    assert planned(context) == NOON + 90 * MINUTE


def test_what_has_an_event_time_and_no_window_is_closed_too(tmp_path: Path) -> None:
    context = make_context(tmp_path, AFTER_AN_HOUR)
    note(context, replace(NOTE, last_data_at_ms=ago(61), open_until_ms=None, windows=[]))
    assert close_idle(context, NOTHING_NEW, facts_of(context))
    assert planned(context) == NOON + 60 * MINUTE


@pytest.mark.parametrize(
    ("close_windows", "pending", "changed"),
    [
        (None, NOTHING_NEW, {}),
        ("at_end", NOTHING_NEW, {}),
        (AFTER_AN_HOUR, NEWS, {}),
        (AFTER_AN_HOUR, NOTHING_NEW, {"minutes": 50}),
        (AFTER_AN_HOUR, NOTHING_NEW, {"rows": 0}),
        (AFTER_AN_HOUR, NOTHING_NEW, {"event_times": {}}),
        (AFTER_AN_HOUR, NOTHING_NEW, {"query_id": OTHER}),
    ],
    ids=["not asked for", "the driver does it", "news", "too early", "nothing is kept", "no time", "another query"],
)
def test_nothing_is_closed_that_should_wait(
    tmp_path: Path, close_windows: Any, pending: Pending, changed: dict[str, Any]
) -> None:
    context = make_context(tmp_path, close_windows)
    minutes = changed.get("minutes", 61)
    values = {key: value for key, value in changed.items() if key != "minutes"}
    note(context, replace(NOTE, last_data_at_ms=ago(minutes), **values))
    assert not close_idle(context, pending, facts_of(context))
    assert planned(context) is None


def test_it_is_closed_once(tmp_path: Path) -> None:
    """Each tick of an idle schedule looks; only the first one starts Spark."""
    context = make_context(tmp_path, AFTER_AN_HOUR)
    note(context, replace(NOTE, last_data_at_ms=ago(61)))
    assert close_idle(context, NOTHING_NEW, facts_of(context))
    (context.paths.checkpoint / "commits/2").write_text(f'v1\n{{"nextBatchWatermarkMs":{NOON + 60 * MINUTE}}}')
    note(context, replace(NOTE, last_data_at_ms=ago(71), watermark_ms=NOON + 60 * MINUTE))  # what has no time stays
    assert not close_idle(context, NOTHING_NEW, facts_of(context))
    assert planned(context) is None


def test_who_lost_the_lease_plans_nothing(tmp_path: Path) -> None:
    context = make_context(tmp_path, AFTER_AN_HOUR, is_held=False)
    note(context, replace(NOTE, last_data_at_ms=ago(61), drained_batch=0))
    for act in (
        lambda: make_up_closing(context, NOTHING_NEW, facts_of(context)),
        lambda: close_idle(context, NOTHING_NEW, facts_of(context)),
    ):
        with pytest.raises(TryAgainError):
            act()
    assert planned(context) is None
