"""What a backfill would read and replace, and what stands in its way: found without a JVM, before anything changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.core.errors import TidegateError, catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.choose import Choice, choose, choose_with_state
from tidegate.rework.backfill.hand_over import refuse_pending
from tidegate.rework.backfill.left_out import LeftOut, find_cut, find_left_out, quarantined_before
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
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.table.log.state import DataFile, TableState, list_data_files

_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Ground:
    """What a backfill stands on: table, its files, where its rows are of, and what is to be rebuilt."""

    table: TableState
    files: list[DataFile]
    lineage: Lineage
    span: Span
    closes_at_ms: int | None = None
    """Of a query that keeps state: the watermark by which the rows in the table were closed."""
    hands_over: bool = False
    """Whether the query that rebuilds it takes the place of the pipeline's, because its state goes with the rows."""
    keeps_older: bool = False
    """Whether what the sources no longer hold stays as it is (:mod:`tidegate.rework.backfill.older`)."""
    made_by: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of what makes the rows, taken before they are read (:mod:`tidegate.runs.preflight.definition`)."""


@dataclass(frozen=True)
class Finding:
    """One interval: what is read, what stays in quarantine, which files it replaces, and why it cannot be done."""

    interval: Interval
    choice: Choice
    left_out: LeftOut
    replaced: list[DataFile]
    error: TidegateError | None
    closes_at_ms: int | None = None
    """As in :class:`Ground`."""
    older: Older | None = None
    """What stays, where that was asked for."""


def survey(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    facts: Facts,
    wanted: Wanted | None,
    *,
    keeps_older: bool = False,
) -> Ground:
    """The ground of a backfill; of a refresh, which rebuilds the whole table, where ``wanted`` is None.

    Raises DisagreementError when table, checkpoint and spec do not fit, UsageError for a pipeline or a range that it
    cannot be of, SourceLostError BACKFILL_NOT_KEPT.
    """
    name, keeps_state = spec.name, query_keeps_state(facts, spec)
    hands_over = wanted is None and keeps_state
    table = _check_pipeline(project, paths, spec, facts, hands_over=hands_over)
    if hands_over and keeps_older:
        raise catalogue.REFRESH_KEEPS_STATE(where=f"pipeline {name}", name=name)
    if keeps_state and wanted is not None:
        check_kept(facts, name)
    files = list_data_files(paths.table)
    span = Span([Interval({})])
    if wanted is not None:
        columns = table.partition_columns
        span = find_span(wanted, name, schema_json=table.schema_json, partition_by=columns, files=files)
    lineage = read_lineage(paths.table, table.version)
    cut = find_cut(paths.quarantine, lineage) if wanted is None else []
    for path, versions in ((paths.table, lineage.unknown), (paths.quarantine, cut)):
        if versions:
            told = ", ".join(map(str, versions[:_NAMED_AT_MOST]))
            raise catalogue.BACKFILL_LOG_CUT(where=str(path), versions=told, name=name)
    if wanted is not None:
        there = [file.partition for file in files]
        there += [dict(one) for increment in lineage.increments for given in increment.given.values() for one in given]
        check_known(span.whole, there)  # a day that a backfill has emptied is known too
    closes_at_ms = closing_watermark(paths, lineage, name) if keeps_state and wanted is not None else None
    return Ground(table, files, lineage, span, closes_at_ms, hands_over, keeps_older)


def find_days(project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> tuple[str, str]:
    """The first and the last day that the table has rows of. Raises as :func:`survey` where none can be rebuilt,
    whichever is asked for."""
    table = _check_pipeline(project, paths, spec, facts, hands_over=False)
    columns = table.partition_columns
    days = list_days(spec.name, table.schema_json, columns, list_data_files(paths.table))
    if not days:
        raise catalogue.BACKFILL_NO_TABLE(where=f"pipeline {spec.name}", name=spec.name)
    return days[0], days[-1]


def _check_pipeline(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, *, hands_over: bool
) -> TableState:
    """Raise where nothing of the pipeline's table can be rebuilt; the table."""
    name, where = spec.name, f"pipeline {spec.name}"
    if facts.table is None:
        raise catalogue.BACKFILL_NO_TABLE(where=where, name=name)
    check_agreement(facts, name)
    if spec.output_mode != "append" and not hands_over:
        why = f"with output_mode {spec.output_mode} its rows replace one another, whenever they came"
        way = f"refresh {name}" if query_keeps_state(facts, spec) else f"repair {name} --rebuild"
        raise catalogue.BACKFILL_NOT_APPEND(where=where, why=why, way=way)
    if hands_over:
        refuse_pending(paths, facts, name)
    gone = [one for one, source in open_sources(project, paths, spec).items() if not source.is_replayable]
    if gone:
        raise catalogue.BACKFILL_NOT_KEPT(where=where, sources=", ".join(gone))
    return facts.table


def examine(project: Project, paths: PipelinePaths, spec: PipelineSpec, ground: Ground) -> list[Finding]:
    """Every interval of the span; the error of one names those that have none."""
    findings = [_examine(project, paths, spec, ground, interval) for interval in ground.span.intervals]
    possible = [one.interval.label for one in findings if one.error is None]
    shown = list_first(possible, _NAMED_AT_MOST)
    for one in findings:
        if one.error is not None and one.error.fix is not None:
            one.error.fix = one.error.fix.replace(_POSSIBLE, shown or "none")
    return findings


