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
from datetime import UTC, datetime
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError, TryAgainError, catalogue
from tidegate.core.outputs import Repair
from tidegate.core.paths import PipelinePaths
from tidegate.runs.gate.decisions import carry_out
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.old_job import find_old_job
from tidegate.runs.preflight.pinned import settings_at_birth
from tidegate.runs.preflight.quarantine import note_quarantine
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.given_up import can_be_given_up, decide_to_give_up, list_begun
from tidegate.runs.recovery.hand_over import finish_work
from tidegate.runs.recovery.quarantine import send_quarantine
from tidegate.runs.recovery.recover import last_taken, recover
from tidegate.runs.reports.report import new_report
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.reports.verdicts import list_rereads
from tidegate.runs.reports.waiting import list_waiting
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
from tidegate.runs.restart.describe_repair import describe_giving_up, describe_next_run, describe_plan
from tidegate.runs.restart.disagreement import RESTORE, compare_state, find_disagreement, list_choices, list_stuck
from tidegate.runs.restart.mend_quarantine import describe_mending, look_at_quarantine, mend_quarantine, take_back
from tidegate.runs.restart.misfit import Misfit, compare_with_table, move_to_backup, take_out
from tidegate.runs.restart.old_job import describe_reading, describe_undoing, undo_old_job
from tidegate.runs.restart.rebirth import begin_anew, pin_paths, retire_query
from tidegate.runs.restart.rebuild import (
    query_keeps_state,
    rebuild_choices,
    refuse_new_checkpoint,
    set_tables_aside,
)
from tidegate.runs.restart.repair_plan import (
    RepairPlan,
    last_by_prefix,
    list_orphans,
    make_plan,
    quarantine_to_take_back,
    queries_to_end,
)
from tidegate.runs.restart.starts import starts_of_absent_sources
from tidegate.runs.restart.versions import look_back
from tidegate.runs.restart.way_back import calm, find_way_back
from tidegate.sinks.foresee import describe_effects
from tidegate.sources.files.differences import find_differing
from tidegate.sources.files.intake import restore_links, sweep_intake
from tidegate.sources.files.ledger import open_ledger, shown_path
from tidegate.sources.files.starts import check_starts_known
from tidegate.sources.files.unreadable import read_whole_again
from tidegate.spark.driver.jvm import PINNED
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import Start, as_read, new_birth
from tidegate.state.lease import Lease, acquire
from tidegate.state.published import Published, read_published, write_published
from tidegate.state.retired import record_taken_back
from tidegate.table.log.state import TableState, read_table_state
from tidegate.table.publish.intent import intent_path, is_handing_over, pending_intents
from tidegate.table.publish.replace import bring_back
from tidegate.table.upsert.folded import remove_folded

_NOT_BY_A_CHECKPOINT = (
    "PARTITION_BY_CHANGED",
    "FOREIGN_TABLE",
    "ADOPTION_UNFINISHED",
    "TABLE_FEATURE",
    "TABLE_APPEND_ONLY",
    "TABLE_LOG_UNREADABLE",
)
"""What a new checkpoint does not change: the error itself says what does."""


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

    What a run that was stopped had begun is finished first; where that is all, the next run goes on. ``rebuild`` sets
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
            mend_quarantine(paths, lease, gather_facts(paths, spec), _new_aside(paths))
        elif plan is None and value["code"] == "OLD_JOB_WROTE":
            undo_old_job(paths, find_old_job(paths), _new_aside(paths), lease)
        elif plan is None and value["code"] == "TABLE_DAMAGED":
            take_out_damaged(paths, lease, list_damage(paths, deep=verify))
            note_quarantine(paths, lease)
        elif plan is None and value["code"] is not None:
            _give_up(paths, lease)
        if plan is not None:
            _, lost = _carry_out(project, spec, paths, lease, plan)
            value["unreadable_again"] = lost
            told = " ".join(value["next_run"])
            if untold := [path for path in lost if path not in told]:
                value["next_run"].append(f"does not find these files again: {', '.join(untold)}")
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


