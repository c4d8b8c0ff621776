"""The table's transaction log: its state, and commits of parquet files that are in place already.

Only this module talks to ``deltalake`` for writing. A commit makes one version, which also carries the number of the
last batch it holds, ``txn(query id, batch id)``: that number, not a lock, is what a second or late writer fails on.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import storage
from tidegate.errors import DisagreementError, TidegateError, TryAgainError
from tidegate.table.schema import (
    check_partition_columns,
    check_schema_change,
    normalise_schema,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG_FOLDER = "_delta_log"
_LOG_FILE = re.compile(r"^\d{20}\.(json|checkpoint(\.[\w.-]+)?\.parquet)$")
_COMMIT_FILE = re.compile(r"^(\d{20})\.json$")
_OWN_COMMIT_KEYS = {
    "timestamp", "operation", "operationParameters", "engineInfo", "clientVersion", "version", "readVersion",
    "isolationLevel", "isBlindAppend", "operationMetrics",
}  # fmt: skip


@dataclass(frozen=True)
class TableState:
    """A table as its log has it, at its newest version."""

    version: int
    table_id: str
    """Random, given when the table is created: another table at the same place has another."""
    txns: dict[str, int]
    """The last batch id per query id, for those asked for that the log knows."""
    schema_json: str
    partition_columns: list[str]
    metadata: dict[str, Any]
    """What the newest commit carries: ``tidegate.run_id`` and so on."""
    committed_at_ms: int | None
    """When the newest commit was made, in milliseconds since 1970 UTC; None when its commit file was cleaned away."""


@dataclass(frozen=True)
class DataFile:
    """A parquet file in place in the table folder: ``path`` is relative to it, as the file system spells it."""

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    modified_at_ms: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    """Delta statistics beside ``numRecords``."""


def has_log(table_path: Path) -> bool:
    """Whether a table is there: its log folder holds at least one commit or checkpoint."""
    try:
        return any(_LOG_FILE.match(path.name) for path in (table_path / LOG_FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_table(table_path: Path) -> DeltaTable:
    """The table, at its newest version. Raises DisagreementError TABLE_LOG_UNREADABLE when its log is torn."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    try:
        return DeltaTable(str(table_path))
    except (
        DeltaError,
        DeltaProtocolError,
        TableNotFoundError,
        OSError,
        ValueError,
    ) as error:
        raise DisagreementError(
            "TABLE_LOG_UNREADABLE",
            f"the log of the table cannot be read: {_first_line(error)}{_torn_commits(table_path)}",
            where=str(table_path / LOG_FOLDER),
            next_run="stops in the same way, before anything is read or written",
            fix="restore the folder from a backup made with the parquet files beside it",
        ) from error


def read_table_state(table_path: Path, app_ids: tuple[str, ...] = ()) -> TableState | None:
    """The table's newest version, or None when there is no table. ``app_ids`` are the query ids whose batch to look up.

    No data file is listed or opened. Raises DisagreementError TABLE_LOG_UNREADABLE.
    """
    if not has_log(table_path):
        return None
    return _state_of(open_table(table_path), app_ids)


def _state_of(table: DeltaTable, app_ids: tuple[str, ...]) -> TableState:
    metadata = table.metadata()
    txns = {app_id: table.transaction_version(app_id) for app_id in app_ids}
    last: dict[str, Any] = next(iter(table.history(1)), {})
    return TableState(
        version=table.version(),
        table_id=str(metadata.id),
        txns={app_id: version for app_id, version in txns.items() if version is not None},
        schema_json=table.schema().to_json(),
        partition_columns=list(metadata.partition_columns),
        metadata={key: value for key, value in last.items() if key not in _OWN_COMMIT_KEYS},
        committed_at_ms=last.get("timestamp"),
    )


def list_data_files(table_path: Path) -> list[str]:
    """The table's files at its newest version, relative to the table folder, as the file system spells them."""
    from urllib.parse import unquote

    paths = open_table(table_path).get_add_actions()["path"].to_pylist()
    return sorted(unquote(path) for path in paths)  # the log percent-encodes once over the name on disk


