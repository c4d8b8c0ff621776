"""What the implementations of the port for files and for objects share."""

from __future__ import annotations

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
