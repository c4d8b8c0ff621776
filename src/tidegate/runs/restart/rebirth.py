"""Ending a query and beginning the next one, so that nothing of the old one can come late.

A query is over when the logs say so: a commit to the table and to quarantine carries the last batch of the query that
counts, and from then on the logs take no later one, not even from a stale process. What comes late in the state folder
(a manifest, a plan) is known by the same number and is swept. Each query has a folder of its own for checkpoint and
birth record, numbered; the next one begins when the birth record of the next number is there, which one process alone
can create. So a stale process can neither write into the checkpoint of its successor nor set it back.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.pinned import settings_at_birth
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import sync_unpublished
from tidegate.state.birth import Birth, Start, new_birth, read_birth
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchKey, put_tombstone, read_manifests
from tidegate.state.retired import read_retired, record_retired
from tidegate.table.log.commit import retire_in_log
from tidegate.table.log.state import read_table_state


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
        raise errors.LEASE_LOST_TO_NEW_QUERY(where=str(begun.birth), query=number + 1, pipeline=paths.name)
    return begun


def replace_query(
    paths: PipelinePaths, query_id: str, birth: Birth, *, why: str, lease: Lease, in_flight: int | None
) -> PipelinePaths | None:
    """Retire a query, keeping what it has staged, and begin the next one: killed anywhere, the next run completes it.

    The paths of the new query; None as :func:`retire_query` returns False.
    """
    lease.check()
    if in_flight is not None and not put_tombstone(paths.manifest(query_id, in_flight), query_id, in_flight):
        return None
    last = last_that_counts(paths, query_id, keep_staged=True)
    begun = begin_new_query(paths, replace(birth, replaces=BatchKey(query_id, last)), why=why, lease=lease)
    retire_query(paths, query_id, lease=lease)
    return begun


def pin_paths(paths: PipelinePaths, lease: Lease) -> PipelinePaths:
    """The paths that the holder of a new lease works with: those of the newest query. Gives the lease back when it
    fails.

    The query that this one replaces is retired first, where the process that began it was stopped before. A birth that
    came late, from a stale process while the query it replaces continued, is removed again.
    """
    try:
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
    except BaseException:
        lease.release()
        raise


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
