"""A team's stack from the first `make up` to `make down`, on a container engine: what a person sees, and what stays
whole when parts of it die. One stack; each test goes on from what the one before it left.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from tests.compose.pipelines import add_pipelines
from tests.compose.records import KEYS, PIPELINES, Records
from tests.compose.stack import ALL, RUN_SECONDS, Stack
from tools.airflow_client import AirflowClient
from tools.console import ToolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_RUNNING = {
    "core": {"postgres", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"},
    "kafka": {"kafka"},
    "cluster": {"spark-master", "spark-worker"},
}
OURS = {"tidegate:local"}
CLUSTER = "spark://spark-master:7077"
PUBLISHED_WITHIN_SECONDS = 600
TAKEN_OVER_WITHIN_SECONDS = 60


def test_core_comes_up_and_publishes(stack: Stack, records: Records) -> None:
    add_pipelines(stack.folder)
    said = stack.up("core")
    assert "Airflow   http" in said
    assert set(stack.ids()) == LONG_RUNNING["core"]
    told = stack.client.fetch_health()
    assert {name for name, part in told.items() if part and part["status"] == "healthy"} == {
        *("metadatabase", "scheduler", "triggerer", "dag_processor"),
    }
    assert not stack.client.list_import_errors()
    records.make("orders")
    started = time.monotonic()
    stack.wait_for_runs(stack.trigger("orders"))
    stack.note(f"orders published {time.monotonic() - started:.0f} s after its trigger (the first run of a driver)")


def test_who_may_do_what(stack: Stack) -> None:
    for service, [container, *_] in stack.containers().items():
        assert (
            container["HostConfig"]["Memory"] > 0 and "no-new-privileges:true" in container["HostConfig"]["SecurityOpt"]
        )
        if service == "postgres":
            continue
        assert container["Config"]["Image"] in OURS and container["HostConfig"]["CapDrop"] == ["ALL"]
        status = stack.run("grep", "-E", "^(Uid|CapEff|NoNewPrivs)", "/proc/self/status", service=service).split()
        assert status[1] == "10001" and set(status[6]) == {"0"} and status[8] == "1", service
    for target in ("jobs", "dags", "tidegate.yaml", "expectations", "plugins"):
        said = stack.run("touch", f"/opt/tidegate/{target}", check=False)
        assert "Read-only file system" in said or "Permission denied" in said, said
    outside = {
        one["NetworkSettings"]["Ports"].get("8080/tcp", [{}])[0].get("HostIp") if ports else None
        for found in stack.containers().values()
        for one in found
        if (ports := any(one["NetworkSettings"]["Ports"].values()))
    }
    assert outside == {"127.0.0.1"}


def test_the_login_is_the_one_of_the_env_file(stack: Stack) -> None:
    assert stack.client.fetch_token()
    with pytest.raises(ToolError, match="refuses the login"):
        AirflowClient(stack.client.url, "admin", "admin").fetch_token()
    assert requests.get(f"{stack.client.url}/api/v2/dags", timeout=10).status_code == 401


def test_more_profiles_recreate_nothing(stack: Stack) -> None:
    """Container ids over core -> core,kafka -> all -> the same again; the master then recreates the scheduler alone."""
    before = stack.ids()
    for profiles in ("core,kafka", ALL, ALL):
        stack.up(profiles)
        after = stack.ids()
        assert {service: after[service] for service in before} == before, profiles
        assert set(after) == set().union(*(LONG_RUNNING[name] for name in profiles.split(",")))
        before = after
    stack.note(f"container ids over three changes of profiles: none of {sum(map(len, before.values()))} changed")
    stack.set(SPARK_MASTER=CLUSTER)
    stack.up()
    after = stack.ids()
    assert {service for service in before if after[service] != before[service]} == {"airflow-scheduler"}


def test_every_example_publishes_on_the_cluster(
    stack: Stack, records: Records, tmp_path: Path, spark: SparkSession
) -> None:
    """All at once, two workers with a core each, 20,000 orders: within ten minutes of the trigger."""
    records.make("orders", 20_000)
    for name in PIPELINES[1:]:
        records.make(name)
    started = time.monotonic()
    runs = stack.trigger(*PIPELINES)
    for run in runs:
        stack.wait_for_runs([run], PUBLISHED_WITHIN_SECONDS)
        stack.note(f"{run[0]} published {time.monotonic() - started:.0f} s after the trigger of all seven")
    assert time.monotonic() - started < PUBLISHED_WITHIN_SECONDS
    records.check(tmp_path, spark, *PIPELINES)
    for name in PIPELINES:
        stack.client.pause(name)  # no ticks from here on


def test_status_names_the_topic_of_each_pipeline_when_the_broker_is_away(stack: Stack) -> None:
    stack.compose("stop", "kafka")
    said = stack.run("tidegate", "status", check=False)
    stack.compose("start", "kafka")
    for name, topic in (("clicks", "topic clicks"), ("word_count", "topic lines"), ("ad_clicks", "ad_impressions")):
        block = _find_block(said, name)
        assert "BROKER_AWAY" in block and topic in block, said
    stack.wait_healthy()


def _find_block(said: str, name: str) -> str:
    """The lines of a pipeline in the output of status."""
    lines = said.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"{name}: "))
    end = next((number for number in range(begin + 1, len(lines)) if not lines[number].startswith(" ")), len(lines))
    return "\n".join(lines[begin:end])


def test_a_scheduler_that_dies_takes_up_its_queued_tasks(stack: Stack, records: Records) -> None:
    """Killed ten seconds after a trigger, restarted by Docker at once."""
    records.make("orders", 2_000)
    records.make("clicks", 2_000)
    runs = stack.trigger("orders", "clicks")
    stack.wait_for_state("orders", runs[0][1], "ingest", {"queued", "running"})
    stack.kill("airflow-scheduler")
    _wait_for_take_over(stack, "scheduler killed with queued tasks", *runs[0])
    stack.wait_for_runs(runs)


@pytest.mark.parametrize("victim", ["airflow-scheduler", "spark-worker", "kafka", "postgres", "airflow-api-server"])
def test_a_service_that_dies_in_the_middle_of_a_run(victim: str, stack: Stack, records: Records) -> None:
    for name in KEYS:
        records.make(name, 3_000)
    runs = stack.trigger(*KEYS)
    stack.wait_for_driver("clicks", runs[1][1])
    started = time.monotonic()
    stack.kill(victim)
    if victim == "airflow-scheduler":
        _wait_for_take_over(stack, "scheduler killed in an ingest", *runs[1])
    stack.wait_for_runs(runs)
    stack.note(f"{victim} killed in the middle of two runs: both published {time.monotonic() - started:.0f} s later")
    stack.wait_healthy()


def _wait_for_take_over(stack: Stack, what: str, name: str, run_id: str) -> None:
    """Until the task that the dead scheduler had is running again, as another try."""
    killed = time.monotonic()
    before = stack.client.fetch_task(name, run_id, "ingest")
    while True:
        now = stack.client.fetch_task(name, run_id, "ingest")
        if now["id"] != before["id"] and now["state"] in ("running", "success"):
            break
        waited = time.monotonic() - killed
        assert waited < TAKEN_OVER_WITHIN_SECONDS + 120, f"{now['state']} after {waited:.0f} s\n{stack.tell()}"
        time.sleep(0.5)
    seconds = time.monotonic() - killed
    stack.note(f"{what}: its task ran again after {seconds:.0f} s")
    assert seconds < TAKEN_OVER_WITHIN_SECONDS


def test_a_driver_that_reaches_the_memory_limit(stack: Stack, records: Records) -> None:
    """The kernel ends the driver, and nothing else: its task says what happened, and the next try publishes."""
    stack.set(SCHEDULER_MEMORY="3g", SPARK_MASTER="local[2]")
    stack.up()
    scheduler = stack.ids()["airflow-scheduler"]
    stack.run("sh", "-c", "mkdir -p data/inbox/greedy && echo 1 > data/inbox/greedy/one.csv && touch data/be_greedy")
    records.make("orders", 1_000)
    [greedy] = stack.trigger("greedy")
    stack.wait_for_state(*greedy, "ingest", {"up_for_retry"})
    log = stack.client.fetch_log(*greedy, "ingest", 1)
    assert "ended by SIGKILL, by a person or by the kernel because memory ran out" in log, log[-3000:]
    stack.note("a driver at the memory limit of its container: " + _find_error(log))
    stack.run("rm", "data/be_greedy")
    stack.wait_for_runs([*stack.trigger("orders"), greedy])
    assert stack.ids()["airflow-scheduler"] == scheduler, "it has outlived its driver"
    stack.set(SCHEDULER_MEMORY="8g", SPARK_MASTER=CLUSTER)


def _find_error(log: str) -> str:
    """The first lines of the error in a task's log."""
    lines = log.splitlines()
    [first, *_] = [number for number, line in enumerate(lines) if line.startswith("DRIVER_DIED")]
    return lines[first][:200]


