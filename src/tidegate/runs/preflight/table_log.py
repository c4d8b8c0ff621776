"""What the table's log and its folder say: where each source is at, what the state folder does not know of, and what
another job has written.

A publish notes the version, so as a rule there is nothing behind the note. Where there is, a process was killed
before its note, another program has written, or an older copy of the state folder was restored.

Another job is most often the plain Spark job that the pipeline has replaced, whose DAG was not paused. Spark's file
sink begins a new ``_spark_metadata``, and plain Spark then reads what that lists and nothing else. Any writer of
parquet leaves data files that the table's log does not name. Spark's Delta sink notes its batches in the log. Only a
table that was adopted is searched for files: that costs a listing of its folder, and its log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.verdicts import list_waiting
from tidegate.sources.files.ledger import open_ledger
from tidegate.state.manifest import BatchManifest
from tidegate.state.published import Published, read_published
from tidegate.state.topics import Positions, positions_from_json
from tidegate.table.log.files import CommitInfo, list_versions, path_on_disk, read_actions
from tidegate.table.log.snapshot import Snapshot
from tidegate.table.log.state import (
    GENERATION,
    REREAD,
    THEN,
    WORK,
    TableState,
    find_reread,
    log_is_cut,
    read_log,
    read_log_at,
    read_table_state,
    walk_back,
)
from tidegate.table.publish.intent import ATTEMPT, COMPANION, pending_intents
from tidegate.table.publish.plan import REWORK

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
    """Return whether the newest commit of a run, if there is one, was made by one of these queries."""
    for _, info in walk_back(paths.table):
        if info is None:  # then the commit is below: of all queries that the log still knows it must be one of these
            return set(last_written(paths)) <= set(queries)
        if "tidegate.query_id" in info and "tidegate.batches" in info:
            return str(info["tidegate.query_id"]) in queries
    return True


@dataclass(frozen=True)
class Later:
    """Each in words, or None: what runs have ``read`` that is in no manifest, note or ledger here; a ``rollback`` whose
    records nobody here reads again; a version that ``moved`` records in or out of a quarantine that does not know it.
    """

    read: str | None = None
    back_to: int | None = None
    """With ``read``: the newest version that holds none of that; None for no such version."""
    rollback: str | None = None
    moved: str | None = None


def look_later(
    paths: PipelinePaths,
    table: TableState,
    published: Published | None,
    manifests: Mapping[str, Sequence[BatchManifest]],
    *,
    can_go_back: bool,
) -> Later:
    """Look at the versions behind the note, or at all when there is none. ``can_go_back`` is whether the sources can be
    read again from an earlier version on."""
    noted = -1 if published is None else published.version
    if table.version <= noted or (published is not None and published.table_id != table.table_id):
        return Later()
    read, back_to, rollback, moves = None, None, None, list[tuple[str, int, str]]()
    begun = {one.app_id for one in pending_intents(paths)} | {one.app_id for one in list_waiting(paths)}
    known = set[str]()
    is_below = False
    for number, info in walk_back(paths.table, table.version):
        if is_below:
            back_to, is_below = (None if info is None else number), False
        if number <= noted or info is None:
            break
        increment = increment_of(info)
        if increment is not None and increment[0] not in known:
            is_copy = _is_of_copy(*increment, info.get(ATTEMPT), manifests)
            if not is_copy and (increment[0] in begun or _is_known(paths, *increment, published, manifests)):
                known.add(increment[0])  # so are its batches before that
            else:
                read, back_to, is_below = f"batch {increment[1]} of query {increment[0]}", None, can_go_back
        if info.get(THEN) == REREAD and int(info[GENERATION]) >= paths.newest_generation():
            rollback = f"rollback {info['tidegate.run_id']}"
        if COMPANION in info and json.loads(info[COMPANION])[0] not in begun:
            app_id, part = json.loads(info[COMPANION])
            moves.append((app_id, int(part), f"{info.get(REWORK, 'refresh')} {info['tidegate.run_id']}"))
    aside = read_table_state(paths.quarantine, tuple(sorted({one[0] for one in moves}))) if moves else None
    held = {} if aside is None else aside.txns
    moved = next((what for app_id, part, what in moves if held.get(app_id, -1) < part), None)
    return Later(read, back_to, None if storage.exists(paths.rollback) else rollback, moved)


def increment_of(info: CommitInfo) -> tuple[str, int] | None:
    """(query id, last batch) of a run's version; None for one that no run made."""
    if REWORK in info or "tidegate.query_id" not in info or "tidegate.batches" not in info:
        return None
    return str(info["tidegate.query_id"]), int(json.loads(info["tidegate.batches"])[1])


def count_quarantined(info: CommitInfo) -> int:
    """How many records of its increment a run's version has in quarantine."""
    rows = json.loads(info.get("tidegate.rows", "{}"))
    return sum(int(rows.get(kind, 0)) for kind in ("malformed", "late", "rejected"))


