"""What a new checkpoint would read again, start at and take back, by the table's log.

The table is the authority. Records of runs that it does not hold are read again, so they leave quarantine
(:func:`quarantine_to_take_back`). Where a side job (a replay, a backfill, a refresh) has moved records between the two
and only one of them knows, the records of these batches may be in both, or in neither: they leave quarantine too, on
record, and a refresh, which reads all that the table's log counts, brings each to one place.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.table_log import (
    LogEnd,
    count_quarantined,
    find_end,
    increment_of,
    list_removed,
    read_newest_reread,
    was_written_by,
)
from tidegate.runs.recovery.lost_rows import note_lost_rows
from tidegate.runs.recovery.side_jobs import list_unfinished_work
from tidegate.runs.reports.report import new_run_id
from tidegate.runs.reports.verdicts import WAITED, list_waiting
from tidegate.runs.restart.disagreement import why_files_are_unknown
from tidegate.sources.files.ledger import LedgerRow, open_ledger
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.state.birth import Birth, Start, read_birth, read_births
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchManifest
from tidegate.state.published import read_taken_back
from tidegate.state.topics import Positions, offsets_to_json
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.files import CommitInfo
from tidegate.table.log.state import (
    GENERATION,
    LOG_FOLDER,
    DataFile,
    has_log,
    list_data_files,
    log_is_cut,
    read_log,
    read_table_state,
    read_txns,
    settled_batches,
    walk_back,
)
from tidegate.table.publish.intent import COMPANION, REPLACES, PublishIntent, pending_intents
from tidegate.table.publish.origins import (
    READ_AGAIN,
    REPLAYED,
    Batch,
    Move,
    list_moves,
    read_commits,
    read_origins,
    to_batches,
)
from tidegate.table.publish.plan import KEEPS_OLDER, REWORK, WITHIN, parse_file_name
from tidegate.table.publish.replace import list_set_aside
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON

Work = tuple[str, str]
"""Kind and run id of a side job."""


@dataclass(frozen=True)
class QuarantineMismatch:
    """``files`` leave quarantine; ``lacking`` is what it lacks, {what: how many records, 0 where nobody knows}."""

    files: list[DataFile]
    lacking: dict[str, int]

    def describe(self) -> list[str]:
        """What the repair does about it."""
        steps = []
        if self.files:
            records = count_of(sum(file.rows for file in self.files), "record")
            steps.append(f"take {records} out of quarantine that may be in the table, on record, and back them up")
        if self.lacking:
            steps.append(f"note what quarantine lacks: {', '.join(self.lacking)}")
        return steps


@dataclass
class _InTable:
    """What the versions of the table's log that count say, for quarantine to have its part of."""

    works: set[Work] = field(default_factory=set)
    moves: list[Move] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    """How many records each run has quarantined that quarantine's log does not count."""
    rebuilt: dict[Work, frozenset[Batch]] = field(default_factory=dict)
    """What rebuilt the whole table, with its batches: what came before is settled."""


def compare_with_table(paths: PipelinePaths, last: Mapping[str, int], version: int | None = None) -> QuarantineMismatch:
    """Compare quarantine with the table; ``last`` is the last batch that counts of each query, by its first eight
    characters, and ``version`` the one that the table goes back to."""
    in_table, in_quarantine = (read_txns(path) for path in (paths.table, paths.quarantine))
    in_log = _read_table(paths.table, in_quarantine, last, version)
    undone = {
        one.companion.app_id for one in list_unfinished_work(paths) if one.companion is not None
    }  # by the repair, first
    alone, rebuilt = list[Move](), frozenset[Batch]()
    for move in reversed(list_moves(paths.quarantine)):
        work = (move.kind, move.run_id)
        is_known = work in in_log.works and in_table.get(move.app_id, move.part) >= move.part
        if not (is_known or move.app_id in undone or move.batches <= rebuilt) and move.is_of(last):
            alone.append(move)
        rebuilt |= in_log.rebuilt.get(work, frozenset())
    unfinished = {one.app_id for one in list_waiting(paths)}  # quarantine follows
    alone += [
        move
        for move in in_log.moves
        if in_quarantine.get(move.app_id, -1) < move.part and move.app_id not in unfinished
    ]
    files = list_data_files(paths.quarantine) if alone and in_quarantine else []
    origins = read_origins(paths.quarantine, [file.path for file in files])
    batches = frozenset[Batch]().union(*(move.batches for move in alone))
    counted = {batch for batch in batches if batch[1] <= last.get(batch[0], -1)}
    files = [file for file in files if origins.get(file.path, counted) & counted]
    lacking = {f"records of run {run_id}": count for run_id, count in in_log.runs.items()}
    return QuarantineMismatch(files, lacking | {f"what {move.kind} {move.run_id} moved": 0 for move in alone})


