"""``tidegate repair``: where checkpoint, table and spec disagree, a new checkpoint that starts where the table's log
ends.

The table's log is the authority. What it does not hold is read again from the source: files go back to the intake,
Kafka offsets go back to those of the table's last commit. Staged batches, the checkpoint and its birth are backed up,
as are data files that the log does not hold; records of those batches that already reached quarantine are taken back.
So reading them again doubles nothing. Nothing of the user's is deleted, and killed at any point the disagreement is
still there for the next repair.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tidegate import storage
from tidegate.driver.jvm import PINNED
from tidegate.errors import DisagreementError, TidegateError, TryAgainError, catalogue
from tidegate.gate.decisions import carry_out
from tidegate.lease import Lease, acquire
from tidegate.outputs import Repair
from tidegate.paths import PipelinePaths
from tidegate.pipeline import load_pipeline
from tidegate.preflight.agreement import check_agreement
from tidegate.preflight.facts import Facts, gather_facts
from tidegate.preflight.pinned import settings_at_birth
from tidegate.preflight.quarantine import check_quarantine, note_quarantine
from tidegate.project import Project
from tidegate.quarantine.moves import list_moves
from tidegate.quarantine.schema import QUARANTINE_SCHEMA_JSON
from tidegate.recovery.context import RunContext
from tidegate.recovery.given_up import can_be_given_up, decide_to_give_up, describe_work, list_begun
from tidegate.recovery.hand_over import finish_work, is_handing_over
from tidegate.recovery.quarantine import send_quarantine
from tidegate.recovery.recover import last_taken, recover
from tidegate.recovery.staged_files import check_staged
from tidegate.reports.report import new_report
from tidegate.reports.run_ids import new_run_id
from tidegate.reports.verdicts import list_rereads
from tidegate.reports.waiting import list_waiting
from tidegate.restart.decided import list_undone
from tidegate.restart.rebirth import begin_anew, pin_paths, retire_query
from tidegate.restart.rebuild import (
    query_keeps_state,
    rebuild_choices,
    refuse_new_checkpoint,
    set_tables_aside,
)
from tidegate.restart.starts import starts_of_absent_sources, starts_of_sources
from tidegate.sources.files.differences import IS_GONE, find_differing
from tidegate.sources.files.intake import restore_links, sweep_intake
from tidegate.sources.files.ledger import LedgerRow, open_ledger, shown_path
from tidegate.sources.files.starts import check_starts_known
from tidegate.sources.files.unreadable import read_whole_again
from tidegate.spec.models import PipelineSpec
from tidegate.staging.birth import Start, as_read, new_birth, read_births
from tidegate.staging.manifest import BatchManifest
from tidegate.staging.published import Published, read_published, write_published
from tidegate.staging.retired import read_taken_back, record_taken_back
from tidegate.table.log.commit import commit_files
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import (
    LOG_FOLDER,
    DataFile,
    TableState,
    has_log,
    list_data_files,
    open_table,
    read_commit_metadata,
    read_log,
    read_table_state,
)
from tidegate.table.log.taken import settled_batches
from tidegate.table.publish.intent import REPLACES, PublishIntent, intent_path, pending_intents
from tidegate.table.publish.origins import read_origins
from tidegate.table.publish.plan import parse_file_name
from tidegate.table.publish.publish import find_hindrance
from tidegate.table.publish.replace import bring_back, list_set_aside
from tidegate.table.upsert.folded import remove_folded
from tidegate.words import count_of

_NOT_BY_A_CHECKPOINT = ("PARTITION_BY_CHANGED", "FOREIGN_TABLE", "ADOPTION_UNFINISHED")
"""What a new checkpoint does not change: the error itself says what does."""
_NAMED_AT_MOST = 20
_RESTORE = "restore what is damaged or gone from a copy, then run again"
_TABLE_CODES = ("TABLE_GONE", "TABLE_REPLACED", "TABLE_BEHIND", "TABLE_BEHIND_INTENT")


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
    """Work beside the runs that was stopped half-way: it is given up first."""

    @property
    def unpublished(self) -> list[BatchManifest]:
        """Staged batches that the table's log does not hold."""
        found = [manifest for manifests in self.facts.manifests.values() for manifest in manifests]
        return [one for one in found if one.batch_id > self.settled.get(one.query_id, -1)]