def test_two_schedulers(stack: Stack, records: Records) -> None:
    """One of two dies in the middle of a run: the other takes up its tasks."""
    stack.set(AIRFLOW_SCHEDULERS="2")
    before = stack.ids()
    stack.up()
    after = stack.ids()
    assert len(after["airflow-scheduler"]) == 2 and before["airflow-scheduler"] < after["airflow-scheduler"]
    for name in KEYS:
        records.make(name, 3_000)
    runs = stack.trigger(*KEYS)
    stack.wait_for_driver("clicks", runs[1][1])
    stack.kill("airflow-scheduler")
    stack.wait_for_runs(runs)
    stack.set(AIRFLOW_SCHEDULERS="1")
    stack.up()
    assert len(stack.ids()["airflow-scheduler"]) == 1


def test_an_upgrade_of_the_image_with_runs_under_way(stack: Stack, records: Records) -> None:
    """Every service of the image is made anew. The scheduler goes first; what it runs ends well, at the first try."""
    with (stack.folder / "src" / "tidegate" / "words.py").open("a") as source:
        source.write("# another version\n")
    for name in KEYS:
        records.make(name, 3_000)
    runs = stack.trigger(*KEYS)
    stack.wait_for_driver("clicks", runs[1][1])
    before, since = stack.ids(), time.time()
    said = stack.up()
    assert "stopping the scheduler first" in said
    after = stack.ids()
    assert {service for service in before if after[service] == before[service]} == {"postgres"}
    first = next(service for at, service, what in stack.list_events() if at > since and what == "die")
    assert first == "airflow-scheduler"
    stack.wait_for_runs(runs)
    assert stack.client.fetch_task("clicks", runs[1][1], "ingest")["try_number"] == 1


