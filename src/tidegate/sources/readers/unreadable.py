"""The fault of a part as a whole, which travels from a worker to the driver as text."""

from __future__ import annotations

import json
import re


class PartUnreadable(Exception):
    """A part of the file ``path`` cannot be read; ``errno`` is what the operating system said, where it was asked."""

    def __init__(self, path: str, reason: str, errno: int | None = None) -> None:
        super().__init__(_CODE + json.dumps([path, reason, errno], ensure_ascii=False))
        self.path, self.reason, self.errno = path, reason, errno

    def __reduce__(self) -> tuple[type[PartUnreadable], tuple[str, str, int | None]]:
        return PartUnreadable, (self.path, self.reason, self.errno)

    @classmethod
    def find(cls, text: str) -> PartUnreadable | None:
        """The fault that ``text``, of an error of Spark's, holds; None where it holds none."""
        match = _RAISED.search(text)
        if match is None:
            return None
        try:
            (path, reason, errno), _ = json.JSONDecoder().raw_decode(match[1])
        except ValueError:  # a transform that prints what it takes for such a text
            return None
        return cls(path, reason, errno)


_CODE = "tidegate:PART_UNREADABLE:"
_RAISED = re.compile(rf"^(?:{re.escape(PartUnreadable.__module__)}\.)PartUnreadable: {_CODE}(\[.*)$", re.MULTILINE)
