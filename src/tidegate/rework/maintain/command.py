"""``tidegate maintain``: clean up a pipeline's table, state and sources, under its lease; or count what it would do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Maintenance, MaintenanceItem, MaintenanceWork, TableFigures
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.held import find_held_partitions
from tidegate.rework.maintain.compact import (
    KIND,
    Work,
    compact_table,
    count_done,
    expire_partitions,
    find_date_column,
    find_expired,
    find_small,
    without_partitions,
)
from tidegate.rework.maintain.litter import Litter, find_litter, remove_litter
from tidegate.rework.maintain.rewrite import find_alike
from tidegate.rework.maintain.sources import SourceChores, clear_sources, find_chores
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.upkeep import (
    Replaced,
    find_clock_fault,
    find_left,
    find_replaced_files,
    remove_files,
    tables_of,
)
from tidegate.runs.reports.report import new_run_id
from tidegate.runs.rework import end_with_nothing, is_over, open_rework
from tidegate.sources.files.consumed import finish_clearing
from tidegate.sources.files.ledger import open_ledger
from tidegate.spec.models import MaintenanceSpec, PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import read_lease
from tidegate.table.log.compaction import compact_log, versions_since_compaction
from tidegate.table.log.snapshot import partition_of, remember_snapshots
from tidegate.table.log.state import DataFile, TableState, list_data_files, read_table_state
from tidegate.table.publish.intent import Target, pending_intents

LOG_VERSIONS_AT_LEAST = 10
"""The number of new versions after which the log is compacted; a publish waits for more."""


def maintain_pipeline(project: Project, name: str, run_id: str | None = None) -> outputs.RunReport:
    """Do all the work in ``maintenance:``, and return the run report.

    Killed anywhere, the next run of the pipeline finishes a version that was begun, and the next maintenance does the
    rest. Raises UsageError NO_DATE_PARTITION, DisagreementError when the table is not the one of the last publish,
    TryAgainError LEASE_HELD, and what a publish raises.
    """
    with remember_snapshots(), open_rework(project, name, run_id or new_run_id(KIND), KIND) as context:
        if not is_over(context):
            began = time.monotonic()
            assert context.facts is not None
            check_table(context.facts, name)
            clock = find_clock_fault(context.paths, time.time())
            if clock is not None:
                context.report.add_note(clock)
            lines = _maintain_table(context, is_sure=clock is None)
            lines += _free_space(context, is_sure=clock is None)
            context.note_step(KIND, began)
            _end(context, lines)
        return context.report.to_json()


def _maintain_table(context: RunContext, *, is_sure: bool) -> list[str]:
    """Apply retention, if the clock is reliable, and compaction; return a line on each."""
    paths, settings = context.paths, context.spec.maintenance
    table = read_table_state(paths.table)
    if table is None:
        return []
    if is_sure:
        expire_partitions(context, table, datetime.now(UTC))
    left = compact_table(context) if settings.compact_below else []
    if left:
        context.report.add_note(
            f"left as they are: {count_of(len(left), 'small file')} whose columns, or their types, no other one of its "
            f"partition has, or with other rows than the log says; the first is {left[0].path}"
        )
    done = count_done(paths.table, context.name, context.report.run_id)
    context.report.table = _figures(context, done)
    lines = []
    if expired := done.get("expire"):
        lines.append(
            f"expired: {count_of(expired['files_removed'], 'file')} with {count_of(expired['rows_removed'], 'row')}, "
            f"of partitions older than {(settings.expire.partitions or 0) / 86_400:,.4g} days, left the table"
        )
    if compacted := done.get("compact"):
        lines.append(
            f"compacted: {count_of(compacted['files_removed'], 'small file')} became "
            f"{count_of(compacted['files_added'], 'file')}, in {count_of(compacted['commits'], 'version')}"
        )
    return lines


def _figures(context: RunContext, done: dict[Work, Counter[str]]) -> TableFigures:
    if not done:
        return TableFigures()
    return {
        "path": str(context.paths.table),
        "version": max(counts["version"] for counts in done.values()),
        "files_added": sum(counts["files_added"] for counts in done.values()),
        "files_removed": sum(counts["files_removed"] for counts in done.values()),
        "rows_added": 0,
        "rows_removed": sum(counts["rows_removed"] for counts in done.values()),
    }


def _free_space(context: RunContext, *, is_sure: bool) -> list[str]:
    """Remove what is no longer needed, and return a line on each; by age only if the clock is reliable."""
    paths, settings, lease = context.paths, context.spec.maintenance, context.lease
    by_age = is_sure or not settings.keep_versions
    lines = []
    for target, path in tables_of(paths):
        if versions_since_compaction(path) >= LOG_VERSIONS_AT_LEAST:
            compact_log(path, lease.check)
            lines.append(f"the log of the {target}: compacted")
        files = size = 0
        for found in _walk_replaced(paths, context.spec, target, path) if by_age else ():
            size += sum(storage.stat(one).size_bytes for one in found.files)
            files += len(found.files)
            remove_files(paths, found, lease)
        if files:
            lines.append(f"vacuumed: {count_of(files, 'replaced file')} of the {target} ({count_of(size, 'byte')})")
    facts = gather_facts(paths, context.spec)
    before = find_limit(settings, is_sure=is_sure)
    for litter in find_litter(paths, facts, before=before, run_id=context.report.run_id):
        remove_litter(litter, lease.check)
        lines.append(f"removed: {_describe(litter)}")
    if context.spec.file_streams:
        with open_ledger(paths, lease=lease) as ledger:
            for note in finish_clearing(context.project, ledger, context.spec, lease.check):
                context.report.add_note(note)
    chores = find_chores(context.project, paths, context.spec, time.time()) if by_age else SourceChores()
    lines += clear_sources(paths, context.spec, lease, chores)
    for note in chores.notes:
        context.report.add_note(note)
    return lines


def find_limit(settings: MaintenanceSpec, *, is_sure: bool) -> datetime:
    """The time before which files in the state folder are removed; by age only if the clock is reliable."""
    kept = settings.expire.reports
    return datetime.now(UTC) - timedelta(seconds=kept) if is_sure or not kept else datetime.fromtimestamp(0, UTC)


def _walk_replaced(paths: PipelinePaths, spec: PipelineSpec, target: Target, path: Path) -> Iterator[Replaced]:
    """Find the files that newer versions of a table replaced, piece by piece."""
    state = read_table_state(path)
    after: int | None = None
    while state is not None:
        found = find_replaced_files(paths, spec, target, state, after=after)
        yield found
        if found.done == found.before:
            return
        after = found.done


def _describe(litter: Litter) -> str:
    words = {
        "staging": "dead staging",
        "reports": "old reports, progress and driver logs",
        "backups": "old backups of repairs",
        "checkpoints": "checkpoints of queries that are over",
    }
    return f"{words[litter.work]}, {count_of(litter.files, 'file')} ({count_of(litter.bytes, 'byte')})"


def _end(context: RunContext, lines: list[str]) -> None:
    if not lines:
        end_with_nothing(context, "nothing to do")
        return
    for line in lines:
        context.report.add_note(line)
    context.report.outcome, context.report.ended_at = "published", now_text()
    context.save()


def preview_maintenance(project: Project, name: str) -> Maintenance:
    """Count what :func:`tidegate.rework.maintain.command.maintain_pipeline` would do now.

    Files that it replaces itself are not counted: they are removed after ``keep_versions``. Raises UsageError for a bad
    spec or NO_DATE_PARTITION, DisagreementError for a torn log."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec)
    hindrance: TidegateError | None = None
    try:
        check_table(facts, name)
    except TidegateError as error:
        hindrance = error
    items: list[MaintenanceItem] = []
    clock = find_clock_fault(paths, time.time())
    by_age = clock is None or not spec.maintenance.keep_versions
    table = read_table_state(paths.table)
    if table is not None:
        items += [one for one in _preview_table(paths, spec, table) if clock is None or one["work"] != "expire"]
    items += [one for one in _preview_space(paths, spec) if by_age or one["work"] != "replaced"]
    before = find_limit(spec.maintenance, is_sure=clock is None)
    items += [
        _item(litter.work, "state", litter.files, litter.bytes) for litter in find_litter(paths, facts, before=before)
    ]
    chores = find_chores(project, paths, spec, time.time()) if by_age else SourceChores()
    items += [_item("source", source, len(one.files), one.bytes) for source, one in chores.consumed.items()]
    notes = [*([] if clock is None else [clock]), *chores.notes]
    for source, one in chores.consumed.items():
        if one.files:
            which = list_first([file.path for file in one.files])
            notes.append(
                f"source {source}: {'archived' if spec.maintenance.source == 'archive' else 'deleted'}: {which}"
            )
    for target, _, left in find_left(paths, spec, facts):
        notes += [f"the {target}: {line}" for line in left.describe()]
    lease = read_lease(paths)
    if lease is not None and lease.state in ("held", "parked"):
        notes.append(f"run {lease.holder.run_id} is at work: what it stages and publishes changes these figures")
    if pending_intents(paths):
        notes.append("a publish was begun and not finished: it is finished first, and changes these figures")
    found = [item for item in items if item["files"]]
    hindered = None if hindrance is None else hindrance.to_dict()
    return {"pipeline": name, "items": found, "notes": notes, "hindrance": hindered}


