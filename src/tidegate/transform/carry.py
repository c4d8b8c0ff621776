"""Carrying a hidden column through a transform that selects its own columns.

The frames that a transform gets do not show which record a row came from: such a column would count in a
``dropDuplicates()`` and stand twice in a join. Spark's plan still has it below, so the column is put back into each
select on the way up. Only operators that pass rows on, or make rows out of one row each, are passed; behind any other
the column stays away, and a rejected row is kept as it left the transform.
tests/spark/test_carry.py pins the operators to the Spark version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.transform.plans import analysed_plan, children_of, frame_of, items, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PASSES_ROWS = {
    "Filter",
    "SubqueryAlias",
    "Generate",
    "EventTimeWatermark",
    "ResolvedHint",
    "CollectMetrics",
    "Deduplicate",
    "DeduplicateWithinWatermark",
}


def carry_column(frame: DataFrame, origin: DataFrame, name: str) -> DataFrame:
    """``frame``, which was made from ``origin``, with ``origin``'s column ``name``; unchanged where that cannot be."""
    if name in frame.columns:
        return frame
    plan = put_back(frame.sparkSession, analysed_plan(frame), find_attribute(origin, name))
    return frame if plan is None else frame_of(plan, frame.sparkSession)


def find_attribute(frame: DataFrame, name: str) -> Any:
    """The column ``name`` of a frame, as plans refer to it."""
    return next(attribute for attribute in items(analysed_plan(frame).output()) if attribute.name() == name)


def put_back(session: SparkSession, node: Any, attribute: Any) -> Any | None:
    """The plan of ``node`` with ``attribute`` among its output, or None."""
    if _has(node, attribute):
        return node
    kind, below = kind_of(node), children_of(node)
    jvm: Any = session._jvm
    if kind == "Join":
        return _put_back_into_join(session, node, below, attribute)
    if len(below) != 1 or kind not in (*_PASSES_ROWS, "Project", "View", "Expand"):
        return None
    child = put_back(session, below[0], attribute)
    if child is None:
        return None
    plans = jvm.org.apache.spark.sql.catalyst.plans.logical
    if kind == "Project":
        return plans.Project(node.projectList().appended(attribute), child)
    if kind == "Expand":  # a sliding window: each row once per window
        rows = jvm.PythonUtils.toSeq([row.appended(attribute) for row in items(node.projections())])
        return plans.Expand(rows, node.output().appended(attribute), child)
    if kind == "View":
        return child  # a temporary view only names the plan below it
    return node.withNewChildren(jvm.PythonUtils.toSeq([child]))


def _put_back_into_join(session: SparkSession, node: Any, below: list[Any], attribute: Any) -> Any | None:
    """A join of a stream with a table: each row of the stream keeps where it came from."""
    if all(child.isStreaming() for child in below):
        return None
    sides = [put_back(session, child, attribute) if child.isStreaming() else child for child in below]
    if any(side is None for side in sides):
        return None
    jvm: Any = session._jvm
    plan = node.withNewChildren(jvm.PythonUtils.toSeq(sides))
    return plan if _has(plan, attribute) else None


def _has(node: Any, attribute: Any) -> bool:
    wanted = attribute.exprId()
    return any(one.exprId().equals(wanted) for one in items(node.output()))
