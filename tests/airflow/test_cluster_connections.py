"""What each kind of Spark connection makes of a run: the command line, the settings and the environment that a
spark-submit gets. A stand-in takes the place of spark-submit and writes down what it was given: no cluster is asked.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.submits import plan
from tidegate.core.errors import UsageError

_STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > {told}/arguments
env > {told}/environment
while [ $# -gt 0 ]; do [ "$1" = --properties-file ] && cat "$2" > {told}/settings; shift; done
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in, which connections name as `spark3-submit`, writes what it was given."""
    binary = tmp_path / "bin" / "spark3-submit"
    binary.parent.mkdir()
    binary.write_text(_STAND_IN.format(told=tmp_path))
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def run(told: Path, monkeypatch: pytest.MonkeyPatch, host: str, port: int | None = None, **extra: str) -> list[str]:
    """Start a driver through a connection; its arguments."""
    from tidegate.airflow.hook import DriverHook

    connection: dict[str, Any] = {
        "conn_type": "spark",
        "host": host,
        "extra": {"spark-binary": "spark3-submit", **extra},
    }
    monkeypatch.setenv("AIRFLOW_CONN_GATE", json.dumps({**connection, **({"port": port} if port else {})}))
    hook = DriverHook(conn_id="gate", name="tidegate-orders")
    submitted = plan(told, hook.master, 100 << 20, **{"spark.executor.memory": "2g"})
    assert hook.run(submitted) == 0
    return (told / "arguments").read_text().splitlines()


def settings(told: Path) -> dict[str, str]:
    """The settings that spark-submit was given."""
    lines = (told / "settings").read_text().splitlines()
    return {key: value.replace("\\", "") for key, _, value in (line.partition("=") for line in lines)}


def environment(told: Path) -> dict[str, str]:
    """The environment of spark-submit."""
    pairs = (line.partition("=") for line in (told / "environment").read_text().splitlines())
    return {key: value for key, _, value in pairs}


@pytest.mark.parametrize(
    ("host", "port", "extra", "master"),
    [
        ("local[2]", None, {}, "local[2]"),
        ("spark://one", 7077, {}, "spark://one:7077"),
        ("spark://one:7077,two:7077", None, {"deploy-mode": "client"}, "spark://one:7077,two:7077"),
        ("yarn", None, {"queue": "ingest"}, "yarn"),
        ("k8s://https://10.0.0.1", 6443, {"namespace": "data"}, "k8s://https://10.0.0.1:6443"),
    ],
)
def test_the_command_line(
    told: Path, monkeypatch: pytest.MonkeyPatch, host: str, port: int | None, extra: dict[str, str], master: str
) -> None:
    if master.startswith("k8s"):
        # The provider wants the package to be there; in client mode it does nothing with it.
        monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    arguments = run(told, monkeypatch, host, port, **extra)
    assert arguments[:2] == ["--master", master]
    given = dict(pairwise(arguments))
    assert given["--name"] == "tidegate-orders" and given["--driver-memory"] == "1g"
    assert arguments[-2:] == [str(told / "jobs/tidegate_job.py"), str(told / "order.json")]
    assert given.get("--queue") == extra.get("queue")
    if master.startswith("k8s"):
        assert "spark.kubernetes.namespace=data" in arguments
    conf = settings(told)
    assert conf["spark.executor.memory"] == "2g"
    assert ("spark.cores.max" in conf) == master.startswith("spark://")
    assert conf["spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"] == ("2" if "local" in master else "1")
    assert environment(told)["PYSPARK_DRIVER_PYTHON"] == sys.executable
    if "local" not in master:
        assert (conf["spark.pyspark.python"], conf["spark.pyspark.driver.python"]) == ("python3", sys.executable)


@pytest.mark.parametrize("host", ["spark://one:7077", "yarn", "k8s://https://10.0.0.1:6443"])
def test_cluster_mode_is_refused_with_the_reason(told: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    with pytest.raises(UsageError, match="a driver on another machine would continue") as caught:
        run(told, monkeypatch, host, **{"deploy-mode": "cluster"})
    assert caught.value.code == "CONNECTION_INVALID"
    assert not (told / "arguments").exists()


def test_kubernetes_without_its_package_is_refused(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", raising=False)
    with pytest.raises(UsageError, match="needs the Python package `kubernetes`") as caught:
        run(told, monkeypatch, "k8s://https://10.0.0.1:6443")
    assert caught.value.code == "SPARK_KUBERNETES_MISSING"


def test_a_binary_that_is_not_there(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="SPARK_SUBMIT_MISSING: spark2-submit, which connection 'gate' asks for"):
        run(told, monkeypatch, "local[2]", **{"spark-binary": "spark2-submit"})
