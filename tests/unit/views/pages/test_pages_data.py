"""What the pages show, of a project where each pipeline has something else: nothing ends the page of another."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.many_runs import HOSTILE, SCENES, Made, make_many
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.quality.verdict import Quarantined
from tidegate.runs.reports.report import new_report, read_newest, save_report
from tidegate.spec.project import Project, load_project
from tidegate.state.lease import acquire
from tidegate.views.pages import pipelines, runs
from tidegate.views.pages.pipeline import (
    look_at_pipeline,
    look_at_quarantine,
    look_at_size,
    look_at_state,
    look_at_table,
)
from tidegate.views.pages.run import look_at_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_many(tmp_path_factory.mktemp("many") / "project", len(SCENES) + 1, 12)


@pytest.fixture(scope="module")
def rows(made: Made) -> dict[str, pipelines.PipelineRow]:
    overview = pipelines.overview(made.project, pipelines.list_names(made.project))
    by_name = {row.pipeline: row for row in overview["rows"]}
    return {scene: by_name[name] for scene, name in made.scenes.items()}


@pytest.mark.parametrize(
    ("scene", "state", "why"),
    [
        ("held", "held", "rows are below 0"),
        ("failing", "failing", "SOURCE_UNREACHABLE: the broker"),
        ("behind", "behind", "no run has succeeded since 20"),
        ("broken", "broken", "BAD_SPEC: 2 faults"),
        ("fresh", "never_ran", "no run has left a report yet"),
        ("torn", "broken", "REPORT_UNREADABLE: "),
        ("windows", "up_to_date", ""),
        ("well", "up_to_date", ""),
    ],
)
def test_states(rows: dict[str, pipelines.PipelineRow], scene: str, state: str, why: str) -> None:
    assert rows[scene].state == state
    assert why in " ".join(rows[scene].why)


def test_the_worst_come_first(made: Made) -> None:
    overview = pipelines.overview(made.project, pipelines.list_names(made.project))
    order = [pipelines.STATES.index(row.state) for row in overview["rows"]]
    assert order == sorted(order)
    assert sum(overview["counts"].values()) == len(overview["rows"])


def test_a_broken_spec_hides_no_run(rows: dict[str, pipelines.PipelineRow]) -> None:
    row = rows["broken"]
    assert len(row.runs) == 12 and row.published > 0
    assert row.error is not None and {fault["key"] for fault in row.error["faults"]} == {
        "ownr",
        "sources.incoming.format",
    }


def test_figures_are_those_of_the_reports(made: Made, rows: dict[str, pipelines.PipelineRow]) -> None:
    paths = made.project.paths(made.scenes["well"])
    reports = [json.loads(path.read_text()) for path in paths.runs.glob("*[!l].json")]
    row = rows["well"]
    assert row.published == sum(report["rows"]["published"] for report in reports)
    quarantined = sum(report["rows"][key] for report in reports for key in ("malformed", "late", "rejected"))
    rows_of_all = {key: sum(report["rows"][key] for report in reports) for key in reports[0]["rows"]}
    assert row.quarantined == quarantined
    assert row.quarantine_share == pytest.approx(float(Quarantined.of(rows_of_all).share))
    assert row.version == max(report["table"].get("version", -1) for report in reports)


def test_reports_that_cannot_be_read_have_their_place(made: Made, rows: dict[str, pipelines.PipelineRow]) -> None:
    row = rows["torn"]
    assert [run.state for run in row.runs].count("unreadable") == 2
    [cut, other] = [run for run in row.runs if run.state == "unreadable"]
    assert cut.error is not None and "cut off" in cut.error[1]
    assert other.error is not None and "another version" in other.error[1]
    page = look_at_run(made.project, row.pipeline, cut.run_id)
    assert page.state == "unreadable" and page.error is not None and "cut off" in page.error["message"]


def test_a_run_that_goes_on(made: Made, rows: dict[str, pipelines.PipelineRow]) -> None:
    row = rows["running"]
    assert row.is_running
    page = look_at_run(made.project, row.pipeline, row.runs[0].run_id)
    assert page.is_live and page.state == "running" and page.batches
    assert sum(batch["rows"] for batch in page.batches) == row.runs[0].rows["read"]


def test_pages_of_spark_on_a_run(made: Made, rows: dict[str, pipelines.PipelineRow]) -> None:
    """Its own while the run goes on, the history's afterwards, where the project names one."""
    history = made.project.spec.ui.replace(spark_history="http://history:18080/shs/")
    named = replace(made.project, spec=made.project.spec.replace(ui=history))

    def look(scene: str, project: Project) -> list[str]:
        name, run = made.scenes[scene], rows[scene].runs[0]
        return [one["address"] for one in look_at_run(project, name, run.run_id).spark]

    assert look("running", named) == look("running", made.project) == ["http://driver:4040"]
    assert look("well", made.project) == []
    [address] = look("well", named)
    assert address.startswith("http://history:18080/shs/history/app-20") and address.endswith("-0001/")


