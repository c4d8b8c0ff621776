"""Finishing what an earlier process began, and clearing away what the table's log now holds.

Everything here is driven by what is on disk, not by who calls: it runs after each publish and first in every step, so a
process killed between any two writes is completed by the next one with the same figures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate import storage
from tidegate.lease import Lease
from tidegate.project import PipelinePaths
from tidegate.run.commits import Commits, read_commits
from tidegate.run.preflight import Facts, gather_facts
from tidegate.run.report import (
    FINAL_OUTCOMES,
    RunReport,
    check_balance,
    fill_from_manifests,
    load_report,
    new_report,
    now_text,
    save_report,
)
from tidegate.run.verdicts import StoredVerdict, list_verdicts, load_decision
from tidegate.source.intake import remove_links
from tidegate.source.ledger import open_ledger
from tidegate.source.spool import remove_spooled
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.staging.manifest import BatchManifest, batch_keys
from tidegate.table.folded import list_merge_folders, remove_folded
from tidegate.table.intent import pending_intents
from tidegate.table.log import TableState
from tidegate.table.publish import finish_intent


def recover(paths: PipelinePaths, spec: PipelineSpec, lease: Lease) -> Facts:
    """Finish begun publishes, bring the ledger up to the manifests, settle what is published; the facts after that."""
    for intent in pending_intents(paths):
        finish_intent(paths, intent, is_current=lease.is_current)
    facts = gather_facts(paths, spec)
    sync_ledger(paths, spec, facts.owed)
    return settle(paths, spec, lease, facts)


def sync_ledger(paths: PipelinePaths, spec: PipelineSpec, manifests: Sequence[BatchManifest]) -> None:
    """Mark the files of staged batches in the ledger; the manifests are the authority, the ledger follows."""
    if not manifests or not any(isinstance(source, FilesSource) for source in spec.streams.values()):
        return
    with open_ledger(paths) as ledger:
        for manifest in manifests:
            for name, taken in manifest.sources.items():
                if taken.files:
                    ledger.mark_staged(name, manifest.query_id, manifest.batch_id, taken.files)


def settle(paths: PipelinePaths, spec: PipelineSpec, lease: Lease, facts: Facts) -> Facts:
    """Write the final reports of batches that the table's log holds, then drop their links, manifests and staging.

    The order makes it repeatable: reports first, the manifests they are made from last.
    """
    settled = [
        manifest
        for query_id, manifests in facts.manifests.items()
        for manifest in manifests
        if manifest.batch_id <= facts.settled_up_to(query_id)
    ]
    if facts.table is not None and (settled or facts.published is None):
        note_published(paths, spec, facts.table, settled, facts.published)
    if not settled:
        return facts
    lease.check()
    sync_ledger(paths, spec, settled)
    done = {tuple(key) for key in batch_keys(settled)}
    for verdict in list_verdicts(paths):
        if all(tuple(key) in done for key in verdict.batches):
            _finish_reports(paths, verdict, settled)
    if any(isinstance(source, FilesSource) for source in spec.streams.values()):
        with open_ledger(paths) as ledger:
            for query_id in {manifest.query_id for manifest in settled}:
                ledger.mark_published(query_id, _readable_no_more(facts, query_id))
            links = ledger.removable_links()
            for name, source in spec.sources.items():
                if isinstance(source, SpooledSource):
                    remove_spooled(paths, name, [link for one, link in links if one == name], ledger)
            remove_links(paths, links, ledger)
    for query_id in {manifest.query_id for manifest in settled}:
        remove_folded(paths, query_id, facts.settled_up_to(query_id))
    for manifest in settled:
        storage.remove_tree(paths.staging / manifest.query_id / f"{manifest.batch_id:012d}")
        storage.remove(paths.manifest(manifest.query_id, manifest.batch_id))
    for verdict in list_verdicts(paths):
        if all(tuple(key) in done for key in verdict.batches):
            storage.remove(paths.verdict(verdict.run_id))
            storage.remove(paths.decision(verdict.run_id))
    _remove_empty(paths, {manifest.query_id for manifest in settled})
    return gather_facts(paths, spec)


def _readable_no_more(facts: Facts, query_id: str) -> int:
    """The last batch of a query whose files nobody will read again: not one that Spark has to compute once more to have
    its state, though the table holds its rows."""
    settled = facts.settled_up_to(query_id)
    if query_id == facts.query_id and facts.in_flight is not None:
        return min(settled, facts.in_flight - 1)
    return settled


def note_published(
    paths: PipelinePaths, spec: PipelineSpec, table: TableState, settled: Sequence[BatchManifest], before: Any
) -> None:
    """Note what the table's log now holds, and how far the ledger had come: what the next run compares both with."""
    newest: dict[str, int] = {}
    for manifest in settled:
        newest[manifest.query_id] = max(newest.get(manifest.query_id, -1), manifest.batch_id)
    if newest:
        # With two queries (a loss was accepted in between) the living one is the one staged last.
        query_id = max(settled, key=lambda manifest: manifest.staged_at).query_id
        batch_id = newest[query_id]
        if before is not None and (before.get("table_id"), before.get("query_id")) == (table.table_id, query_id):
            # A process that was frozen may have written the manifest of a batch again that was settled long ago.
            batch_id = max(batch_id, int(before.get("batch_id", -1)))
        note = {
            "table_id": table.table_id,
            "version": table.version,
            "query_id": query_id,
            "batch_id": batch_id,
            "ledger_last_id": last_taken(paths, spec),
            "positions": _positions_of(settled, query_id, batch_id, before),
        }
        if note != before:
            storage.write_note(paths.published, table.version, note)


