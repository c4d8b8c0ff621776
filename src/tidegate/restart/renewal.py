"""A new checkpoint for a query without state: where the old one does not fit, or has had very many batches.

The ledger, the manifests and the table's log know what was read. So the next query begins where these end, and nothing
is read twice.
"""

from __future__ import annotations

from tidegate.paths import PipelinePaths
from tidegate.preflight.facts import Facts, gather_facts
from tidegate.preflight.pending import Pending
from tidegate.preflight.pinned import settings_at_birth
from tidegate.recovery.context import RunContext
from tidegate.recovery.recover import sync_owed
from tidegate.restart.losses import left_behind
from tidegate.restart.rebirth import begin_anew, replace_query
from tidegate.staging.birth import Birth, new_birth
from tidegate.staging.checkpoint import count_files

FILES_AT_MOST = 100_000
"""Batch files in the lists of one checkpoint: some 30 MB of the driver's memory, as Spark keeps the name of every batch
file that it has ever read. Lists of version 0.1.0 name links."""


def renew_checkpoint(context: RunContext, pending: Pending) -> bool:
    """Begin a new query where the living one ends, if that keeps no state and its checkpoint cannot, or should not, be
    used any more. True when ``context`` has other facts then: look at the sources again, and call this again."""
    facts, paths = context.facts, context.paths
    assert facts is not None
    birth = facts.birth
    if birth is None or (facts.unfit is None and not _is_too_long(context, facts, birth)):
        return False
    sources = birth.sources | left_behind(context, birth)
    sources |= {name: arrival.next_start for name, arrival in pending.arrivals.items()}
    renewed = new_birth(paths, context.spec, sources, settings_at_birth(context.project, context.spec))
    why = "many batches" if facts.unfit is None else facts.unfit.message
    begun: PipelinePaths | None
    if facts.query_id is None:
        begun = begin_anew(paths, renewed, why=why, lease=context.lease)
    else:
        last = facts.next_to_stage
        begun = replace_query(paths, facts.query_id, renewed, why=why, lease=context.lease, in_flight=last)
    if begun is not None:
        context.paths = begun
        if facts.unfit is not None:
            context.report.add_note(facts.describe_unfit("this run began"))
    context.facts = gather_facts(context.paths, context.spec)
    if begun is None:  # a batch was staged meanwhile: its files are not read again
        sync_owed(paths, context.spec, context.facts, context.lease)
    return True


def _is_too_long(context: RunContext, facts: Facts, birth: Birth) -> bool:
    if facts.query_id is None or birth.state != [] or facts.checkpoint.in_flight is not None or facts.owed:
        return False
    return count_files(context.paths.checkpoint) > FILES_AT_MOST