def repair_pipeline(
    project: Project, name: str, *, dry_run: bool, rebuild: bool = False, asked: DisagreementError | None = None
) -> Repair:
    """What disagrees, the choices, and what repair did (``dry_run``: would do).

    What a run that was stopped had begun is finished first; where that is all, the next run goes on. ``rebuild`` sets
    table and quarantine aside and reads everything again, also when nothing disagrees; ``asked`` is what is done where
    nothing disagrees (:mod:`tidegate.restart.reset`). Raises DisagreementError when
    only a person can put it right: a torn table log, a ledger that is gone, a query whose state a new checkpoint would
    lose.
    """
    paths = project.paths(name)
    spec = as_read(load_pipeline(project, name), paths)
    if dry_run:
        return look_at_repair(project, spec, paths, rebuild, dry_run=True, asked=asked)[0]
    expires = project.spec.lease.expires_after
    with acquire(paths, run_id=new_run_id("repair"), command="repair", expires_after_seconds=expires) as lease:
        paths = pin_paths(paths, lease)
        is_another = is_handing_over(paths)
        _finish_begun(project, spec, paths, lease)
        if is_another:
            paths = paths.newest().pinned()
            spec = as_read(load_pipeline(project, name), paths)
        value, plan = look_at_repair(project, spec, paths, rebuild, dry_run=False, asked=asked)
        if plan is None and value["code"] == "QUARANTINE_BEHIND":
            note_quarantine(paths, lease)
        elif plan is None and value["code"] is not None:
            _give_up(paths, lease)
        if plan is not None:
            _, lost = _carry_out(project, spec, paths, lease, plan)
            value["unreadable_again"] = lost
            told = " ".join(value["next_run"])
            if untold := [path for path in lost if path not in told]:
                value["next_run"].append(f"does not find these files again: {', '.join(untold)}")
        return value


def _finish_begun(project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease) -> None:
    """Do what the next run would begin with, so that nothing is read again that only had to be finished."""
    context = RunContext(project, spec, paths, lease, new_report(spec.name, new_run_id("repair")))
    try:
        facts = recover(project, paths, spec, lease)
        while carry_out(context, facts, for_repair=True):
            facts = recover(project, paths, spec, lease)
    except TryAgainError:
        raise
    except TidegateError:
        return  # a part of what disagrees, and named by it


def _give_up(paths: PipelinePaths, lease: Lease) -> None:
    for intent in list_begun(paths):
        finish_work(paths, decide_to_give_up(paths, intent, lease), lease)


def look_at_repair(
    project: Project,
    spec: PipelineSpec,
    paths: PipelinePaths,
    rebuild: bool,
    *,
    dry_run: bool,
    asked: DisagreementError | None = None,
) -> tuple[Repair, RepairPlan | None]:
    """What the command says, and what is to be done, if anything; arguments as for :func:`repair_pipeline`."""
    facts = gather_facts(paths, spec)
    found = find_disagreement(paths, facts, spec.name)
    value: Repair = {
        "pipeline": spec.name,
        "dry_run": dry_run,
        "found": "nothing disagrees",
        "code": None,
        "choices": [],
        "actions": [],
        "next_run": [],
        "unreadable_again": [],
    }
    if asked is None and not rebuild and found is not None and _keeps_checkpoint(paths, facts, found):
        return _describe_small(value, paths, found), None
    found = found or (catalogue.REBUILD() if rebuild else asked)
    if found is None:
        value["choices"] = _choices_to_go_on(paths, facts, spec.name)
        return value, None
    chosen = f"reset {spec.name} --from-beginning --confirm {spec.name}" if asked is not None and rebuild else None
    value |= {"found": str(found.message), "code": found.code, "choices": list_choices(found.code, spec.name, chosen)}
    if found.code in ("REBUILD", "RESET") and not dry_run:
        value["choices"] = []  # it is chosen
    if found.code in _NOT_BY_A_CHECKPOINT and not rebuild:
        value["choices"] = [str(found.fix)]
        if dry_run:
            return value, None
        raise found
    if query_keeps_state(facts, spec) and found.code != "REBUILD":
        value["choices"] = rebuild_choices(spec.name)
        if not rebuild and dry_run:
            return value, None
        if not rebuild:
            raise refuse_new_checkpoint(found, spec.name)
    keeps_rows = False
    if rebuild:
        if facts.table is not None:
            check_starts_known(spec, paths)
        value["actions"].append(f"back up table and quarantine, as hidden folders next to {paths.table}")
        value["actions"] += list_undone(paths)
        keeps_rows = facts.table is not None and spec.output_mode == "append" and not query_keeps_state(facts, spec)
        facts = replace(facts, table=None)
    plan = _plan(project, spec, paths, facts, found, rebuild)
    if storage.exists(paths.rollback):
        value["actions"].append("set aside the rollback that was decided on: what is not done of it is given up")
    value["actions"] += _describe(plan)
    value["next_run"] = _describe_next_run(
        paths, plan, find_differing(project, paths, spec.file_streams, plan.again), keeps_rows=keeps_rows
    )
    return value, plan