def check_possible(findings: Sequence[Finding]) -> None:
    """Raise the first hindrance, where there is one."""
    error = next((one.error for one in findings if one.error is not None), None)
    if error is not None:
        raise error


_POSSIBLE = "(see below)"
"""In an error of one interval, until all were looked at: the intervals that can be rebuilt."""


def _examine(project: Project, paths: PipelinePaths, spec: PipelineSpec, ground: Ground, interval: Interval) -> Finding:
    older = find_older(project, paths, spec, ground.lineage, ground.files) if ground.keeps_older else None
    if older is not None and older.leaves_something:
        interval, choice = replace(interval, but_older=bool(older.lost)), older.choice
    elif ground.closes_at_ms is None:
        older, choice = None, choose(paths, spec, ground.lineage, interval)
    else:
        choice = choose_with_state(paths, spec, ground.lineage, interval, plain_columns(ground.table))
    if interval.is_whole_table:
        left_out = LeftOut(unplaced=quarantined_before(paths.quarantine, choice)[1])
    else:
        left_out = find_left_out(paths.quarantine, choice)
    stays = set() if older is None else {file.path for file in older.stays}
    replaced = [file for file in ground.files if interval.holds(file.partition) and file.path not in stays]
    error = _find_hindrance(project, paths, spec, ground, interval, choice, left_out)
    return Finding(interval, choice, left_out, replaced, error, ground.closes_at_ms, older)


def _find_hindrance(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    ground: Ground,
    interval: Interval,
    choice: Choice,
    left_out: LeftOut,
) -> TidegateError | None:
    where = f"pipeline {spec.name}"
    foreign = [] if interval.but_older else ground.lineage.foreign
    if any(interval.holds(dict(partition)) for partition in foreign):
        possible = _what_else(project, paths, spec, ground, interval)
        return catalogue.BACKFILL_FOREIGN_ROWS(where=where, label=interval.label, possible=possible)
    deleted = {} if interval.but_older else ground.lineage.deleted
    if any(interval.holds(dict(partition)) for partition in deleted.values()):
        return catalogue.BACKFILL_ROWS_DELETED(where=where, label=interval.label, possible=_POSSIBLE, name=spec.name)
    if (told := _describe_replays(ground.lineage, choice)) is not None:
        return catalogue.BACKFILL_REPLAYED(where=where, label=interval.label, replays=told, possible=_POSSIBLE)
    if ground.closes_at_ms is not None and (why := why_not_exact(ground.lineage, left_out.rejected)) is not None:
        return catalogue.BACKFILL_STATE(where=where, label=interval.label, why=why, possible=_POSSIBLE, name=spec.name)
    rows = [row for some in choice.files.values() for row in some]
    lost = find_differences(project, paths, spec.file_streams, rows)
    lost += [
        f"{shown_path(row.path)} is in quarantine as a whole, but for rows that could be read"
        for row in rows
        if not interval.is_whole_table and is_in_quarantine(paths.unreadable, row.link)
    ]
    lost += [f"source {name} is not in the spec any more" for name in choice.strange]
    lost += missing_offsets(project, paths, spec, ground.lineage, choice)
    if lost:
        told = list_first(lost, _NAMED_AT_MOST, "; ")
        possible = _what_else(project, paths, spec, ground, interval)
        return catalogue.BACKFILL_GONE(where=where, label=interval.label, lost=told, possible=possible)
    if left_out.unplaced:
        count = count_of(left_out.unplaced, "row")
        return catalogue.BACKFILL_UNPLACED(where=where, count=count, label=interval.label, name=spec.name)
    if left_out.rejected and any(one.gives_several for one in choice.increments):
        count = count_of(left_out.rejected, "row")
        return catalogue.BACKFILL_SEVERAL_ROWS(where=where, count=count, label=interval.label, name=spec.name)
    return None


def _what_else(project: Project, paths: PipelinePaths, spec: PipelineSpec, ground: Ground, interval: Interval) -> str:
    """What can be rebuilt where this interval cannot."""
    if interval.within:
        return _POSSIBLE
    if ground.hands_over or not find_older(project, paths, spec, ground.lineage, ground.files).leaves_something:
        return "nothing"
    return f"all behind the older part, which stays as it is, by `tidegate refresh {spec.name} --keep-older`"


def plain_columns(table: TableState) -> frozenset[str]:
    """Partition columns whose values a quarantined row and a folder's name spell in one way."""
    types = {field["name"]: field["type"] for field in json.loads(table.schema_json)["fields"]}
    return frozenset(column for column in table.partition_columns if types.get(column) in _PLAIN)


_PLAIN = ("date", "string", "integer", "long", "short", "byte")


def _describe_replays(lineage: Lineage, choice: Choice) -> str | None:
    """The replays of what is read whose rows reading it again does not give; None when there is none."""
    readable = {batch for batch, one in lineage.by_batch.items() if not one.is_left_out}
    told = []
    for replay in choice.replays:
        if replay.edited:
            told.append(f"{replay.run_id} ({count_of(replay.edited, 'record')} edited by hand)")
        elif not replay.batches <= readable:
            told.append(f"{replay.run_id} (records of an increment that was discarded, or is not in the log)")
    return list_first(told, _NAMED_AT_MOST, "; ") or None
