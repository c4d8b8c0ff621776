"""What a new checkpoint would read again, start at and take back, by the table's log. Looks only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.old_job import list_removed
from tidegate.runs.recovery.abandoned import list_unfinished_work
from tidegate.runs.reports.waiting import list_waiting
from tidegate.runs.restart.disagreement import why_files_are_unknown
from tidegate.runs.restart.quarantine_mismatch import QuarantineMismatch, compare_with_table
from tidegate.runs.restart.starts import starts_of_sources
from tidegate.sources.files.ledger import LedgerRow, open_ledger
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start, read_births
from tidegate.state.manifest import BatchManifest
from tidegate.state.retired import read_taken_back
from tidegate.table.log.state import (
    LOG_FOLDER,
    DataFile,
    has_log,
    list_data_files,
    read_log,
    read_table_state,
)
from tidegate.table.log.taken import settled_batches
from tidegate.table.publish.intent import PublishIntent, pending_intents
from tidegate.table.publish.origins import read_commits, read_origins
from tidegate.table.publish.plan import parse_file_name
from tidegate.table.publish.replace import list_set_aside


@dataclass(frozen=True)
class RepairPlan:
    """What a repair is about to do, as found before its first step."""

    found: TidegateError
    rebuild: bool
    has_files: bool
    facts: Facts
    settled: dict[str, int]
    """{query id: its last batch in the table's log that counts, -1 for none} of every query that is known."""
    taken_back: list[DataFile]
    again: list[LedgerRow]
    starts: dict[str, Start]
    orphans: int
    hidden: int
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
    project: Project,
    spec: PipelineSpec,
    paths: PipelinePaths,
    facts: Facts,
    found: TidegateError,
    rebuild: bool,
    back_to: int | None = None,
) -> RepairPlan:
    """What is to be done about what was ``found``; with ``rebuild`` table and quarantine are created again; before
    anything else the table goes ``back_to`` a version.

    Raises DisagreementError where it is unknown which files are in the table, or which records are where.
    """
    has_files = bool(spec.file_streams)
    unknown = why_files_are_unknown(paths, facts, found) if has_files else None
    if unknown is not None:
        raise DisagreementError(
            unknown.code,
            f"{unknown.message}; without the ledger it is unknown which files are in the table, so nothing is guessed",
            where=str(paths.ledger),
            next_run="fails again until this is fixed",
            fix=unknown.fix,
        )
    settled = dict.fromkeys(known_queries(paths, facts), -1)
    rolled_back: set[str] = set()
    if not rebuild:
        state = read_table_state(paths.table, tuple(sorted(settled)))
        settled = settled_batches(paths.table, settled, back_to)
        _check_rollbacks_known(paths, settled)
        rolled_back = {query for query, last in ({} if state is None else state.txns).items() if settled[query] < last}
    taken_back = [] if rebuild else quarantine_to_take_back(paths, settled)
    orphans = [] if rebuild else [*list_orphans(paths, paths.table), *list_orphans(paths, paths.quarantine)]
    again = files_to_read_again(paths, settled) if has_files else []
    if not rebuild:
        _check_refreshes_known(paths, again)
    return RepairPlan(
        found=found,
        rebuild=rebuild,
        has_files=has_files,
        facts=facts,
        settled=settled,
        taken_back=taken_back,
        again=again,
        starts=starts_of_sources(project, spec, paths, facts, back_to=back_to),
        orphans=len(orphans) + len(taken_back),
        hidden=0 if rebuild else len(list_set_aside(paths.table)),
        rolled_back=rolled_back,
        begun=[] if rebuild else list_unfinished_work(paths),
        mismatch=QuarantineMismatch([], {})
        if rebuild
        else compare_with_table(paths, last_by_prefix(paths, settled), back_to),
        back_to=back_to,
    )


def _check_rollbacks_known(paths: PipelinePaths, settled: Mapping[str, int]) -> None:
    """Raise DisagreementError ROLLBACK_NOT_IN_TABLE when the table is a copy from before a rollback: the ledger calls
    the files of its rows unread since, and the records that they gave to quarantine were taken out of it."""
    for query, last in read_taken_back(paths).items():
        if settled.get(query, -1) > last:
            raise errors.ROLLBACK_NOT_IN_TABLE(where=f"pipeline {paths.name}, {paths.table}", name=paths.name)


def _check_refreshes_known(paths: PipelinePaths, again: Sequence[LedgerRow]) -> None:
    """Raise DisagreementError REFRESH_NOT_IN_TABLE when the table is a copy from before a refresh that began a new
    query: the ledger has the files of its rows under that one since, and they would be read once more."""
    births = read_births(paths)
    rebuilt = {one.query_id: one.rebuilt_up_to for one in births if one.rebuilt_up_to is not None}
    is_older = any(int(row.batch_id or 0) <= rebuilt.get(row.query_id, -1) for row in again)
    for one in births:
        if one.rebuilt_up_to is not None and one.replaces is not None:
            held = settled_batches(paths.table, (str(one.query_id), one.replaces.query_id))
            is_older |= held[str(one.query_id)] < one.rebuilt_up_to and held[one.replaces.query_id] >= 0
    if is_older:
        raise errors.REFRESH_NOT_IN_TABLE(where=f"pipeline {paths.name}, {paths.table}", name=paths.name)


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
    """{first eight characters of a query id: its last batch that the table holds}, of every query that is known here or
    to the table's log."""
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
