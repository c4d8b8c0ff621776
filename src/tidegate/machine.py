"""Which machine, boot and process this is, and whether another one can still be alive. Linux: read from /proc."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any


def is_dead(record: dict[str, Any]) -> bool:
    """Whether the process that wrote ``record`` (:func:`find_whereabouts`, pid, pid_started) is provably gone.

    Only for a process of this machine and this pid namespace, or of an earlier boot of this machine; False elsewhere.
    """
    here = find_whereabouts()
    if any(record.get(key) != here[key] for key in ("host", "machine_id")):
        return False
    if record.get("boot_id") != here["boot_id"]:
        return here["machine_id"] != ""  # without an id of the machine, two of the same name cannot be told apart
    if record.get("pid_namespace") != here["pid_namespace"]:
        return False  # another container on this machine: its pids mean nothing here
    started = read_process_start(int(record["pid"]))
    return started is None or started != record.get("pid_started")


def find_whereabouts() -> dict[str, str]:
    """This process's host, machine_id ("" where there is none), boot_id and pid_namespace."""
    return {
        "host": socket.gethostname(),
        "machine_id": _read_text("/etc/machine-id"),
        "boot_id": read_boot_id(),
        "pid_namespace": _find_pid_namespace(),
    }


def read_clock() -> dict[str, Any]:
    """Now, as beat_at (seconds since the epoch) and beat_since_boot (seconds, sleep included, of boot_id)."""
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
    """Start of a process in clock ticks since boot; None when it is gone, or dead and only not yet reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X", b"x") else int(fields[19])