def commit_files(
    table_path: Path,
    *,
    schema_json: str,
    partition_by: list[str],
    add: list[DataFile],
    remove: list[str],
    app_id: str,
    app_version: int,
    app_version_before: int,
    custom_metadata: dict[str, str],
) -> int:
    """Commit files as one version that carries ``txn(app_id, app_version)``; the version's number.

    Creates the table with a random id when there is none. New columns of ``schema_json`` are added to the table in a
    version of their own just before (a reader between the two sees them empty). ``remove`` names files of the table.

    The snapshot the commit is based on must hold ``app_version_before`` (-1: no txn) for ``app_id``, and the log
    refuses a commit that another one with the same ``app_id`` overtook: of all writers of a batch, one succeeds. The
    others get AlreadyCommittedError: read the log again and decide. Raises UsageError SCHEMA_CHANGE or PARTITION_BY,
    TryAgainError DISK_FULL or COMMIT_FAILED (safe to repeat).
    """
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions

    schema = normalise_schema(schema_json)
    properties = CommitProperties(
        custom_metadata=dict(custom_metadata),
        app_transactions=[Transaction(app_id, app_version)],
        max_commit_retries=5,
    )
    actions = [
        AddAction(
            path=file.path,
            size=file.size_bytes,
            partition_values=file.partition,
            modification_time=file.modified_at_ms,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows, **file.stats}),
        )
        for file in add
    ]
    for attempt in range(5):
        base = -1
        try:
            if not has_log(table_path):
                check_partition_columns(partition_by, schema, None)
                table_path.mkdir(parents=True, exist_ok=True)
                create_table_with_add_actions(
                    str(table_path),
                    Schema.from_json(schema),
                    actions,
                    mode="error",
                    partition_by=partition_by,
                    name=table_path.name,
                    commit_properties=properties,
                )
            else:
                table = open_table(table_path)
                base = table.version()
                if _txn(table, app_id) != app_version_before:
                    raise AlreadyCommittedError(app_id, app_version)
                check_partition_columns(partition_by, schema, list(table.metadata().partition_columns))
                if _add_columns(table, schema):
                    continue
                table.create_write_transaction(
                    [*actions, *_remove_actions(table, remove)],
                    "append",
                    table.schema(),
                    partition_by,
                    commit_properties=properties,
                )
        except TidegateError:
            raise
        except Exception as error:  # the outcome is unknown until the log is read again
            state = read_table_state(table_path, (app_id,))
            if state is None or state.txns.get(app_id, -1) < app_version:
                if (full := _disk_full(error, table_path)) is not None:
                    raise full from error
                if attempt < 4 and (state is not None) and state.version != base:
                    time.sleep(0.05 * (attempt + 1))
                    continue
                raise TryAgainError(
                    "COMMIT_FAILED",
                    f"the version could not be committed: {_first_line(error)}",
                    where=str(table_path / LOG_FOLDER),
                    next_run="finishes this publish first",
                    fix="run again; when it stays, look at the permissions and the disk of the table folder",
                ) from error
        version = find_commit(table_path, app_id, app_version)
        if version is None:
            continue
        _make_durable(table_path, version)
        return version
    raise TryAgainError(
        "COMMIT_FAILED",
        f"the version could not be committed in 5 attempts: other writers were faster each time ({table_path})",
        where=str(table_path / LOG_FOLDER),
        next_run="finishes this publish first",
        fix="run again",
    )


class AlreadyCommittedError(TidegateError):
    """The log has moved on for this query since the commit was planned. Callers catch it and look again."""

    def __init__(self, app_id: str, app_version: int) -> None:
        super().__init__(
            "ALREADY_COMMITTED",
            f"the table's log moved on before batch {app_version} of query {app_id}",
        )


def find_commit(table_path: Path, app_id: str, app_version: int) -> int | None:
    """The version that carries ``txn(app_id, app_version)``, newest first; None when no commit file there has it."""
    names = [path.name for path in (table_path / LOG_FOLDER).iterdir() if _COMMIT_FILE.match(path.name)]
    for name in sorted(names, reverse=True):
        text = (table_path / LOG_FOLDER / name).read_text(encoding="utf-8")
        if '"txn"' not in text:
            continue
        for line in text.splitlines():
            if line.startswith('{"txn"'):
                txn = json.loads(line)["txn"]
                if txn["appId"] == app_id and txn["version"] == app_version:
                    return int(name[:20])
    return None


def _txn(table: DeltaTable, app_id: str) -> int:
    last = table.transaction_version(app_id)
    return -1 if last is None else last


def _add_columns(table: DeltaTable, schema_json: str) -> bool:
    """Add the new columns to the table in a version of their own; whether there were any."""
    from deltalake import CommitProperties
    from deltalake.schema import Field

    added = check_schema_change(table.schema().to_json(), schema_json)
    if not added:
        return False
    names = ", ".join(column["name"] for column in added)
    table.alter.add_columns(
        [Field.from_json(json.dumps(column)) for column in added],
        commit_properties=CommitProperties(custom_metadata={"tidegate.added_columns": names}),
    )
    return True


def _remove_actions(table: DeltaTable, paths: list[str]) -> list[Any]:
    from deltalake.transaction import RemoveAction

    if not paths:
        return []
    sizes = table._table.get_add_file_sizes() if hasattr(table, "_table") else {}
    now_ms = time.time_ns() // 1_000_000
    return [RemoveAction(path, True, now_ms, sizes.get(path)) for path in paths]


def _make_durable(table_path: Path, version: int) -> None:
    """deltalake does not fsync: the commit must be on disk before the intent behind it is forgotten."""
    log = table_path / LOG_FOLDER
    storage.fsync_file(log / f"{version:020d}.json")
    storage.fsync_dir(log)
    storage.fsync_dir(table_path)


def _disk_full(error: Exception, table_path: Path) -> TryAgainError | None:
    text = str(error)
    if "os error 28" in text or "os error 122" in text or "No space left" in text:
        return storage.disk_full(table_path / LOG_FOLDER)
    return None


def _first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()),
        type(error).__name__,
    )


def _torn_commits(table_path: Path) -> str:
    """Which commit files are not whole JSON lines, for the message."""
    torn = []
    for path in sorted((table_path / LOG_FOLDER).glob("*.json")):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            if not lines:
                raise ValueError("empty")
            for line in lines:
                json.loads(line)
        except (ValueError, OSError):
            torn.append(path.name)
    return f"; torn: {', '.join(torn)}" if torn else ""