def _plan(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, found: TidegateError, rebuild: bool
) -> RepairPlan:
    has_files = bool(spec.file_streams)
    unknown = why_files_are_unknown(paths, facts, found) if has_files else None
    if unknown is not None:
        raise DisagreementError(
            unknown.code,
            f"{unknown.message}; without the ledger nobody can tell which files are in the table, so nothing is "
            "guessed",
            where=str(paths.ledger),
            next_run="fails again until this is fixed",
            fix=unknown.fix,
        )
    settled = dict.fromkeys(known_queries(paths, facts), -1)
    rolled_back: set[str] = set()
    if not rebuild:
        state = read_table_state(paths.table, tuple(sorted(settled)))
        settled = settled_batches(paths.table, settled)
        _check_rollbacks_known(paths, settled)
        rolled_back = {query for query, last in ({} if state is None else state.txns).items() if settled[query] < last}
    taken_back = [] if rebuild else quarantine_to_take_back(paths, settled)
    orphans = [] if rebuild else [*_list_orphans(paths.table), *_list_orphans(paths.quarantine)]
    again = files_to_read_again(paths, settled) if has_files else []
    if not rebuild:
        _check_refreshes_known(paths, again)
        _check_moves_known(paths, settled)
    return RepairPlan(
        found=found,
        rebuild=rebuild,
        has_files=has_files,
        facts=facts,
        settled=settled,
        taken_back=taken_back,
        again=again,
        starts=starts_of_sources(project, spec, paths, facts),
        orphans=len(orphans) + len(taken_back),
        hidden=0 if rebuild else len(list_set_aside(paths.table)),
        rolled_back=rolled_back,
        begun=[] if rebuild else list_begun(paths),
    )


def _check_rollbacks_known(paths: PipelinePaths, settled: Mapping[str, int]) -> None:
    """Raise DisagreementError ROLLBACK_NOT_IN_TABLE when the table is a copy from before a rollback: the ledger calls
    the files of its rows unread since, and the records that they gave to quarantine were taken out of it."""
    for query, last in read_taken_back(paths).items():
        if settled.get(query, -1) > last:
            raise catalogue.ROLLBACK_NOT_IN_TABLE(where=f"pipeline {paths.name}, {paths.table}", name=paths.name)


def _check_refreshes_known(paths: PipelinePaths, again: Sequence[LedgerRow]) -> None:
    """Raise DisagreementError REFRESH_NOT_IN_TABLE when the table is a copy from before a refresh that began a new
    query: the ledger has the files of its rows under that one since, and they would be read once more."""
    rebuilt = {one.query_id: one.rebuilt_up_to for one in read_births(paths) if one.rebuilt_up_to is not None}
    is_older = any(int(row.batch_id or 0) <= rebuilt.get(row.query_id, -1) for row in again)
    for one in read_births(paths):
        if one.rebuilt_up_to is not None and one.replaces is not None:
            held = settled_batches(paths.table, (str(one.query_id), one.replaces.query_id))
            is_older |= held[str(one.query_id)] < one.rebuilt_up_to and held[one.replaces.query_id] >= 0
    if is_older:
        raise catalogue.REFRESH_NOT_IN_TABLE(where=f"pipeline {paths.name}, {paths.table}", name=paths.name)


