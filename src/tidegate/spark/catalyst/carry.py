"""Carrying a hidden column through a transform that selects its own columns.

The frames that a transform gets do not show which record a row came from: such a column would count in a
``dropDuplicates()`` and occur twice in a join. Spark's plan still has it below, so the column is put back into each
select on the way up. Only operators that pass rows on, or make rows out of one row each, are passed; behind any other
the column stays away, and a rejected row is kept as it left the transform.
tests/spark/test_carry.py pins the operators to the Spark version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidegate.spark.catalyst.plans import analysed_plan, children_of, frame_of, items, jvm_of, kind_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

_Replaced: TypeAlias = "tuple[JavaObject, JavaObject]"
"""A plan, and its replacement with the column."""

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


def carry_column(frame: DataFrame, name: str) -> DataFrame:
    """``frame`` with the struct column ``name`` of the frames that it was made from; unchanged where that cannot be."""
    if name in frame.columns:
        return frame
    carried = put_back(frame.sparkSession, analysed_plan(frame), name)
    return frame if carried is None else frame_of(carried[0], frame.sparkSession)


def put_back(session: SparkSession, node: JavaObject, name: str) -> _Replaced | None:
    """The plan of ``node`` with the column ``name`` in its output, and the column as the plan refers to it; or None.

    By its name: Spark gives the columns of a frame that is used twice other identities at its second place.
    """
    attribute = _find(node, name)
    if attribute is not None:
        return node, attribute
    kind, below = kind_of(node), children_of(node)
    jvm = jvm_of(session)
    if kind == "Join":
        return _put_back_into_join(session, node, below, name)
    if kind == "Union":
        return _put_back_into_union(session, below, name)
    if len(below) != 1 or kind not in (*_PASSES_ROWS, "Project", "View", "Expand"):
        return None
    carried = put_back(session, below[0], name)
    if carried is None:
        return None
    child, attribute = carried
    plans = jvm.org.apache.spark.sql.catalyst.plans.logical
    if kind == "Project":
        return plans.Project(node.projectList().appended(attribute), child), attribute
    if kind == "Expand":  # a sliding window: each row once per window
        rows = jvm.PythonUtils.toSeq([row.appended(attribute) for row in items(node.projections())])
        return plans.Expand(rows, node.output().appended(attribute), child), attribute
    if kind == "View":
        return carried  # a temporary view only names the plan below it
    return node.withNewChildren(jvm.PythonUtils.toSeq([child])), attribute


def _put_back_into_join(
    session: SparkSession, node: JavaObject, below: list[JavaObject], name: str
) -> _Replaced | None:
    """A join of a stream with a table: each row of the stream keeps where it came from."""
    are_records = [child.isStreaming() or _is_within(child, name) for child in below]
    if all(are_records):
        return None
    pairs = zip(below, are_records, strict=True)
    sides = [put_back(session, child, name) if is_records else (child, None) for child, is_records in pairs]
    if None in sides:
        return None
    jvm = jvm_of(session)
    plan = node.withNewChildren(jvm.PythonUtils.toSeq([side[0] for side in sides if side is not None]))
    attribute = _find(plan, name)
    return None if attribute is None else (plan, attribute)


def _put_back_into_union(session: SparkSession, below: list[JavaObject], name: str) -> _Replaced | None:
    """A union names its columns as its first side does, by place: the column comes last in each."""
    jvm = jvm_of(session)
    plans = jvm.org.apache.spark.sql.catalyst.plans.logical
    sides, first = [], None
    for child in below:
        carried = put_back(session, child, name)
        if carried is None:
            return None
        plan, attribute = carried
        first = attribute if first is None else first
        sides.append(plans.Project(child.output().appended(attribute), plan))
    return plans.Union(jvm.PythonUtils.toSeq(sides), False, False), first


def _is_within(node: JavaObject, name: str) -> bool:
    """Whether the plan has the column anywhere: a table has none, nor is one batch of a stream streaming."""
    return _find(node, name) is not None or any(_is_within(child, name) for child in children_of(node))


def _find(node: JavaObject, name: str) -> JavaObject | None:
    """The hidden column is a struct: another one of its name is the transform's own, made and dropped on the way."""
    named = [attribute for attribute in items(node.output()) if attribute.name() == name]
    return next((attribute for attribute in named if attribute.dataType().typeName() == "struct"), None)


PROVENANCE = "_tidegate"
"""Struct column (source, position, raw) that travels through the transform, where the transform keeps it."""
