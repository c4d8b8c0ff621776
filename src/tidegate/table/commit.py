"""Commits to a table's transaction log, of parquet files that are in place already.

Only this module writes with ``deltalake``. A commit makes one version, which also carries the number of the last batch
it holds, ``txn(query id, batch id)``: that number, not a lock, is what a second or late writer fails on.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate import storage
from tidegate.errors import DisagreementError, TidegateError, TryAgainError
from tidegate.table.log import (
    LOG_FOLDER,
    DataFile,
    files_of,
    find_commit,
    first_line,
    has_log,
    open_table,
    read_table_state,
)
from tidegate.table.schema import check_partition_columns, check_schema_change, normalise_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties
    from deltalake.transaction import AddAction, RemoveAction

_VERSIONS_OF_A_PUBLISH = 16
"""More than one publish can make: its files' names, new columns, its rows; each is made once, by whoever does it."""


class AlreadyCommittedError(TidegateError):
    """The log has moved on for this query since the commit was planned. Callers catch it and look again."""

    def __init__(self, app_id: str, app_version: int) -> None:
        super().__init__(
            "ALREADY_COMMITTED",
            f"the table's log moved on before batch {app_version} of query {app_id}",
        )


def commit_files(
    table_path: Path,
    *,
    schema_json: str,
    partition_by: list[str],
    add: list[DataFile],
    remove: list[DataFile],
    app_id: str,
    app_version: int,
    app_version_before: int,
    custom_metadata: dict[str, str],
) -> int:
    """Commit files as one version that carries ``txn(app_id, app_version)``; the version's number.

    Creates the table with a random id when there is none. New columns of ``schema_json`` are added to the table in a
    version of their own just before (a reader between the two sees them empty).

    The snapshot the commit is based on must hold ``app_version_before`` (-1: no txn) for ``app_id``, and the log
    refuses a commit that another one with the same ``app_id`` overtook: of all writers of a batch, one succeeds. The
    others get AlreadyCommittedError: read the log again and decide. Raises UsageError SCHEMA_CHANGE or PARTITION_BY,
    TryAgainError DISK_FULL or COMMIT_FAILED (safe to repeat).
    """
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.transaction import create_table_with_add_actions

    schema = normalise_schema(schema_json)
    properties = CommitProperties(
        custom_metadata=dict(custom_metadata),
        app_transactions=[Transaction(app_id, app_version)],
        max_commit_retries=5,
    )
    actions = [_add_action(file, data_change=True) for file in add]
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
                    post_commithook_properties=_no_hooks(),
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
                    [*actions, *(_remove_action(file, data_change=True) for file in remove)],
                    "append",
                    table.schema(),
                    partition_by,
                    commit_properties=properties,
                    post_commithook_properties=_no_hooks(),
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
                raise _commit_failed(table_path, first_line(error)) from error
        version = find_commit(table_path, app_id, app_version)
        if version is None:
            continue
        sync_log(table_path, version)
        return version
    raise _commit_failed(table_path, "other writers were faster in 5 attempts")


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
        post_commithook_properties=_no_hooks(),
    )
    return True


def _add_action(file: DataFile, *, data_change: bool) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={name: value or None for name, value in file.partition.items()},
        modification_time=file.modified_at_ms,
        data_change=data_change,
        stats=json.dumps({"numRecords": file.rows, **file.stats}),
    )


def _remove_action(file: DataFile, *, data_change: bool) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.path, data_change, time.time_ns() // 1_000_000, file.size_bytes, file.partition)


def set_aside_mark(app_id: str) -> str:
    """The id under which the log notes for which batch of a query files were last set aside."""
    return f"{app_id}#set-aside"


def rename_files(table_path: Path, renamed: list[tuple[DataFile, str]], *, app_id: str, app_version: int) -> None:
    """Have the log call files by another name, under which they are in place too: a version that changes no row.

    Files that the log calls by the new name already are passed over, so it can be repeated. Raises DisagreementError
    REPLACED_FILES_GONE when the log has a file under neither name.
    """
    from deltalake import CommitProperties, Transaction

    table = open_table(table_path)
    names = {file.path for file in files_of(table)}
    todo = [(old, new) for old, new in renamed if old.path in names]
    gone = [old.path for old, new in renamed if old.path not in names and new not in names]
    if gone:
        raise DisagreementError(
            "REPLACED_FILES_GONE",
            f"{len(gone)} files that were to be replaced are no longer in the table, for example {gone[0]}",
            where=str(table_path),
            next_run="stops in the same way",
            fix="look at what else wrote to the table: tidegate alone may",
        )
    if not todo:
        return
    # A txn of its own makes the log refuse a second process that renames at the same time.
    properties = CommitProperties(
        custom_metadata={"tidegate.set_aside": f"{len(todo)} files"},
        app_transactions=[Transaction(set_aside_mark(app_id), app_version)],
        max_commit_retries=0,
    )
    adds = [_add_action(replace(old, path=new), data_change=False) for old, new in todo]
    removes = [_remove_action(old, data_change=False) for old, _ in todo]
    try:
        table.create_write_transaction(
            [*adds, *removes],
            "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=properties,
            post_commithook_properties=_no_hooks(),
        )
    except Exception as error:
        raise _disk_full(error, table_path) or _commit_failed(table_path, first_line(error)) from error
    sync_log(table_path, open_table(table_path).version())


def enable_json_checkpoints(table: DeltaTable, table_path: Path) -> None:
    """Have the table say, in a version of its own, that its log may have checkpoints as JSON."""
    from deltalake import CommitProperties, TableFeatures

    try:
        table.alter.add_feature(
            TableFeatures.V2Checkpoint,
            allow_protocol_versions_increase=True,
            commit_properties=CommitProperties(custom_metadata={"tidegate.log_checkpoints": "json"}),
            post_commithook_properties=_no_hooks(),
        )
    except Exception as error:
        raise _disk_full(error, table_path) or _commit_failed(table_path, first_line(error)) from error
    sync_log(table_path, open_table(table_path).version())


def _commit_failed(table_path: Path, why: str) -> TryAgainError:
    return TryAgainError(
        "COMMIT_FAILED",
        f"the version could not be committed: {why}",
        where=str(table_path / LOG_FOLDER),
        next_run="finishes this publish first",
        fix="run again; when it stays, look at the permissions and the disk of the table folder",
    )


def sync_log(table_path: Path, version: int) -> None:
    """Put the newest versions up to ``version`` on disk, with the folders on the way to them: deltalake syncs nothing,
    and what a publish committed must be there before the intent behind it is forgotten.

    Also those that a process has made which was killed before it could do this; a file that is on disk costs nothing.
    """
    log = table_path / LOG_FOLDER
    for number in range(max(0, version - _VERSIONS_OF_A_PUBLISH + 1), version + 1):
        with contextlib.suppress(FileNotFoundError):
            storage.fsync_file(log / f"{number:020d}.json")
    for folder in (log, table_path, table_path.parent):
        storage.fsync_dir(folder)


def _no_hooks() -> PostCommitHookProperties:
    """Neither a parquet checkpoint in the log, which plain globs would read as rows, nor the removal of old commits,
    which sinks and the removal of replaced files go by. See :mod:`tidegate.table.log_checkpoint`."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _disk_full(error: Exception, table_path: Path) -> TryAgainError | None:
    text = str(error)
    if "os error 28" in text or "os error 122" in text or "No space left" in text:
        return storage.disk_full(table_path / LOG_FOLDER)
    return None
