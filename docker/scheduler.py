"""Airflow's scheduler as a service that ends in order: python scheduler.py COMMAND...

SIGTERM is passed on: the scheduler starts no task any more and waits for those that run. The ones that are not done
after TASK_SECONDS are stopped in Airflow's own way, so that each says in its log that it was stopped, is tried again,
and ends its Spark driver. Docker kills what is still there after stop_grace_period, without a word. The standard
library alone: process 1 of the container must not need more.
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
"""How long tasks have to end by themselves; stop_grace_period is 90 seconds, and a stopped one needs a few."""

_TITLE = b"airflow worker -- "
_POOL = b"airflow worker -- LocalExecutor"


def find_tasks(proc: Path = Path("/proc")) -> list[int]:
    """The processes of running tasks, by the title that Airflow gives them."""
    found = []
    for folder in proc.iterdir():
        try:
            title = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
        except OSError:
            continue  # it has ended
        if title.startswith(_TITLE) and not title.startswith(_POOL):
            found.append(int(folder.name))
    return sorted(found)


def stop_tasks() -> None:
    """Ask every running task to stop: its operator's on_kill ends the Spark driver and says so."""
    for pid in find_tasks():
        print(f"stopping task process {pid}: the service stops, and it has not ended by itself", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def main(command: list[str], task_seconds: float = TASK_SECONDS) -> int:
    """Run the scheduler until it ends; its exit code."""
    scheduler = subprocess.Popen(command)
    timer = threading.Timer(task_seconds, stop_tasks)
    timer.daemon = True

    def pass_on(number: int, _frame: object) -> None:
        if timer.ident is None:
            timer.start()
        scheduler.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    code = scheduler.wait()
    timer.cancel()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
