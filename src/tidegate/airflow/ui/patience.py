"""Looks that may take long (a large folder, a slow disk, a broker that is away), with a limit: a page never waits
longer, and what takes longer is joined by the next one who asks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from threading import RLock
from typing import Any, TypeVar

_T = TypeVar("_T")
_AT_ONCE = 8


class Patience:
    """Carries looks out, at most ``at_once`` together and each of them once at a time."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._workers = ThreadPoolExecutor(at_once, thread_name_prefix="tidegate-look")
        self._under_way: dict[object, Future[Any]] = {}
        self._lock = RLock()  # a look that is over at once is forgotten while it is still being noted

    def ask(self, key: object, look: Callable[[], _T], seconds: float) -> _T | None:
        """What ``look`` gives, or None when it takes longer. Looks with the same key are one."""
        with self._lock:
            future = self._under_way.get(key)
            if future is None:
                future = self._under_way[key] = self._workers.submit(look)
                future.add_done_callback(lambda _: self._forget(key))
        try:
            found: _T = future.result(seconds)
        except NotYet:
            return None
        return found

    def _forget(self, key: object) -> None:
        with self._lock:
            self._under_way.pop(key, None)