def _give_up(paths: PipelinePaths, lease: Lease) -> None:
    for intent in list_begun(paths):
        finish_work(paths, decide_to_give_up(paths, intent, lease), lease)


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
    facts, back_to = (facts, None) if rebuild or asked is not None else _find_way_back(paths, facts)
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
    found = found or (catalogue.REBUILD() if rebuild else asked)
    if found is None:
        value["choices"] = _choices_to_go_on(paths, facts, spec.name)
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
    is_anew = rebuild or facts.table is None
    effects = describe_effects(paths, spec, facts.table, "whole table") if is_anew else []
    if rebuild:
        if facts.table is not None:
            check_starts_known(spec, paths)
        value["actions"].append(f"back up table and quarantine, as hidden folders next to {paths.table}")
        value["actions"] += list_undone(paths)
        keeps_rows = facts.table is not None and spec.output_mode == "append" and not query_keeps_state(facts, spec)
        facts = replace(facts, table=None)
    plan = make_plan(project, spec, paths, facts, found, rebuild, back_to)
    if storage.exists(paths.rollback):
        value["actions"].append("back up the rollback that was decided on: what is not done of it is given up")
    value["actions"] += describe_plan(plan)
    value["next_run"] = describe_next_run(
        paths, plan, find_differing(project, paths, spec.file_streams, plan.again), keeps_rows=keeps_rows
    )
    value["next_run"] += effects
    _name_rebuilding(value, paths, spec, facts, plan.misfit)
    return value, plan


def _list_choices(found: TidegateError, name: str, chosen: str | None, back_to: int | None) -> list[str]:
    choices = list_choices(found.code, name, chosen)
    if back_to is None:
        return choices
    return [
        choices[0],
        f"`tidegate repair {name}`: the table goes back to version {back_to}, then reads again what came since",
    ]


def _find_way_back(paths: PipelinePaths, facts: Facts) -> tuple[Facts, int | None]:
    """The version to which the table goes back, if it does; the facts know when that one cannot be read any more."""
    look = find_way_back(paths, facts)
    if look is None:
        return replace(facts, later=replace(facts.later, back_to=None)), None
    return facts, look.version


def _name_rebuilding(value: Repair, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, misfit: Misfit) -> None:
    """What quarantine lacks is read again by another command, when the repair is done."""
    if not misfit.lacking:
        return
    command = rebuilding_command(paths, spec, facts, [], of_quarantine=True).text
    way_on = f"`{command}`: reads the records again that quarantine lacks, as far as the sources still have them"
    value["choices"] = [*value["choices"], f"then {way_on}"] if value["dry_run"] else [way_on]
    value["next_run"].append(f"does not bring back what quarantine lacks: {way_on}")


def _choices_to_go_on(paths: PipelinePaths, facts: Facts, name: str) -> list[str]:
    is_begun = pending_intents(paths) or facts.owed or facts.in_flight is not None
    return [f"run again: `tidegate run {name}` goes on with what was begun"] if is_begun else []


def _keeps_checkpoint(paths: PipelinePaths, facts: Facts, found: TidegateError) -> bool:
    """Whether the checkpoint can stay: nothing is wrong but quarantine, what another job has written, files of the
    table, or publishes that can be given up."""
    if found.code in ("QUARANTINE_BEHIND", "OLD_JOB_WROTE", "TABLE_DAMAGED"):
        return True
    is_only_stuck = compare_state(paths, facts, paths.name) is None
    return is_only_stuck and all(can_be_given_up(intent) for intent, _ in list_stuck(paths))


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
        again, misfit = look_at_quarantine(paths, facts)
        value["actions"] = describe_mending(again, misfit)
        _name_rebuilding(value, paths, spec, facts, misfit)
    elif found.code == "OLD_JOB_WROTE":
        value["choices"] = list_choices(found.code, paths.name)
        value["actions"] = describe_undoing(paths, facts.old_job)
        value["next_run"] = describe_reading(project, spec, paths)
    else:
        give_up = f"`tidegate repair {paths.name}`: give up what was begun; it can be started again"
        value["choices"] = [RESTORE, give_up]
        value["actions"] = describe_giving_up(list_begun(paths))
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
    anew = f"`tidegate repair {spec.name} --rebuild`: a new table from all that the sources still have; the old one is "
    value |= {"found": str(found.message), "code": found.code, "choices": [RESTORE, f"{anew}kept as a backup"]}
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
        value["choices"].insert(1, f"`{command}`: go on without these files{then}")
    else:
        value["choices"] = rebuilding
    value["next_run"] = ["goes on with the checkpoint as it is"]
    if rebuilding:
        value["next_run"].append(f"does not bring the rows of these files back: {rebuilding[0]}")
    value["next_run"] += describe_sinks(paths, spec, damages)
    return value


