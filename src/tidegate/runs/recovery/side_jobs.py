"""The query of a side job replaces the pipeline's own: live runs continue with its checkpoint.

A refresh of a query with state makes a table *and* the state that goes with it. The commit of its version decides: it
has the last batch of the new query, and says that the old one is over. What follows here is driven by the intent, which
is removed last, so the next process does what is left. Every step may be repeated, and a process suspended in one
finds it done: the checkpoint has left its place, the birth record is there, notes have numbers, the ledger knows whose
lease it is under.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs.preflight.tables import note_quarantine, note_version
from tidegate.runs.recovery.after_commit import carry_out_plan
from tidegate.runs.recovery.lost_rows import note_rebuilt_rows
from tidegate.runs.reports.report import FINAL_OUTCOMES, RunReport, load_report, save_report
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.unreadable import note_read, take_over_whole
from tidegate.state.birth import birth_from_json, write_birth
from tidegate.state.files import damaged
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchManifest, StagedFile, read_manifests
from tidegate.state.open_state import hand_over_open_state, read_open_state
from tidegate.state.published import Published, record_retired, write_published
from tidegate.state.seal import hand_over_seal
from tidegate.state.topics import positions_from_json
from tidegate.table import errors as table_errors
from tidegate.table.footer import read_footer
from tidegate.table.log.commit import AlreadyCommittedError, Commit, commit_files, retire_in_log
from tidegate.table.log.state import (
    REREAD,
    THEN,
    DataFile,
    find_commit,
    list_data_files,
    read_commit_metadata,
    read_table_state,
)
from tidegate.table.publish.intent import HandOver, PublishIntent, intent_path, pending_intents, staged_at
from tidegate.table.publish.origins import ORIGINS, UNDOES, dump_origins, read_origins
from tidegate.table.publish.plan import ABANDONED, REWORK, Changes, Rework, plan_rework
from tidegate.table.publish.publish import OVERTAKEN, CommitResult, finish_intent
from tidegate.table.publish.replace import bring_back, plain_name, plan_restore


def finish_work(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> CommitResult:
    """:func:`tidegate.table.publish.publish.finish_intent`, and what comes between the commit and the end of the intent
    for side jobs: whole files in quarantine are kept, the next query takes over, the report is stored. One
    that is abandoned is undone."""
    if intent.given_up:
        if undo_publish(paths, intent, lease):
            return OVERTAKEN
        intent = replace(intent, given_up=False)
    return finish_intent(paths, intent, is_current=lease.is_current, then=partial(_complete, paths, lease))


def _complete(paths: PipelinePaths, lease: Lease, intent: PublishIntent, result: CommitResult) -> None:
    is_done = not (result.overtaken or result.outdated)
    for whole in intent.whole_files if is_done else ():
        other = paths.beside(whole.folder).unreadable
        take_over_whole(paths.unreadable, other, whole.quarantined, lease.check)
        note_read(paths.unreadable, whole.read, lease.check)
    if is_done and intent.hand_over is not None:
        _hand_over(paths, intent, intent.hand_over, lease)
    elif REWORK in intent.custom_metadata and intent.target == "table":
        note_version(paths, lease, goes_back=intent.custom_metadata.get(THEN) == REREAD)
    if is_done:
        note_rebuilt_rows(paths, lease, intent, result.version)
    if is_done and (intent.companion is not None or intent.target == "quarantine"):
        note_quarantine(paths, lease)  # before the intent goes: a copy of before this work is recognized from now on
    _save_report(paths, intent, result, lease)


def _save_report(paths: PipelinePaths, intent: PublishIntent, result: CommitResult, lease: Lease) -> None:
    """Store the report that a publish of no batch carries, now that it is done. May be repeated; a publish that was
    overtaken or outdated did nothing, and has none."""
    if intent.report is None or result.overtaken or result.outdated:
        return
    lease.check()
    report, stored = RunReport.from_json(intent.report), load_report(paths, intent.run_id)
    if stored is not None and _is_later(stored, report):
        return  # the job has been resumed under the same run id since
    report.table = {**report.table, "version": result.version}
    report.ended_at = report.ended_at or now_text()
    save_report(paths, report)


def _is_later(stored: RunReport, report: RunReport) -> bool:
    """Return whether a stored report was written after the one that a plan carries."""
    has_all = bool(report.rebuilt) and set(report.rebuilt) <= set(stored.rebuilt)
    is_held_since = stored.outcome == "held" and has_all
    return stored.outcome in FINAL_OUTCOMES or is_held_since or len(stored.rebuilt) > len(report.rebuilt)


def _hand_over(paths: PipelinePaths, intent: PublishIntent, given: HandOver, lease: Lease) -> None:
    side, begun = paths.beside(given.folder), replace(paths, generation=given.generation)
    query_id, last = intent.app_id, intent.app_version
    _end_old_query(paths, given, lease)
    # What belongs to a living checkpoint comes before it.
    lease.check()
    hand_over_open_state(side, begun, query_id, last)
    lease.check()
    hand_over_seal(side, begun, query_id)
    lease.check()
    storage.replace(begun.query_folder / "why.txt", f"refresh {intent.run_id}\n".encode())
    lease.check()
    if storage.exists(side.batches):
        storage.move(side.batches, begun.batches)
    lease.check()
    if storage.exists(side.checkpoint):
        storage.move(side.checkpoint, begun.checkpoint)
    lease.check()
    write_birth(begun, birth_from_json(given.birth))
    # Where some of the manifests are removed already, all files were given before that.
    _give_files(begun, query_id, read_manifests(side.manifests, query_id), lease)
    _note_table(begun, intent, lease)
    lease.check()
    storage.remove_tree(side.state)


def _end_old_query(paths: PipelinePaths, given: HandOver, lease: Lease) -> None:
    """The table's log says so since the commit."""
    old, last = given.replaces
    lease.check()
    retire_in_log(paths.quarantine, old, last_batch=last)
    lease.check()
    record_retired(paths, old, last)
    lease.check()
    for notes in (paths.seals, paths.open_state):
        storage.remove_tree(notes / old)


