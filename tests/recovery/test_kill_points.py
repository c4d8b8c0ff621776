"""The run is killed the moment a file of each kind appears: between any two writes of the way of a record.

What tidegate writes is seen from inside (faults/sitecustomize.py), what Spark writes is polled for. A point that is not
reached fails its test.
"""

from __future__ import annotations

import glob
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.scene import NAME, Snapshot, kill_when

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What appears, relative to the project, in the order of the record's way; * is any name.
POINTS = {
    "link": "data/state/orders/intake/orders/*.csv",
    "order": "data/state/orders/orders/second/order.json",
    "manifest": "data/state/orders/manifests/*/*1.json",
    "second manifest": "data/state/orders/manifests/*/*2.json",
    "driver's answer": "data/state/orders/orders/second/result.json",
    "verdict": "data/state/orders/verdicts/second.json",
    "intent": "data/state/orders/intents/table-*",
    "first move": "data/warehouse/orders/day=*/part-*-00000001-*.parquet",
    "last move": "data/warehouse/orders/day=*/part-*-00000002-*.parquet",
    "log commit": "data/warehouse/orders/_delta_log/*1.json",
    "quarantine intent": "data/state/orders/intents/quarantine-*",
    "quarantine commit": "data/quarantine/orders/_delta_log/*1.json",
}

# The same of what Spark writes: each is there for long enough to be seen.
SPARK_POINTS = {
    "offset log": "data/state/orders/checkpoint/offsets/1",
    "data write": "data/state/orders/staging/*/*1/*/rows/_temporary",
    "rows committed": "data/state/orders/staging/*/*1/*/rows/day=*",
    "quarantine write": "data/state/orders/staging/*/*1/*/quarantine/*.parquet",
    "commit log": "data/state/orders/checkpoint/commits/1",
    "second offset log": "data/state/orders/checkpoint/offsets/2",
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_when_it_appears(point: str, offered: Snapshot, spark: SparkSession) -> None:
    scene = offered.restore()
    scene.tidegate("run", NAME, "--run-id", "second", fault=f"appears {POINTS[point]}|kill", expect=-signal.SIGKILL)
    scene.wait_until_gone()
    scene.check_readers_now()
    scene.catch_up(spark)


@pytest.mark.parametrize("point", SPARK_POINTS)
def test_killed_when_spark_wrote_it(point: str, offered: Snapshot, spark: SparkSession) -> None:
    scene = offered.restore()
    pattern = str(scene.root / SPARK_POINTS[point])
    there = set(glob.glob(pattern))
    process = scene.start("run", NAME, "--run-id", "second")
    assert kill_when(scene, process, lambda: bool(set(glob.glob(pattern)) - there)), f"{point} was not reached"
    scene.check_readers_now()
    scene.catch_up(spark)
