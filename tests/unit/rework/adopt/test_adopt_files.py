"""A plain parquet table, and the checkpoint of a job with files, taken over: nothing twice, nothing missing, whenever
it is stopped."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs import check_output
from tests.support.plain_jobs import PlainJob
from tests.support.project import PipelineProject
from tests.support.readers import read_agreed, read_with_duckdb
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.support.synced import Synced
from tidegate.cli.commands import app
from tidegate.core.errors import DisagreementError
from tidegate.rework.adopt import adoption
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.rework.backfill.lineage import read_lineage
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.sources.files.ledger import open_ledger
from tidegate.spec.pipeline import load_pipeline
from tidegate.table.log.state import read_table_state
from tidegate.views.outlook import plan_pipeline

SPEC = """version: 1
name: orders
sources:
  orders: {{type: files, path: data/inbox, format: json, schema: "id BIGINT, day {day}"}}
table: {{path: lake/orders, partition_by: [{partition}]}}
"""
FIRST: list[dict[str, Any]] = [{"id": 1, "day": "2026-01-01"}, {"id": 2, "day": "2026-01-02"}]
SECOND: list[dict[str, Any]] = [{"id": 3, "day": "2026-01-02"}]
THIRD: list[dict[str, Any]] = [{"id": 4, "day": "2026-01-03"}]


class Case:
    """A project, and a plain job beside it that has written two batches and was killed within a third."""

    def __init__(self, root: Path, *, day: str = "DATE", partition: str = "day", stop: str = "written") -> None:
        self.made = PipelineProject(root / "project")
        self.made.create()
        self.made.write("jobs/orders/pipeline.yaml", SPEC.format(day=day, partition=partition))
        self.table = root / "project/lake/orders"
        self.job = PlainJob(
            self.made.inbox, self.table, root / "old/checkpoint", partition_by=[partition] if partition else []
        )
        parts = [FIRST, SECOND, THIRD]
        if day == "STRING":  # a reader that takes 2026-1-1 for a date changes it, so the folders are renamed
            parts = [[{**row, "day": row["day"].replace("-0", "-")} for row in part] for part in parts]
        first, second, third = parts
        self.job.run(self.job.offer("a.json", first))
        self.job.run(self.job.offer("b.json", second))
        if stop:
            self.job.run(self.job.offer("c.json", third), stop=stop)
        self.job.offer("new.json", [{"id": 9, "day": "2026-01-09"}])

    def adopt(self, run_id: str = "adopt-1") -> Any:
        return adopt_table(self.made.project, "orders", run_id, self.table, self.job.checkpoint)

    def look(self) -> Any:
        return preview_adoption(self.made.project, "orders", self.table, self.job.checkpoint)

    def ids(self, reader: Any = read_agreed) -> list[int]:
        return sorted(row["id"] for row in reader(self.table))

    def pending(self) -> list[str]:
        """The files that the next run reads; nothing may stand in its way."""
        plan = plan_pipeline(self.made.project, "orders")
        assert plan["errors"] == []
        paths = self.made.project.paths("orders")
        with open_ledger(paths, read_only=True) as ledger:
            known = set(ledger.known("orders", [f"data/inbox/{path.name}" for path in self.made.inbox.iterdir()]))
        waiting = sorted({f"data/inbox/{path.name}" for path in self.made.inbox.iterdir()} - known)
        assert plan["sources"]["orders"]["files"] == len(waiting)
        return [name.rpartition("/")[2] for name in waiting]


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_a_table_of_sparks_file_sink_becomes_version_0(tmp_path: Path) -> None:
    case = Case(tmp_path)
    report = case.adopt()
    assert (report["mode"], report["outcome"], report["rows"]["published"]) == ("adopt", "published", 3)
    assert report["table"]["version"] == 0
    assert report["table"]["files_added"] == 3
    assert case.ids() == [1, 2, 3]
    assert case.pending() == ["c.json", "new.json"]
    assert not (case.table / "_spark_metadata").exists()
    assert (case.table / "._spark_metadata.adopted/1").is_file()
    schema = json.loads(read_table_state(case.table).schema_json)  # type: ignore[union-attr]
    assert {field["name"]: field["type"] for field in schema["fields"]} == {"id": "long", "day": "date"}


def test_a_backfill_knows_that_these_rows_came_from_elsewhere(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.adopt()
    assert read_lineage(case.table, 0).foreign == {(("day", "2026-01-01"),), (("day", "2026-01-02"),)}


def test_a_batch_that_the_sink_lists_is_in_the_table_though_it_was_not_committed(tmp_path: Path) -> None:
    case = Case(tmp_path, stop="sunk")
    case.adopt()
    assert case.ids() == [1, 2, 3, 4]
    assert case.pending() == ["new.json"]


def test_a_batch_that_was_only_planned_is_read_again(tmp_path: Path) -> None:
    case = Case(tmp_path, stop="planned")
    case.adopt()
    assert case.ids() == [1, 2, 3]
    assert case.pending() == ["c.json", "new.json"]


def test_a_dry_run_says_what_adopting_does_and_changes_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    told = case.look()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert (told["kind"], told["files"], told["rows"], told["batch"]) == ("parquet", 3, 3, 1)
    assert told["columns"] == {"id": "BIGINT", "day": "DATE"}
    assert told["sources"] == {"orders": {"files_taken": 2, "files_gone": 0, "files_waiting": 2}}
    assert told["actions"] == [
        "take over 3 files with 3 rows where they are",
        "hide 1 file that does not count",
        "move _spark_metadata to a hidden name",
        "commit version 0 of a Delta log",
        "source orders: 2 files count as read, 0 of them gone; the next run reads 2",
    ]


def test_adopting_twice_changes_nothing_and_says_so(tmp_path: Path) -> None:
    case = Case(tmp_path)
    first = case.adopt()
    assert case.adopt() == first  # the same run
    again = case.adopt("adopt-2")
    assert (again["outcome"], again["rows"]["published"]) == ("nothing_new", 0)
    assert "the table was adopted before" in again["notes"][0]
    assert case.look()["adopted"]
    assert read_table_state(case.table).version == 0  # type: ignore[union-attr]
    assert case.ids() == [1, 2, 3]


def sees(case: Case) -> None:
    """What readers may see at any moment: each row once, and none missing. Without a log yet deltalake sees no table;
    what the killed job left is what plain readers saw before."""
    ids = case.ids(read_with_duckdb)
    assert ids in ([1, 2, 3, 4], [1, 2, 3])
    if (case.table / "_delta_log").exists() and read_table_state(case.table) is not None:
        assert case.ids() == [1, 2, 3]


@pytest.mark.parametrize(("day", "after"), [("STRING", False), ("DATE", True)])  # STRING: folders are renamed
def test_killed_at_any_storage_call_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool, day: str
) -> None:
    with monkeypatch.context() as patch:
        calls = StorageCalls(patch, -1, kill)
        whole = Case(tmp_path / "whole", day=day)
        made = calls.count
        whole.adopt()
        total = calls.count - made
    assert total > 20
    for at in range(1, total + 1):
        case = Case(tmp_path / str(at), day=day)
        with monkeypatch.context() as patch:
            StorageCalls(patch, at, kill, after=after)
            try:
                case.adopt()
            except KilledHere:  # who is dead holds no lease
                shutil.rmtree(case.made.state / "lease", ignore_errors=True)
        sees(case)
        _check_no_run_begins_half_way(case)
        report = case.adopt(f"adopt-{at}")
        assert report["outcome"] in ("published", "nothing_new")
        assert case.ids() == [1, 2, 3], f"killed at call {at}"
        assert case.pending() == ["c.json", "new.json"], f"killed at call {at}"
        assert not case.made.project.paths("orders").adoption.exists()
        assert read_table_state(case.table).version == 0  # type: ignore[union-attr]


def _check_no_run_begins_half_way(case: Case) -> None:
    """A run either finds the table adopted, or reads nothing."""
    facts = gather_facts(case.made.project.paths("orders"), load_pipeline(case.made.project, "orders"))
    try:
        check_agreement(facts, "orders")
    except DisagreementError as error:
        assert error.code in ("ADOPTION_UNFINISHED", "FOREIGN_TABLE")
    else:
        assert facts.published is not None
        assert case.pending() == ["c.json", "new.json"]


def test_the_command_prints_what_its_schemas_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(tmp_path)
    command = ["--project", str(case.made.root), "adopt", "orders", "--table", str(case.table)]
    command += ["--checkpoint", str(case.job.checkpoint), "--json"]
    app([*command, "--dry-run"], standalone_mode=False)
    assert check_output("adopt", capsys.readouterr().out)["rows"] == 3
    app([*command, "--run-id", "adopt-1"], standalone_mode=False)
    report = check_output("report", capsys.readouterr().out)
    assert (report["mode"], report["run_id"], report["quality"]["verdict"]) == ("adopt", "adopt-1", "unchecked")
    app([*command, "--dry-run"], standalone_mode=False)
    assert check_output("adopt", capsys.readouterr().out)["adopted"]


def test_what_the_commit_names_is_on_disk_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old job synced nothing, and maintenance may clear the sources of these rows away."""
    case = Case(tmp_path, day="STRING", partition="day")
    synced, missing = Synced(monkeypatch), []
    commit = adoption._commit

    def look_and_commit(context: Any, look: Any) -> None:
        named = {file.path for file in look.table.files}
        told = {line.rpartition(" of ")[2] for line in synced.missing(case.table)}
        missing.append(sorted(told & {*named, *(name.rpartition("/")[0] for name in named)}))
        assert str(case.table.parent) in synced.paths
        commit(context, look)

    monkeypatch.setattr(adoption, "_commit", look_and_commit)
    case.adopt()
    assert missing == [[]]
