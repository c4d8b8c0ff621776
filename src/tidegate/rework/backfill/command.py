"""``tidegate backfill``: rebuild partitions from the source, in intervals of many days, each in one version.

One driver reads the records of an interval. The lease is released between two intervals, so that a live run waits for
one interval at most. The input of each interval is looked up again, because live runs may have added to it. What does
not pass the gate is kept until all intervals are built, and a person decides on all of it at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tidegate.core import outputs
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.extras import check_spark
from tidegate.core.process.machine import now_text
from tidegate.core.words import list_first
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Scope
from tidegate.rework.backfill.examine import Finding, check_possible, examine, find_days, survey
from tidegate.rework.backfill.hand_over import refuse_pending
from tidegate.rework.backfill.held import is_held
from tidegate.rework.backfill.intervals import choose_days
from tidegate.rework.backfill.rebuild import MADE_BY, Rebuild, hold, join_held, rebuild_interval, swap_in
from tidegate.rework.backfill.span import Interval, Wanted, join_intervals
from tidegate.runs.deliver import deliver_run
from tidegate.runs.opening import give_way
from tidegate.runs.preflight.definition import fingerprint_rows
from tidegate.runs.preflight.gather import gather_facts, look_at_pipeline
from tidegate.runs.preflight.tables import check_quarantine
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport
from tidegate.runs.rework import describe_options, end_with_nothing, is_over, open_rework
from tidegate.sinks.user_code import describe_effects
from tidegate.spark.driver.packages import find_packages
from tidegate.spark.driver.submit import find_spark_submit
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.table.log.state import list_data_files, read_commit_metadata
from tidegate.table.publish.plan import REWORK
from tidegate.table.schema import column_texts, extends


@dataclass
class _Progress:
    """How far a command is, apart from its report."""

    held: list[Rebuild] = field(default_factory=list)
    """The intervals that the gate holds, for one decision at the end."""
    is_first: bool = True
    is_alone: bool = False
    """Whether each day is rebuilt alone, because it cannot be with its neighbours."""

    @property
    def kept(self) -> list[Path]:
        """The folders of what is held."""
        return [one.folder for one in self.held]

    def forget_gone(self, report: RunReport, scope: Scope) -> None:
        """Forget what is no longer held: a person has decided on it, another process has taken it away, or the pipeline
        was edited since."""
        there = [one for one in self.held if is_held(one.folder) and one.scope.made_by == scope.made_by]
        self.held = [one for one in there if not one.days <= set(report.rebuilt)]

    def list_left(self, scope: Scope, report: RunReport) -> list[Interval]:
        """The days that are neither rebuilt nor held."""
        known = {*report.rebuilt, *(label for one in self.held for label in one.days)}
        return [day for day in scope.intervals if day.label not in known]


def backfill_table(project: Project, name: str, run_id: str, wanted: Wanted, *, submit: Submit) -> outputs.RunReport:
    """Rebuild the ``wanted`` partitions and return the report. Nothing changes unless all of them can be rebuilt.

    A retry with the same run id, and the same arguments, resumes after the last interval that was swapped. Raises what
    :func:`survey` does, SourceLostError BACKFILL_GONE, UsageError BACKFILL_SPILLS and others of its kind, HeldError
    BACKFILL_HELD at the end, and what the ingest of a run raises.
    """
    progress, has_sinks, notes = _Progress(), False, list[str]()
    asked = describe_options(
        **{"from": wanted.start, "to": wanted.end}, partition=sorted(wanted.partitions), zone=wanted.zone
    )
    while True:
        with open_rework(project, name, run_id, "backfill", asked=asked) as context:
            if is_over(context):
                break
            has_sinks = bool(context.spec.sinks)
            for note in notes:
                context.report.add_note(note)
            assert context.facts is not None
            made_by = fingerprint_rows(project, context.spec, context.paths)
            scope = survey(project, context.paths, context.spec, context.facts, wanted)
            scope = replace(scope, made_by=made_by)
            _check_resumable(context, scope)
            _do_next(context, scope, progress, submit)
            if is_over(context):
                break
        if (waited := give_way(context.paths)) is not None:
            notes.append(waited)
    if has_sinks:
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def refresh_table(
    project: Project, name: str, run_id: str, *, keeps_older: bool = False, submit: Submit
) -> outputs.RunReport:
    """Rebuild the whole table and its quarantine from all records that runs have taken (``tidegate refresh``).

    The rows are built by a side job, judged as one increment and swapped in as one version; live runs continue from
    where they are. ``keeps_older``: rows whose records the sources no longer hold stay as they are.

    Raises what :func:`backfill_table` does, and UsageError REFRESH_KEEPS_STATE.
    """
    asked = "--keep-older" if keeps_older else describe_options()
    with open_rework(project, name, run_id, "refresh", asked=asked) as context:
        has_sinks = bool(context.spec.sinks)
        if not is_over(context):
            assert context.facts is not None
            scope = survey(project, context.paths, context.spec, context.facts, None, keeps_older=keeps_older)
            finding = _examine_one(scope)
            if finding.choice.is_empty:
                end_with_nothing(context, "no run has taken a record yet")
            else:
                rebuild = rebuild_interval(context, scope, finding, submit)
                if not rebuild.passed:
                    raise hold(context, rebuild, is_last=True)
                swap_in(context, rebuild, is_last=True)
    if has_sinks and context.report.outcome == "published":
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def _do_next(context: RunContext, scope: Scope, progress: _Progress, submit: Submit) -> None:
    """Rebuild the first days that are left. Behind the last ones, raise HeldError where some did not pass the gate."""
    progress.forget_gone(context.report, scope)
    left = progress.list_left(scope, context.report)
    if progress.is_first:
        _check_all(replace(scope, intervals=left))
        progress.is_first = False
    rebuild = _rebuild_next(context, scope, left, progress, submit) if left else None
    if rebuild is not None:
        progress.held = [one for one in progress.held if not one.days & rebuild.days]
        if not rebuild.passed:
            progress.held.append(rebuild)
    built = set() if rebuild is None else rebuild.days
    is_last = all(day.label in built for day in progress.list_left(scope, context.report))
    if rebuild is not None and rebuild.passed:
        swap_in(context, rebuild, is_last=is_last and not progress.held, keep=progress.kept)
        scope = replace(scope, files=list_data_files(context.paths.table))
    if progress.held:
        error = hold(context, join_held(scope, progress.held), is_last=is_last)
        if is_last:
            raise error
    elif is_last and not is_over(context):
        _end(context)


def _rebuild_next(
    context: RunContext, scope: Scope, left: list[Interval], progress: _Progress, submit: Submit
) -> Rebuild | None:
    """Read and judge the first of the days ``left``; None where there is no record to read and no row to replace.

    As many are rebuilt together as :func:`choose_days` takes. Where rows would be lost, because they move between days
    or it is unknown whether they do, all days of the command are tried as one, then the first one alone."""
    days = left[:1] if progress.is_alone else choose_days(replace(scope, intervals=left))
    finding = _examine_joined(scope, days)
    if finding.error is None and finding.choice.is_empty and not finding.replaced:
        _skip_empty(context, finding)
        return None
    tried = partial(_try_days, context, scope, progress, submit)
    built, first = tried(days), left[:1]
    if not progress.is_alone and isinstance(built, UsageError) and days != scope.intervals:
        built = tried(scope.intervals)
    if isinstance(built, Rebuild):
        return built
    if first not in (days, scope.intervals):
        alone = tried(first)
        if isinstance(alone, Rebuild):
            progress.is_alone = True
            return alone
    raise built  # that of all days, not of the first one: it names what is in the way of all of them


def _try_days(
    context: RunContext, scope: Scope, progress: _Progress, submit: Submit, days: Sequence[Interval]
) -> Rebuild | UsageError:
    """Read and judge some days as one. Returns the error where it may depend on which days are rebuilt together."""
    try:
        finding = _examine_joined(scope, days)
        check_possible([finding])
        return rebuild_interval(context, scope, finding, submit, progress.kept)
    except UsageError as error:
        if error.code not in _OF_NEIGHBOURS:
            raise
        return error


_OF_NEIGHBOURS = ("BACKFILL_SPILLS", "BACKFILL_NOT_EXACT")
"""Errors that depend on which days are rebuilt together."""


def _check_all(scope: Scope) -> None:
    """Raise the error of the first day that cannot be rebuilt; the days are looked at one by one only if all of them as
    one cannot be."""
    if scope.intervals and _examine_joined(scope, scope.intervals).error is not None:
        check_possible(examine(scope))


def _examine_joined(scope: Scope, days: Sequence[Interval]) -> Finding:
    return examine(replace(scope, intervals=[join_intervals(days)]))[0]


def _examine_one(scope: Scope) -> Finding:
    found = examine(scope)
    check_possible(found)
    return found[0]


def _check_resumable(context: RunContext, scope: Scope) -> None:
    """Raise UsageError BACKFILL_NOT_RESUMABLE where the partitions rebuilt under this run id left the table, or the
    transform or spec was edited since: one run id uses one version of them."""
    report, where = context.report, f"pipeline {context.name}"
    version = report.table.get("version")
    if version is None:
        return
    done = list_first(report.rebuilt)
    info = read_commit_metadata(context.paths.table, version)
    is_ours = (info.get(REWORK), info.get("tidegate.run_id")) == (report.mode, report.run_id)
    if not is_ours or version not in {one.version for one in scope.lineage.rebuilt}:  # or the table was created again
        why = "the table no longer has them in that form: they were rolled back or rebuilt again"
        raise errors.BACKFILL_NOT_RESUMABLE(where=where, run_id=report.run_id, done=done, why=why)
    then: Mapping[str, str] = json.loads(info[MADE_BY])
    changed = [name for name in sorted({*then, *scope.made_by}) if then.get(name) != scope.made_by.get(name)]
    if changed:
        why = f"edited since then: {', '.join(changed)}"
        raise errors.BACKFILL_NOT_RESUMABLE(where=where, run_id=report.run_id, done=done, why=why)


def _skip_empty(context: RunContext, finding: Finding) -> None:
    """Record days as rebuilt that have no row, and to which no record that runs have read can belong."""
    report = context.report
    report.rebuilt = [*report.rebuilt, *(day.label for day in finding.interval.days)]
    report.add_note(f"{finding.interval.label}: no record that runs have read belongs to it")
    context.save()


def _end(context: RunContext) -> None:
    """Finish the report: nothing is left to do."""
    if not context.report.table:
        end_with_nothing(context, "there was nothing to rebuild")
        return
    context.report.outcome, context.report.ended_at = "published", now_text()
    context.save()


def find_backfill_days(project: Project, name: str) -> tuple[str, str]:
    """The first and the last day that can be backfilled. Raises what :func:`survey` does where there is none."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    return find_days(project, paths, spec, gather_facts(paths, spec))


