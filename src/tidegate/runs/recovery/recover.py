"""Finishing what an earlier process began.

Everything here is driven by what is on disk, not by who calls: it runs after each publish and first in every step, so a
process killed between any two writes is completed by the next one with the same figures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_state, refuse_another_table
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.table_log import is_in_ledger
from tidegate.runs.preflight.tables import check_ahead, check_quarantine, note_quarantine
from tidegate.runs.recovery.settle import settle
from tidegate.runs.recovery.side_jobs import can_be_abandoned, finish_work
from tidegate.runs.reports.report import RunReport
from tidegate.runs.reports.verdicts import list_kept_attempts, list_verdicts
from tidegate.sources.files.ledger import open_ledger
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.durable import drop_torn_plan
from tidegate.state.files import drop_swept, is_swept, remove_empty_folders
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchKey, BatchManifest, end_positions, find_tombstones
from tidegate.state.open_state import read_open_state
from tidegate.state.published import Published, read_published, read_retired, write_published
from tidegate.state.seal import read_seal
from tidegate.state.topics import Positions
from tidegate.table.log.commit import drop_late_commits
from tidegate.table.log.files import LOG_FOLDER
from tidegate.table.log.state import TableState, holds_batch, read_table_state
from tidegate.table.publish.intent import PublishIntent, intent_path, pending_intents
from tidegate.table.publish.publish import heal_log
from tidegate.table.publish.replace import hidden_name
from tidegate.table.upsert.folded import list_merge_folders


def recover(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, lease: Lease, finished: list[RunReport] | None = None
) -> Facts:
    """Finish begun publishes, bring the ledger up to the manifests, settle what is published; the facts after that.
    The reports that were given their end are added to ``finished``.

    What a power cut has torn in a table's log is put right first where it can be made again. Raises DisagreementError
    TABLE_REPLACED or QUARANTINE_BEHIND before anything is published to another table, and TABLE_GONE before a side job
    would create a new one.
    """
    finished = [] if finished is None else finished
    # First: a verdict that a killed process had in its hands says whether a plan that came late is carried out.
    for folder in (*storage.list_folders(paths.manifests), paths.verdicts, paths.decisions):
        storage.put_back_taken(folder)
    for table in (paths.table, paths.quarantine):
        with contextlib.suppress(NotADirectoryError):  # a file in the table's place is named later
            storage.put_back_taken(table / LOG_FOLDER)
    try:
        return _recover(project, paths, spec, lease, finished)
    except DisagreementError as error:
        if error.code != "TABLE_LOG_UNREADABLE" or not _heal_logs(paths, lease):
            raise
    return _recover(project, paths, spec, lease, finished)


def _heal_logs(paths: PipelinePaths, lease: Lease) -> bool:
    """Move away torn versions that an intent writes again; whether there was one."""
    intents = pending_intents(paths)
    intents += [intent.companion for intent in intents if intent.companion is not None]
    healed = False
    for path in (paths.table, paths.quarantine):
        begun = [intent for intent in intents if intent.table_path(paths) == path]
        healed |= heal_log(path, begun, lease.check) is not None
    return healed


def _recover(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, lease: Lease, finished: list[RunReport]
) -> Facts:
    check_quarantine(paths)
    if retired := read_retired(paths):
        for table_path in (paths.table, paths.quarantine):
            drop_late_commits(table_path, retired, paths.set_aside / f"late-{table_path.parent.name}", lease.check)
    intents = drop_late_intents(paths, pending_intents(paths), lease)
    if intents:
        paths = _finish_begun(paths, intents, lease)
    facts = gather_facts(paths, spec)
    changed = [sweep(paths, facts, lease) for sweep in (sweep_late, _sweep_swept, _heal_checkpoint)]
    if any(changed):
        facts = gather_facts(paths, spec)
    check_state(facts, paths.name)  # before anything is noted as right
    check_ahead(paths, facts)
    sync_unpublished(paths, spec, facts, lease)
    settled = facts.settled
    if facts.table is not None and (settled or facts.published is None):
        note_published(paths, spec, facts.table, settled, facts.published)
    lease.check()
    sync_ledger(paths, spec, settled, lease)
    facts = settle(Situation(project, spec, paths, facts), lease, finished)
    note_quarantine(paths, lease)
    return facts


def _finish_begun(paths: PipelinePaths, intents: Sequence[PublishIntent], lease: Lease) -> PipelinePaths:
    """Finish publishes that were begun; the paths of the query that lives then."""
    before, table = read_published(paths), read_table_state(paths.table)
    if before is not None and table is not None:
        refuse_another_table(table, before, paths.name)
    if before is not None and before.version >= 0 and table is None and any(map(can_be_abandoned, intents)):
        # A new table would begin with the rows of this work alone, and be taken for the old one's place.
        raise errors.TABLE_GONE(where=f"pipeline {paths.name}", name=paths.name, version=before.version)
    for intent in intents:
        finish_work(paths, intent, lease)
    # Another query lives after a refresh that was stopped on its way.
    return paths.newest().pinned() if any(intent.hand_over is not None for intent in intents) else paths


def _heal_checkpoint(paths: PipelinePaths, facts: Facts, lease: Lease) -> bool:
    """Take away what a power cut has torn of a batch that was not staged; whether there was anything."""
    named = facts.birth.query_id if facts.birth is not None else None
    query = facts.living_query
    if not facts.checkpoint.exists or (query is None and facts.unpublished):
        return False
    last_known = facts.newest_kept(query)
    sealed = read_seal(paths, query)
    is_named = named is not None
    return bool(drop_torn_plan(paths.checkpoint, last_known, is_named=is_named, sealed=sealed, check=lease.check))


def sweep_late(paths: PipelinePaths, facts: Facts, lease: Lease) -> bool:
    """Remove batches that were staged after their query was over, and tombstones; whether there were any.

    What comes after this is swept by the next run: that the query is over stays on record. A tombstone of a query that
    is not over was put by a process that was stopped before it ended the query.
    """
    late = [one for manifests in facts.manifests.values() for one in manifests if facts.came_late(one)]
    tombstones = find_tombstones(paths.manifests)
    if not late and not tombstones:
        return False
    lease.check()
    for manifest in late:
        storage.remove(paths.manifest(manifest.query_id, manifest.batch_id))
        storage.remove_tree(paths.attempts(manifest.query_id, manifest.batch_id))
    for path in tombstones:
        storage.remove(path)
    remove_empty_folders(paths, {path.parent.name for path in tombstones} | {manifest.query_id for manifest in late})
    return True


def _sweep_swept(paths: PipelinePaths, facts: Facts, lease: Lease) -> bool:
    """Remove the manifest of the batch in flight when its stale driver wrote it after its files had been swept; whether
    there was one. Spark has not committed the batch, and computes it again as it was planned."""
    swept = [
        manifest
        for manifest in _find_swept(paths, facts)
        if not is_in_ledger(paths, manifest.query_id, manifest.batch_id)  # else it was seen with its files
    ]
    for manifest in swept:
        lease.check()
        drop_swept(paths, manifest)
    return bool(swept)


def _find_swept(paths: PipelinePaths, facts: Facts) -> list[BatchManifest]:
    """The manifest of the batch in flight, or of the last one, when files that it names are gone."""
    last = facts.checkpoint.in_flight if facts.unusable is None else facts.newest_kept(facts.query_id)
    found = [manifest for manifest in facts.unpublished if manifest.key == (facts.query_id, last)]
    return [
        manifest
        for manifest in found
        if is_swept(paths, manifest, quarantined=holds_batch(paths.quarantine, manifest.query_id, manifest.batch_id))
    ]


def sync_unpublished(paths: PipelinePaths, spec: PipelineSpec, facts: Facts, lease: Lease) -> None:
    """Mark the files of batches that are staged and unpublished in the ledger; not of one that was never seen with its
    files: it does not count, see :func:`_sweep_swept`."""
    swept = _find_swept(paths, facts)
    sync_ledger(paths, spec, [manifest for manifest in facts.unpublished if manifest not in swept], lease)


def sync_ledger(paths: PipelinePaths, spec: PipelineSpec, manifests: Sequence[BatchManifest], lease: Lease) -> None:
    """Mark the files of staged batches in the ledger; the manifests are the authority, the ledger follows."""
    if not manifests or not spec.file_streams:
        return
    with open_ledger(paths, lease=lease) as ledger:
        for manifest in manifests:
            for name, taken in manifest.sources.items():
                if taken.files:
                    ledger.mark_staged(name, manifest.query_id, manifest.batch_id, taken.files)


def note_published(
    paths: PipelinePaths,
    spec: PipelineSpec,
    table: TableState,
    settled: Sequence[BatchManifest],
    before: Published | None,
) -> None:
    """Note what the table's log now holds, and how far the ledger had come: what the next run compares both with."""
    newest: dict[str, int] = {}
    for manifest in settled:
        newest[manifest.query_id] = max(newest.get(manifest.query_id, -1), manifest.batch_id)
    if newest:
        # With two queries (a loss was accepted in between) the living one is the one staged last.
        query_id = max(settled, key=lambda manifest: manifest.staged_at).query_id
        batch_id = newest[query_id]
        if before is not None and (before.table_id, before.query_id) == (table.table_id, query_id):
            # A process that was frozen may have written the manifest of a batch again that was settled long ago.
            batch_id = max(batch_id, before.batch_id)
        positions = _positions_of(settled, BatchKey(query_id, batch_id), before)
        keeps_state = read_open_state(paths, query_id) is not None
        last_id = last_taken(paths, spec)
        note = Published(table.table_id, table.version, query_id, batch_id, last_id, positions, keeps_state)
        if note != before:
            write_published(paths, note)


