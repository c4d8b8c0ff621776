"""Whether this clock can be believed before something is removed for good because it is old enough.

A clock that jumps ahead (a dead battery, a wrong date set by hand) makes all that is there look old. What the pipeline
has recorded of itself shows: the time stamps of its commits, the files of its run reports and of its lease.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions
from tidegate.table.log.state import read_commit_metadata

_SKEW = 3600.0
"""Seconds by which clocks of two machines may differ."""
_CONFIRMED_AFTER = 12 * 3600.0
"""What was noted less than so many seconds ago may have been noted with the same wrong clock."""
_LONGEST_PAUSE = 35 * 86_400.0
"""A pipeline that does something once a month is believed at once."""


def find_clock_fault(paths: PipelinePaths, now: float) -> str | None:
    """Why nothing may be removed for its age at ``now``, in seconds since the epoch, and what to do; None: believed."""
    versions = list_versions(paths.table)
    newest = _made_at(paths, versions[-1]) if versions else 0.0
    if (ahead := max([newest, *_written(paths.lease)]) - now) > _SKEW:
        what = "the newest version of the table" if newest - now > _SKEW else "a heartbeat of the lease"
        return (
            f"this clock says {_show(now)}, and {what} is of {_show(now + ahead)}: correct the clock; if it is right, "
            f"and the other one was not, the next version that is published shows it. {_REFUSED}"
        )
    # The newest of those that the clock of the last hours has not made.
    number = bisect_left(versions, now - _CONFIRMED_AFTER, key=lambda version: _made_at(paths, version))
    if number == 0 or now - (before := _made_at(paths, versions[number - 1])) <= _LONGEST_PAUSE:
        return None
    if any(now - _LONGEST_PAUSE <= at < now - _CONFIRMED_AFTER for at in _written(paths.runs)):
        return None
    return (
        f"this clock says {_show(now)}, and the pipeline has noted nothing since {_show(before)}, but perhaps in the "
        f"last 12 hours: correct the clock; if it is right, a maintenance in 12 hours removes what is old. {_REFUSED}"
    )


_REFUSED = (
    "Until then nothing is removed for its age: replaced files, old partitions, files of the sources, reports, backups"
)


def _made_at(paths: PipelinePaths, version: int) -> float:
    """When a version was made: by its commit, else by the time stamp of its file."""
    with contextlib.suppress(ValueError, FileNotFoundError):
        made = read_commit_metadata(paths.table, version).get("timestamp")
        if isinstance(made, int) and made:
            return made / 1000
    with contextlib.suppress(FileNotFoundError):
        return storage.stat(paths.table / LOG_FOLDER / commit_name(version)).modified_ns / 1e9
    return 0.0


def _written(folder: Path) -> Iterator[float]:
    """When the files of a folder were written."""
    for path in storage.list_folder(folder, "*"):
        with contextlib.suppress(FileNotFoundError):
            yield storage.stat(path).modified_ns / 1e9


def _show(seconds: float) -> str:
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{seconds:.0f} seconds since 1970"
