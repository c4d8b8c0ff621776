"""What was read of files that have not changed since: 200 pipelines with 20 runs each are 4,000 reports a page."""

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
"""A clock of files may tick slowly: what changed just now may change again without showing it."""


class Memory(Generic[_T]):
    """Values made of files, by path; made again when a file has another size or time. Keeps the last ``at_most``."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._known: OrderedDict[Path, tuple[storage.Stat, _T]] = OrderedDict()
        self._lock = Lock()

    def recall(self, path: Path, found: storage.Stat, make: Callable[[bytes], _T]) -> _T:
        """The value of the file that :func:`storage.stat` found like this. Raises what ``make`` raises, OSError."""
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
        """Forget all."""
        with self._lock:
            self._known.clear()
