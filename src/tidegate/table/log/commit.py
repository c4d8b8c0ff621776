"""Commits of parquet files that are already in place to a table's transaction log.

Only this module makes versions. Each is one file, which is whole on disk before it gets its name, and each name is
given once. A version carries the number of the last batch that it contains, ``txn(query id, batch id)``: a second or
late writer fails on this number, not on a lock.

The version that retires a query (:func:`retire_in_log`) carries ``txn(<query id>#retired, N)``: from ``N`` on no batch
of the query counts. A process that read the log before finds its version number taken, reads the log again, and is
refused. The txn of the last batch stays as it was: repair needs to know which batches the table contains.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegate import __version__
from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.table import errors
from tidegate.table.log.features import check_features
from tidegate.table.log.files import (
    LOG_FOLDER,
    Action,
    AddFile,
    CommitInfo,
    Metadata,
    commit_name,
    compacted_name,
    compactions_of,
    list_names,
    list_versions,
    parse_actions,
    path_in_log,
    path_on_disk,
)
from tidegate.table.log.snapshot import SHA256, LogHead, Snapshot
from tidegate.table.log.state import DataFile, first_line, has_log, read_log, read_log_head
from tidegate.table.schema import check_partition_columns, extend_schema, extends, fields_of, normalise_schema

_MARK = "#retired"


class RetiredError(TidegateError):
    """The log no longer accepts this batch of the query. Callers catch it and drop their plan."""

    def __init__(self, query_id: str, batch_id: int) -> None:
        super().__init__(
            "QUERY_RETIRED",
            f"query {query_id} is over: its batch {batch_id} is ignored",
            next_run="reads these records again with the query that followed",
            fix="run again; nothing else needs to be done",
        )


def retired_mark(query_id: str) -> str:
    """The id under which a log records the batch from which on it accepts none of a query."""
    return f"{query_id}{_MARK}"


def refuse_retired(table: LogHead, query_id: str, batch_id: int) -> None:
    """Raise RetiredError when the log no longer accepts this batch of the query."""
    first_refused = table.transaction_version(retired_mark(query_id))
    if first_refused is not None and batch_id >= first_refused:
        raise RetiredError(query_id, batch_id)


def drop_late_commits(table_path: Path, retired: Collection[str], aside: Path, check_lease: Callable[[], None]) -> None:
    """Remove commits of retired queries from the end of a log that could not refuse them, because it did not exist at
    the time: the table was not created yet, or had been moved to a backup.

    Such commits name files that do not exist (retiring the query moved them away), in a log that does not record that
    the query is retired. Copies of their commit files are in ``aside`` then.
    """
    while versions := list_versions(table_path):
        try:
            data = storage.read(table_path / LOG_FOLDER / commit_name(versions[-1]))
            actions = parse_actions(data)
        except (OSError, ValueError) as error:
            if storage.is_failure(error):
                raise
            return
        writers = {action["txn"]["appId"] for action in actions if "txn" in action}
        files = [path_on_disk(action["add"]["path"]) for action in actions if "add" in action]
        is_known = any(writer.endswith(_MARK) for writer in writers)
        if is_known or not writers & set(retired) or all(storage.exists(table_path / file) for file in files):
            return
        check_lease()
        withdraw(table_path, versions[-1], data, aside / commit_name(versions[-1]))


def withdraw(table_path: Path, version: int, data: bytes, copy: Path) -> None:
    """Take the newest version out of the log, unless its file holds anything but ``data`` by now; ``copy`` holds it
    then. A process that was suspended before this call leaves alone what another one has committed in the meantime."""
    storage.replace(copy, data)
    storage.take_away(table_path / LOG_FOLDER / commit_name(version), data)


SET_ASIDE = "tidegate.set_aside"
"""In a commit that only renames files: how many. The n-th file that it adds is the n-th that it removes."""
REPLACES_COLUMNS = "tidegate.replaces_columns"
"""In a commit that replaces all rows of the table by rows with other columns."""
CONFIGURATION = {
    "delta.checkpointInterval": "1000000000",
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 36500 days",
}
"""The configuration of each table, for other engines: to write no checkpoint in parquet, whose rows a glob over the
table would read, and to remove no commit, because runs need them."""
_ATTEMPTS = 5
_TOO_SLOW = f"other writers were faster in {_ATTEMPTS} attempts"


class AlreadyCommittedError(TidegateError):
    """The log has a later batch of this query than when the commit was planned. Callers catch it and read it again."""

    def __init__(self, app_id: str, app_version: int) -> None:
        super().__init__(
            "ALREADY_COMMITTED",
            f"the table's log moved on before batch {app_version} of query {app_id}",
        )


@dataclass(frozen=True)
class Commit:
    """One version that adds and removes files, and carries ``txn(app_id, app_version)``."""

    app_id: str
    app_version: int = 0
    app_version_before: int = -1
    """The number that the log must have for ``app_id``; -1: none."""
    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    schema_json: str | None = None
    """The schema of the new rows; None keeps the schema and the partition columns of the table, which must exist."""
    partition_by: Sequence[str] = ()
    replaces_schema: bool = False
    """The table gets the schema of the new rows, also where columns are missing or have other types: then the version
    has to remove all of its files."""
    custom_metadata: Mapping[str, str] = field(default_factory=dict)
    rearranges: bool = False
    """The version changes no rows, only the files that contain them."""
    retires: tuple[str, int] | None = None
    """(query id, last batch) of a query that ends with this version, as in :func:`retire_in_log`."""

    def actions(self, removes: Sequence[Action] = ()) -> list[Action]:
        """Its actions, with those that remove its files."""
        adds = [_add_action(file, data_change=not self.rearranges) for file in self.add]
        txn = [_txn_action(self.app_id, self.app_version)]
        if self.retires is not None:
            query_id, last_batch = self.retires
            txn.append(_txn_action(retired_mark(query_id), last_batch + 1))
        return [*adds, *removes, *txn]


def commit_files(table_path: Path, commit: Commit, *, check_lease: Callable[[], None] = lambda: None) -> int:
    """Make one version of files that are in place; returns its number.

    Creates the table with a random id when there is none. New columns are added in a separate version just before (a
    reader between the two sees them empty). Each version is made by one writer: of all writers of a batch, one
    succeeds. ``check_lease`` is called before each attempt, and raises when the caller may no longer commit.

    Raises:
        AlreadyCommittedError: Another writer was faster: read the log again and decide.
        UsageError: SCHEMA_CHANGE or PARTITION_BY.
        TryAgainError: DISK_FULL or COMMIT_FAILED; safe to repeat.
        DisagreementError: TABLE_FEATURE, or REPLACED_FILES_GONE when the log no longer has a file
            that is to be removed: its rows are in another file by now; COLUMNS_IN_USE.
    """
    schema = None if commit.schema_json is None else normalise_schema(commit.schema_json)
    for _ in range(_ATTEMPTS):
        check_lease()
        if has_log(table_path):
            version = _continue_table(table_path, commit, schema)
        else:
            assert schema is not None, "a commit to no table gives its schema"
            check_partition_columns(list(commit.partition_by), schema, None)
            table = _new_table(table_path.name, schema, list(commit.partition_by))
            begin: list[Action] = [{"protocol": table.protocol}, {"metaData": table.metadata}]
            version = _append(table_path, table, [*begin, *commit.actions()], commit.custom_metadata)
        if version is not None:
            if version == 0:
                sync_log(table_path, version)
            return version
    raise _commit_failed(table_path, _TOO_SLOW)


def _continue_table(table_path: Path, commit: Commit, schema: str | None) -> int | None:
    """Commit rows of this ``schema`` to an existing table; returns None where the log has to be read again."""
    whole = read_log(table_path) if commit.remove or commit.replaces_schema else None
    table = read_log_head(table_path, (commit.app_id,)) if whole is None else whole
    refuse_retired(table, commit.app_id, commit.app_version)
    if table.last_batch(commit.app_id) != commit.app_version_before:
        raise AlreadyCommittedError(commit.app_id, commit.app_version)
    metadata, custom_metadata = table.metadata, dict(commit.custom_metadata)
    if schema is not None:
        check_partition_columns(list(commit.partition_by), schema, table.partition_columns)
        if whole is not None and commit.replaces_schema and not extends(table.schema_json, schema):
            check_all_replaced(table_path, map(path_on_disk, whole.added), [file.path for file in commit.remove])
            metadata = {**metadata, "schemaString": schema, "partitionColumns": list(commit.partition_by)}
            custom_metadata[REPLACES_COLUMNS] = "true"
        elif _add_columns(table_path, table, schema):
            return None
    changes_rows = not commit.rearranges
    check_features(table_path, table, removes_rows=bool(commit.remove) and changes_rows)
    names = {} if whole is None else _spelled(whole)
    refuse_gone(table_path, [one.path for one in commit.remove if one.path not in names])
    removes = [_remove_action(names[one.path], one, data_change=changes_rows) for one in commit.remove]
    return _append(table_path, table, [*_configure(table, metadata), *commit.actions(removes)], custom_metadata)


def check_all_replaced(table_path: Path, files: Iterable[str], replaced: Collection[str]) -> None:
    """Raise DisagreementError COLUMNS_IN_USE if one of the table's files, which have the old columns, would stay."""
    stay = sorted(set(files).difference(replaced))
    if stay:
        raise errors.COLUMNS_IN_USE(where=str(table_path), number=len(stay), example=stay[0], name=table_path.name)


