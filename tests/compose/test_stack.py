"""A team's stack from the first `make up` to `make down`, on a container engine: what a person sees, and what stays
whole when parts of it die. One stack; each test goes on from what the one before it left.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from tests.compose.pipelines import prepare_pipelines
from tests.compose.records import KEYS, PIPELINES, Records
from tests.compose.stack import ALL, IMAGE, Stack
from tools.airflow_client import AirflowClient
from tools.compose import NEEDED_BY_TASKS
from tools.console import ToolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_RUNNING = {
    "core": {"postgres", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"},
    "kafka": {"kafka"},
    "cluster": {"spark-master", "spark-worker"},
}
CLUSTER = "spark://spark-master:7077"
PUBLISHED_WITHIN_SECONDS = 600
TAKEN_OVER_WITHIN_SECONDS = 60


def test_core_comes_up_and_publishes(stack: Stack, records: Records) -> None:
    prepare_pipelines(stack.folder)
    said = stack.up("core")
    assert "Airflow   http" in said
    assert set(stack.ids()) == LONG_RUNNING["core"]
    health = stack.client.fetch_health()
    assert {name for name, part in health.items() if part and part["status"] == "healthy"} == {
        *("metadatabase", "scheduler", "triggerer", "dag_processor"),
    }
    assert not stack.client.list_import_errors()
    records.make("orders")
    started = time.monotonic()
    stack.wait_for_runs(stack.trigger("orders"))
    stack.note(f"orders published {time.monotonic() - started:.0f} s after its trigger (the first run of a driver)")


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


def test_no_service_can_do_more_than_it_must(stack: Stack) -> None:
    for service, [container, *_] in stack.containers().items():
        host = container["HostConfig"]
        assert host["Memory"] > 0 and "no-new-privileges:true" in host["SecurityOpt"], service
        if service != "postgres":
            assert (container["Config"]["Image"], host["CapDrop"]) == (IMAGE, ["ALL"]), service
            lines = stack.run("grep", "-E", "^(Uid|CapEff|NoNewPrivs)", "/proc/self/status", service=service)
            assert {"Uid:\t10001\t10001\t10001\t10001", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"} == {
                *lines.strip().splitlines()
            }, service
    for target in ("jobs", "dags", "tidegate.yaml", "expectations", "plugins"):
        # Whose they are would refuse it as well: the mount itself must be read-only.
        options = stack.run("grep", f" /opt/tidegate/{target} ", "/proc/mounts").split()[3]
        assert options.split(",")[0] == "ro", target
    published = [
        binding
        for found in stack.containers().values()
        for container in found
        for bindings in container["NetworkSettings"]["Ports"].values()
        for binding in bindings or ()
    ]
    assert published == [{"HostIp": "127.0.0.1", "HostPort": stack.settings["AIRFLOW_PORT"]}]


def test_every_example_publishes_on_the_cluster(
    stack: Stack, records: Records, tmp_path: Path, spark: SparkSession
) -> None:
    """All at once, two workers with a core each, 20,000 orders: within ten minutes of the trigger."""
    records.make("orders", 20_000)
    for name in PIPELINES[1:]:
        records.make(name)
    started = time.monotonic()
    for run in stack.trigger(*PIPELINES):
        stack.wait_for_runs([run], PUBLISHED_WITHIN_SECONDS)
        stack.note(f"{run[0]} published {time.monotonic() - started:.0f} s after the trigger of all seven")
    assert time.monotonic() - started < PUBLISHED_WITHIN_SECONDS
    records.check(tmp_path, spark, *PIPELINES)


def test_status_names_the_topic_of_each_pipeline_when_the_broker_is_away(stack: Stack) -> None:
    expected = stack.count()
    stack.compose("stop", "kafka")
    said = stack.run("tidegate", "status", check=False)
    stack.compose("start", "kafka")
    for name, topic in (("clicks", "topic clicks"), ("word_count", "topic lines"), ("ad_clicks", "ad_impressions")):
        block = _find_block(said, name)
        assert "BROKER_AWAY" in block and topic in block, said
    stack.wait_healthy(expected)


def _find_block(said: str, name: str) -> str:
    """The lines of a pipeline in the output of status."""
    lines = said.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"{name}: "))
    end = next((number for number in range(begin + 1, len(lines)) if not lines[number].startswith(" ")), len(lines))
    return "\n".join(lines[begin:end])


def test_a_scheduler_that_dies_takes_up_its_queued_tasks(stack: Stack, records: Records) -> None:
    """Killed as soon as a task is queued, and restarted by Docker."""
    for name in KEYS:
        records.make(name, 2_000)
    runs = stack.trigger(*KEYS)
    stack.client.wait_for_task(*runs[0], "ingest", {"queued", "running"})
    stack.kill("airflow-scheduler")
    _wait_for_take_over(stack, "scheduler killed with queued tasks", *runs[0])
    stack.wait_for_runs(runs)


@pytest.mark.parametrize("victim", ["airflow-scheduler", "spark-worker", "kafka", "airflow-api-server"])
def test_a_service_that_dies_in_the_middle_of_a_run(victim: str, stack: Stack, records: Records) -> None:
    runs = _have_runs_under_way(stack, records)
    expected, started = stack.count(), time.monotonic()
    stack.kill(victim)
    if victim == "airflow-scheduler":
        _wait_for_take_over(stack, "scheduler killed in an ingest", *runs[1])
    stack.wait_for_runs(runs)
    stack.note(f"{victim} killed in the middle of two runs: both published {time.monotonic() - started:.0f} s later")
    stack.wait_healthy(expected)


def _have_runs_under_way(stack: Stack, records: Records) -> list[tuple[str, str]]:
    """Runs of orders and clicks; the driver of clicks is at work."""
    for name in KEYS:
        records.make(name, 3_000)
    runs = stack.trigger(*KEYS)
    stack.wait_for_driver(*runs[1])
    return runs


def _wait_for_take_over(stack: Stack, what: str, name: str, run_id: str) -> None:
    """Until the task that the dead scheduler had is running again, as another try."""
    killed = time.monotonic()
    before = stack.client.fetch_task(name, run_id, "ingest")
    while True:
        now = stack.client.fetch_task(name, run_id, "ingest")
        if now["id"] != before["id"] and now["state"] in ("running", "success"):
            break
        waited = time.monotonic() - killed
        assert waited < TAKEN_OVER_WITHIN_SECONDS + 120, f"{now['state']}, {waited:.0f} s\n{stack.describe_state()}"
        time.sleep(0.5)
    seconds = time.monotonic() - killed
    stack.note(f"{what}: its task ran again after {seconds:.0f} s")
    assert seconds < TAKEN_OVER_WITHIN_SECONDS


def test_the_database_dies_and_is_away_for_a_while(stack: Stack, records: Records) -> None:
    """Under two runs and a long task. The scheduler fails with it, and would wait for that task before it ends: it is
    ended, and others can run."""
    slow = _start_slow(stack, 1_200)
    runs = _have_runs_under_way(stack, records)
    expected = stack.count()
    stack.compose("kill", "postgres")
    time.sleep(20)
    stack.compose("start", "postgres")
    started = time.monotonic()
    stack.wait_healthy(expected)
    stack.run("touch", "data/be_quick")
    stack.wait_for_runs([*runs, slow])
    stack.note(f"postgres killed, 20 s away: three runs published {time.monotonic() - started:.0f} s after it was back")


def _start_slow(stack: Stack, seconds: int) -> tuple[str, str]:
    """A run that takes so long; its driver is at work."""
    path = f"data/inbox/slow/{seconds}-{time.time():.0f}.csv"
    stack.run("sh", "-c", f"rm -f data/be_quick && mkdir -p data/inbox/slow && echo {seconds} > {path}")
    [slow] = stack.trigger("slow")
    stack.wait_for_driver(*slow)
    return slow


def test_a_driver_that_reaches_the_memory_limit(stack: Stack, records: Records) -> None:
    """The kernel ends the driver, and nothing else: its task says what happened, and the next try publishes."""
    stack.set(SCHEDULER_MEMORY="3g", SPARK_MASTER="local[2]")
    stack.up()
    scheduler = stack.ids()["airflow-scheduler"]
    stack.run("sh", "-c", "mkdir -p data/inbox/greedy && echo 1 > data/inbox/greedy/one.csv && touch data/be_greedy")
    records.make("orders", 1_000)
    [greedy] = stack.trigger("greedy")
    stack.client.wait_for_task(*greedy, "ingest", {"up_for_retry"}, 300)
    log = stack.client.fetch_log(*greedy, "ingest", 1)
    assert "the Spark driver was killed (SIGKILL)" in log, log[-3000:]
    said = next(line for line in log.splitlines() if line.startswith("DRIVER_DIED"))
    stack.note(f"a driver at the memory limit of its container: {said[:160]}")
    stack.run("rm", "data/be_greedy")
    stack.wait_for_runs([*stack.trigger("orders"), greedy])
    assert stack.ids()["airflow-scheduler"] == scheduler, "it has outlived its driver"
    stack.set(SCHEDULER_MEMORY="8g", SPARK_MASTER=CLUSTER)
    stack.up()


def test_two_schedulers(stack: Stack, records: Records) -> None:
    """The one that has the tasks dies for good in the middle of a run: the other takes them up."""
    before = stack.ids()
    stack.set(AIRFLOW_SCHEDULERS="2")
    stack.up()
    after = stack.ids()
    assert len(after["airflow-scheduler"]) == 2 and before["airflow-scheduler"] < after["airflow-scheduler"]
    runs = _have_runs_under_way(stack, records)
    victim = stack.wait_for_driver(*runs[1])
    # Docker does not restart what a person has killed.
    subprocess.run(["docker", "kill", victim["Id"]], check=True, stdout=subprocess.DEVNULL)
    _wait_for_take_over(stack, "one of two schedulers killed in an ingest", *runs[1])
    stack.wait_for_runs(runs)
    stack.set(AIRFLOW_SCHEDULERS="1")
    stack.up()
    assert len(stack.ids()["airflow-scheduler"]) == 1


def test_an_upgrade_of_the_image_with_runs_under_way(stack: Stack, records: Records) -> None:
    """Every service of the image is recreated. The scheduler goes first; what it runs ends well, at the first try."""
    with (stack.folder / "src" / "tidegate" / "core" / "core/words.py").open("a") as source:
        source.write("# another version\n")
    runs = _have_runs_under_way(stack, records)
    before, since = stack.ids(), time.time()
    said = stack.up()
    assert "stopping the scheduler first" in said
    after = stack.ids()
    assert {service for service in before if after[service] == before[service]} == {"postgres"}
    ended = [service for at, service, what in stack.list_events() if at > since and what == "die"]
    assert ended[0] == "airflow-scheduler", ended
    stack.wait_for_runs(runs)
    assert stack.client.fetch_task(*runs[1], "ingest")["try_number"] == 1


def test_down_and_up_with_runs_under_way(stack: Stack, records: Records) -> None:
    """A task that is done in time ends well; one that is not says that it was stopped, and is tried again. Nothing that
    tasks need ends before the scheduler, and everything goes on afterwards."""
    slow = _start_slow(stack, 600)
    runs = _have_runs_under_way(stack, records)
    since = time.time()
    stack.down()
    ended = [service for at, service, what in stack.list_events() if at > since and what == "die"]
    assert set(NEEDED_BY_TASKS).isdisjoint(ended[: ended.index("airflow-scheduler")]), ended
    assert not stack.ids()
    stack.up()
    stack.run("touch", "data/be_quick")
    log = stack.client.fetch_log(*slow, "ingest", 1)
    assert "the task was stopped" in log and "out of memory" not in log, log[-3000:]
    task = stack.client.fetch_task(*runs[1], "ingest")
    assert (task["state"], task["try_number"]) == ("success", 1), stack.explain(*runs[1])
    stack.wait_for_runs(runs)
    assert stack.client.wait_for_task(*slow, "ingest", {"running", "success"}, 120)["try_number"] == 2


def test_every_record_is_there_once(stack: Stack, records: Records, tmp_path: Path, spark: SparkSession) -> None:
    records.check(tmp_path, spark, *PIPELINES)
    stack.note("every record of seven pipelines is in its table or in quarantine, once, for three readers")