def test_what_another_run_published_is_counted_once(tmp_path: Path) -> None:
    """R1 died between audit and publish; the report of R2 has the rows of both."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    for run_id, read, by in (("R1", 5, "R2"), ("R2", 7, None)):
        report = new_report("orders", run_id)
        report.outcome, report.published_by = "published", by
        report.rows = {**report.rows, "read": read, "malformed": 2, "published": read - 2}
        save_report(project.paths("orders"), report)
    row = pipelines.look_at(project, "orders")
    assert (row.published, row.quarantined, row.kept_runs) == (5, 2, 2)


def test_what_each_run_read(made: Made, tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    report = new_report("clicks", "r1")
    report.outcome = "published"
    many = {str(number): [number, number + 10] for number in range(12)} | {"3": [7, 7]}
    report.sources = {"clicks": {"rows": 110, "offsets": {"clicks": many}}, "few": {"rows": 2, "files": 1, "bytes": 9}}
    save_report(project.paths("clicks"), report)
    [row] = runs.list_runs(project.paths("clicks"), 10).rows
    assert row.sources["few"] == {"rows": 2, "files": 1, "bytes": 9, "offsets": ""}
    told = row.sources["clicks"]["offsets"]
    assert told == "clicks 0: 0 to 10, clicks 1: 1 to 11, clicks 2: 2 to 12, clicks 4: 4 to 14, and 7 more partitions"


def test_the_size_of_a_table_follows_its_versions(tmp_path: Path) -> None:
    made = make_many(tmp_path / "p", len(SCENES) + 1, 3)
    for scene in ("well", "held"):
        name = made.scenes[scene]
        table, size = look_at_table(made.project, name), look_at_size(made.project, name)
        assert all(getattr(size, key) == getattr(table, key) > 0 for key in ("files", "rows", "bytes"))
        assert size.version == table.version
    name = made.scenes["well"]
    log = made.project.paths(name).table / "_delta_log"
    newest = max(log.glob("*.json"))
    before = look_at_size(made.project, name)
    newest.unlink()
    assert look_at_size(made.project, name).version == int(newest.stem) - 1
    newest.write_text("torn")
    assert "TABLE_LOG_UNREADABLE" in str(look_at_size(made.project, name).fault)
    assert before.fault is None
    assert look_at_size(made.project, made.scenes["fresh"]).version is None


def test_a_run_without_an_outcome_that_a_later_one_followed_has_died(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    paths, now = project.paths("orders"), datetime.now(UTC)
    for run_id, age, outcome in (("r1", 60, None), ("r2", 30, "published")):
        report = new_report("orders", run_id)
        report.started_at = (now - timedelta(seconds=age)).isoformat()
        report.outcome = outcome
        save_report(paths, report)
    found = {run.run_id: run.state for run in runs.list_runs(paths, 10).rows}
    assert found == {"r1": "died", "r2": "published"}
    assert look_at_run(project, "orders", "r1").state == "died"
    with acquire(paths, run_id="r1", command="ingest", expires_after_seconds=60):
        assert look_at_run(project, "orders", "r1").is_live


def test_a_run_that_has_not_begun(made: Made) -> None:
    page = look_at_run(made.project, made.scenes["well"], "manual__2026-01-01T00:00:00+00:00")
    assert page.is_live and "No report of this run yet" in str(page.fault)


@pytest.mark.parametrize(
    "value",
    [
        *([], 7, None, {}, {"rows": 5}),
        {"run_id": "r", "mode": "incremental", "started_at": "x", "rows": {}, "sources": {}},
        {"run_id": "r", "mode": [], "started_at": "2026-01-01", "rows": {"read": "many"}, "sources": {}},
        {"run_id": "r", "mode": "incremental", "started_at": "2026-01-01", "rows": {}, "sources": [], "outcome": None},
        {"run_id": "r", "mode": "incremental", "started_at": "2026-01-01", "rows": {}, "sources": {"a": 3}},
        {"run_id": "r", "mode": "incremental", "started_at": "2026-01-01", "rows": {}, "sources": {}, "outcome": {}},
        {"run_id": "r", "mode": "incremental", "started_at": "0001-01-01T00:00+14:00", "rows": {}, "sources": {}},
        {"run_id": "r", "mode": "incremental", "started_at": "2026-01-01", "rows": {"read": 10**400}, "sources": {}},
        {"run_id": "r", "mode": "incremental", "started_at": "2026-01-01", "rows": {"read": math.inf}, "sources": {}},
    ],
)  # fmt: skip
def test_whatever_lies_in_the_place_of_a_report(tmp_path: Path, value: object) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    folder = project.paths("orders").runs
    folder.mkdir(parents=True)
    (folder / "r.json").write_text(json.dumps(value))
    assert [run.state for run in runs.list_runs(project.paths("orders"), 10).rows] == ["unreadable"]
    assert look_at_run(project, "orders", "r").error


def test_a_report_of_nested_lists_without_end(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    folder = project.paths("orders").runs
    folder.mkdir(parents=True)
    (folder / "r.json").write_text("[" * 100_000)
    assert pipelines.look_at(project, "orders").runs[0].state == "unreadable"
    assert look_at_run(project, "orders", "r").error
    assert read_newest(project.paths("orders"), 5) == ([], [str(folder / "r.json")])


def test_a_report_that_can_be_read_again_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights that are given back, or a disk that answers again, change nothing in the folder."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    paths = load_project(tmp_path, {}).paths("orders")
    save_report(paths, new_report("orders", "r1"))
    old = datetime.now(UTC).timestamp() - 60
    os.utime(paths.runs, (old, old))

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("tidegate.core.storage.read", refuse)
        assert [run.state for run in runs.list_runs(paths, 5).rows] == ["unreadable"]
    assert [run.state for run in runs.list_runs(paths, 5).rows] == ["running"]


def test_since_when_it_fails(made: Made) -> None:
    row = pipelines.look_at(made.project, made.scenes["failing"])
    failed = [run for run in row.runs if run.state == "failed"]
    [why] = row.why
    assert row.runs[1].state != "failed" or "runs in a row, since" in why
    assert f"since {str(failed[0].ended_at)[:10]}" in why and why.endswith(" UTC)")


def test_a_report_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    paths = load_project(tmp_path, {}).paths("orders")
    report = new_report("orders", "r1")
    save_report(paths, report)
    old = datetime.now(UTC).timestamp() - 60
    os.utime(paths.runs, (old, old))
    assert [run.state for run in runs.list_runs(paths, 5).rows] == ["running"]
    report.outcome = "published"
    save_report(paths, report)
    assert [run.state for run in runs.list_runs(paths, 5).rows] == ["published"]


def test_a_report_that_is_put_back_in_place_is_read_again(tmp_path: Path) -> None:
    """As `cp -p` from a backup does: neither the folder nor any other file is changed."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    paths = load_project(tmp_path, {}).paths("orders")
    report, old = new_report("orders", "r1"), datetime.now(UTC).timestamp() - 60
    save_report(paths, report)
    save_report(paths, new_report("orders", "r2"))
    for one in (paths.report("r1"), paths.report("r2"), paths.runs):
        os.utime(one, (old, old))
    assert {run.state for run in runs.list_runs(paths, 5).rows} == {"running", "died"}
    report.outcome = "published"
    paths.report("r1").write_bytes(storage.dump_json(report.view()))
    os.utime(paths.report("r1"), (old - 60, old - 60))
    assert paths.runs.stat().st_mtime == pytest.approx(old)
    assert "published" in {run.state for run in runs.list_runs(paths, 5).rows}