def preview_backfill(
    project: Project, name: str, wanted: Wanted | None, *, keeps_older: bool = False
) -> outputs.BackfillPlan:
    """``--dry-run``: show what each interval would be rebuilt from, what it replaces, and what prevents it.

    The intervals are those that :func:`backfill_table` makes; if a day cannot be rebuilt, each day by itself.

    ``wanted`` is None for a refresh. Starts no JVM. Raises what :func:`survey` does.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    scope = survey(project, paths, spec, gather_facts(paths, spec), wanted, keeps_older=keeps_older)
    findings = _foresee(scope)
    hindrance: TidegateError | None = None
    try:
        check_quarantine(paths)
        check_possible(findings)
    except TidegateError as error:
        hindrance = error
    return {
        "pipeline": name,
        "intervals": [_describe(one) for one in findings],
        "columns": None,
        "sinks": describe_effects(paths, spec, scope.table, "rebuilt partitions"),
        "hindrance": None if hindrance is None else hindrance.to_dict(),
    }


def _foresee(scope: Scope) -> list[Finding]:
    """Examine the intervals that :func:`_rebuild_next` would make, or each day by itself if one cannot be rebuilt."""
    findings, left = list[Finding](), scope.intervals
    while left:
        days = choose_days(replace(scope, intervals=left))
        finding = _examine_joined(scope, days)
        if finding.error is not None:
            alone = examine(scope)
            return alone if any(one.error for one in alone) else [*findings, *alone[-len(left) :]]
        findings.append(finding)
        left = left[len(days) :]
    return findings


def preview_refresh(project: Project, name: str, *, keeps_older: bool = False) -> outputs.BackfillPlan:
    """``refresh --dry-run``: as :func:`preview_backfill`, with the columns before and after, for which Spark analyses
    the query. Raises what that does."""
    plan = preview_backfill(project, name, None, keeps_older=keeps_older)
    situation = look_at_pipeline(project, name)
    table = situation.facts.table
    if plan["hindrance"] is not None or table is None:
        return plan
    try:
        check_spark()
        find_spark_submit()  # Spark reports a missing Java by a traceback
        from tidegate.spark.inspection.analyse import analyse_pipeline  # pyspark: only here

        after = analyse_pipeline(project, name, find_packages(project), replaces_all=not keeps_older)
        if after is not None and not extends(table.schema_json, after):
            refuse_pending(situation.paths, situation.facts, name)
    except TidegateError as error:
        return {**plan, "hindrance": error.to_dict()}
    columns: outputs.Columns = {
        "before": column_texts(table.schema_json),
        "after": None if after is None else column_texts(after, table.schema_json),
    }
    return {**plan, "columns": columns}


def _describe(finding: Finding) -> outputs.BackfillInterval:
    choice, older = finding.choice, finding.older
    return {
        "partitions": finding.interval.label,
        "days": [day.label for day in finding.interval.days],
        "files_now": len(finding.replaced),
        "rows_now": sum(file.rows for file in finding.replaced),
        "files": sum(len(rows) for rows in choice.files.values()),
        "bytes": choice.bytes,
        "offsets": choice.offsets,
        "margin": choice.margin,
        "by_folder": choice.by_folder,
        "rows_of_others": sum(choice.outside.values()),
        "stays_in_quarantine": finding.excluded.total,
        "stays_discarded": choice.excluded,
        "older": None if older is None else older.to_json(),
        "hindrance": None if finding.error is None else finding.error.to_dict(),
    }
