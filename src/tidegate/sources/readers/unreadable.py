"""The fault of a part as a whole, which travels from a worker to the driver as text."""

from __future__ import annotations

import json
from typing import ClassVar


class PartUnreadable(Exception):
    """A part of the file ``path`` cannot be read."""

    CODE: ClassVar = "tidegate:PART_UNREADABLE:"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(self.CODE + json.dumps([path, reason], ensure_ascii=False))
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type[PartUnreadable], tuple[str, str]]:
        return PartUnreadable, (self.path, self.reason)

    @classmethod
    def find(cls, text: str) -> PartUnreadable | None:
        """The fault that ``text``, of an error of Spark's, tells of; None where it tells of none."""
        _, code, rest = text.partition(cls.CODE)
        if not code:
            return None
        path, reason = json.JSONDecoder().raw_decode(rest)[0]
        return cls(path, reason)
