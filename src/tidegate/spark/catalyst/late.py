"""Find late records: those that Spark dropped because everything they belong to is closed.

Spark counts what it drops as state updates and keeps nothing of it. When a batch dropped something, the batch is read
again, in batch mode, up to the first operator that keeps state: a record whose every row there has an event time
(or the end of its window) not after the watermark was dropped whole. It goes to quarantine as ``late``. A record that
also has a row in a window that was still open is in the table with that one, and only counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.spark.catalyst.carry import PROVENANCE, put_back
from tidegate.spark.catalyst.operations import is_stateful
from tidegate.spark.catalyst.plans import (
    analysed_plan,
    frame_of,
    items,
    jvm_of,
    nodes_of,
    paths_to,
    rebuild,
    stateful_event_times,
)

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

_ROW_MARK = "\x00"


@dataclass(frozen=True)
class LateRecords:
    """``whole`` are the late records of one source as (source, position, raw), None when there can be none.

    ``partly`` counts those that are in the table with some of their windows and not with others. ``is_unknown``: the
    transform does not allow late records to be recognized.
    """

    whole: DataFrame | None = None
    partly: int = 0
    is_unknown: bool = False


def find_late(out: DataFrame, batch: Mapping[str, DataFrame], source: str, late_before_ms: int) -> LateRecords:
    """The records of ``source`` that were dropped by the watermark ``late_before_ms``.

    ``out`` is the streaming query; ``batch`` are its sources' records of one micro-batch, read in batch mode, with the
    same columns.
    """
    top = analysed_plan(out)
    paths = paths_to(top, f"time:{source}")
    met = [_operator_on(path) for path in paths]
    places = _distinct([place for place in met if place is not None])
    if not places:
        return LateRecords()
    with contextlib.ExitStack() as stack:
        marked = {}
        for name, frame in batch.items():
            marked[name] = _with_row_marks(frame)
            if len(nodes_of(top, f"source:{name}")) > 1:  # a record has one mark, wherever it is used
                stack.callback(marked[name].persist().unpersist)
        judged = [_judge(place, marked, source, late_before_ms) for place in places]
        if any(frame is None for frame in judged):
            return LateRecords(is_unknown=True)
        # A record that also reaches the result without an operator that keeps state is in the table by that path.
        everywhere = F.lit(None not in met)
        judged_records = (
            reduce(lambda one, two: one.union(two), [frame for frame in judged if frame is not None])
            .groupBy("origin")
            .agg(F.min("closed").alias("whole"), F.max("closed").alias("any"))
            .where("any")
            .select(
                (F.col("whole") & everywhere).alias("whole"),
                F.col("origin.source").alias("source"),
                F.substring_index("origin.position", _ROW_MARK, 1).alias("position"),
                F.col("origin.raw").alias("raw"),
            )
            .cache()
        )
        partly = judged_records.where("NOT whole").count()
    return LateRecords(judged_records.where("whole").drop("whole"), partly)


@dataclass(frozen=True)
class _Place:
    """The lowest operator with state above a source, and the plan below it from which the source's rows come."""

    operator: JavaObject
    below: JavaObject


def _operator_on(path: list[JavaObject]) -> _Place | None:
    stateful = [number for number, node in enumerate(path) if is_stateful(node)]
    return _Place(path[stateful[-1]], path[stateful[-1] + 1]) if stateful else None


def _distinct(places: list[_Place]) -> list[_Place]:
    """The places where a source's records meet state: each side of a self-join, each branch with its own operator."""
    found: list[_Place] = []
    for place in places:
        if not any(place.below.equals(known.below) for known in found):
            found.append(place)
    return found


def _judge(place: _Place, batch: Mapping[str, DataFrame], source: str, late_before_ms: int) -> DataFrame | None:
    """(origin, closed) of each row that the records of ``source`` bring to an operator; None when it is unknown."""
    event_times = stateful_event_times(place.operator, place.below)
    session = next(iter(batch.values())).sparkSession
    carried = put_back(session, place.below, PROVENANCE) if event_times else None
    if carried is None:
        return None
    with_origin, origin_attribute = carried
    exchanged = []
    for name, frame in batch.items():
        for use in nodes_of(with_origin, f"time:{name}") or nodes_of(with_origin, f"source:{name}"):
            exchanged.append((use, _under_the_names_of(items(use.output()), frame, session)))
    rows = frame_of(rebuild(with_origin, exchanged, session), session)
    # The columns are addressed by their place: two may have one name.
    columns = items(with_origin.output())
    names = [f"c{number}" for number in range(len(columns))]
    rows = rows.toDF(*names)
    columns_by_id = {attribute.exprId().toString(): name for attribute, name in zip(columns, names, strict=True)}
    mark = F.col(columns_by_id[event_times[0].exprId().toString()])
    origin = F.col(columns_by_id[origin_attribute.exprId().toString()])
    ends = mark["end"] if event_times[0].dataType().typeName() == "struct" else mark
    closed = F.coalesce(F.unix_micros(ends) <= F.lit(late_before_ms * 1000), F.lit(False))
    return rows.where(origin["source"] == source).select(origin.alias("origin"), closed.alias("closed"))


def _with_row_marks(frame: DataFrame) -> DataFrame:
    """Add a unique mark to each record's position: two equal lines of a file are two records."""
    if PROVENANCE not in frame.columns:
        return frame
    marked = F.concat_ws(_ROW_MARK, f"{PROVENANCE}.position", F.monotonically_increasing_id().cast("string"))
    return frame.withColumn(PROVENANCE, F.col(PROVENANCE).withField("position", marked))


def _under_the_names_of(attributes: list[JavaObject], frame: DataFrame, session: SparkSession) -> JavaObject:
    """The plan of ``frame`` whose columns go by the identities of ``attributes``, in order."""
    jvm = jvm_of(session)
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
    return f"the watermark had passed everything it belongs to: it was at {when}"
