"""What the live tests look at from outside: the processes below an Airflow, and how many of them are Spark drivers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.core.process.tree import ProcessMark, list_tree


def read_command(pid: int) -> str:
    """The command line of a process, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until_gone(tree: list[ProcessMark], seconds: float) -> None:
    """Until no process of ``tree`` lives; fails with the commands of those that do."""
    until = time.monotonic() + seconds
    while True:
        living = {(mark.pid, mark.started_ticks) for start in tree for mark in list_tree(start.pid)}
        left = [mark for mark in tree if (mark.pid, mark.started_ticks) in living]
        if not left:
            return
        assert time.monotonic() < until, [read_command(mark.pid)[:200] for mark in left]
        time.sleep(0.05)


def list_drivers(root_pid: int) -> list[int]:
    """The JVMs of Spark drivers below a process; not the launcher that each has before it for a moment, nor a child of
    the JVM's that has its command line until it runs something else."""
    parents = {mark.pid: mark.parent_pid for mark in list_tree(root_pid) if _is_driver(read_command(mark.pid))}
    return [pid for pid, parent in parents.items() if parent not in parents]


def _is_driver(command: str) -> bool:
    is_java = command.partition(" ")[0].endswith("java")
    return is_java and "deploy.SparkSubmit" in command and "launcher.Main" not in command


class DriverWatch:
    """Looks ten times a second while the context is open: ``most`` drivers at once, and all that were ``seen``."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = 0
        self.seen: set[int] = set()
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            drivers = list_drivers(self._root_pid)
            self.most = max(self.most, len(drivers))
            self.seen.update(drivers)
            self.looks += 1
