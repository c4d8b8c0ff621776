"""Batches without data that close what is open: one that a killed driver did not run, and one for when nothing
comes."""

from __future__ import annotations

import time

from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.pending import Pending
from tidegate.runs.recovery.context import RunContext
from tidegate.spec.models import CloseWhen
from tidegate.state.checkpoint import plan_closing_batch, read_watermark
from tidegate.state.open_state import closing_watermark, read_open_state


def make_up_closing(context: RunContext, pending: Pending, facts: Facts) -> bool:
    """Plan the batch that closes what the last batch with data has passed, when the driver was killed before it was
    planned: Spark never makes it up, and judges later records by the watermark from before."""
    note = read_open_state(context.paths, facts.query_id)
    if note is None or note.rows == 0 or note.drained_batch == facts.checkpoint.last_commit:
        return False
    # What is new belongs to the run that was killed; it closes at its end.
    at_end = context.spec.close_windows == "at_end" and not pending.has_new
    watermark_ms = closing_watermark(note, context.spec.watermarks, context.spec.watermark_policy, everything=at_end)
    context.lease.check()
    watermark_ms = max(watermark_ms, read_watermark(context.paths.checkpoint))
    return plan_closing_batch(context.paths.checkpoint, watermark_ms) is not None


def close_idle(context: RunContext, pending: Pending, facts: Facts) -> bool:
    """Plan a batch that closes what is open, when nothing has come for as long as ``close_windows`` says.

    The watermark moves as if event time had gone on while nothing came: to the greatest one plus that time.
    """
    policy = context.spec.close_windows
    note = read_open_state(context.paths, facts.query_id)
    comes = pending.has_new or pending.comes_later
    if comes or not isinstance(policy, CloseWhen) or note is None or note.rows == 0 or not note.event_times:
        return False
    if time.time() * 1000 - note.last_data_at_ms < policy.when * 1000:
        return False
    watermark_ms = max(note.open_until_ms or 0, max(note.event_times.values()) + round(policy.when * 1000))
    if watermark_ms <= read_watermark(context.paths.checkpoint):
        return False
    context.lease.check()
    return plan_closing_batch(context.paths.checkpoint, watermark_ms) is not None
