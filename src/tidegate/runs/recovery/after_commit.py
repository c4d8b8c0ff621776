"""What follows a commit of the table: its quarantined records, and deferred increments.

The table comes first, quarantine follows before anything that knows of the records is cleared away. So an increment
that is held has none of its records in quarantine, and a process killed in between is followed by one that adds them.

A commit that says ``waiting`` advanced past the batches: then what a decision needs is written down, before their
manifests go. A commit under the increment's own id is the decision: then its quarantined records and reports follow,
and what was kept goes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.tables import note_quarantine, note_version
from tidegate.runs.recovery.finish import Commit, Increment, find_increments, finish_increment
from tidegate.runs.reports.report import RunReport, load_report
from tidegate.runs.reports.verdicts import (
    StoredVerdict,
    WaitingIncrement,
    are_settled,
    find_decided,
    list_verdicts,
    list_waiting,
    load_decision,
    load_waiting,
    save_waiting,
)
from tidegate.state.files import is_whole
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchKey, BatchManifest, batch_keys, manifest_to_json
from tidegate.table.log.state import find_commit, read_table_state
from tidegate.table.publish.intent import PublishIntent, Target, intent_path, pending_intents, write_intent
from tidegate.table.publish.plan import name_files, plan_quarantine
from tidegate.table.publish.publish import finish_intent
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON


def find_unsent(paths: PipelinePaths, settled: Sequence[BatchManifest]) -> list[BatchManifest]:
    """Those of the batches whose quarantined records the quarantine table's log does not hold."""
    queries = {manifest.query_id for manifest in settled if manifest.quarantine_files}
    if not queries:
        return []
    state = read_table_state(paths.quarantine, tuple(sorted(queries)))
    txns = {} if state is None else state.txns
    return [one for one in settled if one.quarantine_files and one.batch_id > txns.get(one.query_id, -1)]


def publish_quarantine(paths: PipelinePaths, settled: Sequence[BatchManifest], lease: Lease) -> None:
    """Add the quarantined records of batches that the table's log holds; what is there already is skipped."""
    unsent = find_unsent(paths, settled)
    for query_id in dict.fromkeys(manifest.query_id for manifest in unsent):
        batches = [manifest for manifest in unsent if manifest.query_id == query_id]
        state = read_table_state(paths.quarantine, (query_id,))
        extra = {
            "tidegate.query_id": query_id,
            "tidegate.batches": json.dumps([batches[0].batch_id, batches[-1].batch_id]),
        }
        before = -1 if state is None else state.txns.get(query_id, -1)
        intent = plan_quarantine(batches, app_version_before=before, custom_metadata=extra)
        carry_out_plan(paths, intent, lease)


def send_quarantine(
    paths: PipelinePaths, facts: Facts, settled: Mapping[str, int], aside: Path, lease: Lease
) -> list[str]:
    """Before a repair clears staging: publish the quarantined records of batches that the table's log holds.

    Files that are damaged, or gone for good (the quarantine folder was deleted while a publish moved them there), are
    taken out of their manifests, so that they hinder no later run. The manifests as they were are kept in ``aside``;
    the files are returned.
    """
    waiting = {manifest.key for one in list_waiting(paths) for manifest in one.manifests}
    batches = [one for found in facts.manifests.values() for one in found]
    batches = [one for one in batches if one.batch_id <= settled.get(one.query_id, -1) and one.key not in waiting]
    for intent in pending_intents(paths):
        if intent.target == "quarantine" and intent.app_version <= settled.get(intent.app_id, -1):
            with contextlib.suppress(DisagreementError):  # of files that are gone: found below
                finish_intent(paths, intent, is_current=lease.is_current)
    gone: list[str] = []
    for number, manifest in enumerate(batches):
        if manifest not in find_unsent(paths, [manifest]):
            continue
        lost = [file for file in manifest.quarantine_files if not is_whole(paths.state / file.path, file)]
        if not lost:
            continue
        lease.check()
        storage.replace(aside / f"{manifest.query_id}-{manifest.batch_id}.json", manifest_to_json(manifest))
        batches[number] = replace(manifest, quarantine_files=[f for f in manifest.quarantine_files if f not in lost])
        path = paths.manifest(manifest.query_id, manifest.batch_id)
        lease.check()
        storage.replace(path, manifest_to_json(batches[number]))
        gone += [file.path for file in lost]
    for intent in pending_intents(paths):
        if any(file.source in gone for file in intent.files_to_add):
            lease.check()
            storage.remove(intent_path(paths, intent))
    publish_quarantine(paths, batches, lease)
    return gone


def plan_waiting(
    waiting: WaitingIncrement,
    target: Target,
    *,
    schema_json: str = QUARANTINE_SCHEMA_JSON,
    partition_by: Sequence[str] = (),
    custom_metadata: dict[str, str] | None = None,
) -> PublishIntent:
    """The publish of a deferred increment, under the id of the decision; its files have the names that they
    would have had."""
    files = []
    for manifest in waiting.manifests:
        staged = manifest.files if target == "table" else manifest.quarantine_files
        files += name_files(manifest, staged, partition_by=list(partition_by), schema_json=schema_json)
    return PublishIntent(
        pipeline=waiting.manifests[-1].pipeline,
        run_id=waiting.run_id,
        target=target,
        schema_json=schema_json,
        partition_by=list(partition_by),
        app_id=waiting.app_id,
        app_version=0,
        app_version_before=-1,
        files_to_add=files,
        custom_metadata=custom_metadata or {},
    )


