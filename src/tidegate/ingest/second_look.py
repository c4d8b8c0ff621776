"""A second look at one micro-batch: when more records were set aside than the metrics carry, read them again in batch
mode.

The rows that go on were written already; only what was set aside is taken from this pass, and its count must match the
first pass, so a difference between the two fails the batch instead of losing a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidegate.audit.row_rules import RowRule
from tidegate.ingest import plan
from tidegate.ingest.capture import file_position
from tidegate.ingest.order import IngestOrder
from tidegate.project import PipelinePaths
from tidegate.spec.models import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def set_aside_records(
    spark: SparkSession,
    spec: PipelineSpec,
    paths: PipelinePaths,
    order: IngestOrder,
    rules: Sequence[RowRule],
    read_ranges: Callable[[str, dict[str, Any]], DataFrame],
    ranges: dict[str, dict[str, Any]],
) -> tuple[DataFrame, DataFrame]:
    """The malformed and the rejected records of ``ranges``, both as rows of the quarantine table."""
    frames = {name: read_ranges(name, taken) for name, taken in ranges.items()}
    malformed: DataFrame | None = None
    for name, frame in frames.items():
        bad = frame.where(F.col("_malformed")).select(
            F.lit(name).alias("source"),
            F.col("_position"),
            F.col("_raw"),
            F.lit("malformed").alias("reason"),
            F.col("_detail").alias("detail"),
        )
        malformed = bad if malformed is None else malformed.unionByName(bad)
    assert malformed is not None
    good = {name: plan.good_records(frame, name, with_provenance=bool(rules)) for name, frame in frames.items()}
    flagged = plan.flag_rules(plan.transformed_rows(spark, spec, Path(paths.job), good, order.run_id), rules)
    broken = plan.rejected_rows(flagged, rules).select(
        "source",
        "_position",
        "_raw",
        F.col("rules")[0].alias("reason"),
        F.concat(F.lit("breaks "), F.array_join("rules", ", ")).alias("detail"),
    )
    positions = _positions(spark, order)
    return tuple(_as_quarantine(part, spec.name, order.run_id, positions) for part in (malformed, broken))


def _positions(spark: SparkSession, order: IngestOrder) -> DataFrame:
    rows = [
        (link.rsplit("/", 1)[-1], file_position(str(entry["path"])))
        for links in order.links.values()
        for link, entry in links.items()
    ]
    return spark.createDataFrame(rows or [("", "")], "_name STRING, _file STRING")


def _as_quarantine(frame: DataFrame, pipeline: str, run_id: str, positions: DataFrame) -> DataFrame:
    named = frame.withColumn("_name", F.element_at(F.split("_position", "/"), -1))
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
