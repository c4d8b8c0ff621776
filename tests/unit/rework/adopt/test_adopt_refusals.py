"""What cannot be adopted: a clear error, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.plain_jobs import PlainJob, write_parquet
from tests.support.project import PipelineProject
from tests.support.readers import read_agreed
from tidegate.core.errors import TidegateError
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.sources.files.ledger import open_ledger
from tidegate.views.outlook import plan_pipeline

SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, day DATE"}
table: {path: lake/orders, partition_by: [day]}
"""
ROWS = [{"id": 1, "day": "2026-01-01"}, {"id": 2, "day": "2026-01-02"}]


class Case:
    """A project and the table of a plain job; a test spoils one thing."""

    def __init__(self, root: Path) -> None:
        self.made = PipelineProject(root / "project")
        self.made.create()
        self.spec(SPEC)
        self.table = root / "project/lake/orders"
        self.job = PlainJob(self.made.inbox, self.table, root / "old/checkpoint", partition_by=["day"])
        self.job.run(self.job.offer("a.json", ROWS))

    def spec(self, text: str) -> None:
        self.made.write("jobs/orders/pipeline.yaml", text)

    def files(self) -> list[Path]:
        return sorted(self.table.rglob("*.parquet"))

    def list_all(self) -> None:
        """All files of the table are in the sink's list."""
        self.job.list_files(0, self.files())

    def refused(self, *, checkpoint: bool = True, table: Path | None = None) -> TidegateError:
        """The error of a dry run and of the command, which is one and changes nothing but the report and the lease."""
        given = table or self.table, self.job.checkpoint if checkpoint else None
        before = self._state()
        with pytest.raises(TidegateError) as looked:
            preview_adoption(self.made.project, "orders", *given)
        with pytest.raises(TidegateError) as refused:
            adopt_table(self.made.project, "orders", "adopt-1", *given)
        assert str(refused.value) == str(looked.value)
        assert self._state() == before
        return refused.value

    def _state(self) -> dict[str, bytes]:
        state = self.made.state
        return {
            str(path): path.read_bytes()
            for path in self.made.root.parent.rglob("*")
            if path.is_file()
            and not (path.is_relative_to(state) and path.relative_to(state).parts[0] in ("runs", "lease"))
        }


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_table_that_the_spec_does_not_name(case: Case) -> None:
    other = case.made.root / "lake/others"
    shutil.copytree(case.table, other)
    error = case.refused(table=other)
    assert (error.code, error.exit_code) == ("ADOPT_TABLE_NOT_NAMED", 64)
    assert '`table: {path: "lake/others"}`' in str(error.fix)
    outside = case.refused(table=case.made.root.parent / "old")
    assert outside.code == "ADOPT_TABLE_NOT_NAMED"
    assert f'path: "{case.made.root.parent}/old"' in str(outside.fix)


def test_the_place_in_the_warehouse_needs_no_line(case: Case) -> None:
    case.spec(SPEC.replace("path: lake/orders, ", ""))
    shutil.move(case.table, case.made.table)
    shutil.rmtree(case.made.table / "_spark_metadata")
    case.job.table = case.made.table
    adopt_table(case.made.project, "orders", "adopt-1", case.made.table, case.job.checkpoint)
    assert len(read_agreed(case.made.table)) == 2


@pytest.mark.parametrize("spoil", ["gone", "empty", "a file", "no parquet"])
def test_a_place_that_is_no_table(case: Case, spoil: str) -> None:
    shutil.rmtree(case.table)
    if spoil == "a file":
        case.table.write_text("x")
    elif spoil != "gone":
        case.table.mkdir()
    if spoil == "no parquet":
        (case.table / "_SUCCESS").touch()
    error = case.refused(checkpoint=False)
    assert (error.code, error.exit_code) == ("ADOPT_NOT_A_TABLE", 64)


def test_a_pipeline_that_has_read_something(case: Case) -> None:
    paths = case.made.project.paths("orders")
    with open_ledger(paths, create=True) as ledger:
        ledger.hand_over("orders", "all", [], query_id="q")
        ledger.mark_staged("orders", "q", 0, [{"path": "x", "size": 1, "mtime_ns": 1, "link": "l"}])
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_NOT_NEW", 64)
    assert "files were taken" in error.message


