"""The fault of a part as a whole, which travels from a worker to the driver as text."""

from __future__ import annotations

import json


class PartUnreadable(Exception):
    """A part of a file cannot be read; the text carries the file and the reason from a worker to the driver."""

    CODE = "tidegate:PART_UNREADABLE:"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(self.CODE + json.dumps({"path": path, "reason": reason}))
