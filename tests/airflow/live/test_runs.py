"""Runs under a real scheduler: what a person sees when things go well, and when they do not."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.airflow.live.project import (
    SECRET_VARIABLE,
    drop_rows,
)
from tests.airflow.live.scene import (
    CANARY,
    HEARTBEAT_SECONDS,
    Live,
    wait_for_run,
    wait_for_state,
)
from tests.airflow.processes import read_command, wait_until_gone
from tidegate.core.process.tree import ProcessMark, list_tree
from tidegate.spec.project import load_project
from tidegate.state.lease import acquire
from tools.console import ToolError

KILL_SECONDS = 4


def test_a_bad_spec_is_one_import_error_with_all_of_its_faults(live: Live) -> None:
    [error] = live.client.list_import_errors()
    assert "broken" in error["filename"]
    for part in ("ownr", "owner", "jason", "jobs/broken/pipeline.yaml:4", "jobs/broken/pipeline.yaml:11"):
        assert part in error["stack_trace"]


def test_a_missing_connection_is_refused_at_once(live: Live) -> None:
    run = live.run("nowhere")
    assert run["state"] == "failed"
    task = live.client.fetch_task("nowhere", run["dag_run_id"], "ingest")
    assert (task["state"], task["try_number"]) == ("failed", 1), "a retry would not help"
    log = live.client.fetch_log("nowhere", run["dag_run_id"], "ingest")
    assert "CONNECTION_INVALID" in log and "airflow connections add spark_nowhere" in log
    assert "Spark-Submit cmd" not in log


def test_nothing_new_is_skipped_without_a_driver(live: Live) -> None:
    run = live.run("quiet")
    assert run["state"] == "success"
    run_id = run["dag_run_id"]
    assert set(live.states("quiet", run_id).values()) == {"skipped"}
    report = live.client.fetch_xcom("quiet", run_id, "ingest")
    assert (report["outcome"], report["pipeline"], report["run_id"]) == ("nothing_new", "quiet", run_id)
    assert "Spark-Submit cmd" not in live.client.fetch_log("quiet", run_id, "ingest")


@pytest.mark.parametrize("value", ["two\nlines", "x" * 501, 7, {"a": 1}, ""])
def test_the_api_refuses_what_the_form_does_not_allow(live: Live, value: object) -> None:
    with pytest.raises(ToolError, match="HTTP 4"):
        live.client.trigger("quiet", {"accept_loss": value})


def test_a_hostile_conf_fails_once_and_reaches_nothing(live: Live) -> None:
    canary = live.root / "canary"
    attack = f"$(touch {canary}); touch {canary} `touch {canary}`"
    run = live.run("quiet", {"project_root": attack, "application": attack, "../../evil": attack, "conn_id": "x"})
    assert run["state"] == "failed"
    task = live.client.fetch_task("quiet", run["dag_run_id"], "ingest")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    log = live.client.fetch_log("quiet", run["dag_run_id"], "ingest")
    assert "TRIGGER_FORM_REFUSED" in log and "touch" not in log

    # The same text as a reason is only text: the form allows it, and it gets no further than a record.
    run = live.run("quiet", {"accept_loss": attack + " {{ 7 * 7 }}'; DROP TABLE x; --"})
    assert run["state"] == "success"
    assert not canary.exists()


def test_a_hostile_run_id_is_refused_or_harmless(live: Live) -> None:
    with pytest.raises(ToolError, match="HTTP 4"):
        live.client.trigger("quiet", run_id="../../../evil")
    run_id = live.client.trigger("quiet", run_id=".evil~:+1")
    assert live.client.wait_for_dag_run("quiet", run_id)["state"] == "success"
    runs = live.root / "data" / "state" / "quiet" / "runs"
    assert [path.parent for path in live.root.rglob("*evil*")].count(runs) == 1
    assert {path.parent for path in live.root.rglob("*evil*")} <= {runs}


def test_a_scheduled_run_publishes_and_the_next_tick_is_skipped(live: Live) -> None:
    client = live.client
    drop_rows(live.root, "trickle", "first", [(1, 1.5), (2, 2.5), (3, 3.5)])
    client.unpause("trickle")
    try:
        first = wait_for_run(live, "trickle", 0)
        second = wait_for_run(live, "trickle", 1)
    finally:
        client.pause("trickle")
    assert first["run_type"] == "scheduled" and first["state"] == "success"
    run_id = first["dag_run_id"]
    assert live.states("trickle", run_id) == {"ingest": "success", "audit": "success", "publish": "success"}
    reports = [client.fetch_xcom("trickle", run_id, task) for task in ("ingest", "audit", "publish")]
    assert [report["rows"]["read"] for report in reports] == [3, 3, 3]
    assert {report["run_id"] for report in reports} == {run_id}
    assert reports[1]["quality"]["verdict"] == "passed"
    assert reports[2]["outcome"] == "published" and reports[2]["rows"]["published"] == 3
    assert live.read_ids("trickle") == [1, 2, 3]
    log = client.fetch_log("trickle", run_id, "ingest")
    assert re.search(r"^progress: .*rows", log, re.MULTILINE), "progress is readable in the task log"
    assert "TIDEGATE {" not in log

    assert second["state"] == "success"
    assert set(live.states("trickle", second["dag_run_id"]).values()) == {"skipped"}

    events = client.list_asset_events("trickle")
    assert len(events) == 1, "a skipped run is no event"
    extra = {key: value for key, value in events[0]["extra"].items() if key in reports[2]}
    assert extra == reports[2]

    followed = wait_for_run(live, "follower", 0)
    assert followed["state"] == "success"
    assert client.fetch_xcom("follower", followed["dag_run_id"], "read_report") == [reports[2]]


def test_a_busy_pipeline_is_tried_again(live: Live) -> None:
    project = load_project(live.root, {SECRET_VARIABLE: CANARY})
    drop_rows(live.root, "quiet", "busy", [(10, 1.0)])
    run_id = ""
    with acquire(project.paths("quiet"), run_id="somebody", command="run", expires_after_seconds=60):
        run_id = live.client.trigger("quiet")
        wait_for_state(live, "quiet", run_id, "ingest", {"up_for_retry"})
        assert "somebody" in live.client.fetch_log("quiet", run_id, "ingest")
    run = live.client.wait_for_dag_run("quiet", run_id)
    assert run["state"] == "success"
    assert live.client.fetch_task("quiet", run_id, "ingest")["try_number"] >= 2
    assert live.read_ids("quiet") == [10]


def test_mark_failed_ends_the_driver(live: Live) -> None:
    run_id, tree = start_slow_run(live, "marked", 100)
    began = time.monotonic()
    live.client.mark_task("slow", run_id, "ingest", "failed")
    # The supervisor hears of it with its next heartbeat; from then on it is four seconds.
    wait_until_gone(tree, KILL_SECONDS + HEARTBEAT_SECONDS + 3)
    assert time.monotonic() - began < KILL_SECONDS + HEARTBEAT_SECONDS + 3
    assert live.client.wait_for_dag_run("slow", run_id)["state"] == "failed"
    live.hold.unlink()
    run = live.run("slow")
    assert run["state"] == "success"
    assert 100 in live.read_ids("slow")


def test_a_killed_supervisor_leaves_no_driver_and_the_retry_publishes_once(live: Live) -> None:
    run_id, tree = start_slow_run(live, "orphaned", 200)
    task_pid = tree[0].pid
    supervisor = next(mark.parent_pid for mark in tree if mark.pid == task_pid)
    os.kill(supervisor, signal.SIGKILL)
    wait_until_gone(tree, KILL_SECONDS)
    live.hold.unlink()
    run = live.client.wait_for_dag_run("slow", run_id)
    assert run["state"] == "success", live.states("slow", run_id)
    assert live.client.fetch_task("slow", run_id, "ingest")["try_number"] >= 2
    assert live.read_ids("slow").count(200) == 1


def test_no_secret_is_written_down_anywhere(live: Live) -> None:
    run_id, tree = start_slow_run(live, "secret", 300)
    commands = [read_command(mark.pid) for mark in tree]
    driver = next(mark.pid for mark in tree if "SparkSubmit" in read_command(mark.pid))
    settings = next(path for path in Path(f"/proc/{driver}/fd").iterdir() if "spark-settings" in os.readlink(path))
    assert CANARY in settings.read_text(), "the secret must be in use, or its absence proves nothing"
    live.hold.unlink()
    assert live.client.wait_for_dag_run("slow", run_id)["state"] == "success"
    assert not [command for command in commands if CANARY in command]
    files = [path for folder in (live.root, live.home) for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "airflow.db" for path in files) and any("task_id=ingest" in str(path) for path in files)
    assert [str(path) for path in files if CANARY.encode() in path.read_bytes()] == []


def start_slow_run(live: Live, file_name: str, number: int) -> tuple[str, list[ProcessMark]]:
    """A run of ``slow`` whose Python worker waits; its processes, the task process first."""
    live.hold.touch()
    drop_rows(live.root, "slow", file_name, [(number, 1.0)])
    run_id = live.client.trigger("slow")
    until = time.monotonic() + 180
    while time.monotonic() < until:
        task = live.client.fetch_task("slow", run_id, "ingest")
        assert task["state"] not in ("failed", "skipped", "success"), live.client.fetch_log("slow", run_id, "ingest")
        if task["state"] == "running" and task["pid"]:
            tree = sorted(list_tree(task["pid"]), key=lambda mark: mark.pid != task["pid"])
            commands = [read_command(mark.pid) for mark in tree]
            if any("SparkSubmit" in text for text in commands) and sum("pyspark.daemon" in t for t in commands) >= 2:
                return run_id, tree
        time.sleep(0.2)
    raise AssertionError("the driver did not come up")


def test_a_sink_that_is_away_fails_its_own_task_and_is_fed_by_the_next_run(live: Live) -> None:
    job = live.root / "jobs" / "fed"
    (job / "away").touch()
    drop_rows(live.root, "fed", "one", [(1, 1.0), (2, 2.0)])
    run = live.run("fed")
    assert run["state"] == "failed"
    states = live.states("fed", run["dag_run_id"])
    assert states == {"ingest": "success", "audit": "success", "publish": "success", "deliver": "failed"}
    assert live.read_ids("fed") == [1, 2]
    assert live.client.fetch_task("fed", run["dag_run_id"], "deliver")["try_number"] == 3
    log = live.client.fetch_log("fed", run["dag_run_id"], "deliver")
    assert "SINK_FAILED" in log and "RuntimeError: the sink is away" in log and "jobs/fed/sinks.py:11" in log
    report = live.client.fetch_xcom("fed", run["dag_run_id"], "publish")
    assert (report["outcome"], report["sinks"][0]["behind"]) == ("published", 1)

    # Nothing new, but something owed: the ingest task itself fails.
    idle = live.run("fed")
    assert live.states("fed", idle["dag_run_id"])["ingest"] == "failed"

    (job / "away").unlink()
    drop_rows(live.root, "fed", "two", [(3, 3.0)])
    run = live.run("fed")
    assert run["state"] == "success"
    assert (job / "fed").read_text() == "0 [1, 2]\n1 [3]\n"
    report = live.client.fetch_xcom("fed", run["dag_run_id"], "deliver")
    assert (report["outcome"], report["sinks"][0]["version"], report["sinks"][0]["behind"]) == ("published", 1, 0)

    idle = live.run("fed")
    assert idle["state"] == "success"
    assert set(live.states("fed", idle["dag_run_id"]).values()) == {"skipped"}


def test_maintenance_runs_as_a_dag_of_its_own(live: Live) -> None:
    dag_id = "tidegate_maintenance.quiet"
    live.client.wait_for_dags([dag_id, "tidegate_maintenance"])
    live.client.unpause(dag_id)
    dead = live.root / "data" / "state" / "quiet" / "staging" / "a query" / "000000000000" / "a token"
    dead.mkdir(parents=True)
    (dead / "rows.parquet").write_bytes(b"12345")
    for _ in range(2):  # with the run that its schedule makes when it is unpaused, that may be three
        run = live.run(dag_id)
        assert run["state"] == "success"
        report = live.client.fetch_xcom(dag_id, run["dag_run_id"], "quiet")
        assert (report["mode"], report["run_id"]) == ("maintain", f"maintain__{run['dag_run_id']}")
        assert live.client.fetch_task(dag_id, run["dag_run_id"], "quiet")["pool"] == "default_pool"
    assert (report["outcome"], report["notes"]) == ("nothing_new", ["nothing to do"])
    reports = (live.root / "data" / "state" / "quiet" / "runs").glob("maintain__*.json")
    told = [note for path in reports for note in json.loads(path.read_text())["notes"]]
    assert told.count("removed: dead staging, 1 file (5 bytes)") == 1
    assert not dead.exists()