def _positions_of(settled: Sequence[BatchManifest], key: BatchKey, before: Published | None) -> Positions | None:
    """The offsets of the Kafka sources after a batch; kept when its manifest is gone."""
    for manifest in settled:
        if manifest.key == key:
            return end_positions([manifest])
    return before.positions if before is not None else None


def last_taken(paths: PipelinePaths, spec: PipelineSpec) -> int:
    """The number of the file taken last; 0 for a pipeline without files."""
    if not spec.file_streams:
        return 0
    with open_ledger(paths, read_only=True) as ledger:
        return ledger.last_id()


def sweep_attempts(paths: PipelinePaths, facts: Facts, lease: Lease) -> None:
    """Remove staging that nobody names: attempts that were killed, of batches that are staged or settled, and copies
    made for a publish that was planned again.

    What is there is listed before the lease is looked at: a stale process leaves what others have staged since
    alone.
    """
    queries = storage.list_folders(paths.staging)
    if not queries:
        return
    batches = [batch for query in queries for batch in storage.list_folders(query)]
    dead = find_dead_attempts(paths, facts)
    lease.check()
    for attempt in dead:
        storage.remove_tree(attempt)
    for folder in [*batches, *queries]:
        storage.remove_empty_folder(folder)


def find_dead_attempts(paths: PipelinePaths, facts: Facts) -> list[Path]:
    """The attempt folders that :func:`sweep_attempts` removes."""
    batches = [batch for query in storage.list_folders(paths.staging) for batch in storage.list_folders(query)]
    attempts = [attempt for batch in batches for attempt in storage.list_folder(batch, "*")]
    manifests = [manifest for found in facts.manifests.values() for manifest in found]
    named = {paths.attempts(m.query_id, m.batch_id) / m.attempt for m in manifests}
    named |= {paths.state / folder for folder in (*list_merge_folders(paths), *list_kept_attempts(paths))}
    for intent in pending_intents(paths):
        named |= {paths.state / Path(*Path(file.source).parts[:4]) for file in intent.files_to_add}
    return [attempt for attempt in attempts if attempt not in named]


