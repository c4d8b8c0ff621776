"""A second look at one micro-batch: when more records were quarantined than the metrics carry, read them again in batch
mode.

The rows that pass were written already; only what was quarantined is taken from this pass, and its count must match
the first pass, so a difference between the two fails the batch instead of losing a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core.paths import PipelinePaths
from tidegate.quality.row_rules import RowRule
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.files.unreadable import describe_kept
from tidegate.spark.ingest import plan
from tidegate.spark.ingest.positions import PositionFinder, file_position
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


def write_set_aside(
    spark: SparkSession, pipeline: str, run_id: str, records: DataFrame, folder: Path, finder: PositionFinder
) -> None:
    """Write records of this module as rows of the quarantine table into the new ``folder``."""
    assert tuple(records.columns) == _SET_ASIDE
    _as_quarantine(records, pipeline, run_id, _list_places(spark, finder)).write.mode("error").parquet(str(folder))


def kept_files(spark: SparkSession, folder: Path) -> set[str]:
    """The names of files that the rows in ``folder`` say are kept, since quarantine has not all of a record."""
    kept = spark.read.parquet(str(folder)).where(F.col("detail").contains(describe_kept("")))
    names = kept.select(F.substring_index("detail", describe_kept(""), -1).alias("name")).distinct()
    return {row["name"] for row in names.collect()}


def _list_places(spark: SparkSession, finder: PositionFinder) -> DataFrame:
    rows = [(name, begin, file_position(file), before) for name, begin, file, before in finder.list_places()]
    return spark.createDataFrame(rows, "_name STRING, _begin BIGINT, _file STRING, _before BIGINT")


def link_name() -> Column:
    """Of the position of a record of a file: the last part of its link's name, which is unique."""
    return F.element_at(F.split(F.substring_index("_position", "#", 1), "/"), -1)


def _as_quarantine(frame: DataFrame, pipeline: str, run_id: str, places: DataFrame) -> DataFrame:
    # Behind the `#` are the first byte of the part, or `row`, and the number of the line in it, or of the row.
    place = F.split(F.substring_index("_position", "#", -1), r"\+")
    has_number = F.col("_position").rlike(r"#([0-9]+|row)\+[0-9]+$")
    is_row = has_number & (place[0] == "row")
    begin = F.when(has_number & ~is_row, place[0].cast("bigint")).otherwise(F.lit(0))
    number = F.when(has_number, place[1].cast("bigint"))
    named = frame.withColumns({"_name": link_name(), "_begin": begin, "_number": number, "_is_row": is_row})
    located = named.join(F.broadcast(places), ["_name", "_begin"], "left")
    opened = F.expr("left(_file, length(_file) - 1)")
    unit = F.when(F.col("_is_row"), F.lit(', "row": ')).otherwise(F.lit(', "line": '))
    before = F.when(F.col("_is_row"), F.lit(0)).otherwise(F.col("_before"))
    numbered = F.concat(opened, unit, F.col("_number") + before, F.lit("}"))
    is_cut = (F.col("reason") == "malformed") & F.col("_file").isNotNull() & F.col("detail").contains(TOO_LARGE)
    return located.select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(run_id).alias("run_id"),
        "source",
        F.coalesce(numbered, "_file", "_position").alias("position"),
        F.col("_raw").alias("raw"),
        "reason",
        F.when(is_cut, F.concat("detail", F.lit(describe_kept("")), "_name"))
        .otherwise(F.col("detail"))
        .alias("detail"),
        F.current_timestamp().alias("quarantined_at"),
    )