def read_again(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease, found: DisagreementError
) -> tuple[PipelinePaths, list[str]]:
    """Begin a new query where the table's log ends, as a repair does; its paths, and the files that are gone. ``found``
    is why.

    Killed anywhere it may be called again.
    """
    plan = make_plan(project, spec, paths, gather_facts(paths, spec), found, rebuild=False)
    return _carry_out(project, spec, paths, lease, plan)


def _carry_out(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease, plan: RepairPlan
) -> tuple[PipelinePaths, list[str]]:
    """Do it; the paths of the new query, and the files that are gone and cannot be read again, those of quarantined
    records among them.

    The query is ended first, so that nothing of it can come late any more, and the new birth comes last but for the
    note: until then the disagreement is still found. The lease is looked at before each step: a repair that slept
    while another one did the same must not undo what was read since.
    """
    if plan.back_to is not None:
        return _go_back(project, spec, paths, lease, plan.back_to)
    aside = _new_aside(paths)
    gone: list[str] = []
    if not plan.rebuild:
        _give_up(paths, lease)
        plan = replace(plan, taken_back=quarantine_to_take_back(paths, plan.settled))
        plan = replace(plan, misfit=compare_with_table(paths, last_by_prefix(paths, plan.settled)))
        gone = send_quarantine(paths, plan.facts, plan.settled, aside, lease)
    _end_queries(paths, plan, lease)
    if plan.rebuild:
        set_tables_aside(paths, lease)
    lease.check()
    for query_id in sorted(plan.rolled_back):
        record_taken_back(paths, query_id, plan.settled[query_id])
    folder = aside
    storage.make_folder(folder)
    for intent in pending_intents(paths):
        move_to_backup(intent_path(paths, intent), folder / intent_path(paths, intent).name, lease)
    # Before orphans are looked for: a process that is asleep over a move finds its source gone, or is found.
    _move_staging(paths, plan, folder, lease)
    if not plan.rebuild:
        _clear_tables(paths, lease, plan, folder)
    lost = _put_back(project, spec, paths, plan.settled, lease) if plan.has_files else []
    for manifest in plan.unpublished:
        source = paths.manifest(manifest.query_id, manifest.batch_id)
        move_to_backup(source, folder / f"{manifest.query_id}-{manifest.batch_id}.json", lease)
    for query_id, manifests in plan.facts.manifests.items():
        lease.check()
        remove_folded(paths, query_id, manifests[-1].batch_id)
    rereads = {paths.decision(one.run_id) for one in list_rereads(paths)}  # these are what is being done
    for aside, word in ((paths.decisions, "decision"), (paths.verdicts, "verdict")):
        for path in sorted(set(storage.list_folder(aside, "*.json")) - rereads):
            move_to_backup(path, folder / f"{word}-{path.name}", lease)
            _give_back(path, folder / f"{word}-{path.name}", set(plan.settled))
    if plan.found.code != "ROLLBACK":  # one that was recorded, and did not come to change the table, is over
        move_to_backup(paths.rollback, folder / paths.rollback.name, lease)
    sources: dict[str, Start] = {source: plan.starts.get(source, {}) for source in spec.streams}
    sources |= {} if plan.rebuild else starts_of_absent_sources(paths, spec, plan.facts)
    settings = settings_at_birth(project, spec) if plan.rebuild else _settings(plan.facts)
    begun = begin_anew(paths, new_birth(paths, spec, sources, settings), why=f"repair: {plan.found.code}", lease=lease)
    lease.check()
    # Last: as long as the old note stands, a table that disagrees with it is found.
    _note_table(begun, spec, read_table_state(paths.table))
    note_quarantine(paths, lease)
    return begun, lost + gone


def _go_back(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease, version: int
) -> tuple[PipelinePaths, list[str]]:
    """Take the table back to a version whose records are all known, as a rollback does whose records are read again:
    killed anywhere, the next run or repair resumes it."""
    from tidegate.runs.restart.rollback import forget_rollback, load_rollback, publish_rollback, record_rollback

    _give_up(paths, lease)
    facts = calm(gather_facts(paths, spec))
    context = RunContext(project, spec, paths, lease, new_report(spec.name, new_run_id("repair")))
    is_recorded = record_rollback(context, look_back(paths, facts, version), "reread")
    rollback = load_rollback(paths)
    if not is_recorded or rollback is None:
        raise catalogue.COMMIT_FAILED(where=str(paths.table), why="another program has changed the table meanwhile")
    publish_rollback(context, facts, rollback)
    done = read_again(project, spec, paths, lease, catalogue.ROLLBACK())
    forget_rollback(context)
    return done


