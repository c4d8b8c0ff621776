"""docker/scheduler.py: what becomes of running tasks when the service is stopped."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tools.processes import wait_until

SCRIPT = Path(__file__).resolve().parents[3] / "docker" / "scheduler.py"
TASK = """
import signal, sys, time
from setproctitle import setproctitle
setproctitle("airflow worker -- 0199-task")
signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], "w").write("stopped"), sys.exit(0)))
open(sys.argv[1], "w").write("running")
time.sleep(60)
"""
# As Airflow's own: on SIGTERM it takes no more work, and waits for the task that runs; a second one ends it at once.
SCHEDULER = """
import signal, subprocess, sys
def leave(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGTERM, leave)
task = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
sys.exit(3 if task.wait() == 0 else 4)
"""
SERVICE = """
import sys
sys.path.insert(0, sys.argv[1])
import scheduler
sys.exit(scheduler.main(sys.argv[3:], task_seconds=0.5, silent_seconds=0.5, health_url=sys.argv[2], look_seconds=0.1))
"""


class Page(BaseHTTPRequestHandler):
    """A page that is there, or not."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[tuple[type[Page], str]]:
    """A page of its own, and its address."""
    kind = type("OwnPage", (Page,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def load() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        spec = importlib.util.spec_from_file_location("scheduler_service", SCRIPT)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def start_service(note: Path, health_url: str, **environment: str) -> subprocess.Popen[bytes]:
    """The service with a scheduler that has one task."""
    command = [sys.executable, "-c", SERVICE, str(SCRIPT.parent), health_url]
    command += [sys.executable, "-c", SCHEDULER, TASK, str(note)]
    return subprocess.Popen(command, env={**os.environ, **environment})


def is_running(note: Path) -> bool:
    return note.exists() and note.read_text() == "running"


def test_a_task_that_does_not_end_is_stopped_in_time_and_the_exit_code_is_the_schedulers(
    tmp_path: Path, page: tuple[type[Page], str]
) -> None:
    note = tmp_path / "note"
    service = start_service(note, page[1])
    assert wait_until(lambda: is_running(note), 10)
    for _ in range(3):  # an impatient person: the scheduler hears of the first one only
        service.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    time.sleep(0.1)
    assert service.poll() is None and is_running(note), "it has time to end by itself"
    assert service.wait(10) == 3
    assert note.read_text() == "stopped"


def test_a_scheduler_that_fails_and_waits_for_its_tasks_is_ended(tmp_path: Path, page: tuple[type[Page], str]) -> None:
    """Its database went away: it sends no heartbeat any more, and would wait for the longest task."""
    note = tmp_path / "note"
    page[0].status = 503
    service = start_service(note, page[1])
    assert wait_until(lambda: is_running(note), 10)
    time.sleep(1)
    assert service.poll() is None, "one that was never healthy is starting"
    page[0].status = 200
    time.sleep(0.5)
    page[0].status = 503
    assert service.wait(10) == 3
    assert note.read_text() == "stopped"


def test_it_starts_once_the_api_server_answers(tmp_path: Path, page: tuple[type[Page], str]) -> None:
    note = tmp_path / "note"
    page[0].status = 503
    server = {"AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{page[1]}/execution/"}
    service = start_service(note, page[1], **server)
    time.sleep(1)
    assert not note.exists()
    page[0].status = 200
    assert wait_until(lambda: is_running(note), 15)
    service.send_signal(signal.SIGTERM)
    assert service.wait(10) == 3


def test_only_tasks_are_stopped(tmp_path: Path) -> None:
    processes = {
        "1": (0, b"docker-init\0--\0python"),
        "7": (1, b"airflow scheduler"),
        "12": (7, b"airflow worker -- LocalExecutor: <idle>"),
        "13": (7, b"airflow worker -- LocalExecutor: orders.ingest manual__2026"),
        "40": (13, b"airflow worker -- 0199f0-task"),
        "41": (40, b"java\0-cp\0org.apache.spark.deploy.SparkSubmit"),
        "50": (1, b"airflow worker -- 0199f0-of-another-scheduler"),
        "self": (13, b"airflow worker -- 0199f0-task"),
    }
    for name, (parent, title) in processes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "stat").write_text(f"{name} (a (b) c) S {parent} 1 1")
        (tmp_path / name / "cmdline").write_bytes(title)
    (tmp_path / "99").mkdir()  # it ended meanwhile
    assert load().find_tasks(7, tmp_path) == [40]


def test_tasks_have_less_time_than_docker_gives_and_every_text_says_how_much() -> None:
    seconds = load().TASK_SECONDS
    services = yaml.safe_load((SCRIPT.parents[1] / "docker-compose.yaml").read_text())["services"]
    assert seconds + 10 <= int(services["airflow-scheduler"]["stop_grace_period"].removesuffix("s"))
    for path in ("tools/compose.py", "docs/how-to/from-laptop-to-team.md"):
        text = (SCRIPT.parents[1] / path).read_text()
        assert f"have {seconds} seconds to finish" in text and " 90 seconds" not in text, path


@pytest.mark.parametrize("code", [0, 5])
def test_without_a_stop_it_is_the_command(code: int) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), sys.executable, "-c", f"raise SystemExit({code})"])
    assert done.returncode == code
