"""Runs as the pages show them: from reports, from what the scheduler knows, from what drivers noted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidegate.airflow.form import refuse
from tidegate.core.outputs import Error
from tidegate.runs.reports.report import load_report, new_report, save_report
from tidegate.spec.project import Project, load_project
from tidegate.state.lease import acquire
from tidegate.views.pages import pipelines, runs
from tidegate.views.pages.run import look_at_run, read_progress


def make_orders(root: Path) -> Project:
    (root / "tidegate.yaml").write_text("version: 1\n")
    job = root / "jobs" / "orders"
    job.mkdir(parents=True)
    source = "{type: files, path: data/inbox, format: json, schema: 'id STRING'}"
    (job / "pipeline.yaml").write_text(f"version: 1\nname: orders\nschedule: null\nsources:\n  s: {source}\n")
    return load_project(root, {})


def scheduled(
    run_id: str, state: str, at: datetime, *, is_live: bool = True, refused: Error | None = None
) -> runs.Scheduled:
    text = at.isoformat(timespec="milliseconds")
    return {
        "run_id": run_id,
        "state": state,
        "started_at": text,
        "ended_at": text,
        "is_live": is_live,
        "decides_on": None,
        "decision": None,
        "refused": refused,
    }


def save_run(project: Project, run_id: str, at: datetime, outcome: str | None = "published") -> None:
    report = new_report("orders", run_id)
    report.started_at, report.outcome = at.isoformat(timespec="milliseconds"), outcome
    report.ended_at = None if outcome is None else report.started_at
    save_report(project.paths("orders"), report)


def test_runs_that_failed_before_they_left_a_report_are_listed(tmp_path: Path) -> None:
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    save_run(project, "r1", now - timedelta(minutes=30))
    save_run(project, "r2", now - timedelta(minutes=20), "failed")
    known = [
        scheduled("r4", "queued", now),
        scheduled("r3", "failed", now - timedelta(minutes=10)),
        scheduled("r2", "failed", now - timedelta(minutes=20)),
    ]
    row = pipelines.look_at(project, "orders", scheduled=known)
    assert [(run.run_id, run.state) for run in row.runs] == [
        ("r3", "no_report"),
        ("r2", "failed"),
        ("r1", "published"),
    ]
    assert row.state == "failing" and "failed in Airflow before it left a report" in row.why[0]
    assert "2 runs in a row" in row.why[0]
    # The same of a backfill says nothing of the pipeline.
    beside = [scheduled("b1", "failed", now, is_live=False)]
    save_run(project, "r5", now - timedelta(minutes=5))
    row = pipelines.look_at(project, "orders", scheduled=beside)
    assert row.state == "up_to_date" and row.runs[0].run_id == "b1"
    # Of what is older than the reports that are shown nobody knows whether it had one.
    assert [run.run_id for run in runs.list_runs(project.paths("orders"), 1, None, known[1:2]).rows] == ["r5"]


def test_a_refused_form_leaves_the_state_of_the_pipeline(tmp_path: Path) -> None:
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    refused = refuse("it has 1 unknown key: 'x'").to_dict()
    known = [
        scheduled(f"r{number}", "failed", now + timedelta(seconds=number), is_live=False, refused=refused)
        for number in range(60, 10, -1)
    ]
    row = pipelines.look_at(project, "orders", scheduled=known)
    assert row.state == "never_ran" and row.runs[0].error == [refused["code"], refused["message"]]
    for run_id, outcome, state in (("a1", "published", "up_to_date"), ("a2", "failed", "failing")):
        save_run(project, run_id, now - timedelta(minutes=20), outcome)
        row = pipelines.look_at(project, "orders", scheduled=known)
        assert row.state == state and row.runs[0].run_id == "r60" and row.runs[0].state == "refused"
    assert {"a1", "a2"} <= {run.run_id for run in row.runs}, "many refused forms hide no run"
    save_run(project, "r60", now - timedelta(minutes=1))
    row = pipelines.look_at(project, "orders", scheduled=known)
    assert {run.run_id: run.state for run in row.runs}["r60"] == "published", "a run with a report is what it says"


def test_a_run_that_failed_in_airflow_does_not_go_on(tmp_path: Path) -> None:
    """It was marked failed between two of its tasks: nobody has the lease, and its report has no outcome."""
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    save_run(project, "r1", now - timedelta(minutes=2), None)
    assert pipelines.look_at(project, "orders").is_running
    row = pipelines.look_at(project, "orders", scheduled=[scheduled("r1", "failed", now - timedelta(minutes=2))])
    assert not row.is_running and row.runs[0].state == "died" and row.state == "failing"


def test_a_run_that_a_process_works_on_goes_on_whatever_airflow_says(tmp_path: Path) -> None:
    """It has failed in Airflow, and somebody goes on with it in a terminal."""
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    save_run(project, "r1", now, None)
    with acquire(project.paths("orders"), run_id="r1", command="run", expires_after_seconds=60):
        row = pipelines.look_at(project, "orders", scheduled=[scheduled("r1", "failed", now)])
    assert row.is_running and row.runs[0].state == "running"


def test_a_run_whose_report_may_have_expired_is_not_said_to_have_left_none(tmp_path: Path) -> None:
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    save_run(project, "r9", now)
    known = [scheduled("r8", "failed", now - timedelta(days=80)), scheduled("r1", "failed", now - timedelta(days=100))]
    row = pipelines.look_at(project, "orders", scheduled=known)
    assert [run.run_id for run in row.runs] == ["r9", "r8"]


def test_a_report_that_is_too_large_is_named_with_the_limit(tmp_path: Path) -> None:
    project = make_orders(tmp_path)
    save_run(project, "r1", datetime.now(UTC))
    path = project.paths("orders").report("r1")
    with path.open("r+b") as file:
        file.truncate(65 << 20)  # a hole
    row = pipelines.look_at(project, "orders")
    assert row.state == "broken" and row.error is not None and "larger than 64 MiB" in row.error["message"]
    assert row.error["next_run"] and row.error["fix"] and row.error["where"] == str(path)
    page = look_at_run(project, "orders", "r1")
    assert page.error == row.error and page.state == "unreadable"


def test_batches_of_each_driver_of_a_backfill(tmp_path: Path) -> None:
    """Each begins with batch 0; a driver that goes on does again what was not committed."""
    paths = make_orders(tmp_path).paths("orders")

    def session(name: str) -> dict[str, Any]:
        return {"event": "session", "application": name, "ui": None, "eventLog": False}

    def staged(number: int, rows: int) -> dict[str, Any]:
        return {"event": "staged", "batchId": number, "rows": rows}

    def done(number: int) -> dict[str, Any]:
        return {"event": "progress", "batchId": number, "timestamp": "2026-01-01T00:00:00Z", "batchDuration": 1000}

    first = [session("a"), staged(0, 10), done(0), staged(1, 11)]
    second = [session("b"), staged(0, 20), done(0), staged(1, 21), done(1)]
    paths.runs.mkdir(parents=True)
    paths.progress("r").write_text("".join(f"{json.dumps(one)}\n" for one in (*first, *second)))
    batches = read_progress(paths, "r")["batches"]
    assert [(one["batch_id"], one["rows"]) for one in batches] == [(0, 10), (0, 20), (1, 21)]


def test_a_run_that_a_decision_has_ended_was_not_killed(tmp_path: Path) -> None:
    """Its records are read again by the run that follows; it has no outcome, and never will have one."""
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    save_run(project, "r1", now - timedelta(hours=2), None)
    report = load_report(project.paths("orders"), "r1")
    assert report is not None
    report.decision = {"decision": "reread", "who": "ann", "reason": "corrected", "at": report.started_at}
    save_report(project.paths("orders"), report)
    save_run(project, "r2", now - timedelta(hours=1))
    assert [run.state for run in pipelines.look_at(project, "orders").runs] == ["published", "decided"]
    page = look_at_run(project, "orders", "r1")
    assert (page.state, page.is_live) == ("decided", False)


def test_figures_are_of_runs_that_are_over(tmp_path: Path) -> None:
    """What is held is neither in the table nor in quarantine."""
    project = make_orders(tmp_path)
    now = datetime.now(UTC)
    for run_id, outcome in (("r1", "published"), ("r2", "held")):
        report = new_report("orders", run_id)
        report.started_at = report.ended_at = now.isoformat(timespec="milliseconds")
        report.outcome = outcome
        report.rows |= {"read": 10, "malformed": 3, "entered": 7, "transformed": 7, "staged": 7}
        report.rows["published"] = 7 if outcome == "published" else 0
        save_report(project.paths("orders"), report)
    row = pipelines.look_at(project, "orders")
    assert (row.published, row.quarantined, row.quarantine_share) == (7, 3, 0.3)
