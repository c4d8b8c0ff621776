"""How far a task has read, reported to the driver while it reads: Spark itself reports a task at its end.

A report is a datagram with all that the task has read so far: a lost one does no harm, and nothing on disk is left by
a kill. A task that cannot report still reads its records.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import NamedTuple


class ReportAddress(NamedTuple):
    """Where a driver receives reports on a source, one of a task every ``pause_seconds``; with its ``token``, which no
    other sender knows."""

    host: str
    port: int
    token: str
    source: str
    pause_seconds: float


class Report(NamedTuple):
    """What a task has read of a source. ``done`` is in bytes of files, compressed ones as they are, or in offsets.

    ``task`` is its first part, so that a second attempt at the same part is not counted twice."""

    source: str
    task: str
    rows: int
    done: int

    def to_datagram(self, token: str) -> bytes:
        """The report, behind the token."""
        return f"{token} {json.dumps(self)}".encode()

    @classmethod
    def of(cls, datagram: bytes, token: str) -> Report | None:
        """Parse a datagram; None for one that does not begin with the token. Raises ValueError when it was cut."""
        given, _, text = datagram.partition(b" ")
        return cls(*json.loads(text)) if given == token.encode() else None


class Meter:
    """Counts what a task reads, and reports it at times and at the end. Never raises OSError."""

    def __init__(self, address: ReportAddress | None) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._task = ""
        self._rows = self._done = self._size = 0
        self._reported_at = time.monotonic()

    def begin(self, part: str, size: int) -> None:
        """A part of ``size`` bytes or offsets begins; the part before it is done."""
        self._task = self._task or part
        self._done, self._size = self._done + self._size, size

    def is_due(self, rows: int) -> bool:
        """Count ``rows`` more; return whether a report is due."""
        self._rows += rows
        return self._address is not None and time.monotonic() - self._reported_at >= self._address.pause_seconds

    def report(self, position: int) -> None:
        """Report that the part was read up to ``position``, in bytes or offsets from its begin."""
        self._reported_at = time.monotonic()
        if self._address is None:
            return
        host, port, token, source, _ = self._address
        done = self._done + min(max(position, 0), self._size)
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                self._socket.connect((host, port))  # looks the host up, once
            self._socket.send(Report(source, self._task, self._rows, done).to_datagram(token))
        except ConnectionRefusedError:  # the answer to an earlier one: the driver has ended, or will listen again
            pass
        except OSError:
            self._address = None

    def end(self) -> None:
        """Report that all parts are done."""
        self.report(self._size)
        if self._socket is not None:
            self._socket.close()


def find_position(path: str) -> int:
    """How far this process has read the file at ``path``, of which it has one open; 0 where that is not known.

    The system knows it, also of a file that a library has opened to unpack it."""
    with contextlib.suppress(OSError):
        wanted = os.stat(path)
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/self/fd/{number}"), wanted):
                    with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as info:
                        return int(info.readline().removeprefix("pos:"))
    return 0
