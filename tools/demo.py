"""The example pipelines through the real scheduler: what `make run` and `make stop` call.

    python -m tools.demo run|stop

``run`` starts the broker and Airflow unless they run already, makes new data twice, lets the DAGs read them, the first
time one of them alone, to show its table soon, and compares what was published and quarantined with what the data
makers say they made; the tables of the pipelines with memory row by row. A second ``run`` continues with what is there.

With ``STORE=s3`` in the environment an S3 server runs too, and has the tables, except that of word_count, and the
quarantine in a bucket.

The last round leaves something to see on the pages: of orders, more is faulty than the gate lets pass, so that its run
waits for a person; word_count is paused, and what was made for it waits in Kafka. A second ``run`` releases the first,
unless somebody has decided, and takes in the second.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tools.airflow_client import FINISHED_STATES, AirflowClient
from tools.airflow_local import DEFAULT_HOME, Airflow, find_airflow, start_airflow, start_database, stop_database
from tools.broker import DEFAULT_FOLDER, Broker, find_broker, start_broker
from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.deliveries import COLUMNS, STATEFUL, TOPICS, list_outcomes, list_rows, make_delivery
from tools.jars import ensure_jars
from tools.object_servers import DEFAULT_FOLDER as OBJECTS_FOLDER
from tools.object_servers import S3Server

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from tidegate.examples.outcome import Outcome

PIPELINES = ("orders", "clicks", *STATEFUL)
FIRST = PIPELINES[0]
"""Its table is shown while the others run."""
ROUNDS = 2
ROWS = {
    "orders": 5_000,
    "clicks": 8_000,
    "bitcoin_prices": 600,
    "word_count": 200,
    "students": 60,
    "ad_clicks": 200,
    "device_sessions": 300,
}
FAULTS = dict.fromkeys(PIPELINES, 0.01) | {"word_count": 0.02, "students": 0.05}
HELD, HELD_FAULTS = "orders", 0.2
"""Its last delivery is held: ``max_quarantine_share`` of its spec is half of this."""
BEHIND = "word_count"
"""It is not started in the last round. Its schedule is a minute, so that it is behind soon."""
RELEASED = "make run goes on"
SHOWN_ROWS = 3
KAFKA_PORT = int(os.environ.get("KAFKA_PORT", "9092"))
S3_PORT = int(os.environ.get("S3_PORT", "7070"))
AIRFLOW_PORT = int(os.environ.get("AIRFLOW_PORT", "8080"))
FREE_BYTES = 1_000_000_000
RUN_TIMEOUT_SECONDS = 600
TICK_SECONDS = 10
"""So long a DAG that is unpaused has time for a scheduled run; one that has none by then is triggered."""
STORE = os.environ.get("STORE", "")
BUCKET = "tidegate"
NOTES_PATH = REPO_ROOT / "data" / "demo.json"


@dataclass
class Round:
    """One delivery of new data: what was made, and the run reports that came of it."""

    number: int
    started_at: datetime
    offered: dict[str, int] = field(default_factory=dict)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def run_demo() -> None:
    """The whole demonstration; raises :class:`ToolError` when a run failed or a record is missing."""
    _refuse_full_disk()
    ensure_jars()
    _enter_store()
    broker, airflow = _have_servers()
    airflow.client.wait_for_dags(list(PIPELINES))
    _release_held(airflow.client)
    _take_leftovers(airflow.client)
    for number in range(1, ROUNDS + 1):
        _show_round(_run_round(number, airflow, broker))
    differences = _compare()
    for name in PIPELINES:
        if name != FIRST:
            _show_table(name)
    _show_address(airflow)
    print(f"          {HELD} waits for a decision; {BEHIND} is paused, and behind; all have records in quarantine")
    topics = ", ".join(["clicks", *(topic for topics in TOPICS.values() for topic in topics)])
    print(f"Kafka     {broker.bootstrap_servers}   topics {topics}")
    if not differences:
        print("Records   of orders and clicks: each generated record is in a table, in quarantine, or held, once")
        print("Rows      of the others: equal to what plain Python computes (open windows and sessions follow)")
    print("look on   .venv/bin/tidegate status   |   make run again brings new data   |   make stop ends both servers")
    if differences:
        raise ToolError(
            "\n  ".join(["not every record is accounted for (or others than the demo's came in):", *differences]),
            ".venv/bin/tidegate status shows the runs; make clean starts over",
        )


def _show_address(airflow: Airflow) -> None:
    print(f"\nPipelines {airflow.url}/plugin/tidegate-pipelines   user {airflow.user}   password {airflow.password}")


def stop_demo() -> None:
    """Ends Airflow with its tasks and its database, then the broker. Data and state stay."""
    airflow = find_airflow()
    if airflow is not None:
        say("airflow: stopping")
        airflow.stop()
    stop_database()
    broker = find_broker()
    if broker is not None:
        say("kafka: stopping")
        broker.stop()
    store = S3Server.find(OBJECTS_FOLDER)
    if store is not None:
        say("s3: stopping")
        store.stop()
    is_any = airflow or broker or store
    say("stopped; data and state stay (make clean removes them)" if is_any else "nothing was running")


def _enter_store() -> None:
    """Have the S3 server and its bucket, and lead this process and Airflow to them, if the tables are to be there."""
    if STORE not in ("", "s3"):
        raise ToolError(f"STORE is {STORE!r}", "make run, or make run STORE=s3")
    notes = _read_notes()
    if notes and notes.get("store", "") != STORE:
        where = "in a bucket" if notes.get("store") else "in folders"
        raise ToolError(f"the tables that `make run` made here are {where}", "make clean, then the same command again")
    _write_notes({**notes, "store": STORE})
    if STORE == "s3":
        server = S3Server.find(OBJECTS_FOLDER)
        say(f"s3: {'running' if server else 'starting'}")
        server = server or S3Server.start_in(OBJECTS_FOLDER, S3_PORT, False)
        if not (server.folder / "data" / BUCKET).exists():
            server.make_bucket(BUCKET)
        os.environ.update(server.environment())
        for key, path in {"WAREHOUSE": "warehouse", "QUARANTINE": "quarantine"}.items():
            os.environ[f"TIDEGATE__{key}"] = f"s3://{BUCKET}/{path}"


def _refuse_full_disk() -> None:
    free = shutil.disk_usage(REPO_ROOT).free
    if free < FREE_BYTES:
        raise ToolError(
            f"{FREE_BYTES / 1e9:.0f} GB must be free on the disk of {REPO_ROOT}, {free / 1e9:.1f} GB are",
            f"free space (df -h {REPO_ROOT}), then make run",
        )


def _have_servers() -> tuple[Broker, Airflow]:
    """The broker and Airflow; those that do not run yet are started, both at once."""
    running, airflow = find_broker(), find_airflow()
    say(f"kafka: running at {running.bootstrap_servers}" if running else "kafka: starting")
    with ThreadPoolExecutor(1) as pool:
        broker = pool.submit(lambda: running or start_broker(DEFAULT_FOLDER, KAFKA_PORT, tied=False))
        if airflow is not None:
            say(f"airflow: running at {airflow.url}")
        else:
            airflow = _start_airflow(running.bootstrap_servers if running else f"127.0.0.1:{KAFKA_PORT}")
        return broker.result(), airflow


def _start_airflow(bootstrap_servers: str) -> Airflow:
    say("airflow: starting (PostgreSQL, scheduler, dag processor, API server; half a minute to a minute)")
    environment = {**start_database(), "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
    airflow = start_airflow(DEFAULT_HOME, REPO_ROOT, AIRFLOW_PORT, environment, tied=False)
    say(f"airflow: up at {airflow.url}")
    return airflow


def _take_leftovers(client: AirflowClient) -> None:
    """Let the DAGs take what a demonstration left that was stopped half-way: a delivery must have a run of its own,
    or records are late, or not, where the makers say otherwise."""
    notes = _read_notes()
    if not notes.get("under_way"):
        return
    say("what an earlier make run has left: triggering the DAGs")
    _let_run(client, datetime.now(UTC), PIPELINES)
    _write_notes({**notes, "under_way": False})


def _release_held(client: AirflowClient) -> None:
    """Let what an earlier demonstration left held be published, unless somebody has decided: no run of the DAG begins
    before."""
    from tidegate.rework.held import list_held_work
    from tidegate.spec.project import load_project

    asked = {run["dag_run_id"]: task for run in client.list_dag_runs(HELD) for task in _list_asking(client, run)}
    held = {one["run_id"] for one in list_held_work(load_project(REPO_ROOT).paths(HELD))}
    if not asked and not held:
        return
    say(f"what an earlier make run has left held: releasing it ({HELD})")
    client.unpause(HELD)
    for run_id, task in asked.items():
        client.answer(HELD, run_id, task, "Release", {"reason": RELEASED})
    for run_id in held - set(asked):  # its run waits no longer: somebody marked it failed
        client.trigger(HELD, {"decide": "release", "decide_run_id": run_id, "decide_reason": RELEASED})


def _list_asking(client: AirflowClient, run: dict[str, Any]) -> list[str]:
    """The tasks of a run of the held pipeline that wait for a person."""
    if run["state"] in FINISHED_STATES:
        return []
    tasks = [one["task_instance"] for one in client.list_required_actions(HELD, run["dag_run_id"])]
    return [str(task["task_id"]) for task in tasks if task["state"] in ("awaiting_input", "deferred")]


def _run_round(number: int, airflow: Airflow, broker: Broker) -> Round:
    client = airflow.client
    _hold_dags(client)
    current = Round(number, datetime.now(UTC))
    known = {name: set(_read_reports(name)) for name in PIPELINES}
    _write_notes({**_read_notes(), "under_way": True})
    is_last = number == ROUNDS
    names = list(PIPELINES)
    if number == 1:
        names.remove(FIRST)
        current.offered[FIRST] = _make_data(FIRST, broker, is_last)
        say(f"round {number}: {current.offered[FIRST]:,} records for {FIRST}; its DAG reads them")
        _let_run(client, current.started_at, [FIRST])
        _show_table(FIRST)
        _show_address(airflow)
    current.offered |= {name: _make_data(name, broker, is_last) for name in names}
    offered = sum(current.offered[name] for name in names)
    say(f"round {number}: {offered:,} records for {len(names)} pipelines; their DAGs read them, a minute or two")
    _let_run(client, current.started_at, [name for name in names if not (is_last and name == BEHIND)])
    for name in PIPELINES:
        current.reports[name] = [report for key, report in _read_reports(name).items() if key not in known[name]]
    _write_notes({**_read_notes(), "under_way": False})
    return current


def _hold_dags(client: AirflowClient) -> None:
    """Pause each DAG at a moment when none of its runs is under way: a tick of the schedule in the middle of a delivery
    would make two of it. (A run of a paused DAG stands still between its tasks.)"""
    deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
    for name in PIPELINES:
        client.pause(name)
        while any(run["state"] not in FINISHED_STATES for run in client.list_dag_runs(name)):
            if time.monotonic() > deadline:
                raise ToolError(f"the runs of {name} did not end in {RUN_TIMEOUT_SECONDS} s", "look at the UI")
            client.unpause(name)
            time.sleep(2)
            client.pause(name)


def _let_run(client: AirflowClient, since: datetime, names: Sequence[str]) -> None:
    """Unpause the DAGs, trigger those that have no scheduled run due, and wait until no run is under way.

    The one with a run each minute is paused again after its turn: it takes the others' slots.
    """
    known = {name: len(client.list_dag_runs(name)) for name in names}
    for name in names:
        client.unpause(name)
    deadline = time.monotonic() + TICK_SECONDS
    for name in names:
        while len(client.list_dag_runs(name)) == known[name]:
            if time.monotonic() > deadline:
                client.trigger(name)
                break
            time.sleep(0.5)
    for name in sorted(names, key=lambda one: one != BEHIND):
        _wait_until_quiet(client, name, since)
        if name == BEHIND:
            client.pause(name)


def _make_data(name: str, broker: Broker, is_last: bool) -> int:
    """New records, how many; they go on where the last delivery ended, so that none is offered twice. A delivery that
    waits is it. ``is_last``: of those that are left to be seen."""
    notes = _read_notes()
    note = notes.setdefault(name, {"deliveries": 0, "made": {}})
    made: dict[str, int] | None = note.pop("waits", None)
    if made is None:
        delivery = note["deliveries"] + 1
        is_faulty = is_last and name == HELD
        faults = HELD_FAULTS if is_faulty else FAULTS[name]
        made = (_make_rows if name in STATEFUL else _make_records)(name, broker, delivery, faults)
    if is_last and name == BEHIND:
        note["waits"] = made
    else:
        note["made"] = {key: note["made"].get(key, 0) + count for key, count in made.items()}
        note["deliveries"] += 1
    _write_notes(notes)
    return made["read"]


def _make_records(name: str, broker: Broker, delivery: int, faults: float) -> dict[str, int]:
    """A delivery for a pipeline without memory: what becomes of each record is known from the record."""
    from tidegate.examples.command import Draw
    from tidegate.examples.make_clicks import make_clicks
    from tidegate.examples.make_orders import make_orders
    from tidegate.examples.outcome import FIRST_DAY

    rows = ROWS[name]
    start_id, day = (delivery - 1) * rows + 1, FIRST_DAY + timedelta(days=delivery - 1)
    if name == "orders":
        inbox = REPO_ROOT / "data" / "inbox" / name
        truth = make_orders(inbox, rows, Draw(faults=faults, start_id=start_id, first_day=day), files=5, days=2)
    else:
        truth = make_clicks(broker.bootstrap_servers, rows, Draw(faults=faults, start_id=start_id, first_day=day))
    return {"read": truth.offered, "published": truth.published, "quarantined": truth.quarantined}


def _make_rows(name: str, broker: Broker, delivery: int, faults: float) -> dict[str, int]:
    outcome = make_delivery(name, REPO_ROOT, broker.bootstrap_servers, delivery, ROWS[name], faults)
    return {"read": outcome.offered, "published": len(outcome.rows), "quarantined": _count_set_aside(outcome)}


def _count_set_aside(outcome: Outcome) -> int:
    return len(outcome.malformed) + len(outcome.late) + sum(map(len, outcome.rejected.values()))


def _read_notes() -> dict[str, Any]:
    """By pipeline: the deliveries so far, and the sums of what the data makers say they made. ``under_way``: whether
    some of it may have had no run yet."""
    return dict(json.loads(NOTES_PATH.read_text())) if NOTES_PATH.exists() else {}


def _write_notes(notes: Mapping[str, Any]) -> None:
    NOTES_PATH.parent.mkdir(parents=True, exist_ok=True)
    NOTES_PATH.write_text(json.dumps(notes))


def _wait_until_quiet(client: AirflowClient, name: str, since: datetime) -> None:
    """Until no run of the DAG is under way (the triggered one, a scheduled one that came in between), or one waits for
    a person."""
    deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
    while True:
        runs = [run for run in client.list_dag_runs(name) if _time_of(run) >= since]
        if runs and all(run["state"] in FINISHED_STATES for run in runs):
            break
        if name == HELD and any(_list_asking(client, run) for run in runs):
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
    from tidegate.spec.project import load_project

    reports = {}
    for path in sorted(load_project(REPO_ROOT).paths(name).runs.glob("*.json"), key=lambda path: path.stat().st_mtime):
        reports[path.name] = json.loads(path.read_text())
    return reports


def _count_quarantined(report: dict[str, Any]) -> int:
    rows = report["rows"]
    return int((rows.get("malformed") or 0) + (rows.get("rejected") or 0) + (rows.get("late") or 0))


def _count_passed(report: dict[str, Any]) -> int:
    """The rows that are in the table, or would be but for the gate."""
    is_held = report["outcome"] in ("held", "discarded")
    return int(report["rows"].get("staged" if is_held else "published") or 0)


def _show_round(current: Round) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"round {current.number}", title_justify="left")
    for heading in ("pipeline", "run", "outcome", "checks"):
        table.add_column(heading)
    for heading in ("offered", "read", "published", "quarantined", "version", "watermark", "seconds"):
        table.add_column(heading, justify="right")
    idle = 0
    for name in PIPELINES:
        offered = f"{current.offered[name]:,}"
        if not current.reports[name]:
            table.add_row(name, "", "waits", "", offered)
        for report in current.reports[name]:
            rows, seconds = report["rows"], report.get("duration_seconds") or {}
            if report["outcome"] == "nothing_new":
                idle += 1
                continue
            table.add_row(
                name,
                _shorten_run_id(report["run_id"]),
                report["outcome"],
                str((report.get("quality") or {}).get("verdict") or ""),
                offered,
                f"{rows.get('read') or 0:,}",
                f"{rows.get('published') or 0:,}",
                f"{_count_quarantined(report):,}",
                str((report.get("table") or {}).get("version") if rows.get("published") else ""),
                (report.get("watermark") or "")[5:16].replace("T", " "),
                f"{sum(value or 0 for value in seconds.values()):.1f}",
            )
            offered = ""
    if idle:
        table.caption = f"{idle} more runs found nothing new"
        table.caption_justify = "left"
    Console(width=max(shutil.get_terminal_size((140, 40)).columns, 120)).print(table)


def _shorten_run_id(run_id: str) -> str:
    """``manual__2026-03-02T10:20:30.4+00:00`` as ``manual 10:20:30``."""
    kind, _, moment = run_id.partition("__")
    return f"{kind} {moment[11:19]}".rstrip()


def _compare() -> list[str]:
    """What differs between all that was ever made and what all reports say; empty when every record is accounted for.

    Over all runs, not by round: a demo that was stopped half-way leaves records to the next one.
    """
    differences = []
    notes = _read_notes()
    for name in PIPELINES:
        # What a run staged and another one published, or read again, stands in both reports.
        reports = [
            report
            for report in _read_reports(name).values()
            if not report.get("published_by") and (report.get("decision") or {}).get("decision") != "reread"
        ]
        found = {
            "read": sum(int(report["rows"].get("read") or 0) for report in reports),
            "published": sum(_count_passed(report) for report in reports),
            "quarantined": sum(_count_quarantined(report) for report in reports),
        }
        differences += [
            f"{name}: {key} {found[key]:,}, made for it {made:,}"
            for key, made in notes[name]["made"].items()
            if made != found[key]
        ]
        if name in STATEFUL:
            outcomes = list_outcomes(name, notes[name]["deliveries"], ROWS[name], FAULTS[name])
            wanted, there = Counter(list_rows(name, outcomes)), Counter(_read_rows(name))
            differences += [
                f"{name}: {what} {len(rows):,} rows, such as {rows[0]}"
                for what, rows in (
                    ("the table lacks", list((wanted - there).elements())),
                    ("the table has beyond what it must", list((there - wanted).elements())),
                )
                if rows
            ]
    return differences


def _read_rows(name: str) -> list[tuple[Any, ...]]:
    """The rows of a table as every parquet reader sees them, in the columns and order of an outcome."""
    from tidegate.spec.project import load_project

    files = _list_files(load_project(REPO_ROOT).paths(name).table)
    if not files:
        return []
    columns = ", ".join(f'"{column}"' for column in COLUMNS[name])
    with _open_duckdb() as connection:
        found = connection.sql(f"SELECT {columns} FROM read_parquet($files)", params={"files": files})
        return [tuple(row.values()) for row in found.to_arrow_table().to_pylist()]


def _list_files(table: Path) -> list[str]:
    """The files of ``table/**/*.parquet``, as DuckDB opens them."""
    from tidegate.core import storage

    found = storage.list_tree(table, "[!.]*.parquet")
    plain = [path for path in found if not any(part[0] in "._" for part in path.relative_to(table).parts)]
    return [str(path) for path in plain]


def _open_duckdb() -> duckdb.DuckDBPyConnection:
    import duckdb
    from obstore.fsspec import FsspecStore

    connection = duckdb.connect()
    connection.register_filesystem(FsspecStore("s3"))  # DuckDB's own client of S3 is a download
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _show_table(name: str) -> None:
    from tidegate.spec.project import load_project

    folder = load_project(REPO_ROOT).paths(name).table
    files = _list_files(folder)
    if not files:
        print(f"\n{name}: the table has no files yet")
        return
    connection = _open_duckdb()
    count = connection.execute("SELECT count(*) FROM read_parquet(?, hive_partitioning = true)", [files]).fetchall()
    place = folder if folder.is_absolute() and not folder.is_relative_to(REPO_ROOT) else os.path.relpath(folder)
    print(f"\n{name}: {count[0][0]:,} rows in {place}, the first as DuckDB reads them")
    rows = connection.sql(
        f"SELECT * FROM read_parquet($files, hive_partitioning = true) LIMIT {SHOWN_ROWS}", params={"files": files}
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
