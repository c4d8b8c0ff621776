"""What a run does instead of reading what is new: the tasks by hand, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.held import GOOD, NAME, Held, commands
from tests.support.held_backfill import hold
from tidegate.airflow.decision import mark_held
from tidegate.airflow.form import AskedDecision, AskedReplay, TriggerForm
from tidegate.airflow.requested_work import decide_held, find_target_run, run_side_job
from tidegate.core.errors import UsageError
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.runs import gate_steps
from tidegate.runs.reports.report import load_report
from tidegate.state.lease import acquire
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.plan import Rework

WHO = "ada (Airflow)"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path)
    with commands(lambda: held):
        held.hold("R1")
        yield held


def decide(held: Held, decision: Any, run_id: str = "R1") -> Any:
    return decide_held(held.project, NAME, AskedDecision(decision, run_id, "looked at it"), WHO, lambda _: None)


@pytest.mark.parametrize(
    ("decision", "outcome", "rows"), [("release", "published", [1, 2, 3]), ("discard", "discarded", [])]
)
def test_a_decision_is_carried_out_once_in_the_name_of_who_triggered_it(
    held: Held, decision: str, outcome: str, rows: list[int]
) -> None:
    for _ in range(2):  # a task that is tried again
        report = decide(held, decision)
        assert (report["run_id"], report["outcome"], report["decision"]["who"]) == ("R1", outcome, WHO)
        assert held.rows() == rows
    with pytest.raises(UsageError, match="already decided"):
        decide(held, "discard" if decision == "release" else "release")
    # What comes behind in the same DAG run speaks of the run that was decided on.
    assert gate_steps.audit_run(held.project, NAME, "R1")["outcome"] == outcome
    assert gate_steps.publish_run(held.project, NAME, "R1")["outcome"] == outcome


def test_read_again_is_done_by_the_same_dag_run(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.runs.restart.recorded._check_possible", lambda *_: None)
    for _ in range(2):
        assert decide(held, "reread") is None
    report = load_report(held.paths, "R1")
    assert report is not None and report.decision is not None and report.decision["who"] == WHO


def test_what_is_not_held_is_refused(held: Held) -> None:
    held.decide("release")
    held.run("R2", GOOD)
    for run_id in ("R2", "nothing"):
        with pytest.raises(UsageError):
            decide(held, "release", run_id)


@pytest.mark.parametrize(
    ("conf", "run_id"),
    [
        ({}, "D"),
        ({"refresh": "all"}, "D"),
        ({"decide": "release", "decide_run_id": "R1", "decide_reason": "why"}, "R1"),
        ({"decide": "reread", "decide_run_id": "R1", "decide_reason": "why"}, "D"),
    ],
)
def test_of_which_run_the_tasks_speak(conf: dict[str, str], run_id: str) -> None:
    dag_run = SimpleNamespace(conf=conf, run_type="manual")
    assert find_target_run({"run_id": "D", "dag_run": dag_run, "params": conf}) == run_id


def test_a_refresh_and_a_replay_are_those_of_the_commands(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(
        "tidegate.rework.backfill.command.refresh_table", lambda *a, **how: told.append((a[2], how["keeps_older"]))
    )
    monkeypatch.setattr(
        "tidegate.rework.replay.command.replay_records", lambda *a, **how: told.append((a[2], a[3].wanted))
    )
    for form in (
        TriggerForm(refresh="all"),
        TriggerForm(refresh="keep-older"),
        TriggerForm(replay=AskedReplay("malformed", "R1")),
    ):
        run_side_job(held.project, NAME, "D", form, submit=lambda _: 0)
    assert told[:2] == [("D", False), ("D", True)]
    assert (told[2][1].reason, told[2][1].run_id, told[2][1].rule) == ("malformed", "R1", None)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("decision", ["release", "discard"])
def test_a_decision_on_a_held_day_is_found_carried_out_by_a_second_try(
    tmp_path: Path, decision: Any, is_last: bool
) -> None:
    kept = hold(tmp_path, is_last=is_last)
    asked = AskedDecision(decision, "B1", "looked at it")
    first, second = (decide_held(kept.project, NAME, asked, WHO, lambda _: None) for _ in range(2))
    assert first is not None and second is not None
    assert {**first, "ended_at": None} == {**second, "ended_at": None}
    other = AskedDecision("discard" if decision == "release" else "release", "B1", "no")
    with pytest.raises(UsageError):
        decide_held(kept.project, NAME, other, WHO, lambda _: None)


def test_a_decision_that_was_carried_out_is_found_while_a_run_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = hold(tmp_path, is_last=True)
    asked = AskedDecision("release", "B1", "looked at it")
    first = decide_held(kept.project, NAME, asked, WHO, lambda _: None)
    monkeypatch.setattr("tidegate.airflow.decision._PATIENCE_SECONDS", 0)
    with acquire(kept.paths, run_id="R9", command="run", expires_after_seconds=60):
        second = decide_held(kept.project, NAME, asked, WHO, lambda _: None)
    assert first is not None and second is not None
    assert {**first, "ended_at": None} == {**second, "ended_at": None}


def test_a_decision_is_on_what_was_seen_held_and_on_nothing_later(tmp_path: Path) -> None:
    """The next part of a backfill is held under the same run id when the form is sent again, or its run is cleared."""
    kept = hold(tmp_path, is_last=False)
    of = mark_held(kept.paths, "B1")
    asked = AskedDecision("release", "B1", "I looked at Oslo", of)
    for _ in range(2):
        assert decide_held(kept.project, NAME, asked, WHO, lambda _: None) is not None
    report, state = load_report(kept.paths, "B1"), read_table_state(kept.paths.table)
    assert report is not None and state is not None
    before, report.rebuilt = replace(report), [*report.rebuilt, "city=Bergen"]
    app_id = Rework(NAME, "backfill", "B1").app_id
    told = dict(report.to_json())
    intent = PublishIntent(NAME, "B1", "table", state.schema_json, ["city"], app_id, 1, 0, report=told)
    keep_held(kept.paths.beside(f"backfills/{app_id}/next"), intent, Interval({"city": ["Bergen"]}), before)
    with pytest.raises(UsageError, match="other records are held"):
        decide_held(kept.project, NAME, asked, WHO, lambda _: None)
    assert mark_held(kept.paths, "B1") not in (None, of)
