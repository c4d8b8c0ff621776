"""Which machine, boot, process and person this is, what time it is, and whether another process can still be alive.

Linux: read from /proc.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

_ONE_KERNEL = frozenset(
    (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"jfs", b"zfs", b"bcachefs", b"overlay", b"tmpfs")
)
"""File systems that are mounted by one kernel at a time. A network or cluster file system is none of them."""


class Whereabouts(TypedDict):
    """Where a process runs; ``machine_id`` is "" where there is none."""

    host: str
    machine_id: str
    boot_id: str
    pid_namespace: str


class ProcessRecord(TypedDict, total=False):
    """What a process writes down of itself; a damaged record lacks some of it."""

    host: str
    machine_id: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int | None


class Clock(TypedDict):
    """A moment: ``beat_at`` in seconds since the epoch, ``beat_since_boot`` in seconds, sleep included, of
    ``boot_id``."""

    beat_at: float
    beat_since_boot: float
    boot_id: str


def is_dead(record: ProcessRecord, folder: Path | None) -> bool:
    """Return whether the process that wrote ``record`` into ``folder`` (None: to an object store) is provably gone.

    A process of this boot and pid namespace is looked up. One of another boot is gone when this machine wrote the
    record, by host name and machine id, and the folder is on a disk of its own: it was started again since. Either
    alone proves nothing. A disk of this machine may be exported to others (NFS, SMB), and names may be baked into an
    image that several machines on shared storage were made from. False where any of it is unknown.
    """
    here = find_whereabouts()
    if not record.get("boot_id") or not here["boot_id"]:
        return False
    if record["boot_id"] != here["boot_id"]:
        is_ours = bool(here["machine_id"]) and all(record.get(key) == here[key] for key in ("host", "machine_id"))
        return is_ours and folder is not None and is_local_disk(folder)
    if any(record.get(key) != value for key, value in here.items()):
        return False  # another container on this machine: its pids mean nothing here
    return _is_gone(int(record["pid"]), record.get("pid_started"))


def _is_gone(pid: int, started: int | None) -> bool:
    try:
        os.kill(pid, 0)  # /proc hides other users' processes under hidepid; this does not
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # there, and of another user
    now = _read_process(pid)
    if now is None:
        return False
    return now[0] in ("Z", "X", "x") or (started is not None and now[1] != started)


def is_local_disk(folder: Path) -> bool:
    """Return whether ``folder`` lies on a file system that one kernel at a time mounts, which may export it; False
    where that is unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return False
    here = os.path.realpath(os.fsencode(folder)) + b"/"
    found, kind = b"", b""
    for line in mounts.split(b"\n"):
        fields, _, source = line.partition(b" - ")
        if not source:
            continue
        point = re.sub(rb"\\([0-7]{3})", lambda match: bytes((int(match[1], 8),)), fields.split(b" ")[4])
        point = point.rstrip(b"/") + b"/"
        if here.startswith(point) and len(point) >= len(found):  # of two mounts on one place the later one is seen
            found, kind = point, source.split(b" ")[0]
    return kind in _ONE_KERNEL


def find_whereabouts() -> Whereabouts:
    """This process's."""
    return {
        "host": socket.gethostname(),
        "machine_id": _read_text("/etc/machine-id"),
        "boot_id": read_boot_id(),
        "pid_namespace": _find_pid_namespace(),
    }


def name_person() -> str:
    """Who runs this process, as records have it: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def now_text() -> str:
    """Now, in UTC, as records and reports spell it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def read_clock() -> Clock:
    """Now."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return {"beat_at": time.time(), "beat_since_boot": since_boot, "boot_id": read_boot_id()}


def read_boot_id() -> str:
    """The id that the kernel drew at boot."""
    return _read_text("/proc/sys/kernel/random/boot_id")


def _find_pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def read_process_start(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None when it is not there, or may not be looked at."""
    found = _read_process(pid)
    return None if found is None else found[1]


def _read_process(pid: int) -> tuple[str, int] | None:
    """State and start (clock ticks since boot) of a process."""
    fields = read_stat(pid)
    return None if fields is None else (fields[0].decode(), int(fields[19]))


def read_stat(pid: int) -> list[bytes] | None:
    """The fields of ``/proc/PID/stat`` from the state on; None for a process that is gone or may not be looked at."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in brackets may itself hold brackets and spaces: what counts starts behind the last one.
    return raw.rpartition(b")")[2].split()