def refuse_gone(table_path: Path, gone: Sequence[str]) -> None:
    """Raise DisagreementError REPLACED_FILES_GONE if any file is ``gone``: another program has replaced it."""
    if gone:
        raise errors.REPLACED_FILES_GONE(where=str(table_path), number=len(gone), example=gone[0], name=table_path.name)


def _append(
    table_path: Path, table: LogHead, actions: Sequence[Action], custom_metadata: Mapping[str, str]
) -> int | None:
    """Write the version after ``table`` with these actions; returns its number, or None when another process has
    written it."""
    check_features(table_path, table)
    info: CommitInfo = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(table.partition_columns)},
        "engineInfo": f"tidegate {__version__}",
        **custom_metadata,
    }
    commit_info: Action = {"commitInfo": info}
    lines = [json.dumps(action, ensure_ascii=False) for action in (commit_info, *actions)]
    version = table.version + 1
    try:
        for last in compactions_of(list_names(table_path)):
            if last >= version:  # it contains commits that were removed from the log, and would be read instead
                storage.remove(table_path / LOG_FOLDER / compacted_name(last))
        # Text that a person typed need not be Unicode, but the log must be: no reader could read it.
        data = "\n".join(lines).encode("utf-8", "replace")
        if not storage.put_if_absent(table_path / LOG_FOLDER / commit_name(version), data):
            return None
    except OSError as error:
        raise _commit_failed(table_path, first_line(error)) from error
    return version