def _new_aside(paths: PipelinePaths) -> Path:
    return paths.set_aside / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")


def _end_queries(paths: PipelinePaths, plan: RepairPlan, lease: Lease) -> None:
    if plan.rebuild and not all(map(_is_readable, (paths.table, paths.quarantine))):
        set_tables_aside(paths, lease)  # such a log takes no word of the end of a query; the state folder has it
    for query_id in sorted(queries_to_end(paths, plan.facts)):
        retire_query(paths, query_id, lease=lease, keep_staged=False)


def _is_readable(table_path: Path) -> bool:
    try:
        read_table_state(table_path)
    except DisagreementError:
        return False
    return True


def _move_staging(paths: PipelinePaths, plan: RepairPlan, folder: Path, lease: Lease) -> None:
    """Back up what is staged, but for increments that wait alone and whose records are not read again. The others that
    wait are backed up with it: nobody may publish them beside what is read again."""
    kept = set()
    for one in list_waiting(paths):
        if all(manifest.batch_id <= plan.settled.get(manifest.query_id, -1) for manifest in one.manifests):
            kept |= {paths.state / attempt for attempt in one.attempts}
        else:
            path = paths.waiting_increment(one.run_id)
            move_to_backup(path, folder / f"waiting-{path.name}", lease)
    for query in storage.list_folders(paths.staging):
        if not any(attempt.is_relative_to(query) for attempt in kept):
            move_to_backup(query, folder / "staging" / query.name, lease)
            continue
        for batch in storage.list_folders(query):
            for attempt in storage.list_folders(batch):
                if attempt not in kept:
                    move_to_backup(attempt, folder / "staging" / query.name / batch.name / attempt.name, lease)
            storage.remove_empty_folder(batch)


def _clear_tables(paths: PipelinePaths, lease: Lease, plan: RepairPlan, folder: Path) -> None:
    """Take out of readers' sight what the logs do not hold, and bring back what a publish had begun to replace."""
    for table_path in (paths.table, paths.quarantine):
        for copy in storage.list_tree(table_path, f".*{storage.COPY_SUFFIX}"):
            lease.check()
            storage.remove(copy)
    lease.check()
    if plan.taken_back:
        take_back(paths, list(plan.taken_back))
    take_out(paths, lease, plan.misfit, folder)
    for table_path in (paths.table, paths.quarantine):
        aside = folder / ("table" if table_path == paths.table else "quarantine")
        for name in list_orphans(paths, table_path):
            move_to_backup(table_path / name, aside / name, lease)
    bring_back(paths.table, app_id=new_run_id("repair"), check_lease=lease.check)


def _give_back(path: Path, moved: Path, ended: set[str]) -> None:
    """Undo the move of a verdict or decision that is on a query which began while this process slept over it: run ids
    are used again."""
    value = storage.read_json(moved)
    if value is not None and not {query for query, _ in value["batches"]} <= ended:
        storage.put_if_absent(path, storage.read(moved))


def _put_back(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, settled: dict[str, int], lease: Lease
) -> list[str]:
    """Give the files that must be read again their links; the paths of those that are gone."""
    gone: list[str] = []
    with open_ledger(paths, create=True, lease=lease) as ledger:
        ledger.untake(settled)
        for name, source in spec.file_streams.items():
            lease.check()
            read_whole_again(paths, name, ledger)
            lost = list(restore_links(project, paths, name, source, ledger).lost)
            sweep_intake(paths, name, ledger, keep_staged=False)
            gone += [shown_path(path) for path in lost]
    return gone


def _settings(facts: Facts) -> dict[str, str]:
    # What an earlier version did not pin yet is added: without it the new checkpoint would be refused like the old one.
    return dict(PINNED) if facts.birth is None else {**PINNED, **facts.birth.settings}


def _note_table(paths: PipelinePaths, spec: PipelineSpec, table: TableState | None) -> None:
    if table is None:
        storage.remove_tree(paths.published)
        return
    note = Published(table.table_id, table.version, None, -1, last_taken(paths, spec))
    before = read_published(paths)
    goes_on = before is not None and before.table_id == table.table_id and before.version <= table.version
    # An older copy of the table may be in its place: the notes of what it had reached before must not outrank it. Where
    # the table only went on, a process that slept here must not take the notes of its successors away.
    write_published(paths, note, only=not goes_on)
