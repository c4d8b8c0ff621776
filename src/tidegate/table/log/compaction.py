"""Compaction files of a table's log: what makes a long log cheap to open.

Delta's usual checkpoint is a parquet file, which a plain glob over the table (``**/*.parquet``) takes for rows. A log
compaction file (``<from>.<to>.compacted.json``) holds the same as JSON. It needs no table feature, and readers who do
not use it, deltalake 1.6.6 among them, read the commits, of which none is ever removed. So it is an aid: whatever is
wrong with one, it can go.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.core import storage
from tidegate.table.log.files import (
    LOG_FOLDER,
    checkpoints_of,
    compacted_name,
    compactions_of,
    list_names,
    versions_of,
)
from tidegate.table.log.snapshot import Snapshot
from tidegate.table.log.state import read_log

VERSIONS_AT_LEAST = 100
"""The log is compacted when this many versions have come since the last time."""

BYTES_PER_VERSION = 30_000
"""Or one version for this many bytes of the last compaction file, when that is more: however many files a table has,
each commit then pays for writing about a hundred lines of it."""

TOMBSTONE_DAYS = 7
"""How long a removed file is named there, as is usual for Delta tables: VACUUM of other writers goes by it."""

_HINT = "_last_checkpoint"


def is_compaction_due(table_path: Path) -> bool:
    """Whether the log needs a new compaction file, or has parquet files that plain globs read. One folder is listed."""
    names = list_names(table_path)
    versions = versions_of(names)
    if len(versions) < 2:
        return False
    if list_needless_checkpoints(names):
        return True
    last = max(compactions_of(names), default=None)
    if last is None:
        return len(versions) >= VERSIONS_AT_LEAST
    size = storage.stat(table_path / LOG_FOLDER / compacted_name(last)).size_bytes
    return versions[-1] - last >= max(VERSIONS_AT_LEAST, size // BYTES_PER_VERSION)


def versions_since_compaction(table_path: Path) -> int:
    """How many versions have come since the log was last compacted."""
    names = list_names(table_path)
    versions = versions_of(names)
    return versions[-1] - max(compactions_of(names), default=-1) if versions else 0


def compact_log(table_path: Path, check_lease: Callable[[], None]) -> int:
    """Write a compaction file of all versions and remove those it makes needless; the version it ends with.

    Where every commit is there, parquet checkpoints go too, which an earlier tidegate let deltalake write: they hold
    nothing else. ``check_lease`` raises when another run has taken over. Safe to be killed anywhere, and for two at
    once.
    """
    table = read_log(table_path)
    check_lease()
    put_compaction(table_path, table)
    names = list_names(table_path)
    log = table_path / LOG_FOLDER
    remove_checkpoints(table_path, list_needless_checkpoints(names))
    for last in compactions_of(names)[:-2]:  # a reader may just have listed the one before
        storage.remove(log / compacted_name(last))
    return table.version


def list_needless_checkpoints(names: list[str]) -> list[str]:
    """The checkpoints in parquet of a log whose commits are all there: they hold nothing else."""
    if not _is_whole(versions_of(names)):
        return []
    return [name for name in checkpoints_of(names) if name.endswith(".parquet")]


def remove_checkpoints(table_path: Path, names: list[str]) -> None:
    """Remove these, and the note that says that the last of them is there first."""
    log = table_path / LOG_FOLDER
    if names:
        storage.remove(log / _HINT)
        storage.sync_folder(log)
    for name in names:
        storage.remove(log / name)


def put_compaction(table_path: Path, table: Snapshot) -> None:
    """Put the compaction file of all versions up to that of ``table`` on disk, whole, unless it is there."""
    if table.version < 1:  # the protocol wants two versions at least
        return
    since_ms = time.time_ns() // 1_000_000 - TOMBSTONE_DAYS * 86_400_000
    lines = [json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in table.actions(since_ms)]
    storage.put_if_absent(table_path / LOG_FOLDER / compacted_name(table.version), ("\n".join(lines) + "\n").encode())


def _is_whole(versions: list[int]) -> bool:
    """Whether no commit file is missing."""
    return bool(versions) and versions[0] == 0 and versions[-1] == len(versions) - 1
