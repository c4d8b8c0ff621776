"""Publish: write down the intent, move the files in, commit one version, forget the intent.

Whoever finds an intent finishes it before doing anything else, so a publish that was stopped at any point is
completed by the next run with the same result. Plain parquet readers see a file from the moment it is renamed in,
Delta readers from the commit on; every row of an intent passed the gate before, and no row is ever in two places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tidegate import storage
from tidegate.errors import DefectError, DisagreementError, TryAgainError
from tidegate.project import PipelinePaths
from tidegate.table.footer import read_footer
from tidegate.table.log import (
    AlreadyCommittedError,
    DataFile,
    TableState,
    commit_files,
    find_commit,
    read_table_state,
)
from tidegate.table.place import place_file, remove_copies

Target = Literal["table", "quarantine"]


@dataclass(frozen=True)
class FileToAdd:
    """A staged parquet file (``source``, relative to the pipeline's state folder) and its ``path`` in the table folder.

    ``partition`` has each partition column's value in Delta's string form.
    """

    source: str
    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishIntent:
    """One publish, complete: what to move where, and what the commit carries.

    ``app_id`` is the query id of the checkpoint, ``app_version`` the last batch of the increment, and
    ``app_version_before`` the batch the log had for that query when the intent was made (-1: none). An intent without
    files only moves the log on: that is how an increment is discarded.
    """

    pipeline: str
    run_id: str
    target: Target
    schema_json: str
    partition_by: list[str]
    app_id: str
    app_version: int
    app_version_before: int
    files_to_add: list[FileToAdd] = field(default_factory=list)
    files_to_remove: list[str] = field(default_factory=list)
    """Files of the table that this version replaces, relative to the table folder."""
    custom_metadata: dict[str, str] = field(default_factory=dict)
    """What the commit carries beside run and pipeline: the report's key figures as JSON strings."""

    @property
    def intent_id(self) -> str:
        """One name per target and increment; the intent file is called so."""
        return f"{self.target}-{self.app_id}-{self.app_version}"

    def table_path(self, paths: PipelinePaths) -> Path:
        """The folder of the table it publishes to."""
        return paths.table if self.target == "table" else paths.quarantine


@dataclass(frozen=True)
class CommitResult:
    """What a finished intent did; the same figures whoever finished it, and however often it is asked."""

    version: int | None
    """The version of the commit; None when the intent was overtaken, or its commit file is no longer there."""
    files_added: int
    rows_added: int
    files_removed: int
    rows_removed: int
    already: bool
    """The commit was there before."""
    overtaken: bool = False
    """A later plan published a part of these batches: nothing was done, the rest must be planned anew."""


def write_intent(paths: PipelinePaths, intent: PublishIntent) -> PublishIntent:
    """Write the intent down unless one of the same increment is there; the one that is in force."""
    path = _intent_path(paths, intent)
    if storage.put_if_absent(path, storage.dump_json(asdict(intent))):
        return intent
    value = storage.read_json(path)
    return intent if value is None else _intent_from(value)


def pending_intents(paths: PipelinePaths) -> list[PublishIntent]:
    """Publishes that were begun and not finished, oldest batch first. They must be finished before anything else."""
    found = []
    for path in sorted(paths.intents.glob("[!.]*.json")) if paths.intents.is_dir() else []:
        value = storage.read_json(path)
        if value is not None:
            found.append(_intent_from(value))
    return sorted(found, key=lambda intent: (intent.app_version, intent.target))


def finish_intent(paths: PipelinePaths, intent: PublishIntent, *, is_current: Callable[[], bool]) -> CommitResult:
    """Do what is left of the intent, then forget it. Safe to call any number of times, by anyone, at any moment.

    ``is_current`` says whether the caller still holds the pipeline's lease; it is asked before each step that a reader
    sees, and the commit itself is refused by the log when another process was faster. Raises TryAgainError LEASE_LOST,
    DISK_FULL or COMMIT_FAILED (the intent stays), DisagreementError when table and intent do not belong together,
    DefectError when a staged file is gone or damaged.
    """
    table_path = intent.table_path(paths)
    state = read_table_state(table_path, (intent.app_id,))
    done = _settled(table_path, intent, state)
    if done is None:
        _refuse_unknown_files(table_path, intent, state)
        try:
            data_files = _check_files(paths, intent, table_path)
            _move_files(paths, intent, table_path, is_current)
            _check_lease(is_current, intent)
            version = commit_files(
                table_path,
                schema_json=intent.schema_json,
                partition_by=intent.partition_by,
                add=data_files,
                remove=intent.files_to_remove,
                app_id=intent.app_id,
                app_version=intent.app_version,
                app_version_before=intent.app_version_before,
                custom_metadata=_commit_metadata(intent),
            )
            done = _result(intent, version, already=False)
        except (AlreadyCommittedError, FileNotFoundError) as error:
            # Another process was at it. Its commit explains a file that is neither here nor there (compacted since).
            done = _settled(table_path, intent, read_table_state(table_path, (intent.app_id,)))
            if done is None:
                raise _files_lost(error, intent) from error
    _check_lease(is_current, intent)
    _drop_replaced(table_path, intent, done)
    storage.remove(_intent_path(paths, intent))
    return done


def _settled(table_path: Path, intent: PublishIntent, state: TableState | None) -> CommitResult | None:
    """The result when the log says that there is nothing left to do; None when the intent is still to be done."""
    current = -1 if state is None else state.txns.get(intent.app_id, -1)
    if current < intent.app_version:
        if current == intent.app_version_before:
            return None
        if current > intent.app_version_before:
            return CommitResult(None, 0, 0, 0, 0, already=False, overtaken=True)
        raise DisagreementError(
            "TABLE_BEHIND_INTENT",
            f"a publish of batches {intent.app_version_before + 1} to {intent.app_version} was begun, but the "
            f"table's log ends at batch {current}: the table was deleted or restored from an older copy",
            where=str(table_path),
            next_run="stops in the same way; nothing was moved",
            fix=f"tidegate repair {intent.pipeline} --dry-run",
        )
    return _result(intent, find_commit(table_path, intent.app_id, intent.app_version), already=True)


def _result(intent: PublishIntent, version: int | None, *, already: bool) -> CommitResult:
    return CommitResult(
        version=version,
        files_added=len(intent.files_to_add),
        rows_added=sum(file.rows for file in intent.files_to_add),
        files_removed=len(intent.files_to_remove),
        rows_removed=0,
        already=already,
    )


def _commit_metadata(intent: PublishIntent) -> dict[str, str]:
    return {
        **intent.custom_metadata,
        "tidegate.pipeline": intent.pipeline,
        "tidegate.run_id": intent.run_id,
        "tidegate.app_version_before": str(intent.app_version_before),
    }


def _check_files(paths: PipelinePaths, intent: PublishIntent, table_path: Path) -> list[DataFile]:
    """The files as the commit names them, each checked against its footer, before the first of them is moved."""
    data_files = []
    for file in intent.files_to_add:
        path = paths.state / file.source
        try:
            footer = read_footer(path)
        except FileNotFoundError:
            path = table_path / file.path
            footer = read_footer(path)
        if (footer.rows, footer.size_bytes) != (file.rows, file.size_bytes):
            raise DefectError(
                "STAGED_FILE_CHANGED",
                f"a staged file has {footer.rows} rows in {footer.size_bytes} bytes; its manifest says "
                f"{file.rows} rows in {file.size_bytes} bytes",
                where=str(path),
                next_run="stops in the same way",
                fix="find out who writes to the state folder; tidegate alone may",
            )
        data_files.append(
            DataFile(
                path=file.path,
                rows=file.rows,
                size_bytes=file.size_bytes,
                partition={name: value or None for name, value in file.partition.items()},
                modified_at_ms=path.stat().st_mtime_ns // 1_000_000,
                stats=footer.stats,
            )
        )
    return data_files


def _move_files(
    paths: PipelinePaths,
    intent: PublishIntent,
    table_path: Path,
    is_current: Callable[[], bool],
) -> None:
    targets = [table_path / file.path for file in intent.files_to_add]
    _check_lease(is_current, intent)
    for folder in {target.parent for target in targets}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in (28, 122):
                raise storage.disk_full(folder) from error
            raise
    for file, target in zip(intent.files_to_add, targets, strict=True):
        _check_lease(is_current, intent)
        place_file(paths.state / file.source, target)
    for target in targets:
        remove_copies(target)
    folders = {parent for target in targets for parent in target.parents if parent.is_relative_to(table_path)}
    for folder in sorted(folders | ({table_path.parent} if targets else set()), reverse=True):
        storage.fsync_dir(folder)


def _drop_replaced(table_path: Path, intent: PublishIntent, done: CommitResult) -> None:
    if done.overtaken:
        return
    for name in intent.files_to_remove:
        storage.remove(table_path / name)


def _refuse_unknown_files(table_path: Path, intent: PublishIntent, state: TableState | None) -> None:
    """A folder with parquet files that no log names is a table whose log was lost: a new log would disown them."""
    if state is not None or not table_path.is_dir():
        return
    own = {file.path for file in intent.files_to_add}
    unknown = [str(path.relative_to(table_path)) for path in table_path.rglob("*.parquet")]
    unknown = sorted(name for name in unknown if name not in own)
    if unknown:
        raise DisagreementError(
            "TABLE_LOG_MISSING",
            f"the table folder holds {len(unknown)} parquet files but no log, for example {unknown[0]}",
            where=str(table_path),
            next_run="stops in the same way; nothing was moved",
            fix="restore the folder _delta_log, or move the files away",
        )


def _check_lease(is_current: Callable[[], bool], intent: PublishIntent) -> None:
    if not is_current():
        raise TryAgainError(
            "LEASE_LOST",
            f"run {intent.run_id} of {intent.pipeline} lost its lease while it published: another run has taken over",
            next_run="the run that holds the lease finishes this publish",
            fix=f"tidegate status {intent.pipeline}",
        )


def _files_lost(error: Exception, intent: PublishIntent) -> DefectError:
    return DefectError(
        "STAGED_FILES_LOST",
        f"a file of the increment is neither staged nor in the table, and the table's log does not have batch "
        f"{intent.app_version}: {error}",
        where=f"intent {intent.intent_id}",
        next_run="stops in the same way",
        fix=f"tidegate repair {intent.pipeline} --dry-run",
    )


def _intent_path(paths: PipelinePaths, intent: PublishIntent) -> Path:
    return paths.intents / f"{intent.intent_id}.json"


def _intent_from(value: dict[str, Any]) -> PublishIntent:
    return PublishIntent(
        **{
            **value,
            "files_to_add": [FileToAdd(**file) for file in value["files_to_add"]],
        }
    )
