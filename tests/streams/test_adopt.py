"""Real plain Spark jobs are taken over: their table and checkpoint as they left them, then three live runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import PipelineProject, in_session
from tests.support.readers import canonical, read_with_deltalake, read_with_duckdb, read_with_spark
from tidegate.core.errors import DisagreementError
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.rework.adopt.old_checkpoint import RETIRED
from tidegate.runs.restart.repair import repair_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id BIGINT, at TIMESTAMP, code STRING"
SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, at TIMESTAMP, code STRING"}
transform: transform.sql
table: {path: lake/orders, partition_by: [day]}
"""
SQL = "SELECT *, to_date(at) AS day FROM orders\n"
_PLAIN = {  # what a plain job has where nobody sets anything; the tests' session has tidegate's
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.parquet.outputTimestampType": "INT96",
}


class PlainSparkJob:
    """A folder of JSON files to a folder of parquet files, as in Spark's own guide."""

    def __init__(self, spark: SparkSession, made: PipelineProject, checkpoint: Path) -> None:
        self.spark, self.made, self.checkpoint = spark, made, checkpoint
        self.table = made.root / "lake/orders"
        self.offered: list[int] = []

    def offer(self, count: int, per_file: int = 3) -> None:
        self.made.inbox.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            ids = [len(self.offered) + n for n in range(per_file)]
            rows = [{"id": i, "at": f"2026-01-0{1 + i % 4}T0{i % 10}:00:00Z", "code": f"0{i}"} for i in ids]
            name = f"in {len(self.offered):04d}.json"
            (self.made.inbox / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.offered += ids

    def run(self, write: Callable[[Any], Any] | None = None, *, distinct: bool = False) -> None:
        before = {key: self.spark.conf.get(key) for key in _PLAIN}
        for key, value in _PLAIN.items():
            self.spark.conf.set(key, value)
        try:
            reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
            frame: DataFrame = reader.json(str(self.made.inbox)).selectExpr("*", "to_date(at) AS day")
            frame = frame.dropDuplicates(["id"]) if distinct else frame
            writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
            writer = write(writer) if write is not None else self.to_files(writer)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        finally:
            for key, value in before.items():
                self.spark.conf.set(key, value)

    def to_files(self, writer: Any) -> Any:
        return writer.format("parquet").partitionBy("day").option("path", str(self.table))


@pytest.fixture
def job(tmp_path: Path, spark: SparkSession) -> PlainSparkJob:
    made = PipelineProject(tmp_path / "project")
    made.create()
    made.write("jobs/orders/pipeline.yaml", SPEC)
    made.write("jobs/orders/transform.sql", SQL)
    return PlainSparkJob(spark, made, tmp_path / "old checkpoint")


def adopt(job: PlainSparkJob, run_id: str = "adopt-1") -> Any:
    return adopt_table(job.made.project, "orders", run_id, job.table, job.checkpoint)


def ids(job: PlainSparkJob) -> list[int]:
    """What every reader has of the table; DuckDB shows INT96 in UTC without a zone."""
    found = [read_with_deltalake(job.table), read_with_spark(job.spark, job.table), read_with_duckdb(job.table)]
    first, *others = [canonical([{**row, "at": _in_utc(row["at"])} for row in rows]) for rows in found]
    assert all(one == first for one in others)
    return sorted(row["id"] for row in found[0])


def _in_utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def test_three_runs_after_a_plain_job_with_a_file_sink(job: PlainSparkJob) -> None:
    for _ in range(6):  # past the compaction of both logs
        job.offer(2)
        job.run()
    assert (job.table / "_spark_metadata/9.compact").exists()
    job.offer(2)  # while nobody runs
    stray = next(job.table.rglob("*.parquet"))
    stray.with_name("part-00000-stray.snappy.parquet").write_bytes(stray.read_bytes())  # of a batch that was killed
    before = sorted(row["id"] for row in read_with_spark(job.spark, job.table))
    told = preview_adoption(job.made.project, "orders", job.table, job.checkpoint)
    assert (told["batch"], told["files"]) == (11, len(list(job.table.rglob("*.parquet"))) - 1)
    assert told["sources"] == {"orders": {"files_taken": 12, "files_gone": 0, "files_waiting": 2}}
    assert told["columns"] == {"id": "BIGINT", "at": "TIMESTAMP", "code": "STRING", "day": "DATE"}
    adopt(job)
    assert ids(job) == before == job.offered[:36]
    for _ in range(3):
        report = job.made.run(submit=in_session(job.spark))
        assert report["outcome"] == "published"
        assert ids(job) == job.offered
        job.offer(1)
    assert job.made.run(submit=in_session(job.spark))["outcome"] == "published"
    assert job.made.run(submit=in_session(job.spark))["outcome"] == "nothing_new"
    assert ids(job) == job.offered


def test_a_plain_job_that_was_stopped_behind_the_sinks_commit(job: PlainSparkJob) -> None:
    job.offer(3)
    job.run()
    os.remove(job.checkpoint / "commits/2")
    (job.checkpoint / "commits/.2.crc").unlink()
    adopt(job)
    assert job.made.run(submit=in_session(job.spark))["outcome"] == "nothing_new"
    assert ids(job) == job.offered


def test_a_plain_job_that_was_stopped_before_the_sinks_commit(job: PlainSparkJob) -> None:
    job.offer(3)
    job.run()
    os.remove(job.checkpoint / "commits/2")
    os.remove(job.table / "_spark_metadata/2")
    adopt(job)
    assert ids(job) == [one for one in job.offered if one in set(ids(job))] and len(ids(job)) == 6
    assert job.made.run(submit=in_session(job.spark))["rows"]["published"] == 3
    assert ids(job) == job.offered


def test_a_plain_job_that_writes_by_foreach_batch(job: PlainSparkJob) -> None:
    def append(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("append").partitionBy("day").parquet(str(job.table))

    job.offer(3)
    job.run(lambda writer: writer.foreachBatch(append))
    assert not (job.table / "_spark_metadata").exists()
    commit = job.checkpoint / "commits/2"
    kept = commit.read_bytes()
    commit.unlink()
    with pytest.raises(DisagreementError) as refused:
        adopt(job)
    assert refused.value.code == "ADOPT_BATCH_UNKNOWN"
    commit.write_bytes(kept)
    adopt(job, "adopt-2")
    assert ids(job) == job.offered
    job.offer(1)
    assert job.made.run(submit=in_session(job.spark))["rows"]["published"] == 3
    assert ids(job) == job.offered


def test_a_query_with_state_is_refused(job: PlainSparkJob) -> None:
    job.offer(2)
    job.run(distinct=True)
    with pytest.raises(DisagreementError) as refused:
        adopt(job)
    assert refused.value.code == "ADOPT_STATE"
    assert not (job.table / "_delta_log").exists()


def test_rows_of_another_type_are_refused_by_the_first_run_before_it_writes(job: PlainSparkJob) -> None:
    job.offer(2)
    job.run()
    job.made.write(
        "jobs/orders/transform.sql", "SELECT id, at, CAST(code AS INT) AS code, to_date(at) AS day FROM orders\n"
    )
    adopt(job)
    job.offer(1)
    with pytest.raises(Exception, match="SCHEMA_CHANGE"):
        job.made.run(submit=in_session(job.spark))
    assert ids(job) == job.offered[:6]
    job.made.write("jobs/orders/transform.sql", SQL)
    assert job.made.run(submit=in_session(job.spark))["rows"]["published"] == 3
    assert ids(job) == job.offered


def test_the_old_job_once_more_is_noticed_and_taken_out(job: PlainSparkJob) -> None:
    job.offer(2)
    job.run()
    adopt(job)
    job.offer(1)
    assert job.made.run(submit=in_session(job.spark))["outcome"] == "published"
    job.offer(1)
    job.run()  # reads both again, and plain Spark then reads what it lists
    assert (job.table / "_spark_metadata").is_dir()
    assert sorted(row["id"] for row in read_with_duckdb(job.table)) == sorted([*job.offered, *job.offered[6:9]])
    with pytest.raises(DisagreementError) as refused:
        job.made.run(submit=in_session(job.spark))
    assert refused.value.code == "OLD_JOB_WROTE"
    told = repair_pipeline(job.made.project, "orders", dry_run=False)
    assert "with 6 rows" in told["actions"][1]
    assert ids(job) == job.offered[:9]
    assert job.made.run(submit=in_session(job.spark))["rows"]["published"] == 3
    assert ids(job) == job.offered


def test_a_retired_job_does_not_start(job: PlainSparkJob) -> None:
    job.offer(2)
    job.run()
    adopt_table(job.made.project, "orders", "adopt-1", job.table, job.checkpoint, retire_old=True)
    job.offer(1)
    with pytest.raises(Exception, match=r"metadata|JSON|Json|Unrecognized token"):
        job.run()
    assert not list(job.table.glob("_spark_metadata/*"))  # Spark makes the folder before it looks at the checkpoint
    repair_pipeline(job.made.project, "orders", dry_run=False)
    assert ids(job) == job.offered[:6]
    assert job.made.run(submit=in_session(job.spark))["rows"]["published"] == 3
    assert ids(job) == job.offered
    os.replace(job.checkpoint / RETIRED, job.checkpoint / "metadata")  # and back
    job.run()
    assert list(job.table.glob("_spark_metadata/*"))