def _read_table(
    table_path: Path, in_quarantine: Mapping[str, int], last: Mapping[str, int], version: int | None
) -> _InTable:
    in_log, rebuilt = _InTable(), frozenset[Batch]()
    for _, info in walk_back(table_path, version):
        if info is None:
            break
        work = (info.get(REWORK, "refresh"), str(info.get("tidegate.run_id")))
        if REWORK in info or REPLACES in info:
            in_log.works.add(work)
        move = _read_move(work, info, last)
        if move is not None and not move.batches <= rebuilt:
            in_log.moves.append(move)
        if _is_whole(info) and (move is None or in_quarantine.get(move.app_id, -1) >= move.part):
            in_log.rebuilt[work] = _batches_of(info, last)
            rebuilt |= in_log.rebuilt[work]
        increment = increment_of(info)
        if increment is not None and info.get("tidegate.outcome") != "waiting":
            query, batch = increment
            records = count_quarantined(info)
            if records and in_quarantine.get(query, -1) < batch and (query[:8], batch) not in rebuilt:
                in_log.runs[str(info.get("tidegate.run_id"))] = records
    return in_log


def _read_move(work: Work, info: CommitInfo, last: Mapping[str, int]) -> Move | None:
    """The version of quarantine that came with one of the table."""
    if COMPANION not in info:
        return None
    app_id, part = json.loads(info[COMPANION])
    return Move(*work, app_id, int(part), _batches_of(info, last))


def _batches_of(info: CommitInfo, last: Mapping[str, int]) -> frozenset[Batch]:
    """The batches whose records a version moved; of one that began a query all that there were."""
    batches = info.get(READ_AGAIN) or info.get(REPLAYED)
    if batches is not None:
        return to_batches(json.loads(batches))
    if WAITED in info:
        spans = json.loads(info[WAITED])
        return frozenset((query[:8], batch) for query, first, until in spans for batch in range(first, until + 1))
    return frozenset((query, batch) for query, until in last.items() for batch in range(until + 1))


def _is_whole(info: CommitInfo) -> bool:
    return REPLACES in info or (json.loads(info.get(WITHIN, "0")) == {} and KEEPS_OLDER not in info)


def take_out(paths: PipelinePaths, lease: Lease, mismatch: QuarantineMismatch, backup: Path) -> None:
    """Back up what does not fit, and take it out of the log, in one version which says that something is lacking."""
    if not (mismatch.files or mismatch.lacking):
        return
    run_id, state = new_run_id("repair"), read_table_state(paths.quarantine)
    lost = [DataFile(what, count, 0, {}) for what, count in mismatch.lacking.items()]
    version = -1 if state is None else state.version
    note_lost_rows(paths, lease, "quarantine", [*mismatch.files, *lost], run_id=run_id, version=version)
    for file in mismatch.files:
        move_to_backup(paths.quarantine / file.path, backup / "quarantine" / file.path, lease)
    lease.check()
    remove_files(paths, mismatch.files, run_id, "taken_out")


def remove_files(paths: PipelinePaths, files: Sequence[DataFile], run_id: str, outcome: str) -> None:
    """Take files out of quarantine's log, in a version of the repair ``run_id``; an empty list records it alone."""
    metadata = {"tidegate.pipeline": paths.name, "tidegate.run_id": run_id, "tidegate.outcome": outcome}
    commit = Commit(run_id, remove=files, schema_json=QUARANTINE_SCHEMA_JSON, custom_metadata=metadata)
    commit_files(paths.quarantine, commit)


def move_to_backup(source: Path, target: Path, lease: Lease) -> None:
    """Move a file or a folder, if it is still there."""
    lease.check()
    with contextlib.suppress(FileNotFoundError):  # a repair that was killed has moved it, or another process: see lease
        storage.move(source, target)