def carry_out_plan(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> None:
    """Write the plan down and finish it; it is valid whatever else the table holds."""
    lease.check()
    in_force = write_intent(paths, intent)
    result = finish_intent(paths, in_force, is_current=lease.is_current)
    if result.overtaken or (in_force.nonce == intent.nonce and result.rows_added != intent.rows_added):
        raise errors.PUBLISH_DOES_NOT_FIT(
            where=str(in_force.table_path(paths)),
            target=intent.target,
            committed=result.rows_added,
            expected=intent.rows_added,
            pipeline=intent.pipeline,
        )
    if intent.target == "quarantine":
        note_quarantine(paths, lease)


def keep_waiting(paths: PipelinePaths, facts: Facts, settled: Sequence[BatchManifest], lease: Lease) -> set[BatchKey]:
    """Write down what a decision needs, of each increment that the log has passed; the batches of all that were passed.

    An increment of two queries is passed by two commits, and is written down when both are there.
    """
    verdicts = [verdict for verdict in list_verdicts(paths) if verdict.choose(settled)]
    failed = [verdict for verdict in verdicts if not verdict.passed]
    passed = {manifest.key for one in list_waiting(paths) for manifest in one.manifests}
    if not failed and not find_unsent(paths, settled):
        return passed
    newest = {manifest.query_id: facts.settled_up_to(manifest.query_id) for manifest in settled}
    increments = find_increments(paths, settled, newest)
    for increment in increments + _presume_waiting(paths, settled, increments, verdicts):
        if increment.outcome != "waiting":
            continue
        passed |= {manifest.key for manifest in increment.manifests}
        verdict = next((one for one in failed if one.run_id == increment.run_id), None)
        if verdict is None or not are_settled(verdict.batches, facts.settled_up_to):
            continue
        # A process that was killed over clearing away has written all of them down, and left some.
        known = load_waiting(paths, verdict.run_id)
        if known is None or not {one.key for one in increment.manifests} <= set(batch_keys(known.manifests)):
            lease.check()
            save_waiting(paths, WaitingIncrement(verdict, list(increment.manifests), now_text()))
    return passed


def _presume_waiting(
    paths: PipelinePaths,
    settled: Sequence[BatchManifest],
    increments: Sequence[Increment],
    verdicts: Sequence[StoredVerdict],
) -> list[Increment]:
    """Increments that must be waiting although their commit files are gone.

    The log has passed their batches, and they have neither a passed verdict nor a decision; every other commit needs
    one of these.
    """
    known = {manifest.key for increment in increments for manifest in increment.manifests}
    known |= {manifest.key for one in list_waiting(paths) for manifest in one.manifests}
    left = [manifest for manifest in settled if manifest.key not in known]
    judged = [(one, one.choose(left)) for one in sorted(verdicts, key=lambda one: one.at, reverse=True)]
    let_pass = [batches for one, batches in judged if _lets_pass(paths, one)]
    settles = {manifest.key for batches in let_pass for manifest in batches}
    found, taken = [], set[BatchKey]()
    for verdict, chosen in judged:
        batches = [one for one in chosen if one.key not in taken]
        if batches and not any(one.key in settles for one in chosen):
            found.append(Increment(verdict.run_id, [], batches, "waiting"))
            taken |= {one.key for one in batches}
    return found


def _lets_pass(paths: PipelinePaths, verdict: StoredVerdict) -> bool:
    """True if an increment could be committed under this verdict: by its decision, or the report that outlives it."""
    if verdict.passed or load_decision(paths, verdict) is not None:
        return True
    report = load_report(paths, verdict.run_id)
    return report is not None and report.outcome in ("published", "discarded")


def end_waiting(paths: PipelinePaths, lease: Lease, finished: list[RunReport]) -> bool:
    """Complete each decision that the table's log holds: quarantine, reports, then what was kept. May be repeated.

    Returns whether there was one; the reports that were given their end are added to ``finished``.
    """
    waiting = list_waiting(paths)
    decided = find_decided(paths, waiting)
    for one in waiting:
        if one.app_id not in decided:
            continue
        lease.check()
        # The log's entry of their query is at later batches by now, so these records have an entry of their own.
        if any(manifest.quarantine_files for manifest in one.manifests):
            state = read_table_state(paths.quarantine, (one.app_id,))
            if state is None or one.app_id not in state.txns:
                carry_out_plan(paths, plan_waiting(one, "quarantine"), lease)
        increment = Increment(one.run_id, _find_decision(paths, one), one.manifests, one.begun)
        finished += finish_increment(paths, increment, one.verdict, {})
        lease.check()
        for attempt in sorted(one.attempts):
            storage.remove_tree(paths.state / attempt)
            storage.remove_empty_folder((paths.state / attempt).parent)
            storage.remove_empty_folder((paths.state / attempt).parent.parent)
        note_version(paths, lease)
        lease.check()
        storage.remove(paths.waiting_increment(one.run_id))  # last: everything above is found by it
    return bool(decided)


def _find_decision(paths: PipelinePaths, waiting: WaitingIncrement) -> list[Commit]:
    version = find_commit(paths.table, waiting.app_id, 0)
    return [] if version is None else [Commit.read(paths, version, *waiting.manifests[-1].key, after=-1)]
