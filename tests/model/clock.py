"""A wall clock that somebody sets: what the program takes for the time, and the time stamps of files that it writes.

The clock that runs since boot is left alone: nobody can set it.
"""

from __future__ import annotations

import datetime as times
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DAY = 86_400
STEPS = (-30 * DAY, -3 * DAY, -3600, -5, 5, 3 * DAY, 40 * DAY, 4000 * DAY)
_SECOND = 10**9


class _Anywhen(type):
    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, times.datetime)


@dataclass
class Clock:
    """``ahead_ns``: how far the wall clock is ahead of the right time."""

    ahead_ns: int = 0
    is_patched: bool = False

    def step(self, seconds: int, patch: pytest.MonkeyPatch) -> None:
        """Set the clock so much forward, or back."""
        if not self.is_patched:
            self._patch(patch)
        self.ahead_ns += seconds * _SECOND

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        real, real_ns = time.time, time.time_ns
        patch.setattr(time, "time", lambda: real() + self.ahead_ns / _SECOND)
        patch.setattr(time, "time_ns", lambda: real_ns() + self.ahead_ns)
        clock = self

        class Datetime(times.datetime, metaclass=_Anywhen):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return times.datetime.now(tz) + times.timedelta(microseconds=clock.ahead_ns // 1000)

        for name, module in list(sys.modules.items()):
            if name.startswith("tidegate") and getattr(module, "datetime", None) is times.datetime:
                patch.setattr(module, "datetime", Datetime)
        self.is_patched = True

    def stamp(self, folder: Path, since_ns: int) -> None:
        """What was written below ``folder`` since a moment of the right time was written at the time of this clock."""
        if not self.ahead_ns:
            return
        for place, _, names in os.walk(folder):
            for name in (".", *names):
                path = os.path.join(place, name)
                found = os.lstat(path)
                is_new = found.st_ctime_ns >= since_ns and abs(found.st_ctime_ns - found.st_mtime_ns) < _SECOND
                if is_new and found.st_nlink == 1 + (name == ".") * (found.st_nlink - 1) and ".sqlite" not in name:
                    stamp = found.st_mtime_ns + self.ahead_ns
                    os.utime(path, ns=(stamp, stamp), follow_symlinks=False)
