"""What the implementations of the port for files and for objects share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

COPY_SUFFIX = ".incoming"
"""How the name of a copy that is being made ends. It starts with a dot: neither ``*.parquet`` globs nor Spark's listing
see it."""

OPERATIONS: dict[str, Callable[..., object]] = {}
"""The functions of the port by name, as they are on a file system."""


@dataclass(frozen=True)
class Stat:
    """What the metadata of a file says."""

    size_bytes: int
    modified_ns: int
    """When it was last written, by the clock of the storage, in nanoseconds since 1970 UTC."""


def plain_tag(e_tag: str) -> str:
    """An ETag without quotes, which lists of Azure leave out, and without the mark of a weak one, which a proxy may add
    to a strong one and with which no condition holds."""
    return e_tag.removeprefix("W/").strip('"')


_counting = threading.Lock()
_requests = 0


def note_requests(number: int = 1) -> None:
    """Count requests to object stores that this process has sent, or that a process which it started has."""
    global _requests
    with _counting:
        _requests += number


def count_requests() -> int:
    """How many requests to object stores were sent, repeated ones included."""
    return _requests
