"""200 pipelines on one small machine: the minute in which 20 of them are due, idle ticks, parsing, and ``status``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Row, show_cost
from benchmarks.fleet import ORIGINAL, copy_pipeline
from benchmarks.meter import Cost, list_tree, measure, read_name, read_rss_bytes
from benchmarks.workbench import BIN, ROOT, BenchmarkError, Workbench, take_median
from tidegate.examples.command import Draw
from tidegate.examples.make_orders import make_orders

if TYPE_CHECKING:
    from benchmarks.cases import Size
    from tools.airflow_local import Airflow

PIPELINES = 200
DUE = 20
IDLE = 20
ROWS = 1_000
PARALLELISM = 16
"""Tasks that Airflow runs at once. Its default is 32; the memory of the machine does not allow so many drivers."""

_UNBOUNDED_SLOTS = 128
_PATIENCE_SECONDS = 1500
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PARSE = """
import sys, time
import airflow.sdk
from airflow.dag_processing.dagbag import DagBag
began = time.process_time()
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
print("ANSWER", len(bag.dags), time.process_time() - began)
"""


def run_fleet_status(bench: Workbench, size: Size) -> list[Row]:
    """`status` of 200 pipelines that have run, and what Airflow's parser pays for their DAGs."""
    names = _make_fleet(bench)
    command = [str(BIN / "tidegate"), "--project", str(bench.project), "status"]
    measure(command, cwd=bench.folder, env=bench.env)
    cost = take_median([measure(command, cwd=bench.folder, env=bench.env) for _ in range(max(size.repeats, 5))])
    if cost.exit_code or cost.java_processes:
        raise BenchmarkError(f"status ended with {cost.exit_code} and started {cost.java_processes} JVMs")
    work = f"status of {len(names)} pipelines"
    return [
        Row(work, "wall seconds", cost.wall_seconds, 1.0, cost),
        Row(work, "CPU seconds", cost.cpu_seconds, 1.0, cost),
        Row(f"parsing {len(names)} DAGs", "CPU seconds", _parse_dags(bench), 2.0),
    ]


def run_fleet_minute(bench: Workbench, size: Size) -> list[Row]:
    """20 of 200 pipelines due at once under a real Airflow: bounded by the pool, and not; and 20 idle ticks at once."""
    from tools.airflow_local import start_airflow

    names = _make_fleet(bench)
    slots = (4, _UNBOUNDED_SLOTS)
    began = time.monotonic()
    airflow = start_airflow(
        bench.folder / "airflow",
        bench.project,
        extra_env={
            "AIRFLOW__CORE__PARALLELISM": str(PARALLELISM),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
            "TIDEGATE__AIRFLOW__SLOTS": str(slots[0]),
        },
    )
    try:
        airflow.client.wait_for_dags(names, 600)
        parsed_cpu, parsed_seconds = _read_cpu_seconds(airflow.pid), time.monotonic() - began
        time.sleep(20)  # the last of the first parse
        work = f"Airflow from its start until it knows {PIPELINES} DAGs"
        parsed = Cost(0, parsed_cpu, parsed_seconds, _read_rss(airflow.pid), 0, 0)
        rows = _tell([Row(work, "wall seconds", parsed_seconds, None, parsed)])
        with _Watch(airflow.pid) as quiet:
            time.sleep(60)
        work = f"Airflow with {PIPELINES} DAGs and nothing due"
        rows += _tell([Row(work, "CPU seconds a minute", quiet.cost.cpu_seconds, None, quiet.cost)])
        cost, most = _run_due(bench, airflow, names[-IDLE:], "nothing_new")
        work = f"{IDLE} idle pipelines due at once"
        a_tick = Row(work, "CPU seconds a tick", cost.cpu_seconds / IDLE, None, cost)
        rows += _tell([a_tick, Row(work, "driver JVMs at once", float(most), 0.0)])
        for number, bound in enumerate(slots):
            rows += _tell(_run_herd(bench, airflow, names[number * DUE : (number + 1) * DUE], bound))
        return rows
    finally:
        airflow.stop()


def _tell(rows: list[Row]) -> list[Row]:
    """The figures as they come: the case takes long."""
    for row in rows:
        print(f"  {row.work}: {row.measured} {row.value:.2f} ({show_cost(row.ours)})", file=sys.stderr, flush=True)
    return rows


def _run_herd(bench: Workbench, airflow: Airflow, names: Sequence[str], slots: int) -> list[Row]:
    body = {"name": "tidegate", "slots": slots, "description": "of the benchmark", "include_deferred": False}
    airflow.client.call("PATCH", "pools/tidegate", json=body)
    for number, name in enumerate(names):
        inbox = bench.project / "data" / "inbox" / name
        make_orders(inbox, ROWS, Draw(faults=0.001, start_id=1_000_000 + number * ROWS), files=2)
    cost, most = _run_due(bench, airflow, names, "published")
    for name in names:
        report = bench.last_report(name)
        if report["rows"]["read"] != ROWS:
            raise BenchmarkError(f"{name}: {report['rows']['read']} rows read, not {ROWS}")
    bound = "no bound but Airflow's" if slots == _UNBOUNDED_SLOTS else f"a pool of {slots} slots"
    work = f"{DUE} of {PIPELINES} due at once, {ROWS:,} rows each, {bound}"
    limit = None if slots == _UNBOUNDED_SLOTS else float(slots)
    return [
        Row(work, "wall seconds from due to the last published", cost.wall_seconds, None, cost),
        Row(work, "driver JVMs at once", float(most), limit),
    ]


