"""The command ``tidegate rollback``: the look at it, and the work."""

from __future__ import annotations

from tidegate.core import outputs
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.preflight.gather import gather_facts, look_at_pipeline
from tidegate.runs.preflight.tables import check_quarantine
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import FINAL_OUTCOMES, load_report
from tidegate.runs.reports.verdicts import find_hold, list_waiting, quote_word
from tidegate.runs.restart.recorded import KIND, Then, describe_rollback, load_rollback, record_rollback
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
from tidegate.sinks.user_code import describe_effects
from tidegate.spec.project import Project
from tidegate.table.publish.intent import pending_intents
from tidegate.table.schema import column_texts, describe_columns, extends


def look_at_rollback(project: Project, name: str, version: int) -> outputs.Rollback:
    """``tidegate rollback --dry-run``: what changes, what can become of the records in between, and what is in the way.

    Nothing is changed, not even what an earlier process began: a note says that it is finished first. Raises what
    :func:`tidegate.runs.restart.versions.look_back` does.
    """
    situation = look_at_pipeline(project, name)
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    look = look_back(paths, facts, version)
    held = _find_hindrance(situation, look)
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
        "choices": list_choices(situation, look),
        "sinks": describe_effects(paths, spec, facts.table, "partitions that change"),
        "notes": _list_notes(paths, facts, look),
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
        situation = look_at_pipeline(project, name)
        if not pending_intents(situation.paths):
            _check(situation, version, then)
    with open_rework(project, name, run_id, KIND, asked=describe_options(to_version=version, then=then)) as context:
        if not is_over(context):
            _carry_out(context, version, then)
        return context.report.to_json()


def _carry_out(context: RunContext, version: int, then: Then | None) -> None:
    look = _check(context.situation, version, then)
    if look is None:
        end_with_nothing(context, f"nothing to roll back: the table has the rows of version {version}")
        return
    for note in _list_notes(context.paths, context.situation.facts, look):
        context.report.add_note(note)
    context.save()
    # Without records in between both choices are the same one.
    if record_rollback(context, look, then if then is not None and look.increments else "leave-out"):
        recover_run(context)
        return
    context.facts = gather_facts(context.paths, context.spec)  # another program was faster: look again
    _carry_out(context, version, then)


def _check(situation: Situation, version: int, then: Then | None) -> Look | None:
    """The rollback as it would be now; None where there is nothing to roll back. Raises what is in its way."""
    look = look_back(situation.paths, situation.facts, version)
    if look.changes_nothing(then):
        return None
    hindrance = _find_hindrance(situation, look)
    if hindrance is not None:
        raise hindrance
    if then is None and look.increments:
        raise _ask_for_choice(list_choices(situation, look), situation.spec.name, look)
    if then == "reread":
        hindrance = find_reread_hindrance(situation, look)
    elif then == "leave-out":
        hindrance = find_leave_out_hindrance(situation, look)
    if hindrance is not None:
        raise hindrance
    return look


def _ask_for_choice(choices: list[outputs.RollbackChoice], name: str, look: Look) -> TidegateError:
    sentences = []
    for one in choices:
        hindrance = "" if one["hindrance"] is None else f" (not now: {one['hindrance']['message']})"
        sentences.append(f"--then {one['then']}: {'; '.join(one['does'])}{hindrance}")
    return errors.ROLLBACK_CHOICE(
        where=f"pipeline {name}",
        name=name,
        version=look.version,
        records=describe_records(look),
        choices=". Or ".join(sentences),
    )


def _find_hindrance(situation: Situation, look: Look) -> TidegateError | None:
    """What is in the way of a rollback, whatever becomes of the records in between."""
    paths, facts = situation.paths, situation.facts
    try:
        check_quarantine(paths)
    except TidegateError as error:
        return error
    if (hold := find_hold(paths, facts.unpublished)) is not None:
        where = f"run {hold.run_id} of pipeline {paths.name}"
        return errors.ROLLBACK_HELD(where=where, name=paths.name, run_id=quote_word(hold.run_id))
    if waiting := list_waiting(paths):
        run_id = waiting[0].run_id
        where = f"run {run_id} of pipeline {paths.name}"
        return errors.ROLLBACK_WAITS(where=where, name=paths.name, run_id=run_id, quoted=quote_word(run_id))
    return find_moved_records(paths, look)


def _list_notes(paths: PipelinePaths, facts: Facts, look: Look) -> list[str]:
    """What the table's own figures do not say: other columns, who else has had the rows, and what no run reads
    again."""
    notes = []
    before, after = facts.table.schema_json if facts.table is not None else "", look.restore.schema_json
    if before and not extends(after, before):
        columns = describe_columns(column_texts(before), column_texts(after, before))
        notes.append(
            f"columns: {columns}; change schema and transform back first, or the next run is refused (SCHEMA_CHANGE)"
        )
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