def _choices_to_go_on(paths: PipelinePaths, facts: Facts, name: str) -> list[str]:
    is_begun = pending_intents(paths) or facts.owed or facts.in_flight is not None
    return [f"run again: `tidegate run {name}` goes on with what was begun"] if is_begun else []


def _keeps_checkpoint(paths: PipelinePaths, facts: Facts, found: TidegateError) -> bool:
    """Whether the checkpoint can stay: nothing is wrong but quarantine, or publishes that can be given up."""
    if found.code == "QUARANTINE_BEHIND":
        return True
    is_only_stuck = _compare(paths, facts, paths.name) is None
    return is_only_stuck and all(can_be_given_up(intent) for intent, _ in _list_stuck(paths))


def _describe_small(value: Repair, paths: PipelinePaths, found: TidegateError) -> Repair:
    """What the command says of a repair after which the checkpoint stays."""
    value |= {"found": str(found.message), "code": found.code}
    if found.code == "QUARANTINE_BEHIND":
        value["choices"] = list_choices(found.code, paths.name)
        value["actions"] = ["keep quarantine as it is now: the records that it lacks are in no table"]
    else:
        give_up = f"`tidegate repair {paths.name}`: give up what was begun; it can be started again"
        value["choices"] = [_RESTORE, give_up]
        value["actions"] = _describe_giving_up(list_begun(paths))
    return value


def _describe_giving_up(begun: Sequence[PublishIntent]) -> list[str]:
    return [
        f"give up {describe_work(intent)}, which was stopped half-way: the table, and quarantine, have what they had "
        "before it"
        for intent in begun
    ]


def _describe(plan: RepairPlan) -> list[str]:
    """What the repair does, a sentence for each step."""
    told = _describe_giving_up(plan.begun)
    told += ["end the query in the logs, and leave its checkpoint where it is, unused"]
    if plan.unpublished:
        count, records = len(plan.unpublished), sum(manifest.read for manifest in plan.unpublished)
        told.append(f"back up {count_of(count, 'staged batch', 'staged batches')} ({count_of(records, 'record')})")
    if plan.taken_back:
        told.append(f"take {count_of(len(plan.taken_back), 'file')} of those batches out of quarantine")
    if plan.orphans:
        files = count_of(plan.orphans, "data file")
        told.append(f"back up {files} that the log of the table does not hold, or no longer then")
    if plan.hidden:
        names = "a new plain name" if plan.hidden == 1 else "new plain names"
        told.append(f"give {count_of(plan.hidden, 'data file')} {names}, which a publish had begun to replace")
    return told


def _describe_next_run(
    paths: PipelinePaths, plan: RepairPlan, differing: Sequence[tuple[LedgerRow, str]], *, keeps_rows: bool
) -> list[str]:
    """What comes of the repair. ``differing`` are files that no longer hold what was read, ``keeps_rows`` is whether
    the table that is set aside has rows that are each of one record."""
    told = ["begins a new checkpoint"]
    gone = [(row, why) for row, why in differing if why.endswith(IS_GONE)]
    if there := len(plan.again) - len(gone):
        told.append(f"reads {count_of(there, 'file')} that the table's log does not hold")
    if gone:
        names = _name_some([why.removesuffix(f" {IS_GONE}") for _, why in gone])
        lost = _describe_lost_rows(paths, plan.again, [row for row, _ in gone]) if keeps_rows else ""
        told.append(f"does not find {count_of(len(gone), 'file')} of those that were read: {names}{lost}")
    if changed := [why for _, why in differing if not why.endswith(IS_GONE)]:
        told.append(f"finds these other than they were when they were read: {_name_some(changed)}")
    return [*told, *(f"starts source {name} at {json.dumps(one['offsets'])}" for name, one in plan.starts.items())]


def _name_some(told: Sequence[str]) -> str:
    more = f"; and {len(told) - _NAMED_AT_MOST:,} more" if len(told) > _NAMED_AT_MOST else ""
    return f"{'; '.join(told[:_NAMED_AT_MOST])}{more}"


