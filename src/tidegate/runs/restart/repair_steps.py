"""A new checkpoint that starts where the table's log ends: what a repair, a rollback and a reread carry out.

Records that the table's log does not hold are read again from the source: files go back to the intake, Kafka offsets
go back to those of the table's last commit. Staged batches, the checkpoint and its birth record are backed up, as are
data files that the log does not hold. Every step may be repeated.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.tables import note_quarantine
from tidegate.runs.recovery.after_commit import send_quarantine
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import last_taken
from tidegate.runs.recovery.side_jobs import finish_work, list_unfinished_work
from tidegate.runs.reports.report import new_run_id
from tidegate.runs.reports.verdicts import list_rereads, list_waiting
from tidegate.runs.restart.new_query import begin_new_query, retire_query, settings_at_birth
from tidegate.runs.restart.repair_plan import (
    QuarantineMismatch,
    RepairPlan,
    compare_with_table,
    known_queries,
    last_by_prefix,
    list_orphans,
    make_plan,
    move_to_backup,
    quarantine_to_take_back,
    queries_to_end,
    remove_files,
    starts_of_absent_sources,
    take_out,
)
from tidegate.sources.files.intake import restore_links, sweep_intake
from tidegate.sources.files.ledger import open_ledger, shown_path
from tidegate.sources.files.unreadable import read_whole_again
from tidegate.spark.driver.jvm import PINNED
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start, new_birth
from tidegate.state.lease import Lease
from tidegate.state.published import Published, read_published, read_retired, record_taken_back, write_published
from tidegate.table.log.commit import retire_in_log
from tidegate.table.log.state import DataFile, TableState, read_table_state, settled_batches
from tidegate.table.publish.intent import intent_path, pending_intents
from tidegate.table.publish.origins import TAKEN_BACK
from tidegate.table.publish.replace import bring_back
from tidegate.table.upsert.folded import remove_folded


def abandon_begun(paths: PipelinePaths, lease: Lease) -> None:
    """Abandon every publish of a side job that was begun and not finished."""
    for intent in list_unfinished_work(paths):
        lease.check()
        abandoned = replace(intent, given_up=True)
        storage.replace(intent_path(paths, abandoned), storage.dump_json(abandoned, indent=None))
        finish_work(paths, abandoned, lease)


def read_again(context: RunContext, why: Literal["ROLLBACK", "REREAD"]) -> tuple[PipelinePaths, list[str]]:
    """Begin a new query where the table's log ends, as a repair does; its paths, and the files that are gone. May be
    repeated."""
    facts = gather_facts(context.paths, context.spec)
    plan = make_plan(Situation(context.project, context.spec, context.paths, facts), why)
    return carry_out_repair(context, plan)


def carry_out_repair(context: RunContext, plan: RepairPlan) -> tuple[PipelinePaths, list[str]]:
    """Do it; the paths of the new query, and the files that are gone and cannot be read again, those of quarantined
    records among them.

    The query is ended first, so that nothing of it can come late any more, and the new birth comes last but for the
    note: until then the disagreement is still found. The lease is checked before each step: a stale repair,
    while another one did the same, must not undo what was read since.
    """
    project, spec, paths, lease = context.project, context.spec, context.paths, context.lease
    folder = new_backup_folder(paths)
    gone: list[str] = []
    if not plan.rebuild:
        abandon_begun(paths, lease)
        plan = replace(plan, taken_back=quarantine_to_take_back(paths, plan.settled))
        plan = replace(plan, mismatch=compare_with_table(paths, last_by_prefix(paths, plan.settled)))
        gone = send_quarantine(paths, plan.facts, plan.settled, folder, lease)
    _end_queries(paths, plan, lease)
    if plan.rebuild:
        set_tables_aside(paths, lease)
    lease.check()
    for query_id in sorted(plan.rolled_back):
        record_taken_back(paths, query_id, plan.settled[query_id])
    storage.make_folder(folder)
    for intent in pending_intents(paths):
        move_to_backup(intent_path(paths, intent), folder / intent_path(paths, intent).name, lease)
    # Before orphans are looked for: a stale process in the middle of a move finds its source gone, or is found.
    _move_staging(paths, plan, folder, lease)
    if not plan.rebuild:
        _clear_tables(paths, lease, plan, folder)
    lost = _put_back(project, spec, paths, plan.settled, lease) if spec.file_streams else []
    for manifest in plan.unpublished:
        source = paths.manifest(manifest.query_id, manifest.batch_id)
        move_to_backup(source, folder / f"{manifest.query_id}-{manifest.batch_id}.json", lease)
    for query_id, manifests in plan.facts.manifests.items():
        lease.check()
        remove_folded(paths, query_id, manifests[-1].batch_id)
    rereads = {paths.decision(one.run_id) for one in list_rereads(paths)}  # these are what is being done
    for place, word in ((paths.decisions, "decision"), (paths.verdicts, "verdict")):
        for path in sorted(set(storage.list_folder(place, "*.json")) - rereads):
            move_to_backup(path, folder / f"{word}-{path.name}", lease)
            _give_back(path, folder / f"{word}-{path.name}", set(plan.settled))
    if plan.why != "ROLLBACK":  # one that was recorded, and did not come to change the table, is over
        move_to_backup(paths.rollback, folder / paths.rollback.name, lease)
    sources: dict[str, Start] = {source: plan.starts.get(source, {}) for source in spec.streams}
    sources |= {} if plan.rebuild else starts_of_absent_sources(paths, spec, plan.facts)
    settings = settings_at_birth(project, spec)
    if not plan.rebuild:
        # What an earlier version did not pin yet is added: the new checkpoint would be refused like the old one.
        settings = {**PINNED, **({} if plan.facts.birth is None else plan.facts.birth.settings)}
    begun = begin_new_query(paths, new_birth(paths, spec, sources, settings), why=f"repair: {plan.why}", lease=lease)
    lease.check()
    # Last: as long as the old note is there, a table that disagrees with it is found.
    _note_table(begun, spec, read_table_state(paths.table))
    note_quarantine(paths, lease)
    return begun, lost + gone


def new_backup_folder(paths: PipelinePaths) -> Path:
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
    """Back up what is staged, except deferred increments whose records are not read again. The other deferred ones
    are backed up with it: they must not be published together with what is read again."""
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
        remove_files(paths, plan.taken_back, new_run_id("repair"), TAKEN_BACK)
    take_out(paths, lease, plan.mismatch, folder)
    for table_path in (paths.table, paths.quarantine):
        aside = folder / ("table" if table_path == paths.table else "quarantine")
        for name in list_orphans(paths, table_path):
            move_to_backup(table_path / name, aside / name, lease)
    bring_back(paths.table, app_id=new_run_id("repair"), check_lease=lease.check)


def _give_back(path: Path, moved: Path, ended: set[str]) -> None:
    """Undo the move of a verdict or decision on a query that began while this process was suspended."""
    value = storage.read_json(moved)
    if value is not None and not {query for query, _ in value["batches"]} <= ended:
        storage.put_if_absent(path, storage.read(moved))


def _put_back(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, settled: dict[str, int], lease: Lease
) -> list[str]:
    """Give the files that must be read again their links; the paths of those that are gone."""
    gone: list[str] = []
    with open_ledger(paths, create=True, lease=lease) as ledger:
        ledger.return_to_linked(settled)
        for name, source in spec.file_streams.items():
            lease.check()
            read_whole_again(paths, name, ledger)
            lost = list(restore_links(project, paths, name, source, ledger).lost)
            sweep_intake(paths, name, ledger, keep_staged=False)
            gone += [shown_path(path) for path in lost]
    return gone


def _note_table(paths: PipelinePaths, spec: PipelineSpec, table: TableState | None) -> None:
    if table is None:
        storage.remove_tree(paths.published)
        return
    note = Published(table.table_id, table.version, None, -1, last_taken(paths, spec))
    before = read_published(paths)
    is_continued = before is not None and before.table_id == table.table_id and before.version <= table.version
    # An older copy of the table may be in its place: the notes of what it had reached before must not outrank it. Where
    # the table only advanced, a stale process must not remove the notes of its successors.
    write_published(paths, note, only=not is_continued)


def look_at_quarantine(paths: PipelinePaths, facts: Facts) -> tuple[list[DataFile], QuarantineMismatch]:
    """Find the files that are read again and leave quarantine, and the mismatch with the table."""
    settled = settled_batches(paths.table, known_queries(paths, facts))
    return quarantine_to_take_back(paths, settled), compare_with_table(paths, last_by_prefix(paths, settled))


def describe_quarantine_repair(again: list[DataFile], mismatch: QuarantineMismatch) -> list[str]:
    """What :func:`repair_quarantine` does, a sentence for each step."""
    records = count_of(sum(file.rows for file in again), "record")
    steps = [f"take {records} out of quarantine that are read again"] if again else []
    return [*steps, *mismatch.describe()] or ["keep quarantine as it is now: it lacks no record"]


def repair_quarantine(paths: PipelinePaths, lease: Lease, facts: Facts, backup: Path) -> None:
    """Keep the older copy, without what is read again, or may be in the table by now."""
    again, mismatch = look_at_quarantine(paths, facts)
    before, table = facts.published, facts.table
    lease.check()
    if again:
        remove_files(paths, again, new_run_id("repair"), TAKEN_BACK)
    take_out(paths, lease, mismatch, backup)
    for name in list_orphans(paths, paths.quarantine):
        move_to_backup(paths.quarantine / name, backup / "quarantine" / name, lease)
    for query_id, last in read_retired(paths).items():  # an older copy does not know that it is over
        lease.check()
        retire_in_log(paths.quarantine, query_id, last_batch=last)
    if facts.later.moved is not None and before is not None and table is not None:
        write_published(paths, replace(before, version=table.version))
    note_quarantine(paths, lease)


def set_tables_aside(paths: PipelinePaths, lease: Lease) -> None:
    """Rename table and quarantine to hidden folders next to their places."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    for folder in (paths.table, paths.quarantine):
        if storage.exists(folder):
            lease.check()
            storage.move(folder, folder.with_name(f".{folder.name}.{stamp}"))
