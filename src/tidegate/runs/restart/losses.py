"""Records that a source lost before they were read: named before Spark starts, left behind when a person accepts it.

The pending offsets begin after the last batch whose records are kept (:mod:`tidegate.sources.kafka.source`), so a batch
in flight is pending too. A query without state gets a new checkpoint that begins there, after what is lost; one with
state keeps its checkpoint, and the batches in it are moved past the loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import is_wordless
from tidegate.runs import errors as runs_errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.pending import Pending
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.restart.rebirth import begin_next_query
from tidegate.runs.restart.rebuild import rebuild_choices
from tidegate.sources import errors as sources_errors
from tidegate.sources.port import Loss
from tidegate.state.batch_files import BatchFiles
from tidegate.state.birth import Birth, Start, replace_birth
from tidegate.state.topics import offsets_to_json

if TYPE_CHECKING:
    from tidegate.core.outputs import AcceptedLoss


def check_reason(reason: str | None) -> None:
    """Raise UsageError REASON_MISSING for a loss that is to be accepted without a reason."""
    if reason is not None and is_wordless(reason):
        raise runs_errors.LOSS_REASON_MISSING()


def find_losses(pending: Pending) -> dict[str, Loss]:
    """What each source lost; sources that lost nothing are excluded."""
    found = {name: arrival.find_loss() for name, arrival in pending.arrivals.items()}
    return {name: loss for name, loss in found.items() if loss is not None}


def loss_error(name: str, facts: Facts, losses: Mapping[str, Loss]) -> TidegateError:
    """The error with which pipeline ``name`` stops: the exact ranges, and the command that continues."""
    errors = [loss.to_error() for loss in losses.values()]
    message = "; ".join(error.message for error in errors)
    where = "; ".join(str(error.where) for error in errors)
    if facts.begun_and_staged is not None and any(loss.reaches_begun_batch for loss in losses.values()):
        return runs_errors.LOSS_IN_BATCH(
            where=where,
            batch_id=facts.begun_and_staged,
            loss=message,
            choices="; or ".join(rebuild_choices(name)),
            name=name,
        )
    errors[0].message, errors[0].where = message, where
    return errors[0]


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
    before = _append_line(context.paths, record)
    if _keeps_checkpoint(facts):
        _move_behind(context, facts, losses)
        context.facts = gather_facts(context.paths, context.spec)
        context.report.accepted_loss = record
    elif _begin_behind(context, facts, pending, losses):
        context.report.accepted_loss = record
    else:
        storage.replace(context.paths.losses, before)
    return True


def _keeps_checkpoint(facts: Facts) -> bool:
    """Whether the checkpoint has state that a new one would not have."""
    return facts.birth is not None and facts.birth.keeps_state and facts.checkpoint.last_commit is not None


def _record(context: RunContext, facts: Facts, losses: Mapping[str, Loss], reason: str) -> AcceptedLoss:
    """The loss as it goes on record: every lost range, and the batch that is planned again because of it."""
    record: AcceptedLoss = {
        "run_id": context.report.run_id,
        "at": now_text(),
        "reason": reason.strip(),
        "sources": {name: loss.to_dict() for name, loss in losses.items()},
    }
    if facts.in_flight is not None:
        record["planned_anew"] = {"query_id": facts.query_id, "batch_id": facts.in_flight}
    return record


def _append_line(paths: PipelinePaths, record: AcceptedLoss) -> bytes:
    """Put the loss on record; what was on record before."""
    before = storage.read(paths.losses) if storage.exists(paths.losses) else b""
    storage.replace(paths.losses, before + json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    return before


def left_behind(context: RunContext, birth: Birth) -> dict[str, Start]:
    """Kafka sources that the spec no longer has, with how far they were read: if they come back, they continue
    there."""
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
