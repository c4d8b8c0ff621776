"""Sync files that Spark wrote: its checkpoint and state, and the folders above staged files.

Neither Spark nor Hadoop's local file system ever syncs a file. Without this a manifest, which is on disk when it is
written, could outlive the offsets, the file list or the state that its batch depends on. Executors write state through
the same file system, so that syncing by path from the driver is enough; on a network file system their writes reached
the server when they closed the file.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.state.checkpoint import read_offsets, read_start

_VERSION = re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:delta|changelog)(?:\.crc)?$")
"""Changes of a state store: batch N makes version N + 1. They are most of its files, and their names give their age."""

_READ_WITHIN_NS = 50_000_000
"""The time that may pass between the readings of two clocks."""


@dataclass
class CheckpointSync:
    """Syncs the checkpoint at ``checkpoint``, batch by batch.

    Logs are synced by the batch's own names. Of the state it is everything changed since the batch before was planned,
    by the time stamps of the file system that holds both, so that neither the names of a state store's files nor clocks
    of other machines matter; snapshots that Spark's maintenance writes later belong to a later batch. Where the clock
    was set back meanwhile, time stamps say nothing, and all of the state is synced.
    """

    checkpoint: Path
    _synced: set[tuple[str, int, int]] = field(default_factory=set)
    _clock_ns: int = field(default_factory=lambda: _clock_offset_ns())

    def sync_batch(self, batch_id: int) -> int:
        """Sync the files that batch ``batch_id`` depends on, its commit if it exists, and the folders up to the one
        that holds the checkpoint. Returns how many were synced; those of the last call are not synced again."""
        logs = [
            *_named(self.checkpoint, "metadata"),
            *(
                path
                for batch in (batch_id - 1, batch_id)
                for path in (*_named(self.checkpoint / "offsets", batch), *_named(self.checkpoint / "commits", batch))
            ),
            *self._file_lists(batch_id),
        ]
        since_ns = self._planned_before(batch_id)
        found: set[tuple[str, int, int]] = set()
        for path in [*logs, *_changed_since(self.checkpoint / "state", since_ns, batch_id)]:
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.add((str(path), stat.st_ino, stat.st_mtime_ns))
        new = [Path(path) for path, _, _ in found - self._synced]
        storage.sync_files(new)
        folders = storage.sync_names_above(new, self.checkpoint.parent, since_ns)
        self._synced = found
        return len(new) + folders

    def _planned_before(self, batch_id: int) -> int:
        """When the batch before was planned; 0 where the clock was set back since."""
        offsets = self.checkpoint / "offsets"
        before, planned = _mtime_ns(offsets / str(batch_id - 1)), _mtime_ns(offsets / str(batch_id))
        last, self._clock_ns = self._clock_ns, _clock_offset_ns()
        was_set_back = planned < before or self._clock_ns < last - _READ_WITHIN_NS
        return 0 if was_set_back else before

    def _file_lists(self, batch_id: int) -> Iterator[Path]:
        """The lists of the files that the batch takes from each source."""
        for name, end in read_offsets(self.checkpoint, batch_id).items():
            if isinstance(end, int):
                try:
                    before = read_start(self.checkpoint, batch_id, name)
                    start = before if isinstance(before, int) else -1
                except ValueError:  # an older entry is torn: its reader reports that
                    start = end
                for entry in range(min(start + 1, end), end + 1):
                    for spelling in (str(entry), f"{entry}.compact"):
                        yield from _named(self.checkpoint / "sources" / name, spelling)


def _named(folder: Path, name: int | str) -> Iterator[Path]:
    """The file of this name and its checksum file, as far as they exist: Spark removes old ones meanwhile."""
    for path in (folder / str(name), folder / f".{name}.crc"):
        if storage.exists(path):
            yield path


def _changed_since(folder: Path, since_ns: int, batch_id: int) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _changed_since(Path(entry.path), since_ns, batch_id)
                continue
            version = _VERSION.match(entry.name)
            if version is None or int(version[1]) >= batch_id:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime_ns >= since_ns:
                        yield Path(entry.path)


def _clock_offset_ns() -> int:
    """The wall clock less the one that runs since boot: smaller than before when the wall clock was set back."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
