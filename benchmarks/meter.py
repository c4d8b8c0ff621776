"""What a command costs: CPU-seconds of its whole process tree, wall time, and peak memory of the tree.

``measure`` starts a small guard process that makes itself the reaper of every orphan below it
(PR_SET_CHILD_SUBREAPER), so that a process which outlives its parent, as a Spark driver may, is waited for and counted
all the same.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_EVERY_SECONDS = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """What one command cost. ``cpu_seconds`` is user and system time of every process of the tree,
    ``worker_rss_bytes`` the resident memory of the largest Python worker of Spark."""

    exit_code: int
    cpu_seconds: float
    wall_seconds: float
    peak_rss_bytes: int
    processes: int
    java_processes: int
    worker_rss_bytes: int = 0


def list_tree(root: int) -> list[int]:
    """Process ids below ``root``, without it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(below)
    return found


def read_rss_bytes(pid: int) -> int:
    """Resident memory of one process; 0 when it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def read_name(pid: int) -> str:
    """The command name of one process; empty when it has gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def is_worker(pid: int) -> bool:
    """Whether the process is a Python worker of Spark, or the one that they are forked from."""
    try:
        return b"\0pyspark.worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def measure(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    stop_when: Callable[[], bool] | None = None,
) -> Cost:
    """Run ``argv`` to its end and return what it cost.

    Output goes to ``log`` (or nowhere). With ``stop_when`` the whole tree gets SIGKILL as soon as the function says
    True; it is asked every 20 ms.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "cost.json"
        guard = subprocess.Popen(
            [sys.executable, __file__, "--result", str(result), "--log", str(log or os.devnull), "--", *argv],
            cwd=cwd,
            env=dict(os.environ if env is None else env),
        )
        try:
            if stop_when is not None:
                while guard.poll() is None:
                    if stop_when():
                        _kill_below(guard.pid)
                        break
                    time.sleep(0.02)
            guard.wait()
        except BaseException:
            _kill_below(guard.pid)
            guard.wait()
            raise
        return Cost(**json.loads(result.read_text()))


def _kill_below(root: int) -> None:
    """SIGKILL to everything below ``root``, again until nothing is left (a process may fork meanwhile)."""
    for _ in range(50):
        tree = list_tree(root)
        if not tree:
            return
        for pid in tree:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _guard(argv: list[str], log: str) -> Cost:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
    peak, worker, ended = 0, 0, threading.Event()
    seen: set[int] = set()
    java: set[int] = set()

    def sample() -> None:
        nonlocal peak, worker
        while not ended.wait(SAMPLE_EVERY_SECONDS):
            tree = list_tree(os.getpid())
            seen.update(tree)
            java.update(pid for pid in tree if read_name(pid) == "java")
            peak = max(peak, sum(read_rss_bytes(pid) for pid in tree))
            worker = max([worker, *(read_rss_bytes(pid) for pid in tree if is_worker(pid))])

    sampler = threading.Thread(target=sample, daemon=True)
    with open(log, "ab") as output:
        started = time.monotonic()
        first = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        sampler.start()
        exit_code, wall = 0, 0.0
        while True:
            try:
                pid, status, _ = os.wait4(-1, 0)
            except ChildProcessError:
                break
            if pid == first.pid:
                exit_code, wall = os.waitstatus_to_exitcode(status), time.monotonic() - started
                first.returncode = exit_code
    ended.set()
    sampler.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(exit_code, used.ru_utime + used.ru_stime, wall, peak, len(seen), len(java), worker)


def main() -> int:
    """The guard process; not for people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    given.result.write_text(json.dumps(asdict(_guard(given.command, given.log))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
