"""Both example pipelines through the real scheduler: what `make run` and `make stop` call.

    python -m tools.demo run|stop

``run`` starts the broker and Airflow unless they run already, makes new data twice, lets the DAGs take them, and
compares what was published and quarantined with what the data makers say they made. A second ``run`` goes on with what
is there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tools.airflow_client import AirflowClient
from tools.airflow_local import DEFAULT_HOME, Airflow, find_airflow, start_airflow
from tools.broker import DEFAULT_FOLDER, Broker, find_broker, start_broker
from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.jars import ensure_jars

if TYPE_CHECKING:
    from tidegate.examples.truth import Truth

PIPELINES = ("orders", "clicks")
ROUNDS = 2
ROWS = {"orders": 5_000, "clicks": 8_000}
FREE_BYTES = 1_000_000_000
RUN_TIMEOUT_SECONDS = 600
NOTES_PATH = REPO_ROOT / "data" / "demo.json"


@dataclass
class Round:
    """One delivery of new data: what was made, and the run reports that came of it."""

    number: int
    started_at: datetime
    truths: dict[str, Truth] = field(default_factory=dict)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def run_demo() -> None:
    """The whole demonstration; raises :class:`ToolError` when a run failed or a record is missing."""
    _refuse_full_disk()
    ensure_jars()
    broker = _have_broker()
    airflow = _have_airflow(broker)
    airflow.client.wait_for_dags(list(PIPELINES))
    for name in PIPELINES:
        airflow.client.unpause(name)
    for number in range(1, ROUNDS + 1):
        current = _run_round(number, airflow.client, broker)
        _show_round(current)
    differences = _compare()
    for name in PIPELINES:
        _show_table(name)
    print(f"\nAirflow   {airflow.url}   user {airflow.user}   password {airflow.password}")
    print(f"Kafka     {broker.bootstrap_servers}   topic clicks")
    if not differences:
        print("Records   every one that was made is in a table or in quarantine, once")
    print("look on   .venv/bin/tidegate status   |   make run again brings new data   |   make stop ends both servers")
    if differences:
        raise ToolError(
            "\n  ".join(["not every record is accounted for (or others than the demo's came in):", *differences]),
            ".venv/bin/tidegate status shows the runs; make clean starts over",
        )


def stop_demo() -> None:
    """Ends Airflow with its tasks, then the broker. Data and state stay."""
    airflow = find_airflow()
    if airflow is not None:
        say("airflow: stopping")
        airflow.stop()
    broker = find_broker()
    if broker is not None:
        say("kafka: stopping")
        broker.stop()
    say("stopped; data and state stay (make clean removes them)" if airflow or broker else "nothing was running")


def _refuse_full_disk() -> None:
    free = shutil.disk_usage(REPO_ROOT).free
    if free < FREE_BYTES:
        raise ToolError(
            f"{FREE_BYTES / 1e9:.0f} GB must be free on the disk of {REPO_ROOT}, {free / 1e9:.1f} GB are",
            f"free space (df -h {REPO_ROOT}), then make run",
        )


def _have_broker() -> Broker:
    broker = find_broker()
    if broker is not None:
        say(f"kafka: running at {broker.bootstrap_servers}")
        return broker
    say("kafka: starting")
    return start_broker(DEFAULT_FOLDER, int(os.environ.get("KAFKA_PORT", "9092")), tied=False)


def _have_airflow(broker: Broker) -> Airflow:
    airflow = find_airflow()
    if airflow is not None:
        say(f"airflow: running at {airflow.url}")
        return airflow
    say("airflow: starting (scheduler, dag processor, API server; about a minute)")
    port = int(os.environ.get("AIRFLOW_PORT", "8080"))
    environment = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    airflow = start_airflow(DEFAULT_HOME, REPO_ROOT, port, environment, tied=False)
    say(f"airflow: up at {airflow.url}")
    return airflow


def _run_round(number: int, client: AirflowClient, broker: Broker) -> Round:
    current = Round(number, datetime.now(UTC))
    known = {name: set(_read_reports(name)) for name in PIPELINES}
    for name in PIPELINES:
        current.truths[name] = _make_data(name, broker)
        say(f"round {number}: {current.truths[name].offered:,} records for {name}; triggering its DAG")
        client.trigger(name)
    for name in PIPELINES:
        _wait_until_quiet(client, name, current.started_at)
        current.reports[name] = [report for key, report in _read_reports(name).items() if key not in known[name]]
    return current


def _make_data(name: str, broker: Broker) -> Truth:
    """New records; the ids go on where the last delivery ended, so that none is offered twice."""
    from tidegate.examples.make_clicks import FIRST_DAY, make_clicks
    from tidegate.examples.make_orders import make_orders

    notes = _read_notes()
    note = notes.setdefault(name, {"next_id": 1, "made": {}})
    start_id, rows = int(note["next_id"]), ROWS[name]
    day = FIRST_DAY + timedelta(days=(start_id - 1) // rows)
    if name == "orders":
        inbox = REPO_ROOT / "data" / "inbox" / name
        truth = make_orders(inbox, rows, files=5, start_id=start_id, first_day=day, days=2)
    else:
        truth = make_clicks(broker.bootstrap_servers, rows, start_id=start_id, first_day=day)
    made = {"read": truth.offered, "published": truth.published, "quarantined": truth.quarantined}
    note["made"] = {key: note["made"].get(key, 0) + count for key, count in made.items()}
    note["next_id"] = start_id + rows
    NOTES_PATH.parent.mkdir(parents=True, exist_ok=True)
    NOTES_PATH.write_text(json.dumps(notes))
    return truth


def _read_notes() -> dict[str, Any]:
    """What was made so far, by pipeline: the next id, and the sums of what the data makers say they made."""
    return dict(json.loads(NOTES_PATH.read_text())) if NOTES_PATH.exists() else {}


def _wait_until_quiet(client: AirflowClient, name: str, since: datetime) -> None:
    """Until no run of the DAG is under way: the triggered one, and a scheduled one that may have come in between."""
    deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
    while True:
        runs = [run for run in client.list_dag_runs(name) if _time_of(run) >= since]
        if runs and all(run["state"] in ("success", "failed") for run in runs):
            break
        if time.monotonic() > deadline:
            states = ", ".join(f"{run['dag_run_id']} is {run['state']}" for run in runs)
            raise ToolError(f"the runs of {name} did not end in {RUN_TIMEOUT_SECONDS} s: {states}", "look at the UI")
        time.sleep(1)
    for run in runs:
        if run["state"] == "failed":
            raise ToolError(_explain_failure(client, name, run["dag_run_id"]), "tidegate status " + name)


def _time_of(run: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(run["queued_at"] or run["run_after"])


def _explain_failure(client: AirflowClient, name: str, run_id: str) -> str:
    lines = [f"the run {run_id} of {name} failed"]
    for task in client.list_task_instances(name, run_id):
        if task["state"] == "failed":
            log = client.fetch_log(name, run_id, task["task_id"], task["try_number"]).splitlines()
            lines += [f"task {task['task_id']}, the end of its log:", *(f"  | {line}" for line in log[-25:])]
    return "\n".join(lines)


def _read_reports(name: str) -> dict[str, dict[str, Any]]:
    """The run reports of a pipeline by file name."""
    from tidegate.project import load_project

    reports = {}
    for path in sorted(load_project(REPO_ROOT).paths(name).runs.glob("*.json"), key=lambda path: path.stat().st_mtime):
        reports[path.name] = json.loads(path.read_text())
    return reports


def _count_quarantined(report: dict[str, Any]) -> int:
    rows = report["rows"]
    return int((rows.get("malformed") or 0) + (rows.get("rejected") or 0) + (rows.get("late") or 0))


def _show_round(current: Round) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"round {current.number}", title_justify="left")
    for heading in ("pipeline", "run", "outcome", "checks"):
        table.add_column(heading, overflow="fold")
    for heading in ("offered", "read", "published", "quarantined", "table version", "seconds"):
        table.add_column(heading, justify="right")
    for name in PIPELINES:
        offered = f"{current.truths[name].offered:,}"
        for report in current.reports[name]:
            rows, seconds = report["rows"], report.get("duration_seconds") or {}
            table.add_row(
                name,
                report["run_id"],
                report["outcome"],
                str((report.get("quality") or {}).get("verdict") or ""),
                offered,
                f"{rows.get('read') or 0:,}",
                f"{rows.get('published') or 0:,}",
                f"{_count_quarantined(report):,}",
                str((report.get("table") or {}).get("version") if rows.get("published") else ""),
                f"{sum(value or 0 for value in seconds.values()):.1f}",
            )
            offered = ""
    Console(width=max(shutil.get_terminal_size((140, 40)).columns, 120)).print(table)


def _compare() -> list[str]:
    """What differs between all that was ever made and what all reports say; empty when every record is accounted for.

    Over all runs, not by round: a demo that was stopped half-way leaves records to the next one.
    """
    differences = []
    for name, note in _read_notes().items():
        # What a run staged and another one published stands in both reports.
        reports = [report for report in _read_reports(name).values() if not report.get("published_by")]
        found = {
            "read": sum(int(report["rows"].get("read") or 0) for report in reports),
            "published": sum(int(report["rows"].get("published") or 0) for report in reports),
            "quarantined": sum(_count_quarantined(report) for report in reports),
        }
        differences += [
            f"{name}: {key} {found[key]:,}, made for it {made:,}"
            for key, made in note["made"].items()
            if made != found[key]
        ]
    return differences


def _show_table(name: str) -> None:
    import duckdb

    from tidegate.project import load_project

    folder = load_project(REPO_ROOT).paths(name).table
    files = str(folder / "**" / "*.parquet")
    if not any(folder.rglob("*.parquet")):
        print(f"\n{name}: the table has no files yet")
        return
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    count = connection.execute("SELECT count(*) FROM read_parquet(?, hive_partitioning = true)", [files]).fetchall()
    print(f"\n{name}: {count[0][0]:,} rows in {os.path.relpath(folder)}, the first as DuckDB reads them")
    rows = connection.sql(
        "SELECT * FROM read_parquet($files, hive_partitioning = true) LIMIT 5", params={"files": files}
    )
    rows.show(max_width=max(shutil.get_terminal_size((140, 40)).columns, 120))


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    actions = {"run": run_demo, "stop": stop_demo}
    if len(arguments) != 1 or arguments[0] not in actions:
        raise ToolError("one of run, stop", "make run, or make stop")
    actions[arguments[0]]()
    return 0


if __name__ == "__main__":
    run_main(main)