def _run_due(bench: Workbench, airflow: Airflow, names: Sequence[str], outcome: str) -> tuple[Cost, int]:
    """Let the schedules of ``names`` go: each has one tick that is due. What it cost until all have ``outcome``."""
    before = {name: _count_reports(bench, name) for name in names}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with _Watch(airflow.pid) as watch:
        for name in names:
            airflow.client.unpause(name)
        waiting = list(names)
        while waiting := [name for name in waiting if not _is_done(bench, name, before[name], outcome)]:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"not done after {_PATIENCE_SECONDS} s: {', '.join(waiting)}")
            time.sleep(0.5)
    for name in names:
        airflow.client.pause(name)
    return watch.cost, watch.most_drivers


def _count_reports(bench: Workbench, name: str) -> int:
    return len(list((bench.state(name) / "runs").glob("*.json")))


def _is_done(bench: Workbench, name: str, reports_before: int, outcome: str) -> bool:
    if _count_reports(bench, name) == reports_before:
        return False
    report = bench.last_report(name)
    if report["outcome"] not in (None, outcome):
        raise BenchmarkError(f"{name}: {report['outcome']}: {report['error']}")
    return bool(report["outcome"])


class _Watch:
    """CPU, memory and driver JVMs of a process tree while the context is open; ``cost`` has them after it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._peak = 0
        self._java: set[int] = set()
        self.most_drivers = 0

    def __enter__(self) -> _Watch:
        self._began, self._cpu = time.monotonic(), _read_cpu_seconds(self._root)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        wall = time.monotonic() - self._began
        self._done.set()
        self._thread.join()
        used = _read_cpu_seconds(self._root) - self._cpu
        self.cost = Cost(0, used, wall, self._peak, 0, len(self._java))

    def _sample(self) -> None:
        while not self._done.wait(0.25):
            tree = list_tree(self._root)
            self._peak = max(self._peak, sum(read_rss_bytes(pid) for pid in tree))
            parents = {pid: _read_parent(pid) for pid in tree if read_name(pid) == "java" and _is_driver(pid)}
            # A child of the JVM's has its command line until it runs something else.
            drivers = [pid for pid, parent in parents.items() if parent not in parents]
            self._java.update(drivers)
            self.most_drivers = max(self.most_drivers, len(drivers))


def _is_driver(pid: int) -> bool:
    """Whether a JVM is a driver, and not the launcher that works out its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"deploy.SparkSubmit" in command and b"launcher.Main" not in command


def _read_parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _read_cpu_seconds(root: int) -> float:
    """CPU of a tree so far, with what has ended in it: each parent has the time of the children it waited for."""
    ticks = 0
    for pid in (root, *list_tree(root)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_SECOND


def _read_rss(root: int) -> int:
    return sum(read_rss_bytes(pid) for pid in list_tree(root))


def _make_fleet(bench: Workbench) -> list[str]:
    """200 pipelines that have run, with their DAGs; nothing is new for any of them."""
    for start_id in (1, 1 + ROWS):
        make_orders(bench.inbox, ROWS, Draw(faults=0.001, start_id=start_id), files=2)
        bench.run()
    names = [f"orders_{number:03d}" for number in range(PIPELINES)]
    (bench.project / "dags").mkdir()
    shutil.copytree(ROOT / "plugins", bench.project / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    for name in names:
        copy_pipeline(bench, name, schedule='"0 3 * * *"')
        dag = f'from tidegate.airflow import build_dag\n\ndag = build_dag("{name}")\n'
        (bench.project / "dags" / f"{name}.py").write_text(dag)
    for job in (bench.project / "jobs").iterdir():
        if job.is_dir() and job.name not in names:
            shutil.rmtree(job)
    shutil.rmtree(bench.state(ORIGINAL))
    return names


def _parse_dags(bench: Workbench) -> float:
    answer = subprocess.run(
        [sys.executable, "-c", _PARSE, str(bench.project / "dags")],
        env={**bench.env, "AIRFLOW_HOME": str(bench.folder / "parse"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in answer.stdout.splitlines() if line.startswith("ANSWER ")]
    if not lines or json.loads(lines[0].split()[1]) != PIPELINES:
        raise BenchmarkError(f"the DAGs could not be read:\n{answer.stdout[-2000:]}{answer.stderr[-2000:]}")
    return float(lines[0].split()[2])
