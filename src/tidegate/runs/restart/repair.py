"""``tidegate repair``: where checkpoint, table and spec disagree, a new checkpoint that starts where the table's log
ends.

The table's log is the authority. What it does not hold is read again from the source: files go back to the intake,
Kafka offsets go back to those of the table's last commit. Staged batches, the checkpoint and its birth are backed up,
as are data files that the log does not hold; records of those batches that already reached quarantine are taken back.
So reading them again doubles nothing. Nothing of the user's is deleted, and killed at any point the disagreement is
still there for the next repair.

``tidegate reset`` is a repair that a person asked for where nothing disagrees. It shows its plan first, and acts only
when the pipeline's name is given once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError, UsageError
from tidegate.core.outputs import Repair
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.runs import errors
from tidegate.runs.gate.decisions import carry_out
from tidegate.runs.preflight.facts import Facts, Situation, query_keeps_state
from tidegate.runs.preflight.gather import gather_facts, look_at_pipeline
from tidegate.runs.preflight.table_log import find_old_job
from tidegate.runs.preflight.tables import note_quarantine
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import recover
from tidegate.runs.recovery.side_jobs import can_be_abandoned, describe_work, list_unfinished_work
from tidegate.runs.reports.report import new_report, new_run_id
from tidegate.runs.reports.verdicts import WAITED, find_hold, list_waiting
from tidegate.runs.restart.disagreement import (
    RESTORE,
    compare_state,
    find_disagreement,
    list_choices,
    list_stuck,
    refuse_new_checkpoint,
    state_needed,
)
from tidegate.runs.restart.new_query import pin_paths
from tidegate.runs.restart.recorded import forget_rollback, load_rollback, publish_rollback, record_rollback
from tidegate.runs.restart.repair_plan import QuarantineMismatch, RepairPlan, make_plan
from tidegate.runs.restart.repair_steps import (
    abandon_begun,
    carry_out_repair,
    describe_quarantine_repair,
    look_at_quarantine,
    new_backup_folder,
    read_again,
    repair_quarantine,
)
from tidegate.runs.restart.table_repair import (
    describe_reading,
    describe_sinks,
    describe_taking_out,
    describe_undoing,
    list_damage,
    name_rebuilding,
    rebuilding_command,
    undo_old_job,
)
from tidegate.runs.restart.table_repair import take_out as take_out_damaged
from tidegate.runs.restart.versions import find_rollback_target, look_back, with_current_note
from tidegate.sinks.user_code import describe_effects
from tidegate.sources.files.differences import IS_GONE, find_differing
from tidegate.sources.files.findings import check_starts_known
from tidegate.sources.files.ledger import LedgerRow
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import Lease, acquire
from tidegate.state.open_state import describe_open_state, read_open_state
from tidegate.table import errors as table_errors
from tidegate.table.log.files import CommitInfo
from tidegate.table.log.state import EXCLUDED, ROLLED_BACK_TO, has_log, list_data_files, read_commit_metadata, read_log
from tidegate.table.publish.intent import REPLACES, PublishIntent, is_handing_over, pending_intents
from tidegate.table.publish.origins import EDITED, read_origins
from tidegate.table.publish.plan import REWORK

_NOT_BY_A_CHECKPOINT = (
    "PARTITION_BY_CHANGED",
    "FOREIGN_TABLE",
    "ADOPTION_UNFINISHED",
    "TABLE_FEATURE",
    "TABLE_LOG_UNREADABLE",
)
"""Errors that a new checkpoint does not fix: each says itself what does."""


_REQUESTED = {
    "REBUILD": "nothing disagrees; a new table was requested",
    "RESET": "nothing disagrees; a new checkpoint was requested",
}


@dataclass(frozen=True)
class Request:
    """What a repair is to do.

    ``rebuild`` sets table and quarantine aside and reads everything again, also when nothing disagrees; ``verify``
    reads every file of the table, so that one with other bytes is found; ``is_reset``: a new checkpoint is begun also
    when nothing disagrees.
    """

    dry_run: bool
    rebuild: bool = False
    verify: bool = False
    is_reset: bool = False

    @property
    def begins_anew(self) -> bool:
        """Whether a new checkpoint is begun in any case."""
        return self.rebuild or self.is_reset


def repair_pipeline(
    project: Project, name: str, *, dry_run: bool, rebuild: bool = False, verify: bool = False
) -> Repair:
    """What disagrees, the choices, and what repair did (``dry_run``: would do); options as for :class:`Request`.

    What a stopped run had begun is finished first; where that is all, the next run continues. Raises DisagreementError
    when only a person can put it right: a torn table log, a ledger that is gone, a query whose state a new checkpoint
    would lose.
    """
    return _repair(project, name, Request(dry_run, rebuild, verify))


def _repair(project: Project, name: str, request: Request) -> Repair:
    paths = project.paths(name)
    spec = as_read(load_pipeline(project, name), paths)
    if request.dry_run:
        return look_at_repair(project, spec, paths, request)[0]
    expires = project.spec.lease.expires_after
    with acquire(paths, run_id=new_run_id("repair"), command="repair", expires_after_seconds=expires) as lease:
        paths = pin_paths(paths, lease)
        is_another = is_handing_over(paths)
        _finish_begun(project, spec, paths, lease)
        if is_another:
            paths = paths.newest().pinned()
            spec = as_read(load_pipeline(project, name), paths)
        context = RunContext(project, spec, paths, lease, new_report(name, new_run_id("repair")))
        value, plan = look_at_repair(project, spec, paths, request)
        if plan is None and value["code"] == "QUARANTINE_BEHIND":
            repair_quarantine(paths, lease, gather_facts(paths, spec), new_backup_folder(paths))
        elif plan is None and value["code"] == "OLD_JOB_WROTE":
            undo_old_job(paths, find_old_job(paths), new_backup_folder(paths), lease)
        elif plan is None and value["code"] == "TABLE_DAMAGED":
            take_out_damaged(paths, lease, list_damage(paths, deep=request.verify))
            note_quarantine(paths, lease)
        elif plan is None and value["code"] is not None:
            abandon_begun(paths, lease)
        if plan is not None:
            if plan.back_to is None:
                _, lost = carry_out_repair(context, plan)
            else:
                lost = _go_back(context, plan.back_to)
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
    project: Project, spec: PipelineSpec, paths: PipelinePaths, request: Request
) -> tuple[Repair, RepairPlan | None]:
    """What the command says, and what is to be done, if anything."""
    facts = gather_facts(paths, spec, needs_log=False)
    facts, back_to = (facts, None) if request.begins_anew else _find_target(paths, facts)
    situation = Situation(project, spec, paths, facts)
    found = find_disagreement(paths, facts, spec.name, deep=request.verify)
    value = no_repair(spec.name, "nothing disagrees", dry_run=request.dry_run)
    if not request.begins_anew:
        if found is None:
            value["choices"] = _choices_to_continue(paths, facts, spec.name)
            value["next_run"] = [] if facts.unusable is None else [f"begins {facts.unusable.describe()}"]
            return value, None
        if back_to is None and _keeps_checkpoint(paths, facts, found):
            return _describe_small(value, situation, found, deep=request.verify), None
    why = found.code if found is not None else "REBUILD" if request.rebuild else "RESET"
    value |= {"found": _REQUESTED[why] if found is None else str(found.message), "code": why}
    if found is not None or request.dry_run:  # else it is chosen
        value["choices"] = _list_choices(why, request, spec.name, back_to)
    refusal = None if why == "REBUILD" else _find_refusal(value, situation, found, request)
    if refusal is not None:
        if request.dry_run:
            return value, None
        raise refusal
    keeps_rows = request.rebuild and _list_rebuilding(value, situation)
    asked = replace(situation, facts=replace(facts, table=None)) if request.rebuild else situation
    plan = make_plan(asked, why, found, rebuild=request.rebuild, back_to=back_to)
    if storage.exists(paths.rollback):
        value["actions"].append("back up the recorded rollback: the rest of it is abandoned")
    value["actions"] += describe_plan(plan)
    differing = find_differing(project, paths, spec.file_streams, plan.again)
    value["next_run"] = describe_next_run(situation, plan, differing, keeps_rows=keeps_rows)
    if request.rebuild or facts.table is None:
        value["next_run"] += describe_effects(paths, spec, facts.table, "whole table")
    _name_rebuilding(value, asked, plan.mismatch)
    return value, plan


def _find_refusal(
    value: Repair, situation: Situation, found: TidegateError | None, request: Request
) -> TidegateError | None:
    """Why a new checkpoint settles nothing, or would lose state; the choices are those of this case then."""
    paths, facts, name = situation.paths, situation.facts, situation.spec.name
    if found is not None and found.code in _NOT_BY_A_CHECKPOINT and not request.rebuild:
        value["choices"] = [str(found.fix)]
        return found
    if not query_keeps_state(facts, situation.spec):
        return None
    value["choices"] = [one.format(name=name) for one in errors.REBUILD_CHOICES]
    if request.rebuild:
        return None
    return _lose_state(paths, facts, name) if found is None else refuse_new_checkpoint(found, name)


def _list_rebuilding(value: Repair, situation: Situation) -> bool:
    """Add what a rebuild does; whether the table that it backs up has rows that are each of one record."""
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    if facts.table is not None:
        check_starts_known(spec, paths)
    value["actions"].append(f"back up table and quarantine, as hidden folders next to {paths.table}")
    value["actions"] += list_undone(paths)
    return facts.table is not None and spec.output_mode == "append" and not query_keeps_state(facts, spec)


def _list_choices(why: str, request: Request, name: str, back_to: int | None) -> list[str]:
    is_chosen = request.is_reset and request.rebuild
    choices = list_choices(why, name, f"reset {name} --from-beginning --confirm {name}" if is_chosen else None)
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


def _name_rebuilding(value: Repair, situation: Situation, mismatch: QuarantineMismatch) -> None:
    """What quarantine lacks is read again by another command, when the repair is done."""
    if not mismatch.lacking:
        return
    command = rebuilding_command(situation.paths, situation.spec, situation.facts, [], of_quarantine=True).text
    rebuild_hint = f"`{command}`: reads the records again that quarantine lacks, as far as the sources still have them"
    value["choices"] = [*value["choices"], f"then {rebuild_hint}"] if value["dry_run"] else [rebuild_hint]
    value["next_run"].append(f"does not bring back what quarantine lacks: {rebuild_hint}")


def _choices_to_continue(paths: PipelinePaths, facts: Facts, name: str) -> list[str]:
    is_begun = pending_intents(paths) or facts.unpublished or facts.in_flight is not None
    return [f"run again: `tidegate run {name}` continues with what was begun"] if is_begun else []


def _keeps_checkpoint(paths: PipelinePaths, facts: Facts, found: TidegateError) -> bool:
    """Return whether the checkpoint can stay: nothing is wrong except quarantine, rows of another job, files of the
    table, or publishes that can be abandoned."""
    if found.code in ("QUARANTINE_BEHIND", "OLD_JOB_WROTE", "TABLE_DAMAGED"):
        return True
    is_only_stuck = compare_state(paths, facts, paths.name) is None
    return is_only_stuck and all(can_be_abandoned(intent) for intent, _ in list_stuck(paths))


def _describe_small(value: Repair, situation: Situation, found: TidegateError, *, deep: bool) -> Repair:
    """What the command says of a repair after which the checkpoint stays."""
    paths, facts = situation.paths, situation.facts
    value |= {"found": str(found.message), "code": found.code, "choices": list_choices(found.code, paths.name)}
    if found.code == "TABLE_DAMAGED":
        _describe_damaged(value, situation, found, deep=deep)
    elif found.code == "QUARANTINE_BEHIND":
        again, mismatch = look_at_quarantine(paths, facts)
        value["actions"] = describe_quarantine_repair(again, mismatch)
        _name_rebuilding(value, situation, mismatch)
    elif found.code == "OLD_JOB_WROTE":
        value["actions"] = describe_undoing(paths, facts.old_job)
        value["next_run"] = describe_reading(situation.project, situation.spec, paths)
    else:
        abandon = f"`tidegate repair {paths.name}`: abandon the unfinished work; it can be started again"
        value["choices"] = [RESTORE, abandon]
        value["actions"] = describe_abandoning(list_unfinished_work(paths))
    return value


def _describe_damaged(value: Repair, situation: Situation, found: TidegateError, *, deep: bool) -> None:
    """What the command says of files that are gone or damaged, and what it does about them. Raises the error where it
    can do nothing."""
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    damages = list_damage(paths, deep=deep)
    if any(one.kind.startswith("commit") for found_there in damages.values() for one in found_there):
        if not value["dry_run"]:
            found.fix = "; or ".join(value["choices"])
            raise found
        return
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


def _go_back(context: RunContext, version: int) -> list[str]:
    """Take the table back to a version whose records are all known, as a rollback does whose records are read again:
    killed anywhere, the next run or repair resumes it."""
    abandon_begun(context.paths, context.lease)
    facts = with_current_note(gather_facts(context.paths, context.spec))
    is_recorded = record_rollback(context, look_back(context.paths, facts, version), "reread")
    rollback = load_rollback(context.paths)
    if not is_recorded or rollback is None:
        why = "another program has changed the table meanwhile"
        raise table_errors.COMMIT_FAILED(where=str(context.paths.table), why=why)
    publish_rollback(context, facts, rollback)
    _, lost = read_again(context, "ROLLBACK")
    forget_rollback(context)
    return lost


def reset_pipeline(project: Project, name: str, *, from_beginning: bool, dry_run: bool, confirm: str | None) -> Repair:
    """The plan (``dry_run``), or what was done. ``from_beginning`` sets table and quarantine aside and reads everything
    again; without it the new checkpoint starts where the table's log ends, and the table stays.

    Raises UsageError RESET_UNCONFIRMED, with the plan, unless ``confirm`` is the pipeline's name; STATE_NEEDED for a
    query with state that is to start where it stopped; what :func:`repair_pipeline` does.
    """
    situation = look_at_pipeline(project, name, needs_log=not from_beginning)
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    if facts.birth is None and not facts.checkpoint.exists and not has_log(paths.table):
        return no_repair(name, "it has not run yet, and there is no checkpoint to reset", dry_run=dry_run)
    if not from_beginning and query_keeps_state(facts, spec):
        raise _lose_state(paths, facts, name)
    request = Request(dry_run=True, rebuild=from_beginning, is_reset=True)
    value, plan = look_at_repair(project, spec, paths, request)
    if facts.table is not None and not from_beginning:
        kept = f"keep the table as it is, at version {facts.table.version}, and what is in quarantine"
        value["actions"].append(kept)
    value["next_run"] += _describe_more(situation, plan, from_beginning)
    if dry_run:
        return value
    if confirm != name:
        option = " --from-beginning" if from_beginning else ""
        plan_text = "; ".join([*value["actions"], *(f"the next run {one}" for one in value["next_run"])])
        raise errors.RESET_UNCONFIRMED(where=f"pipeline {name}", name=name, plan=plan_text, option=option)
    return _repair(project, name, replace(request, dry_run=False))


def _lose_state(paths: PipelinePaths, facts: Facts, name: str) -> UsageError:
    note = read_open_state(paths, facts.query_id)
    kept = "how much of it, no run has noted"
    if note is not None:
        windows = count_of(len(describe_open_state(note)["open_windows"]), "open window")
        kept = f"{count_of(note.rows, 'row')}, {windows}, {count_of(note.memory_bytes, 'byte')}"
    records, why = "what is not published yet", "a new checkpoint that starts where this one stopped would lose it"
    return state_needed(name, records, why, kept=f" ({kept})")


def _describe_more(situation: Situation, plan: RepairPlan | None, from_beginning: bool) -> list[str]:
    """What the next run does with state and held increments, and what the sources no longer have."""
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    sentences = []
    if from_beginning:
        sentences.append(
            "builds state again from what is read" if query_keeps_state(facts, spec) else "has no state to build"
        )
    if (hold := find_hold(paths, facts.unpublished)) is not None:
        sentences.append(f"reads again and judges again what is held under run {hold.run_id}")
    return sentences


_NAMED_AT_MOST = 20


def describe_abandoning(begun: Sequence[PublishIntent]) -> list[str]:
    """The side jobs that are abandoned."""
    return [
        f"abandon {describe_work(intent)}, which was stopped half-way: the table, and quarantine, have what they had "
        "before it"
        for intent in begun
    ]


def describe_plan(plan: RepairPlan) -> list[str]:
    """What the repair does, a sentence for each step."""
    sentences = describe_abandoning(plan.begun)
    if plan.back_to is not None:
        sentences.append(
            f"take the table back to version {plan.back_to}, the newest of which the state folder knows all records; "
            "versions in between can be read as long as `maintenance.keep_versions` keeps them"
        )
    sentences += ["end the query in the logs, and leave its checkpoint where it is, unused"]
    if plan.unpublished:
        count, records = len(plan.unpublished), sum(manifest.read for manifest in plan.unpublished)
        sentences.append(f"back up {count_of(count, 'staged batch', 'staged batches')} ({count_of(records, 'record')})")
    if plan.taken_back:
        sentences.append(f"take {count_of(len(plan.taken_back), 'file')} of those batches out of quarantine")
    sentences += plan.mismatch.describe()
    if plan.orphans:
        files = count_of(plan.orphans, "data file")
        sentences.append(f"back up {files} that no log holds, or will no longer hold")
    if plan.hidden:
        names = "a new plain name" if plan.hidden == 1 else "new plain names"
        sentences.append(f"give {count_of(plan.hidden, 'data file')} {names}, which a publish had begun to replace")
    return sentences


def describe_next_run(
    situation: Situation, plan: RepairPlan, differing: Sequence[tuple[LedgerRow, str]], *, keeps_rows: bool
) -> list[str]:
    """What comes of the repair. ``differing`` are files that no longer hold what was read, ``keeps_rows`` is whether
    the table that is backed up has rows that are each of one record."""
    paths = situation.paths
    sentences = ["begins a new checkpoint"]
    gone = [(row, why) for row, why in differing if why.endswith(IS_GONE)]
    if there := len(plan.again) - len(gone):
        sentences.append(f"reads {count_of(there, 'file')} that the table's log does not hold")
    if gone:
        names = list_first([why.removesuffix(f" {IS_GONE}") for _, why in gone], _NAMED_AT_MOST, "; ")
        lost = _describe_lost_rows(paths, plan.again, [row for row, _ in gone]) if keeps_rows else ""
        sentences.append(f"does not find {count_of(len(gone), 'file')} of those that were read: {names}{lost}")
    if changed := [why for _, why in differing if not why.endswith(IS_GONE)]:
        names = list_first(changed, _NAMED_AT_MOST, "; ")
        sentences.append(f"finds these changed since they were read: {names}")
    sentences += _describe_waiting(paths, plan)
    sources = open_sources(situation.project, paths, situation.spec)
    for name, start in plan.starts.items():
        sentences.append(f"starts source {name} at {json.dumps(start['offsets'])}")
        try:
            if missing := sources[name].find_gone(start):
                sentences.append(f"does not find again: {list_first(missing, _NAMED_AT_MOST, '; ')}")
        except TidegateError as error:
            sentences.append(f"source {name} cannot be asked now what it still has ({error.code})")
    return sentences


def _describe_waiting(paths: PipelinePaths, plan: RepairPlan) -> list[str]:
    """The deferred increments that are read again. Without this line nobody knows that their bad records can hold
    the good ones, or be published with them."""
    again = [
        one
        for one in list_waiting(paths)
        if any(manifest.batch_id > plan.settled.get(manifest.query_id, -1) for manifest in one.manifests)
    ]
    return [
        f"reads run {one.run_id} ({count_of(sum(manifest.read for manifest in one.manifests), 'record')}, deferred) "
        "again together with the others, and the gate judges all of them as one increment; a discard before that does "
        "not keep these records out: correct the source or the suite first"
        for one in again
    ]


def _describe_lost_rows(paths: PipelinePaths, again: Sequence[LedgerRow], gone: Sequence[LedgerRow]) -> str:
    """How many rows of the table cannot be built again, by the batches that its files are of."""
    batches = {(str(row.query_id)[:8], row.batch_id) for row in gone}
    others = sum((str(row.query_id)[:8], row.batch_id) in batches for row in again) - len(gone)
    files = list_data_files(paths.table)
    origins = read_origins(paths.table, [file.path for file in files])
    rows = sum(file.rows for file in files if origins.get(file.path, frozenset()) & batches)
    if not others:
        return f"; {count_of(rows, 'row')} of the table came of that"
    return (
        f"; at most {count_of(rows, 'row')} of the table came of that: so many are of the batches that "
        f"had it and {count_of(others, 'file')} more"
    )


def list_undone(paths: PipelinePaths) -> list[str]:
    """What reading all sources from the beginning undoes of it, with counts, if the log has them."""
    try:
        return _list_undone(paths)
    except (TidegateError, OSError, ValueError) as error:
        return [f"undo decisions on records; the table's log does not say which ({type(error).__name__})"]


def _list_undone(paths: PipelinePaths) -> list[str]:
    discarded: list[int] = []
    left_out = left_rows = edited = 0
    is_refreshed = False
    for info in _walk(paths):
        if EXCLUDED in info:
            excluded = json.loads(info[EXCLUDED])
            left_out, left_rows = left_out + int(excluded["records"]), left_rows + int(excluded["rows"])
        elif _is_discarded(info):
            discarded.append(int(json.loads(info.get("tidegate.rows", "{}")).get("read", 0)))
        edited += 0 if is_refreshed else int(info.get(EDITED, 0))
        is_refreshed = is_refreshed or REPLACES in info
    sentences = []
    if discarded:
        records = count_of(sum(discarded), "record")
        sentences.append(f"read again, and judge again, {count_of(len(discarded), 'discarded increment')} ({records})")
    if left_out:
        records, rows = count_of(left_out, "record"), count_of(left_rows, "row")
        sentences.append(f"read again, and judge again, {records} that a rollback excluded ({rows})")
    if edited:
        sentences.append(f"read as the source has it what was edited and replayed: {count_of(edited, 'record')}")
    return sentences


def _walk(paths: PipelinePaths) -> Iterator[CommitInfo]:
    """The commits that the table's rows come from, newest first; a rollback, then the version that it went back to."""
    if not has_log(paths.table):
        return
    number = read_log(paths.table).version
    while number >= 0:
        info = read_commit_metadata(paths.table, number)
        yield info
        number = int(info.get(ROLLED_BACK_TO, number - 1))


def _is_discarded(info: CommitInfo) -> bool:
    """Return whether the commit passes over a discarded increment, deferred or not."""
    is_on_increment = WAITED in info or (REWORK not in info and "tidegate.query_id" in info)
    return info.get("tidegate.outcome") == "discarded" and is_on_increment