def test_what_is_known_is_read_once_it_can_no_longer_change_unseen(tmp_path: Path) -> None:
    """A clock of files that ticks slowly gives two contents one time."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    paths = load_project(tmp_path).paths("orders")

    def recall(mode: str) -> str:
        report = new_report("orders", "r1")
        report.mode, report.started_at = mode, "2026-01-01T00:00:00+00:00"
        save_report(paths, report)
        os.utime(paths.report("r1"), (at, at))
        os.utime(paths.runs, (at, at))
        return runs.list_runs(paths, 5).rows[0].mode

    at = datetime.now(UTC).timestamp() + 60
    assert [recall("backfill"), recall("refresh ")] == ["backfill", "refresh "]
    at -= 120
    assert [recall("backfill"), recall("refresh ")] == ["backfill"] * 2, "nobody has changed it for so long"


def test_no_more_reports_are_read_than_are_shown(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    runs._read_row.cache_clear()
    runs._lists.clear()
    read: list[Path] = []
    monkeypatch.setattr("tidegate.core.storage.read", lambda path: read.append(path) or path.read_bytes())
    found = runs.list_runs(made.project.paths(made.scenes["well"]), 5)
    assert len(found.rows) == 5 and found.total == 12 and len(read) == 5
    assert [run.started_at for run in found.rows] == sorted((run.started_at for run in found.rows), reverse=True)


def test_history_of_rules(made: Made) -> None:
    page = look_at_pipeline(made.project, made.scenes["held"], [], 50)
    positive = next(rule for rule in page["rules"] if rule.rule == "amount_positive")
    assert positive.failed == 1 and positive.results[-1] == "failed" and positive.judged == len(positive.results)
    assert positive.expected == "at least 0" and positive.quarantines


def test_the_table(made: Made, rows: dict[str, pipelines.PipelineRow]) -> None:
    part = look_at_table(made.project, made.scenes["well"])
    assert part.fault is None and part.version == rows["well"].version
    assert part.rows == rows["well"].published == sum(one["rows"] for one in part.partitions)
    assert part.versions[0]["version"] == part.version and part.partition_by == ["day"]


def test_a_table_whose_log_is_torn_is_said(tmp_path: Path) -> None:
    project = make_many(tmp_path / "p", 11, 3).project
    name = pipelines.list_names(project)[0]
    log = sorted((project.paths(name).table / "_delta_log").iterdir())[0]
    log.write_text("{")
    assert "TABLE_LOG" in str(look_at_table(project, name).fault)


def test_quarantine_by_cause_shows_data_only_where_it_may(made: Made) -> None:
    name = made.scenes["well"]
    hidden = look_at_quarantine(made.project, name, shows_data=False)
    assert hidden.records == 79 and [one["records"] for one in hidden.causes] == [49, 21, 9]
    text = json.dumps(vars(hidden))
    assert "abc" not in text and "script" not in text and hidden.samples == []
    shown = look_at_quarantine(made.project, name, shows_data=True)
    assert [one["records"] for one in shown.causes] == [37, 21, 12, 9] and len(shown.samples) == 20
    assert HOSTILE in {one["example"] for one in shown.causes}


def test_state_and_spec_without_secrets(made: Made) -> None:
    part = look_at_state(made.project, made.scenes["well"])
    assert part.faults == [] and part.query_id is None
    assert ("quality.max_quarantine_share", "0.2") in part.settings


def test_what_notifiers_are_made_with_is_not_shown(tmp_path: Path) -> None:
    made = make_many(tmp_path / "p", len(SCENES) + 1, 0)
    notify = "alerts: {notify: [{notifier: a.B, arguments: {url: 'https://hooks.example/of-us-alone'}}]}\n"
    (tmp_path / "p" / "tidegate.yaml").write_text(f"version: 1\n{notify}")
    part = look_at_state(load_project(tmp_path / "p", {}), made.scenes["well"])
    assert ("alerts.notify", '[{"notifier": "a.B"}]') in part.settings
    assert "of-us-alone" not in json.dumps(vars(part))


def test_the_share_in_quarantine_is_the_one_that_the_gate_has(tmp_path: Path) -> None:
    """Where a row is made of many records, a rejected one stands for as many."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    report = new_report("orders", "r1")
    report.outcome, report.rows = "published", {**report.rows, "read": 4000, "transformed": 100, "rejected": 10}
    save_report(project.paths("orders"), report)
    assert runs.list_runs(project.paths("orders"), 5).rows[0].quarantine_share == pytest.approx(0.1)
    assert pipelines.look_at(project, "orders").quarantine_share == pytest.approx(0.1)


