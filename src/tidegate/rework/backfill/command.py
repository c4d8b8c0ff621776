"""``tidegate backfill``: partitions rebuilt from the source, one interval after another, each swapped in as a version.

Between two intervals the lease is given up, so that a live run waits for one interval at most. What an interval is
rebuilt from is looked at anew each time: live runs may have added to it.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.core import outputs
from tidegate.core.errors import TidegateError
from tidegate.core.process.machine import now_text
from tidegate.rework.backfill.examine import Finding, Ground, check_possible, examine, find_days, survey
from tidegate.rework.backfill.going_on import check_goes_on
from tidegate.rework.backfill.rebuild import Spilled, rebuild_interval, spill_error
from tidegate.rework.backfill.span import Span, Wanted
from tidegate.runs.preflight.definition import fingerprint_rows
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.quarantine import check_quarantine
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.rework import describe_options, end_with_nothing, is_over, open_rework
from tidegate.runs.steps import deliver_run
from tidegate.runs.turns import give_way
from tidegate.sinks.foresee import describe_effects
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read


def backfill_table(project: Project, name: str, run_id: str, wanted: Wanted, *, submit: Submit) -> outputs.RunReport:
    """Rebuild the partitions that are ``wanted``; the report. Nothing changes unless all of them can be.

    A retry with the same run id goes on behind the last interval that was swapped; it must want the same. Raises what
    :func:`survey` does, SourceLostError BACKFILL_GONE, UsageError BACKFILL_SPILLS and others of its kind, HeldError
    BACKFILL_HELD, and what the ingest of a run raises.
    """
    is_first, has_sinks, told = True, False, list[str]()
    asked = describe_options(
        **{"from": wanted.start, "to": wanted.end}, partition=sorted(wanted.partitions), zone=wanted.zone
    )
    while True:
        with open_rework(project, name, run_id, "backfill", asked=asked) as context:
            if is_over(context):
                break
            has_sinks = bool(context.spec.sinks)
            for note in told:
                context.report.add_note(note)
            assert context.facts is not None
            made_by = fingerprint_rows(project, context.spec, context.paths)
            ground = survey(project, context.paths, context.spec, context.facts, wanted)
            ground = replace(ground, made_by=made_by)
            todo = [one for one in ground.span.intervals if one.label not in context.report.rebuilt]
            if not todo:  # begun by an earlier version, which let fewer be asked for under the same run id
                _end(context)
                break
            check_goes_on(context, ground)
            rest = replace(ground, span=Span(todo))
            if is_first:
                check_possible(examine(project, context.paths, context.spec, rest))
            is_first = False
            _do_next(context, ground, rest, submit)
            if is_over(context):
                break
        if (waited := give_way(context.paths)) is not None:
            told.append(waited)
    if has_sinks:
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def refresh_table(
    project: Project, name: str, run_id: str, *, keeps_older: bool = False, submit: Submit
) -> outputs.RunReport:
    """``tidegate refresh``: the whole table, and its quarantine, rebuilt from all that runs have taken; built beside,
    judged as one increment, swapped in as one version. Live runs go on from where they are. ``keeps_older``: what the
    sources no longer hold stays as it is.

    Raises what :func:`backfill_table` does, and UsageError REFRESH_KEEPS_STATE.
    """
    asked = "--keep-older" if keeps_older else describe_options()
    with open_rework(project, name, run_id, "refresh", asked=asked) as context:
        has_sinks = bool(context.spec.sinks)
        if not is_over(context):
            assert context.facts is not None
            ground = survey(project, context.paths, context.spec, context.facts, None, keeps_older=keeps_older)
            finding = _examine_one(context, ground)
            if finding.choice.is_empty:
                end_with_nothing(context, "no run has taken a record yet")
            else:
                rebuild_interval(context, ground, finding, is_last=True, submit=submit)
    if has_sinks and context.report.outcome == "published":
        return deliver_run(project, name, run_id, submit=submit)
    return context.report.to_json()


def _do_next(context: RunContext, ground: Ground, rest: Ground, submit: Submit) -> None:
    """The first interval that is left; all that was asked for as one, where rows move between the intervals."""
    is_last = len(rest.span.intervals) == 1
    one = replace(rest, span=Span(rest.span.intervals[:1]))
    finding = _examine_one(context, one)
    margin = finding.choice.margin
    if margin is not None and not margin.is_known and not is_last:  # each day alone would read everything again
        _do_whole(context, ground, submit)
        return
    if finding.choice.is_empty and not finding.replaced:
        _pass_over(context, finding, is_last=is_last)
        return
    try:
        rebuild_interval(context, ground, finding, is_last=is_last, submit=submit)
    except Spilled as spilled:
        if len(ground.span.intervals) == 1:
            raise spill_error(context.name, spilled) from None
        _do_whole(context, ground, submit)


def _do_whole(context: RunContext, ground: Ground, submit: Submit) -> None:
    finding = _examine_one(context, replace(ground, span=Span([ground.span.whole])))
    try:
        rebuild_interval(context, ground, finding, is_last=True, submit=submit)
    except Spilled as spilled:
        raise spill_error(context.name, spilled) from None


def _examine_one(context: RunContext, ground: Ground) -> Finding:
    found = examine(context.project, context.paths, context.spec, ground)
    check_possible(found)
    return found[0]


def _pass_over(context: RunContext, finding: Finding, *, is_last: bool) -> None:
    """The partition is empty, and no record that runs have read can belong to it."""
    report = context.report
    report.rebuilt = [*report.rebuilt, finding.interval.label]
    report.add_note(f"{finding.interval.label}: no record that runs have read belongs to it")
    if is_last:
        _end(context)
    else:
        context.save()


def _end(context: RunContext) -> None:
    """Nothing is left to do."""
    if not context.report.table:
        end_with_nothing(context, "there was nothing to rebuild")
        return
    context.report.outcome, context.report.ended_at = "published", now_text()
    context.save()


def look_for_days(project: Project, name: str) -> tuple[str, str]:
    """The first and the last day that a backfill of this pipeline can be asked for. Raises what :func:`survey` does
    where it can be of none."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    return find_days(project, paths, spec, gather_facts(paths, spec))


