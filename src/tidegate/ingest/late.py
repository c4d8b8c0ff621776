"""Telling late records apart: those that Spark dropped because everything they belong to is closed.

Spark counts what it drops as state updates and keeps nothing of it. When a batch dropped something, the batch is read
once more, in batch mode, up to the first operator that keeps state: a record whose every row there has an event time
(or the end of its window) not after the watermark was dropped whole. It goes to quarantine as ``late``. A record that
also has a row in a window that was still open is in the table with that one, and only counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidegate.ingest.plan import PROVENANCE
from tidegate.transform.carry import find_attribute, put_back
from tidegate.transform.operations import is_stateful
from tidegate.transform.plans import (
    analysed_plan,
    frame_of,
    items,
    path_to,
    rebuild,
    stateful_event_times,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW_MARK = "\x00"
_EVENT_TIME = "_tidegate_event_time"
CAPTURED_AT_MOST = 4096


@dataclass(frozen=True)
class LateRecords:
    """``whole`` are the late records of one source as (source, position, raw); ``partly`` counts those that are in the
    table with some of their windows and not with others. None where the transform does not let them be told apart."""

    whole: DataFrame | None
    partly: int = 0


def find_late(
    out: DataFrame, good: Mapping[str, DataFrame], batch: Mapping[str, DataFrame], source: str, late_before_ms: int
) -> LateRecords:
    """The records of ``source`` that were dropped by the watermark ``late_before_ms``.

    ``out`` is the streaming query and ``good`` its sources' records; ``batch`` are the same records of one micro-batch,
    read in batch mode, with the same columns.
    """
    session = out.sparkSession
    path = path_to(analysed_plan(out), f"time:{source}")
    stateful = [number for number, node in enumerate(path) if is_stateful(node)]
    if not stateful:
        return LateRecords(None)
    operator, below = path[stateful[-1]], path[stateful[-1] + 1]
    event_times = stateful_event_times(operator, below)
    if not event_times:
        return LateRecords(None)
    with_origin = put_back(session, below, find_attribute(good[source], PROVENANCE))
    if with_origin is None:
        return LateRecords(None)
    exchanged = []
    for name, frame in batch.items():
        part = path_to(with_origin, f"time:{name}") or path_to(with_origin, f"source:{name}")
        if part:
            top = part[-1]
            exchanged.append((top, _under_the_names_of(items(top.output()), _with_row_marks(frame), session)))
    rows = frame_of(rebuild(with_origin, exchanged, session), session)
    # The columns are addressed by their place: two may have one name.
    columns = items(with_origin.output())
    names = [f"c{number}" for number in range(len(columns))]
    rows = rows.toDF(*names)
    place = {attribute.exprId().toString(): name for attribute, name in zip(columns, names, strict=True)}
    mark = F.col(place[event_times[0].exprId().toString()])
    origin = F.col(place[find_attribute(good[source], PROVENANCE).exprId().toString()])
    ends = mark["end"] if event_times[0].dataType().typeName() == "struct" else mark
    closed = F.coalesce(F.unix_micros(ends) <= F.lit(late_before_ms * 1000), F.lit(False))
    told = (
        rows.select(origin.alias("origin"), closed.alias("closed"))
        .groupBy("origin")
        .agg(F.min("closed").alias("whole"), F.max("closed").alias("any"))
        .where("any")
        .select(
            "whole",
            F.col("origin.source").alias("source"),
            F.substring_index("origin.position", _ROW_MARK, 1).alias("position"),
            F.col("origin.raw").alias("raw"),
        )
        .cache()
    )
    partly = told.where("NOT whole").count()
    return LateRecords(told.where("whole").drop("whole"), partly)


def _with_row_marks(frame: DataFrame) -> DataFrame:
    """Each record with a mark of its own behind its position: two equal lines of a file are two records."""
    if PROVENANCE not in frame.columns:
        return frame
    marked = F.concat_ws(_ROW_MARK, f"{PROVENANCE}.position", F.monotonically_increasing_id().cast("string"))
    return frame.withColumn(PROVENANCE, F.col(PROVENANCE).withField("position", marked))


def _under_the_names_of(attributes: list[Any], frame: DataFrame, session: SparkSession) -> Any:
    """The plan of ``frame`` whose columns go by the identities of ``attributes``, in order."""
    jvm: Any = session._jvm
    plan = analysed_plan(frame)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    empty = jvm.PythonUtils.toSeq([])
    nothing = jvm.scala.Option.empty()
    aliases = [
        expressions.Alias(column, attribute.name(), attribute.exprId(), empty, nothing, empty)
        for column, attribute in zip(items(plan.output()), attributes, strict=True)
    ]
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(aliases), plan)


def describe_watermark(late_before_ms: int) -> str:
    """The ``detail`` of a late record."""
    when = datetime.fromtimestamp(late_before_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"the watermark had passed everything it belongs to: it stood at {when}"
