"""A pipeline without Spark whose tasks are run as Airflow runs them, and what they say outside: lines of StatsD, and
alerts of a notifier that the project brings."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.held import NAME, Held

NOTIFIER = '''"""Writes each alert down."""

import json
from pathlib import Path

from airflow.sdk import BaseNotifier


class Pager(BaseNotifier):
    """A notifier as a project has it in its plugins folder."""

    template_fields = ("text",)

    def __init__(self, file, text="{{ alert.text }}"):
        super().__init__()
        self.file, self.text = file, text

    def notify(self, context):
        """Append what is told."""
        alert = context["alert"]
        with Path(self.file).open("a") as out:
            out.write(json.dumps([alert.kind, alert.title, self.text]) + "\\n")


class Broken(BaseNotifier):
    """A notifier that cannot send."""

    def notify(self, context):
        """Fail."""
        raise OSError("no network")
'''


class Ti(SimpleNamespace):
    """What a task asks of its instance."""

    task_id = "task"

    def __init__(self) -> None:
        super().__init__(pushed={}, id="0199-id")

    def xcom_push(self, key: str, value: object) -> None:
        self.pushed[key] = value


def make_context(run_id: str, **more: Any) -> dict[str, Any]:
    """The context of a task in DAG run ``run_id``."""
    dag_run = SimpleNamespace(conf={}, run_type="manual", run_id=run_id)
    events: dict[Any, Any] = {}
    return {
        "run_id": run_id,
        "dag_run": dag_run,
        "params": {},
        "ti": Ti(),
        "outlet_events": _Events(events),
        **more,
    }


class _Events(dict[Any, Any]):
    def __missing__(self, key: Any) -> SimpleNamespace:
        self[key] = SimpleNamespace(extra=None)
        found: SimpleNamespace = self[key]
        return found


def make_tasks(held: Held) -> SimpleNamespace:
    """The operators of the pipeline, outside of a DAG."""
    from tidegate.airflow.dag import table_asset
    from tidegate.airflow.operators import AuditOperator, IngestOperator, PublishOperator

    what: dict[str, Any] = {"pipeline": NAME, "project_root": str(held.root)}
    return SimpleNamespace(
        ingest=IngestOperator(task_id="ingest", conn_id="spark_default", **what),
        audit=AuditOperator(task_id="audit", **what),
        publish=PublishOperator(task_id="publish", asset=table_asset(NAME), **what),
    )


def run_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks run in this process, with a driver that does nothing."""
    driver = SimpleNamespace(master="local[1]", run=lambda plan: 0)
    monkeypatch.setattr("tidegate.airflow.operators.DriverOperator.make_driver", lambda _: driver)
    monkeypatch.setattr("tidegate.airflow.task.bind_to_supervisor", lambda: False)


def run_to_its_end(work: Callable[[], Any]) -> BaseException | None:
    """What ends a task; None when it succeeded."""
    try:
        work()
    except BaseException as error:
        return error
    return None


@contextlib.contextmanager
def listen(
    monkeypatch: pytest.MonkeyPatch, *, influx: bool = True, legacy: bool = False
) -> Iterator[Callable[[], list[str]]]:
    """A StatsD server on UDP, to which Airflow's client of this process sends; gives what it has been sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.5)
        for key, value in {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(server.getsockname()[1]),
            "STATSD_PREFIX": "airflow",
            "STATSD_INFLUXDB_ENABLED": str(influx),
            "LEGACY_NAMES_ON": str(legacy),
        }.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{key}", value)
        from airflow.sdk.observability import stats
        from airflow.sdk.observability.metrics import stats_utils

        # As Airflow's task runner does at its begin.
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)

        def receive() -> list[str]:
            found = []
            with contextlib.suppress(TimeoutError):
                while True:
                    found += server.recv(65536).decode().splitlines()
            return found

        yield receive
    stats.initialize(factory=stats_utils.NoStatsLogger, export_legacy_names=False)


def write_notifiers(root: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> Path:
    """The project's plugins folder with its notifiers, on the path as Airflow puts it; the file that they write to."""
    (root / "plugins").mkdir(exist_ok=True)
    (root / "plugins" / f"{module}.py").write_text(NOTIFIER)
    monkeypatch.syspath_prepend(str(root / "plugins"))
    return root / "alerts.jsonl"
