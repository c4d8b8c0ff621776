"""Which batches count as taken in a table's log, if a rollback has undone some of them.

A rollback after which the records are read again (:mod:`tidegate.runs.restart.rollback`) is recorded in its version.
The batches of the versions that it undid no longer count: their records are read in other batches. So to find the
progress of a query or a source, continue from the rollback's version with the one that it rolled back to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

from tidegate.core.errors import DisagreementError
from tidegate.table import errors
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.files import LOG_FOLDER, list_versions
from tidegate.table.log.snapshot import Snapshot
from tidegate.table.log.state import has_log, read_commit_metadata, read_log, read_log_at

ROLLED_BACK_TO = "tidegate.rolled_back_to"
"""In the commit of a rollback: the version whose rows the table has again."""
THEN = "tidegate.then"
"""What happens to the records of the versions in between: :data:`REREAD`, or they stay taken."""
REREAD = "reread"
SETTLED = "tidegate.settled"
"""With :data:`REREAD`: {query id: its last batch that still counts, -1 for none} of every query."""
EXCLUDED = "tidegate.left_out"
"""Without it: what stays taken but is excluded from the table, {"records", "rows", "batches": [[query id, first,
last]]}."""
GENERATION = "tidegate.generation"
"""The number of the pipeline's query at the time."""
WORK = "rollback-"
"""The prefix of the ids of rollbacks, see :class:`tidegate.table.publish.rework.Rework`."""


def walk_back(table_path: Path, version: int | None = None) -> Iterator[tuple[int, CommitInfo | None]]:
    """The versions whose records count as taken, newest first, with the metadata of their commits; from ``version``,
    by default from the newest.

    The metadata of the last one is None where its commit file is missing: older versions are unknown
    (:func:`log_is_cut`).
    """
    if not has_log(table_path):
        return
    number = read_log(table_path).version if version is None else version
    there = set(list_versions(table_path))
    while number >= 0:
        if number not in there:
            yield number, None
            return
        info = read_commit_metadata(table_path, number)
        yield number, info
        number = int(info[ROLLED_BACK_TO]) if info.get(THEN) == REREAD else number - 1


def log_is_cut(table_path: Path, last: int, what: str) -> DisagreementError:
    """The error for a log whose commits up to version ``last`` are needed but missing, so that ``what`` is unknown."""
    first = max((number + 1 for number in list_versions(table_path) if number < last), default=0)
    versions = f"versions {first} to {last}" if first < last else f"version {last}"
    return errors.TABLE_LOG_CUT(where=str(table_path / LOG_FOLDER), versions=versions, what=what, name=table_path.name)


def settled_batches(table_path: Path, queries: Collection[str], version: int | None = None) -> dict[str, int]:
    """{query id: its last batch whose records are in the table or were discarded, -1 for none} of these queries, at
    ``version`` or now. The ``txn`` of the log is higher after a rollback.

    Raises DisagreementError TABLE_LOG_UNREADABLE; for a ``version`` that cannot be read FileNotFoundError, ValueError.
    """
    settled = dict.fromkeys(queries, -1)
    if not has_log(table_path):
        return settled
    snapshot = read_log(table_path) if version is None else read_log_at(table_path, version)
    for query in queries:
        batch = snapshot.transaction_version(query)
        settled[query] = -1 if batch is None else batch
    newest = find_reread(table_path, snapshot)
    known = {} if newest is None else json.loads(newest[1][SETTLED])
    return settled | {query: int(batch) for query, batch in known.items() if query in settled}


def find_reread(table_path: Path, snapshot: Snapshot) -> tuple[int, CommitInfo] | None:
    """The newest rollback in force after which records are read again: (version, metadata of its commit)."""
    if not any(app_id.startswith(WORK) for app_id in snapshot.txns):
        return None
    versions = walk_back(table_path, snapshot.version)
    return next(((number, info) for number, info in versions if info and info.get(THEN) == REREAD), None)
