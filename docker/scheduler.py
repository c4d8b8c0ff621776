"""The scheduler as a service: python scheduler.py COMMAND...

It starts the scheduler once the API server answers, since a task that starts before that is lost. On SIGTERM the
scheduler starts no new task and waits for the running ones. Tasks still running after TASK_SECONDS get SIGTERM, so that
each logs that it was stopped, is retried, and ends its Spark driver. What is left after stop_grace_period Docker kills
without a log entry. A scheduler that fails (its database went away) waits for running tasks too, without scheduling
any; after SILENT_SECONDS they are stopped, so that it ends and is started again. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from answers import find_fault

TASK_SECONDS = 70
"""How long running tasks have to finish; stop_grace_period is 90 seconds, and a stopped one needs a few."""
SILENT_SECONDS = 60
"""How long the health check of a scheduler that was healthy may fail."""

_LOOK_SECONDS = 5
_HEALTH_URL = "http://127.0.0.1:8974/health"
_TITLE = b"airflow worker -- "
_EXECUTOR_TITLE = b"airflow worker -- LocalExecutor"


def find_tasks(scheduler: int, proc: Path = Path("/proc")) -> list[int]:
    """The processes of running tasks below process ``scheduler``, by the titles that Airflow gives them."""
    parents: dict[int, int] = {}
    tasks = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            title = (folder / "cmdline").read_bytes()
            if title.startswith(_TITLE) and not title.startswith(_EXECUTOR_TITLE):
                tasks.append(pid)
    return sorted(pid for pid in tasks if _is_below(pid, scheduler, parents))


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


class Watch:
    """Stops the tasks of a scheduler when the time for them is over."""

    def __init__(self, scheduler: int, task_seconds: float, silent_seconds: float, health_url: str) -> None:
        self._scheduler, self._health_url = scheduler, health_url
        self._task_seconds, self._silent_seconds = task_seconds, silent_seconds
        self._stop_at: float | None = None
        self._healthy_at: float | None = None
        self._stopped: set[int] = set()

    def stop(self) -> None:
        """The service is being stopped: tasks have some time from now on."""
        self._stop_at = time.monotonic() + self._task_seconds

    def run(self, look_seconds: float = _LOOK_SECONDS) -> None:
        """Look every few seconds, for as long as the process lives."""
        while True:
            time.sleep(look_seconds)
            why = self._why_over()
            if why is not None:
                self._stop_tasks(why)

    def _why_over(self) -> str | None:
        now = time.monotonic()
        if self._stop_at is not None:
            return "the service is being stopped, and the task has not finished" if now >= self._stop_at else None
        if find_fault(self._health_url, "") is None:
            self._healthy_at = now
        elif self._healthy_at is not None and now - self._healthy_at > self._silent_seconds:
            return f"the scheduler has not been healthy for {self._silent_seconds:.0f} seconds"
        return None

    def _stop_tasks(self, why: str) -> None:
        """Ask each running task once to stop: its operator's on_kill ends the Spark driver and says so."""
        for pid in set(find_tasks(self._scheduler)) - self._stopped:
            print(f"stopping task process {pid}: {why}", flush=True)
            self._stopped.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def wait_for_api_server() -> None:
    """Until the API server that tasks report to answers, if the environment names one."""
    server = os.environ.get("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "").removesuffix("/").removesuffix("/execution")
    while server and (fault := find_fault(f"{server}/api/v2/monitor/health", "")) is not None:
        print(f"waiting for the API server: {fault}", flush=True)
        time.sleep(_LOOK_SECONDS)


def main(
    command: list[str],
    task_seconds: float = TASK_SECONDS,
    silent_seconds: float = SILENT_SECONDS,
    health_url: str = _HEALTH_URL,
    look_seconds: float = _LOOK_SECONDS,
) -> int:
    """Run the scheduler until it ends; its exit code."""
    wait_for_api_server()
    scheduler = subprocess.Popen(command)
    watch = Watch(scheduler.pid, task_seconds, silent_seconds, health_url)
    threading.Thread(target=watch.run, args=[look_seconds], daemon=True).start()
    is_stopping = False

    def pass_on(number: int, _frame: object) -> None:
        nonlocal is_stopping
        if not is_stopping:  # a second signal would have it leave its tasks behind
            is_stopping = True
            watch.stop()
            scheduler.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    code = scheduler.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
