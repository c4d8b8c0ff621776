"""The guard ends all that came from its command, whatever way the end comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.processes import read_start_ticks, wait_until

ROOT = Path(__file__).resolve().parents[3]
# A command whose child leaves the session and ignores SIGTERM, as a JVM behind a launcher may.
COMMAND = [
    "sh",
    "-c",
    "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.1; done' & echo $$ >> pids; sleep 1000",
]


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.guard", "--tied", "--patience", "0.5", "--", *COMMAND],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.wait()


def read_pids(folder: Path) -> list[int]:
    assert wait_until(lambda: (folder / "pids").exists() and len((folder / "pids").read_text().split()) == 2, 10)
    return [int(pid) for pid in (folder / "pids").read_text().split()]


@pytest.mark.parametrize("end", ["terminated", "starter gone", "command gone"])
def test_nothing_is_left(end: str, guard: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pids = read_pids(tmp_path)
    assert all(read_start_ticks(pid) is not None for pid in pids)
    if end == "terminated":
        guard.send_signal(signal.SIGTERM)
    elif end == "starter gone":
        assert guard.stdin is not None
        guard.stdin.close()
    else:
        command = next(
            pid for pid in pids if os.getsid(pid) == pid and "1000" in Path(f"/proc/{pid}/cmdline").read_text()
        )
        os.kill(command, signal.SIGKILL)
    guard.wait(30)
    assert [pid for pid in pids if read_start_ticks(pid) is not None] == []
