"""Looks that may take long (a large folder, a slow disk, a broker that is away), with a limit: nobody waits longer, and
what takes longer is joined by the next one who asks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, TypeVar

from fastapi import HTTPException

PATIENCE_SECONDS = 8.0
_AT_ONCE = 8
_KEPT_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_STUCK_SECONDS = 60.0
_TIMES_AS_MANY = 4
_WAITING_AT_MOST = 500
_LONG_WAITS = 16
"""How many wait for longer than a second: each keeps one of the 40 threads that all pages of Airflow's server share."""

_long_waits = BoundedSemaphore(_LONG_WAITS)
_T = TypeVar("_T")


@dataclass
class _Look:
    """One look; ``asked`` is when somebody first asked for it, ``began`` and ``ended`` when it was carried out, by the
    clock that only goes forward."""

    look: Callable[[], Any]
    asked: float
    found: Future[Any] = field(default_factory=Future)
    began: float | None = None
    ended: float | None = None

    def carry_out(self) -> None:
        self.began = time.monotonic()
        try:
            found = self.look()
        except BaseException as error:  # noqa: BLE001 - it belongs to the one who asked
            self.found.set_exception(error)
        else:
            self.found.set_result(found)
        self.ended = time.monotonic()


class Patience:
    """Carries looks out, at most ``at_once`` together and each of them once at a time.

    What was given up goes on, and what it finds is kept for a minute for the next one who asks. A look may never come
    back: after a minute another thread takes the place of its own, up to four times as many, and no thread is a reason
    for the server to stay when it ends.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._workers = 0
        self._waiting: SimpleQueue[_Look] = SimpleQueue()
        self._looks: dict[object, _Look] = {}
        self._lock = Lock()

    def ask(self, key: object, look: Callable[[], _T], seconds: float) -> _T | None:
        """What ``look`` gives, or None when it takes longer. Looks with the same key are one."""
        with self._lock:
            self._forget_old()
            one = self._looks.get(key)
            is_new = one is None
            if one is None:
                self._start_worker()
                if self._waiting.qsize() >= _WAITING_AT_MOST:
                    return None
                one = self._looks[key] = _Look(look, time.monotonic())
                self._waiting.put(one)
        # Who comes later waits for the rest of that time alone: a disk that hangs must not keep a thread of the server
        # for each page that is loaded again.
        left = seconds if is_new else max(one.asked + seconds - time.monotonic(), min(seconds, _AGAIN_SECONDS))
        with _grant(left) as granted:
            is_done = bool(wait([one.found], granted).done)
        if not is_done:
            return None
        with self._lock:
            if self._looks.get(key) is one:
                del self._looks[key]
        found: _T = one.found.result()
        return found

    def _start_worker(self) -> None:
        if self._workers < min(self._at_once + self._count_stuck(), self._at_once * _TIMES_AS_MANY):
            self._workers += 1
            Thread(target=self._work, name=f"tidegate-look-{self._workers}", daemon=True).start()

    def _count_stuck(self) -> int:
        before = time.monotonic() - _STUCK_SECONDS
        return sum(one.began is not None and one.ended is None and one.began < before for one in self._looks.values())

    def _work(self) -> None:
        while True:
            self._waiting.get().carry_out()

    def _forget_old(self) -> None:
        before = time.monotonic() - _KEPT_SECONDS
        for key, one in list(self._looks.items()):
            if one.ended is not None and one.ended < before:
                del self._looks[key]


@contextlib.contextmanager
def _grant(seconds: float) -> Iterator[float]:
    """How long somebody may wait who would wait for ``seconds``: a second where all long waits are taken."""
    if seconds <= _AGAIN_SECONDS or not _long_waits.acquire(blocking=False):
        yield min(seconds, _AGAIN_SECONDS)
        return
    try:
        yield seconds
    finally:
        _long_waits.release()


for_pages = Patience()
"""For what a page cannot do without; apart from its parts: many slow ones keep no page waiting."""


def look_soon(key: object, look: Callable[[], _T]) -> _T:
    """What ``look`` gives. Raises HTTPException when the disk takes too long for it: threads of Airflow's API server,
    of which there are a few, must not be kept."""
    found = for_pages.ask(key, look, PATIENCE_SECONDS)
    if found is None:
        told = f"The project's disk takes longer than {PATIENCE_SECONDS:.0f} seconds, or too many pages wait for it. "
        raise HTTPException(503, f"{told}Nothing of a run depends on this page: load it again.")
    return found
