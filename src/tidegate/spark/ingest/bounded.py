"""Exclude records that are in quarantine from the input of a side job.

A record that is in quarantine stays there until it is replayed; read again it would be in two places. It is known by
its position and its text, as in :mod:`tidegate.spark.ingest.row_failures`: equal records of one file are one.
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
    """Exclude the records of source ``name`` that stay in quarantine; the metric :func:`excluded_metric` counts the
    excluded records."""
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
    counted = marked.observe(excluded_metric(name), F.count(F.when(F.col(_STAYS), 1)).alias("left_out"))
    return counted.where(F.col(_STAYS).isNull()).select(*(F.col(quote_column(one)) for one in frame.columns))


def excluded_metric(name: str) -> str:
    """The metric that counts the records of source ``name`` that stay in quarantine."""
    return f"left_out:{name}"
