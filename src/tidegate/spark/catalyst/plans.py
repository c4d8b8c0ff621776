"""Looking at Spark's logical plans: what pyspark's public surface does not show of a frame.

Everything here goes through the JVM objects behind a frame; tests/spark/test_carry.py and test_operations.py pin what
is used to the Spark version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import DataFrame, SparkSession


def jvm_of(session: SparkSession) -> JVMView:
    """Spark's own classes, by their names."""
    jvm = session._jvm
    assert jvm is not None, "only a session of Spark Connect has none"
    return jvm


_WATERMARK_KEY = "spark.watermarkDelayMs"


def analysed_plan(frame: DataFrame) -> JavaObject:
    """The analysed logical plan of a frame."""
    return frame._jdf.queryExecution().analyzed()


def frame_of(plan: JavaObject, session: SparkSession) -> DataFrame:
    """A frame of a logical plan."""
    jvm = jvm_of(session)
    return ClassicFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def kind_of(node: JavaObject) -> str:
    """The class name of a plan's node: ``Project``, ``Aggregate``, ``Join``..."""
    return str(node.getClass().getSimpleName())


def items(seq: JavaObject) -> list[JavaObject]:
    """A Scala Seq as a list."""
    return [seq.apply(index) for index in range(seq.size())]


def children_of(node: JavaObject) -> list[JavaObject]:
    """The nodes below a node."""
    return items(node.children())


def walk(node: JavaObject) -> Iterator[JavaObject]:
    """The nodes of the user's part of a plan, top down: without the part below our own metrics of a source."""
    if is_metric(node, "source:") or is_metric(node, "static:"):
        return
    yield node
    for child in children_of(node):
        yield from walk(child)


def is_metric(node: JavaObject, prefix: str) -> bool:
    """Return whether a node is one of our own ``observe``, by the start of its name."""
    return kind_of(node) == "CollectMetrics" and str(node.name()).startswith(prefix)


def paths_to(node: JavaObject, metric: str) -> list[list[JavaObject]]:
    """The nodes from ``node`` down to each place of the ``observe`` named ``metric``."""
    if is_metric(node, metric) and str(node.name()) == metric:
        return [[node]]
    return [[node, *below] for child in children_of(node) for below in paths_to(child, metric)]


def nodes_of(node: JavaObject, metric: str) -> list[JavaObject]:
    """The places of the ``observe`` named ``metric`` in a plan."""
    return [path[-1] for path in paths_to(node, metric)]


def inline_ctes(frame: DataFrame) -> DataFrame:
    """``frame`` with each common table expression of its SQL put where it is used: its rows then have a way down to the
    sources, as everything that looks at a plan expects."""
    plan, session = analysed_plan(frame), frame.sparkSession
    if not any(kind_of(node) == "WithCTE" for node in walk(plan)):
        return frame
    inline = jvm_of(session).org.apache.spark.sql.catalyst.optimizer.InlineCTE
    return frame_of(inline(True, False, *_added_since_4_2(session)).apply(plan), session)


def read_once(frame: DataFrame, metric: str) -> DataFrame:
    """``frame`` with the rows below the ``observe`` named ``metric`` as one common table expression.

    Where a transform uses a stream twice (a union or a join with itself), the analysed plan holds the stream twice, and
    Spark refuses two streams of one name. As a CTE it is in the plan once, with one place in the offset log, however
    often it is used; Spark's optimizer puts it back where it is used, batch by batch.
    """
    session, top = frame.sparkSession, analysed_plan(frame)
    uses = nodes_of(top, metric)
    if len(uses) < 2:
        return frame
    jvm = jvm_of(session)
    plans, nothing = jvm.org.apache.spark.sql.catalyst.plans.logical, jvm.scala.Option.empty()
    added = _added_since_4_2(session)
    definition = plans.CTERelationDef(uses[0], plans.CTERelationDef.newId(), nothing, False, nothing, *added)
    references = [
        (use, plans.CTERelationRef(definition.id(), True, use.output(), True, nothing, False, nothing, False))
        for use in uses
    ]
    plan = plans.WithCTE(rebuild(top, references, session), jvm.PythonUtils.toSeq([definition]))
    return frame_of(plan, session)


def _added_since_4_2(session: SparkSession) -> tuple[bool, ...]:
    """The last argument of two constructors, which Spark has since 4.3: False, its default."""
    return () if session.version.startswith("4.2.") else (False,)


def event_time_attributes(node: JavaObject) -> list[JavaObject]:
    """The output columns of a node that Spark holds for event times under a watermark."""
    return [attribute for attribute in items(node.output()) if attribute.metadata().contains(_WATERMARK_KEY)]


def stateful_event_times(operator: JavaObject, child: JavaObject) -> list[JavaObject]:
    """The event-time columns of ``child`` by which the stateful ``operator`` above it closes what it keeps."""
    found = event_time_attributes(child)
    if kind_of(operator) != "Aggregate":
        return found
    keys = items(operator.groupingExpressions())
    grouped = {column.exprId().toString() for key in keys for column in items(key.references().toSeq())}
    return [attribute for attribute in found if attribute.exprId().toString() in grouped]


def rebuild(node: JavaObject, replacements: list[tuple[JavaObject, JavaObject]], session: SparkSession) -> JavaObject:
    """The plan with each node of ``replacements`` (old, new) exchanged."""
    for old, new in replacements:
        if node.equals(old):
            return new
    below = children_of(node)
    if not below:
        return node
    jvm = jvm_of(session)
    return node.withNewChildren(jvm.PythonUtils.toSeq([rebuild(child, replacements, session) for child in below]))


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within it the session has these ``settings``; afterwards those of before. All of them need a default in Spark."""
    before = {key: spark.conf.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, str(old))
