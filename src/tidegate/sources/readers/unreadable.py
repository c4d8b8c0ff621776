"""Faults of a whole part, which a worker sends to the driver as text."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from tidegate.core.storage.faults import ObjectChangedError, StoreError

if TYPE_CHECKING:
    from tidegate.core.outputs import Error

SEAL = secrets.token_hex(8)
"""A secret in the text of each fault from a worker of this driver. A record that looks like a fault, and is quoted in
an error of the transform, does not contain it."""
DEFECT, REPLACED = -1, -2
"""In the place of an errno: our reader failed, and nothing is known of the file; the object was replaced since it was
listed."""


class DamagedFile(Exception):
    """A file, or a stretch of it, cannot be read; the text says why."""

    @classmethod
    def of(cls, error: Exception, reason: str) -> Exception:
        """The fault of the file, or ``error`` itself where it is the machine's."""
        return error if isinstance(error, OSError) and error.errno is not None else cls(reason)


class PartFault(Exception):
    """Why a part cannot be read. A subclass has a code, and the values that its constructor takes, then the seal."""

    CODE: ClassVar[str]

    def __init__(self, *values: object, seal: str = SEAL) -> None:
        super().__init__(f"tidegate:{self.CODE}:{seal}:{json.dumps(values, ensure_ascii=False)}")
        self._values, self._seal = values, seal

    def __reduce__(self) -> tuple[type[PartFault], tuple[object, ...]]:
        return type(self), (*self._values, self._seal)

    def sealed(self, seal: str) -> Self:
        """The same for the driver whose seal it is."""
        return type(self)(*self._values, seal=seal)

    @classmethod
    def find(cls, text: str) -> Self | None:
        """The fault that ``text``, of an error of Spark's, holds from a worker of this driver; None where it holds
        none."""
        raised = re.escape(f"{cls.__module__}.{cls.__qualname__}: tidegate:{cls.CODE}:{SEAL}:")
        match = re.search(rf"^{raised}(\[.*)$", text, re.MULTILINE)
        if match is None:
            return None
        values, _ = json.JSONDecoder().raw_decode(match[1])
        return cls(*values)


@contextlib.contextmanager
def report_defect(make_fault: Callable[[str], PartFault]) -> Iterator[None]:
    """Raise what ``make_fault`` makes of the text of any error inside, except a fault and a missing package.

    The executor lacks a package: that is not a fault of the part or the reader. Any other error is one of the reader,
    by any exception of any library: the driver has to know in which part.
    """
    try:
        yield
    except (PartFault, ImportError):
        raise
    except Exception as error:
        raise make_fault(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


class PartUnreadable(PartFault):
    """A part of the file ``path`` cannot be read; ``errno`` is what the operating system said, where it was asked."""

    CODE = "PART_UNREADABLE"

    def __init__(self, path: str, reason: str, errno: int | None = None, seal: str = SEAL) -> None:
        super().__init__(path, reason, errno, seal=seal)
        self.path, self.reason, self.errno = path, reason, errno


class StoreFault(PartFault):
    """An object store did not carry out a request of a worker; ``error`` is what the run ends with, as a dict."""

    CODE = "STORE_FAULT"

    def __init__(self, error: Error, seal: str = SEAL) -> None:
        super().__init__(error, seal=seal)
        self.error = error


def make_fault(path: str, error: OSError) -> PartFault:
    """The fault for an error of the operating system, or of an object store, while the file ``path`` was read."""
    if isinstance(error, StoreError):
        return StoreFault(error.named.to_dict())
    number = REPLACED if isinstance(error, ObjectChangedError) else error.errno
    return PartUnreadable(path, error.strerror or str(error), number)


class RangeProblem(StrEnum):
    """What is wrong with a range of offsets, or with the way to it."""

    TOPIC_GONE = "TOPIC_GONE"
    TOPIC_RECREATED = "TOPIC_RECREATED"
    """Another topic has the name: the records are not those that were meant."""
    LOST = "LOST"
    """Retention has taken the records of the range that the fault names."""
    TRUNCATED = "TRUNCATED"
    """What is committed ends before the range that the fault names."""
    DAMAGED = "DAMAGED"
    """What the broker gives at the begin of the range is not what was written."""
    SILENT = "SILENT"
    """The broker gives nothing."""
    LOGIN = "LOGIN"
    FORBIDDEN = "FORBIDDEN"
    SETTINGS = "SETTINGS"
    """The client does not take its settings on this machine."""
    DEFECT = "DEFECT"
    """Our reader failed, and nothing is known of the records."""


class TopicRange(NamedTuple):
    """Offsets of one topic partition, ``end`` exclusive."""

    topic: str
    partition: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}, offsets {self.begin} to {self.end - 1}"


class RangeFault(PartFault):
    """The records of a range cannot be read; ``reason`` is the client's text, ``address`` where the brokers are."""

    CODE = "RANGE_UNREADABLE"

    def __init__(
        self, problem: str, where: Iterable[str | int], reason: str, address: str = "", seal: str = SEAL
    ) -> None:
        self.where = TopicRange._make(where)
        super().__init__(problem, self.where, reason, address, seal=seal)
        self.problem, self.reason, self.address = RangeProblem(problem), reason, address