def test_down_and_up_with_runs_under_way(stack: Stack, records: Records) -> None:
    """A task that is done within the 90 seconds ends well; one that is not says that it was stopped. Nothing that tasks
    need ends before the scheduler, and everything goes on afterwards."""
    records.make("orders", 3_000)
    stack.run("sh", "-c", "mkdir -p data/inbox/slow && echo 600 > data/inbox/slow/long.csv")
    runs = stack.trigger("orders", "slow")
    stack.wait_for_driver("orders", runs[0][1])
    stack.wait_for_driver("slow", runs[1][1])
    since = time.time()
    stack.down()
    ended = [service for at, service, what in stack.list_events() if at > since and what == "die"]
    needed = {"postgres", "airflow-api-server", "kafka", "spark-master", "spark-worker"}
    assert needed.isdisjoint(ended[: ended.index("airflow-scheduler")]), ended
    assert not stack.ids()
    stack.run("true", check=False)
    stack.up()
    stack.run("sh", "-c", "echo 1 > data/inbox/slow/short.csv")
    log = stack.client.fetch_log("slow", runs[1][1], "ingest", 1)
    assert "the task was stopped" in log and "out of memory" not in log, log[-3000:]
    task = stack.client.fetch_task("orders", runs[0][1], "ingest")
    assert (task["state"], task["try_number"]) == ("success", 1), stack.explain("orders", runs[0][1])
    stack.wait_for_runs(runs[:1])


def test_every_record_is_there_once(stack: Stack, records: Records, tmp_path: Path, spark: SparkSession) -> None:
    records.check(tmp_path, spark, *PIPELINES)
    shutil.rmtree(tmp_path / "data")
    stack.note("every record of seven pipelines is in its table or in quarantine, once, for three readers")
    assert RUN_SECONDS
