"""A cache of values made from files that have not changed: 200 pipelines with 20 runs are 4,000 reports a page."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from tidegate.core import storage

_T = TypeVar("_T")
SETTLED_NS = 3_000_000_000
"""A file that changed just now may change again with the same time, if the file system's clock is coarse."""


class Memory(Generic[_T]):
    """Caches values made from files; keeps the last ``at_most``. A value is made again when its file changes."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._known: OrderedDict[Path, tuple[storage.Stat, _T]] = OrderedDict()
        self._lock = Lock()

    def recall(self, path: Path, found: storage.Stat, make: Callable[[bytes], _T]) -> _T:
        """Return the value of the file whose :func:`storage.stat` is ``found``. Raises as ``make``, and OSError."""
        with self._lock:
            known = self._known.get(path)
            if known is not None and known[0] == found:
                self._known.move_to_end(path)
                return known[1]
        value = make(storage.read(path))
        if time.time_ns() - found.modified_ns < SETTLED_NS:
            return value
        with self._lock:
            self._known[path] = (found, value)
            self._known.move_to_end(path)
            while len(self._known) > self._at_most:
                self._known.popitem(last=False)
        return value

    def forget(self) -> None:
        """Forget all values."""
        with self._lock:
            self._known.clear()
