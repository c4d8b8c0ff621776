"""Each assumption about Spark's private API, alone: when a new version of Spark fails here, the name of the test says
which of them no longer holds, and ``src/tidegate/spark/catalyst`` is the one room that has to follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.spark.catalyst import plans
from tidegate.spark.catalyst.carry import PROVENANCE, carry_column
from tidegate.spark.catalyst.private_api import (
    ExecutorView,
    infer_json_columns,
    read_observed_metrics,
)
from tidegate.spark.catalyst.state import BatchState, read_batch_state


def test_observed_metrics_can_be_read_in_mid_batch(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\n")
    seen: list[dict[str, dict[str, Any]]] = []

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        seen.append(read_observed_metrics(spark.streams.active[0]))

    frame = spark.readStream.name("lines").text(str(tmp_path / "in")).observe("counts", F.count(F.lit(1)).alias("rows"))
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(60)
    assert seen == [{"counts": {"rows": 2}}]


def test_json_columns_are_inferred_from_texts(spark: SparkSession) -> None:
    texts = spark.createDataFrame([('{"a": 1, "b": "x"}',)], "value STRING")
    assert infer_json_columns(spark, texts, {}).simpleString() == "struct<a:bigint,b:string>"


def test_the_application_can_be_asked_for_its_executors(spark: SparkSession) -> None:
    view = ExecutorView(spark)
    assert (view.is_local, view.is_stopped, view.list_hosts()) == (True, False, [])
    assert view.master.startswith("local")
    assert isinstance(view.list_ids(), set)
    assert view.read_seconds("spark.network.timeout") == 300.0
    assert view.read_setting("spark.no.such.setting", "none") == "none"
    view.wait_for_events(10_000)


def test_an_analysed_plan_can_be_walked(spark: SparkSession) -> None:
    frame = spark.range(3).where("id > 0").groupBy("id").count()
    kinds = [plans.kind_of(node) for node in plans.walk(plans.analysed_plan(frame))]
    assert kinds == ["Aggregate", "Filter", "Range"]


def test_a_frame_can_be_made_of_a_plan(spark: SparkSession) -> None:
    frame = spark.range(3).where("id > 0")
    again = plans.frame_of(plans.analysed_plan(frame), spark)
    assert [row.id for row in again.collect()] == [1, 2]


def test_a_hidden_column_is_carried_through_a_select(spark: SparkSession) -> None:
    frame = spark.range(2).withColumn(PROVENANCE, F.struct(F.col("id").cast("string").alias("position")))
    carried = carry_column(frame.select((F.col("id") * 2).alias("double")), PROVENANCE)
    assert [(row.double, row[PROVENANCE].position) for row in carried.orderBy("double").collect()] == [
        (0, "0"),
        (2, "1"),
    ]


def test_the_state_of_a_batch_can_be_read_in_mid_batch(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\none\ntwo\n")
    seen: list[BatchState] = []

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        seen.append(read_batch_state(spark.streams.active[0]))

    frame = spark.readStream.name("lines").text(str(tmp_path / "in")).dropDuplicates(["value"])
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(60)
    assert [operator["numRowsTotal"] for operator in seen[0].operators] == [2]
    assert [(store.operator_id, store.version) for store in seen[0].stores] == [(0, 1)]