def test_a_table_that_is_replaced_by_each_run(case: Case) -> None:
    case.spec(SPEC + "output_mode: complete\n")
    assert case.refused().code == "ADOPT_COMPLETE"


def test_without_a_checkpoint_the_spec_has_to_say_where_the_source_starts(case: Case) -> None:
    error = case.refused(checkpoint=False)
    assert (error.code, error.exit_code) == ("ADOPT_NO_START", 64)
    assert "sources.orders.start" in str(error.fix)


@pytest.mark.parametrize(
    ("start", "waiting"), [("now", []), ("all", ["a.json", "later.json"]), ("2020-01-01T00:00:00Z", 2)]
)
def test_without_a_checkpoint_the_source_is_looked_at_once(case: Case, start: str, waiting: Any) -> None:
    case.spec(SPEC.replace("format: json", f'format: json, start: "{start}"'))
    case.job.offer("later.json", ROWS)
    number = waiting if isinstance(waiting, int) else len(waiting)
    told = preview_adoption(case.made.project, "orders", case.table, None)
    assert told["sources"]["orders"]["files_waiting"] == number
    assert f"source orders starts at {start}, as the spec says" in " ".join(told["notes"])
    adopt_table(case.made.project, "orders", "adopt-1", case.table, None)
    case.job.offer("after.json", ROWS)
    assert plan_pipeline(case.made.project, "orders")["sources"]["orders"]["files"] == number + 1


def _other_type(case: Case) -> None:
    write_parquet(case.table / "day=2026-01-03/part-9.parquet", [{"id": "x"}], {"id": "string"})


def _other_spelling(case: Case) -> None:
    write_parquet(case.table / "day=2026-01-03/part-9.parquet", [{"ID": 1}], {"ID": "long"})


def _torn(case: Case) -> None:
    (case.table / "day=2026-01-03").mkdir()
    (case.table / "day=2026-01-03/part-9.parquet").write_bytes(b"PAR1")


def _other_depth(case: Case) -> None:
    write_parquet(case.table / "day=2026-01-03/hour=1/part-9.parquet", [{"id": 1}], {"id": "long"})


def _without_folder(case: Case) -> None:
    write_parquet(case.table / "part-9.parquet", [{"id": 1}], {"id": "long"})


def _no_date(case: Case) -> None:
    write_parquet(case.table / "day=yesterday/part-9.parquet", [{"id": 1}], {"id": "long"})


def _in_file_and_folder(case: Case) -> None:
    write_parquet(case.table / "day=2026-01-03/part-9.parquet", [{"id": 1}], {"id": "long", "day": "string"})


def _nanoseconds(case: Case) -> None:
    (case.table / "day=2026-01-03").mkdir()
    table = pa.table({"id": pa.array([1], pa.timestamp("ns", "UTC"))})
    pq.write_table(table, case.table / "day=2026-01-03/part-9.parquet", version="2.6")


def _no_zone(case: Case) -> None:
    (case.table / "day=2026-01-03").mkdir()
    table = pa.table({"id": pa.array([1], pa.timestamp("us"))})
    pq.write_table(table, case.table / "day=2026-01-03/part-9.parquet")


def _unsigned(case: Case) -> None:
    (case.table / "day=2026-01-03").mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.uint64())}), case.table / "day=2026-01-03/part-9.parquet")


def _spaces(case: Case) -> None:
    write_parquet(case.table / "day=2026-01-03/part-9.parquet", [{"an id": 1}], {"an id": "long"})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_other_type, "column 'id' is STRING in day=2026-01-03/part-9.parquet, and BIGINT in 2 others"),
        (_other_spelling, "a column is spelt 'id' and 'ID'"),
        (_torn, "day=2026-01-03/part-9.parquet: it is not a complete parquet file"),
        (_other_depth, "folder day=2026-01-03/hour=1 has files; the folders should be day=..."),
        (_without_folder, "folder (the table itself) has files; the folders should be day=..."),
        (_no_date, "folder day=yesterday: day is DATE in the spec"),
        (_in_file_and_folder, "column 'day' is in the files and in the names of their folders"),
        (_nanoseconds, "column 'id' is a time stamp that is in nanoseconds"),
        (_no_zone, "column 'id' is a time stamp that has no time zone"),
        (_unsigned, "column 'id' is uint64"),
        (_spaces, "part-9.parquet: "),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_files_that_do_not_fit(case: Case, spoil: Callable[[Case], None], said: str) -> None:
    spoil(case)
    case.list_all()
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_FILES_DO_NOT_FIT", 78)
    assert said in error.message


