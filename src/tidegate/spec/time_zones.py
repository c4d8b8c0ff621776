"""Time zones by their names: an offset such as ``+02:00``, or a region such as ``Europe/Berlin``."""

from __future__ import annotations

import datetime as dt
import functools
import re
from zoneinfo import ZoneInfo

_LARGEST_OFFSET = dt.timedelta(hours=18)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")


def is_offset(name: str) -> bool:
    """Whether ``name`` is written as an offset from UTC, be it a possible one or not."""
    return name in ("Z", "UTC", "GMT", "UT") or _OFFSET.fullmatch(name) is not None


@functools.lru_cache(maxsize=1024)
def find_zone(name: str) -> dt.tzinfo | None:
    """The time zone that ``name`` is; None where it is none, or a short name of several, such as BST."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return dt.UTC
    if (match := _OFFSET.fullmatch(name)) is None:
        return _find_region(name)
    sign, hours, minutes, seconds = match.groups()
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if offset > _LARGEST_OFFSET or int(minutes or 0) > 59 or int(seconds or 0) > 59:
        return None
    return dt.timezone(offset if sign == "+" else -offset)


def _find_region(name: str) -> dt.tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None