@dataclass(frozen=True)
class RepairPlan:
    """What a repair is about to do, as found before its first step."""

    why: str
    """The code of what disagrees, or what was requested."""
    facts: Facts
    settled: dict[str, int]
    """{query id: its last batch in the table's log that counts, -1 for none} of every query that is known."""
    again: list[LedgerRow]
    starts: dict[str, Start]
    rebuild: bool = False
    taken_back: Sequence[DataFile] = ()
    orphans: int = 0
    hidden: int = 0
    rolled_back: Collection[str] = ()
    """The queries of which a rollback took batches back."""
    begun: Sequence[PublishIntent] = ()
    """Side jobs that were stopped half-way: they are abandoned first."""
    mismatch: QuarantineMismatch = field(default_factory=lambda: QuarantineMismatch([], {}))
    back_to: int | None = None
    """The version that the table goes back to first."""

    @property
    def unpublished(self) -> list[BatchManifest]:
        """Staged batches that the table's log does not hold."""
        found = [manifest for manifests in self.facts.manifests.values() for manifest in manifests]
        return [one for one in found if one.batch_id > self.settled.get(one.query_id, -1)]


def make_plan(
    situation: Situation,
    why: str,
    found: TidegateError | None = None,
    *,
    rebuild: bool = False,
    back_to: int | None = None,
) -> RepairPlan:
    """What is to be done about what was ``found``, or requested; with ``rebuild`` table and quarantine are created
    again; before anything else the table goes ``back_to`` a version.

    Raises DisagreementError where it is unknown which files are in the table, or which records are where.
    """
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    unknown = why_files_are_unknown(paths, facts, found) if spec.file_streams else None
    if unknown is not None:
        raise DisagreementError(
            unknown.code,
            f"{unknown.message}; without the ledger it is unknown which files are in the table, so nothing is guessed",
            where=str(paths.ledger),
            next_run="fails again until this is fixed",
            fix=unknown.fix,
        )
    settled = dict.fromkeys(known_queries(paths, facts), -1)
    if rebuild:
        again = files_to_read_again(paths, settled) if spec.file_streams else []
        return RepairPlan(why, facts, settled, again, starts_of_sources(situation), rebuild=True)
    state = read_table_state(paths.table, tuple(sorted(settled)))
    settled = settled_batches(paths.table, settled, back_to)
    _check_rollbacks_known(paths, settled)
    taken_back = quarantine_to_take_back(paths, settled)
    orphans = [*list_orphans(paths, paths.table), *list_orphans(paths, paths.quarantine)]
    again = files_to_read_again(paths, settled) if spec.file_streams else []
    _check_refreshes_known(paths, again)
    return RepairPlan(
        why,
        facts,
        settled,
        again,
        starts_of_sources(situation, back_to=back_to),
        taken_back=taken_back,
        orphans=len(orphans) + len(taken_back),
        hidden=len(list_set_aside(paths.table)),
        rolled_back={query for query, last in ({} if state is None else state.txns).items() if settled[query] < last},
        begun=list_unfinished_work(paths),
        mismatch=compare_with_table(paths, last_by_prefix(paths, settled), back_to),
        back_to=back_to,
    )


def _check_rollbacks_known(paths: PipelinePaths, settled: Mapping[str, int]) -> None:
    """Raise DisagreementError NOT_IN_TABLE when the table is a copy from before a rollback: the ledger calls
    the files of its rows unread since, and the records that they gave to quarantine were taken out of it."""
    for query, last in read_taken_back(paths).items():
        if settled.get(query, -1) > last:
            work = "a rollback that read records again"
            raise errors.NOT_IN_TABLE(where=f"pipeline {paths.name}, {paths.table}", work=work, name=paths.name)


def _check_refreshes_known(paths: PipelinePaths, again: Sequence[LedgerRow]) -> None:
    """Raise DisagreementError NOT_IN_TABLE when the table is a copy from before a refresh that began a new
    query: the ledger has the files of its rows under that one since, and they would be read once more."""
    births = read_births(paths)
    rebuilt = {one.query_id: one.rebuilt_up_to for one in births if one.rebuilt_up_to is not None}
    is_older = any(int(row.batch_id or 0) <= rebuilt.get(row.query_id, -1) for row in again)
    for one in births:
        if one.rebuilt_up_to is not None and one.replaces is not None:
            held = settled_batches(paths.table, (str(one.query_id), one.replaces.query_id))
            is_older |= held[str(one.query_id)] < one.rebuilt_up_to and held[one.replaces.query_id] >= 0
    if is_older:
        work = "a refresh that began a new query"
        raise errors.NOT_IN_TABLE(where=f"pipeline {paths.name}, {paths.table}", work=work, name=paths.name)


def known_queries(paths: PipelinePaths, facts: Facts) -> set[str]:
    """Every query that ledger, manifests, birth, notes, quarantine or deferred increments know."""
    queries = queries_to_end(paths, facts)
    queries |= {manifest.query_id for one in list_waiting(paths) for manifest in one.manifests}
    if storage.exists(paths.ledger):
        with open_ledger(paths, read_only=True, create=True) as ledger:
            queries |= set(ledger.query_ids())
    in_quarantine = {entry.get("tidegate.query_id") for entry, _ in read_commits(paths.quarantine)}
    return queries | {str(query) for query in in_quarantine if query}


