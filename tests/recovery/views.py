"""What readers see of a scene at one moment, and processes put to sleep and woken."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.readers import canonical, read_with_deltalake, read_with_duckdb
from tests.support.scene import Scene


@dataclass(frozen=True)
class View:
    """Table and quarantine as plain and Delta readers see them, with the names of their files."""

    rows: dict[str, Counter[str]]
    files: frozenset[str]


def view_of(scene: Scene) -> View:
    """What a reader sees now."""
    rows, files = {}, set[str]()
    for name, folder in (("table", scene.table), ("quarantine", scene.quarantine)):
        rows[f"{name} with DuckDB"] = canonical(read_with_duckdb(folder))
        rows[f"{name} with deltalake"] = canonical(read_with_deltalake(folder))
        files |= {str(path.relative_to(scene.root)) for path in folder.rglob("*.parquet")}
    return View(rows, frozenset(files))


def tree_of(folder: Path) -> dict[str, bytes | str | None]:
    """Every entry under a folder: the bytes of a file, the target of a link, None for a folder."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


def send_all(pids: list[int], sig: signal.Signals) -> None:
    """Send a signal to processes of a scene; those that are gone by now are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


def freeze_tree(scene: Scene) -> list[int]:
    """Stop every process of the scene, those that one of them was just starting included; their ids."""
    frozen: set[int] = set()
    while awake := [pid for pid in scene.processes() if not is_stopped(pid)]:
        send_all(awake, signal.SIGSTOP)
        frozen |= set(awake)
        time.sleep(0.02)
    return sorted(frozen | set(scene.processes()))


def wait_for_sleeper(scene: Scene, process: subprocess.Popen[bytes], seconds: float = 120) -> bool:
    """Wait until a process of the scene stopped itself; False when the command ended without."""
    until = time.monotonic() + seconds
    while process.poll() is None:
        if any(is_stopped(pid) for pid in scene.processes()):
            return True
        assert time.monotonic() < until, f"neither ended nor stopped within {seconds} s"
        time.sleep(0.01)
    return False
