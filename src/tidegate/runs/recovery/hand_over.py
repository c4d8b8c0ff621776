"""The query of a side job replaces the pipeline's own: live runs continue with its checkpoint.

A refresh of a query with state makes a table *and* the state that goes with it. The commit of its version decides: it
has the last batch of the new query, and says that the old one is over. What follows here is driven by the intent, which
is removed last, so the next process does what is left. Every step may be repeated, and a process suspended in one
finds it done: the checkpoint has left its place, the birth record is there, notes have numbers, the ledger knows whose
lease it is under.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.quarantine import note_quarantine
from tidegate.runs.recovery.abandoned import undo_publish
from tidegate.runs.recovery.finish import tell_rework
from tidegate.runs.recovery.lost_rows import note_rebuilt_rows
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.unreadable import note_read, take_over_whole
from tidegate.state.birth import birth_from_json, write_birth
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchManifest, read_manifests
from tidegate.state.open_state import hand_over_open_state, read_open_state
from tidegate.state.published import Published, read_published, write_published
from tidegate.state.retired import record_retired
from tidegate.state.seal import hand_over_seal
from tidegate.state.topics import positions_from_json
from tidegate.table.log.commit import retire_in_log
from tidegate.table.log.state import read_table_state
from tidegate.table.log.taken import REREAD, THEN
from tidegate.table.publish.intent import HandOver, PublishIntent
from tidegate.table.publish.publish import OVERTAKEN, CommitResult, finish_intent
from tidegate.table.publish.rework import REWORK


def finish_work(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> CommitResult:
    """:func:`tidegate.table.publish.publish.finish_intent`, and what comes between the commit and the end of the intent
    for side jobs: whole files in quarantine are kept, the next query takes over, the report is stored. One
    that is abandoned is undone."""
    if intent.given_up:
        if undo_publish(paths, intent, lease):
            return OVERTAKEN
        intent = replace(intent, given_up=False)
    return finish_intent(paths, intent, is_current=lease.is_current, tell=partial(_complete, paths, lease))


def _complete(paths: PipelinePaths, lease: Lease, intent: PublishIntent, result: CommitResult) -> None:
    is_done = not (result.overtaken or result.outdated)
    if is_done and (whole := intent.whole_files) is not None:
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
    tell_rework(paths, intent, result)


def note_version(paths: PipelinePaths, lease: Lease, *, goes_back: bool = False) -> None:
    """Note the table's version, so that an older copy of the table is recognized. After a rollback whose records are
    read again (``goes_back``), the sources are no longer at the positions of the last publish."""
    before, table = read_published(paths), read_table_state(paths.table)
    if before is None or table is None or before.table_id != table.table_id or before.version >= table.version:
        return
    lease.check()
    positions = None if goes_back else before.positions
    write_published(paths, replace(before, version=table.version, positions=positions))


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