def _is_known(
    paths: PipelinePaths,
    query_id: str,
    batch_id: int,
    published: Published | None,
    manifests: Mapping[str, Sequence[BatchManifest]],
) -> bool:
    noted = published.batch_id if published is not None and published.query_id == query_id else -1
    staged = [manifest.batch_id for manifest in manifests.get(query_id, ())]
    return batch_id <= max([noted, *staged]) or is_in_ledger(paths, query_id, batch_id)


def _is_of_copy(
    query_id: str, batch_id: int, attempt: str | None, manifests: Mapping[str, Sequence[BatchManifest]]
) -> bool:
    """Return whether a version has a batch as a copy of the state staged it, and not as it is staged here."""
    staged = {one.attempt for one in manifests.get(query_id, ()) if one.batch_id == batch_id}
    return attempt is not None and bool(staged) and attempt not in staged


def is_in_ledger(paths: PipelinePaths, query_id: str, batch_id: int) -> bool:
    """True if the ledger has a file of the batch, so that only the note is lost; False when it cannot be read."""
    try:
        with open_ledger(paths, read_only=True) as ledger:
            return ledger.has_batch(query_id, batch_id)
    except DisagreementError:
        return False


SINK_LOG = "_spark_metadata"
"""The folder in which Spark's file sink lists the files that it has committed."""


@dataclass(frozen=True)
class Adopted:
    """The note of an adoption: ``batches`` has the last batch that counts of each query that had written to the table;
    ``checkpoint`` is that of the old job, where it was given."""

    at: str
    checkpoint: str | None = None
    batches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OldJob:
    """What was found. Paths are relative to the table's folder."""

    has_sink_log: bool = False
    files: Sequence[str] = ()
    """Parquet files that plain readers see and that no version of the log names."""
    batches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """{query: its last batch that counts, its last one in the log}."""


def read_adopted(paths: PipelinePaths) -> Adopted | None:
    """The note; None for a table that was not adopted. Raises UnreadableStateError."""
    value = storage.read_json(paths.adopted)
    with storage.unreadable_is_named(paths.adopted):
        return None if value is None else Adopted(**value)


def write_adopted(paths: PipelinePaths, note: Adopted) -> None:
    """Store the note, in the place of an earlier one."""
    storage.replace(paths.adopted, storage.dump_json(asdict(note)))


def find_old_job(paths: PipelinePaths) -> OldJob:
    """Look for it; the table has a log.

    While a publish is pending no file is reported: the process that finishes it moves files. Raises DisagreementError
    for a torn log.
    """
    has_sink_log = storage.exists(paths.table / SINK_LOG)
    note = read_adopted(paths)
    if note is None:
        return OldJob(has_sink_log)
    # Before the log is read: what a publish moves in meanwhile is not in it. Names that plain readers see.
    names = [path.relative_to(paths.table).as_posix() for path in storage.list_tree(paths.table, "*.parquet")]
    there = [name for name in names if not any(part[0] in "_." for part in name.split("/"))]
    is_pending = bool(pending_intents(paths))
    log = read_log(paths.table)
    files = [] if is_pending else _find_unnamed(paths.table, there, log)
    later = {query: (batch, log.transaction_version(query)) for query, batch in note.batches.items()}
    batches = {query: (batch, last) for query, (batch, last) in later.items() if last is not None and last > batch}
    return OldJob(has_sink_log, files, batches)


def list_later_batches(table_path: Path, queries: Collection[str]) -> dict[str, list[tuple[int, int, list[str]]]]:
    """{query: (version, batch, the files that it added)} of every version of the log that a query committed."""
    found: dict[str, list[tuple[int, int, list[str]]]] = {query: [] for query in queries}
    for version in list_versions(table_path):
        actions = read_actions(table_path, version)
        txns = {one["txn"]["appId"]: int(one["txn"]["version"]) for one in actions if "txn" in one}
        for query in txns.keys() & found.keys():
            added = [path_on_disk(one["add"]["path"]) for one in actions if "add" in one]
            found[query].append((version, txns[query], added))
    return found


def _find_unnamed(table_path: Path, there: Sequence[str], log: Snapshot) -> list[str]:
    named = {path_on_disk(path) for path in (*log.added, *log.removed)}
    found = [name for name in there if name not in named]
    if found:  # rare: a file may have left the table so long ago that a compacted log has forgotten it
        named = list_removed(table_path)
    return [name for name in found if name not in named and storage.exists(table_path / name)]


def list_removed(table_path: Path) -> set[str]:
    """The files that some version took out of the table."""
    versions = (read_actions(table_path, version) for version in list_versions(table_path))
    return {path_on_disk(one["remove"]["path"]) for actions in versions for one in actions if "remove" in one}
