"""Which operations a streaming query supports in an output mode, checked before a run, with the transform's line.

Spark has the list (UnsupportedOperationChecker) and is asked itself, without starting a query. What it finds out only
when a batch runs, and what it lets pass although a query on a schedule would give wrong numbers, is checked here.
docs/reference/streaming.md has the outcome for each operator and mode.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame

from tidegate.spark import errors
from tidegate.spark.catalyst.plans import (
    analysed_plan,
    children_of,
    is_metric,
    items,
    jvm_of,
    kind_of,
    stateful_event_times,
    walk,
)
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.failures import first_lines

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame


OutputMode = Literal["append", "update", "complete"]

_KEEPS_STATE = {
    "Aggregate",
    "Distinct",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "GlobalLimit",
}

_ONE_BATCH = "it would see one micro-batch at a time, and each run would give other rows"
_READING = "take it out; do it when reading the table"
_GROUPS = "use applyInPandasWithState, which keeps its groups"
_WINDOW = "group by a window of the event time, or do it when reading the table"

# Operators that Spark runs on each micro-batch alone, as if it were all there is: (the operation, why not, what to do).
_BATCH_BY_BATCH = {
    "Window": ("a window function (OVER)", _ONE_BATCH, _WINDOW),
    "Except": ("EXCEPT", _ONE_BATCH, "use a left anti join with a static source"),
    "Intersect": ("INTERSECT", _ONE_BATCH, "use a left semi join with a static source"),
    "Offset": ("an offset", _ONE_BATCH, _READING),
    "Tail": ("a tail", _ONE_BATCH, _READING),
    "AsOfJoin": ("an as-of join", _ONE_BATCH, "join on equal keys and a range of the event times"),
    "LateralJoin": ("a lateral join", _ONE_BATCH, "use explode, or a join"),
    "FlatMapGroupsInPandas": ("a grouped map (applyInPandas)", _ONE_BATCH, _GROUPS),
    "FlatMapGroupsInArrow": ("a grouped map (applyInArrow)", _ONE_BATCH, _GROUPS),
    "FlatMapCoGroupsInPandas": ("a co-grouped map", _ONE_BATCH, "join the sources, or use applyInPandasWithState"),
    "MapGroups": ("a grouped map", _ONE_BATCH, _GROUPS),
    "CollectMetrics": ("observe()", "its metrics would never be read", "take it out: the run report counts rows, and a "
                       "suite checks them"),
}  # fmt: skip

# What Spark says -> (the operation, what to do instead). The first pattern that is found counts.
_SPARK_SAYS: tuple[tuple[str, str, str], ...] = (
    (r"must be executed with writeStream", "an action (count, show, collect...)", "take it out: a transform only "
     "describes a query, which runs later; counts are in the run report"),
    (r"aggregations without watermark", "an aggregation without a watermark", "give the source `event_time` and "
     "`watermark` and group by a window of that column; or use output_mode: update with table.keys"),
    (r"possible 'correctness' issue|multiple streaming aggregations", "one operator with state behind another",
     "use output_mode: append, where each works on what the one before has closed; or do the second when reading the "
     "table"),
    (r"Sorting is not supported", "a sort", "sort when reading the table; a sort after an aggregation works in "
     "output_mode: complete"),
    (r"Limits are not supported", "a limit", _READING),
    (r"session window", "a session window", "use output_mode: append with a watermark"),
    (r"(outer|semi|anti|inner) ?joins? ", "a join", ""),
    (r"no streaming aggregations", "a query without an aggregation", "use output_mode: append; with table.keys and "
     "output_mode: update a new row replaces the older one"),
    (r"distinct aggregation", "a distinct aggregation", "use approx_count_distinct, or dropDuplicates before it"),
    (r"non-time-based windows", "a window function (OVER)", _WINDOW),
    (r"flatMapGroupsWithState|applyInPandasWithState|output mode of function should be", "arbitrary state",
     "give it the output mode of the pipeline, and a watermark for a timeout by event time"),
)  # fmt: skip

# The place of an operation in a transform.sql.
_SQL_WORDS = {
    "SELECT DISTINCT": r"DISTINCT",
    "an aggregation without a watermark": r"GROUP\s+BY",
    "a sort": r"(ORDER|SORT)\s+BY",
    "a limit": r"LIMIT",
    "a join": r"JOIN",
    "a window function (OVER)": r"OVER\b",
    "EXCEPT": r"EXCEPT|MINUS",
    "INTERSECT": r"INTERSECT",
    "a distinct aggregation": r"DISTINCT",
}

_JOIN_FIX = (
    "stream with static: inner, left (the stream on the left), semi and anti; stream with stream: inner, left, right, "
    "full and semi in output_mode: append, outer ones with a watermark on both sides and a range of the event times"
)


def keeps_state(frame: DataFrame) -> bool:
    """Return whether a streaming frame's plan remembers anything from one batch to the next."""
    return any(is_stateful(node) for node in walk(analysed_plan(frame)))


def makes_several(frame: DataFrame) -> bool:
    """Return whether a plan makes several rows of one (``explode``, a sliding window), even if some are filtered."""
    return any(kind_of(node) in ("Generate", "Expand") for node in walk(analysed_plan(frame)))


def keeps_one_of_equals(frame: DataFrame, hidden: str) -> bool:
    """Return whether records of which a deduplication keeps one are equal in all columns but ``hidden``."""
    for node in walk(analysed_plan(frame)):
        if kind_of(node) != "Deduplicate" or not node.isStreaming():
            continue
        keys = {key.exprId().toString() for key in items(node.keys())}
        if any(one.exprId().toString() not in keys and str(one.name()) != hidden for one in items(node.output())):
            return False
    return True


