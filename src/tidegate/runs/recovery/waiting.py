"""Deferred increments: how one is deferred, and how its end is completed.

Everything is recorded in the table's log. A commit that says ``waiting`` moved on past the batches: then what a
decision needs is written down, before their manifests go. A commit under the increment's own id is the decision: then
its quarantined records and reports follow, and what was kept goes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.commits import Commit, Increment, find_increments
from tidegate.runs.recovery.finish import finish_increment
from tidegate.runs.recovery.hand_over import note_version
from tidegate.runs.recovery.quarantine import find_unsent, publish_quarantine_of
from tidegate.runs.reports.report import RunReport, load_report
from tidegate.runs.reports.verdicts import StoredVerdict, are_settled, list_verdicts, load_decision
from tidegate.runs.reports.waiting import WaitingIncrement, find_decided, list_waiting, load_waiting, save_waiting
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchKey, BatchManifest, batch_keys
from tidegate.table.log.state import find_commit, read_commit_metadata


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


def sync_waiting(paths: PipelinePaths, passed: Collection[BatchKey], settled: Sequence[BatchManifest]) -> None:
    """Sync the folder of the increments that wait, if any of the settled batches was passed.

    An earlier process may have been stopped between writing such a file and syncing its folder. After a power cut the
    increment would be lost, because its manifests are removed next.
    """
    if any(manifest.key in passed for manifest in settled):
        storage.sync_folder(paths.waiting)


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
    """Whether an increment could be committed under this verdict. A decision is removed before its verdict, so the
    report counts too."""
    if verdict.passed or load_decision(paths, verdict) is not None:
        return True
    report = load_report(paths, verdict.run_id)
    return report is not None and report.outcome in ("published", "discarded")


def name_kept(paths: PipelinePaths) -> set[str]:
    """The attempt folders, relative to the state folder, that belong to increments that wait."""
    return {attempt for one in list_waiting(paths) for attempt in one.attempts}


def end_waiting(paths: PipelinePaths, lease: Lease, finished: list[RunReport] | None = None) -> bool:
    """Complete each decision that the table's log holds: quarantine, reports, then what was kept. May be repeated.

    Returns whether there was one; the reports that were given their end are added to ``finished``.
    """
    waiting = list_waiting(paths)
    decided = find_decided(paths, waiting)
    for one in waiting:
        if one.app_id not in decided:
            continue
        lease.check()
        publish_quarantine_of(paths, one.manifests, lease, app_id=one.app_id, run_id=one.run_id)
        increment = Increment(one.run_id, _find_decision(paths, one), one.manifests, one.begun)
        ended = finish_increment(paths, increment, one.verdict)
        if finished is not None:
            finished += ended
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
    if version is None:
        return []
    info = read_commit_metadata(paths.table, version)
    decision = info.get("tidegate.decision")
    query_id, last = waiting.manifests[-1].key
    return [
        Commit(
            version,
            waiting.run_id,
            str(info.get("tidegate.outcome")),
            query_id,
            -1,
            last,
            json.loads(decision) if decision else None,
            info.get("tidegate.verdict"),
        )
    ]