def _describe_lost_rows(paths: PipelinePaths, again: Sequence[LedgerRow], gone: Sequence[LedgerRow]) -> str:
    """How many rows of the table cannot be built again, by the batches that its files are of."""
    batches = {(str(row.query_id)[:8], row.batch_id) for row in gone}
    others = sum((str(row.query_id)[:8], row.batch_id) in batches for row in again) - len(gone)
    files = list_data_files(paths.table)
    origins = read_origins(paths.table, [file.path for file in files])
    rows = sum(file.rows for file in files if origins.get(file.path, frozenset()) & batches)
    if not others:
        return f"; {count_of(rows, 'row')} of the table came of that"
    return (
        f"; at most {count_of(rows, 'row')} of the table came of that: so many are of the batches that "
        f"had it and {count_of(others, 'file')} more"
    )


def read_again(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease, found: DisagreementError
) -> tuple[PipelinePaths, list[str]]:
    """Begin a new query where the table's log ends, as a repair does; its paths, and the files that are gone. ``found``
    is why.

    Killed anywhere it may be called again.
    """
    plan = _plan(project, spec, paths, gather_facts(paths, spec), found, rebuild=False)
    return _carry_out(project, spec, paths, lease, plan)


def list_files_to_read_again(paths: PipelinePaths, spec: PipelineSpec) -> list[LedgerRow]:
    """The files that a new query would read which begins where the table's log ends."""
    queries = known_queries(paths, gather_facts(paths, spec))
    return files_to_read_again(paths, settled_batches(paths.table, queries))


def _carry_out(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, lease: Lease, plan: RepairPlan
) -> tuple[PipelinePaths, list[str]]:
    """Do it; the paths of the new query, and the files that are gone and cannot be read again, those of quarantined
    records among them.

    The query is ended first, so that nothing of it can come late any more, and the new birth comes last but for the
    note: until then the disagreement is still found. The lease is looked at before each step: a repair that slept
    while another one did the same must not undo what was read since.
    """
    aside = paths.set_aside / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    gone: list[str] = []
    if not plan.rebuild:
        _give_up(paths, lease)
        plan = replace(plan, taken_back=quarantine_to_take_back(paths, plan.settled))
        gone = send_quarantine(paths, plan.facts, plan.settled, aside, lease)
    for query_id in sorted(_queries_to_end(paths, plan.facts)):
        retire_query(paths, query_id, lease=lease, in_flight=None, keep_staged=False)
    if plan.rebuild:
        set_tables_aside(paths, lease)
    lease.check()
    for query_id in sorted(plan.rolled_back):
        record_taken_back(paths, query_id, plan.settled[query_id])
    folder = aside
    storage.make_folder(folder)
    for intent in pending_intents(paths):
        _move(intent_path(paths, intent), folder / intent_path(paths, intent).name, lease)
    # Before orphans are looked for: a process that is asleep over a move finds its source gone, or is found.
    _move_staging(paths, plan, folder, lease)
    if not plan.rebuild:
        _clear_tables(paths, lease, plan, folder)
    lost = _put_back(project, spec, paths, plan.settled, lease) if plan.has_files else []
    for manifest in plan.unpublished:
        source = paths.manifest(manifest.query_id, manifest.batch_id)
        _move(source, folder / f"{manifest.query_id}-{manifest.batch_id}.json", lease)
    for query_id, manifests in plan.facts.manifests.items():
        lease.check()
        remove_folded(paths, query_id, manifests[-1].batch_id)
    rereads = {paths.decision(one.run_id) for one in list_rereads(paths)}  # these are what is being done
    for aside, word in ((paths.decisions, "decision"), (paths.verdicts, "verdict")):
        for path in sorted(set(storage.list_folder(aside, "*.json")) - rereads):
            _move(path, folder / f"{word}-{path.name}", lease)
            _give_back(path, folder / f"{word}-{path.name}", set(plan.settled))
    if plan.found.code != "ROLLBACK":  # one that was recorded, and did not come to change the table, is over
        _move(paths.rollback, folder / paths.rollback.name, lease)
    sources: dict[str, Start] = {source: plan.starts.get(source, {}) for source in spec.streams}
    sources |= {} if plan.rebuild else starts_of_absent_sources(paths, spec, plan.facts)
    settings = settings_at_birth(project, spec) if plan.rebuild else _settings(plan.facts)
    begun = begin_anew(paths, new_birth(paths, spec, sources, settings), why=f"repair: {plan.found.code}", lease=lease)
    lease.check()
    # Last: as long as the old note stands, a table that disagrees with it is found.
    _note_table(begun, spec, read_table_state(paths.table))
    note_quarantine(paths, lease)
    return begun, lost + gone


