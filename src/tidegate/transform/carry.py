"""Carrying a hidden column through a transform that selects its own columns.

A transform that ends in ``select("a", "b")`` drops everything else, also what says which record a row came from.
Spark's plan still has it below that select, so the column is put back into each select on the way up. Only operators
that make rows out of one row each are passed; behind any other the column stays away, and a rejected row is kept as it
left the transform.
tests/spark/test_carry.py pins the operators to the Spark version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_BY_ROW = {"Filter", "SubqueryAlias", "Generate", "EventTimeWatermark", "ResolvedHint"}


def carry_column(frame: DataFrame, origin: DataFrame, name: str) -> DataFrame:
    """``frame``, which was made from ``origin``, with ``origin``'s column ``name``; unchanged where that cannot be."""
    if name in frame.columns:
        return frame
    # pyspark's public surface has no plans; everything below goes through the JVM objects behind the frames.
    attribute = _find_attribute(origin, name)
    plan = _put_back(frame, frame._jdf.queryExecution().analyzed(), attribute)
    if plan is None:
        return frame
    session = frame.sparkSession
    jvm: Any = session._jvm
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return type(frame)(dataset, session)


def _find_attribute(frame: DataFrame, name: str) -> Any:
    output = frame._jdf.queryExecution().analyzed().output()
    return next(
        attribute for attribute in (output.apply(index) for index in range(output.size())) if attribute.name() == name
    )


def _put_back(frame: DataFrame, node: Any, attribute: Any) -> Any | None:
    """The plan with ``attribute`` among its output, or None."""
    if _has(node, attribute):
        return node
    kind = node.getClass().getSimpleName()
    children = node.children()
    if children.size() != 1 or kind not in (*_ROW_BY_ROW, "Project", "View"):
        return None
    child = _put_back(frame, children.apply(0), attribute)
    if child is None:
        return None
    jvm: Any = frame.sparkSession._jvm
    if kind == "Project":
        columns = node.projectList().appended(attribute)
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, child)
    if kind == "View":
        return child  # a temporary view only names the plan below it
    return node.withNewChildren(jvm.PythonUtils.toSeq([child]))


def _has(node: Any, attribute: Any) -> bool:
    output = node.output()
    wanted = attribute.exprId()
    return any(output.apply(index).exprId().equals(wanted) for index in range(output.size()))