def look_at_backfill(
    project: Project, name: str, wanted: Wanted | None, *, keeps_older: bool = False
) -> outputs.BackfillPlan:
    """``--dry-run``: what each interval would be rebuilt from, what it replaces, and what stands in the way; of a
    refresh (None), the whole table. No JVM.

    Raises what :func:`survey` does.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    ground = survey(project, paths, spec, gather_facts(paths, spec), wanted, keeps_older=keeps_older)
    findings = examine(project, paths, spec, ground)
    hindrance: TidegateError | None = None
    try:
        check_quarantine(paths)
        check_possible(findings)
    except TidegateError as error:
        hindrance = error
    return {
        "pipeline": name,
        "intervals": [_describe(one) for one in findings],
        "sinks": describe_effects(paths, spec, ground.table, "rebuilt partitions"),
        "hindrance": None if hindrance is None else hindrance.to_dict(),
    }


def _describe(finding: Finding) -> outputs.BackfillInterval:
    choice, margin, older = finding.choice, finding.choice.margin, finding.older
    return {
        "partitions": finding.interval.label,
        "files_now": len(finding.replaced),
        "rows_now": sum(file.rows for file in finding.replaced),
        "files": sum(len(rows) for rows in choice.files.values()),
        "bytes": choice.bytes,
        "offsets": choice.offsets,
        "margin": None
        if margin is None
        else {"files": margin.files, "bytes": margin.bytes, "offsets": margin.offsets, "is_known": margin.is_known},
        "by_folder": choice.by_folder,
        "rows_of_others": sum(choice.outside.values()),
        "stays_in_quarantine": finding.left_out.total,
        "stays_discarded": choice.left_out,
        "older": None if older is None else older.to_json(),
        "hindrance": None if finding.error is None else finding.error.to_dict(),
    }
