"""``tidegate maintain``: clean up a pipeline's table, state and sources, under its lease."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from tidegate.core import outputs
from tidegate.core.outputs import TableFigures
from tidegate.core.process.machine import now_text
from tidegate.core.storage import stat
from tidegate.core.words import count_of
from tidegate.rework.maintain.commits import KIND, Work, count_done
from tidegate.rework.maintain.compact import compact_table
from tidegate.rework.maintain.litter import Litter, find_litter, remove_litter
from tidegate.rework.maintain.retention import expire_partitions
from tidegate.rework.maintain.sources import SourceChores, clear_sources, find_chores
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.clock import find_clock_fault
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.upkeep import find_replaced_files, remove_files, tables_of
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.rework import end_with_nothing, is_over, open_rework
from tidegate.sources.files.consumed import finish_clearing
from tidegate.sources.files.ledger import open_ledger
from tidegate.spec.models import MaintenanceSpec
from tidegate.spec.project import Project
from tidegate.table.log.compaction import compact_log, versions_since_compaction
from tidegate.table.log.snapshot import remember_snapshots
from tidegate.table.log.state import read_table_state

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
            context.report.duration_seconds[KIND] = round(time.monotonic() - began, 3)
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
    lines = []
    for target, path in tables_of(paths):
        if versions_since_compaction(path) >= LOG_VERSIONS_AT_LEAST:
            compact_log(path, lease.check)
            lines.append(f"the log of the {target}: compacted")
        files, size = _vacuum(context, target) if is_sure or not settings.keep_versions else (0, 0)
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
    chores = SourceChores()
    if is_sure or not settings.keep_versions:
        chores = find_chores(context.project, paths, context.spec, time.time())
    lines += clear_sources(paths, context.spec, lease, chores)
    for note in chores.notes:
        context.report.add_note(note)
    return lines


def find_limit(settings: MaintenanceSpec, *, is_sure: bool) -> datetime:
    """The time before which files in the state folder are removed; by age only if the clock is reliable."""
    kept = settings.expire.reports
    return datetime.now(UTC) - timedelta(seconds=kept) if is_sure or not kept else datetime.fromtimestamp(0, UTC)


def _vacuum(context: RunContext, target: str) -> tuple[int, int]:
    """Remove files that newer versions of a table replaced; return their number and size."""
    files = size = 0
    for word, path in tables_of(context.paths):
        state = read_table_state(path)
        after: int | None = None
        while word == target and state is not None:
            found = find_replaced_files(context.paths, context.spec, word, state, after=after)
            size += sum(stat(one).size_bytes for one in found.files)
            files += len(found.files)
            remove_files(context.paths, found, context.lease)
            if found.done == found.before:
                break
            after = found.done
    return files, size


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
