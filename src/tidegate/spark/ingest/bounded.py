"""What a job beside the runs does not read of its sources: records that are in quarantine.

A record that is in quarantine stays there until it is replayed; read again it would be in two places. It is known by
its position and its text, as :mod:`tidegate.spark.ingest.row_failures` knows one: equal records of one file fare alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core.paths import PipelinePaths
from tidegate.spark.driver.order import Bounds
from tidegate.spark.ingest.second_look import link_name
from tidegate.spec.ddl import quote_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE, _DIGEST, _STAYS = "_tidegate_place", "_tidegate_digest", "_tidegate_stays"


def keep_within(spark: SparkSession, paths: PipelinePaths, name: str, frame: DataFrame, bounds: Bounds) -> DataFrame:
    """``frame`` of source ``name`` without what the job does not read; the metric :func:`left_out_metric` counts the
    records that stay in quarantine."""
    if not bounds.left_out:
        return frame
    listed = spark.read.schema("source STRING, position STRING, digest STRING").parquet(
        str(paths.state / bounds.left_out)
    )
    stays = listed.where(F.col("source") == name).select(
        F.col("position").alias(_PLACE), F.col("digest").alias(_DIGEST), F.lit(True).alias(_STAYS)
    )
    # A topic's record is known by its position; of a file the position is its link, whose last part is unique.
    is_topic = F.col("_position").startswith("{")
    place = F.when(is_topic, F.col("_position")).otherwise(link_name())
    digest = F.when(is_topic, F.lit("")).otherwise(F.sha2(F.coalesce("_raw", F.lit("")).cast("binary"), 256))
    known = frame.withColumns({_PLACE: place, _DIGEST: digest})
    marked = known.join(F.broadcast(stays.distinct()), [_PLACE, _DIGEST], "left")
    counted = marked.observe(left_out_metric(name), F.count(F.when(F.col(_STAYS), 1)).alias("left_out"))
    return counted.where(F.col(_STAYS).isNull()).select(*(F.col(quote_column(one)) for one in frame.columns))


def left_out_metric(name: str) -> str:
    """The metric with the count of records of source ``name`` that stay in quarantine."""
    return f"left_out:{name}"
