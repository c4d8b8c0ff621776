"""Examine a table with a Delta log: whether the log can be continued, and which removed files plain readers still
see.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.core.hive_names import unescape_name
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.adopt.columns import compare_with_rows
from tidegate.rework.adopt.folders import read_folders
from tidegate.rework.adopt.found import FoundTable, do_not_fit, folders_of, list_table, refuse_foreign
from tidegate.rework.adopt.parquet_table import declared_types, rows_of
from tidegate.runs.preflight.old_job import list_removed
from tidegate.spec.models import PipelineSpec
from tidegate.table.log.features import find_unsupported, is_append_only, name_in_sql
from tidegate.table.log.files import checkpoints_of, list_names, list_versions
from tidegate.table.log.snapshot import Snapshot, read_snapshot
from tidegate.table.schema import check_partition_columns, fields_of, normalise_schema

_LAST_CHECKPOINT = "_last_checkpoint"


def look_at_delta(table_path: Path, spec: PipelineSpec) -> FoundTable:
    """Examine the table at the newest version of its log.

    Raises DisagreementError ADOPT_LOG_NOT_TAKEN_OVER, which names the unsupported features of the log, and
    ADOPT_FILES_DO_NOT_FIT where spec and table differ or files are gone.
    """
    snapshot = read_known(table_path)
    hide_in_log = _needless_checkpoints(table_path)
    listing = list_table(table_path)
    refuse_foreign(table_path, listing)
    files = snapshot.files()
    faults = _missing(table_path, snapshot, set(listing.plain))
    if [one.lower() for one in snapshot.partition_columns] != [one.lower() for one in spec.table.partition_by]:
        has, wanted = snapshot.partition_columns, list(spec.table.partition_by)
        faults.append(f"the table is partitioned by {has}, the spec says {wanted}")
    else:
        faults += _check_folders(snapshot)
    given = rows_of(spec)
    if given is not None:
        faults += compare_with_rows(fields_of(snapshot.schema_json), given)
    if is_append_only(snapshot) and spec.output_mode != "append":
        faults.append(f"the table only takes further rows (delta.appendOnly), and the spec has {spec.output_mode}")
    if faults:
        raise do_not_fit(table_path, faults)
    folders = read_folders(
        folders_of([file.path for file in files]), snapshot.partition_columns, declared_types(spec), may_rename=False
    )
    notes = [note for note in folders.notes if "plain readers" in note]
    hide = sorted(set(listing.seen) - {file.path for file in files})
    if spec.table.readers == "delta":  # readers of older versions need the files that the log has named
        hide = sorted(set(hide) - list_removed(table_path))
    if hide:
        which = f"{count_of(len(hide), 'file')} that the log no longer counts {'is' if len(hide) == 1 else 'are'}"
        notes.append(f"{which} hidden from plain readers: versions before this one cannot be read any more")
    txns = {app_id: int(txn["version"]) for app_id, txn in snapshot.txns.items()}
    return FoundTable(
        "delta",
        snapshot.schema_json,
        snapshot.partition_columns,
        files,
        hide,
        hide_in_log=hide_in_log,
        txns=txns,
        notes=notes,
    )


def read_known(table_path: Path) -> Snapshot:
    """Read the log. Raises ADOPT_LOG_NOT_TAKEN_OVER where it has features that are not supported."""
    try:
        snapshot = read_snapshot(table_path)
    except (OSError, ValueError) as error:
        raise _not_taken_over(table_path, str(error)) from error
    found = find_unsupported(snapshot, name_in_sql(table_path))
    if found:
        why = "; ".join(f"{one.what} (in Spark: {one.undo})" for one in found)
        raise _not_taken_over(table_path, f"it asks writers for what tidegate cannot keep: {why}")
    try:
        normalise_schema(snapshot.schema_json, of_table=True)
        check_partition_columns(snapshot.partition_columns, snapshot.schema_json, None)
    except UsageError as error:
        raise _not_taken_over(table_path, error.message) from error
    return snapshot


def _needless_checkpoints(table_path: Path) -> list[str]:
    """List the parquet checkpoints of a log that can be read without them, after ``_last_checkpoint``.

    Raises ADOPT_LOG_NOT_TAKEN_OVER for a log whose first commits were cleaned up: it needs its checkpoints, and a
    reader of all parquet files below the folder would take them for rows."""
    names = list_names(table_path)
    found = [name for name in checkpoints_of(names) if name.endswith(".parquet")]
    if not found:
        return []
    versions = list_versions(table_path)
    if not versions or versions != list(range(versions[-1] + 1)):
        first = versions[0] if versions else "none"
        raise _not_taken_over(
            table_path,
            f"it begins with a checkpoint in parquet ({found[-1]}; the first commit that is there is {first}), which "
            "readers of `**/*.parquet` take for rows, and without which it cannot be read",
        )
    return [*([_LAST_CHECKPOINT] if _LAST_CHECKPOINT in names else []), *found]


def _missing(table_path: Path, snapshot: Snapshot, there: set[str]) -> list[str]:
    """List files of the log that are missing in the folder, incomplete, or skipped by plain readers."""
    faults = []
    for file in snapshot.files():
        if "://" in file.path or file.path.startswith("/") or ".." in file.path.split("/"):
            faults.append(f"{file.path}: the log names it, and it is not in this folder")
        elif not storage.exists(table_path / file.path):
            faults.append(f"{file.path}: the log names it, and it is not there")
        elif storage.stat(table_path / file.path).size_bytes != file.size_bytes:
            size = storage.stat(table_path / file.path).size_bytes
            faults.append(f"{file.path}: it has {size:,} bytes, and {file.size_bytes:,} by the log")
        elif file.path not in there:
            faults.append(f"{file.path}: plain readers pass over a name like this")
    return faults


def _check_folders(snapshot: Snapshot) -> list[str]:
    """List files whose folders differ from the log: plain readers take partition columns from folder names only."""
    faults = []
    for file in snapshot.files():
        wanted = [f"{name}={file.partition.get(name) or ''}" for name in snapshot.partition_columns]
        parts = [unescape_name(part).replace("__HIVE_DEFAULT_PARTITION__", "") for part in file.path.split("/")[:-1]]
        if parts != wanted:
            faults.append(f"{file.path}: its folders do not say {'/'.join(wanted) or 'nothing'}, as the log does")
    return faults


def _not_taken_over(table_path: Path, why: str) -> DisagreementError:
    return errors.ADOPT_LOG_NOT_TAKEN_OVER(where=str(table_path / "_delta_log"), why=why, table=table_path)