def _give_files(paths: PipelinePaths, query_id: str, manifests: Sequence[BatchManifest], lease: Lease) -> None:
    """The ledger has each file under the batch of the new query that read it."""
    taken = [
        (name, manifest.batch_id, [file["link"] for file in source.files])
        for manifest in manifests
        for name, source in manifest.sources.items()
        if source.files
    ]
    if not taken:
        return
    with open_ledger(paths, lease=lease) as ledger:
        for name, batch_id, links in taken:
            ledger.move_to_batch(name, query_id, batch_id, links)


def _note_table(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> None:
    """What the next run compares the table with."""
    table = read_table_state(paths.table)
    assert table is not None, "its version was committed"
    last_id = 0
    if storage.exists(paths.ledger):
        with open_ledger(paths, read_only=True) as ledger:
            last_id = ledger.last_id()
    positions = positions_from_json(json.loads(intent.custom_metadata["tidegate.positions"]))
    lease.check()
    keeps_state = read_open_state(paths, intent.app_id) is not None
    note = Published(table.table_id, table.version, intent.app_id, intent.app_version, last_id, positions, keeps_state)
    write_published(paths, note)


_KINDS = ("backfill", "refresh", "replay", "maintain", "repair")
_KIND = "give-up"
_UNDONE = ".undone"
_DECIDED = "tidegate.decision"


def can_be_abandoned(intent: PublishIntent) -> bool:
    """Return whether a publish belongs to a side job that can be started again from its beginning."""
    return intent.hand_over is not None or intent.custom_metadata.get(REWORK) in _KINDS


def list_unfinished_work(paths: PipelinePaths) -> list[PublishIntent]:
    """The publishes that were begun and can be abandoned."""
    return [intent for intent in pending_intents(paths) if can_be_abandoned(intent)]


def describe_work(intent: PublishIntent) -> str:
    """Kind and run id."""
    return f"{'refresh' if intent.hand_over is not None else intent.custom_metadata[REWORK]} {intent.run_id}"


def describe_unfinished_work(name: str, intent: PublishIntent) -> str:
    """A line on an unfinished side job, with the commands that help."""
    return (
        f"{describe_work(intent)} was stopped half-way: `tidegate run {name}` finishes what it has begun, and the same "
        f"command continues after that; if it cannot be finished, `tidegate repair {name}` abandons it"
    )


def undo_publish(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> bool:
    """Undo what was begun, then remove the intent. False when its version was already committed: then it is kept, and
    nothing is undone. Raises DisagreementError REPLACED_FILES_GONE when files of quarantine are gone."""
    if _was_published(paths, intent, lease):
        return False
    first = intent.companion
    for one in (intent,) if first is None else (first, intent):
        if one is first and _was_published(paths, one, lease):
            _take_back(paths, one, lease)
            continue
        table_path = one.table_path(paths)
        _take_out(paths, one, lease)
        bring_back(table_path, app_id=f"{_KIND}-{secrets.token_hex(12)}", check_lease=lease.check)
    lease.check()
    storage.remove(intent_path(paths, intent))
    return True


def _take_out(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> None:
    """Move the files of a publish out of its table, to new names in staging, and those that are not in it yet too.

    A stale process may be suspended between its last check of the lease and the rename that moves a file in: it finds
    nothing under the name that it knows. What a person released keeps its names, since it waits for another decision.
    """
    table_path = intent.table_path(paths)
    keeps_names = _DECIDED in intent.custom_metadata
    held = {file.path for file in list_data_files(table_path)}
    token = secrets.token_hex(6)
    for file in intent.files_to_add:
        target, source, staged = table_path / file.path, paths.state / file.source, staged_at(paths, file.source)
        undone = source if keeps_names else source.with_name(f".{source.name}.{token}{_UNDONE}")
        for place in ([] if file.path in held else [target]) + ([] if keeps_names and staged == source else [staged]):
            if storage.exists(place):
                lease.check()
                storage.move(place, undone)
        if not keeps_names:
            storage.remove_copies(target)


def _was_published(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> bool:
    """True if the log has the publish. Where it has not, it never will: it gets a version without files instead."""
    table_path = intent.table_path(paths)
    lease.check()
    if intent.hand_over is not None:
        retire_in_log(table_path, intent.app_id, last_batch=-1)
    state = read_table_state(table_path, (intent.app_id,))
    if state is None:
        return False
    current = state.txns.get(intent.app_id, -1)
    if current >= intent.app_version:
        version = find_commit(table_path, intent.app_id, intent.app_version)
        info = {} if version is None else read_commit_metadata(table_path, version)
        return info.get("tidegate.outcome") != ABANDONED
    if intent.hand_over is not None:
        return False
    try:
        metadata = {
            REWORK: intent.custom_metadata[REWORK],
            "tidegate.outcome": ABANDONED,
            "tidegate.pipeline": intent.pipeline,
            "tidegate.run_id": intent.run_id,
            "tidegate.app_version_before": str(current),
        }
        commit = Commit(intent.app_id, intent.app_version, current, custom_metadata=metadata, rearranges=True)
        commit_files(table_path, commit)
    except AlreadyCommittedError:  # a stale process has published meanwhile
        return True
    return False


def _take_back(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> None:
    """Restore the files that quarantine had before one of its versions."""
    quarantine = paths.quarantine
    work = Rework(intent.pipeline, _KIND, intent.app_id, part=intent.app_version)
    state = read_table_state(quarantine, (work.app_id,))
    version = find_commit(quarantine, intent.app_id, intent.app_version)
    assert state is not None and version is not None, "its version was committed"
    if state.txns.get(work.app_id, -1) >= work.part:
        return
    restore = plan_restore(quarantine, version - 1)
    if restore.gone:
        raise table_errors.REPLACED_FILES_GONE(
            where=str(quarantine), number=len(restore.gone), example=restore.gone[0], name=paths.name
        )
    token = secrets.token_hex(6)
    changes = Changes(
        token,
        carried=prepare_files(paths, work, quarantine, restore.back, token),
        remove=restore.leave,
        outcome=ABANDONED,
        metadata={UNDOES: json.dumps([intent.app_id, intent.app_version])},
    )
    plan = plan_rework(work, state, changes, target="quarantine")
    names = [plain_name(file.path) or file.path for file in restore.back]
    origins = read_origins(quarantine, names)
    made = zip(plan.files_to_add, names, strict=True)
    plan.custom_metadata[ORIGINS] = dump_origins([([file.path], origins.get(name, ())) for file, name in made])
    carry_out_plan(paths, plan, lease)


def prepare_files(
    paths: PipelinePaths, work: Rework, table_path: Path, files: Sequence[DataFile], token: str
) -> list[StagedFile]:
    """Second names for files that come back into a table, in a folder of staging. The first ones stay: versions in
    between, and sinks that are behind, are read by them."""
    folder = paths.attempts(work.app_id, work.part) / token
    found = []
    for number, file in enumerate(files):
        storage.make_folder(folder)
        path = folder / f"{number:05d}.parquet"
        storage.clone(table_path / file.path, path)
        footer = read_footer(path)
        if footer is None:
            raise damaged(table_path / file.path, "it has no footer", paths.name)
        size = storage.stat(path).size_bytes
        name = str(path.relative_to(paths.state))
        found.append(StagedFile(name, footer.rows, size, dict(file.partition), file.sha256))
    storage.sync_names_above([paths.state / file.path for file in found], paths.state)
    return found
