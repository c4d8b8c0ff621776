"""``tidegate maintain``: a pipeline's table, state and source cleared up, under its lease and beside its runs."""

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
"""The log is compacted when so many versions have come since the last time; a publish waits for more."""


def maintain_pipeline(project: Project, name: str, run_id: str | None = None) -> outputs.RunReport:
    """Do all that ``maintenance:`` asks for, one thing after another; the run report.

    Killed anywhere, the next run of the pipeline finishes the version that was begun, and the next maintenance does the
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
            told = _tend_table(context, is_sure=clock is None)
            told += _make_room(context, is_sure=clock is None)
            context.report.duration_seconds[KIND] = round(time.monotonic() - began, 3)
            _end(context, told)
        return context.report.to_json()


def _tend_table(context: RunContext, *, is_sure: bool) -> list[str]:
    """Retention, where the time is sure, compaction, and a line on each."""
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
            f"partition has, or with other rows than the log tells; the first is {left[0].path}"
        )
    done = count_done(paths.table, context.name, context.report.run_id)
    context.report.table = _figures(context, done)
    told = []
    if expired := done.get("expire"):
        told.append(
            f"expired: {count_of(expired['files_removed'], 'file')} with {count_of(expired['rows_removed'], 'row')}, "
            f"of partitions older than {(settings.expire.partitions or 0) / 86_400:,.4g} days, left the table"
        )
    if compacted := done.get("compact"):
        told.append(
            f"compacted: {count_of(compacted['files_removed'], 'small file')} became "
            f"{count_of(compacted['files_added'], 'file')}, in {count_of(compacted['commits'], 'version')}"
        )
    return told


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


def _make_room(context: RunContext, *, is_sure: bool) -> list[str]:
    """Everything that frees room, and a line on each; what goes by its age only where the time is sure."""
    paths, settings, lease = context.paths, context.spec.maintenance, context.lease
    told = []
    for target, path in tables_of(paths):
        if versions_since_compaction(path) >= LOG_VERSIONS_AT_LEAST:
            compact_log(path, lease.check)
            told.append(f"the log of the {target}: compacted")
        files, size = _vacuum(context, target) if is_sure or not settings.keep_versions else (0, 0)
        if files:
            told.append(f"vacuumed: {count_of(files, 'replaced file')} of the {target} ({count_of(size, 'byte')})")
    facts = gather_facts(paths, context.spec)
    before = find_limit(settings, is_sure=is_sure)
    for litter in find_litter(paths, facts, before=before, run_id=context.report.run_id):
        remove_litter(litter, lease.check)
        told.append(f"removed: {_describe(litter)}")
    if context.spec.file_streams:
        with open_ledger(paths, lease=lease) as ledger:
            for note in finish_clearing(context.project, ledger, context.spec, lease.check):
                context.report.add_note(note)
    chores = SourceChores()
    if is_sure or not settings.keep_versions:
        chores = find_chores(context.project, paths, context.spec, time.time())
    told += clear_sources(paths, context.spec, lease, chores)
    for note in chores.notes:
        context.report.add_note(note)
    return told


def find_limit(settings: MaintenanceSpec, *, is_sure: bool) -> datetime:
    """What was written before this goes, of what runs leave; by its age only where the time is sure."""
    kept = settings.expire.reports
    return datetime.now(UTC) - timedelta(seconds=kept) if is_sure or not kept else datetime.fromtimestamp(0, UTC)


def _vacuum(context: RunContext, target: str) -> tuple[int, int]:
    """Remove what newer versions of a table replaced; how many files, and bytes, that were."""
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


def _end(context: RunContext, told: list[str]) -> None:
    if not told:
        end_with_nothing(context, "nothing to do")
        return
    for line in told:
        context.report.add_note(line)
    context.report.outcome, context.report.ended_at = "published", now_text()
    context.save()