def queries_to_end(paths: PipelinePaths, facts: Facts) -> set[str]:
    """Queries that a process, active or stale, could still write."""
    queries = set(facts.manifests) | {facts.query_id or "", (facts.birth.query_id if facts.birth else None) or ""}
    queries |= {(facts.published.query_id if facts.published else None) or ""}
    queries |= {intent.app_id for intent in pending_intents(paths)}
    return queries - {""}


def quarantine_to_take_back(paths: PipelinePaths, settled: Mapping[str, int]) -> list[DataFile]:
    """Files of the quarantine table all of whose batches the table's log does not hold."""
    last = last_by_prefix(paths, settled)
    files = list_data_files(paths.quarantine)
    origins = read_origins(paths.quarantine, [file.path for file in files])
    found = []
    for file in files:
        batches = origins.get(file.path, frozenset())
        is_ours = batches != {parse_file_name(Path(file.path).name)} or {query for query, _ in batches} <= last.keys()
        if batches and is_ours and all(batch > last.get(query, -1) for query, batch in batches):
            found.append(file)
    return found


def last_by_prefix(paths: PipelinePaths, settled: Mapping[str, int]) -> dict[str, int]:
    """{first eight characters of a query id: its last batch that the table holds}, of every known query."""
    known = read_log(paths.table).txns if has_log(paths.table) else {}
    found = {query[:8]: int(txn["version"]) for query, txn in known.items() if "#" not in query}
    return found | {query[:8]: batch for query, batch in settled.items()}


def list_orphans(paths: PipelinePaths, table_path: Path) -> list[str]:
    """Data files of ours that plain readers see and the log does not hold: moved in by a publish that was never
    committed, taken back by a repair that was killed, or of a newer log than the one that is there now.

    Their records are read again, so they must not stay. Files that versions of the table replaced do, for readers of
    older versions (``readers: delta``).
    """
    held = {file.path for file in list_data_files(table_path)}
    files = storage.list_tree(table_path, "part-*.parquet")
    ours = {path.relative_to(table_path) for path in files if parse_file_name(path.name)}
    found = {path.as_posix() for path in ours if path.parts[0] != LOG_FOLDER} - held
    return sorted(found - list_removed(table_path) if found and table_path == paths.table else found)


def files_to_read_again(paths: PipelinePaths, settled: Mapping[str, int]) -> list[LedgerRow]:
    """The files that a new query would read when these batches are what the table holds."""
    with open_ledger(paths, read_only=True, create=True) as ledger:
        return [
            row
            for row in ledger.rows()
            if row.state != "before_start"
            and (row.state == "linked" or row.batch_id is None or row.batch_id > settled.get(str(row.query_id), -1))
        ]


def list_files_to_read_again(paths: PipelinePaths, spec: PipelineSpec) -> list[LedgerRow]:
    """The files that a new query would read which begins where the table's log ends."""
    queries = known_queries(paths, gather_facts(paths, spec))
    return files_to_read_again(paths, settled_batches(paths.table, queries))


def starts_of_sources(situation: Situation, *, back_to: int | None = None) -> dict[str, Start]:
    """Where each source with ``keeps_start`` begins in a new query: at the end of the table's newest tidegate commit
    whose records count as taken, or (``back_to``) where they would be after a rollback to that version; without a
    table, where the pipeline first began; else where the spec says.

    Raises DisagreementError TABLE_LOG_CUT when the log no longer says so, and the note of the last publish neither.
    """
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    streams = open_sources(situation.project, paths, spec)
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
    """True if the table was adopted with the checkpoint of a job; without one the spec says where sources start."""
    found = (info.get("tidegate.adopted") for _, info in walk_back(paths.table) if info is not None)
    return any("query" in json.loads(one) for one in found if one)


def _begins_where_the_log_ends(paths: PipelinePaths, facts: Facts, birth: Birth) -> bool:
    """True if the living query has nothing in the table, and nothing before it is unpublished: then its birth says
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
    """Sources that are no longer in the spec, with the offsets from which they continue if they are added again."""
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


def first_offsets(paths: PipelinePaths, source: str) -> Start | None:
    """What a Kafka source began with when its pipeline was new, by the oldest birth record there is."""
    return next((one.sources[source] for one in read_births(paths) if one.sources.get(source)), None)
