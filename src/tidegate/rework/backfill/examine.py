"""Find what a backfill would read and replace, and what prevents it: without a JVM, before anything changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Choice, choose, choose_with_state
from tidegate.rework.backfill.excluded import Excluded, find_excluded, find_missing_versions, quarantined_before
from tidegate.rework.backfill.hand_over import refuse_pending
from tidegate.rework.backfill.lineage import Lineage, read_lineage
from tidegate.rework.backfill.offsets import missing_offsets
from tidegate.rework.backfill.older import Older, find_older
from tidegate.rework.backfill.span import Interval, Span, Wanted, check_known, find_span, list_days
from tidegate.rework.backfill.stateful import check_kept, closing_watermark, why_not_exact
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.restart.rebuild import query_keeps_state
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.ledger import shown_path
from tidegate.sources.files.unreadable import is_in_quarantine
from tidegate.sources.registry import open_sources
from tidegate.spark import errors as spark_errors
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.table.log.state import DataFile, TableState, list_data_files

_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Scope:
    """The scope of a backfill: the table, its files, the lineage of its rows, and the partitions to rebuild."""

    table: TableState
    files: list[DataFile]
    lineage: Lineage
    span: Span
    closes_at_ms: int | None = None
    """For a stateful query: the watermark that closed the rows in the table."""
    hands_over: bool = False
    """Whether the query that rebuilds the table replaces the pipeline's, because its state belongs to the rows."""
    keeps_older: bool = False
    """Whether rows whose records the sources no longer hold stay as they are
    (:mod:`tidegate.rework.backfill.older`)."""
    made_by: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of the transform and spec, taken before reading (:mod:`tidegate.runs.preflight.definition`)."""


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
    table = _check_pipeline(project, paths, spec, facts, hands_over=hands_over)
    if hands_over and keeps_older:
        raise errors.REFRESH_KEEPS_STATE(where=f"pipeline {name}", name=name)
    if keeps_state and wanted is not None:
        check_kept(facts, name)
    files = list_data_files(paths.table)
    span = Span([Interval({})])
    if wanted is not None:
        columns = table.partition_columns
        span = find_span(wanted, name, schema_json=table.schema_json, partition_by=columns, files=files)
    lineage = read_lineage(paths.table, table.version)
    missing = find_missing_versions(paths.quarantine, lineage) if wanted is None else []
    for path, versions in ((paths.table, lineage.unknown), (paths.quarantine, missing)):
        if versions:
            shown = ", ".join(map(str, versions[:_NAMED_AT_MOST]))
            raise errors.BACKFILL_LOG_CUT(where=str(path), versions=shown, name=name)
    if wanted is not None:
        there = [file.partition for file in files]
        there += [dict(one) for increment in lineage.increments for given in increment.given.values() for one in given]
        check_known(span.whole, there)  # also days that a backfill has emptied
    closes_at_ms = closing_watermark(paths, lineage, name) if keeps_state and wanted is not None else None
    return Scope(table, files, lineage, span, closes_at_ms, hands_over, keeps_older)


def find_days(project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> tuple[str, str]:
    """The first and the last day with rows in the table. Raises as :func:`survey` where no day can be rebuilt."""
    table = _check_pipeline(project, paths, spec, facts, hands_over=False)
    columns = table.partition_columns
    days = list_days(spec.name, table.schema_json, columns, list_data_files(paths.table))
    if not days:
        raise errors.BACKFILL_NO_TABLE(where=f"pipeline {spec.name}", name=spec.name)
    return days[0], days[-1]


def _check_pipeline(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, *, hands_over: bool
) -> TableState:
    """Return the pipeline's table. Raises where nothing of it can be rebuilt."""
    name, where = spec.name, f"pipeline {spec.name}"
    if facts.table is None:
        raise errors.BACKFILL_NO_TABLE(where=where, name=name)
    check_agreement(facts, name)
    if spec.output_mode != "append" and not hands_over:
        why = f"with output_mode {spec.output_mode} its rows replace one another, whenever they arrived"
        way = f"refresh {name}" if query_keeps_state(facts, spec) else f"repair {name} --rebuild"
        raise errors.BACKFILL_NOT_APPEND(where=where, why=why, way=way)
    if hands_over:
        refuse_pending(paths, facts, name)
    gone = [one for one, source in open_sources(project, paths, spec).items() if not source.is_replayable]
    if gone:
        raise errors.BACKFILL_NOT_KEPT(where=where, sources=", ".join(gone))
    return facts.table


def examine(project: Project, paths: PipelinePaths, spec: PipelineSpec, scope: Scope) -> list[Finding]:
    """Examine every interval of the span; the error of one names the intervals that can be rebuilt."""
    findings = [_examine(project, paths, spec, scope, interval) for interval in scope.span.intervals]
    possible = [one.interval.label for one in findings if one.error is None]
    shown = list_first(possible, _NAMED_AT_MOST)
    for one in findings:
        if one.error is not None and one.error.fix is not None:
            one.error.fix = one.error.fix.replace(_POSSIBLE, shown or "none")
    return findings


