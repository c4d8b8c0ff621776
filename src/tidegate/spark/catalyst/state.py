"""The state figures of the running batch: operators, watermarks, rows that Spark dropped as late.

Spark's own progress event comes only after the batch was committed, when the manifest must exist already, so the
figures are read from the plan that was just executed. tests/streams/test_state.py pins this to the Spark version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.sql import functions as F

from tidegate.spark.catalyst.operations import is_stateful
from tidegate.spark.catalyst.plans import (
    analysed_plan,
    children_of,
    frame_of,
    jvm_of,
    kind_of,
    rebuild,
    stateful_event_times,
    walk,
)
from tidegate.spark.catalyst.private_api import Metrics
from tidegate.spec.ddl import quote_column
from tidegate.state.manifest import OperatorProgress

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_STATE_WRITER = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"


_WINDOWS_REPORTED = 1000
"""The number of windows that a batch reports, as many as the note of the open state keeps."""


@dataclass(frozen=True)
class StateStores:
    """The stores that one operator has written with the batch: ``version`` of its state, in so many partitions."""

    operator_id: int
    partitions: int
    version: int


@dataclass(frozen=True)
class BatchState:
    """``watermark_ms`` is the watermark the batch ran with; ``late_before_ms`` the one that decided which rows were
    late."""

    operators: list[OperatorProgress]
    watermark_ms: int
    late_before_ms: int | None
    stores: list[StateStores]

    @property
    def dropped(self) -> int:
        """Spark's count of what it dropped as late: state updates, not records."""
        return sum(operator["numRowsDroppedByWatermark"] for operator in self.operators)


def read_batch_state(query: StreamingQuery) -> BatchState:
    """The state of the batch that ``query`` has just written."""
    execution = query._jsq.streamingQuery().lastExecution()
    gateway = SparkContext._gateway
    operators, late, stores = [], [], []
    for node in _walk(execution.executedPlan()):
        if not is_instance_of(gateway, node, _STATE_WRITER):
            continue
        operators.append(json.loads(node.getProgress().json()))
        info = node.getStateInfo()
        # The state info has the setting; an aggregate without keys, or a limit, runs in one partition nevertheless.
        partitions = int(next(iter(children_of(node))).outputPartitioning().numPartitions())
        stores.append(StateStores(int(info.operatorId()), partitions, int(info.storeVersion()) + 1))
        mark = node.eventTimeWatermarkForLateEvents()
        if mark.isDefined():
            late.append(int(mark.get()))
    return BatchState(
        operators=operators,
        watermark_ms=int(execution.offsetSeqMetadata().batchWatermarkMs()),
        # Operators behind the first get a later one: what reaches them was made by the first.
        late_before_ms=max(late, default=None),
        stores=stores,
    )


def find_missing_state(checkpoint: Path, stores: Iterable[StateStores]) -> list[str]:
    """Partitions whose state of that version is not in the checkpoint, as folders relative to it.

    The tasks of a batch write it, each on its own machine. Spark does not look whether it arrived: the batch counts as
    done, and the next one fails.
    """
    missing = []
    for store in stores:
        for partition in range(store.partitions):
            folder = checkpoint / "state" / str(store.operator_id) / str(partition)
            # A join has a folder for each of its stores, the others have their files at once.
            if not any(
                file.name.startswith((f"{store.version}.", f"{store.version}_"))
                for pattern in ("*", "*/*")
                for file in folder.glob(pattern)
            ):
                missing.append(str(folder.relative_to(checkpoint)))
    return missing


def _walk(node: JavaObject) -> Iterator[JavaObject]:
    yield node
    for child in children_of(node):
        yield from _walk(child)


def observe_open(out: DataFrame) -> DataFrame:
    """``out`` with metrics ``open:...`` on what goes into each operator that closes by event time: the greatest end of
    a window (or event time), and the windows themselves."""
    session = out.sparkSession
    plan, exchanged = analysed_plan(out), []
    for number, node in enumerate(one for one in walk(plan) if is_stateful(one)):
        for side, child in enumerate(children_of(node)):
            columns = stateful_event_times(node, child)
            if len(columns) != 1:
                continue
            name, kind = str(columns[0].name()), str(columns[0].dataType().typeName())
            below = frame_of(child, session)
            if [column.lower() for column in below.columns].count(name.lower()) != 1:
                continue
            mark = F.col(quote_column(name))
            metrics = [F.max(F.unix_millis(mark["end"] if kind == "struct" else mark)).alias("until_ms")]
            if kind == "struct" and not name.startswith("session"):  # the end of a session moves while it is open
                window = F.concat_ws(" ", F.unix_millis(mark["start"]), F.unix_millis(mark["end"]))
                # All of them up to three quarters of the last number; of more, the frequent ones.
                metrics.append(
                    F.call_function("approx_top_k", window, F.lit(_WINDOWS_REPORTED), F.lit(4096)).alias("windows")
                )
            exchanged.append((child, analysed_plan(below.observe(f"open:{number}.{side}", *metrics))))
    return frame_of(rebuild(plan, exchanged, session), session) if exchanged else out


def read_open(metrics: Metrics) -> tuple[int | None, list[list[int]]]:
    """(greatest end, windows [start, end]) of the ``open:`` metrics of a batch, in milliseconds since 1970."""
    found = [value for name, value in metrics.items() if name.startswith("open:")]
    until = max((int(value["until_ms"]) for value in found if value.get("until_ms") is not None), default=None)
    windows = [one["item"] for value in found for one in value.get("windows") or [] if one["item"]]
    return until, [[int(moment) for moment in window.split(" ")] for window in windows]


NO_CLOSING_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Settings with which Spark plans no batch without data: the caller decides what is closed, by which watermark."""
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def set_state_conf(spark: SparkSession, out: DataFrame, watermark_policy: str) -> None:
    """Settings of a query with state. Spark pins the provider and the policy with the checkpoint's first batch."""
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", watermark_policy)
    # A run ends long before the maintenance thread is due: snapshots are made when a batch commits, else each
    # run would read a longer chain of changes than the last.
    spark.conf.set("spark.sql.streaming.stateStore.unloadOnCommit", "true")
    # "The state for version 7 doesn't exist in loadedMaps", once a partition and batch: that is how it is meant here.
    jvm = jvm_of(spark)
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.spark.sql.execution.streaming.state", log4j.Level.ERROR)
    if any(kind_of(node).startswith("TransformWithState") for node in walk(analysed_plan(out))):
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
