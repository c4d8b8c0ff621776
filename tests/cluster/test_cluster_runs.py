"""Runs on a real cluster: a `spark://` master is the only change; and what dies under a run costs no record."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.cluster.conftest import hold_rows, let_go, make_clustered, wait_for_rows
from tests.cluster.ending import end
from tests.support.scene import NAME, Scene
from tools.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tools.spark_cluster import SparkCluster


def test_a_cluster_is_only_another_master(cluster: SparkCluster, tmp_path: Path, spark: SparkSession) -> None:
    secret = "canary-of-the-executors"
    scene = make_clustered(tmp_path / "project", cluster.master_url, spark_hadoop_fs_s3a_secret_key=secret)
    report = scene.report("run", NAME)
    assert report["outcome"] == "published"
    scene.check_complete(spark)
    said = [path for path in cluster.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert not said, f"a secret setting is in the cluster's logs: {said}"
    scene.offer()
    scene.tidegate("run", NAME)
    scene.check_complete(spark)
    assert scene.report("run", NAME)["outcome"] == "nothing_new"
    assert wait_until(lambda: not cluster.list_executors(), 15), "executors outlive their run"
    assert not (scene.state / "staging").exists() or not any((scene.state / "staging").iterdir())


def test_an_executor_that_dies_is_replaced_in_the_run(scene: Scene, cluster: SparkCluster, spark: SparkSession) -> None:
    hold_rows(scene)
    process = scene.start("run", NAME)
    wait_for_rows(scene)
    [executor] = cluster.list_executors()
    cluster.kill_executor(executor)
    let_go(scene)
    end(process, 0)
    scene.check_complete(spark)


def test_a_worker_that_dies_is_replaced_by_another(scene: Scene, cluster: SparkCluster, spark: SparkSession) -> None:
    hold_rows(scene)
    process = scene.start("run", NAME)
    wait_for_rows(scene)
    [busy] = [worker for worker in cluster.workers if worker.list_executors()]
    cluster.kill_worker(busy.number)
    let_go(scene)
    end(process, 0)
    scene.check_complete(spark)


def test_the_master_may_restart_in_mid_run(scene: Scene, cluster: SparkCluster, spark: SparkSession) -> None:
    hold_rows(scene)
    process = scene.start("run", NAME)
    wait_for_rows(scene)
    cluster.kill_master()
    cluster.restart_master()
    # And it goes on being one: an executor that dies after it is replaced through the new master.
    assert wait_until(lambda: cluster.count_alive_workers() == 2, 90, 0.2)
    [executor] = cluster.list_executors()
    cluster.kill_executor(executor)
    let_go(scene)
    end(process, 0)
    scene.check_complete(spark)


def test_executors_end_with_a_driver_that_is_killed(scene: Scene, cluster: SparkCluster, spark: SparkSession) -> None:
    hold_rows(scene)
    process = scene.start("run", NAME)
    wait_for_rows(scene)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    scene.wait_until_gone()
    assert wait_until(lambda: not cluster.list_executors(), 15), "executors outlive a killed run"
    scene.check_readers_now()
    let_go(scene)
    scene.tidegate("run", NAME)
    scene.check_complete(spark)
    assert scene.report("run", NAME)["outcome"] == "nothing_new"


def test_without_any_executor_a_run_ends_and_the_next_goes_on(
    cluster: SparkCluster, tmp_path: Path, spark: SparkSession
) -> None:
    limit = {"spark_scheduler_maxRegisteredResourcesWaitingTime": "5s"}
    scene = make_clustered(tmp_path / "project", cluster.master_url, **limit)
    hold_rows(scene)
    process = scene.start("run", NAME)
    wait_for_rows(scene)
    for worker in cluster.workers:
        if worker.is_running():
            cluster.kill_worker(worker.number)
    said = end(process, 75)
    assert "NO_EXECUTORS" in said and "for 5 s" in said
    said = end(scene.start("run", NAME), 75)  # nor does one begin
    assert "NO_EXECUTORS" in said
    cluster.start_worker()
    let_go(scene)
    scene.tidegate("run", NAME)
    scene.check_complete(spark)


def test_a_frozen_executor_changes_nothing_when_it_thaws(
    scene: Scene, cluster: SparkCluster, spark: SparkSession
) -> None:
    hold_rows(scene)
    process = scene.start("run", NAME)
    wait_for_rows(scene)
    [frozen] = cluster.list_executors()
    [worker] = [worker.process.pid for worker in cluster.workers if worker.list_executors()]
    for pid in (worker, frozen):  # a worker that is awake would kill its executor when it is told to
        os.kill(pid, signal.SIGSTOP)
    try:
        # The driver finds it silent and asks for another, the master finds its worker silent; rows are computed again.
        assert wait_until(lambda: len(cluster.list_executors()) == 2, 120, 0.1)
        let_go(scene)
        end(process, 0)
        scene.check_complete(spark)
    finally:
        for pid in (frozen, worker):
            os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: not cluster.list_executors(), 30, 0.1)
    scene.check_complete(spark)
    assert scene.report("run", NAME)["outcome"] == "nothing_new"
