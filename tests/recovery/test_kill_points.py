"""The run is killed the moment a file of each kind appears: between any two writes of the way of a record."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

import pytest

from tests.recovery.scene import NAME, Snapshot, kill_when

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What appears, relative to the project, in the order of the record's way; * is any name.
POINTS = {
    "link": "data/state/orders/intake/orders/*.csv",
    "order": "data/state/orders/orders/second/order.json",
    "offset log": "data/state/orders/checkpoint/offsets/1",
    "data write": "data/state/orders/staging/*/*1/*/rows/_temporary",
    "rows committed": "data/state/orders/staging/*/*1/*/rows/day=*",
    "quarantine write": "data/state/orders/staging/*/*1/*/quarantine/*.parquet",
    "manifest": "data/state/orders/manifests/*/*1.json",
    "commit log": "data/state/orders/checkpoint/commits/1",
    "second offset log": "data/state/orders/checkpoint/offsets/2",
    "second manifest": "data/state/orders/manifests/*/*2.json",
    "driver's answer": "data/state/orders/orders/second/result.json",
    "quarantine intent": "data/state/orders/intents/quarantine-*",
    "quarantine commit": "data/quarantine/orders/_delta_log/*1.json",
    "verdict": "data/state/orders/verdicts/second.json",
    "intent": "data/state/orders/intents/table-*",
    "first move": "data/warehouse/orders/day=*/part-*-00000001-*.parquet",
    "last move": "data/warehouse/orders/day=*/part-*-00000002-*.parquet",
    "log commit": "data/warehouse/orders/_delta_log/*1.json",
}


_STAYS = {"offset log", "rows committed", "manifest", "commit log", "second offset log", "second manifest", "verdict"}
"""These are there until the run is over, and it goes on for long after."""


@pytest.mark.parametrize("point", POINTS)
def test_killed_when_it_appears(point: str, published: Snapshot, spark: SparkSession) -> None:
    scene = published.restore()
    for _ in range(3):
        scene.offer()
    pattern = str(scene.root / POINTS[point])
    there = set(glob.glob(pattern))
    process = scene.start("run", NAME, "--run-id", "second")
    killed = kill_when(scene, process, lambda: bool(set(glob.glob(pattern)) - there))
    # What exists for a moment only may come and go between two looks: then the run went through.
    assert killed or (point not in _STAYS and process.returncode == 0)
    scene.check_readers_now()
    scene.catch_up(spark)