def _move_staging(paths: PipelinePaths, plan: RepairPlan, folder: Path, lease: Lease) -> None:
    """Back up what is staged, but for increments that wait alone and whose records are not read again. The others that
    wait are backed up with it: nobody may publish them beside what is read again."""
    kept = set()
    for one in list_waiting(paths):
        if all(manifest.batch_id <= plan.settled.get(manifest.query_id, -1) for manifest in one.manifests):
            kept |= {paths.state / attempt for attempt in one.attempts}
        else:
            path = paths.waiting_increment(one.run_id)
            _move(path, folder / f"waiting-{path.name}", lease)
    for query in storage.list_folders(paths.staging):
        if not any(attempt.is_relative_to(query) for attempt in kept):
            _move(query, folder / "staging" / query.name, lease)
            continue
        for batch in storage.list_folders(query):
            for attempt in storage.list_folders(batch):
                if attempt not in kept:
                    _move(attempt, folder / "staging" / query.name / batch.name / attempt.name, lease)
            storage.remove_empty_folder(batch)


def _clear_tables(paths: PipelinePaths, lease: Lease, plan: RepairPlan, folder: Path) -> None:
    """Take out of readers' sight what the logs do not hold, and bring back what a publish had begun to replace."""
    for table_path in (paths.table, paths.quarantine):
        for copy in storage.list_tree(table_path, f".*{storage.COPY_SUFFIX}"):
            lease.check()
            storage.remove(copy)
    lease.check()
    if plan.taken_back:
        _take_back(paths, plan.taken_back)
    for table_path in (paths.table, paths.quarantine):
        aside = folder / ("table" if table_path == paths.table else "quarantine")
        for name in _list_orphans(table_path):
            _move(table_path / name, aside / name, lease)
    bring_back(paths.table, app_id=new_run_id("repair"), check_lease=lease.check)


def _move(source: Path, target: Path, lease: Lease) -> None:
    lease.check()
    with contextlib.suppress(FileNotFoundError):  # another process was faster: the lease says so at the next step
        storage.move(source, target)


def _give_back(path: Path, moved: Path, ended: set[str]) -> None:
    """Undo the move of a verdict or decision that is on a query which began while this process slept over it: run ids
    are used again."""
    value = storage.read_json(moved)
    if value is not None and not {query for query, _ in value["batches"]} <= ended:
        storage.put_if_absent(path, storage.read(moved))


def find_disagreement(paths: PipelinePaths, facts: Facts, name: str) -> TidegateError | None:
    """What the next run would refuse with, or None."""
    return _compare(paths, facts, name) or next((error for _, error in _list_stuck(paths)), None)


def _list_stuck(paths: PipelinePaths) -> list[tuple[PublishIntent, DisagreementError]]:
    """The publishes that were begun and cannot be finished, each with the reason."""
    found = [(intent, find_hindrance(paths, intent)) for intent in pending_intents(paths)]
    return [(intent, error) for intent, error in found if error is not None]


def _compare(paths: PipelinePaths, facts: Facts, name: str) -> TidegateError | None:
    """What disagrees, but for publishes that cannot be finished."""
    try:
        check_agreement(facts, name)
        for intent in pending_intents(paths):
            if intent.app_version > facts.retired.get(intent.app_id, intent.app_version):
                continue
            state = facts.table if intent.target == "table" else read_table_state(paths.quarantine, (intent.app_id,))
            current = -1 if state is None else state.txns.get(intent.app_id, -1)
            if current < intent.app_version_before:
                return catalogue.TABLE_BEHIND_ANY_INTENT(target=intent.target)
        check_staged(paths, facts, name)
        check_quarantine(paths)
        if facts.birth is not None and any(value == {} for value in facts.birth.sources.values()):
            open_ledger(paths, read_only=True).close()
    except DisagreementError as error:
        return error
    return None


def why_files_are_unknown(paths: PipelinePaths, facts: Facts, found: TidegateError) -> TidegateError | None:
    """The reason why nobody can tell which files are in the table; None when the ledger tells, or there is no table."""
    if facts.table is None:
        return None
    if found.code in ("STATE_GONE", "STATE_BEHIND"):
        return found
    try:
        open_ledger(paths, read_only=True).close()
    except DisagreementError as error:
        return error
    return None


