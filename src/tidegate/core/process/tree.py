"""Ending a driver with everything it started, and never outliving one's parent (Linux).

spark-submit is a chain: shell -> JVM -> Python driver -> Python daemon -> Python workers. The daemon makes a process
group of its own and orphans change their parent, so neither a group nor a walk down from the parent finds them all; the
*session* does, because none of them starts a new one. Both are looked at: session members and descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.core.process.machine import read_stat

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec nothing may be imported or looked up.
_LIBC = ctypes.CDLL(None, use_errno=True)

TERM_SECONDS = 2.0
KILL_SECONDS = 1.5
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ProcessMark:
    """One process, distinguished from a later one with the same id by its start time (clock ticks since boot)."""

    pid: int
    parent_pid: int
    session_id: int
    started_ticks: int


def die_with_parent(sig: int = signal.SIGKILL) -> None:
    """Have the kernel send ``sig`` to this process when the thread that made it ends. Survives ``exec``."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)


def bind_to_parent(parent_pid: int) -> Callable[[], None]:
    """A ``preexec_fn`` for a child of ``parent_pid``: SIGKILL when that parent dies, also if it is dead already."""

    def preexec() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(128 + int(signal.SIGKILL))

    return preexec


def list_tree(root_pid: int) -> list[ProcessMark]:
    """The living processes of session ``root_pid`` and every descendant of ``root_pid``; zombies are not listed."""
    marks = _list_processes()
    children: dict[int, list[ProcessMark]] = {}
    for mark in marks:
        children.setdefault(mark.parent_pid, []).append(mark)
    found: dict[int, ProcessMark] = {m.pid: m for m in marks if m.pid == root_pid or m.session_id == root_pid}
    queue = list({root_pid, *found})
    while queue:
        for child in children.get(queue.pop(), []):
            if child.pid not in found:
                found[child.pid] = child
                queue.append(child.pid)
    return list(found.values())


def end_tree(
    root_pid: int, term_seconds: float = TERM_SECONDS, kill_seconds: float = KILL_SECONDS
) -> list[ProcessMark]:
    """SIGTERM to the whole tree of ``root_pid``, SIGKILL after ``term_seconds`` to what is left.

    Returns what still lives ``kill_seconds`` later (nothing, unless the kernel holds a process in a system call). Takes
    no longer than both times together. Processes that appear meanwhile are found by the next look.
    """
    reported: set[ProcessMark] = set()
    known: dict[int, ProcessMark] = {}
    term_until = time.monotonic() + term_seconds
    kill_until = term_until + kill_seconds
    while True:
        living = _refresh(root_pid, known)
        if not living:
            return []
        now = time.monotonic()
        if now >= kill_until:
            return living
        for mark in living:
            if now >= term_until:
                _send(mark, signal.SIGKILL)
            elif mark not in reported:
                reported.add(mark)
                _send(mark, signal.SIGTERM)
        time.sleep(_POLL_SECONDS)


def _refresh(root_pid: int, known: dict[int, ProcessMark]) -> list[ProcessMark]:
    """The tree now, and the members seen before that live on under another parent."""
    living = {mark.pid: mark for mark in list_tree(root_pid)}
    for pid, mark in known.items():
        if pid not in living:
            now = _read_mark(pid)
            if now is not None and now.started_ticks == mark.started_ticks:
                living[pid] = mark
    known.clear()
    known.update(living)
    return list(living.values())


def _send(mark: ProcessMark, sig: signal.Signals) -> None:
    now = _read_mark(mark.pid)
    if now is None or now.started_ticks != mark.started_ticks:
        return
    try:
        os.kill(mark.pid, sig)
    except (ProcessLookupError, PermissionError):
        return


def _list_processes() -> list[ProcessMark]:
    marks = (_read_mark(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [mark for mark in marks if mark is not None]


def _read_mark(pid: int) -> ProcessMark | None:
    """The process, or None when it is gone or a zombie."""
    fields = read_stat(pid)
    if fields is None or len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return ProcessMark(pid=pid, parent_pid=int(fields[1]), session_id=int(fields[3]), started_ticks=int(fields[19]))
