"""The logs that plain Spark keeps in folders: one file per batch, and now and then a ``.compact`` one of all before it.

Such are ``_spark_metadata`` of a file sink and ``sources/<n>`` of a file source. A file begins with ``v1``; each line
after it is a JSON object. An entry that was compacted keeps what it said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tidegate.core import storage

_COMPACT = ".compact"


@dataclass(frozen=True)
class LogEntry:
    """A file that a log names: ``path`` on the local file system, decoded. ``batch`` is the number of the log's entry,
    ``time_ms`` when the file was last changed then, in milliseconds since 1970 UTC; ``is_delete`` takes it back."""

    path: str
    batch: int
    time_ms: int
    is_delete: bool = False


def newest_batch(folder: Path) -> int:
    """The number of the log's last entry; -1 for none."""
    return max(_numbers(folder), default=-1)


def read_log_entries(folder: Path, called: str, up_to: int) -> Iterator[LogEntry]:
    """Read a log up to entry ``up_to``, from the newest compacted file on, in its order. In a compacted sink log
    the batch is that of the compacted file.

    Later entries may be torn: they were begun and never counted. Raises ValueError, in which the log is ``called``
    so, when a file that is needed is torn, of another version, or missing.
    """
    numbers = _numbers(folder)
    compacts = [number for number in numbers if storage.exists(folder / f"{number}{_COMPACT}")]
    first = max((number for number in compacts if number <= up_to), default=0)
    if first not in numbers and any(number > up_to for number in compacts):
        first = min(number for number in compacts if number > up_to)  # what was before it is cleaned away
    for number in range(first, max(first, up_to) + 1):
        name = f"{number}{_COMPACT}" if number in compacts else str(number)
        if number not in numbers:
            raise ValueError(f"{called}/{name} is missing")
        yield from (entry for entry in _read_file(folder / name, number, called) if entry.batch <= up_to)


def local_path(address: str) -> str | None:
    """The path of a local file that Spark wrote as a URI (``file:///a%20b``); None for one of another file system."""
    scheme, colon, rest = address.partition(":")
    if not colon or "/" in scheme:
        return unquote(address)
    return unquote(rest.removeprefix("//")) if scheme == "file" else None


def _numbers(folder: Path) -> list[int]:
    names = (name.removesuffix(_COMPACT) for name in storage.list_names(folder))
    return sorted({int(name) for name in names if name.isascii() and name.isdigit()})


def _read_file(path: Path, number: int, called: str) -> Iterator[LogEntry]:
    try:
        version, *lines = storage.read(path).split(b"\n")
        if version != b"v1":
            raise ValueError(f"it begins with {version[:20].decode(errors='replace')!r}, which is not v1")
        for line in lines:
            if not line.strip():
                continue
            value = json.loads(line)
            where = local_path(value["path"])
            if where is None:
                raise ValueError(f"it names {value['path']}, which is on no local file system")
            yield LogEntry(
                path=where,
                batch=int(value.get("batchId", number)),
                time_ms=int(value.get("timestamp", value.get("modificationTime", 0))),
                is_delete=value.get("action") == "delete",
            )
    except (KeyError, TypeError, AttributeError, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{called}/{path.name} cannot be read: {error}") from error