def list_choices(code: str, name: str, chosen: str | None = None) -> list[str]:
    """What a person can do about a disagreement; ``chosen`` is the command that makes all anew, where another one than
    ``repair --rebuild`` was asked for."""
    anew = chosen or f"repair {name} --rebuild"
    if code == "REBUILD":
        return [
            f"leave the table as it is: `tidegate run {name}` goes on with it",
            f"`tidegate {anew}`: a new table from all that the sources still have; the old one is kept as a backup",
        ]
    if code == "RESET":
        return [
            f"leave the checkpoint as it is: `tidegate run {name}` goes on with it",
            f"`tidegate reset {name} --confirm {name}`: a new checkpoint that starts where the table's log ends",
        ]
    if code == "QUARANTINE_BEHIND":
        return [
            _RESTORE,
            f"`tidegate {anew}`: table and quarantine anew from all that the sources have",
            f"`tidegate repair {name}`: go on without the records that it lacks",
        ]
    if code == "SPEC_CHANGED":
        return ["take the change in pipeline.yaml back", f"`tidegate repair {name}`: a new checkpoint for the new spec"]
    if code in _TABLE_CODES:
        return [
            "restore the table folder to its newest state, then run again",
            f"`tidegate repair {name}`: keep the table as it is now; what it lacks is read again from the source",
        ]
    return [
        "restore the pipeline's state folder from the same time as the table, then run again",
        f"`tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends",
    ]


def known_queries(paths: PipelinePaths, facts: Facts) -> set[str]:
    """Every query that ledger, manifests, birth, notes, quarantine or increments that wait alone know."""
    queries = _queries_to_end(paths, facts)
    queries |= {manifest.query_id for one in list_waiting(paths) for manifest in one.manifests}
    if storage.exists(paths.ledger):
        with open_ledger(paths, read_only=True, create=True) as ledger:
            queries |= set(ledger.query_ids())
    return queries | {query for query, _ in _quarantine_queries(paths)}


def _queries_to_end(paths: PipelinePaths, facts: Facts) -> set[str]:
    """Queries of which a process could still be at work, or asleep."""
    queries = set(facts.manifests) | {facts.query_id or "", (facts.birth.query_id if facts.birth else None) or ""}
    queries |= {(facts.published.query_id if facts.published else None) or ""}
    queries |= {intent.app_id for intent in pending_intents(paths)}
    return queries - {""}


def _quarantine_queries(paths: PipelinePaths) -> list[tuple[str, int]]:
    """(query id, last batch) of each of our commits to the quarantine table."""
    if read_table_state(paths.quarantine) is None:
        return []
    found = []
    for entry in open_table(paths.quarantine).history():
        query, batches = entry.get("tidegate.query_id"), entry.get("tidegate.batches")
        if query and batches:
            found.append((str(query), int(json.loads(batches)[1])))
    return found


def quarantine_to_take_back(paths: PipelinePaths, settled: Mapping[str, int]) -> list[DataFile]:
    """Files of the quarantine table all of whose batches the table's log does not hold."""
    last = _last_by_prefix(paths, settled)
    files = list_data_files(paths.quarantine)
    origins = read_origins(paths.quarantine, [file.path for file in files])
    found = []
    for file in files:
        batches = origins.get(file.path, frozenset())
        is_ours = batches != {parse_file_name(Path(file.path).name)} or {query for query, _ in batches} <= last.keys()
        if batches and is_ours and all(batch > last.get(query, -1) for query, batch in batches):
            found.append(file)
    return found


