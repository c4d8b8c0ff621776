"""Where the sources of a new query start: where the table's log ends. For kinds that keep a start (offsets of Kafka);
files have the ledger for that."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

from tidegate.errors import DisagreementError
from tidegate.paths import PipelinePaths
from tidegate.preflight.agreement import check_table
from tidegate.preflight.facts import Facts
from tidegate.project import Project
from tidegate.restart.rebuild import first_offsets
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.staging.birth import Birth, Start, read_birth
from tidegate.staging.topics import Positions, offsets_to_json, positions_from_json
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.state import read_log, read_table_state
from tidegate.table.log.taken import GENERATION, find_reread, walk_back

_POSITIONS = "tidegate.positions"
"""In a commit: where each source stands after it."""


def starts_of_sources(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, *, back_to: int | None = None
) -> dict[str, Start]:
    """Where each source with ``keeps_start`` begins in a new query: at the end of the table's newest tidegate commit
    whose records count as taken, or (``back_to``) where they would be after a rollback to that version; without a
    table, where the pipeline first began; else where the spec says."""
    streams = open_sources(project, paths, spec)
    sources = {name: source for name, source in streams.items() if source.keeps_start}
    if not sources:
        return {}
    before = read_birth(paths)
    is_at_birth = back_to is None and before is not None and _begins_where_the_log_ends(paths, facts, before)
    positions = _last_positions(paths, back_to) if facts.table is not None and not is_at_birth else {}
    # By the ids of the topics that were read then: a loss accepted since, of records that are owed, is found.
    then = _birth_of_last_commit(paths, back_to) if positions else None
    is_taken_back = facts.table is not None and (back_to is not None or _find_reread(paths) is not None)
    starts = {}
    for name, source in sources.items():
        known = before.sources.get(name) if before is not None else None
        if facts.table is None and not is_at_birth:
            known = first_offsets(paths, name)
        if name in positions:
            read_then = then.sources.get(name) if then is not None else None
            starts[name] = source.start_at(positions[name], read_then or known)
        else:
            if is_taken_back and not is_at_birth:  # all that was read of it was read by what is taken back
                known = first_offsets(paths, name)
            starts[name] = known or source.resolve_start()
    return starts


def _begins_where_the_log_ends(paths: PipelinePaths, facts: Facts, birth: Birth) -> bool:
    """Whether the living query has nothing in the table, and nothing before it is owed: then its birth says where the
    log ends, and what a person has accepted as lost since."""
    living = birth.query_id or facts.query_id
    if living is not None and facts.settled_up_to(living) >= 0:
        return False
    rolled_back = _find_reread(paths)
    if rolled_back is not None and int(rolled_back[GENERATION]) >= paths.pinned().newest_generation():
        return False  # the birth is from before a rollback, and knows nothing of what is to be read again
    try:
        check_table(facts, paths.name)
    except DisagreementError:
        return False
    found = [read_birth(replace(paths, generation=number)) for number in range(paths.pinned().newest_generation() + 1)]
    births = [one for one in found if one is not None]
    replaced = dict(one.replaces for one in births if one.replaces is not None)
    earlier = {one.query_id for one in births if one.born_at != birth.born_at} | set(replaced)
    if not _is_of(earlier, paths):
        return False  # the birth names another query than the one that read since: a process that slept has named it
    state = read_table_state(paths.table, tuple(sorted(replaced)))
    txns = {} if state is None else state.txns
    # By what births say, not by what is staged: a repair that was killed has had its staging swept.
    return all(txns.get(query, -1) >= last for query, last in replaced.items())


def _is_of(queries: Collection[str | None], paths: PipelinePaths) -> bool:
    """Whether the newest commit of a run, if there is one, was made by one of these queries."""
    told = (info for _, info in walk_back(paths.table) if "tidegate.query_id" in info and "tidegate.batches" in info)
    newest = next(told, None)
    return newest is None or str(newest["tidegate.query_id"]) in queries


def _find_reread(paths: PipelinePaths) -> CommitInfo | None:
    """What the newest rollback carries whose records are read again."""
    if read_table_state(paths.table) is None:
        return None
    found = find_reread(paths.table, read_log(paths.table))
    return None if found is None else found[1]


def _birth_of_last_commit(paths: PipelinePaths, version: int | None) -> Birth | None:
    """The birth of the query that made the newest commit of ours, as of ``version``."""
    told = next((info for _, info in walk_back(paths.table, version) if info.get(_POSITIONS)), None)
    numbers = range(paths.pinned().newest_generation(), -1, -1) if told else ()
    births = (read_birth(replace(paths, generation=number)) for number in numbers)
    return next((one for one in births if one is not None and told and one.query_id == told["tidegate.query_id"]), None)


def _last_positions(paths: PipelinePaths, version: int | None = None) -> Positions:
    """Where each source stands, by the newest commit that names it, as of ``version``."""
    found: Positions = {}
    if read_table_state(paths.table) is not None:
        for _, info in walk_back(paths.table, version):
            if info.get(_POSITIONS):
                found = {**positions_from_json(json.loads(info[_POSITIONS])), **found}
    return found


def starts_of_absent_sources(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> dict[str, Start]:
    """Sources that are no longer in the spec, with their last committed offsets, so that they continue from there if
    they are added again."""
    before = facts.birth
    gone = {name: one for name, one in (before.sources if before else {}).items() if one and name not in spec.streams}
    if not gone or before is None or facts.table is None:
        return {}
    positions = {} if _begins_where_the_log_ends(paths, facts, before) else _last_positions(paths)
    ends = {name: offsets_to_json(offsets) for name, offsets in positions.items()}
    return {name: {**one, "offsets": ends.get(name, one["offsets"])} for name, one in gone.items()}
