"""The command ``tidegate rollback``: the look at it, and the work."""

from __future__ import annotations

from tidegate.core import outputs
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.quarantine import check_quarantine
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import FINAL_OUTCOMES, load_report
from tidegate.runs.reports.verdicts import find_hold, quote_word
from tidegate.runs.reports.waiting import list_waiting
from tidegate.runs.restart.rollback import KIND, Then, describe_rollback, load_rollback, record_rollback
from tidegate.runs.restart.versions import (
    Look,
    describe_records,
    find_leave_out_hindrance,
    find_moved_records,
    find_reread_hindrance,
    list_choices,
    look_back,
)
from tidegate.runs.rework import describe_options, end_with_nothing, is_over, open_rework
from tidegate.sinks.foresee import describe_effects
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.table.publish.intent import pending_intents


def look_at_rollback(project: Project, name: str, version: int) -> outputs.Rollback:
    """``tidegate rollback --dry-run``: what changes, what can become of the records in between, and what is in the way.

    Nothing is changed, not even what an earlier process began: a note says that it is finished first. Raises what
    :func:`tidegate.runs.restart.versions.look_back` does.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec)
    look = look_back(paths, facts, version)
    held = _find_behind(paths) or _find_held(paths, facts, name) or find_moved_records(paths, look)
    restore = look.restore
    return {
        "pipeline": name,
        "to_version": version,
        "from_version": look.newest,
        "files_back": len(restore.back),
        "rows_back": sum(file.rows for file in restore.back),
        "files_leave": len(restore.leave),
        "rows_leave": sum(file.rows for file in restore.leave),
        "records": look.left_out["records"],
        "versions": [
            {
                "version": one.version,
                "kind": one.kind,
                "run_id": one.run_id,
                "outcome": one.outcome,
                "records": one.read,
                "rows": one.rows,
            }
            for one in look.between
        ],
        "choices": list_choices(project, spec, paths, facts, look),
        "sinks": describe_effects(paths, spec, facts.table, "partitions that change"),
        "notes": _list_notes(paths, spec, look),
        "hindrance": None if held is None else held.to_dict(),
    }


def roll_back(project: Project, name: str, version: int, then: Then | None, run_id: str) -> outputs.RunReport:
    """``tidegate rollback``: one new version of the table with the rows of ``version``. Returns its report.

    Raises UsageError ROLLBACK_CHOICE without ``then`` where records were taken in between, HeldError ROLLBACK_HELD,
    what :func:`tidegate.runs.restart.versions.look_back` does, and what is in the way of the choice.
    """
    paths = project.paths(name)
    before = load_report(paths, run_id)
    if (before is None or before.outcome not in FINAL_OUTCOMES) and load_rollback(paths) is None:
        # What is wrong use is said before there is a run that could fail.
        pinned = paths.pinned()
        spec = as_read(load_pipeline(project, name), pinned)
        if not pending_intents(pinned):
            _check(project, spec, pinned, gather_facts(pinned, spec), version, then)
    with open_rework(project, name, run_id, KIND, asked=describe_options(to_version=version, then=then)) as context:
        if not is_over(context):
            _carry_out(context, version, then)
        return context.report.to_json()


def _carry_out(context: RunContext, version: int, then: Then | None) -> None:
    assert context.facts is not None
    look = _check(context.project, context.spec, context.paths, context.facts, version, then)
    if look is None:
        end_with_nothing(context, f"nothing to roll back: the table has the rows of version {version}")
        return
    for note in _list_notes(context.paths, context.spec, look):
        context.report.add_note(note)
    context.save()
    # Without records in between both choices are the same one.
    if record_rollback(context, look, then if then is not None and look.increments else "leave-out"):
        recover_run(context)
        return
    context.facts = gather_facts(context.paths, context.spec)  # another program was faster: look again
    _carry_out(context, version, then)


def _check(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, version: int, then: Then | None
) -> Look | None:
    """The rollback as it would be now; None where there is nothing to roll back. Raises what is in its way."""
    look = look_back(paths, facts, version)
    if look.changes_nothing(then):
        return None
    in_the_way = _find_behind(paths) or _find_held(paths, facts, spec.name) or find_moved_records(paths, look)
    if in_the_way is not None:
        raise in_the_way
    if then is None and look.increments:
        raise _ask_for_choice(list_choices(project, spec, paths, facts, look), spec.name, look)
    hindrance: TidegateError | None = None
    if then == "reread":
        hindrance = find_reread_hindrance(project, spec, paths, facts, look)
    elif then == "leave-out":
        hindrance = find_leave_out_hindrance(spec, facts, look)
    if hindrance is not None:
        raise hindrance
    return look


def _ask_for_choice(choices: list[outputs.RollbackChoice], name: str, look: Look) -> TidegateError:
    sentences = [f"--then {one['then']}: {'; '.join(one['does'])}{_describe_hindrance(one)}" for one in choices]
    return errors.ROLLBACK_CHOICE(
        where=f"pipeline {name}",
        name=name,
        version=look.version,
        records=describe_records(look),
        choices=". Or ".join(sentences),
    )


def _describe_hindrance(choice: outputs.RollbackChoice) -> str:
    return "" if choice["hindrance"] is None else f" (not now: {choice['hindrance']['message']})"


def _find_behind(paths: PipelinePaths) -> TidegateError | None:
    try:
        check_quarantine(paths)
    except TidegateError as error:
        return error
    return None


def _find_held(paths: PipelinePaths, facts: Facts, name: str) -> HeldError | None:
    if (hold := find_hold(paths, facts.unpublished)) is not None:
        where = f"run {hold.run_id} of pipeline {name}"
        return errors.ROLLBACK_HELD(where=where, name=name, run_id=quote_word(hold.run_id))
    if waiting := list_waiting(paths):
        run_id = waiting[0].run_id
        return errors.ROLLBACK_WAITS(
            where=f"run {run_id} of pipeline {name}", name=name, run_id=run_id, quoted=quote_word(run_id)
        )
    return None


def _list_notes(paths: PipelinePaths, spec: PipelineSpec, look: Look) -> list[str]:
    """What the table's own figures do not say: who else has had the rows, and what no run reads again."""
    notes = []
    if (pending := load_rollback(paths)) is not None:
        notes.append(describe_rollback(pending))
    if pending_intents(paths):
        notes.append("a publish was begun: it is finished first, and may add a version")
    for one in look.between:
        if one.kind != "run":
            notes.append(
                f"version {one.version} is of {one.kind} {one.run_id}: what it changed is undone as well, and no run "
                "does it again"
            )
    for version, operation in look.foreign:
        notes.append(f"version {version} is of another program ({operation}): what it changed is undone as well")
    return notes
