"""Processes of the model: a command that runs in a thread of its own, and can be killed or frozen at any storage call.

Only one of them ever runs: whoever starts or thaws one waits until it has ended, died, or come to its stop. A killed
process does not tidy up: from its stop on every storage call raises, so that nothing it would still do (give the lease
back, write a report) reaches the disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import deltalake
import deltalake.table
import deltalake.transaction
import pytest

from tests.support.storage_calls import KilledHere
from tidegate.sources.files.ledger_file import LedgerFile

_OS_CALLS = ("rename", "replace", "link", "symlink", "unlink", "mkdir", "rmdir", "fsync")
_here = threading.local()
_RANDOM_PART = re.compile(r"(?<![0-9a-f])[0-9a-f]{8,}(?![0-9a-f])|-[0-9a-f]{4}(?=-)|\d{8}T\d+Z")

State = Literal["running", "stopped", "ended", "killed"]


@dataclass(frozen=True)
class Stop:
    """A point of a process: its ``nth`` storage call (from 1) on a path with ``where`` in it, or behind that call."""

    where: str = ""
    nth: int = 1
    after: bool = False
    counts_syncs: bool = True
    """False for a kill: the files are the same before and after a sync, so the next call is the same point."""

    def matches(self, call: str) -> bool:
        """Return whether the call is one of those that are counted."""
        return self.where in call and (self.counts_syncs or not call.startswith("fsync "))

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.nth}{f' on {self.where!r}' if self.where else ''}"


@dataclass
class Process:
    """One command. ``value`` is what it returned, ``error`` what it ended with."""

    name: str
    state: State = "running"
    value: Any = None
    error: BaseException | None = None
    calls: list[str] = field(default_factory=list)
    _stop: Stop | None = None
    _hits: int = 0
    _thread: threading.Thread | None = None
    _resume: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _paused: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self, command: Callable[[], Any], stop: Stop | None = None) -> None:
        """Run ``command`` to its end, or to ``stop``."""
        self._stop = stop
        self._thread = threading.Thread(target=self._run, args=(command,), name=self.name, daemon=True)
        self._thread.start()
        self._paused.acquire()

    def thaw(self, stop: Stop | None = None) -> None:
        """Go on to the end, or to the next stop."""
        assert self.state == "stopped"
        self._stop, self._hits, self.state = stop, 0, "running"
        self._resume.release()
        self._paused.acquire()

    def kill(self) -> None:
        """End it where it stands."""
        if self.state == "stopped":
            self.state = "killed"
            self._resume.release()
            self._paused.acquire()

    def _run(self, command: Callable[[], Any]) -> None:
        _here.process = self
        try:
            self.value = command()
        except BaseException as error:
            self.error = error
        finally:
            _here.process = None
            if self.state == "running":
                self.state = "ended"
            self._paused.release()

    def _pause(self) -> None:
        self.state = "stopped"
        self._paused.release()
        self._resume.acquire()
        self._die_if_killed()

    def _die_if_killed(self) -> None:
        if self.state == "killed":
            raise KilledHere(self.name)

    @contextlib.contextmanager
    def at(self, label: str) -> Iterator[None]:
        """A storage call: whatever is inside happens, unless the process was killed before."""
        self._die_if_killed()
        self.calls.append(label)
        stop = self._stop
        mine = stop is not None and stop.matches(label)
        if mine and stop is not None:
            self._hits += 1
            mine = self._hits == stop.nth
            if mine and not stop.after:
                self._stop = None
                self._pause()
        try:
            yield
        finally:  # a call that fails is a point too
            if mine and stop is not None and stop.after and self.state == "running":
                self._stop = None
                self._pause()


def stops(every: int, *, killed: bool) -> Iterator[Stop]:
    """Where a sweep stops a command: every so many calls in `make test`, each one in `make sweep`; before and after
    the calls in turn. The sweep ends at the first stop that the command does not come to."""
    step = 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else every
    for at in range(1, 1000, step):
        yield Stop(nth=at, after=step > 1 and at % 2 == 0, counts_syncs=not killed)


def current() -> Process | None:
    """The process whose thread this is; None for the test itself."""
    return getattr(_here, "process", None)


def patch_storage(patch: pytest.MonkeyPatch, root: Path, on_call: Callable[[Process, str, str], None]) -> None:
    """Make every storage call under ``root`` a point of the process that makes it; ``on_call(process, call, path)``
    is told of each that succeeded."""

    def wrap(name: str, real: Callable[..., Any], find: Callable[[tuple[Any, ...]], str]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            process = current()
            if process is None:
                return real(*args, **kwargs)
            path = find(args)
            with process.at(f"{name} {_shorten(path, root)}"):
                result = real(*args, **kwargs)
                on_call(process, name, path)
                return result

        return call

    for name in _OS_CALLS:
        patch.setattr(os, name, wrap(name, getattr(os, name), _path_of))
    create = deltalake.transaction.create_table_with_add_actions
    patch.setattr(deltalake.transaction, "create_table_with_add_actions", wrap("commit", create, _log_of))
    commit = deltalake.DeltaTable.create_write_transaction
    patch.setattr(deltalake.DeltaTable, "create_write_transaction", wrap("commit", commit, _log_of))
    alter = deltalake.table.TableAlterer.add_columns
    patch.setattr(deltalake.table.TableAlterer, "add_columns", wrap("commit", alter, lambda args: "_delta_log"))
    patch.setattr(LedgerFile, "_writing", _wrap_ledger(LedgerFile._writing))


def _wrap_ledger(real: Callable[..., Any]) -> Callable[..., Any]:
    """A transaction of the ledger as one call: SQLite undoes what was stopped inside."""

    @contextlib.contextmanager
    def writing(self: LedgerFile, **how: Any) -> Iterator[None]:
        process = current()
        with process.at("transaction ledger") if process is not None else contextlib.nullcontext(), real(self, **how):
            yield

    return writing


def _path_of(args: tuple[Any, ...]) -> str:
    target = args[-1] if len(args) > 1 and isinstance(args[1], str | bytes | os.PathLike) else args[0]
    if isinstance(target, int):
        try:
            return os.readlink(f"/proc/self/fd/{target}")
        except OSError:
            return f"fd {target}"
    return os.fsdecode(target)


def _log_of(args: tuple[Any, ...]) -> str:
    table = args[0]
    return f"{table if isinstance(table, str) else table.table_uri}/_delta_log"


def _shorten(path: str, root: Path) -> str:
    return _RANDOM_PART.sub("~", path.removeprefix("file://").removeprefix(f"{root}/"))