def test_a_file_that_readers_would_fail_on(case: Case) -> None:
    (case.table / "day=2026-01-01/README.txt").write_text("x")
    error = case.refused()
    assert error.code == "ADOPT_FILES_DO_NOT_FIT"
    assert "day=2026-01-01/README.txt: it is not a .parquet file" in error.message


def test_columns_that_the_spec_has_in_another_type_or_not_at_all(case: Case) -> None:
    case.spec(SPEC.replace("id BIGINT", "id STRING"))
    assert "column 'id' is BIGINT in the table and STRING in the spec" in case.refused().message
    case.spec(SPEC.replace("id BIGINT", "it BIGINT"))
    assert "column 'id' of the table is not in the spec" in case.refused().message


def test_a_table_that_is_partitioned_otherwise(case: Case) -> None:
    case.spec(SPEC.replace(", partition_by: [day]", ""))
    assert "has files; the folders should be none: the spec has no partition_by" in case.refused().message


def test_a_list_of_committed_files_that_is_torn_or_of_another_place(case: Case) -> None:
    log = case.table / "_spark_metadata/0"
    kept = log.read_text()
    log.write_text("v1\n{")
    assert case.refused().code == "ADOPT_SINK_LOG"
    log.write_text("v2\n{}")
    assert "which is not v1" in case.refused().message
    log.write_text(kept.replace(str(case.table), "/elsewhere/orders"))
    assert "not in this folder: the table was moved or copied" in case.refused().message
    log.write_text(kept.replace("file://", "s3a://bucket"))
    assert "on no local file system" in case.refused().message
    log.write_text(kept)
    (log.parent / "2").write_text(kept)
    assert "_spark_metadata/1 is missing" in case.refused().message


def test_a_committed_file_that_is_gone(case: Case) -> None:
    case.files()[0].unlink()
    assert "_spark_metadata lists it, and it is not there" in case.refused().message


def test_a_checkpoint_that_is_none_or_torn(case: Case) -> None:
    folder = case.job.checkpoint
    (folder / "sources/0/0").write_text("v1\n{")
    assert "sources/0/0 cannot be read" in case.refused().message
    (folder / "sources/0/0").unlink()
    assert "sources/0/0 is missing" in case.refused().message
    (folder / "offsets/0").write_text("v9\n{}\n")
    assert "offsets/0 cannot be read" in case.refused().message
    (folder / "offsets/0").write_text('v1\n{}\n{"position": 7}')
    assert "neither of files nor of Kafka topics" in case.refused().message
    (folder / "offsets/3").write_text("v1\n{}\n-")
    assert "its offsets reach batch 3, its commits 0" in case.refused().message
    (folder / "commits/0").unlink()
    assert "no batch of it was ever finished" in case.refused().message
    (folder / "metadata").write_text("{")
    assert "`metadata` cannot be read" in case.refused().message
    shutil.rmtree(folder)
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_CHECKPOINT", 78)
    assert "it is not a checkpoint of a Spark query" in error.message


def test_a_checkpoint_of_another_job(case: Case) -> None:
    case.job.list_files(7, case.files(), compact=True)
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_CHECKPOINT", 78)
    assert "the table holds batches up to 7, and it has finished 0 and planned 0" in error.message


def test_a_checkpoint_that_is_older_than_the_table_is_refused_and_one_with_empty_batches_is_not(case: Case) -> None:
    folder = case.job.checkpoint
    for name in ("offsets", "commits"):
        shutil.copy(folder / name / "0", folder / name / "1")  # a batch without data, which the sink did not see
    told = preview_adoption(case.made.project, "orders", case.table, folder)
    assert told["batch"] == 1


def test_a_checkpoint_of_other_sources(case: Case) -> None:
    case.spec(SPEC.replace("data/inbox", "data/elsewhere"))
    (case.made.root / "data/elsewhere").mkdir()
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_SOURCES", 78)
    assert "source 0: files such as" in error.message
    assert "orders: data/elsewhere" in error.message


