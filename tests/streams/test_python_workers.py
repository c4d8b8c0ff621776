"""Python workers that are killed while they read: the run ends with 75, and the next one reads each record once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source
from tidegate.core.errors import TryAgainError
from tidegate.sources.readers.lines import PART_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 200_000


def _find_workers() -> list[int]:
    """The processes that were forked from a daemon of pyspark's below this one."""
    daemons = {pid for pid in _list_processes() if _is_daemon(pid)}
    return [pid for pid in daemons if _parent_of(pid) in daemons]


def _list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_ours(pid: int) -> bool:
    """Whether a process is below this one: other sessions may be at work on the machine."""
    while pid > 1 and pid != os.getpid():
        pid = _parent_of(pid)
    return pid == os.getpid()


def test_a_worker_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("events", "id INT, note STRING"))
    folder = tmp_path / "data/in/events"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("".join(f'{{"id": {n}, "note": "{"x" * 100}"}}\n' for n in range(_ROWS)))
    is_over, killed = threading.Event(), list[int]()

    def kill_workers() -> None:
        while not is_over.is_set():
            for pid in filter(_is_ours, _find_workers()):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.01)

    killer = threading.Thread(target=kill_workers, daemon=True)
    killer.start()
    try:
        with pytest.raises(TryAgainError) as caught:
            flow.run()
    finally:
        is_over.set()
        killer.join()
    assert killed and caught.value.code == "PYTHON_WORKER_LOST"
    report = flow.run()
    assert (report["rows"]["read"], report["rows"]["published"]) == (_ROWS, _ROWS)
    flow.expect("id", [(n,) for n in range(_ROWS)])


def test_a_large_file_is_read_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    """Each line once, and a malformed one behind the first part with its line."""
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("events", "id INT, note STRING"))
    folder = tmp_path / "data/in/events"
    folder.mkdir(parents=True)
    count, note = 90_000, "x" * 1000
    lines = [f'{{"id": {n}, "note": "{note}"}}\r\n' if n % 30_000 != 29_999 else "torn\r\n" for n in range(count)]
    (folder / "a.json").write_text("".join(lines), newline="")
    assert (folder / "a.json").stat().st_size > 2 * PART_BYTES
    rows = flow.run()["rows"]
    assert (rows["read"], rows["malformed"], rows["published"]) == (count, 3, count - 3)
    flow.expect("id", [(n,) for n in range(count) if n % 30_000 != 29_999])
    aside = read_agreed(tmp_path / "data/quarantine/flow", spark)
    assert sorted(json.loads(row["position"])["line"] for row in aside) == [30_000, 60_000, 90_000]
    files = list((tmp_path / "data/warehouse/flow").glob("*.parquet"))
    assert len(files) > 1, "the parts are read by several tasks"
