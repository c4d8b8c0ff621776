"""Files that describe themselves, as rows of Arrow in the types that the file has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import pyarrow as pa

from tidegate.sources.readers.calendars import Calendar

BATCH_ROWS, BATCH_BYTES = 10_000, 4 << 20
_WRITER = "org.apache.spark."


class DamagedFile(Exception):
    """A file, or a stretch of it, cannot be read; the text says why."""

    @classmethod
    def of(cls, error: Exception, reason: str) -> Exception:
        """The fault of the file, or ``error`` itself where it is the machine's."""
        return error if isinstance(error, OSError) and error.errno is not None else cls(reason)


class Rows(ABC):
    """A file, open. ``options`` are those of the source for the parser."""

    @abstractmethod
    def __init__(self, path: str, options: Mapping[str, str]) -> None: ...

    schema: pa.Schema
    calendar = Calendar()
    fine: Mapping[str, pa.Array] = {}
    """Of the newest batch, columns of times in microseconds as they are in nanoseconds."""

    def calendar_for(self, name: str) -> Calendar:
        """How dates and times of the column ``name`` were counted."""
        return self.calendar

    @abstractmethod
    def read(self, names: Sequence[str], begin: int, end: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns ``names`` of what begins in the bytes [begin, end) of the file, each batch with the number of
        rows of the file before it. Raises DamagedFile."""

    def check(self) -> None:  # noqa: B027 - most have nothing to look at
        """Look at what can be looked at without reading the values. Raises DamagedFile."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def calendar_of(metadata: Mapping[str, str], mode: str | None, since: tuple[int, int], mark: str) -> Calendar:
    """Find the calendar of a file from the metadata of Spark; ``mode`` is for files without them."""
    version = metadata.get(f"{_WRITER}version")
    zone = metadata.get(f"{_WRITER}timeZone", "UTC")
    if version is not None:
        numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
        is_legacy = numbers < since or f"{_WRITER}{mark}" in metadata
        return Calendar("LEGACY" if is_legacy else "CORRECTED", zone)
    if mode == "LEGACY":
        return Calendar("LEGACY", zone)
    return Calendar("EXCEPTION" if mode == "EXCEPTION" else "CORRECTED")
