"""``tidegate repair``: where checkpoint, table and spec disagree, a new checkpoint that starts where the table's log
ends.

The table's log is the authority. What it does not hold is read again from the source: files go back to the intake,
Kafka offsets go back to those of the table's last commit. Staged batches, the checkpoint and its birth are backed up,
as are data files that the log does not hold; records of those batches that already reached quarantine are taken back.
So reading them again doubles nothing. Nothing of the user's is deleted, and killed at any point the disagreement is
still there for the next repair.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError, TryAgainError
from tidegate.core.outputs import Repair
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.gate.decisions import carry_out
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.old_job import find_old_job
from tidegate.runs.preflight.quarantine import note_quarantine
from tidegate.runs.recovery.abandoned import can_be_abandoned, list_unfinished_work
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import recover
from tidegate.runs.reports.report import new_report
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.restart.damaged import (
    describe_sinks,
    describe_taking_out,
    list_damage,
    name_rebuilding,
    needs_new_table,
    rebuilding_command,
)
from tidegate.runs.restart.damaged import take_out as take_out_damaged
from tidegate.runs.restart.decided import list_undone
from tidegate.runs.restart.describe_repair import describe_abandoning, describe_next_run, describe_plan
from tidegate.runs.restart.disagreement import RESTORE, compare_state, find_disagreement, list_choices, list_stuck
from tidegate.runs.restart.new_checkpoint import abandon_begun, carry_out_repair, new_backup_folder, read_again
from tidegate.runs.restart.old_job import describe_reading, describe_undoing, undo_old_job
from tidegate.runs.restart.quarantine_mismatch import QuarantineMismatch
from tidegate.runs.restart.rebirth import pin_paths
from tidegate.runs.restart.rebuild import (
    query_keeps_state,
    rebuild_choices,
    refuse_new_checkpoint,
)
from tidegate.runs.restart.repair_plan import (
    RepairPlan,
    make_plan,
)
from tidegate.runs.restart.repair_quarantine import describe_quarantine_repair, look_at_quarantine, repair_quarantine
from tidegate.runs.restart.rollback import forget_rollback, load_rollback, publish_rollback, record_rollback
from tidegate.runs.restart.rollback_target import find_rollback_target, with_current_note
from tidegate.runs.restart.versions import look_back
from tidegate.sinks.foresee import describe_effects
from tidegate.sources.files.differences import find_differing
from tidegate.sources.files.starts import check_starts_known
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import Lease, acquire
from tidegate.table import errors as table_errors
from tidegate.table.publish.intent import is_handing_over, pending_intents

_NOT_BY_A_CHECKPOINT = (
    "PARTITION_BY_CHANGED",
    "FOREIGN_TABLE",
    "ADOPTION_UNFINISHED",
    "TABLE_FEATURE",
    "TABLE_APPEND_ONLY",
    "TABLE_LOG_UNREADABLE",
)
"""Errors that a new checkpoint does not fix: each says itself what does."""


def repair_pipeline(
    project: Project,
    name: str,
    *,
    dry_run: bool,
    rebuild: bool = False,
    verify: bool = False,
    asked: DisagreementError | None = None,
) -> Repair:
    """What disagrees, the choices, and what repair did (``dry_run``: would do).

    What a stopped run had begun is finished first; where that is all, the next run continues. ``rebuild`` sets
    table and quarantine aside and reads everything again, also when nothing disagrees; ``verify`` reads every file of
    the table, so that one with other bytes is found; ``asked`` is what is done where nothing disagrees
    (:mod:`tidegate.runs.restart.reset`). Raises DisagreementError when only a person can put it right: a torn table
    log, a ledger that is gone, a query whose state a new checkpoint would lose.
    """
    paths = project.paths(name)
    spec = as_read(load_pipeline(project, name), paths)
    if dry_run:
        return look_at_repair(project, spec, paths, rebuild, dry_run=True, verify=verify, asked=asked)[0]
    expires = project.spec.lease.expires_after
    with acquire(paths, run_id=new_run_id("repair"), command="repair", expires_after_seconds=expires) as lease:
        paths = pin_paths(paths, lease)
        is_another = is_handing_over(paths)
        _finish_begun(project, spec, paths, lease)
        if is_another:
            paths = paths.newest().pinned()
            spec = as_read(load_pipeline(project, name), paths)
        value, plan = look_at_repair(project, spec, paths, rebuild, dry_run=False, verify=verify, asked=asked)
        if plan is None and value["code"] == "QUARANTINE_BEHIND":
            repair_quarantine(paths, lease, gather_facts(paths, spec), new_backup_folder(paths))
        elif plan is None and value["code"] == "OLD_JOB_WROTE":
            undo_old_job(paths, find_old_job(paths), new_backup_folder(paths), lease)
        elif plan is None and value["code"] == "TABLE_DAMAGED":
            take_out_damaged(paths, lease, list_damage(paths, deep=verify))
            note_quarantine(paths, lease)
        elif plan is None and value["code"] is not None:
            abandon_begun(paths, lease)
        if plan is not None:
            if plan.back_to is None:
                _, lost = carry_out_repair(project, spec, paths, lease, plan)
            else:
                lost = _go_back(project, spec, paths, lease, plan.back_to)
            value["unreadable_again"] = lost
            reported = " ".join(value["next_run"])
            if unreported := [path for path in lost if path not in reported]:
                value["next_run"].append(f"does not find these files again: {', '.join(unreported)}")
        return value


def _finish_begun(project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease) -> None:
    """Do what the next run would begin with, so that nothing is read again that only had to be finished."""
    context = RunContext(project, spec, paths, lease, new_report(spec.name, new_run_id("repair")))
    try:
        facts = recover(project, paths, spec, lease)
        while carry_out(context, facts, for_repair=True):
            facts = recover(project, paths, spec, lease)
    except TryAgainError:
        raise
    except TidegateError:
        return  # a part of what disagrees, and named by it


def no_repair(name: str, found: str, *, dry_run: bool) -> Repair:
    """What the command says where nothing is done."""
    return {
        "pipeline": name,
        "dry_run": dry_run,
        "found": found,
        "code": None,
        "choices": [],
        "actions": [],
        "next_run": [],
        "unreadable_again": [],
    }


def look_at_repair(
    project: Project,
    spec: PipelineSpec,
    paths: PipelinePaths,
    rebuild: bool,
    *,
    dry_run: bool,
    verify: bool = False,
    asked: DisagreementError | None = None,
) -> tuple[Repair, RepairPlan | None]:
    """What the command says, and what is to be done, if anything; arguments as for :func:`repair_pipeline`."""
    facts = gather_facts(paths, spec, needs_log=False)
    facts, back_to = (facts, None) if rebuild or asked is not None else _find_target(paths, facts)
    found = find_disagreement(paths, facts, spec.name, deep=verify)
    value = no_repair(spec.name, "nothing disagrees", dry_run=dry_run)
    if (
        asked is None
        and not rebuild
        and found is not None
        and back_to is None
        and _keeps_checkpoint(paths, facts, found)
    ):
        return _describe_small(value, project, spec, paths, facts, found, deep=verify), None
    found = found or (errors.REBUILD() if rebuild else asked)
    if found is None:
        value["choices"] = _choices_to_continue(paths, facts, spec.name)
        value["next_run"] = [] if facts.unusable is None else [f"begins {facts.unusable.describe()}"]
        return value, None
    chosen = f"reset {spec.name} --from-beginning --confirm {spec.name}" if asked is not None and rebuild else None
    value |= {
        "found": str(found.message),
        "code": found.code,
        "choices": _list_choices(found, spec.name, chosen, back_to),
    }
    if found.code in ("REBUILD", "RESET") and not dry_run:
        value["choices"] = []  # it is chosen
    if found.code in _NOT_BY_A_CHECKPOINT and not rebuild:
        value["choices"] = [str(found.fix)]
        if dry_run:
            return value, None
        raise found
    if query_keeps_state(facts, spec) and found.code != "REBUILD":
        value["choices"] = rebuild_choices(spec.name)
        if not rebuild and dry_run:
            return value, None
        if not rebuild:
            raise refuse_new_checkpoint(found, spec.name)
    keeps_rows = False
    is_rebuilt = rebuild or facts.table is None
    effects = describe_effects(paths, spec, facts.table, "whole table") if is_rebuilt else []
    if rebuild:
        if facts.table is not None:
            check_starts_known(spec, paths)
        value["actions"].append(f"back up table and quarantine, as hidden folders next to {paths.table}")
        value["actions"] += list_undone(paths)
        keeps_rows = facts.table is not None and spec.output_mode == "append" and not query_keeps_state(facts, spec)
        facts = replace(facts, table=None)
    plan = make_plan(project, spec, paths, facts, found, rebuild, back_to)
    if storage.exists(paths.rollback):
        value["actions"].append("back up the recorded rollback: the rest of it is abandoned")
    value["actions"] += describe_plan(plan)
    value["next_run"] = describe_next_run(
        paths, plan, find_differing(project, paths, spec.file_streams, plan.again), keeps_rows=keeps_rows
    )
    value["next_run"] += effects
    _name_rebuilding(value, paths, spec, facts, plan.mismatch)
    return value, plan


def _list_choices(found: TidegateError, name: str, chosen: str | None, back_to: int | None) -> list[str]:
    choices = list_choices(found.code, name, chosen)
    if back_to is None:
        return choices
    return [
        choices[0],
        f"`tidegate repair {name}`: the table goes back to version {back_to}, then reads again what came since",
    ]


def _find_target(paths: PipelinePaths, facts: Facts) -> tuple[Facts, int | None]:
    """The version to which the table goes back, if it does; the facts know when that one cannot be read any more."""
    look = find_rollback_target(paths, facts)
    if look is None:
        return replace(facts, later=replace(facts.later, back_to=None)), None
    return facts, look.version


def _name_rebuilding(
    value: Repair, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, mismatch: QuarantineMismatch
) -> None:
    """What quarantine lacks is read again by another command, when the repair is done."""
    if not mismatch.lacking:
        return
    command = rebuilding_command(paths, spec, facts, [], of_quarantine=True).text
    rebuild_hint = f"`{command}`: reads the records again that quarantine lacks, as far as the sources still have them"
    value["choices"] = [*value["choices"], f"then {rebuild_hint}"] if value["dry_run"] else [rebuild_hint]
    value["next_run"].append(f"does not bring back what quarantine lacks: {rebuild_hint}")


def _choices_to_continue(paths: PipelinePaths, facts: Facts, name: str) -> list[str]:
    is_begun = pending_intents(paths) or facts.unpublished or facts.in_flight is not None
    return [f"run again: `tidegate run {name}` continues with what was begun"] if is_begun else []


def _keeps_checkpoint(paths: PipelinePaths, facts: Facts, found: TidegateError) -> bool:
    """Whether the checkpoint can stay: nothing is wrong except quarantine, rows of another job, files of the
    table, or publishes that can be abandoned."""
    if found.code in ("QUARANTINE_BEHIND", "OLD_JOB_WROTE", "TABLE_DAMAGED"):
        return True
    is_only_stuck = compare_state(paths, facts, paths.name) is None
    return is_only_stuck and all(can_be_abandoned(intent) for intent, _ in list_stuck(paths))


def _describe_small(
    value: Repair,
    project: Project,
    spec: PipelineSpec,
    paths: PipelinePaths,
    facts: Facts,
    found: TidegateError,
    *,
    deep: bool,
) -> Repair:
    """What the command says of a repair after which the checkpoint stays."""
    if found.code == "TABLE_DAMAGED":
        return _describe_damaged(value, spec, paths, facts, found, deep=deep)
    value |= {"found": str(found.message), "code": found.code}
    if found.code == "QUARANTINE_BEHIND":
        value["choices"] = list_choices(found.code, paths.name)
        again, mismatch = look_at_quarantine(paths, facts)
        value["actions"] = describe_quarantine_repair(again, mismatch)
        _name_rebuilding(value, paths, spec, facts, mismatch)
    elif found.code == "OLD_JOB_WROTE":
        value["choices"] = list_choices(found.code, paths.name)
        value["actions"] = describe_undoing(paths, facts.old_job)
        value["next_run"] = describe_reading(project, spec, paths)
    else:
        abandon = f"`tidegate repair {paths.name}`: abandon the unfinished work; it can be started again"
        value["choices"] = [RESTORE, abandon]
        value["actions"] = describe_abandoning(list_unfinished_work(paths))
    return value


def _describe_damaged(
    value: Repair,
    spec: PipelineSpec,
    paths: PipelinePaths,
    facts: Facts,
    found: TidegateError,
    *,
    deep: bool,
) -> Repair:
    """What the command says of files that are gone or damaged, and what it does about them. Raises the error where it
    can do nothing."""
    damages = list_damage(paths, deep=deep)
    new_table = (
        f"`tidegate repair {spec.name} --rebuild`: a new table from all that the sources still have; the old one is "
    )
    value |= {"found": str(found.message), "code": found.code, "choices": [RESTORE, f"{new_table}kept as a backup"]}
    if needs_new_table(damages):
        if not value["dry_run"]:
            found.fix = "; or ".join(value["choices"])
            raise found
        return value
    rebuilding = name_rebuilding(paths, spec, facts, damages)
    value["actions"] = describe_taking_out(paths, damages)
    if value["dry_run"]:
        then = f", then {rebuilding[0]}" if rebuilding else ""
        command = f"tidegate repair {spec.name}{' --verify' if deep else ''}"
        value["choices"].insert(1, f"`{command}`: continue without these files{then}")
    else:
        value["choices"] = rebuilding
    value["next_run"] = ["continues with the same checkpoint"]
    if rebuilding:
        value["next_run"].append(f"does not bring the rows of these files back: {rebuilding[0]}")
    value["next_run"] += describe_sinks(paths, spec, damages)
    return value


def _go_back(project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease, version: int) -> list[str]:
    """Take the table back to a version whose records are all known, as a rollback does whose records are read again:
    killed anywhere, the next run or repair resumes it."""
    abandon_begun(paths, lease)
    facts = with_current_note(gather_facts(paths, spec))
    context = RunContext(project, spec, paths, lease, new_report(spec.name, new_run_id("repair")))
    is_recorded = record_rollback(context, look_back(paths, facts, version), "reread")
    rollback = load_rollback(paths)
    if not is_recorded or rollback is None:
        raise table_errors.COMMIT_FAILED(where=str(paths.table), why="another program has changed the table meanwhile")
    publish_rollback(context, facts, rollback)
    _, lost = read_again(project, spec, paths, lease, errors.ROLLBACK())
    forget_rollback(context)
    return lost
