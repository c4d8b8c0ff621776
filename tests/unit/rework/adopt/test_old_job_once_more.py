"""The job that a pipeline has replaced runs once more: it is noticed before anything is read, taken out again, and kept
from starting where that was asked for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.support.plain_jobs import PlainJob
from tests.support.project import PipelineProject
from tests.support.readers import read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.rework.adopt.old_checkpoint import RETIRED, is_retired
from tidegate.rework.maintain.command import maintain_pipeline
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import needs_a_person, project_status

SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, day STRING"}
table: {path: lake/orders, partition_by: [day]}
"""
FIRST = [{"id": 1, "day": "a"}, {"id": 2, "day": "b"}]
LATER = [{"id": 3, "day": "b"}, {"id": 4, "day": "c"}]


class Case:
    """An adopted table, and the job that wrote it."""

    def __init__(self, root: Path, *, delta: bool = False, has_sink_log: bool = True) -> None:
        self.made = PipelineProject(root / "project")
        self.made.create()
        self.made.write("jobs/orders/pipeline.yaml", SPEC)
        self.table = root / "project/lake/orders"
        self.delta = delta
        self.job = PlainJob(
            self.made.inbox, self.table, root / "old/checkpoint", partition_by=["day"], has_sink_log=has_sink_log
        )
        self.write(FIRST, "a.json")
        self.adopt()

    def adopt(self, run_id: str = "adopt-1", *, retire_old: bool = False) -> Any:
        checkpoint = self.job.checkpoint
        return adopt_table(self.made.project, "orders", run_id, self.table, checkpoint, retire_old=retire_old)

    def write(self, rows: list[dict[str, Any]], name: str) -> None:
        """One batch of the old job, with a new file of its source."""
        path = self.job.offer(name, rows)
        batch = self.job.run(path, stop="planned" if self.delta else "")
        if self.delta:
            table = pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("day", pa.string())]))
            mark = CommitProperties(app_transactions=[Transaction(self.job.query_id, batch)])
            write_deltalake(str(self.table), table, mode="append", partition_by=["day"], commit_properties=mark)
            (self.job.checkpoint / "commits").mkdir(exist_ok=True)
            (self.job.checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            self.job.batch += 1

    def refused(self) -> str:
        """What every way to the table says; nothing is read, staged or changed."""
        before = {path: path.read_bytes() for path in self.table.rglob("*") if path.is_file()}
        [planned] = plan_pipeline(self.made.project, "orders")["errors"]
        ways: list[Callable[[], Any]] = [
            lambda: run_pipeline(self.made.project, "orders", "run-1", submit=_never),
            lambda: maintain_pipeline(self.made.project, "orders", "maintain-1"),
        ]
        for way in ways:
            with pytest.raises(TidegateError) as refused:
                way()
            assert (refused.value.code, refused.value.exit_code) == ("OLD_JOB_WROTE", 78)
            assert str(refused.value.message) == planned["message"]
        for name in (None, "orders"):
            rows = project_status(self.made.project, name)
            [told] = [one["message"] for row in rows for one in row["trouble"] if one["kind"] == "refused"]
            assert "would refuse: OLD_JOB_WROTE: another job has written to the table" in told
            assert "orders: would refuse: OLD_JOB_WROTE" in needs_a_person(rows)
        assert {path: path.read_bytes() for path in self.table.rglob("*") if path.is_file()} == before
        assert not list((self.made.state / "manifests").rglob("*.json"))
        return str(planned["message"])

    def repair(self, *, dry_run: bool = False) -> Any:
        return repair_pipeline(self.made.project, "orders", dry_run=dry_run)

    def ids(self, reader: Any = read_agreed) -> list[int]:
        return sorted(row["id"] for row in reader(self.table))

    def is_settled(self) -> None:
        """Every reader has the rows that were adopted, and what the old job took is still to be read."""
        assert self.ids() == [1, 2]
        assert not (self.table / "_spark_metadata").exists()
        plan = plan_pipeline(self.made.project, "orders")
        assert plan["errors"] == []
        assert plan["sources"]["orders"]["files"] == 1
        assert self.repair()["found"] == "nothing disagrees"


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("Spark is started")


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_sparks_file_sink(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write(LATER, "b.json")
    assert case.ids(read_with_duckdb) == [1, 2, 3, 4]
    said = case.refused()
    assert "there is a new _spark_metadata" in said
    assert "2 data files: day=b/part-00000-" in said
    told = case.repair(dry_run=True)
    assert told["actions"][0].startswith("back up _spark_metadata")
    assert told["actions"][1].startswith("back up 2 data files with 2 rows: day=b/part-00000-")
    assert case.refused() == said
    assert case.repair()["actions"] == told["actions"]
    case.is_settled()
    assert len(list(case.made.state.glob("set_aside/*/table/day=*/*.parquet"))) == 2
    assert not (case.table / "day=c").exists()
    case.write(LATER, "c.json")  # and once more
    case.refused()


def test_a_sink_that_lists_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path, has_sink_log=False)
    case.write(LATER, "b.json")
    said = case.refused()
    assert "_spark_metadata" not in said
    assert "2 data files: " in said
    case.repair()
    case.is_settled()


def test_a_job_that_was_started_and_had_nothing_to_do(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (case.table / "_spark_metadata").mkdir()  # Spark then reads a table without rows
    case.job.offer("b.json", LATER)
    assert "2 data files" not in case.refused()
    case.repair()
    case.is_settled()


def test_a_file_that_is_not_parquet_inside(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.job.offer("b.json", LATER)
    (case.table / "day=b/part-torn.snappy.parquet").write_bytes(b"PAR1")
    case.refused()
    assert "1 data file with 0 rows (1 cannot be read): day=b/part-torn" in case.repair()["actions"][0]
    case.is_settled()


def test_sparks_delta_sink(tmp_path: Path) -> None:
    case = Case(tmp_path, delta=True)
    case.write(LATER, "b.json")
    assert case.ids() == [1, 2, 3, 4]
    said = case.refused()
    assert f"query {case.job.query_id} was at batch 0 when the table was adopted, and has committed batch 1" in said
    told = case.repair(dry_run=True)
    assert told["actions"][0].startswith("take 2 files with 2 rows out of the table")
    case.repair()
    case.is_settled()
    table = DeltaTable(str(case.table))
    table.load_as_version(table.version() - 1)
    assert table.to_pyarrow_table().num_rows == 4  # an older version has them
    case.write(LATER, "c.json")
    case.refused()


def test_what_was_compacted_since_is_named(tmp_path: Path) -> None:
    case = Case(tmp_path, delta=True)
    case.write(LATER, "b.json")
    DeltaTable(str(case.table)).optimize.compact()
    [action, left] = case.repair(dry_run=True)["actions"][:2]
    assert action.startswith("take 1 file with 1 row out of the table")
    assert left.startswith("leave 1 file of that query as found")


def test_another_delta_writer_is_none_of_it(tmp_path: Path) -> None:
    case = Case(tmp_path, delta=True)
    rows = pa.table({"id": pa.array([9], pa.int64()), "day": ["b"]})
    write_deltalake(str(case.table), rows, mode="append", partition_by=["day"])
    DeltaTable(str(case.table)).delete("id = 9")  # the file stays in the folder
    assert plan_pipeline(case.made.project, "orders")["errors"] == []
    log = case.table / "_delta_log"
    compacted = [line for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    assert any('"remove"' in line for line in compacted)


def test_a_file_that_left_the_table_is_named_though_a_compacted_log_forgets_it(tmp_path: Path) -> None:
    case = Case(tmp_path, delta=True)
    [path] = (case.table / "day=b").glob("*.parquet")
    DeltaTable(str(case.table)).delete("id = 2")
    assert path.exists()
    newest = DeltaTable(str(case.table)).version()
    state: dict[str, dict[str, Any]] = {}
    for number in range(newest + 1):
        for line in (case.table / f"_delta_log/{number:020d}.json").read_text().splitlines():
            action = json.loads(line)
            for kind in ("protocol", "metaData", "txn", "add"):
                if kind in action:
                    one = action[kind]
                    state[f"{kind}{one.get('path', one.get('appId', ''))}"] = action
    state = {key: one for key, one in state.items() if path.name not in key}
    lines = "".join(json.dumps(one) + "\n" for one in state.values())
    (case.table / f"_delta_log/{0:020d}.{newest:020d}.compacted.json").write_text(lines)
    assert plan_pipeline(case.made.project, "orders")["errors"] == []


def test_a_file_that_is_gone_before_the_pipeline_has_read_it_is_named(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write(LATER, "b.json")
    (case.made.inbox / "b.json").unlink()
    [_, lost] = case.repair(dry_run=True)["next_run"]
    assert lost.startswith("does not find 1 file that the old job has read and the pipeline has not")
    assert "data/inbox/b.json; their rows are only in what is backed up" in lost
    (case.made.inbox / "a.json").unlink()  # this one was taken over
    assert case.repair(dry_run=True)["next_run"][1] == lost


@pytest.mark.parametrize("delta", [False, True])
def test_a_repair_that_is_killed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delta: bool) -> None:
    def make(name: str) -> Case:
        case = Case(tmp_path / name, delta=delta)
        case.write(LATER, "b.json")
        return case

    whole = make("whole")
    with monkeypatch.context() as patch:
        calls = StorageCalls(patch, -1, kill)
        whole.repair()
    assert calls.count > 5
    for at in range(1, calls.count + 1, 1 if not delta else 3):
        case = make(str(at))
        with monkeypatch.context() as patch:
            StorageCalls(patch, at, kill)
            with pytest.raises(KilledHere):
                case.repair()
        shutil.rmtree(case.made.state / "lease", ignore_errors=True)
        case.repair()
        case.is_settled()


def test_the_dry_run_says_that_the_old_job_has_to_be_paused(tmp_path: Path) -> None:
    case = Case(tmp_path)
    shutil.rmtree(case.made.state)
    shutil.rmtree(case.table / "_delta_log")
    look = preview_adoption(case.made.project, "orders", case.table, case.job.checkpoint, retire_old=True)
    assert look["notes"][0].startswith("pause the old job first")
    assert look["actions"][0].startswith("retire the checkpoint: ")
    assert not is_retired(case.job.checkpoint)


def test_a_retired_checkpoint_can_still_be_taken_over_and_given_back(tmp_path: Path) -> None:
    case = Case(tmp_path)
    metadata = case.job.checkpoint / "metadata"
    original = metadata.read_bytes()
    (case.job.checkpoint / ".metadata.crc").write_bytes(b"crc")
    report = case.adopt("adopt-2", retire_old=True)  # also afterwards
    assert report["outcome"] == "nothing_new"
    assert "the old checkpoint is retired" in report["notes"][0]
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(metadata.read_text())
    assert (case.job.checkpoint / RETIRED).read_bytes() == original
    assert not (case.job.checkpoint / ".metadata.crc").exists()
    said = metadata.read_text()
    case.adopt("adopt-3", retire_old=True)
    assert metadata.read_text() == said
    shutil.rmtree(case.made.state)
    shutil.rmtree(case.table / "_delta_log")
    assert case.adopt("adopt-4")["rows"]["published"] == 2  # as if it were not retired
    os.replace(case.job.checkpoint / RETIRED, metadata)
    assert not is_retired(case.job.checkpoint)
    case.adopt("adopt-5", retire_old=True)
    assert is_retired(case.job.checkpoint)


def test_retiring_is_killed_anywhere_and_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str) -> Case:
        case = Case(tmp_path / name)
        shutil.rmtree(case.made.state)
        shutil.rmtree(case.table / "_delta_log")
        return case

    whole = make("whole")
    with monkeypatch.context() as patch:
        calls = StorageCalls(patch, -1, kill)
        whole.adopt(retire_old=True)
    for at in range(1, calls.count + 1):
        case = make(str(at))
        query = (case.job.checkpoint / "metadata").read_bytes()
        with monkeypatch.context() as patch:
            StorageCalls(patch, at, kill)
            with pytest.raises(KilledHere):
                case.adopt(retire_old=True)
        shutil.rmtree(case.made.state / "lease", ignore_errors=True)
        assert (case.job.checkpoint / "metadata").exists()  # without it a new query would begin
        case.adopt("adopt-2", retire_old=True)
        assert is_retired(case.job.checkpoint)
        assert (case.job.checkpoint / RETIRED).read_bytes() == query
        assert case.ids() == [1, 2]
        assert plan_pipeline(case.made.project, "orders")["errors"] == []


def test_there_is_nothing_to_retire(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with pytest.raises(TidegateError) as refused:
        adopt_table(case.made.project, "orders", "adopt-2", case.table, None, retire_old=True)
    assert (refused.value.code, refused.value.exit_code) == ("ADOPT_NOTHING_TO_RETIRE", 64)
    other = PlainJob(case.made.inbox, tmp_path / "elsewhere", tmp_path / "other")
    other.run(other.offer("z.json", FIRST))
    with pytest.raises(TidegateError) as refused:
        adopt_table(case.made.project, "orders", "adopt-2", case.table, other.checkpoint, retire_old=True)
    assert (refused.value.code, refused.value.exit_code) == ("ADOPT_NOTHING_TO_RETIRE", 64)
    assert not is_retired(other.checkpoint)
    assert isinstance(refused.value, TidegateError) and not isinstance(refused.value, DisagreementError)
    assert case.ids(read_with_deltalake) == [1, 2]