def is_stateful(node: JavaObject) -> bool:
    """Return whether a node of a plan keeps state over batches."""
    kind = kind_of(node)
    if kind == "Join":
        return all(child.isStreaming() for child in children_of(node))
    return kind in _KEEPS_STATE and bool(node.isStreaming())


def check_operations(out: DataFrame, mode: OutputMode, path: Path, steps: Sequence[Step] = ()) -> None:
    """Raise UsageError UNSUPPORTED_OPERATION for the first operator of ``out`` that cannot work in ``mode``.

    ``steps`` are the frames on the way to ``out``: the line is that of the first of them with the same fault.
    """
    found = _find_fault(out, mode)
    if found is None:
        return
    operation, why, fix = found
    where = next((line for line, frame in steps if _has_fault(frame, mode, operation)), None)
    raise errors.UNSUPPORTED_OPERATION(
        where=where or _place_in_sql(path, operation), operation=operation, mode=mode, why=why, fix=fix
    )


def _place_in_sql(path: Path, operation: str) -> str:
    word = _SQL_WORDS.get(operation)
    if path.suffix != ".sql" or word is None:
        return str(path)
    text = path.read_text(encoding="utf-8")
    found = re.search(rf"\b(?:{word})", text, re.IGNORECASE)
    return f"{path}:{text.count(chr(10), 0, found.start()) + 1}" if found else str(path)


def describe_refusal(error: BaseException) -> tuple[str, str, str] | None:
    """(operation, why, fix) for what Spark says when it refuses an operation on a stream; None for another error."""
    said = str(error)
    for pattern, operation, fix in _SPARK_SAYS:
        if re.search(pattern, said, re.IGNORECASE):
            return operation, _why(error), fix or _JOIN_FIX
    return None


def _has_fault(frame: DataFrame, mode: OutputMode, operation: str) -> bool:
    if not frame.isStreaming:
        return False
    found = _find_fault(frame, mode)
    return found is not None and found[0] == operation


def _find_fault(frame: DataFrame, mode: OutputMode) -> tuple[str, str, str] | None:
    plan = analysed_plan(frame)
    for node in walk(plan):
        kind = kind_of(node)
        if kind in _BATCH_BY_BATCH and node.isStreaming() and not _is_ours(node):
            return _BATCH_BY_BATCH[kind]
        if kind == "Aggregate" and node.isStreaming() and _is_session_alone(node):
            return (
                "a session window without another key",
                "Spark would have to merge all sessions in one place, and fails on the first batch",
                "group by a column as well: groupBy(session_window(...), 'device')",
            )
        two = _two_event_times(node)
        if two:
            return (
                f"two event times in one operator ({', '.join(two)})",
                "Spark cannot tell which of them the watermark is for, and fails on the first batch",
                "keep one of them; copy the other under a new name with an expression: (t2 + INTERVAL 0 SECONDS) AS t2",
            )
    jvm = jvm_of(frame.sparkSession)
    spark_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan, spark_mode)
    except SPARK_ERRORS as error:
        found = describe_refusal(error) or ("an operation", _why(error), "take it out of the transform")
        if found[0] == "an aggregation without a watermark" and any(kind_of(node) == "Distinct" for node in walk(plan)):
            return "SELECT DISTINCT", found[1], "use dropDuplicates in a transform.py, or output_mode: update"
        return found
    return None


def _is_ours(node: JavaObject) -> bool:
    return any(is_metric(node, f"{kind}:") for kind in ("source", "static", "time", "entered", "open"))


def _is_session_alone(aggregate: JavaObject) -> bool:
    columns = [column for key in items(aggregate.groupingExpressions()) for column in items(key.references().toSeq())]
    return len(columns) == 1 and columns[0].metadata().contains("spark.sessionWindow")


def _two_event_times(node: JavaObject) -> list[str]:
    """The names of the event-time columns of one input of a stateful operator, when there is more than one."""
    if not is_stateful(node):
        return []
    for child in children_of(node):
        found = stateful_event_times(node, child)
        names = {attribute.exprId().toString(): str(attribute.name()) for attribute in found}
        if len(names) > 1:
            return sorted(names.values())
    return []


def _why(error: BaseException) -> str:
    text = re.sub(r"^(\[[\w.]+\] )", "", first_lines(error))
    text = re.sub(r"\s*SQLSTATE: \w+.*|;\s*([~'+]|\w+\[).*", "", text, flags=re.DOTALL)
    text = re.sub(r"^Invalid streaming output mode: \w+\. ", "", text)
    return text.partition(" Please refer")[0].strip().rstrip(".;")[:300]


Step = tuple[str, "DataFrame"]
"""``file:line`` of the user's code, and the frame that a call on it returned."""


@contextmanager
def trace_frames(folder: Path) -> Iterator[list[Step]]:
    """The frames that calls from files in ``folder`` return while the block runs, in order."""
    steps: list[Step] = []
    mine = str(folder)

    def note(frame: FrameType, event: str, result: object) -> None:
        if event == "return" and isinstance(result, DataFrame):
            caller = frame.f_back
            if caller is not None and str(Path(caller.f_code.co_filename).parent) == mine:
                steps.append((f"{caller.f_code.co_filename}:{caller.f_lineno}", result))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield steps
    finally:
        sys.setprofile(before)