def test_what_pipelines_read_and_feed(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = load_project(tmp_path, {})
    sources = {
        "raw": "{type: kafka, topics: [in], format: json, schema: 'id STRING'}",
        "middle": "{type: files, path: data/warehouse/raw, format: parquet, schema: 'id STRING', static: true}\n"
        "  new: {type: kafka, topics: [more], format: json, schema: 'id STRING'}\ntransform: transform.sql",
        "last": "{type: kafka, topics: [out], format: json, schema: 'id STRING'}",
    }
    for name, source in sources.items():
        (project.jobs / name).mkdir(parents=True)
        sinks = "sinks: [{type: kafka, topic: out}]\n" if name == "middle" else ""
        text = f"version: 1\nname: {name}\nschedule: null\nsources:\n  s: {source}\n{sinks}"
        (project.jobs / name / "pipeline.yaml").write_text(text)
    rows = {row.pipeline: row for row in pipelines.overview(project, list(sources))["rows"]}
    assert {name: [one.pipelines for one in row.reads] for name, row in rows.items()} == {
        "raw": [[]],
        "middle": [["raw"], []],
        "last": [["middle"]],
    }
    assert {name: [one.pipelines for one in row.feeds] for name, row in rows.items()} == {
        "raw": [["middle"]],
        "middle": [["last"]],
        "last": [],
    }


def test_a_state_folder_that_cannot_be_read_is_a_row_that_says_so(tmp_path: Path) -> None:
    made = make_many(tmp_path / "p", 11, 2)
    well = made.project.paths(made.scenes["well"])
    for path in well.runs.iterdir():
        path.unlink()
    well.runs.rmdir()
    well.runs.write_text("a file in the place of a folder")
    [row] = [pipelines.look_at(made.project, made.scenes["well"])]
    assert row.state == "broken" and row.error is not None
    with pytest.raises((OSError, TidegateError)):
        runs.list_runs(well, 5)
