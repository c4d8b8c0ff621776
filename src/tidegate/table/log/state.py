"""Reading a table's transaction log: its newest version, the last batch of a query, its files, the batches that count.

A rollback after which the records are read again (:mod:`tidegate.runs.restart.recorded`) is recorded in its version.
The batches of the versions that it undid no longer count: their records are read in other batches. So to find the
progress of a query or a source, continue from the rollback's version with the one that it rolled back to.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.state.published import Published
from tidegate.table import errors
from tidegate.table.log.features import Unsupported, find_unsupported, is_append_only, name_in_sql
from tidegate.table.log.files import (
    LOG_FOLDER,
    CommitInfo,
    commit_name,
    is_log_file,
    list_versions,
    parse_line,
    read_actions_but_files,
    split_lines,
    torn_versions,
)
from tidegate.table.log.snapshot import DataFile, LogHead, Snapshot, read_head, read_snapshot

__all__ = [
    "LOG_FOLDER",
    "OFFSET",
    "DataFile",
    "TableState",
    "digest_files",
    "find_commit",
    "first_line",
    "glance_at_table",
    "has_log",
    "list_data_files",
    "read_commit_metadata",
    "read_log",
    "read_log_at",
    "read_log_head",
    "read_table_state",
    "read_txns",
]

OFFSET = "tidegate.version_offset"
"""The id of the ``txn`` with :attr:`TableState.offset`: checkpoints and log clean-up keep it."""
_OWN_COMMIT_KEYS = {
    "timestamp", "operation", "operationParameters", "engineInfo", "clientVersion", "version", "readVersion",
    "isolationLevel", "isBlindAppend", "operationMetrics",
}  # fmt: skip
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
"""The prefix of the ids of rollbacks, see :class:`tidegate.table.publish.plan.Rework`."""


@dataclass(frozen=True)
class TableState:
    """A table at its newest version."""

    version: int
    table_id: str
    """A random id of the table: another table at the same place has another id."""
    txns: dict[str, int]
    """{query id: last batch id} of the requested queries that the log has."""
    schema_json: str
    partition_columns: list[str]
    metadata: CommitInfo
    """The metadata of the newest commit: ``tidegate.run_id`` and so on."""
    unsupported: tuple[Unsupported, ...] = ()
    """Features that another program turned on and tidegate does not support."""
    is_append_only: bool = False
    """True if another program made the table append-only."""
    committed_at_ms: int | None = None
    """When the newest commit was made, in milliseconds since 1970 UTC; None when its commit file was removed."""
    offset: int = 0
    """Added to this version to give the number that sinks record; earlier versions may have a lower offset."""


def has_log(table_path: Path) -> bool:
    """Return whether there is a table: its log folder contains a commit or a checkpoint."""
    try:
        return storage.has_name(table_path / LOG_FOLDER, is_log_file)
    except NotADirectoryError:
        return False


def read_log(table_path: Path) -> Snapshot:
    """Read the table at its newest version. Raises DisagreementError TABLE_LOG_UNREADABLE when its log is torn."""
    try:
        return read_snapshot(table_path)
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        raise _unreadable(table_path, error) from error


def read_log_head(table_path: Path, app_ids: Collection[str] = ()) -> LogHead:
    """Read the table at its newest version without its files, with the batches of ``app_ids``. Raises as
    :func:`read_log`."""
    try:
        return read_head(table_path, app_ids)
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        raise _unreadable(table_path, error) from error


def read_log_at(table_path: Path, version: int) -> Snapshot:
    """Read the table at an earlier version. Raises FileNotFoundError or ValueError when the log does not have it."""
    return read_snapshot(table_path, version)


def read_txns(table_path: Path) -> dict[str, int]:
    """{id: last number} of every txn in the table's log; {} without a table."""
    found = read_log(table_path).txns if has_log(table_path) else {}
    return {app_id: int(txn["version"]) for app_id, txn in found.items()}


def holds_batch(table_path: Path, query_id: str, batch_id: int) -> bool:
    """Return whether the table's log has this batch of the query, or a later one."""
    state = read_table_state(table_path, (query_id,))
    return state is not None and state.txns.get(query_id, -1) >= batch_id


def read_table_state(table_path: Path, app_ids: tuple[str, ...] = ()) -> TableState | None:
    """Read the table's newest version; None when there is no table. ``app_ids``: the query ids whose batch to look up.

    Data files are neither listed nor opened, and their list in the log is not read. Raises DisagreementError
    TABLE_LOG_UNREADABLE, UsageError TABLE_PATH.
    """
    _check_path(table_path)
    if not has_log(table_path):
        return None
    snapshot = read_log_head(table_path, [app_id for app_id in app_ids if "#" not in app_id])
    try:
        info = read_commit_metadata(table_path, snapshot.version)
    except ValueError as error:  # torn, but in a compaction file, which other readers do not use
        raise _unreadable(table_path, error) from error
    txns = {app_id: snapshot.transaction_version(app_id) for app_id in app_ids}
    return TableState(
        version=snapshot.version,
        table_id=str(snapshot.metadata["id"]),
        txns={app_id: version for app_id, version in txns.items() if version is not None},
        schema_json=snapshot.schema_json,
        partition_columns=snapshot.partition_columns,
        metadata={key: value for key, value in info.items() if key not in _OWN_COMMIT_KEYS},
        unsupported=tuple(find_unsupported(snapshot, name_in_sql(table_path))),
        is_append_only=is_append_only(snapshot),
        committed_at_ms=info.get("timestamp"),
        offset=snapshot.transaction_version(OFFSET) or 0,
    )