def _positions_of(settled: Sequence[BatchManifest], query_id: str, batch_id: int, before: Any) -> dict[str, Any]:
    """Where the Kafka sources stand after a batch: kept when its manifest is gone, to compare the checkpoint with."""
    for manifest in settled:
        if (manifest.query_id, manifest.batch_id) == (query_id, batch_id):
            return {
                name: {
                    topic: {n: until for n, (_, until) in numbers.items()} for topic, numbers in taken.offsets.items()
                }
                for name, taken in manifest.sources.items()
                if taken.offsets
            }
    return dict((before or {}).get("positions") or {})


def last_taken(paths: PipelinePaths, spec: PipelineSpec) -> int:
    """The number of the file taken last; 0 for a pipeline without files."""
    if not any(isinstance(source, FilesSource) for source in spec.streams.values()):
        return 0
    with open_ledger(paths, read_only=True) as ledger:
        return ledger.last_id()


def _finish_reports(paths: PipelinePaths, verdict: StoredVerdict, settled: Sequence[BatchManifest]) -> None:
    keys = {tuple(key) for key in verdict.batches}
    increment = [manifest for manifest in settled if (manifest.query_id, manifest.batch_id) in keys]
    decision = load_decision(paths, verdict.run_id)
    discarded = decision is not None and decision["decision"] == "discard"
    outcome = "discarded" if discarded else "published"
    commits = read_commits(paths, verdict)
    for run_id in dict.fromkeys([verdict.run_id, *(manifest.run_id for manifest in increment)]):
        report = load_report(paths, run_id) or new_report(paths.name, run_id)
        if report.outcome in FINAL_OUTCOMES:
            continue
        mine = increment if run_id == verdict.run_id else [m for m in increment if m.run_id == run_id]
        fill_from_manifests(report, mine)
        report.outcome = outcome
        report.error = None
        report.ended_at = now_text()
        report.quality = verdict.quality
        report.decision = decision
        report.published_by = None if run_id == verdict.run_id else verdict.run_id
        whole = run_id == verdict.run_id
        report.rows["superseded"] = sum(commits.superseded_of(manifest) for manifest in mine)
        report.rows["published"] = 0 if discarded else report.rows["staged"] - report.rows["superseded"]
        report.table = table_figures(paths, mine, commits, discarded=discarded, whole=whole)
        if whole and commits.figures:
            report.rows["published"] = commits.figures["rows_added"]
        check_balance(report.rows, published=not discarded)
        save_report(paths, report)


def table_figures(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], commits: Commits, *, discarded: bool, whole: bool = True
) -> dict[str, Any]:
    """The report's ``table``: the version that holds these batches, and what they added to it.

    ``whole``: the batches are the whole increment. What a commit took out of the table is told in that report alone.
    """
    rows = sum(manifest.staged - commits.superseded_of(manifest) for manifest in manifests)
    return {
        "path": str(paths.table),
        "version": commits.version,
        "files_added": 0 if discarded else sum(len(manifest.files) for manifest in manifests),
        "files_removed": 0,
        "rows_added": 0 if discarded else rows,
        "rows_removed": 0,
        **(commits.figures if whole else {}),
    }


def _remove_empty(paths: PipelinePaths, query_ids: set[str]) -> None:
    for query_id in query_ids:
        for folder in (paths.staging / query_id, paths.manifests / query_id):
            with contextlib.suppress(OSError):
                folder.rmdir()


def sweep_attempts(paths: PipelinePaths, facts: Facts) -> None:
    """Remove staging that nobody names: attempts that were killed, of batches that are staged or settled, and copies
    made for a publish that was planned anew.
    """
    if not paths.staging.is_dir():
        return
    manifests = [manifest for found in facts.manifests.values() for manifest in found]
    named = {paths.staging / m.query_id / f"{m.batch_id:012d}" / m.attempt for m in manifests}
    named |= {paths.state / folder for folder in list_merge_folders(paths)}
    for intent in pending_intents(paths):
        named |= {paths.state / Path(*Path(file.source).parts[:4]) for file in intent.files_to_add}
    for query in paths.staging.iterdir():
        for batch in query.iterdir() if query.is_dir() else ():
            for attempt in batch.iterdir() if batch.is_dir() else ():
                if attempt not in named:
                    storage.remove_tree(attempt)
            with contextlib.suppress(OSError):
                batch.rmdir()
        with contextlib.suppress(OSError):
            query.rmdir()


def unfinished(report: RunReport | None) -> bool:
    """Whether a run still has something to do."""
    return report is None or report.outcome not in FINAL_OUTCOMES
