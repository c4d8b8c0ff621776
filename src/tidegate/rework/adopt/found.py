"""The table that an adoption finds: with a Delta log that can be continued, or a folder of parquet files.

Files that do not count are found too: files that the log has removed, and those that Spark's file sink has not listed
in ``_spark_metadata``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.core.hive_names import unescape_name
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.adopt.columns import (
    compare_with_rows,
    join_columns,
    read_folders,
    read_footers,
    renamed,
    schema_of,
)
from tidegate.runs.preflight.table_log import SINK_LOG, list_removed
from tidegate.spec.models import PipelineSpec
from tidegate.spec.source_checks import find_row_types, list_columns
from tidegate.state.spark_logs import newest_batch, read_log_entries
from tidegate.table.log.features import find_unsupported, is_append_only, name_in_sql
from tidegate.table.log.files import LOG_FOLDER, checkpoints_of, is_inside, list_names, list_versions
from tidegate.table.log.snapshot import Snapshot, read_snapshot
from tidegate.table.log.state import DataFile
from tidegate.table.schema import check_partition_columns, fields_of, normalise_schema

ADOPTED_SINK_LOG = "._spark_metadata.adopted"
"""Its name after the adoption: Spark then lists the table's folder, like every other reader."""
_NAMED_AT_MOST = 20
_OF_LOGS = (LOG_FOLDER, SINK_LOG, ADOPTED_SINK_LOG)
_LAST_CHECKPOINT = "_last_checkpoint"


@dataclass(frozen=True)
class SinkLog:
    """``files`` are the committed ones, relative to the table and with unescaped folder names, so that they are found
    after a rename; ``last_batch`` is the newest batch in the table."""

    folder: Path
    files: frozenset[str]
    last_batch: int


def read_sink_log(table_path: Path) -> SinkLog | None:
    """Read the log of a table, also from where an interrupted adoption has moved it; None when there is none. Raises
    DisagreementError ADOPT_SINK_LOG."""
    folder = table_path / SINK_LOG
    if newest_batch(folder) < 0:
        folder = table_path / ADOPTED_SINK_LOG
        if newest_batch(folder) < 0:
            return None
    roots = [f"{root.rstrip('/')}/" for root in (os.path.abspath(table_path), storage.real_path(table_path))]
    files: set[str] = set()
    try:
        for entry in read_log_entries(folder, folder.name, newest_batch(folder)):
            inside = next((entry.path.removeprefix(root) for root in roots if entry.path.startswith(root)), None)
            if inside is None:
                raise ValueError(f"it names {entry.path}, which is not in this folder: the table was moved or copied")
            if entry.is_delete:
                files.discard(unescape_name(inside))
            else:
                files.add(unescape_name(inside))
    except ValueError as error:
        raise errors.ADOPT_SINK_LOG(where=str(folder), why=error, folder=folder.name) from error
    return SinkLog(folder, frozenset(files), newest_batch(folder))


def hide_sink_log(table_path: Path) -> None:
    """Move the log to its hidden name, unless that was done before."""
    if storage.exists(table_path / SINK_LOG):
        storage.move(table_path / SINK_LOG, table_path / ADOPTED_SINK_LOG)


@dataclass(frozen=True)
class FoundTable:
    """An existing table. Paths are relative to its folder; those of ``files`` are the paths after ``renames``."""

    kind: Literal["parquet", "delta"]
    schema_json: str
    partition_by: list[str]
    files: list[DataFile]
    hide: list[str] = field(default_factory=list)
    """Files that plain readers see although they do not count."""
    renames: list[tuple[str, str]] = field(default_factory=list)
    """Folders, deepest first, with their new names."""
    sink_log: SinkLog | None = None
    hide_in_log: list[str] = field(default_factory=list)
    """Files that plain readers would take for rows, and that the Delta log does not need."""
    txns: Mapping[str, int] = field(default_factory=dict)
    """The last version of each application in the Delta log."""
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Listing:
    """The files below a table's folder. ``seen``: parquet files that some plain readers see; ``plain``: those of them
    that all plain readers see; ``foreign``: other files that plain Spark would read."""

    seen: list[str]
    plain: list[str]
    foreign: list[str]


def list_table(table_path: Path) -> Listing:
    """List the folder of a table without logs. Raises UsageError ADOPT_NOT_A_TABLE when there is no such folder."""
    try:
        is_there = bool(storage.list_names(table_path))
    except NotADirectoryError:
        is_there = False
    if not is_there:
        why = "there is no such folder, or nothing in it"
        raise errors.ADOPT_NOT_A_TABLE(where=str(table_path), table=table_path, why=why)
    prefix = len(str(table_path)) + 1
    names = (str(path)[prefix:] for path in storage.list_tree(table_path))
    inside = [name for name in names if not name.startswith(tuple(f"{log}/" for log in _OF_LOGS))]
    seen = [name for name in inside if name.endswith(".parquet")]
    shown = [name for name in inside if not any(part[0] in "_." for part in name.split("/"))]
    plain = [name for name in shown if name.endswith(".parquet")]
    return Listing(seen, plain, [name for name in shown if not name.endswith(".parquet")])


