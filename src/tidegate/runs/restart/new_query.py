"""Ending a query and beginning the next one, so that nothing of the old one can come late.

A query is over when the logs say so: a commit to the table and to quarantine carries the last batch of the query that
counts, and from then on the logs take no later one, not even from a stale process. What comes late in the state folder
(a manifest, a plan) is known by the same number and is swept. Each query has a folder of its own for checkpoint and
birth record, numbered; the next one begins when the birth record of the next number is there, which one process alone
can create. So a stale process can neither write into the checkpoint of its successor nor set it back.

Runs begin the next query in two cases: where the checkpoint of a query without state does not fit, or has had very many
batches (ledger, manifests and the table's log know what was read), and where a person accepts the loss of records that
a source no longer has. The pending offsets begin after the last batch whose records are kept, so a batch in flight is
pending too. A query with state keeps its checkpoint, and the batches in it are moved past the loss.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import Pending, gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import sync_unpublished
from tidegate.sources import errors as sources_errors
from tidegate.sources.port import Loss
from tidegate.spark.driver.jvm import PINNED, own_settings
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state import errors as state_errors
from tidegate.state.batch_files import BatchFiles
from tidegate.state.birth import Birth, Start, new_birth, read_birth, replace_birth
from tidegate.state.checkpoint import count_files, read_pinned_settings
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchKey, put_tombstone, read_manifests
from tidegate.state.published import read_retired, record_retired
from tidegate.state.topics import offsets_to_json
from tidegate.table.log.commit import retire_in_log
from tidegate.table.log.state import read_table_state

if TYPE_CHECKING:
    from tidegate.core.outputs import AcceptedLoss


def retire_query(paths: PipelinePaths, query_id: str, *, lease: Lease, keep_staged: bool = True) -> None:
    """End a query for good; may be repeated.

    ``keep_staged``: what is staged by now is still published; otherwise the last batch that counts is the one that
    the table's log holds. Raises TryAgainError LEASE_LOST, COMMIT_FAILED or DISK_FULL.
    """
    lease.check()
    last = last_that_counts(paths, query_id, keep_staged=keep_staged)
    for table_path in (paths.table, paths.quarantine):
        lease.check()
        retire_in_log(table_path, query_id, last_batch=last)
    lease.check()
    record_retired(paths, query_id, last)


def last_that_counts(paths: PipelinePaths, query_id: str, *, keep_staged: bool) -> int:
    """The last batch of a query that is in the table or (``keep_staged``) waits in staging; -1 for none."""
    state = read_table_state(paths.table, (query_id,))
    settled = -1 if state is None else state.txns.get(query_id, -1)
    staged = [manifest.batch_id for manifest in read_manifests(paths.manifests, query_id)] if keep_staged else []
    return max([settled, *staged])


def begin_new_query(paths: PipelinePaths, birth: Birth, *, why: str, lease: Lease) -> PipelinePaths:
    """Begin the next query with ``birth``; the paths pinned to it. The old checkpoint stays where it is, unused.

    One file decides, so there is no half-begun query. Raises TryAgainError LEASE_LOST, also when another process has
    begun it since ``paths`` were pinned.
    """
    number = paths.newest_generation() if paths.generation is None else paths.generation
    begun = replace(paths, generation=number + 1)
    lease.check()
    storage.replace(begun.query_folder / "why.txt", (why + "\n").encode())
    lease.check()
    if not storage.put_if_absent(begun.birth, storage.dump_json(asdict(birth))):
        now = f"another process has started query number {number + 1}"
        raise state_errors.LEASE_LOST(where=str(begun.birth), pipeline=paths.name, holder=now)
    return begun


def replace_query(
    paths: PipelinePaths, query_id: str, birth: Birth, *, why: str, lease: Lease, in_flight: int | None
) -> PipelinePaths | None:
    """Retire a query, keeping what it has staged, and begin the next one: killed anywhere, the next run completes it.

    The paths of the new query; None when the batch in flight was staged meanwhile.
    """
    lease.check()
    if in_flight is not None and not put_tombstone(paths.manifest(query_id, in_flight), query_id, in_flight):
        return None
    last = last_that_counts(paths, query_id, keep_staged=True)
    begun = begin_new_query(paths, replace(birth, replaces=BatchKey(query_id, last)), why=why, lease=lease)
    retire_query(paths, query_id, lease=lease)
    return begun


def pin_paths(paths: PipelinePaths, lease: Lease) -> PipelinePaths:
    """The paths that the holder of a new lease works with: those of the newest query.

    The query that this one replaces is retired first, where the process that began it was stopped before. A birth that
    came late, from a stale process while the query it replaces continued, is removed again.
    """
    pinned = paths.pinned()
    birth = read_birth(pinned)
    if birth is None or birth.replaces is None or birth.replaces.query_id in read_retired(paths):
        return pinned
    query_id, last = birth.replaces
    lease.check()
    if last_that_counts(paths, query_id, keep_staged=True) > last:
        aside = paths.set_aside / f"late-{pinned.query_folder.name}-{secrets.token_hex(4)}"
        storage.move(pinned.query_folder, aside)  # under a new name: its number is given again
        return paths.pinned()
    retire_query(paths, query_id, lease=lease)
    return pinned


def begin_next_query(context: RunContext, sources: Mapping[str, Start], *, why: str) -> bool:
    """End the query of a run, keeping what it has staged, and begin the next one with ``sources``; ``context`` has its
    paths then, and its report says so where the checkpoint was ignored. ``context.facts`` are gathered again.

    False when a batch was staged meanwhile: its records count as read, and the next query must begin after them.
    """
    facts, paths = context.facts, context.paths
    assert facts is not None
    settings = settings_at_birth(context.project, context.spec)
    birth = new_birth(paths, context.spec, dict(sources), settings)
    begun: PipelinePaths | None
    if facts.query_id is None:
        begun = begin_new_query(paths, birth, why=why, lease=context.lease)
    else:
        last = facts.next_to_stage
        begun = replace_query(paths, facts.query_id, birth, why=why, lease=context.lease, in_flight=last)
    if begun is not None:
        context.paths = begun
        if facts.unusable is not None:
            context.report.add_note(f"began {facts.unusable.describe()}")
    context.facts = gather_facts(context.paths, context.spec)
    if begun is None:
        sync_unpublished(paths, context.spec, context.facts, context.lease)
    return begun is not None


_CHOSEN_AT_BIRTH = "spark.sql.shuffle.partitions"


def settings_at_birth(project: Project, spec: PipelineSpec) -> dict[str, str]:
    """The settings that a checkpoint born now keeps: the user's own number of shuffle partitions, or tidegate's."""
    own = own_settings(project, spec.spark.conf)
    return {**PINNED, _CHOSEN_AT_BIRTH: own.get(_CHOSEN_AT_BIRTH, PINNED[_CHOSEN_AT_BIRTH])}


def describe_pinned(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, settings: Mapping[str, str], last_offset: int | None
) -> list[str]:
    """A sentence for each of the user's settings that the checkpoint has with another value.

    ``settings`` are those of its birth; ``last_offset`` is its last planned batch, None before the first one.
    """
    own = own_settings(project, spec.spark.conf)
    by_spark = {} if last_offset is None else read_pinned_settings(paths.checkpoint, last_offset)
    kept = {**by_spark, **settings}
    return [
        f"{key} is {own[key]} in spark.conf, and stays {kept[key]} for this checkpoint: it is read once, with the "
        "first batch"
        for key in sorted(own.keys() & kept.keys())
        if own[key] != kept[key]
    ]


FILES_AT_MOST = 100_000
"""Batch files in the lists of one checkpoint: some 30 MB of the driver's memory, as Spark keeps the name of every batch
file that it has ever read. Lists of version 0.1.0 name links."""


def renew_checkpoint(context: RunContext, pending: Pending) -> bool:
    """Begin a new query where the current one ends, if that keeps no state and its checkpoint is ignored or too long.
    True when ``context`` has other facts then: look at the sources again, and call this again, which ends with a query
    whose checkpoint fits."""
    facts = context.facts
    assert facts is not None
    birth = facts.birth
    if birth is None or (facts.unusable is None and not _is_too_long(context, facts, birth)):
        return False
    sources = birth.sources | left_behind(context, birth)
    sources |= {name: arrival.next_start for name, arrival in pending.arrivals.items()}
    begin_next_query(context, sources, why="many batches" if facts.unusable is None else facts.unusable.reason.message)
    return True


def _is_too_long(context: RunContext, facts: Facts, birth: Birth) -> bool:
    if facts.query_id is None or birth.state != [] or facts.checkpoint.in_flight is not None or facts.unpublished:
        return False
    return count_files(context.paths.checkpoint) > FILES_AT_MOST


def find_losses(pending: Pending) -> dict[str, Loss]:
    """What each source lost; sources that lost nothing are excluded."""
    found = {name: arrival.find_loss() for name, arrival in pending.arrivals.items()}
    return {name: loss for name, loss in found.items() if loss is not None}


def loss_error(name: str, facts: Facts, losses: Mapping[str, Loss]) -> TidegateError:
    """The error with which pipeline ``name`` stops: the exact ranges, and the command that continues."""
    found = [loss.to_error() for loss in losses.values()]
    message = "; ".join(error.message for error in found)
    where = "; ".join(str(error.where) for error in found)
    if facts.begun_and_staged is not None and any(loss.reaches_begun_batch for loss in losses.values()):
        return errors.LOSS_IN_BATCH(
            where=where,
            batch_id=facts.begun_and_staged,
            loss=message,
            name=name,
        )
    found[0].message, found[0].where = message, where
    return found[0]


def accept_losses(context: RunContext, pending: Pending, reason: str | None) -> bool:
    """Stop on a loss, or with a ``reason`` record it and continue after it.

    True when ``context.facts`` are others than before: look at the sources again, and call this again.
    """
    facts, losses = context.facts, find_losses(pending)
    if not losses:
        return False
    assert facts is not None
    error = loss_error(context.name, facts, losses)
    if reason is None or error.code == "LOSS_IN_BATCH":
        raise error
    if facts.begun_and_staged is not None:
        note = f"batch {facts.begun_and_staged} is finished first; the loss behind it can be accepted after that"
        context.report.add_note(note)
        return False
    record = _record(context, facts, losses, reason)
    context.lease.check()
    before = storage.read(context.paths.losses) if storage.exists(context.paths.losses) else b""
    line = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    storage.replace(context.paths.losses, before + line)
    if facts.birth is not None and facts.birth.keeps_state and facts.checkpoint.last_commit is not None:
        _move_behind(context, facts, losses)
        context.facts = gather_facts(context.paths, context.spec)
        context.report.accepted_loss = record
    elif _begin_behind(context, facts, pending, losses):
        context.report.accepted_loss = record
    else:
        storage.replace(context.paths.losses, before)
    return True


def _record(context: RunContext, facts: Facts, losses: Mapping[str, Loss], reason: str) -> AcceptedLoss:
    """The loss as it is recorded: every lost range, and the batch that is planned again because of it."""
    record: AcceptedLoss = {
        "run_id": context.report.run_id,
        "at": now_text(),
        "reason": reason.strip(),
        "sources": {name: loss.to_dict() for name, loss in losses.items()},
    }
    if facts.in_flight is not None:
        record["planned_anew"] = {"query_id": facts.query_id, "batch_id": facts.in_flight}
    return record


def left_behind(context: RunContext, birth: Birth) -> dict[str, Start]:
    """Kafka sources that the spec no longer has, with how far they were read, where they continue if they come back."""
    assert context.facts is not None
    checkpoint, unusable = context.facts.checkpoint, context.facts.unusable
    gone = {name: value for name, value in birth.sources.items() if value and name not in context.spec.streams}
    if not gone or checkpoint.last_offset is None:
        return {}
    try:
        files = {name: BatchFiles(context.paths.checkpoint, name) for name in gone if unusable is None}
        ends = {name: one.read_position() for name, one in files.items()} if unusable is None else unusable.positions
    except ValueError as torn:
        raise sources_errors.CHECKPOINT_TORN(
            where=f"pipeline {context.name}", name=context.name, faults=str(torn)
        ) from torn
    known = {name: offsets_to_json(ends.get(name, {})) for name in gone}
    return {name: {**value, "offsets": known[name] or value["offsets"]} for name, value in gone.items()}


def _begin_behind(context: RunContext, facts: Facts, pending: Pending, losses: Mapping[str, Loss]) -> bool:
    """Begin a new query behind what is lost, from what is pending of everything else. False when the batch in flight
    was staged meanwhile, so that the pending offsets begin after it."""
    sources = {name: arrival.next_start for name, arrival in pending.arrivals.items()}
    sources |= {name: loss.start_behind() for name, loss in losses.items()}
    if facts.birth is not None:
        sources |= left_behind(context, facts.birth)
    return begin_next_query(context, sources, why="accepted loss")


def _move_behind(context: RunContext, facts: Facts, losses: Mapping[str, Loss]) -> None:
    """Let what follows begin behind what is lost: the checkpoint has state that a new one would not have. The birth
    comes last: killed in between, its record of the loss is still found."""
    paths, birth = context.paths, facts.birth
    assert birth is not None
    for loss in losses.values():
        loss.move_behind(paths.checkpoint, facts.in_flight, context.lease.check)
    after_loss = {name: loss.start_behind() for name, loss in losses.items()}
    context.lease.check()
    replace_birth(paths, replace(birth, sources={**birth.sources, **after_loss}))
