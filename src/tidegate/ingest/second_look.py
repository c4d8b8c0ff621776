"""A second look at one micro-batch: when more records were quarantined than the metrics carry, read them again in batch
mode.

The rows that go on were written already; only what was quarantined is taken from this pass, and its count must match
the first pass, so a difference between the two fails the batch instead of losing a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.audit.row_rules import RowRule
from tidegate.driver.order import IngestOrder
from tidegate.ingest import plan
from tidegate.ingest.positions import file_position
from tidegate.paths import PipelinePaths
from tidegate.spec.models import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SET_ASIDE = ("source", "_position", "_raw", "reason", "detail")


def malformed_records(parsed: Mapping[str, DataFrame]) -> DataFrame:
    """The malformed records of a batch's ``parsed`` sources."""
    found = [
        frame.where(F.col("_malformed")).select(
            F.lit(name).alias("source"),
            F.col("_position"),
            F.col("_raw"),
            F.lit("malformed").alias("reason"),
            F.col("_detail").alias("detail"),
        )
        for name, frame in parsed.items()
    ]
    return reduce(lambda one, two: one.unionByName(two), found)


def flagged_rows(
    spark: SparkSession,
    spec: PipelineSpec,
    paths: PipelinePaths,
    run_id: str,
    rules: Sequence[RowRule],
    parsed: Mapping[str, DataFrame],
    statics: Mapping[str, DataFrame],
    within: plan.Within | None = None,
) -> DataFrame:
    """The rows of a batch with what the rules say of each, by running the transform again: for queries without state
    alone. As in the stream, the transform gets no record before it is known to be a good one."""
    good = {
        name: plan.observe_entered(plan.good_records(frame, name, with_provenance=True), name)
        for name, frame in parsed.items()
    }
    good |= {name: plan.good_records(frame, name, with_provenance=False) for name, frame in statics.items()}
    return plan.flag_rules(plan.transformed_rows(spark, spec, Path(paths.job), good, run_id), rules, within)


def broken_rows(flagged: DataFrame, rules: Sequence[RowRule]) -> DataFrame:
    """The rejected rows among ``flagged``."""
    return plan.rejected_rows(flagged, rules).select(
        "source",
        "_position",
        "_raw",
        F.col("rules")[0].alias("reason"),
        F.concat(F.lit("breaks "), F.array_join("rules", ", ")).alias("detail"),
    )


def late_rows(late: DataFrame, detail: str) -> DataFrame:
    """Late records (source, position, raw) as the other records of this module."""
    return late.select(
        "source",
        F.col("position").alias("_position"),
        F.col("raw").alias("_raw"),
        F.lit("late").alias("reason"),
        F.lit(detail).alias("detail"),
    )


def write_set_aside(spark: SparkSession, pipeline: str, order: IngestOrder, records: DataFrame, folder: Path) -> None:
    """Write records of this module as rows of the quarantine table into the new ``folder``."""
    assert tuple(records.columns) == _SET_ASIDE
    _as_quarantine(records, pipeline, order.run_id, _positions(spark, order)).write.mode("error").parquet(str(folder))


def _positions(spark: SparkSession, order: IngestOrder) -> DataFrame:
    rows = [
        (link.rsplit("/", 1)[-1], file_position(str(entry["path"])))
        for links in order.links.values()
        for link, entry in links.items()
    ]
    return spark.createDataFrame(rows or [("", "")], "_name STRING, _file STRING")


def link_name() -> Column:
    """Of the position of a record of a file: the last part of its link's name, which is unique."""
    return F.element_at(F.split(F.substring_index("_position", "#", 1), "/"), -1)


def _as_quarantine(frame: DataFrame, pipeline: str, run_id: str, positions: DataFrame) -> DataFrame:
    named = frame.withColumn("_name", link_name())
    located = named.join(F.broadcast(positions), "_name", "left")
    return located.select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(run_id).alias("run_id"),
        "source",
        F.coalesce("_file", "_position").alias("position"),
        F.col("_raw").alias("raw"),
        "reason",
        "detail",
        F.current_timestamp().alias("quarantined_at"),
    )
