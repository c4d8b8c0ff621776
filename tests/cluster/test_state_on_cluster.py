"""Queries with state on a cluster: what one executor wrote of it another reads, whoever died when."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import write_settings
from tests.cluster.ending import end
from tests.recovery.flows import FLOWS, make_flow
from tests.support.scene import NAME, kill_when
from tools.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tools.spark_cluster import SparkCluster

# `make test` takes a join, whose sides move the watermark apart, and a state of the transform's own, in Python.
KINDS = ["join", "pandas"] if os.environ.get("TIDEGATE_SWEEP", "0") == "0" else list(FLOWS)


@pytest.mark.parametrize("kind", KINDS)
def test_state_survives_executors_workers_and_drivers(
    kind: str, cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    scene = make_flow(tmp_path / "project", FLOWS[kind])
    write_settings(scene.root, cluster.master_url)
    for _ in range(6):
        scene.offer()
    process = scene.start("run", NAME)
    states = scene.state / "checkpoint" / "state"
    assert wait_until(lambda: any(states.glob("0/0/**/1.*")), 120, 0.01), "no state was written"
    cluster.kill_executor(cluster.list_executors()[0])
    assert wait_until(lambda: any(states.glob("0/0/**/2.*")), 120, 0.01)
    if process.poll() is None:
        for worker in cluster.workers:
            if worker.is_running() and worker.list_executors():
                cluster.kill_worker(worker.number)
    end(process, 0)
    scene.check_complete(spark)

    cluster.start_worker()
    for _ in range(3):
        scene.offer()
    attempts = set(scene.state.glob("state/*/*/*"))
    killed = kill_when(
        scene, scene.start("run", NAME), lambda: bool(set(scene.state.glob("state/*/*/*/rows")) - attempts)
    )
    assert killed, "the run ended before it could be killed"
    scene.check_readers_now()
    scene.tidegate("run", NAME)
    scene.tidegate("run", NAME)
    scene.check_complete(spark)
