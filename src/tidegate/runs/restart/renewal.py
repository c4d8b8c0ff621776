"""A new checkpoint for a query without state: where the old one does not fit, or has had very many batches.

The ledger, the manifests and the table's log know what was read. So the next query begins where these end, and nothing
is read twice.
"""

from __future__ import annotations

from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.pending import Pending
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.restart.losses import left_behind
from tidegate.runs.restart.rebirth import begin_next_query
from tidegate.state.birth import Birth
from tidegate.state.checkpoint import count_files

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