def _preview_table(paths: PipelinePaths, spec: PipelineSpec, table: TableState) -> list[MaintenanceItem]:
    settings = spec.maintenance
    files = without_partitions(list_data_files(paths.table), find_held_partitions(paths))
    column = find_date_column(spec.name, table, settings)
    expired: Sequence[DataFile] = ()
    if column is not None:
        expired = find_expired(files, column, settings.expire.partitions or 0.0, datetime.now(UTC))
    gone = {file.path for file in expired}
    small: list[DataFile] = []
    if bins := find_small(files, settings.compact_below, gone):
        small = [file for one in bins for _, files in find_alike(one, paths.table) for file in files]
    return [_of_files("expire", expired), _of_files("compact", small)]


def _preview_space(paths: PipelinePaths, spec: PipelineSpec) -> list[MaintenanceItem]:
    items = []
    for target, path in tables_of(paths):
        versions = versions_since_compaction(path)
        items.append(_item("log", target, versions if versions >= LOG_VERSIONS_AT_LEAST else 0, 0))
        files = [one for found in _walk_replaced(paths, spec, target, path) for one in found.files]
        items.append(_item("replaced", target, len(files), sum(storage.stat(one).size_bytes for one in files)))
    return items


def _of_files(work: MaintenanceWork, files: Sequence[DataFile]) -> MaintenanceItem:
    size, rows = sum(file.size_bytes for file in files), sum(file.rows for file in files)
    return _item(work, "table", len(files), size, rows, len({partition_of(file.partition) for file in files}))


def _item(work: MaintenanceWork, of: str, files: int, size: int, rows: int = 0, partitions: int = 0) -> MaintenanceItem:
    return {"work": work, "of": of, "files": files, "bytes": size, "rows": rows, "partitions": partitions}
