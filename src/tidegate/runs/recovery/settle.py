"""Clearing away what the table's log now holds: final reports first, then links, manifests and staging."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.after_commit import end_waiting, keep_waiting, publish_quarantine
from tidegate.runs.recovery.finish import finish_reports
from tidegate.runs.recovery.upkeep import maintain_tables
from tidegate.runs.reports.report import RunReport
from tidegate.runs.reports.verdicts import forget_settled, list_kept_attempts
from tidegate.sources.files.intake import remove_links
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.registry import Connections, open_sources
from tidegate.state.durable import CheckpointSync
from tidegate.state.files import remove_empty_folders
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchManifest
from tidegate.table.upsert.folded import remove_folded


def settle(found: Situation, lease: Lease, finished: list[RunReport]) -> Facts:
    """Settle the batches that the table's log holds, and complete decisions on deferred increments; the facts after
    that. ``finished`` is as for :func:`tidegate.runs.recovery.recover.recover`."""
    facts = found.facts
    if facts.settled:
        facts = _settle_batches(found, lease, finished)
    else:
        forget_settled(found.paths, facts.settled_up_to)
    if end_waiting(found.paths, lease, finished):
        maintain_tables(found.paths, found.spec, lease, facts.table)
    return facts


def _settle_batches(found: Situation, lease: Lease, finished: list[RunReport]) -> Facts:
    """Write the final reports of batches that the table's log holds, then drop their links, manifests and staging.

    The order makes it repeatable: reports first, the manifests and verdicts they are made from last.
    """
    spec, paths, facts = found.spec, found.paths, found.facts
    settled = facts.settled
    passed = keep_waiting(paths, facts, settled, lease)
    if any(manifest.key in passed for manifest in settled):
        # An earlier process may have been stopped between writing the file of a deferred increment and syncing its
        # folder. After a power cut the increment would be lost, because its manifests are removed next.
        storage.sync_folder(paths.waiting)
    publish_quarantine(paths, [manifest for manifest in settled if manifest.key not in passed], lease)
    lease.check()
    settled, ended = finish_reports(paths, facts, settled, passed)
    finished += ended
    if facts.keeps_state and facts.checkpoint.last_offset is not None and not facts.checkpoint.faults:
        # A driver may have been killed behind Spark's last commit: without it Spark needs these files again.
        CheckpointSync(paths.checkpoint).sync_batch(facts.checkpoint.last_offset)
    if spec.file_streams:
        with open_ledger(paths, lease=lease) as ledger:
            for query_id in {manifest.query_id for manifest in settled}:
                ledger.mark_published(query_id, _last_never_read_again(facts, query_id))
            links = ledger.removable_links()
            for name, source in open_sources(found.project, paths, spec, Connections(ledger=ledger)).items():
                source.settle([link for one, link in links if one == name])
            remove_links(paths, links, ledger)
    for query_id in {manifest.query_id for manifest in settled}:
        remove_folded(paths, query_id, facts.settled_up_to(query_id))
    kept = list_kept_attempts(paths)
    for manifest in settled:
        _remove_attempts(paths, manifest, kept)
        storage.remove(paths.manifest(manifest.query_id, manifest.batch_id))
    forget_settled(paths, facts.settled_up_to)
    remove_empty_folders(paths, {manifest.query_id for manifest in settled})
    _forget_batches(found)
    maintain_tables(paths, spec, lease, facts.table)
    return gather_facts(paths, spec)


def _forget_batches(found: Situation) -> None:
    """Clear away what was written down for batches that nobody will read again."""
    facts, checkpoint = found.facts, found.facts.checkpoint
    if facts.query_id is None or checkpoint.last_commit is None or checkpoint.faults or facts.unusable is not None:
        return
    up_to = min(facts.settled_up_to(facts.query_id), checkpoint.last_commit)
    for source in open_sources(found.project, found.paths, found.spec).values():
        source.forget_batches(up_to)


def _remove_attempts(paths: PipelinePaths, manifest: BatchManifest, kept: Collection[str]) -> None:
    """Remove the attempts of a batch that was dealt with, except those that a deferred increment needs."""
    for attempt in storage.list_folder(paths.attempts(manifest.query_id, manifest.batch_id), "*"):
        if str(attempt.relative_to(paths.state)) not in kept:
            storage.remove_tree(attempt)
    storage.remove_empty_folder(paths.attempts(manifest.query_id, manifest.batch_id))


def _last_never_read_again(facts: Facts, query_id: str) -> int:
    """The last batch of a query whose files nobody will read again: not one that Spark has to compute again to have
    its state, though the table holds its rows."""
    settled = facts.settled_up_to(query_id)
    if query_id == facts.query_id and facts.in_flight is not None:
        return min(settled, facts.in_flight - 1)
    return settled
