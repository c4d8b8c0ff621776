"""Starting and ending long-lived processes, so that none is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.console import ToolError

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For ``preexec_fn``: the kernel kills this process when the thread that started it ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):  # Linux only; elsewhere an orderly end must do
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start_process(
    command: Sequence[str],
    log_path: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    tied: bool = True,
) -> subprocess.Popen[bytes]:
    """Starts ``command`` in its own session, output appended to ``log_path``; ``tied``: it dies with its starter."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=die_with_parent if tied else None,
        )


def read_start_ticks(pid: int) -> int | None:
    """When ``pid`` started (clock ticks since boot): with the pid it identifies one process. None: not running."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def list_session(session_id: int) -> list[int]:
    """The running processes of a session (what :func:`start_process` started, and all that came from it)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] != "Z" and int(fields[3]) == session_id:
            found.append(int(entry.name))
    return found


def list_descendants(pid: int) -> list[int]:
    """The running descendants of ``pid``, whatever session they moved to; ``pid`` itself is not among them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send_signal(pids: Sequence[int], number: int) -> None:
    """``number`` to each of ``pids`` that still runs."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_until(condition: Callable[[], bool], timeout_seconds: float, interval_seconds: float = 0.05) -> bool:
    """Whether ``condition`` came true in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_seconds)
    return True


def choose_free_port() -> int:
    """A port nobody listens on right now.

    Below the range from which the kernel takes ports for outgoing connections: there, a client that keeps trying to
    reach a server that is away may take the very port that the server needs to come back.
    """
    for _ in range(200):
        port = random.randrange(15_000, 32_000)
        if not is_port_used(port):
            return port
    raise ToolError("no free port between 15000 and 32000", "end what listens there (ss -ltn)")


def is_port_used(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server cannot listen on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def refuse_used_port(port: int, what: str, fix: str) -> None:
    """Raises when something listens on ``port`` already."""
    if is_port_used(port):
        raise ToolError(f"port {port}, which {what} needs, is in use by another program", fix)


def tail_log(path: Path, lines: int = 15) -> str:
    """The last lines of a log, indented, for an error message."""
    try:
        text = path.read_text(errors="replace").splitlines()
    except OSError:
        return "  (no log)"
    return "\n".join(f"  | {line}" for line in text[-lines:]) or "  (empty log)"
