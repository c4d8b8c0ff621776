"""A program whose N-th call of the operating system fails, whichever room makes it: storage, lease, intake, ledger."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.sources.files import ledger_file

UNKNOWN = 4095
"""An errno that no system has."""
ERRNOS = (errno.EIO, UNKNOWN)

_CALLS = (
    *("open", "link", "symlink", "rename", "replace", "unlink", "remove", "rmdir", "mkdir"),
    *("fsync", "listdir", "scandir", "stat", "lstat", "utime", "truncate"),
)


class FailingCalls:
    """Counts the calls on what is under ``root``, and has call ``at`` fail with ``number``. ``failed`` says which one
    that was, "" as long as none was. SQLite reports EIO as its own error."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, at: int, number: int) -> None:
        self.root, self.at, self.number = f"{root}/", at, number
        self.count = 0
        self.failed = ""
        self.first: dict[tuple[str, str], int] = {}
        """The first call of each kind from each line of the program."""
        self._is_on = True
        for name in _CALLS:
            patch.setattr(os, name, self._wrap(name, getattr(os, name)))
        opener = self._wrap("open", builtins.open)
        patch.setattr(builtins, "open", opener)
        patch.setattr(io, "open", opener)
        patch.setattr(ledger_file.sqlite3, "connect", self._connect(sqlite3.connect))

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """No call counts within: it is made by the test, or stands for another program."""
        self._is_on = False
        try:
            yield
        finally:
            self._is_on = True

    def is_hit(self, name: str, path: str) -> bool:
        """Count a call; whether it is the one that fails."""
        if not self._is_on or not f"{path}/".startswith(self.root):
            return False
        self.count += 1
        place = (name.partition(" ")[0], _find_caller())
        self.first.setdefault(place, self.count)
        if self.count != self.at:
            return False
        self.failed = f"{name} {path.removeprefix(self.root)} ({place[1]})"
        return True

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            path = _path_of(args[0] if args else ".")
            if self.is_hit(name, path):
                text = os.strerror(self.number)
                raise OSError(self.number, text) if name == "fsync" else OSError(self.number, text, path)
            return real(*args, **more)

        return call

    def _connect(self, real: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        failing = self

        class Connection(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                failing.fail_sqlite(args[0])
                return super().execute(*args)

            def executemany(self, *args: Any) -> sqlite3.Cursor:
                failing.fail_sqlite(args[0])
                return super().executemany(*args)

        def connect(*args: Any, **more: Any) -> sqlite3.Connection:
            self.fail_sqlite("connect", "unable to open database file", "SQLITE_CANTOPEN")
            return real(*args, factory=Connection, **more)

        return connect

    def fail_sqlite(self, statement: str, text: str = "disk I/O error", name: str = "SQLITE_IOERR_FSYNC") -> None:
        """Count a statement as a call; raise what SQLite makes of an error of the disk when it is the one."""
        if not statement.startswith("ROLLBACK") and self.is_hit(f"sqlite {statement[:30]!r} in", self.root):
            error = sqlite3.OperationalError(text)
            error.sqlite_errorname = name
            raise error


def _path_of(target: Any) -> str:
    if isinstance(target, int):
        with contextlib.suppress(OSError):
            return _readlink(f"/proc/self/fd/{target}")
        return ""
    return os.fsdecode(target)


def _find_caller() -> str:
    """The line of the program that asked, above the storage room."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/src/tidegate/" in name and "/storage/" not in name:
            return f"{name.partition('/src/tidegate/')[2]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


_readlink = os.readlink
