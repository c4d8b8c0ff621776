"""The scheduler as a service: python scheduler.py COMMAND...

On SIGTERM the scheduler starts no new task and waits for the running ones. Tasks still running after TASK_SECONDS get
SIGTERM, so that each logs that it was stopped, is retried, and ends its Spark driver. What is left after
stop_grace_period Docker kills without a log entry. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

TASK_SECONDS = 70
"""How long running tasks have to finish; stop_grace_period is 90 seconds, and a stopped task needs a few."""

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


def stop_tasks(scheduler: int) -> None:
    """Ask every running task to stop: its operator's on_kill ends the Spark driver and says so."""
    for pid in find_tasks(scheduler):
        print(f"stopping task process {pid}: the service is being stopped, and the task has not finished", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def main(command: list[str], task_seconds: float = TASK_SECONDS) -> int:
    """Run the scheduler until it ends; its exit code."""
    scheduler = subprocess.Popen(command)
    timer = threading.Timer(task_seconds, stop_tasks, [scheduler.pid])
    timer.daemon = True
    is_stopping = threading.Event()

    def pass_on(number: int, _frame: object) -> None:
        if not is_stopping.is_set():
            is_stopping.set()
            timer.start()
        scheduler.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    code = scheduler.wait()
    timer.cancel()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