def drop_late_intents(paths: PipelinePaths, intents: Sequence[PublishIntent], lease: Lease) -> list[PublishIntent]:
    """The intents that are in force. The others are removed: a stale process wrote them late, and nothing of them was
    begun.

    A run that holds the lease finishes every intent before it judges or begins anything. So an intent came late where
    the verdict of another run on some of its batches failed: what is held now must not become visible by what passed
    before. An intent of an older holder of the lease came late as well: people, and other work, have decided without
    it, and its side job can be started again.
    """
    failed = [verdict for verdict in list_verdicts(paths) if not verdict.passed] if intents else []
    in_force = []
    for intent in intents:
        batches = range(intent.app_version_before + 1, intent.app_version + 1)
        is_held = intent.target == "table" and any(
            verdict.run_id != intent.run_id and query_id == intent.app_id and batch_id in batches
            for verdict in failed
            for query_id, batch_id in verdict.batches
        )
        is_of_older_holder = 0 < intent.writer < lease.number - 1
        if (is_held and not _is_begun(paths, intent)) or (is_of_older_holder and not _has_begun(paths, intent)):
            lease.check()
            storage.remove(intent_path(paths, intent))
        else:
            in_force.append(intent)
    return in_force


def _has_begun(paths: PipelinePaths, intent: PublishIntent) -> bool:
    """Return whether a step of it, or of its companion, was done."""
    both = [intent] if intent.companion is None else [intent, intent.companion]
    for one in both:
        state = read_table_state(one.table_path(paths), (one.app_id,))
        if (state is not None and state.txns.get(one.app_id, -1) >= one.app_version) or _is_begun(paths, one):
            return True
    return False


def _is_begun(paths: PipelinePaths, intent: PublishIntent) -> bool:
    """Return whether a file of the intent is in the table's folder, or out of plain sight there."""
    names = [file.path for file in intent.files_to_add] + [hidden_name(file.path) for file in intent.files_to_remove]
    return any(storage.exists(intent.table_path(paths) / name) for name in names)
