"""The fault of a part as a whole, which travels from a worker to the driver as text."""

from __future__ import annotations

import json
import re
import secrets

SEAL = secrets.token_hex(8)
"""What a fault has in its text that a worker of this driver reports: a record whose text looks like a fault, and that a
transform quotes in an error of its own, does not know it."""
DEFECT = -1
"""In the place of an errno: our reader failed, and nothing is known of the file."""


class PartUnreadable(Exception):
    """A part of the file ``path`` cannot be read; ``errno`` is what the operating system said, where it was asked."""

    def __init__(self, path: str, reason: str, errno: int | None = None, seal: str = SEAL) -> None:
        super().__init__(f"{_CODE}{seal}:{json.dumps([path, reason, errno], ensure_ascii=False)}")
        self.path, self.reason, self.errno, self._seal = path, reason, errno, seal

    def __reduce__(self) -> tuple[type[PartUnreadable], tuple[str, str, int | None, str]]:
        return PartUnreadable, (self.path, self.reason, self.errno, self._seal)

    def sealed(self, seal: str) -> PartUnreadable:
        """The same for the driver whose seal it is."""
        return PartUnreadable(self.path, self.reason, self.errno, seal)

    @classmethod
    def find(cls, text: str) -> PartUnreadable | None:
        """The fault that ``text``, of an error of Spark's, holds from a worker of this driver; None where it holds
        none."""
        match = _RAISED.search(text)
        if match is None:
            return None
        (path, reason, errno), _ = json.JSONDecoder().raw_decode(match[1])
        return cls(path, reason, errno)


_CODE = "tidegate:PART_UNREADABLE:"
_RAISED = re.compile(
    rf"^(?:{re.escape(PartUnreadable.__module__)}\.)PartUnreadable: {_CODE}{SEAL}:(\[.*)$", re.MULTILINE
)