def _new_table(name: str, schema: str, partition_by: list[str]) -> Snapshot:
    """A table with a random id before its first version."""
    metadata: Metadata = {
        "id": str(uuid.uuid4()),
        "name": name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": partition_by,
        "createdTime": time.time_ns() // 1_000_000,
        "configuration": dict(CONFIGURATION),
    }
    # Every Delta reader supports this protocol.
    return Snapshot(protocol={"minReaderVersion": 1, "minWriterVersion": 2}, metadata=metadata)


def _configure(table: LogHead, metadata: Metadata) -> list[Action]:
    """The action that gives the table this ``metadata`` with :data:`CONFIGURATION`; none when it has it."""
    after: Metadata = {**metadata, "configuration": {**(metadata.get("configuration") or {}), **CONFIGURATION}}
    return [] if after == table.metadata else [{"metaData": after}]


def _add_columns(table_path: Path, table: LogHead, schema_json: str) -> bool:
    """Add the new columns and fields to the table in a separate version; returns whether there were any."""
    extended = extend_schema(table.schema_json, schema_json, table_path.name)
    before = fields_of(table.schema_json)
    changed = [column["name"] for column in fields_of(extended) if column not in before]
    if not changed:
        return False
    metadata: Metadata = {**table.metadata, "schemaString": extended}
    _append(table_path, table, [{"metaData": metadata}], {"tidegate.added_columns": ", ".join(changed)})
    return True  # also when another process was faster: the caller reads the log again


