"""Find what a backfill would read and replace, and what prevents it: without a JVM, before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Choice, Scope, choose_records
from tidegate.rework.backfill.excluded import Excluded, find_excluded, find_missing_versions, quarantined_before
from tidegate.rework.backfill.hand_over import refuse_pending
from tidegate.rework.backfill.lineage import Lineage, read_lineage
from tidegate.rework.backfill.older import Older, describe_removed, find_older, missing_offsets
from tidegate.rework.backfill.span import Interval, Wanted, check_known, find_span, join_intervals, list_days
from tidegate.rework.backfill.stateful import check_kept, closing_watermark, why_not_exact
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts, query_keeps_state
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.ledger import shown_path
from tidegate.sources.files.unreadable import is_in_quarantine
from tidegate.sources.registry import open_sources
from tidegate.spark import errors as spark_errors
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.table.log.state import DataFile, TableState, list_data_files

_POSSIBLE = "(see below)"
"""Placeholder in an error of one interval, until all are examined: the intervals that can be rebuilt."""


@dataclass(frozen=True)
class Finding:
    """One interval: what is read, what stays in quarantine, the files it replaces, and the error that prevents it."""

    interval: Interval
    choice: Choice
    excluded: Excluded
    replaced: list[DataFile]
    error: TidegateError | None
    closes_at_ms: int | None = None
    """As in :class:`Scope`."""
    older: Older | None = None
    """The part of the table that stays, with ``--keep-older``."""


def survey(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    facts: Facts,
    wanted: Wanted | None,
    *,
    keeps_older: bool = False,
) -> Scope:
    """Determine the scope of a backfill, or of a refresh where ``wanted`` is None.

    Raises DisagreementError when table, checkpoint and spec do not match, UsageError for a pipeline or a range that
    cannot be rebuilt, SourceLostError BACKFILL_NOT_KEPT.
    """
    name, keeps_state = spec.name, query_keeps_state(facts, spec)
    hands_over = wanted is None and keeps_state
    table = _check_pipeline(project, paths, spec, facts, is_refresh=wanted is None)
    if hands_over and keeps_older:
        raise errors.REFRESH_KEEPS_STATE(where=f"pipeline {name}", name=name)
    if keeps_state and wanted is not None:
        check_kept(facts, name)
    files = list_data_files(paths.table)
    intervals = [Interval({})]
    if wanted is not None:
        columns = table.partition_columns
        intervals = find_span(wanted, name, schema_json=table.schema_json, partition_by=columns, files=files)
    lineage = read_lineage(paths.table, table.version)
    missing = find_missing_versions(paths.quarantine, lineage) if wanted is None else []
    for path, versions in ((paths.table, lineage.unknown), (paths.quarantine, missing)):
        if versions:
            shown = list_first([str(one) for one in versions])
            raise errors.BACKFILL_LOG_CUT(where=str(path), versions=shown, name=name)
    closes_at_ms = None
    if wanted is not None:
        there = [file.partition for file in files]
        there += [dict(one) for increment in lineage.increments for given in increment.given.values() for one in given]
        check_known(join_intervals(intervals), there)  # also days that a backfill has emptied
        closes_at_ms = closing_watermark(paths, lineage, name) if keeps_state else None
    return Scope(
        project, paths, spec, table, files, lineage, intervals, closes_at_ms, hands_over, keeps_older=keeps_older
    )


def find_days(project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> tuple[str, str]:
    """The first and the last day with rows in the table. Raises as :func:`survey` where no day can be rebuilt."""
    table = _check_pipeline(project, paths, spec, facts, is_refresh=False)
    days = list_days(spec.name, table.schema_json, table.partition_columns, list_data_files(paths.table))
    if not days:
        raise errors.BACKFILL_NO_TABLE(where=f"pipeline {spec.name}", name=spec.name)
    return days[0], days[-1]


def _check_pipeline(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, *, is_refresh: bool
) -> TableState:
    """Return the pipeline's table. Raises where nothing of it can be rebuilt."""
    name, where = spec.name, f"pipeline {spec.name}"
    if facts.table is None:
        raise errors.BACKFILL_NO_TABLE(where=where, name=name)
    check_agreement(facts, name)
    keeps_state = query_keeps_state(facts, spec)
    hands_over = is_refresh and keeps_state
    if spec.output_mode != "append" and not hands_over:
        if is_refresh:
            raise errors.REFRESH_NOT_POSSIBLE(where=where, output_mode=spec.output_mode, name=name)
        why = f"with output_mode {spec.output_mode} its rows replace one another, whenever they arrived"
        way = f"refresh {name}" if keeps_state else f"repair {name} --rebuild"
        raise errors.BACKFILL_ONLY_WHOLE(where=where, why=why, way=way)
    if hands_over:
        refuse_pending(paths, facts, name)
    gone = [one for one, source in open_sources(project, paths, spec).items() if not source.is_replayable]
    if gone:
        raise errors.BACKFILL_NOT_KEPT(where=where, sources=", ".join(gone))
    return facts.table


