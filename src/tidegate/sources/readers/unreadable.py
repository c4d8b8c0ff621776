"""Faults of a whole part, which a worker sends to the driver as text."""

from __future__ import annotations

import json
import re
import secrets
from enum import StrEnum
from typing import ClassVar, Self

SEAL = secrets.token_hex(8)
"""A secret in the text of each fault from a worker of this driver. A record that looks like a fault, and is quoted in
an error of the transform, does not contain it."""
DEFECT = -1
"""In the place of an errno: our reader failed, and nothing is known of the file."""


class PartFault(Exception):
    """Why a part cannot be read. A subclass has a code, and the values that its constructor takes, then the seal."""

    CODE: ClassVar[str]

    def __init__(self, *values: str | int | None, seal: str = SEAL) -> None:
        super().__init__(f"tidegate:{self.CODE}:{seal}:{json.dumps(values, ensure_ascii=False)}")
        self._values, self._seal = values, seal

    def __reduce__(self) -> tuple[type[PartFault], tuple[str | int | None, ...]]:
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


class PartUnreadable(PartFault):
    """A part of the file ``path`` cannot be read; ``errno`` is what the operating system said, where it was asked."""

    CODE = "PART_UNREADABLE"

    def __init__(self, path: str, reason: str, errno: int | None = None, seal: str = SEAL) -> None:
        super().__init__(path, reason, errno, seal=seal)
        self.path, self.reason, self.errno = path, reason, errno


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


class RangeFault(PartFault):
    """The records of a topic partition from ``begin`` up to ``end`` cannot be read; ``reason`` is the client's text,
    ``address`` where the brokers are."""

    CODE = "RANGE_UNREADABLE"

    def __init__(
        self,
        problem: str,
        topic: str,
        partition: int,
        begin: int,
        end: int,
        reason: str,
        address: str = "",
        seal: str = SEAL,
    ) -> None:
        super().__init__(problem, topic, partition, begin, end, reason, address, seal=seal)
        self.problem = RangeProblem(problem)
        self.topic, self.partition, self.begin, self.end = topic, partition, begin, end
        self.reason, self.address = reason, address

    @property
    def where(self) -> str:
        """The range, in words."""
        return f"topic {self.topic} partition {self.partition}, offsets {self.begin} to {self.end - 1}"
