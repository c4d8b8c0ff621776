"""A new checkpoint for a query that has had very many batches.

Spark keeps the name of every batch file that it has ever read, reads that list with each start and holds it in memory.
The ledger and the table's log know what was read as well, so a query without state can start over where it ends.
"""

from __future__ import annotations

from tidegate.preflight.facts import gather_facts
from tidegate.preflight.pending import Pending
from tidegate.recovery.context import RunContext
from tidegate.restart.rebirth import replace_query
from tidegate.staging.birth import new_birth, read_birth
from tidegate.staging.checkpoint import count_files

FILES_AT_MOST = 100_000
"""Batch files in the lists of one checkpoint: some 30 MB of the driver's memory. Lists of version 0.1.0 name links."""


def renew_long_checkpoint(context: RunContext, pending: Pending) -> None:
    """Begin a new query where the living one ends, when its lists have more than :data:`FILES_AT_MOST` files, it keeps
    no state, and all that it has read is in the table's log. ``context`` then has the new paths and facts."""
    facts, paths = context.facts, context.paths
    birth = read_birth(paths)
    assert facts is not None
    if facts.query_id is None or birth is None or birth.state is None or birth.keeps_state:
        return
    if facts.checkpoint.in_flight is not None or facts.owed or count_files(paths.checkpoint) <= FILES_AT_MOST:
        return
    sources = birth.sources | {name: arrival.next_start for name, arrival in pending.arrivals.items()}
    renewed = new_birth(paths, context.spec, sources, birth.settings)
    begun = replace_query(paths, facts.query_id, renewed, why="many batches", lease=context.lease, in_flight=None)
    assert begun is not None, "only a batch in flight can be staged meanwhile"
    context.paths = begun
    context.facts = gather_facts(begun, context.spec)