def examine(scope: Scope) -> list[Finding]:
    """Examine every interval; the error of one names the intervals that can be rebuilt."""
    findings = [_examine(scope, interval) for interval in scope.intervals]
    possible = [one.interval.label for one in findings if one.error is None]
    shown = list_first(possible)
    for one in findings:
        if one.error is not None and one.error.fix is not None:
            one.error.fix = one.error.fix.replace(_POSSIBLE, shown or "none")
    return findings


def check_possible(findings: Sequence[Finding]) -> None:
    """Raise the error of the first interval that has one."""
    error = next((one.error for one in findings if one.error is not None), None)
    if error is not None:
        raise error


def _examine(scope: Scope, interval: Interval) -> Finding:
    older = find_older(scope) if scope.keeps_older else None
    if older is not None and older.leaves_something:
        interval, choice = replace(interval, but_older=bool(older.lost)), older.choice
    else:
        older, choice = None, choose_records(scope, interval)
    if interval.is_whole_table:
        excluded = Excluded(unplaced=quarantined_before(scope.paths.quarantine, choice)[1])
    else:
        excluded = find_excluded(scope.paths.quarantine, choice)
    stays = set() if older is None else {file.path for file in older.stays}
    replaced = [file for file in scope.files if interval.holds(file.partition) and file.path not in stays]
    error = _find_hindrance(scope, interval, choice, excluded)
    return Finding(interval, choice, excluded, replaced, error, scope.closes_at_ms, older)


def _find_hindrance(scope: Scope, interval: Interval, choice: Choice, excluded: Excluded) -> TidegateError | None:
    where, label, name = f"pipeline {scope.spec.name}", interval.label, scope.spec.name
    foreign = [] if interval.but_older else scope.lineage.foreign
    if any(interval.holds(dict(partition)) for partition in foreign):
        lost_rows = "rows that no run has read (the table was adopted, or another program wrote to it) would be lost"
        possible = _alternatives(scope, interval)
        return errors.BACKFILL_FOREIGN_ROWS(where=where, label=label, why=lost_rows, possible=possible, name=name)
    deleted = {} if interval.but_older else scope.lineage.deleted
    if any(interval.holds(dict(partition)) for partition in deleted.values()):
        back = "another program has deleted rows, which would come back"
        return errors.BACKFILL_FOREIGN_ROWS(where=where, label=label, why=back, possible=_POSSIBLE, name=name)
    if (replays := _describe_replays(scope.lineage, choice)) is not None:
        return errors.BACKFILL_REPLAYED(where=where, label=label, replays=replays, possible=_POSSIBLE)
    if scope.closes_at_ms is not None and (why := why_not_exact(scope.lineage, excluded.rejected)) is not None:
        return spark_errors.BACKFILL_STATE(where=where, label=label, why=why, possible=_POSSIBLE, name=name)
    if lost := _find_gone(scope, interval, choice):
        shown = list_first(lost, between="; ")
        possible = _alternatives(scope, interval)
        return errors.BACKFILL_GONE(where=where, label=label, lost=shown, possible=possible, name=name)
    if excluded.unplaced:
        unplaced = (
            f"the source record of {count_of(excluded.unplaced, 'row')} in quarantine is unknown, because the "
            "transform does not keep it"
        )
        return errors.BACKFILL_NOT_EXACT(where=where, label=label, why=unplaced, name=name)
    if excluded.rejected and any(one.gives_several for one in choice.increments):
        return several_rows_error(scope.spec.name, label, excluded)
    return None


def several_rows_error(name: str, label: str, excluded: Excluded) -> TidegateError:
    """The error where other rows of records with a rejected row may be in the table."""
    why = (
        f"the transform may make several rows from one record, and a rule has rejected "
        f"{count_of(excluded.rejected, 'row')} of them: which other rows of these records are in the table is unknown"
    )
    return errors.BACKFILL_NOT_EXACT(where=f"pipeline {name}", label=label, why=why, name=name)


def _find_gone(scope: Scope, interval: Interval, choice: Choice) -> list[str]:
    """What was read and can no longer be read: files, sources, offsets."""
    rows = [row for some in choice.files.values() for row in some]
    lost = find_differences(scope.project, scope.paths, scope.spec.file_streams, rows)
    lost += [
        f"{shown_path(row.path)} is in quarantine as a whole, but for rows that could be read"
        for row in rows
        if not interval.is_whole_table and is_in_quarantine(scope.paths.unreadable, row.link)
    ]
    return lost + describe_removed(choice) + missing_offsets(scope, choice)


def _alternatives(scope: Scope, interval: Interval) -> str:
    """Name what can be rebuilt where this interval cannot."""
    if interval.within:
        return _POSSIBLE
    if scope.hands_over or not find_older(scope).leaves_something:
        return "nothing"
    return f"all but the older part, with `tidegate refresh {scope.spec.name} --keep-older`"


def _describe_replays(lineage: Lineage, choice: Choice) -> str | None:
    """Describe the replays whose rows cannot be made by reading the source again; None when there is none."""
    readable = {batch for batch, one in lineage.by_batch.items() if not one.is_excluded}
    found = []
    for replay in choice.replays:
        if replay.edited:
            found.append(f"{replay.run_id} ({count_of(replay.edited, 'record')} edited by hand)")
        elif not replay.batches <= readable:
            found.append(f"{replay.run_id} (records of an increment that was discarded, or is not in the log)")
    return list_first(found, between="; ") or None
