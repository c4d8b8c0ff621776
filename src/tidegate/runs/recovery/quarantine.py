"""The quarantined records of increments that were dealt with: they reach their table once the table's log says so.

The table comes first, quarantine follows before anything that knows of the records is cleared away. So an increment
that is held has none of its records in quarantine, and a process killed in between is followed by one that adds them.
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
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.quarantine import note_quarantine
from tidegate.runs.reports.waiting import list_waiting
from tidegate.state.digest import is_whole
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchManifest, manifest_to_json
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import PublishIntent, intent_path, pending_intents, write_intent
from tidegate.table.publish.plan import name_files, plan_publish
from tidegate.table.publish.publish import finish_intent
from tidegate.table.quarantine.schema import QUARANTINE_SCHEMA_JSON


def find_unsent(paths: PipelinePaths, settled: Sequence[BatchManifest]) -> list[BatchManifest]:
    """Those of the batches whose quarantined records the quarantine table's log does not hold."""
    queries = {manifest.query_id for manifest in settled if manifest.quarantine_files}
    if not queries:
        return []
    state = read_table_state(paths.quarantine, tuple(sorted(queries)))
    txns = {} if state is None else state.txns
    return [one for one in settled if one.quarantine_files and one.batch_id > txns.get(one.query_id, -1)]


def publish_quarantine(paths: PipelinePaths, settled: Sequence[BatchManifest], lease: Lease) -> None:
    """Add the quarantined records of batches that the table's log holds; what is there already is passed over.

    Raises what :func:`tidegate.table.publish.publish.finish_intent` raises.
    """
    unsent = find_unsent(paths, settled)
    for query_id in dict.fromkeys(manifest.query_id for manifest in unsent):
        batches = [manifest for manifest in unsent if manifest.query_id == query_id]
        state = read_table_state(paths.quarantine, (query_id,))
        extra = {
            "tidegate.query_id": query_id,
            "tidegate.batches": json.dumps([batches[0].batch_id, batches[-1].batch_id]),
        }
        intent = plan_publish(
            batches,
            run_id=batches[-1].run_id,
            target="quarantine",
            partition_by=[],
            app_version_before=-1 if state is None else state.txns.get(query_id, -1),
            schema_json=QUARANTINE_SCHEMA_JSON,
            custom_metadata=extra,
        )
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


def publish_quarantine_of(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], lease: Lease, *, app_id: str, run_id: str
) -> None:
    """Add the quarantined records of an increment that waited alone. The log's entry of their query is at later batches
    by now, so these have an entry of their own."""
    state = read_table_state(paths.quarantine, (app_id,))
    if not any(one.quarantine_files for one in manifests) or (state is not None and app_id in state.txns):
        return
    carry_out_plan(paths, plan_waiting(manifests, "quarantine", app_id=app_id, run_id=run_id), lease)


def plan_waiting(
    manifests: Sequence[BatchManifest],
    target: str,
    *,
    app_id: str,
    run_id: str,
    schema_json: str = QUARANTINE_SCHEMA_JSON,
    partition_by: Sequence[str] = (),
    custom_metadata: dict[str, str] | None = None,
) -> PublishIntent:
    """The publish of an increment that waited alone, under the id of the decision; its files have the names that they
    would have had."""
    files = []
    for manifest in manifests:
        staged = manifest.files if target == "table" else manifest.quarantine_files
        files += name_files(manifest, staged, partition_by=list(partition_by), schema_json=schema_json)
    return PublishIntent(
        pipeline=manifests[-1].pipeline,
        run_id=run_id,
        target="table" if target == "table" else "quarantine",
        schema_json=schema_json,
        partition_by=list(partition_by),
        app_id=app_id,
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