def _add_action(file: DataFile, *, data_change: bool) -> Action:
    add: AddFile = {
        "path": path_in_log(file.path),
        "partitionValues": {name: value or None for name, value in file.partition.items()},
        "size": file.size_bytes,
        "modificationTime": file.modified_at_ms,
        "dataChange": data_change,
        "stats": json.dumps({"numRecords": file.rows, **file.stats}, ensure_ascii=False),
    }
    if file.sha256:
        add["tags"] = {SHA256: file.sha256}
    return {"add": add}


def _remove_action(path: str, file: DataFile, *, data_change: bool) -> Action:
    """``path`` is spelled as in the log: readers compare paths as strings."""
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": time.time_ns() // 1_000_000,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": {name: value or None for name, value in file.partition.items()},
            "size": file.size_bytes,
        }
    }


def _txn_action(app_id: str, app_version: int) -> Action:
    return {"txn": {"appId": app_id, "version": app_version, "lastUpdated": time.time_ns() // 1_000_000}}


def _spelled(table: Snapshot) -> dict[str, str]:
    """{path on disk: path in the log} of the table's files."""
    return {path_on_disk(path): path for path in table.added}


def set_aside_mark(app_id: str) -> str:
    """The id under which the log records the batch of a query for which files were last hidden."""
    return f"{app_id}#set-aside"


def rename_files(table_path: Path, renamed: list[tuple[DataFile, str]], *, app_id: str, app_version: int) -> None:
    """Rename files in the log, which exist under both names: a version that changes no rows.

    Files that have the new name in the log are skipped, so this can be repeated. Raises DisagreementError
    REPLACED_FILES_GONE when the log has a file under neither name.
    """
    table = read_log(table_path)
    refuse_retired(table, app_id, app_version)
    names = _spelled(table)
    todo = [(old, new) for old, new in renamed if old.path in names]
    refuse_gone(table_path, [old.path for old, new in renamed if old.path not in names and new not in names])
    if not todo:
        return
    # Keep all other fields of the file: counts of nulls, the digest.
    actions: list[Action] = [
        {"add": {**table.added[names[old.path]], "path": path_in_log(new), "dataChange": False}} for old, new in todo
    ]
    actions += [_remove_action(names[old.path], old, data_change=False) for old, _ in todo]
    actions.append(_txn_action(set_aside_mark(app_id), app_version))
    if _append(table_path, table, actions, {SET_ASIDE: f"{len(todo)} files"}) is None:
        raise _commit_failed(table_path, "another process committed at the same time")


def overtake(table_path: Path, *, app_id: str, app_version: int, check_lease: Callable[[], None]) -> None:
    """Take the version number that a suspended process would commit to, without any change: when it resumes, its commit
    fails and it checks its lease. ``app_id`` and ``app_version`` are those of the batch that it would commit."""
    table = read_log_head(table_path)
    check_lease()  # after the look: if another process commits from now on, it has taken that number
    _append(table_path, table, [_txn_action(set_aside_mark(app_id), app_version)], {SET_ASIDE: "0 files"})


def retire_in_log(table_path: Path, query_id: str, *, last_batch: int) -> None:
    """Commit that no batch of the query after ``last_batch`` counts (-1: none at all); nothing without a table. May be
    repeated. Raises TryAgainError DISK_FULL or COMMIT_FAILED, DisagreementError TABLE_LOG_UNREADABLE.
    """
    for _ in range(_ATTEMPTS):
        if not has_log(table_path):
            return
        table = read_log(table_path)
        known = table.transaction_version(retired_mark(query_id))
        if known is not None and known <= last_batch + 1:
            sync_log(table_path, table.version)
            return
        info = {"tidegate.retired": query_id, "tidegate.last_batch": str(last_batch)}
        version = _append(table_path, table, [_txn_action(retired_mark(query_id), last_batch + 1)], info)
        if version is not None:
            sync_log(table_path, version)
            return
    raise _commit_failed(table_path, _TOO_SLOW)


def _commit_failed(table_path: Path, why: str) -> TryAgainError:
    return errors.COMMIT_FAILED(where=str(table_path / LOG_FOLDER), why=why)


def sync_log(table_path: Path, version: int) -> None:
    """Sync the names of the log's versions up to ``version``: their writer may have been killed before it did. Their
    content was synced before they got a name.
    """
    storage.sync_folder(table_path / LOG_FOLDER)
    if version == 0:  # the folders may be new
        storage.sync_folder(table_path)
        storage.sync_folder(table_path.parent)
