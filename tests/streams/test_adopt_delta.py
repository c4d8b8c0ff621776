"""A real Spark job with a Delta sink is taken over, and runs once more. It has a JVM of its own, with Delta's jars."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import PipelineProject, in_session
from tests.support.readers import read_agreed
from tidegate.core.errors import DisagreementError
from tidegate.rework.adopt.adoption import adopt_table
from tidegate.rework.adopt.old_checkpoint import RETIRED
from tidegate.runs.restart.repair import repair_pipeline
from tools.jars import GROUPS, ensure_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
jars, inbox, table, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    .config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "700m")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate()
)
stream = spark.readStream.schema("id BIGINT, day STRING").json(inbox).writeStream.format("delta").partitionBy("day")
stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
stream.start(table).awaitTermination()
"""
SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, schema: "id BIGINT, day STRING"}
table: {path: lake/orders, partition_by: [day]}
"""


class DeltaJob:
    """The old job, and the project of the pipeline that takes over."""

    def __init__(self, root: Path) -> None:
        ensure_jars(["delta-reader"])
        self.made = PipelineProject(root / "project")
        self.made.create()
        self.made.write("jobs/orders/pipeline.yaml", SPEC)
        self.table, self.checkpoint = root / "project/lake/orders", root / "old"
        (root / "job.py").write_text(JOB)
        self.script = root / "job.py"
        self.made.inbox.mkdir(parents=True, exist_ok=True)

    def offer(self, *ids: int) -> None:
        rows = "".join(json.dumps({"id": one, "day": f"d{one % 2}"}) + "\n" for one in ids)
        (self.made.inbox / f"{ids[0]}.json").write_text(rows)

    def run(self) -> subprocess.CompletedProcess[str]:
        jars = ",".join(str(path) for path in sorted(GROUPS["delta-reader"].folder.glob("*.jar")))
        given = [jars, str(self.made.inbox), str(self.table), str(self.checkpoint)]
        return subprocess.run([sys.executable, str(self.script), *given], capture_output=True, text=True, timeout=600)

    def ids(self, spark: SparkSession) -> list[int]:
        return sorted(row["id"] for row in read_agreed(self.table, spark))


@pytest.fixture
def job(tmp_path: Path) -> DeltaJob:
    return DeltaJob(tmp_path)


def test_the_old_delta_job_once_more(job: DeltaJob, spark: SparkSession) -> None:
    job.offer(1, 2)
    done = job.run()
    assert done.returncode == 0, done.stderr[-2000:]
    adopt_table(job.made.project, "orders", "adopt-1", job.table, job.checkpoint)
    job.offer(3, 4)
    assert job.made.run(submit=in_session(spark))["rows"]["published"] == 2
    job.offer(5)
    done = job.run()  # 3 and 4 again, and 5
    assert done.returncode == 0, done.stderr[-2000:]
    assert job.ids(spark) == [1, 2, 3, 3, 4, 4, 5]
    with pytest.raises(DisagreementError) as refused:
        job.made.run(submit=in_session(spark))
    assert refused.value.code == "OLD_JOB_WROTE"
    repair_pipeline(job.made.project, "orders", dry_run=False)
    assert job.ids(spark) == [1, 2, 3, 4]
    assert job.made.run(submit=in_session(spark))["rows"]["published"] == 1
    assert job.ids(spark) == [1, 2, 3, 4, 5]
    adopt_table(job.made.project, "orders", "adopt-2", job.table, job.checkpoint, retire_old=True)
    job.offer(6)
    done = job.run()
    assert done.returncode != 0
    assert "Unrecognized token" in done.stderr, done.stderr[-2000:]
    assert job.made.run(submit=in_session(spark))["rows"]["published"] == 1
    assert job.ids(spark) == [1, 2, 3, 4, 5, 6]
    os.replace(job.checkpoint / RETIRED, job.checkpoint / "metadata")
