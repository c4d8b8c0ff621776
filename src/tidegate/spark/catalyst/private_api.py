"""Access to private parts of pyspark, each as one function: metrics in mid-batch, executors, JSON inference.

This room is the only one that reaches through pyspark to the JVM (kept by tests/unit/tools/test_check.py), so that a
new version of Spark is tried here: ``tests/spark/test_private_api.py`` says which of these no longer holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegate.spark.catalyst.plans import jvm_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


Metric = dict[str, Any]
"""The values of one observation of a batch, by their names."""
Metrics = dict[str, Metric]

SPARK_ERRORS = (PySparkException, Py4JError)
"""What a call into Spark raises: pyspark's own errors, and those of the JVM that pyspark does not know."""


def read_observed_metrics(query: StreamingQuery) -> Metrics:
    """{name of the observation: its values} of the batch that ``query`` is running, as plain values.

    They are complete once the batch's one write has ended. The public way, the progress event, comes only after
    foreachBatch has returned, when the manifest must exist already.
    """
    return _read_metrics(query._jsq.streamingQuery().lastExecution())


def read_frame_metrics(frame: DataFrame) -> Metrics:
    """The same of a batch DataFrame that was collected."""
    return _read_metrics(frame._jdf.queryExecution())


def _read_metrics(execution: Any) -> Metrics:
    observed = execution.observedMetrics()
    keys = observed.keysIterator()
    metrics = {}
    while keys.hasNext():
        name = keys.next()
        metrics[name] = json.loads(observed.apply(name).json())
    return metrics


def infer_json_columns(spark: SparkSession, texts: DataFrame, options: Mapping[str, str]) -> StructType:
    """Infer columns from a frame of one column of JSON texts, as Spark does; pyspark offers that for files alone."""
    strings = getattr(texts._jdf, "as")(jvm_of(spark).org.apache.spark.sql.Encoders.STRING())
    reader = spark.read.options(**options)
    return StructType.fromJson(json.loads(reader._jreader.json(strings).schema().json()))


class ExecutorView:
    """The session's Spark application as its driver sees it: whether it runs, on which executors, with which conf."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext._jsc.sc()

    @property
    def is_local(self) -> bool:
        """Return whether the executors are threads of the driver."""
        return bool(self._context.isLocal())

    @property
    def is_stopped(self) -> bool:
        """Return whether the application has ended, for any reason."""
        return bool(self._context.isStopped())

    @property
    def master(self) -> str:
        """The master's URL."""
        return str(self._context.master())

    def list_ids(self) -> set[str]:
        """The ids of the executors that are there now."""
        return set(filter(None, self._context.getExecutorIds().mkString(",").split(",")))

    def list_hosts(self) -> list[str]:
        """The hosts of the executors, without the driver's host."""
        # Not by SparkEnv: Spark 4.3 ships without a class that one of its methods names, and Py4J asks for them all.
        listed = self._context.statusStore().executorList(True)
        executors = [listed.apply(number) for number in range(listed.size())]
        return sorted({str(one.hostPort()).rpartition(":")[0] for one in executors if one.id() != "driver"})

    def wait_for_events(self, milliseconds: int) -> None:
        """Wait until the listeners have heard of all that has happened. Raises Py4JJavaError when they do not."""
        self._context.listenerBus().waitUntilEmpty(milliseconds)

    def read_seconds(self, setting: str) -> float:
        """A setting that is a time, such as ``300s``, in seconds; 300 where it is not set."""
        return float(self._context.conf().getTimeAsSeconds(setting, "300s"))

    def read_setting(self, setting: str, default: str) -> str:
        """A setting as text."""
        return str(self._context.conf().get(setting, default))

    def cancel_all_jobs(self) -> None:
        """Cancel running and queued jobs."""
        self._context.cancelAllJobs()
