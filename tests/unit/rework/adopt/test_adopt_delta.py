"""A table that has a Delta log already: its log is gone on with, and every reader agrees on its rows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.support.plain_jobs import PlainJob
from tests.support.project import PipelineProject
from tests.support.readers import read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.support.synced import Synced
from tidegate.core.errors import TidegateError
from tidegate.rework.adopt import adoption
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.spec.pipeline import load_pipeline
from tidegate.table.log.commit import CONFIGURATION, Commit, commit_files
from tidegate.table.log.state import read_table_state
from tidegate.views.outlook import plan_pipeline

SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, city STRING"}
table: {path: lake/orders, partition_by: [city]}
"""


class Case:
    """A project, and a Delta table in which rows were deleted: a file is there that its log no longer counts."""

    def __init__(self, root: Path) -> None:
        self.made = PipelineProject(root / "project")
        self.made.create()
        self.made.write("jobs/orders/pipeline.yaml", SPEC)
        self.table = root / "project/lake/orders"
        self.job = PlainJob(self.made.inbox, self.table, root / "old/checkpoint", has_sink_log=False)
        self.job.run(self.job.offer("a.json", []))
        shutil.rmtree(self.table, ignore_errors=True)
        self.write([1, 2, 3], "Oslo")
        self.write([4], "Rome")
        DeltaTable(str(self.table)).delete("id = 2")

    def write(self, ids: list[int], city: str, batch: int = 0) -> None:
        rows = pa.table({"id": pa.array(ids, pa.int64()), "city": [city] * len(ids)})
        mark = CommitProperties(app_transactions=[Transaction(self.job.query_id, batch)])
        write_deltalake(str(self.table), rows, mode="append", partition_by=["city"], commit_properties=mark)

    def adopt(self, run_id: str = "adopt-1") -> Any:
        return adopt_table(self.made.project, "orders", run_id, self.table, self.job.checkpoint)

    def look(self) -> Any:
        return preview_adoption(self.made.project, "orders", self.table, self.job.checkpoint)

    def refused(self) -> TidegateError:
        before = {path: path.read_bytes() for path in self.table.rglob("*") if path.is_file()}
        with pytest.raises(TidegateError) as looked:
            self.look()
        with pytest.raises(TidegateError) as refused:
            self.adopt()
        assert str(refused.value) == str(looked.value)
        assert {path: path.read_bytes() for path in self.table.rglob("*") if path.is_file()} == before
        return refused.value

    def ids(self, reader: Any = read_agreed) -> list[int]:
        return sorted(row["id"] for row in reader(self.table))


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_its_log_is_gone_on_with_and_plain_readers_see_what_it_counts(tmp_path: Path) -> None:
    case = Case(tmp_path)
    assert case.ids(read_with_duckdb) == [1, 1, 2, 3, 3, 4]  # as it was, for whoever reads the folder
    table_id = str(DeltaTable(str(case.table)).metadata().id)
    told = case.look()
    assert (told["kind"], told["rows"]) == ("delta", 3)
    assert told["actions"][:3] == [
        "take over 2 files with 3 rows where they are",
        "hide 1 file that does not count",
        "continue its Delta log",
    ]
    assert "versions before this one cannot be read any more" in " ".join(told["notes"])
    report = case.adopt()
    assert report["table"]["version"] == 3
    assert case.ids() == [1, 3, 4]
    state = read_table_state(case.table)
    assert state is not None
    assert state.table_id == table_id
    assert plan_pipeline(case.made.project, "orders")["errors"] == []
    assert case.adopt("adopt-2")["outcome"] == "nothing_new"


def test_our_versions_follow_on_it_and_other_readers_read_them(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.adopt()
    state = read_table_state(case.table)
    assert state is not None
    version = commit_files(case.table, Commit(schema_json=state.schema_json, partition_by=["city"], app_id="query"))
    assert version == DeltaTable(str(case.table)).version() == 4
    assert case.ids() == [1, 3, 4]


def test_killed_at_any_storage_call_and_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        whole = Case(tmp_path / "whole")
        DeltaTable(str(whole.table)).create_checkpoint()
        calls = StorageCalls(patch, -1, kill)
        whole.adopt()
    for at in range(1, calls.count + 1):
        case = Case(tmp_path / str(at))
        DeltaTable(str(case.table)).create_checkpoint()
        with monkeypatch.context() as patch:
            StorageCalls(patch, at, kill)
            with pytest.raises(KilledHere):
                case.adopt()
        shutil.rmtree(case.made.state / "lease", ignore_errors=True)
        assert case.ids(read_with_deltalake) == [1, 3, 4]
        facts = gather_facts(case.made.project.paths("orders"), load_pipeline(case.made.project, "orders"))
        if facts.published is None or facts.adopting is not None:
            with pytest.raises(TidegateError) as refused:
                check_agreement(facts, "orders")
            assert refused.value.code in ("STATE_BEHIND", "ADOPTION_UNFINISHED")
        case.adopt(f"adopt-{at}")
        assert case.ids() == [1, 3, 4], f"killed at call {at}"
        assert plan_pipeline(case.made.project, "orders")["errors"] == []
        assert plan_pipeline(case.made.project, "orders")["sources"]["orders"]["files"] == 0


def test_checkpoints_that_plain_readers_take_for_rows_are_hidden_where_the_log_is_whole(tmp_path: Path) -> None:
    case = Case(tmp_path)
    DeltaTable(str(case.table)).create_checkpoint()
    told = case.look()
    assert told["actions"][2] == (
        "hide _last_checkpoint, 00000000000000000002.checkpoint.parquet of the log, which can be read without"
    )
    case.adopt()
    assert case.ids() == [1, 3, 4]


def test_a_log_that_needs_its_checkpoint_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path)
    DeltaTable(str(case.table)).create_checkpoint()
    (case.table / "_delta_log/00000000000000000000.json").unlink()
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_LOG_NOT_TAKEN_OVER", 78)
    assert "the first commit that is there is 1" in error.message


