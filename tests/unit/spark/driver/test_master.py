"""Masters, and what a run on a cluster is given that one in a single JVM is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.submits import plan
from tidegate.core.errors import TidegateError, TryAgainError, UsageError
from tidegate.spark.driver.cluster import OUTPUT_COMMITTER, check_master, explain_end
from tidegate.spark.driver.failures import explain
from tidegate.spec.project import load_project
from tidegate.spec.spark_settings import parse_master
from tools.processes import choose_free_port

MIB = 1 << 20


@pytest.mark.parametrize(
    ("url", "kind", "addresses"),
    [
        ("local", "local", ()),
        ("local[4]", "local", ()),
        ("local[*]", "local", ()),
        ("local[4, 2]", "local", ()),
        ("yarn", "yarn", ()),
        ("spark://a:7077", "standalone", (("a", 7077),)),
        ("spark://a.b:7077,c-d:7078", "standalone", (("a.b", 7077), ("c-d", 7078))),
        ("k8s://https://10.0.0.1:6443", "kubernetes", ()),
    ],
)
def test_masters(url: str, kind: str, addresses: tuple[tuple[str, int], ...]) -> None:
    master = parse_master(url)
    assert (master.kind, master.addresses, master.is_cluster) == (kind, addresses, kind != "local")


@pytest.mark.parametrize(
    "url", ["", "spark", "spark://a", "local[0]", "local[x]", "http://a:1", "local-cluster[1,1,1]"]
)
def test_what_is_no_master(url: str) -> None:
    with pytest.raises(ValueError, match="none of local"):
        parse_master(url)


def test_executors_run_their_own_python_and_the_driver_this_one(tmp_path: Path) -> None:
    local, cluster = plan(tmp_path, "local[2]"), plan(tmp_path, "spark://a:7077")
    assert local.env_vars["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in cluster.env_vars
    assert cluster.conf["spark.pyspark.python"] == "python3"
    assert cluster.conf["spark.pyspark.driver.python"] == sys.executable
    own = plan(tmp_path, "spark://a:7077", **{"spark.pyspark.python": "./env/bin/python"})
    assert own.conf["spark.pyspark.python"] == "./env/bin/python"


def test_on_a_cluster_the_driver_commits_what_tasks_wrote(tmp_path: Path) -> None:
    assert plan(tmp_path, "local[2]").conf[OUTPUT_COMMITTER] == "2"
    for master in ("spark://a:7077", "yarn", "k8s://https://a:1"):
        assert plan(tmp_path, master).conf[OUTPUT_COMMITTER] == "1"


def test_a_run_takes_as_many_cores_as_its_input_needs(tmp_path: Path) -> None:
    assert plan(tmp_path, "spark://a:7077").conf["spark.cores.max"] == "1"
    assert plan(tmp_path, "spark://a:7077", 100 * MIB).conf["spark.cores.max"] == "4"
    much = plan(tmp_path, "spark://a:7077", 100_000 * MIB)
    assert much.conf["spark.cores.max"] == much.conf["spark.sql.files.minPartitionNum"] == "8"
    own = plan(tmp_path, "spark://a:7077", 100_000 * MIB, **{"spark.cores.max": "20"})
    assert own.conf["spark.cores.max"] == own.conf["spark.sql.files.minPartitionNum"] == "20"
    assert "spark.cores.max" not in plan(tmp_path, "yarn", 100 * MIB).conf


def test_the_cores_of_this_machine_do_not_count_on_a_cluster(tmp_path: Path) -> None:
    executors = {"spark.executor.instances": "3", "spark.executor.cores": "5"}
    assert plan(tmp_path, "yarn", 100_000 * MIB, **executors).conf["spark.sql.files.minPartitionNum"] == "15"


def test_a_master_without_a_listener_is_away() -> None:
    check_master("local[2]", "orders")
    port = choose_free_port()
    with pytest.raises(TryAgainError, match=f"127.0.0.1:{port}: Connection refused") as caught:
        check_master(f"spark://127.0.0.1:{port}", "orders")
    assert caught.value.code == "MASTER_AWAY"


def test_yarn_needs_its_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR"):
        check_master("yarn", "orders")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    check_master("yarn", "orders")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Application has been killed. Reason: All masters are unresponsive! Giving up.", "MASTER_AWAY"),
        ("Application has been killed. Reason: Master removed our application: FAILED", "EXECUTORS_FAILED"),
        ("Application has been killed. Reason: Master removed our application: KILLED", "APPLICATION_ENDED"),
        ("nothing of the kind", "APPLICATION_ENDED"),
    ],
)
def test_the_log_tells_why_the_cluster_ended_a_run(tmp_path: Path, line: str, code: str) -> None:
    (tmp_path / "log").write_text(f"26/01/01 ERROR StandaloneSchedulerBackend: {line}\n")
    ended = TryAgainError("APPLICATION_ENDED", "the cluster ended this run")
    assert explain_end(ended, tmp_path / "log", "spark://a:1", "orders").code == code
    other: TidegateError = UsageError("TRANSFORM_FAILED", "x")
    assert explain_end(other, tmp_path / "log", "spark://a:1", "orders") is other


_OF_SPARK_4_1 = (  # what a 4.2.0 driver got from a worker of 4.1.1
    "Caused by: java.io.InvalidClassException: org.apache.spark.sql.execution.datasources.FilePartition; local class "
    "incompatible: stream classdesc serialVersionUID = 3232072498841715603, local class serialVersionUID = -5521658"
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (_OF_SPARK_4_1, "SPARK_DIFFERS"),
        ("Caused by: java.lang.NoSuchMethodError: 'void org.apache.spark.TaskContext.x()'", "SPARK_DIFFERS"),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", "APPLICATION_ENDED"),
        ("Lost task 0.3 in stage 1.0: ExecutorLostFailure (executor 3 exited): exit code 137", "EXECUTOR_LOST"),
        ("java.lang.ClassNotFoundException: com.example.Mine", "INGEST_FAILED"),
    ],
)
def test_what_goes_wrong_on_a_cluster_has_a_name_of_its_own(tmp_path: Path, text: str, code: str) -> None:
    assert explain(RuntimeError(text), "orders", tmp_path, tmp_path, on_cluster=True).code == code


def test_a_master_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\nspark:\n  master: sparc://a:7077\n")
    with pytest.raises(UsageError, match=r"tidegate\.yaml:3: spark\.master: the master 'sparc://a:7077' is none of"):
        load_project(tmp_path)
