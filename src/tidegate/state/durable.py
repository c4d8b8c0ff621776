"""Power cuts: sync what Spark wrote before it counts, and remove torn files of a checkpoint that nothing refers to.

Neither Spark nor Hadoop's local file system ever syncs a file. Without this a manifest, which is on disk when it is
written, could outlive the offsets, the file list or the state that its batch depends on. Executors write state through
the same file system, so that syncing by path from the driver is enough; on a network file system their writes reached
the server when they closed the file.

After a power cut there is at most a batch that was planned and not staged, a commit that Spark gives again, or a
checkpoint that never staged anything. Spark plans all of these again when they are not there, but cannot read them when
they are torn.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.state.checkpoint import (
    batch_ids,
    describe_torn_commit,
    describe_torn_plan,
    hadoop_checksum,
    read_offsets,
    read_start,
)

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


def drop_torn_plan(
    checkpoint: Path, last_known: int, *, is_named: bool, sealed: Collection[str], check: Callable[[], None]
) -> list[str]:
    """Remove torn files that nothing refers to; the names of these files, relative to ``checkpoint``.

    ``last_known`` is the last batch that a manifest or the table's log holds, -1 for none; ``is_named`` whether the
    birth record knows the query, which it does before anything is staged. ``sealed`` are the files that were seen to
    fit: one of them that can be read and holds something else was edited, and is left for a person. ``check`` is called
    before each removal.
    """
    torn: list[Path] = []
    if (
        not is_named
        and last_known < 0
        and storage.exists(checkpoint)
        and not _is_whole_metadata(checkpoint / "metadata")
    ):
        torn = [checkpoint]
    else:
        commits = batch_ids(checkpoint / "commits")
        for batch in commits[-1:]:
            edited = f"commits/{batch}" in sealed
            differs = not edited and _differs(checkpoint, "commits", batch)
            if batch <= last_known and (differs or describe_torn_commit(checkpoint, batch)):
                torn.append(checkpoint / "commits" / str(batch))
        for batch in batch_ids(checkpoint / "offsets"):
            # Without the commit before it, Spark could not take up a planned batch.
            if batch > last_known and batch not in commits and (torn or _is_torn_plan(checkpoint, batch)):
                torn.append(checkpoint / "offsets" / str(batch))
        torn += _torn_file_lists(checkpoint, {path.name for path in torn if path.parent.name == "offsets"})
    for path in torn:
        check()
        if path == checkpoint:
            storage.remove_tree(path)
        else:
            storage.remove(path)
            storage.remove(path.with_name(f".{path.name}.crc"))
            storage.sync_folder(path.parent)
    return [str(path.relative_to(checkpoint)) for path in torn]


def _is_whole_metadata(path: Path) -> bool:
    try:
        return isinstance(json.loads(storage.read(path))["id"], str) and _fits_checksum(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if storage.is_failure(error):
            raise  # what cannot be read now is not torn
        return False


def _is_torn_plan(checkpoint: Path, batch: int) -> bool:
    return bool(describe_torn_plan(checkpoint, batch)) or _differs(checkpoint, "offsets", batch)


def _torn_file_lists(checkpoint: Path, dropped: set[str]) -> list[Path]:
    """Entries of file sources behind the last batch that stays planned."""
    kept = [batch for batch in batch_ids(checkpoint / "offsets") if str(batch) not in dropped]
    try:
        ends = read_offsets(checkpoint, kept[-1]) if kept else {}
    except ValueError:
        return []  # a batch that counts is torn: that is for a person
    torn = []
    for folder in storage.list_folders(checkpoint / "sources"):
        end = ends.get(folder.name)
        last = end if isinstance(end, int) else -1
        for path in storage.list_folder(folder):
            number = path.name.removesuffix(".compact")
            if number.isdigit() and int(number) > last and not _is_whole_list(path):
                torn.append(path)
    return torn


def _is_whole_list(path: Path) -> bool:
    try:
        version, *lines = storage.read(path).split(b"\n")
        entries = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        return False
    return version == b"v1" and entries != [] and all(isinstance(one, dict) for one in entries) and _fits_checksum(path)


def _differs(checkpoint: Path, folder: str, batch: int) -> bool:
    return not _fits_checksum(checkpoint / folder / str(batch))


def _fits_checksum(path: Path) -> bool:
    """Whether Hadoop's hidden checksum file, where there is one, is that of the file: else Spark cannot read it."""
    try:
        return storage.read(path.with_name(f".{path.name}.crc")) == hadoop_checksum(storage.read(path))
    except FileNotFoundError:
        return True
