"""Checks before a publish moves its first file: the rows fit the table, and the files are as they were staged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.state.files import damaged, describe_damage
from tidegate.table import errors
from tidegate.table.footer import read_footer
from tidegate.table.log.commit import set_aside_mark
from tidegate.table.log.features import Unsupported, append_only, name_in_sql, unsupported
from tidegate.table.log.state import DataFile, TableState, digest_files, list_data_files, read_table_state
from tidegate.table.publish.intent import FileToAdd, PublishIntent, intent_path, pending_intents, staged_at
from tidegate.table.schema import check_partition_columns, extend_schema, fields_of, normalise_schema
from tidegate.table.upsert.folded import is_copy

_MUCH_BYTES = 64 << 20
"""From this size of all files on, they are checked in parallel: most of the work is their digests."""
_AT_ONCE = 2


def check_fit(paths: PipelinePaths, intent: PublishIntent, table_path: Path, state: TableState | None) -> None:
    """Raise UsageError when the rows do not fit the table.

    If no file was moved yet, the intent is removed first, so that a corrected spec is not blocked by an old plan.
    """
    try:
        check_rows_fit(intent.schema_json, intent.partition_by, state, intent.pipeline, intent.replaces_schema)
    except UsageError:
        if not any(storage.exists(table_path / file.path) for file in intent.files_to_add):
            storage.remove(intent_path(paths, intent))
        raise


def check_rows_fit(
    schema_json: str, partition_by: Sequence[str], state: TableState | None, name: str, replaces_schema: bool = False
) -> None:
    """Raise UsageError SCHEMA_CHANGE or PARTITION_BY when rows of this schema cannot be added to the table of a
    pipeline, or with ``replaces_schema`` cannot replace all of its rows."""
    schema = normalise_schema(schema_json)
    check_partition_columns(list(partition_by), schema, None if state is None else state.partition_columns)
    if state is not None and not replaces_schema:
        extend_schema(state.schema_json, schema, name)


def check_features(intent: PublishIntent, table_path: Path, state: TableState | None) -> None:
    """Raise DisagreementError TABLE_FEATURE when another program changed the table so that this
    publish cannot be committed: before a file moves, so that all readers see the same rows."""
    if state is None:
        return
    if state.unsupported:
        raise unsupported(table_path, state.unsupported)
    if state.is_append_only and intent.files_to_remove and not intent.rearranges:
        raise append_only(table_path)


def check_nulls(table_path: Path, state: TableState | None, files: Sequence[DataFile]) -> None:
    """Raise DisagreementError TABLE_FEATURE when another program made a column NOT NULL and these files have nulls in
    it, since readers rely on the constraint. Nested columns are not checked."""
    if state is None:
        return
    never = [field["name"] for field in fields_of(state.schema_json) if not field["nullable"]]
    found = [name for name in never if any(_has_null(file, name) for file in files)]
    if found:
        sql = name_in_sql(table_path)
        broken = [
            Unsupported(
                f"NOT NULL of column {name}, and rows without it",
                f"ALTER TABLE {sql} ALTER COLUMN {name} DROP NOT NULL",
            )
            for name in found
        ]
        raise unsupported(table_path, broken)


def _has_null(file: DataFile, column: str) -> bool:
    if column in file.partition:
        return file.partition[column] is None
    counts = file.stats.get("nullCount")
    return isinstance(counts, dict) and bool(counts.get(column))


def is_outdated(paths: PipelinePaths, intent: PublishIntent, table_path: Path) -> bool:
    """True if the plan no longer fits: the table has other files than it was made for, so that rows to replace may be
    in other files; or its copies are damaged, or were cleaned up before a suspended process wrote it down.

    A plan with a completed step must be finished as it is. Its first steps are those of its companion.
    """
    if intent.table_files is None:
        return False
    staged = all(_is_ready(staged_at(paths, file.source), file) for file in intent.files_to_add)
    if staged and digest_files(list_data_files(table_path)) == intent.table_files:
        return False
    if not staged and _is_twin(paths, intent, table_path):
        return True
    first = intent.companion
    if first is not None and _is_begun(first, first.table_path(paths)):
        return False
    return not _is_begun(intent, table_path)


def _is_twin(paths: PipelinePaths, intent: PublishIntent, table_path: Path) -> bool:
    """Return whether another plan of the same increment was begun, and this one cannot be finished: a process that was
    suspended wrote it down after its copies were cleaned up."""
    if all(file.intent_id != intent.intent_id or file.nonce == intent.nonce for file in pending_intents(paths)):
        return False
    places = ((staged_at(paths, file.source), table_path / file.path) for file in intent.files_to_add)
    return not all(any(map(storage.exists, both)) for both in places)


def _is_begun(intent: PublishIntent, table_path: Path) -> bool:
    """True if a step of it was done: a file has its hidden name in the log, a new file is in place, or all is done."""
    mark = set_aside_mark(intent.app_id)
    state = read_table_state(table_path, (mark, intent.app_id))
    txns = {} if state is None else state.txns
    if txns.get(mark) == intent.app_version or txns.get(intent.app_id, -1) >= intent.app_version:
        return True
    return any(storage.exists(table_path / file.path) for file in intent.files_to_add)


def _is_ready(path: Path, file: FileToAdd) -> bool:
    if not is_copy(file.source):
        return storage.exists(path)
    try:
        return describe_damage(path, file.size_bytes, file.sha256) is None
    except FileNotFoundError:
        return False


def check_files(paths: PipelinePaths, intent: PublishIntent, table_path: Path) -> list[DataFile]:
    """The files for the commit, each checked against what was written, before the first of them is moved.

    Raises DisagreementError STAGED_FILE_DAMAGED; FileNotFoundError for a file that is neither staged nor moved.
    """

    def examine(file: FileToAdd) -> DataFile:
        try:
            return _examine(staged_at(paths, file.source), file, intent.pipeline)
        except FileNotFoundError:
            return _examine(table_path / file.path, file, intent.pipeline)

    if sum(file.size_bytes for file in intent.files_to_add) < _MUCH_BYTES:
        return [examine(file) for file in intent.files_to_add]
    from concurrent.futures import ThreadPoolExecutor  # it imports logging, which most commands do not need

    with ThreadPoolExecutor(_AT_ONCE, "tidegate-check") as pool:
        return list(pool.map(examine, intent.files_to_add))


def _examine(path: Path, file: FileToAdd, pipeline: str) -> DataFile:
    damage = describe_damage(path, file.size_bytes, file.sha256)
    if damage is not None:
        raise damaged(path, damage, pipeline)
    footer = read_footer(path)
    if footer is None or footer.rows != file.rows:
        found = "no footer" if footer is None else f"{footer.rows:,} rows"
        raise damaged(path, f"it has {found}, {file.rows:,} rows were written", pipeline)
    return DataFile(
        path=file.path,
        rows=file.rows,
        size_bytes=file.size_bytes,
        partition={name: value or None for name, value in file.partition.items()},
        modified_at_ms=storage.stat(path).modified_ns // 1_000_000,
        stats=footer.stats,
        sha256=file.sha256,
    )


def refuse_unknown_files(table_path: Path, intent: PublishIntent, state: TableState | None) -> None:
    """Raise DisagreementError TABLE_LOG_MISSING for a folder with parquet files but no log: the log was lost, and a new
    one would exclude these files."""
    if state is not None:
        return
    own = {file.path for file in intent.files_to_add}
    unknown = [str(path.relative_to(table_path)) for path in storage.list_tree(table_path, "*.parquet")]
    unknown = sorted(name for name in unknown if name not in own)
    if unknown:
        raise errors.TABLE_LOG_MISSING(where=str(table_path), number=len(unknown), example=unknown[0])
