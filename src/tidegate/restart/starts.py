"""Where the sources of a new query start: where the table's log ends. For kinds that keep a start (offsets of Kafka);
files have the ledger for that."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tidegate.errors import DisagreementError
from tidegate.paths import PipelinePaths
from tidegate.preflight.agreement import check_table
from tidegate.preflight.facts import Facts
from tidegate.project import Project
from tidegate.restart.rebuild import first_offsets
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.staging.birth import Birth, Start, read_birth
from tidegate.staging.published import read_published
from tidegate.staging.topics import Positions, offsets_to_json, positions_from_json
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.state import read_log, read_log_at, read_table_state
from tidegate.table.log.taken import GENERATION, WORK, find_reread, log_is_cut, walk_back

_QUERY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The id that Spark gives to a query."""
_POSITIONS = "tidegate.positions"
"""In a commit: where each source is at after it."""


@dataclass(frozen=True)
class _End:
    """Where the log ends: the position of each source, and the query that read up to there."""

    positions: Positions = field(default_factory=dict)
    query_id: str | None = None
    cut_at: int | None = None
    """The newest version that the log no longer has, where it was looked for."""


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
    end = _find_end(paths, back_to) if facts.table is not None and not is_at_birth else _End()
    # By the ids of the topics that were read then: a loss accepted since, of records that are owed, is found.
    then = _birth_of(paths, end.query_id)
    is_taken_back = facts.table is not None and (back_to is not None or _find_reread(paths) is not None)
    starts = {}
    for name, source in sources.items():
        known = before.sources.get(name) if before is not None else None
        if facts.table is None and not is_at_birth:
            known = first_offsets(paths, name)
        if name in end.positions:
            read_then = then.sources.get(name) if then is not None else None
            starts[name] = source.start_at(end.positions[name], read_then or known)
        else:
            if end.cut_at is not None and (before is None or is_taken_back):
                raise log_is_cut(paths.table, end.cut_at, f"where source {name} is at")
            if is_taken_back and not is_at_birth:  # all that was read of it was read by what is taken back
                known = first_offsets(paths, name)
            starts[name] = known or source.resolve_start()
    return starts


def _begins_where_the_log_ends(paths: PipelinePaths, facts: Facts, birth: Birth) -> bool:
    """Whether the living query has nothing in the table, and nothing before it is owed: then its birth says where the
    log ends, and what a person has accepted as lost since."""
    living = birth.query_id or facts.query_id
    if facts.log_fault is not None:
        return False
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
    for _, info in walk_back(paths.table):
        if info is None:  # then the commit is below: of all queries that the log still knows it must be one of these
            return set(_last_written(paths)) <= set(queries)
        if "tidegate.query_id" in info and "tidegate.batches" in info:
            return str(info["tidegate.query_id"]) in queries
    return True


def _find_reread(paths: PipelinePaths) -> CommitInfo | None:
    """What the newest rollback carries whose records are read again."""
    if read_table_state(paths.table) is None:
        return None
    found = find_reread(paths.table, read_log(paths.table))
    return None if found is None else found[1]


def _birth_of(paths: PipelinePaths, query_id: str | None) -> Birth | None:
    """The birth of a query."""
    numbers = range(paths.pinned().newest_generation(), -1, -1) if query_id is not None else ()
    births = (read_birth(replace(paths, generation=number)) for number in numbers)
    return next((one for one in births if one is not None and one.query_id == query_id), None)


def _find_end(paths: PipelinePaths, version: int | None = None) -> _End:
    """Where each source is at, by the newest commit that names it, as of ``version``."""
    end = _End()
    for number, info in walk_back(paths.table, version):
        if info is None:
            end = replace(end, cut_at=number)
        elif info.get(_POSITIONS):
            positions = {**positions_from_json(json.loads(info[_POSITIONS])), **end.positions}
            end = _End(positions, end.query_id or str(info["tidegate.query_id"]))
    if end.cut_at is None or end.query_id is not None:
        return end
    return _end_by_note(paths, version, end.cut_at)


def _end_by_note(paths: PipelinePaths, version: int | None, cut_at: int) -> _End:
    """Where the log ended at the last publish, by the note in the state folder. Log clean-up removes the commits of old
    versions, and leaves the last batch of each query."""
    written = _last_written(paths, version)
    if not written:  # all rows are from before the pipeline, or of others
        return _End(cut_at=cut_at)
    note, log = read_published(paths), read_log(paths.table)
    if note is not None and note.version >= cut_at and _find_reread(paths) is None:
        # The note has been written since the rollbacks whose commits are gone, so its positions are those after them.
        queries = {query: at for query, at in written.items() if not query.startswith(WORK)}
        if queries:
            written = queries
    newest = max(written, key=lambda query: written[query])
    if (
        version is None
        and note is not None
        and note.positions is not None
        and (note.table_id, note.query_id) == (log.metadata["id"], newest)
        and log.transaction_version(newest) == note.batch_id
    ):
        return _End(note.positions, newest, cut_at)
    raise log_is_cut(paths.table, cut_at, "the offsets up to which it holds each topic")


def _last_written(paths: PipelinePaths, version: int | None = None) -> dict[str, int]:
    """{id: when it last moved on} of the queries that the log holds batches of, and of rollbacks, also where their
    commits are gone."""
    log = read_log(paths.table) if version is None else read_log_at(paths.table, version)
    return {
        app_id: int(txn.get("lastUpdated") or 0)
        for app_id, txn in log.txns.items()
        if int(txn["version"]) >= 0 and (_QUERY.fullmatch(app_id) or app_id.startswith(WORK))
    }


def starts_of_absent_sources(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> dict[str, Start]:
    """Sources that are no longer in the spec, with their last committed offsets, so that they continue from there if
    they are added again."""
    before = facts.birth
    gone = {name: one for name, one in (before.sources if before else {}).items() if one and name not in spec.streams}
    if not gone or before is None or facts.table is None:
        return {}
    positions = {} if _begins_where_the_log_ends(paths, facts, before) else _find_end(paths).positions
    ends = {name: offsets_to_json(offsets) for name, offsets in positions.items()}
    return {name: {**one, "offsets": ends.get(name, one["offsets"])} for name, one in gone.items()}
