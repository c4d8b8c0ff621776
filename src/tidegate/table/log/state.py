"""Reading a table's transaction log: its newest version, the last batch of a query, its files."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.state.published import Published
from tidegate.table import errors
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.features import Unsupported, find_unsupported, is_append_only, name_in_sql
from tidegate.table.log.files import (
    LOG_FOLDER,
    commit_name,
    is_log_file,
    list_versions,
    parse_line,
    read_actions_but_files,
    split_lines,
    torn_versions,
)
from tidegate.table.log.snapshot import DataFile, LogHead, Snapshot, read_head, read_snapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
    "open_table",
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
    """Whether another program made the table append-only."""
    committed_at_ms: int | None = None
    """When the newest commit was made, in milliseconds since 1970 UTC; None when its commit file was removed."""
    offset: int = 0
    """Added to this version to give the number that sinks record; earlier versions may have a lower offset."""


def has_log(table_path: Path) -> bool:
    """Whether there is a table: its log folder contains a commit or a checkpoint."""
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


def open_table(table_path: Path) -> DeltaTable:
    """Open the table with deltalake, which is slow for many versions. Raises DisagreementError TABLE_LOG_UNREADABLE
    when its log is torn.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    try:
        return DeltaTable(storage.address(table_path))
    except (
        DeltaError,
        DeltaProtocolError,
        TableNotFoundError,
        OSError,
        ValueError,
    ) as error:
        raise _unreadable(table_path, error) from error


def read_txns(table_path: Path) -> dict[str, int]:
    """{id: last number} of every txn in the table's log; {} without a table."""
    found = read_log(table_path).txns if has_log(table_path) else {}
    return {app_id: int(txn["version"]) for app_id, txn in found.items()}


def holds_batch(table_path: Path, query_id: str, batch_id: int) -> bool:
    """Whether the table's log has this batch of the query, or a later one."""
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
    torn, versions = torn_versions(table_path), list_versions(table_path)
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
