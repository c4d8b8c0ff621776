"""Where the sources of a new query start: where the table's log ends. For kinds that keep a start (offsets of Kafka);
files have the ledger for that."""

from __future__ import annotations

import contextlib
import json

from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.log_end import LogEnd, find_end, read_newest_reread, was_written_by
from tidegate.runs.restart.rebuild import first_offsets
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Birth, Start, read_birth, read_births
from tidegate.state.topics import Positions, offsets_to_json
from tidegate.table.log.state import read_table_state
from tidegate.table.log.taken import GENERATION, log_is_cut, walk_back


def starts_of_sources(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, *, back_to: int | None = None
) -> dict[str, Start]:
    """Where each source with ``keeps_start`` begins in a new query: at the end of the table's newest tidegate commit
    whose records count as taken, or (``back_to``) where they would be after a rollback to that version; without a
    table, where the pipeline first began; else where the spec says.

    Raises DisagreementError TABLE_LOG_CUT when the log no longer says so, and the note of the last publish neither.
    """
    streams = open_sources(project, paths, spec)
    sources = {name: source for name, source in streams.items() if source.keeps_start}
    if not sources:
        return {}
    before = read_birth(paths)
    is_at_birth = back_to is None and before is not None and _begins_where_the_log_ends(paths, facts, before)
    end = find_end(paths, back_to) if facts.table is not None and not is_at_birth else LogEnd()
    # By the ids of the topics that were read then: a loss accepted since, of records that are pending, is found.
    births = read_births(paths) if end.query_id is not None else []
    then = next((one for one in reversed(births) if one.query_id == end.query_id), None)
    is_taken_back = facts.table is not None and (back_to is not None or read_newest_reread(paths) is not None)
    living = (before.query_id if before is not None else None) or facts.query_id
    is_living = living is not None and facts.settled_up_to(living) >= 0 and not is_taken_back and back_to is None
    # What an older query has read of a source that this one has not had yet: its own birth record is newer.
    own = find_end(paths, of_query=living).positions if is_living and end.cut_at is None else end.positions
    starts = {}
    for name, source in sources.items():
        known = before.sources.get(name) if before is not None else None
        if facts.table is None and not is_at_birth:
            known = first_offsets(paths, name)
        if name in end.positions and (name in own or not known):
            read_then = then.sources.get(name) if then is not None else None
            starts[name] = source.start_at(end.positions[name], read_then or known)
        else:
            if end.cut_at is not None and (before is None or is_taken_back):
                raise log_is_cut(paths.table, end.cut_at, f"where source {name} is at")
            if before is None and not known and facts.table is not None and _goes_on_from_a_job(paths):
                raise errors.ADOPTED_AT_UNKNOWN(where=f"pipeline {paths.name}", name=paths.name, source=name)
            if is_taken_back and not is_at_birth:  # all that was read of it was read by what is taken back
                known = first_offsets(paths, name)
            starts[name] = known or source.resolve_start()
    return starts


def _goes_on_from_a_job(paths: PipelinePaths) -> bool:
    """Whether the table was adopted with the checkpoint of a job; without one the spec says where sources start."""
    found = (info.get("tidegate.adopted") for _, info in walk_back(paths.table) if info is not None)
    return any("query" in json.loads(one) for one in found if one)


def _begins_where_the_log_ends(paths: PipelinePaths, facts: Facts, birth: Birth) -> bool:
    """Whether the living query has nothing in the table, and nothing before it is unpublished: then its birth says
    where the log ends, and what a person has accepted as lost since."""
    living = birth.query_id or facts.query_id
    if facts.log_fault is not None:
        return False
    if living is not None and facts.settled_up_to(living) >= 0:
        return False
    rolled_back = read_newest_reread(paths)
    if rolled_back is not None and int(rolled_back[GENERATION]) >= paths.newest_generation():
        return False  # the birth is from before a rollback, and knows nothing of what is to be read again
    try:
        check_table(facts, paths.name)
    except DisagreementError:
        return False
    births = read_births(paths)
    replaced = dict(one.replaces for one in births if one.replaces is not None)
    earlier = {one.query_id for one in births if one.born_at != birth.born_at} | set(replaced)
    if not was_written_by(paths, earlier):
        return False  # the birth names another query than the one that read since: a stale process has named it
    state = read_table_state(paths.table, tuple(sorted(replaced)))
    txns = {} if state is None else state.txns
    # By what births say, not by what is staged: a repair that was killed has had its staging swept.
    return all(txns.get(query, -1) >= last for query, last in replaced.items())


def starts_of_absent_sources(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> dict[str, Start]:
    """Sources that are no longer in the spec, with their last committed offsets, so that they continue from there if
    they are added again."""
    before = facts.birth
    if facts.table is None:
        return {}
    if before is None:  # the log has them all the same, but not the ids of their topics
        positions: Positions = {}
        with contextlib.suppress(DisagreementError):  # commits are gone, and most pipelines never had such a source
            positions = find_end(paths).positions
        known = {name: offsets for name, offsets in positions.items() if name not in spec.sources}
        return {name: {"offsets": offsets_to_json(offsets), "topic_ids": {}} for name, offsets in known.items()}
    gone = {name: one for name, one in before.sources.items() if one and name not in spec.streams}
    if not gone:
        return {}
    is_at_birth = _begins_where_the_log_ends(paths, facts, before)
    is_living = before.query_id is not None and facts.settled_up_to(before.query_id) >= 0
    positions = {} if is_at_birth else find_end(paths, of_query=before.query_id if is_living else None).positions
    ends = {name: offsets_to_json(offsets) for name, offsets in positions.items()}
    return {name: {**one, "offsets": ends.get(name, one["offsets"])} for name, one in gone.items()}
