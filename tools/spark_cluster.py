"""A local Spark standalone cluster (one master, some workers) of pyspark's own jars, for the tests and the benchmarks.

cluster = start_cluster(tmp_path / "cluster", workers=2)        # free ports; dies with the calling thread
... cluster.master_url ...
cluster.kill_worker(0); cluster.start_worker()
cluster.kill_executor(cluster.list_executors()[0])
cluster.kill_master(); cluster.restart_master()                 # it knows its workers and applications again
cluster.stop()
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.spark.driver.jvm import jvm_options
from tidegate.spark.driver.jvm_archive import find_archive
from tools.console import ToolError
from tools.processes import choose_free_port, list_session, start_process, tail_log, wait_until

HOST = "127.0.0.1"
READY_TIMEOUT_SECONDS = 60
# A worker that is silent for so many seconds counts as dead; 60 unless told otherwise.
_SETTINGS = ("-Dspark.worker.timeout=20",)


@dataclass
class Worker:
    """One worker process; its executors are its children, in its session."""

    number: int
    process: subprocess.Popen[bytes]
    log_path: Path

    def is_running(self) -> bool:
        """Whether the worker lives."""
        return self.process.poll() is None

    def list_executors(self) -> list[int]:
        """The pids of the executors that run here."""
        return [pid for pid in list_session(self.process.pid) if pid != self.process.pid and _is_executor(pid)]


@dataclass
class SparkCluster:
    """A running cluster; made by :func:`start_cluster`."""

    folder: Path
    port: int
    ui_port: int
    master: subprocess.Popen[bytes]
    env: dict[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)

    @property
    def master_url(self) -> str:
        """What a Spark connection names."""
        return f"spark://{HOST}:{self.port}"

    @property
    def log_path(self) -> Path:
        """Where the master writes what it does."""
        return self.folder / "master.log"

    def fetch_status(self) -> dict[str, Any]:
        """What the master says of itself: workers, cores, active applications."""
        with urllib.request.urlopen(f"http://{HOST}:{self.ui_port}/json/", timeout=5) as answer:
            return dict(json.load(answer))

    def count_alive_workers(self) -> int:
        """Workers that the master counts on; 0 while it does not answer."""
        return len(self._list_alive_workers())

    def _list_alive_workers(self) -> set[str]:
        """The ids of the workers that the master counts on; none while it does not answer."""
        try:
            return {worker["id"] for worker in self.fetch_status()["workers"] if worker["state"] == "ALIVE"}
        except (OSError, ValueError):
            return set()

    def list_executors(self) -> list[int]:
        """The pids of all executors, of every application."""
        return [pid for worker in self.workers for pid in worker.list_executors()]

    def start_worker(
        self, *, cores: int = 1, memory: str = "1g", env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()
    ) -> Worker:
        """Add a worker and wait until the master counts on it. ``prefix``: a command that the worker runs under."""
        # Ids, not a count: the master may only now notice that a killed worker is gone.
        before = self._list_alive_workers()
        number = len(self.workers)
        log_path = self.folder / f"worker-{number}.log"
        arguments = ["--host", HOST, "--webui-port", "0", "--cores", str(cores), "--memory", memory]
        arguments += ["--work-dir", str(self.folder / f"work-{number}"), self.master_url]
        command = [*prefix, *_java_command("org.apache.spark.deploy.worker.Worker"), *arguments]
        process = start_process(command, log_path, env={**self.env, **(env or {})}, cwd=self.folder)
        worker = Worker(number, process, log_path)
        self.workers.append(worker)
        if not wait_until(lambda: bool(self._list_alive_workers() - before), READY_TIMEOUT_SECONDS, 0.1):
            raise ToolError(f"the Spark worker did not register in {READY_TIMEOUT_SECONDS} s:\n{tail_log(log_path)}")
        return worker

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and its executors: the machine is gone."""
        worker = self.workers[number]
        for pid in [worker.process.pid, *list_session(worker.process.pid)]:
            _kill(pid)
        worker.process.wait()

    def kill_executor(self, pid: int) -> None:
        """SIGKILL to one executor; its worker lives on."""
        _kill(pid)

    def kill_master(self) -> None:
        """SIGKILL to the master; what it knew is in its recovery folder."""
        self.master.kill()
        self.master.wait()

    def restart_master(self) -> None:
        """Start the master again, on its ports and with what it knew."""
        self.master = _start_master(self.folder, self.port, self.ui_port, self.env)
        self.wait_for_master()

    def wait_for_master(self) -> None:
        """Wait until the master answers."""

        def answers() -> bool:
            try:
                return bool(self.fetch_status()["status"] == "ALIVE")
            except (OSError, ValueError):
                return False

        if not wait_until(lambda: self.master.poll() is not None or answers(), READY_TIMEOUT_SECONDS, 0.1):
            raise ToolError(f"the Spark master did not answer:\n{tail_log(self.log_path)}")
        if self.master.poll() is not None:
            raise ToolError(f"the Spark master ended at once:\n{tail_log(self.log_path)}")

    def stop(self) -> None:
        """End all of it."""
        for worker in self.workers:
            for pid in [worker.process.pid, *list_session(worker.process.pid)]:
                _kill(pid)
            worker.process.wait()
        self.kill_master()


def start_cluster(
    folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g", env: Mapping[str, str] | None = None
) -> SparkCluster:
    """Start a master and ``workers`` workers of ``cores`` cores and ``memory`` each, and wait until all are in.

    ``env`` is the environment of the cluster's processes on top of PATH and JAVA_HOME alone: executors have what a
    machine of a cluster has, not what this process has. Raises :class:`ToolError` when it does not come up.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: os.environ[key] for key in ("PATH", "JAVA_HOME", "HOME", "LANG", "TMPDIR") if key in os.environ}
    # The second is what bin/spark-class finds out: without it a worker cannot start an executor.
    environment = {**kept, "SPARK_HOME": str(_spark_home()), "SPARK_SCALA_VERSION": "2.13", **(env or {})}
    port, ui_port = choose_free_port(), choose_free_port()
    cluster = SparkCluster(folder, port, ui_port, _start_master(folder, port, ui_port, environment), environment)
    try:
        cluster.wait_for_master()
        for _ in range(workers):
            cluster.start_worker(cores=cores, memory=memory)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _start_master(folder: Path, port: int, ui_port: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    recovery = folder / "recovery"
    recovery.mkdir(exist_ok=True)
    options = ("-Dspark.deploy.recoveryMode=ROCKSDB", f"-Dspark.deploy.recoveryDirectory={recovery}")
    arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(ui_port)]
    command = [*_java_command("org.apache.spark.deploy.master.Master", options), *arguments]
    return start_process(command, folder / "master.log", env=env, cwd=folder)


def _java_command(main_class: str, options: tuple[str, ...] = ()) -> list[str]:
    java = shutil.which("java")
    if java is None:
        raise ToolError("no `java` on PATH", "install Java 17 (Debian: apt install openjdk-17-jre-headless)")
    home = _spark_home()
    # As Spark's launcher writes it: the class archive is good for this list alone.
    class_path = f"{home}/conf/:{next((home / 'jars').glob('slf4j-api-*.jar'))}:{home}/jars/*"
    jvm = ["-Xmx512m", *jvm_options(0, find_archive())]
    return [java, *jvm, *_SETTINGS, *options, "-cp", class_path, main_class]


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__path__[0])


def _is_executor(pid: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