def refuse_foreign(table_path: Path, listing: Listing) -> None:
    """Raise DisagreementError for files that plain Spark would try to read as rows."""
    if listing.foreign:
        faults = [
            f"{name}: it is not a .parquet file, and readers of the folder take it for one" for name in listing.foreign
        ]
        raise do_not_fit(table_path, faults)


def do_not_fit(table_path: Path, faults: Sequence[str]) -> DisagreementError:
    """The error for files that cannot be one table; each fault is one sentence."""
    shown = list_first(faults, _NAMED_AT_MOST, "; ")
    return errors.ADOPT_FILES_DO_NOT_FIT(where=str(table_path), faults=shown)


def look_at_parquet(table_path: Path, spec: PipelineSpec) -> FoundTable:
    """Examine the table. With ``_spark_metadata`` the files that it lists count, else those that plain readers see.

    Raises DisagreementError ADOPT_FILES_DO_NOT_FIT with every difference by file and column, ADOPT_SINK_LOG; UsageError
    ADOPT_NOT_A_TABLE.
    """
    listing = list_table(table_path)
    sink_log = read_sink_log(table_path)
    counted, lost = listing.plain, list[str]()
    if sink_log is not None:
        there = {unescape_name(name): name for name in listing.plain}
        lost = sorted(name for name in sink_log.files if name not in there)
        counted = sorted(there[name] for name in sink_log.files if name in there)
    if lost:
        faults = [f"{name}: _spark_metadata lists it, and it is not there" for name in lost]
        raise do_not_fit(table_path, faults)
    if not counted:
        raise errors.ADOPT_NOT_A_TABLE(
            where=str(table_path), table=table_path, why="it has no parquet file that counts"
        )
    refuse_foreign(table_path, listing)
    partition_by = list(spec.table.partition_by)
    footers = read_footers(table_path, counted)
    columns, faults, notes = join_columns(footers, partition_by)
    folders = read_folders(
        {name.rpartition("/")[0] for name in counted}, partition_by, declared_types(spec), may_rename=True
    )
    faults += folders.faults
    given = find_row_types(spec)
    if given is not None:
        faults += compare_with_rows([*columns, *folders.columns], given)
    if faults:
        raise do_not_fit(table_path, faults)
    schema_json = schema_of([*columns, *folders.columns])
    try:
        check_partition_columns(partition_by, schema_json, None)
    except UsageError as error:
        raise do_not_fit(table_path, [error.message]) from error
    files = [
        DataFile(
            path=renamed(footer.path, folders.renames),
            rows=footer.rows,
            size_bytes=footer.size_bytes,
            partition=folders.values[footer.path.rpartition("/")[0]],
            modified_at_ms=footer.modified_ns // 1_000_000,
            stats={"nullCount": dict(footer.nulls)},
        )
        for footer in footers
    ]
    hide = sorted(set(listing.seen) - set(counted))
    notes += folders.notes
    if with_int96 := sum(footer.has_int96 for footer in footers):
        which = f"{count_of(with_int96, 'file')} {'has' if with_int96 == 1 else 'have'} time stamps as INT96"
        notes.append(
            f"{which}, which DuckDB shows in UTC without a zone; Spark and Delta readers have the same moments"
        )
    return FoundTable("parquet", schema_json, partition_by, files, hide, folders.renames, sink_log, notes=notes)


def declared_types(spec: PipelineSpec) -> dict[str, str]:
    """{lower-case name: type} of the columns that the sources declare; columns with different declarations are
    excluded."""
    found: dict[str, set[str]] = {}
    for source in spec.sources.values():
        for column in list_columns(source) or ():
            found.setdefault(column.name.lower(), set()).add(column.type)
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}


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
    given = find_row_types(spec)
    if given is not None:
        faults += compare_with_rows(fields_of(snapshot.schema_json), given)
    if is_append_only(snapshot) and spec.output_mode != "append":
        faults.append(f"the table only takes further rows (delta.appendOnly), and the spec has {spec.output_mode}")
    if faults:
        raise do_not_fit(table_path, faults)
    folders = read_folders(
        {file.path.rpartition("/")[0] for file in files},
        snapshot.partition_columns,
        declared_types(spec),
        may_rename=False,
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
        if not is_inside(file.path):
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