def check_possible(findings: Sequence[Finding]) -> None:
    """Raise the error of the first interval that has one."""
    error = next((one.error for one in findings if one.error is not None), None)
    if error is not None:
        raise error


_POSSIBLE = "(see below)"
"""Placeholder in an error of one interval, until all are examined: the intervals that can be rebuilt."""


def _examine(project: Project, paths: PipelinePaths, spec: PipelineSpec, scope: Scope, interval: Interval) -> Finding:
    older = find_older(project, paths, spec, scope.lineage, scope.files) if scope.keeps_older else None
    if older is not None and older.leaves_something:
        interval, choice = replace(interval, but_older=bool(older.lost)), older.choice
    elif scope.closes_at_ms is None:
        older, choice = None, choose(paths, spec, scope.lineage, interval)
    else:
        choice = choose_with_state(paths, spec, scope.lineage, interval, plain_columns(scope.table))
    if interval.is_whole_table:
        excluded = Excluded(unplaced=quarantined_before(paths.quarantine, choice)[1])
    else:
        excluded = find_excluded(paths.quarantine, choice)
    stays = set() if older is None else {file.path for file in older.stays}
    replaced = [file for file in scope.files if interval.holds(file.partition) and file.path not in stays]
    error = _find_hindrance(project, paths, spec, scope, interval, choice, excluded)
    return Finding(interval, choice, excluded, replaced, error, scope.closes_at_ms, older)


def _find_hindrance(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    scope: Scope,
    interval: Interval,
    choice: Choice,
    excluded: Excluded,
) -> TidegateError | None:
    where = f"pipeline {spec.name}"
    foreign = [] if interval.but_older else scope.lineage.foreign
    if any(interval.holds(dict(partition)) for partition in foreign):
        possible = _alternatives(project, paths, spec, scope, interval)
        return errors.BACKFILL_FOREIGN_ROWS(where=where, label=interval.label, possible=possible)
    deleted = {} if interval.but_older else scope.lineage.deleted
    if any(interval.holds(dict(partition)) for partition in deleted.values()):
        return errors.BACKFILL_ROWS_DELETED(where=where, label=interval.label, possible=_POSSIBLE, name=spec.name)
    if (replays := _describe_replays(scope.lineage, choice)) is not None:
        return errors.BACKFILL_REPLAYED(where=where, label=interval.label, replays=replays, possible=_POSSIBLE)
    if scope.closes_at_ms is not None and (why := why_not_exact(scope.lineage, excluded.rejected)) is not None:
        return spark_errors.BACKFILL_STATE(
            where=where, label=interval.label, why=why, possible=_POSSIBLE, name=spec.name
        )
    rows = [row for some in choice.files.values() for row in some]
    lost = find_differences(project, paths, spec.file_streams, rows)
    lost += [
        f"{shown_path(row.path)} is in quarantine as a whole, but for rows that could be read"
        for row in rows
        if not interval.is_whole_table and is_in_quarantine(paths.unreadable, row.link)
    ]
    lost += [f"source {name} is not in the spec any more" for name in choice.strange]
    lost += missing_offsets(project, paths, spec, scope.lineage, choice)
    if lost:
        shown = list_first(lost, _NAMED_AT_MOST, "; ")
        possible = _alternatives(project, paths, spec, scope, interval)
        return errors.BACKFILL_GONE(where=where, label=interval.label, lost=shown, possible=possible)
    if excluded.unplaced:
        count = count_of(excluded.unplaced, "row")
        return errors.BACKFILL_UNPLACED(where=where, count=count, label=interval.label, name=spec.name)
    if excluded.rejected and any(one.gives_several for one in choice.increments):
        count = count_of(excluded.rejected, "row")
        return errors.BACKFILL_SEVERAL_ROWS(where=where, count=count, label=interval.label, name=spec.name)
    return None


def _alternatives(project: Project, paths: PipelinePaths, spec: PipelineSpec, scope: Scope, interval: Interval) -> str:
    """Name what can be rebuilt where this interval cannot."""
    if interval.within:
        return _POSSIBLE
    if scope.hands_over or not find_older(project, paths, spec, scope.lineage, scope.files).leaves_something:
        return "nothing"
    return f"all but the older part, with `tidegate refresh {spec.name} --keep-older`"


def plain_columns(table: TableState) -> frozenset[str]:
    """Partition columns whose values have the same text in a quarantined row and in a folder's name."""
    types = {field["name"]: field["type"] for field in json.loads(table.schema_json)["fields"]}
    return frozenset(column for column in table.partition_columns if types.get(column) in _PLAIN)


_PLAIN = ("date", "string", "integer", "long", "short", "byte")


def _describe_replays(lineage: Lineage, choice: Choice) -> str | None:
    """Describe the replays whose rows cannot be made by reading the source again; None when there is none."""
    readable = {batch for batch, one in lineage.by_batch.items() if not one.is_excluded}
    found = []
    for replay in choice.replays:
        if replay.edited:
            found.append(f"{replay.run_id} ({count_of(replay.edited, 'record')} edited by hand)")
        elif not replay.batches <= readable:
            found.append(f"{replay.run_id} (records of an increment that was discarded, or is not in the log)")
    return list_first(found, _NAMED_AT_MOST, "; ") or None
