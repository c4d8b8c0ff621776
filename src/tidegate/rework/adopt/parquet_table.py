"""Examine a folder of parquet files without a Delta log: which files count, and their content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.core.errors import UsageError
from tidegate.core.hive_names import unescape_name
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.adopt.columns import compare_with_rows, join_columns, schema_of
from tidegate.rework.adopt.folders import read_folders, renamed
from tidegate.rework.adopt.footers import read_footers
from tidegate.rework.adopt.found import FoundTable, do_not_fit, folders_of, list_table, own_names, refuse_foreign
from tidegate.rework.adopt.sink_log import SinkLog, read_sink_log
from tidegate.spec.models import PipelineSpec
from tidegate.spec.source_checks import list_columns
from tidegate.table.log.state import DataFile
from tidegate.table.schema import check_partition_columns


def look_at_parquet(table_path: Path, spec: PipelineSpec) -> FoundTable:
    """Examine the table. With ``_spark_metadata`` the files that it lists count, else those that plain readers see.

    Raises DisagreementError ADOPT_FILES_DO_NOT_FIT with every difference by file and column, ADOPT_SINK_LOG; UsageError
    ADOPT_NOT_A_TABLE.
    """
    listing = list_table(table_path)
    sink_log = read_sink_log(table_path, own_names(table_path))
    counted, lost = _count(listing.plain, sink_log)
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
    folders = read_folders(folders_of(counted), partition_by, declared_types(spec), may_rename=True)
    faults += folders.faults
    given = rows_of(spec)
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
    notes += folders.notes + _notes(sum(footer.has_int96 for footer in footers))
    return FoundTable("parquet", schema_json, partition_by, files, hide, folders.renames, sink_log, notes=notes)


def declared_types(spec: PipelineSpec) -> dict[str, str]:
    """{lower-case name: type} of the columns that the sources declare; columns with different declarations are
    excluded."""
    found: dict[str, set[str]] = {}
    for source in spec.sources.values():
        for column in list_columns(source) or ():
            found.setdefault(column.name.lower(), set()).add(column.type)
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}


def rows_of(spec: PipelineSpec) -> Mapping[str, str] | None:
    """{name: type} of the rows that reach the table; None where only Spark knows: there is a transform, or columns are
    inferred."""
    if spec.transform is not None or len(spec.sources) != 1:
        return None
    columns = list_columns(next(iter(spec.sources.values())))
    return None if columns is None else {column.name: column.type for column in columns}


def _count(plain: list[str], sink_log: SinkLog | None) -> tuple[list[str], list[str]]:
    """Return the files that count, and the missing ones."""
    if sink_log is None:
        return plain, []
    there = {unescape_name(name): name for name in plain}
    lost = sorted(name for name in sink_log.files if name not in there)
    return sorted(there[name] for name in sink_log.files if name in there), lost


def _notes(with_int96: int) -> list[str]:
    if not with_int96:
        return []
    which = f"{count_of(with_int96, 'file')} {'has' if with_int96 == 1 else 'have'} time stamps as INT96"
    return [f"{which}, which DuckDB shows in UTC without a zone; Spark and Delta readers have the same moments"]