def test_a_source_more_than_the_old_job_had(case: Case) -> None:
    more = '  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, day DATE"}\n'
    case.made.write("jobs/orders/transform.sql", "SELECT * FROM orders UNION ALL SELECT * FROM again")
    case.spec(
        SPEC.replace(more, more + more.replace("orders:", "again:").replace("inbox", "again"))
        + "transform: transform.sql\n"
    )
    (case.made.root / "data/again").mkdir()
    assert case.refused().code == "ADOPT_SOURCES"


def test_a_batch_of_which_nobody_knows_whether_it_was_written(case: Case) -> None:
    shutil.rmtree(case.table / "_spark_metadata")
    case.job.run(case.job.offer("b.json", ROWS), stop="planned")
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_BATCH_UNKNOWN", 78)
    assert "within batch 1 (the last one that it finished is 0)" in error.message


def test_a_query_that_keeps_state(case: Case) -> None:
    (case.job.checkpoint / "state/0/0").mkdir(parents=True)
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPT_STATE", 78)


def test_another_adoption_than_the_one_that_was_begun(case: Case) -> None:
    paths = case.made.project.paths("orders")
    paths.state.mkdir(parents=True)
    begun = {"table": str(case.table), "checkpoint": "/old/one", "run_id": "r", "at": "then", "notes": []}
    paths.adoption.write_text(json.dumps(begun))
    error = case.refused()
    assert (error.code, error.exit_code) == ("ADOPTION_UNFINISHED", 78)
    assert str(error.fix).startswith(f"tidegate adopt orders --table {case.table} --checkpoint /old/one")


def test_what_the_old_job_read_and_what_became_of_it(case: Case) -> None:
    case.job.run(case.job.offer("b.json", ROWS))
    case.job.run(case.job.offer("c.json", ROWS))
    (case.made.inbox / "b.json").unlink()
    changed = case.job.offer("c.json", [*ROWS, *ROWS])
    os.utime(changed, (5, 5))
    told = preview_adoption(case.made.project, "orders", case.table, case.job.checkpoint)
    assert told["sources"] == {"orders": {"files_taken": 3, "files_gone": 1, "files_waiting": 0}}
    notes = " ".join(told["notes"])
    assert "1 file (data/inbox/b.json) is gone since the old job read them" in notes
    assert "1 file (data/inbox/c.json) changed after the old job listed them" in notes
    adopt_table(case.made.project, "orders", "adopt-1", case.table, case.job.checkpoint)
    source = plan_pipeline(case.made.project, "orders")["sources"]["orders"]
    assert (source["files"], source.get("vanished"), source.get("changed")) == (0, None, None)


def test_a_folder_that_the_old_job_knew_by_another_name(case: Case, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(case.made.inbox)
    case.job.inbox = link
    case.job.run(case.job.offer("b.json", ROWS))
    told = preview_adoption(case.made.project, "orders", case.table, case.job.checkpoint)
    assert told["sources"] == {"orders": {"files_taken": 2, "files_gone": 0, "files_waiting": 0}}
    adopt_table(case.made.project, "orders", "adopt-1", case.table, case.job.checkpoint)
    assert plan_pipeline(case.made.project, "orders")["sources"]["orders"]["files"] == 0


def test_hidden_litter_that_one_reader_sees_is_hidden_from_it_too(case: Case) -> None:
    left = case.table / "_temporary/0/part-0.parquet"
    write_parquet(left, [{"id": 99}], {"id": "long"})
    adopt_table(case.made.project, "orders", "adopt-1", case.table, case.job.checkpoint)
    assert sorted(row["id"] for row in read_agreed(case.table)) == [1, 2]


def test_a_column_that_came_later_is_null_before(case: Case) -> None:
    case.spec(SPEC.replace("id BIGINT", "id BIGINT, n INT"))
    write_parquet(case.table / "day=2026-01-03/part-9.parquet", [{"id": 3, "n": 1}], {"id": "long", "n": "integer"})
    case.list_all()
    told = preview_adoption(case.made.project, "orders", case.table, case.job.checkpoint)
    assert "column n is null in the rows of 2 of 3 files, which lack it" in told["notes"]
    adopt_table(case.made.project, "orders", "adopt-1", case.table, case.job.checkpoint)
    assert sorted((row["id"], row["n"]) for row in read_agreed(case.table)) == [(1, None), (2, None), (3, 1)]
