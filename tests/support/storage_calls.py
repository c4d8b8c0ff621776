"""Stopping a program at its N-th storage call: every rename, link, unlink, mkdir and fsync is a point, and each request
to an object store that changes something.

``StorageCalls`` counts the calls of one thread and does something at a chosen one: raise (a kill), or wait (a freeze).
For a kill a sync is not a point: the files are the same before it and after it, so the call that follows it is the
same kill.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

_OS_CALLS = ("rename", "replace", "link", "unlink", "mkdir", "fsync")


class KilledHere(BaseException):
    """Stands for SIGKILL: no except clause of the program may swallow it."""


class StorageCalls:
    """Counts storage calls of one thread; ``act(name)`` runs at call ``at``, before it or (``after``) behind it, and
    with ``again`` at each later one too: ``same``, of calls of the same name, or ``any``."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        at: int,
        act: Callable[[str], None],
        *,
        after: bool = False,
        again: Literal["never", "same", "any"] = "never",
    ) -> None:
        self.count = 0
        self.at = at
        self.act = act
        self.after = after
        self.again = again
        self.thread = threading.get_ident()
        self.names: list[str] = []
        for name in _OS_CALLS:
            if name == "fsync" and act is kill:
                continue
            patch.setattr(os, name, self._wrap(f"os.{name}", getattr(os, name)))
        if (stores := sys.modules.get("tidegate.core.storage.stores")) is not None:
            real = stores.open_store
            patch.setattr(stores, "open_store", lambda *place: _Counted(real(*place), self._wrap))
            patch.setattr(stores, "_interruptible", lambda act: act())  # in this thread, where it is counted

    def look(self, answer: bool = True) -> bool:
        """A look at the lease, which is a point for the tests that call this: whoever is suspended behind it goes on
        with an answer that no longer holds."""
        return bool(self._wrap("look", lambda: answer)())

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self.thread:
                return real(*args, **kwargs)
            self.count += 1
            self.names.append(name)
            mine = self.count == self.at
            if self.count > self.at > 0 and self.again != "never":
                mine = self.again == "any" or name == self.names[self.at - 1]
            if mine and not self.after:
                self.act(name)
            try:
                return real(*args, **kwargs)
            finally:  # a call that fails is a point too
                if mine and self.after:
                    self.act(name)

        return call


class _Counted:
    """The client of an object store, of which each request that changes something is counted."""

    def __init__(self, client: Any, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
        self._client, self._wrap = client, wrap

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._wrap(f"store.{name}", found) if name in ("put", "copy", "delete") else found


def kill(name: str) -> None:
    """The action of a kill."""
    raise KilledHere(name)


def watch(name: str) -> None:
    """The action of a mere count."""


def fail(name: str) -> None:
    """The action of a disk that answers with an error."""
    raise OSError(errno.EIO, f"Input/output error ({name})")


class Sleeper:
    """Work in a thread of its own, suspended at its ``at``-th storage call until :meth:`wake`; or it has ended before.

    It may end with one of the errors ``may_raise``: ``outcome`` is its code or class then, else ``done``. The work asks
    ``is_overtaken`` where it looks at its lease.
    """

    def __init__(self, at: int, work: Callable[[Sleeper], Any], may_raise: tuple[type[Exception], ...]) -> None:
        self.call = ""
        self.is_overtaken = False
        self.outcome = ""
        self._trouble: BaseException | None = None
        self._calls: list[StorageCalls] = []
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(at, work, may_raise))
        self._thread.start()
        assert self._stopped.wait(30)

    @property
    def has_ended(self) -> bool:
        """True if the work ended before that call."""
        return not self.call

    def holds(self) -> bool:
        """Its look at the lease, as a point of its own: :meth:`StorageCalls.look`."""
        return self._calls[0].look(not self.is_overtaken)

    def wake(self) -> None:
        """Let it continue to its end."""
        self._woken.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self._trouble is None, f"suspended at {self.call}: {self._trouble!r}"

    def _run(self, at: int, work: Callable[[Sleeper], Any], may_raise: tuple[type[Exception], ...]) -> None:
        try:
            with pytest.MonkeyPatch.context() as patch:
                self._calls.append(StorageCalls(patch, at, self._sleep))
                work(self)
            self.outcome = "done"
        except may_raise as error:
            self.outcome = getattr(error, "code", type(error).__name__)
        except BaseException as error:  # the test's own thread has to see it
            self._trouble = error
        finally:
            self._stopped.set()

    def _sleep(self, name: str) -> None:
        self.call = name
        self._stopped.set()
        assert self._woken.wait(30)


def split_devices(patch: pytest.MonkeyPatch, state: Path) -> None:
    """Make renames out of the state folder, and into it, fail as if the warehouse were on another device."""
    real = os.rename

    def rename(source: Any, target: Any, **more: Any) -> None:
        if Path(source).is_relative_to(state) != Path(target).is_relative_to(state):
            if not Path(source).exists():
                raise FileNotFoundError(2, "No such file or directory", str(source))
            raise OSError(18, "Invalid cross-device link")
        real(source, target, **more)

    patch.setattr(os, "rename", rename)