def glance_at_table(table_path: Path, expected: Published) -> TableState | None:
    """A fast look at the table, if its newest commit is the ``expected`` publish: lists one folder and reads one file.
    None in every other case: call :func:`read_table_state` then.

    For looking at many tables. Query ids are random, so another table cannot have that commit. The result has no
    schema.
    """
    _check_path(table_path)
    if max(list_versions(table_path), default=-1) != expected.version:
        return None
    try:
        actions = read_actions_but_files(table_path, expected.version)
    except (OSError, ValueError):
        return None
    txn = next((action["txn"] for action in reversed(actions) if "txn" in action), None)
    info = next((action["commitInfo"] for action in reversed(actions) if "commitInfo" in action), None)
    wanted = (expected.query_id, expected.batch_id)
    if txn is None or info is None or (txn.get("appId"), txn.get("version")) != wanted:
        return None
    return TableState(
        version=expected.version,
        table_id=expected.table_id,
        txns={str(expected.query_id): expected.batch_id},
        schema_json="",
        partition_columns=[],
        metadata={key: value for key, value in info.items() if key not in _OWN_COMMIT_KEYS},
        committed_at_ms=info.get("timestamp"),
    )


def _check_path(table_path: Path) -> None:
    """Refuse a path that deltalake 1.6.6 can write to but not read: it decodes such a path once too often."""
    if re.search(r"%[0-9A-Fa-f]{2}|\\", str(table_path.absolute())):
        raise errors.TABLE_PATH(where=str(table_path), table_path=table_path)


def list_data_files(table_path: Path) -> list[DataFile]:
    """The table's files at its newest version, in the order of their paths; [] when there is no table."""
    return read_log(table_path).files() if has_log(table_path) else []


def digest_files(files: Sequence[DataFile]) -> str:
    """A digest of the paths of the table's files."""
    return hashlib.sha256("\n".join(sorted(file.path for file in files)).encode("utf-8", "surrogateescape")).hexdigest()


def read_commit_metadata(table_path: Path, version: int) -> CommitInfo:
    """The metadata of a commit: ``tidegate.run_id`` and so on; {} when its commit file is missing."""
    try:
        actions = read_actions_but_files(table_path, version)
    except FileNotFoundError:
        return {}
    return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})


def find_commit(table_path: Path, app_id: str, app_version: int) -> int | None:
    """The newest version with ``txn(app_id, app_version)``; None when no existing commit file has it.

    The batches of a query only grow, so the search ends at an earlier batch of the query.
    """
    wanted = json.dumps(app_id, ensure_ascii=False).encode()
    for version in reversed(list_versions(table_path)):
        data = storage.read(table_path / LOG_FOLDER / commit_name(version))
        for line in split_lines(data) if wanted in data else ():
            if not line.startswith(b'{"txn"'):
                continue
            try:
                txn = parse_line(line)["txn"]
            except ValueError:  # torn, but in a compaction file
                continue
            if txn["appId"] == app_id and txn["version"] <= app_version:
                return version if txn["version"] == app_version else None
    return None


def _unreadable(table_path: Path, error: Exception) -> DisagreementError:
    """The error for a log that cannot be read. Only its newest version can be removed: its records are then read again
    from the source."""
    torn, versions = [*torn_versions(table_path)], list_versions(table_path)
    if torn and torn == versions[-1:]:
        commit = table_path / LOG_FOLDER / commit_name(torn[0])
        return errors.TABLE_LOG_TORN(
            where=str(table_path / LOG_FOLDER),
            error=first_line(error),
            commit=commit.name,
            name=table_path.name,
            quoted_commit=shlex.quote(str(commit)),
        )
    named = f"; torn: {', '.join(commit_name(version) for version in torn)}" if torn else ""
    return errors.TABLE_LOG_UNREADABLE(
        where=str(table_path / LOG_FOLDER), error=first_line(error), named=named, name=table_path.name
    )


def first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()),
        type(error).__name__,
    )


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
    if not has_log(table_path):
        return dict.fromkeys(queries, -1)
    snapshot = read_log(table_path) if version is None else read_log_at(table_path, version)
    settled = {query: snapshot.last_batch(query) for query in queries}
    newest = find_reread(table_path, snapshot)
    known = {} if newest is None else json.loads(newest[1][SETTLED])
    return settled | {query: int(batch) for query, batch in known.items() if query in settled}


def find_reread(table_path: Path, snapshot: Snapshot) -> tuple[int, CommitInfo] | None:
    """The newest rollback in force after which records are read again: (version, metadata of its commit)."""
    if not any(app_id.startswith(WORK) for app_id in snapshot.txns):
        return None
    versions = walk_back(table_path, snapshot.version)
    return next(((number, info) for number, info in versions if info and info.get(THEN) == REREAD), None)
