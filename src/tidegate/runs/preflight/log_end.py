"""Where the table's log ends: the position of each source of topics, by the newest commit that names it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tidegate.core.paths import PipelinePaths
from tidegate.state.published import read_published
from tidegate.state.topics import Positions, positions_from_json
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.state import read_log, read_log_at, read_table_state
from tidegate.table.log.taken import WORK, find_reread, log_is_cut, walk_back

_QUERY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The id that Spark gives to a query."""
_POSITIONS = "tidegate.positions"
"""In a commit: where each source is at after it."""


@dataclass(frozen=True)
class LogEnd:
    """Where the log ends: the position of each source, and the query that read up to there."""

    positions: Positions = field(default_factory=dict)
    query_id: str | None = None
    cut_at: int | None = None
    """The newest version that the log no longer has, where it was looked for."""


def find_end(paths: PipelinePaths, version: int | None = None, *, of_query: str | None = None) -> LogEnd:
    """Where each source is at, as of ``version`` (None: now), by all queries or ``of_query`` alone. Raises
    DisagreementError TABLE_LOG_CUT."""
    end = LogEnd()
    for number, info in walk_back(paths.table, version):
        if info is None:
            end = replace(end, cut_at=number)
        elif info.get(_POSITIONS) and of_query in (None, info.get("tidegate.query_id")):
            positions = {**positions_from_json(json.loads(info[_POSITIONS])), **end.positions}
            end = LogEnd(positions, end.query_id or str(info["tidegate.query_id"]))
    if end.cut_at is None or end.query_id is not None:
        return end
    return _end_by_note(paths, version, end.cut_at)


def _end_by_note(paths: PipelinePaths, version: int | None, cut_at: int) -> LogEnd:
    """Where the log ended at the last publish, by the note in the state folder. Log clean-up removes the commits of old
    versions, and leaves the last batch of each query."""
    written = last_written(paths, version)
    if not written:  # all rows are from before the pipeline, or of others
        return LogEnd(cut_at=cut_at)
    note, log = read_published(paths), read_log(paths.table)
    if note is not None and note.version >= cut_at and read_newest_reread(paths) is None:
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
        return LogEnd(note.positions, newest, cut_at)
    raise log_is_cut(paths.table, cut_at, "the offsets up to which it holds each topic")


def last_written(paths: PipelinePaths, version: int | None = None) -> dict[str, int]:
    """{id: when it last moved on} of the queries that the log holds batches of, and of rollbacks, also where their
    commits are gone."""
    log = read_log(paths.table) if version is None else read_log_at(paths.table, version)
    return {
        app_id: int(txn.get("lastUpdated") or 0)
        for app_id, txn in log.txns.items()
        if int(txn["version"]) >= 0 and (_QUERY.fullmatch(app_id) or app_id.startswith(WORK))
    }


def read_newest_reread(paths: PipelinePaths) -> CommitInfo | None:
    """What the newest rollback carries whose records are read again."""
    if read_table_state(paths.table) is None:
        return None
    found = find_reread(paths.table, read_log(paths.table))
    return None if found is None else found[1]


def was_written_by(paths: PipelinePaths, queries: Collection[str | None]) -> bool:
    """Whether the newest commit of a run, if there is one, was made by one of these queries."""
    for _, info in walk_back(paths.table):
        if info is None:  # then the commit is below: of all queries that the log still knows it must be one of these
            return set(last_written(paths)) <= set(queries)
        if "tidegate.query_id" in info and "tidegate.batches" in info:
            return str(info["tidegate.query_id"]) in queries
    return True
