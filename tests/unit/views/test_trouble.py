"""What in ``status`` needs a person, in which order, and when a pipeline is behind its schedule."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.settled_projects import make_project, make_settled
from tidegate.cli.commands import app
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.runs.reports.report import new_report, save_report
from tidegate.table.publish.intent import PublishIntent
from tidegate.views.status import find_behind, find_trouble, needs_a_person, rank, summarise

NOW = datetime(2026, 3, 2, 12, 5, tzinfo=UTC)


def make_row(name: str = "flow", **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"pipeline": name, "schedule": None, "pending": True, "held": None, "errors": []}
    row |= {"waiting": [], "held_work": [], "missed": [], "lost": None}
    row |= {"backlog_unknown": None, "decided": [], "unread": [], "changed": [], "runs": [], **values}
    return {**row, "trouble": find_trouble(row, NOW)}


def run_at(started: str, ended: str | None, outcome: str | None = "published") -> dict[str, Any]:
    error = {"code": "INGEST_FAILED"} if outcome == "failed" else None
    day = "2026-03-02T"
    ended_at = None if ended is None else f"{day}{ended}:00+00:00"
    times = {"started_at": f"{day}{started}:00+00:00", "ended_at": ended_at}
    return {**times, "run_id": "R", "mode": "incremental", "outcome": outcome, "error": error}


@pytest.mark.parametrize(
    ("schedule", "runs", "pending", "since"),
    [
        ("*/10 * * * *", [run_at("11:40", "11:41")], True, "11:41"),
        ("*/10 * * * *", [run_at("11:50", "11:51")], True, None),  # a run of 12:00 may still be at work
        ("*/10 * * * *", [run_at("11:40", "11:41")], False, None),  # nothing waits
        (None, [run_at("00:00", "00:01")], True, None),
        ("*/10 * * * *", [], True, None),  # never run: its first tick may lie ahead
        ("*/10 * * * *", [run_at("12:00", None, None), run_at("11:20", "11:21")], True, "11:21"),
        ("*/10 * * * *", [run_at("12:00", "12:01", "failed"), run_at("11:30", "11:31", "failed")], True, "11:30"),
        ("*/10 * * * *", [run_at("12:00", "12:01", "nothing_new"), run_at("11:00", "11:01")], True, None),
        ("@hourly", [run_at("10:00", "10:01")], True, "10:01"),
        ("@hourly", [run_at("11:00", "11:01")], True, None),
        ("0 6 * * MON", [run_at("00:00", "00:01")], True, None),
    ],
)
def test_behind_its_schedule(schedule: str | None, runs: list[Any], pending: bool, since: str | None) -> None:
    expected = None if since is None else f"2026-03-02T{since}:00+00:00"
    assert find_behind(make_row(schedule=schedule, runs=runs, pending=pending), NOW) == expected
    maintained = [{**run, "mode": "maintain"} for run in runs]  # takes in nothing, so it is no success
    assert since is None or find_behind(make_row(schedule=schedule, runs=maintained, pending=pending), NOW) is not None


def test_other_work_hides_no_run_and_none_hides_it() -> None:
    """How a pipeline is doing is told by its runs; work beside them that failed is told as well, unless it is held."""
    failed = run_at("11:00", "11:01", "failed")
    beside = {**run_at("12:00", "12:01"), "mode": "maintain", "run_id": "M"}
    last = {"kind": "failed", "message": "its last run failed (INGEST_FAILED)"}
    assert make_row(runs=[beside, failed])["trouble"] == [last]
    refused = {**run_at("12:02", "12:03", "failed"), "mode": "backfill", "run_id": "B"}
    other = {"kind": "failed", "message": "its last backfill failed (INGEST_FAILED): B"}
    assert make_row(runs=[refused, beside, failed])["trouble"] == [last, other]
    assert make_row(runs=[run_at("12:04", "12:05"), refused])["trouble"] == [other]
    assert make_row(runs=[{**beside, "mode": "backfill"}, refused])["trouble"] == []
    held = [{"kind": "backfill", "run_id": "B", "partitions": "day=2026-01-02", "runs": "live runs continue"}]
    told = {"kind": "held", "message": "backfill B is held (day=2026-01-02); live runs continue"}
    assert make_row(runs=[refused], held_work=held)["trouble"] == [told]
    every = {"schedule": "*/10 * * * *", "runs": [beside, refused]}
    since = find_behind(make_row(**every), NOW, live=[run_at("11:20", "11:21")])
    assert since == "2026-03-02T11:21:00+00:00"
    assert find_trouble(make_row(runs=[beside]), NOW, live=[failed]) == [last]


def test_a_held_backfill_is_shown_and_needs_a_person(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    report = new_report("flow", "B1")
    report.mode, report.rebuilt = "backfill", ["day=2026-01-01", "day=2026-01-02"]
    intent = PublishIntent("flow", "B1", "table", "{}", ["day"], "app", 0, -1, report=dict(report.to_json()))
    side = project.paths("flow").beside(f"backfills/{intent.app_id}/token")
    keep_held(side, intent, Interval({"day": ["2026-01-02"]}), report)

    def ask(*command: str, expect: int = 0) -> Any:
        done = CliRunner().invoke(app, ["--project", str(tmp_path), *command])
        assert done.exit_code == expect, done
        return done

    said = "held: backfill B1: day=2026-01-02; live runs continue; decide with `tidegate release flow B1 --reason"
    assert said in ask("plan", "flow").stdout and said in ask("status").stdout
    work = [{"kind": "backfill", "run_id": "B1", "partitions": "day=2026-01-02", "runs": "live runs continue"}]
    assert json.loads(ask("plan", "flow", "--json").stdout)["held_work"] == work
    assert json.loads(ask("status", "--json").stdout)[0]["held_work"] == work
    done = ask("status", "--check", expect=1)
    assert "flow: backfill B1 is held (day=2026-01-02); live runs continue" in done.stderr
    assert done.stdout.endswith("1 pipeline: 1 held\n")


def test_a_failed_run_is_found_behind_maintenance(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    for number in range(1, 10):
        report = new_report("flow", f"manual__2026-02-0{number}T00:00:00_x")
        report.mode, report.outcome = "maintain", "nothing_new"
        report.started_at = f"2026-02-0{number}T00:00:00.000+00:00"
        if number == 1:
            report.mode, report.outcome, report.error = "incremental", "failed", {"code": "LOST", "message": "m"}
        save_report(project.paths("flow"), report)
    done = CliRunner().invoke(app, ["--project", str(tmp_path), "status", "--check"])
    assert done.exit_code == 1 and "flow: its last run failed (LOST)" in done.stderr


def test_rows_by_trouble_and_their_sum() -> None:
    error = {"code": "TABLE_GONE", "message": "it is gone\nmore"}
    rows = [
        make_row("calm"),
        make_row("changed", changed=[{"path": "a"}]),
        make_row("late", schedule="* * * * *", runs=[run_at("11:00", "11:01")]),
        make_row("refusing", errors=[error]),
        make_row("dark", errors=[error], backlog_unknown=error),
        make_row("failing", runs=[run_at("12:00", "12:01", "failed")]),
        make_row("waiting", held={"run_id": "R"}, runs=[run_at("12:00", "12:01", "failed")]),
        make_row("also", held={"run_id": "S"}),
    ]
    names = [row["pipeline"] for row in sorted(rows, key=rank)]
    assert names == ["also", "waiting", "failing", "refusing", "dark", "late", "changed", "calm"]
    assert summarise(rows) == (
        "8 pipelines: 2 held, 1 failed, 1 would refuse, 1 cannot be read, 1 behind schedule, 1 with changed files"
    )
    assert summarise(rows[:1]) == "1 pipeline, nothing needs a person"
    assert rows[3]["trouble"] == [{"kind": "refused", "message": "would refuse: TABLE_GONE: it is gone"}]


def test_a_line_of_check_has_counts_and_codes_whatever_a_message_contains() -> None:
    file = {"of": "table", "path": "p", "rows": 1, "partition": {"note": "a: b"}, "run_id": "R"}
    lost = {"rows": 1, "files": [file], "command": "tidegate backfill flow --partition 'note=a: b'"}
    dark, gone = {"code": "KAFKA_UNREACHABLE", "message": "a: b"}, {"code": "TABLE_GONE", "message": "c: d"}
    row = make_row(lost=lost, errors=[dark, gone], backlog_unknown=dark, waiting=[{"run_id": "W: 1"}])
    counted = "lost with damaged files and not rebuilt: 1 row of 1 file (note=a: b)"
    assert needs_a_person([row]) == [
        "flow: run W: 1 waits for a decision; later runs continue",
        f"flow: {counted}",
        "flow: would refuse: TABLE_GONE",
        "flow: KAFKA_UNREACHABLE",
    ]
    assert [one["message"].partition("; to rebuild them: `tidegate backfill")[0] for one in row["trouble"]] == [
        "run W: 1 waits for a decision; later runs continue",
        counted,
        "would refuse: TABLE_GONE: c: d",
        "KAFKA_UNREACHABLE: a: b",
    ]


def test_failed_limit_and_check(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    for name in ("calm", "failing"):
        make_settled(project, name)

    def ask(*options: str, expect: int = 0) -> Any:
        done = CliRunner().invoke(app, ["--project", str(tmp_path), "status", *options])
        assert done.exit_code == expect, done
        return done

    assert ask("--check").stdout.endswith("2 pipelines, nothing needs a person\n")
    assert ask("--failed").stdout == "2 pipelines, nothing needs a person\n"
    assert ask("calm", "--failed").stdout == "calm: nothing needs a person\n"
    assert json.loads(ask("--failed", "--json").stdout) == []
    report = new_report("failing", "manual__2026-02-01T00:00:00_x")
    report.outcome, report.error = "failed", {"code": "INGEST_FAILED", "message": "m"}
    save_report(project.paths("failing"), report)
    done = ask("--check", expect=1)
    assert "failing: its last run failed (INGEST_FAILED)" in done.stderr
    assert done.stdout.endswith("2 pipelines: 1 failed\n")
    assert [row["pipeline"] for row in json.loads(ask("--json").stdout)] == ["failing", "calm"]
    (row,) = json.loads(ask("--failed", "--json").stdout)
    assert (row["pipeline"], len(row["runs"])) == ("failing", 3)
    assert [len(row["runs"]) for row in json.loads(ask("--limit", "1", "--json").stdout)] == [1, 1]
    assert len(json.loads(ask("calm", "--limit", "2", "--json").stdout)[0]["runs"]) == 2
    assert ask("--failed").stdout.splitlines()[0].startswith("failing: ")
