"""Compaction files of a table's log, which make a long log fast to read.

Delta's usual checkpoint is a parquet file, whose rows a plain glob over the table (``**/*.parquet``) would read. A log
compaction file (``<from>.<to>.compacted.json``) has the same content as JSON. It needs no table feature. Readers that
do not use it, such as deltalake 1.6.6, read the commits, of which none is ever removed. So it can always be deleted.
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
"""The log is compacted when it has this many versions since the last compaction."""

BYTES_PER_VERSION = 30_000
"""Or one version for this many bytes of the last compaction file, if that is more: each commit then costs about a
hundred lines of it, however many files a table has."""

TOMBSTONE_DAYS = 7
"""How long a compaction file lists a removed file, as is usual for Delta tables: VACUUM of other writers needs it."""

_HINT = "_last_checkpoint"


def is_compaction_due(table_path: Path) -> bool:
    """True if the log needs a new compaction file, or has parquet files that plain globs read. Lists one folder."""
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
    """The number of versions since the log was last compacted."""
    names = list_names(table_path)
    versions = versions_of(names)
    return versions[-1] - max(compactions_of(names), default=-1) if versions else 0


def compact_log(table_path: Path, check_lease: Callable[[], None]) -> int:
    """Write a compaction file of all versions and remove those that it replaces; returns its last version.

    If no commit is missing, parquet checkpoints are removed too: an earlier tidegate let deltalake write them.
    ``check_lease`` raises when another run has taken over. Safe to kill anywhere, and to run concurrently.
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
    """The parquet checkpoints, if no commit of the log is missing: they contain nothing else."""
    if not _is_whole(versions_of(names)):
        return []
    return [name for name in checkpoints_of(names) if name.endswith(".parquet")]


def remove_checkpoints(table_path: Path, names: list[str]) -> None:
    """Remove checkpoints, and first the hint file that points to the last of them."""
    log = table_path / LOG_FOLDER
    if names:
        storage.remove(log / _HINT)
        storage.sync_folder(log)
    for name in names:
        storage.remove(log / name)


def put_compaction(table_path: Path, table: Snapshot) -> None:
    """Write the compaction file of all versions up to that of ``table``, unless it exists."""
    if table.version < 1:  # the protocol requires at least two versions
        return
    since_ms = time.time_ns() // 1_000_000 - TOMBSTONE_DAYS * 86_400_000
    lines = [json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in table.actions(since_ms)]
    storage.put_if_absent(table_path / LOG_FOLDER / compacted_name(table.version), ("\n".join(lines) + "\n").encode())


def _is_whole(versions: list[int]) -> bool:
    """Return whether no commit file is missing."""
    return bool(versions) and versions[0] == 0 and versions[-1] == len(versions) - 1