def _check_moves_known(paths: PipelinePaths, settled: Mapping[str, int]) -> None:
    """Raise DisagreementError REWORK_NOT_IN_TABLE when the table is a copy from before a replay, a backfill or a
    refresh that moved records between table and quarantine, unless all of these are read again."""
    moves = list_moves(paths.quarantine)
    table = read_table_state(paths.table, tuple(sorted({move.app_id for move in moves}))) if moves else None
    if table is None:  # no batch counts
        return
    last = _last_by_prefix(paths, settled)
    begun = [one.companion for one in list_begun(paths) if one.companion is not None]  # these are undone first
    undone = {(one.app_id, one.app_version) for one in begun}
    moves = [one for one in moves if one.part > table.txns.get(one.app_id, -1) and (one.app_id, one.part) not in undone]
    moves = [move for move in moves if any(batch <= last.get(query, -1) for query, batch in move.batches)]
    for move in moves:
        if move.run_id not in _runs_that_began_queries(paths.table):
            raise catalogue.REWORK_NOT_IN_TABLE(
                where=f"pipeline {paths.name}, {paths.table}", name=paths.name, kind=move.kind, run_id=move.run_id
            )


def _last_by_prefix(paths: PipelinePaths, settled: Mapping[str, int]) -> dict[str, int]:
    """{first eight characters of a query id: its last batch that the table holds}, of every query that is known here or
    to the table's log."""
    known = read_log(paths.table).txns if has_log(paths.table) else {}
    found = {query[:8]: int(txn["version"]) for query, txn in known.items() if "#" not in query}
    return found | {query[:8]: batch for query, batch in settled.items()}


def _runs_that_began_queries(table_path: Path) -> set[str]:
    """The refreshes whose version in the log is of a query that they began; no id of their own is there."""
    found = [read_commit_metadata(table_path, version) for version in list_versions(table_path)]
    return {str(info.get("tidegate.run_id")) for info in found if REPLACES in info}


def _take_back(paths: PipelinePaths, files: Sequence[DataFile]) -> None:
    commit_files(
        paths.quarantine,
        schema_json=QUARANTINE_SCHEMA_JSON,
        partition_by=[],
        add=[],
        remove=list(files),
        app_id=new_run_id("repair"),
        app_version=0,
        app_version_before=-1,
        custom_metadata={"tidegate.pipeline": paths.name, "tidegate.outcome": "taken_back"},
    )


def _list_orphans(table_path: Path) -> list[str]:
    """Data files of ours that plain readers see and the log does not hold: moved in by a publish that was never
    committed, taken back by a repair that was killed, or of a newer log than the one that is there now.

    Their records are read again, so they must not stay.
    """
    held = {file.path for file in list_data_files(table_path)}
    files = storage.list_tree(table_path, "part-*.parquet")
    ours = {path.relative_to(table_path) for path in files if parse_file_name(path.name)}
    return sorted({path.as_posix() for path in ours if path.parts[0] != LOG_FOLDER} - held)


def files_to_read_again(paths: PipelinePaths, settled: Mapping[str, int]) -> list[LedgerRow]:
    """The files that a new query would read when these batches are what the table holds."""
    with open_ledger(paths, read_only=True, create=True) as ledger:
        return [
            row
            for row in ledger.rows()
            if row.state != "before_start"
            and (row.state == "linked" or row.batch_id is None or row.batch_id > settled.get(str(row.query_id), -1))
        ]


def _put_back(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, settled: dict[str, int], lease: Lease
) -> list[str]:
    """Give the files that must be read again their links; the paths of those that are gone."""
    gone: list[str] = []
    with open_ledger(paths, create=True, lease=lease) as ledger:
        ledger.untake(settled)
        for name, source in spec.file_streams.items():
            lease.check()
            read_whole_again(paths, name, ledger)
            lost = list(restore_links(project, paths, name, source, ledger).lost)
            sweep_intake(paths, name, ledger, keep_staged=False)
            gone += [shown_path(path) for path in lost]
    return gone


def _settings(facts: Facts) -> dict[str, str]:
    # What an earlier version did not pin yet is added: without it the new checkpoint would be refused like the old one.
    return dict(PINNED) if facts.birth is None else {**PINNED, **facts.birth.settings}


def _note_table(paths: PipelinePaths, spec: PipelineSpec, table: TableState | None) -> None:
    if table is None:
        storage.remove_tree(paths.published)
        return
    note = Published(table.table_id, table.version, None, -1, last_taken(paths, spec))
    before = read_published(paths)
    goes_on = before is not None and before.table_id == table.table_id and before.version <= table.version
    # An older copy of the table may be in its place: the notes of what it had reached before must not outrank it. Where
    # the table only went on, a process that slept here must not take the notes of its successors away.
    write_published(paths, note, only=not goes_on)
