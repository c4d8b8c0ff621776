"""The driver's JVM behind a session: every reach through pyspark to it begins here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView


def jvm_of(session: SparkSession) -> JVMView:
    """Spark's own classes, by their names."""
    jvm = session._jvm
    assert jvm is not None, "only a session of Spark Connect has none"
    return jvm
