"""``tidegate backfill``: rebuild partitions from the source, one interval after another, each in one version.

The lease is released between two intervals, so that a live run waits for one interval at most. The input of each
interval is looked up again, because live runs may have added to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tidegate.core import outputs
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.process.machine import now_text
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Scope
from tidegate.rework.backfill.examine import Finding, check_possible, examine, find_days, survey
from tidegate.rework.backfill.rebuild import MADE_BY, rebuild_interval
from tidegate.rework.backfill.span import Wanted, join_intervals
from tidegate.runs.deliver import deliver_run
from tidegate.runs.opening import give_way
from tidegate.runs.preflight.definition import fingerprint_rows
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.tables import check_quarantine
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.rework import describe_options, end_with_nothing, is_over, open_rework
from tidegate.sinks.user_code import describe_effects
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.table.log.state import read_commit_metadata
from tidegate.table.publish.plan import REWORK


def backfill_table(project: Project, name: str, run_id: str, wanted: Wanted, *, submit: Submit) -> outputs.RunReport:
    """Rebuild the ``wanted`` partitions and return the report. Nothing changes unless all of them can be rebuilt.

    A retry with the same run id, and the same arguments, resumes after the last interval that was swapped. Raises what
    :func:`survey` does, SourceLostError BACKFILL_GONE, UsageError BACKFILL_SPILLS and others of its kind, HeldError
    BACKFILL_HELD, and what the ingest of a run raises.
    """
    is_first, has_sinks, notes = True, False, list[str]()
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
            todo = [one for one in scope.intervals if one.label not in context.report.rebuilt]
            _check_resumable(context, scope)
            rest = replace(scope, intervals=todo)
            if is_first:
                check_possible(examine(rest))
            is_first = False
            _do_next(context, scope, rest, submit)
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
                rebuild_interval(context, scope, finding, is_last=True, submit=submit)
    if has_sinks and context.report.outcome == "published":
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def _do_next(context: RunContext, scope: Scope, rest: Scope, submit: Submit) -> None:
    """Rebuild the first remaining interval; where rows move between intervals, all of them as one."""
    is_last = len(rest.intervals) == 1
    finding = _examine_one(replace(rest, intervals=rest.intervals[:1]))
    margin = finding.choice.margin
    if margin is not None and not margin["is_known"] and not is_last:  # each day alone would read everything again
        _do_whole(context, scope, submit)
        return
    if finding.choice.is_empty and not finding.replaced:
        _skip_empty(context, finding, is_last=is_last)
        return
    try:
        rebuild_interval(context, scope, finding, is_last=is_last, submit=submit)
    except UsageError as error:
        if error.code != "BACKFILL_SPILLS" or len(scope.intervals) == 1:
            raise
        _do_whole(context, scope, submit)


def _do_whole(context: RunContext, scope: Scope, submit: Submit) -> None:
    finding = _examine_one(replace(scope, intervals=[join_intervals(scope.intervals)]))
    rebuild_interval(context, scope, finding, is_last=True, submit=submit)


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
    done = ", ".join(report.rebuilt)
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


def _skip_empty(context: RunContext, finding: Finding, *, is_last: bool) -> None:
    """Record an interval as rebuilt whose partition is empty, and to which no record that runs have read can belong."""
    report = context.report
    report.rebuilt = [*report.rebuilt, finding.interval.label]
    report.add_note(f"{finding.interval.label}: no record that runs have read belongs to it")
    if is_last:
        _end(context)
    else:
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

    ``wanted`` is None for a refresh. Starts no JVM. Raises what :func:`survey` does.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    scope = survey(project, paths, spec, gather_facts(paths, spec), wanted, keeps_older=keeps_older)
    findings = examine(scope)
    hindrance: TidegateError | None = None
    try:
        check_quarantine(paths)
        check_possible(findings)
    except TidegateError as error:
        hindrance = error
    return {
        "pipeline": name,
        "intervals": [_describe(one) for one in findings],
        "sinks": describe_effects(paths, spec, scope.table, "rebuilt partitions"),
        "hindrance": None if hindrance is None else hindrance.to_dict(),
    }


def _describe(finding: Finding) -> outputs.BackfillInterval:
    choice, older = finding.choice, finding.older
    return {
        "partitions": finding.interval.label,
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