def test_the_way_on_for_a_log_that_needs_its_checkpoint(tmp_path: Path) -> None:
    case = Case(tmp_path)
    DeltaTable(str(case.table)).create_checkpoint()
    (case.table / "_delta_log/00000000000000000000.json").unlink()
    DeltaTable(str(case.table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    (case.table / "_delta_log").rename(case.table / "._delta_log.before")
    case.adopt()
    assert case.ids() == [1, 3, 4]


V3 = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": []}


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({**V3, "readerFeatures": ["typeWidening"]}, "ALTER TABLE delta.`"),
        ({**V3, "readerFeatures": ["v2Checkpoint"]}, "v2Checkpoint"),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, "DROP FEATURE rowTracking"),
        ({"minReaderVersion": 1, "minWriterVersion": 8}, "version 1,8"),
    ],
)
def test_what_is_not_known_here_is_named(tmp_path: Path, protocol: dict[str, Any], said: str) -> None:
    case = Case(tmp_path)
    commit = case.table / "_delta_log/00000000000000000003.json"
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    error = case.refused()
    assert error.code == "ADOPT_LOG_NOT_TAKEN_OVER"
    assert said in error.message


def test_a_constraint_that_a_writer_has_to_keep(tmp_path: Path) -> None:
    case = Case(tmp_path)
    log = case.table / "_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.constraints.positive"] = "id > 0"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "the constraint positive (id > 0) (in Spark: ALTER TABLE" in case.refused().message


def test_a_torn_log(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (case.table / "_delta_log/00000000000000000003.json").write_text('{"add')
    assert case.refused().code == "ADOPT_LOG_NOT_TAKEN_OVER"


def test_a_file_that_the_log_counts_and_that_is_gone_or_of_another_size(tmp_path: Path) -> None:
    case = Case(tmp_path)
    [path] = (case.table / "city=Rome").glob("*.parquet")
    path.write_bytes(path.read_bytes() + b"x")
    assert "bytes, and " in case.refused().message
    path.unlink()
    error = case.refused()
    assert error.code == "ADOPT_FILES_DO_NOT_FIT"
    assert "the log names it, and it is not there" in error.message


def test_a_spec_that_does_not_fit(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.made.write("jobs/orders/pipeline.yaml", SPEC.replace("id BIGINT", "id INT"))
    assert "column 'id' is BIGINT in the table and INT in the spec" in case.refused().message
    case.made.write("jobs/orders/pipeline.yaml", SPEC.replace(", partition_by: [city]", ""))
    assert "the table is partitioned by ['city'], the spec says []" in case.refused().message


def test_the_log_tells_whether_a_batch_of_the_query_is_in_the_table(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.job.run(case.job.offer("b.json", []), stop="planned")
    assert case.look()["batch"] == 0
    case.write([5], "Oslo", batch=1)
    assert case.look()["batch"] == 1
    case.write([5], "Oslo", batch=9)
    assert case.refused().code == "ADOPT_CHECKPOINT"


def test_without_any_mark_of_the_query_a_begun_batch_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.job.query_id = "another"
    case.job.run(case.job.offer("b.json", []))
    assert case.look()["batch"] == 1
    case.job.run(case.job.offer("c.json", []), stop="planned")
    assert case.refused().code == "ADOPT_BATCH_UNKNOWN"


def test_what_it_asks_of_other_engines_is_set(tmp_path: Path) -> None:
    case = Case(tmp_path)
    DeltaTable(str(case.table)).alter.set_table_properties({"delta.checkpointInterval": "10"})
    case.adopt()
    assert DeltaTable(str(case.table)).metadata().configuration == CONFIGURATION


def test_files_and_log_are_on_disk_before_our_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)
    synced, missing = Synced(monkeypatch), []
    commit = adoption._commit

    def look_and_commit(context: Any, look: Any) -> None:
        named = {file.path for file in look.table.files} | {f"_delta_log/{version:020d}.json" for version in range(3)}
        told = {line.rpartition(" of ")[2] for line in synced.missing(case.table)}
        missing.append(sorted(told & {*named, *(name.rpartition("/")[0] for name in named)}))
        commit(context, look)

    monkeypatch.setattr(adoption, "_commit", look_and_commit)
    case.adopt()
    assert missing == [[]]
