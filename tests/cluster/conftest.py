"""A real standalone cluster, one master and two workers as processes, and a project that runs on it.

The workers have nothing of this process's environment but PATH and Java's home: what runs there has what a machine of a
cluster has.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scene import Scene, make_scene
from tidegate.spark.driver.jvm import jvm_options
from tidegate.spark.driver.jvm_archive import find_archive
from tools.processes import wait_until
from tools.spark_cluster import SparkCluster, start_cluster

WORKERS = 2

# Rows wait on the executors as long as the file `hold` is there, and say that they do.
WAITING_TRANSFORM = '''"""Let rows through when the test says so."""

import os
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(orders: DataFrame) -> DataFrame:
    """Hold every row while the file `hold` is there."""
    root = {root!r}

    @F.udf("int")
    def wait(amount):
        while os.path.exists(root + "/hold"):
            open(root + "/waiting-" + str(os.getppid()), "w").close()
            time.sleep(0.05)
        return amount

    return orders.withColumn("amount", wait("amount"))
'''


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """The cluster of the session; it dies with it."""
    # `python3` of the workers is this one; tests of another Python bring workers of their own.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    cluster = start_cluster(tmp_path_factory.mktemp("cluster"), workers=WORKERS, env={"PATH": path})
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(started_cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SparkCluster]:
    """The cluster, whole: what an earlier test killed is replaced."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    if started_cluster.master.poll() is not None:
        started_cluster.restart_master()
    for _ in range(WORKERS - sum(worker.is_running() for worker in started_cluster.workers)):
        started_cluster.start_worker()
    assert wait_until(lambda: started_cluster.count_alive_workers() == WORKERS, 90, 0.2), "the cluster is not whole"
    yield started_cluster
    # A run that a failed test has left behind would take executors from the next.
    for pid in find_runs(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def scene(cluster: SparkCluster, tmp_path: Path) -> Scene:
    """A project on the cluster; one file is offered."""
    return make_clustered(tmp_path / "project", cluster.master_url)


def find_runs(root: Path) -> list[int]:
    """The pids of commands that run on a project below ``root``."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"--project\0{root}/".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def make_clustered(root: Path, master_url: str, **conf: str) -> Scene:
    """A project whose master is ``master_url``, with one file offered; ``conf`` keys have _ for dots."""
    made = make_scene(root)
    write_settings(root, master_url, **conf)
    made.offer()
    return made


def write_settings(root: Path, master_url: str, **conf: str) -> None:
    """The settings of a project on that cluster. A silent executor counts as lost sooner than Spark's two minutes."""
    settings = {"spark.network.timeout": "20s", "spark.network.timeoutInterval": "5s"}
    settings |= {"spark.executor.heartbeatInterval": "2s"}
    # An executor of a test lives for seconds, as the driver of a small run does.
    settings |= {"spark.executor.extraJavaOptions": " ".join(jvm_options(0, find_archive()))}
    settings |= {key.replace("_", "."): value for key, value in conf.items()}
    project = {"spark": {"master": master_url, "conf": settings}, "lease": {"expires_after": "5 seconds"}}
    (root / "tidegate.yaml").write_text(json.dumps({"version": 1, **project}))


def hold_rows(scene: Scene) -> None:
    """Have every row wait on its executor until :func:`let_go`."""
    (scene.root / "jobs/orders/transform.py").write_text(WAITING_TRANSFORM.format(root=str(scene.root)))
    spec = scene.root / "jobs/orders/pipeline.yaml"
    if "transform:" not in spec.read_text():
        spec.write_text(spec.read_text() + "transform: transform.py\n")
    (scene.root / "hold").touch()


def wait_for_rows(scene: Scene) -> None:
    """Wait until rows wait on an executor."""
    assert wait_until(lambda: any(scene.root.glob("waiting-*")), 90, 0.05), "no row has reached an executor"


def let_go(scene: Scene) -> None:
    """Let the rows through."""
    (scene.root / "hold").unlink()
    for waiting in scene.root.glob("waiting-*"):
        waiting.unlink()
