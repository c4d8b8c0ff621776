"""What a rollback of the table would do: to its files and rows, and to the records of the versions in between."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core import outputs, storage
from tidegate.core.errors import SourceLostError, TidegateError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.facts import Facts, Situation, query_keeps_state
from tidegate.runs.preflight.table_log import Later, count_quarantined, increment_of
from tidegate.runs.reports.verdicts import WAITED, load_waiting
from tidegate.runs.restart.disagreement import READ_TWICE, find_remaining, state_needed, why_files_are_unknown
from tidegate.runs.restart.repair_plan import (
    files_to_read_again,
    known_queries,
    quarantine_to_take_back,
    starts_of_sources,
)
from tidegate.sources.files.differences import find_differences
from tidegate.sources.registry import open_sources
from tidegate.state.birth import Start
from tidegate.state.published import Published, read_taken_back
from tidegate.table.log.files import CommitInfo, list_versions, read_actions
from tidegate.table.log.state import (
    REREAD,
    ROLLED_BACK_TO,
    THEN,
    list_data_files,
    log_is_cut,
    read_commit_metadata,
    read_txns,
    settled_batches,
    walk_back,
)
from tidegate.table.publish.intent import COMPANION, REPLACES
from tidegate.table.publish.origins import FOREIGN, read_origins
from tidegate.table.publish.plan import ABANDONED, REWORK
from tidegate.table.publish.replace import Restore, nearest_restorable, plan_restore

_NAMED_AT_MOST = 3


@dataclass(frozen=True)
class Between:
    """A version behind the one that the table goes back to: a run's increment, or a side job (``kind``)."""

    version: int
    kind: str
    run_id: str
    outcome: str
    read: int
    rows: int
    batches: tuple[str, int, int] | None
    """(query id, first batch, last batch) of an increment."""


@dataclass(frozen=True)
class GivenBack:
    """Increments whose records a rollback (version ``by`` and those before it, the newest of run ``run_id``) had given
    back to be read again, where no run has read anything since."""

    by: int
    run_id: str
    increments: list[Between]


@dataclass(frozen=True)
class Look:
    """A rollback as it would be now. ``settled`` are the batches of each known query that it would leave."""

    version: int
    newest: int
    restore: Restore
    between: list[Between]
    foreign: list[tuple[int, str]]
    """(version, operation) of what other programs changed in between, newest first."""
    settled: dict[str, int]
    given_back: GivenBack | None

    @property
    def increments(self) -> list[Between]:
        """What runs published or discarded in between."""
        return [one for one in self.between if one.batches is not None]

    @property
    def left_out(self) -> outputs.LeftOut:
        """The records in between, as the report and the commit have them when they stay taken."""
        return {
            "records": sum(one.read for one in self.increments),
            "rows": sum(one.rows for one in self.increments),
            "batches": [one.batches for one in reversed(self.increments) if one.batches is not None],
        }

    def changes_nothing(self, then: str | None) -> bool:
        """True if no file changes, no record would be read again, and none to be excluded is about to be read."""
        has_records = bool(self.given_back) if then == "leave-out" else bool(self.increments)
        return not (self.restore.back or self.restore.leave or has_records)


def look_back(paths: PipelinePaths, facts: Facts, version: int) -> Look:
    """What a rollback to ``version`` would do now. Raises UsageError NO_SUCH_VERSION,
    SourceLostError VERSION_VACUUMED with the nearest version that is available, DisagreementError for a table
    that is not the one of the last publish."""
    where, table = f"pipeline {paths.name}, {paths.table}", facts.table
    check_table(facts, paths.name)
    if table is None:
        fix = f"tidegate run {paths.name} makes version 0"
        raise errors.NO_SUCH_VERSION(where=where, version=version, why="it has none yet", fix=fix)
    if not 0 <= version <= table.version:
        found = f"the oldest is 0, the newest {table.version}"
        fix = "give --to-version one of these; the reports (tidegate status) name the version of each run"
        raise errors.NO_SUCH_VERSION(where=where, version=version, why=found, fix=fix)
    try:
        settled = settled_batches(paths.table, known_queries(paths, facts), version)
        restore = plan_restore(paths.table, version)
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        nearest = nearest_restorable(paths.table, version, table.version)
        why = "the table's log does not go back to it"
        raise errors.VERSION_VACUUMED(where=where, version=version, why=why, nearest=nearest) from None
    between, foreign = _list_between(paths, version, table.version)
    if restore.gone:
        files, nearest = count_of(len(restore.gone), "file"), nearest_restorable(paths.table, version, table.version)
        why = f"{files} of it were removed, for example {restore.gone[0]}"
        raise errors.VERSION_VACUUMED(where=where, version=version, why=why, nearest=nearest)
    given_back = _find_given_back(paths, version, table.version)
    return Look(version, table.version, restore, between, foreign, settled, given_back)


def _list_between(paths: PipelinePaths, version: int, newest: int) -> tuple[list[Between], list[tuple[int, str]]]:
    """The versions behind ``version`` whose records count as taken, newest first, and those of other programs."""
    found: list[Between] = []
    foreign: list[tuple[int, str]] = []
    last = newest + 1
    for number, info in walk_back(paths.table):
        if number == version:
            return found, foreign
        if number < version:
            break
        if info is None:
            raise log_is_cut(paths.table, number, "what became of their records")
        last = number
        one = _describe(number, info)
        found += [one] if one is not None else []
        if _is_foreign(paths.table, number, info):
            foreign.append((number, str(info.get("operation", "unknown operation"))))
    why = f"version {last}, a rollback whose records are read again, undid it, and the records would be there twice"
    fix = "give --to-version a version that no such rollback has undone"
    raise errors.NO_SUCH_VERSION(where=f"pipeline {paths.name}, {paths.table}", version=version, why=why, fix=fix)


def _find_given_back(paths: PipelinePaths, version: int, newest: int) -> GivenBack | None:
    """What rollbacks behind ``version`` gave back, and no run has read since; None for nothing."""
    by: tuple[int, str] | None = None
    found: list[Between] = []
    for number, info in walk_back(paths.table, newest):
        if number <= version or info is None:
            break
        one = _describe(number, info)
        if one is not None and one.batches is not None:
            break
        if one is not None and info.get(THEN) == REREAD:
            by = by or (number, one.run_id)
            found += _list_taken_back(paths, int(info[ROLLED_BACK_TO]), number - 1)
    return GivenBack(*by, found) if by is not None and found else None


def _list_taken_back(paths: PipelinePaths, version: int, newest: int) -> list[Between]:
    """The increments that a rollback to ``version`` gave back when ``newest`` was the newest, and those that one before
    it had given back and no run had read again."""
    before = _find_given_back(paths, version, newest)
    found = [] if before is None else before.increments
    for number, info in walk_back(paths.table, newest):
        if number <= version or info is None:
            break
        one = _describe(number, info)
        found += [one] if one is not None and one.batches is not None else []
    return found


def _is_foreign(table_path: Path, version: int, info: CommitInfo) -> bool:
    """Return whether another program has changed rows in a version."""
    if any(key.startswith("tidegate.") for key in info):
        return False
    files = [one.get("add") or one.get("remove") for one in read_actions(table_path, version)]
    return any(file is not None and file.get("dataChange", True) for file in files)


def _describe(version: int, info: CommitInfo) -> Between | None:
    """What a version was made by; None for one that changes no row."""
    run_id, outcome = str(info.get("tidegate.run_id")), str(info.get("tidegate.outcome"))
    if outcome == ABANDONED:
        return None
    if REWORK in info:
        figures = json.loads(info.get("tidegate.figures", "{}"))
        return Between(version, str(info[REWORK]), run_id, outcome, 0, int(figures.get("rows_added", 0)), None)
    if "tidegate.query_id" not in info or "tidegate.batches" not in info:
        return None
    kind = "refresh" if REPLACES in info else "run"
    rows = json.loads(info.get("tidegate.rows", "{}"))
    first, last = json.loads(info["tidegate.batches"])
    batches = (str(info["tidegate.query_id"]), int(first), int(last))
    return Between(version, kind, run_id, outcome, int(rows.get("read", 0)), int(rows.get("published", 0)), batches)


def find_moved_records(paths: PipelinePaths, look: Look) -> UsageError | None:
    """Why the versions in between cannot be rolled back: a side job has taken records out of quarantine,
    or put some there, or published what had waited for a decision, or began a new query; None where nothing has."""
    work = [one for one in look.between if one.kind != "run"]
    in_quarantine = _list_work(paths.quarantine) if work else set()
    for one in work:
        if one.batches is not None:
            why = "it began a new query, whose state matches the rows of that version, but not those of an earlier one"
        elif one.kind == "release" or (one.kind, one.run_id) in in_quarantine:
            other = "a deferred increment" if one.kind == "release" else "quarantine"
            why = f"it moved records between the table and {other}, and they would be in neither place, or in both"
        else:
            continue
        return errors.ROLLBACK_MOVED(
            where=f"pipeline {paths.name}",
            version=one.version,
            kind=one.kind,
            run_id=one.run_id,
            why=why,
            name=paths.name,
        )
    return None


def _list_work(table_path: Path) -> set[tuple[str, str]]:
    """(kind, run id) of each side job in a table's log."""
    found = set()
    for version in list_versions(table_path):
        info = read_commit_metadata(table_path, version)
        if REWORK in info:
            found.add((str(info[REWORK]), str(info.get("tidegate.run_id"))))
    return found


def list_choices(situation: Situation, look: Look) -> list[outputs.RollbackChoice]:
    """What can become of the records in between, what each choice does, and what is in its way."""
    choices: list[outputs.RollbackChoice] = []
    if look.increments:
        does = _describe_reread(situation, look)
        hindrance = find_reread_hindrance(situation, look)
        choices.append(
            {"then": "reread", "does": does, "hindrance": None if hindrance is None else hindrance.to_dict()}
        )
    if look.increments or look.given_back:
        does = []
        if look.increments:
            rows = count_of(look.left_out["rows"], "row")
            does.append(f"{describe_records(look)} stay taken: no run reads them again")
            does.append(f"{rows} from them are excluded; the report and the table log list the batches")
        leave_out = find_leave_out_hindrance(situation, look)
        choices.append(
            {"then": "leave-out", "does": does, "hindrance": None if leave_out is None else leave_out.to_dict()}
        )
    return choices


def _describe_reread(situation: Situation, look: Look) -> list[str]:
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    sentences = [
        f"the next run reads {describe_records(look)} again, with schema, suite and transform as they are then"
    ]
    if again := files_to_read_again(paths, look.settled) if spec.file_streams else []:
        sentences.append(f"back to the intake: {count_of(len(again), 'file')}, including those of no batch yet")
    starts: Mapping[str, Start] = {}
    with contextlib.suppress(TidegateError):  # named as the hindrance
        starts = starts_of_sources(situation, back_to=look.version)
    for name, start in starts.items():
        sentences.append(f"source {name} starts at {json.dumps(start.get('offsets', {}))}")
    if discarded := sum(one.outcome == "discarded" for one in look.increments):
        sentences.append(f"{count_of(discarded, 'discarded increment')} among them: judged again like the others")
    if taken_back := quarantine_to_take_back(paths, look.settled):
        records = sum(file.rows for file in taken_back)
        sentences.append(f"{count_of(records, 'record')} of theirs in quarantine: taken out of it, and judged again")
    if facts.unpublished:
        sentences.append(
            f"{count_of(len(facts.unpublished), 'staged batch', 'staged batches')} backed up, and read again as well"
        )
    return sentences


def describe_records(look: Look) -> str:
    """The records in between, counted."""
    return f"the {_count(look.increments)}"


def _count(increments: list[Between]) -> str:
    return f"{count_of(sum(one.read for one in increments), 'record')} of {count_of(len(increments), 'version')}"


def find_leave_out_hindrance(situation: Situation, look: Look) -> UsageError | None:
    """Why the records in between cannot be excluded; None when they can. What a query in update or complete mode has
    counted comes back with the next row of the same key; what an earlier rollback gave back, the next run reads."""
    spec, facts = situation.spec, situation.facts
    if (given := look.given_back) is not None:
        return errors.ROLLBACK_GIVEN_BACK(
            where=f"pipeline {spec.name}",
            name=spec.name,
            version=look.version,
            by=given.by,
            run_id=given.run_id,
            records=_count(given.increments),
        )
    if look.increments and spec.output_mode != "append" and query_keeps_state(facts, spec):
        why = (
            f"output_mode is {spec.output_mode}, so they cannot be excluded: they would come back with the next row of "
        )
        why += "the same key"
        return state_needed(spec.name, describe_records(look), why)
    return None


def find_reread_hindrance(situation: Situation, look: Look) -> TidegateError | None:
    """Why the records in between cannot be read again; None when they can."""
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    if not look.increments:
        return None
    if query_keeps_state(facts, spec):
        others = "" if spec.output_mode != "append" else "`--then leave-out`; or "
        return state_needed(spec.name, describe_records(look), READ_TWICE, others=others)
    if (found := find_remaining(paths, facts, spec.name)) is not None:
        return found
    if spec.file_streams and (unknown := why_files_are_unknown(paths, facts, None)) is not None:
        return unknown
    try:
        gone = _list_gone(situation, look)
    except TidegateError as error:
        return error
    if gone:
        return errors.REREAD_LOST(
            where=f"pipeline {spec.name}",
            records=describe_records(look),
            lost=list_first(gone, _NAMED_AT_MOST, "; "),
            others="use --then leave-out; or choose a later --to-version, after the lost records",
        )
    return None


def _list_gone(situation: Situation, look: Look) -> list[str]:
    """What the sources no longer have of what is to be read again."""
    project, spec, paths = situation.project, situation.spec, situation.paths
    gone: list[str] = []
    if spec.file_streams:
        again = files_to_read_again(paths, look.settled)
        gone += find_differences(project, paths, spec.file_streams, again)
    sources = open_sources(project, paths, spec)
    for name, start in starts_of_sources(situation, back_to=look.version).items():
        gone += sources[name].find_gone(start)
    return gone


def find_rollback_target(paths: PipelinePaths, facts: Facts) -> Look | None:
    """The rollback that removes from the table what the others do not count: records that runs have read since
    the copy of the state folder was made, or that a rollback took out of the table of which an older copy is there, or
    that quarantine lacks and no refresh can read. None without such a thing, or when the version cannot be read."""
    if facts.table is None:
        return None
    newest, taken_back = facts.table.version, read_taken_back(paths)
    origins = read_origins(paths.table, [file.path for file in list_data_files(paths.table)])
    all_were_read = not any(FOREIGN in batches for batches in origins.values())
    in_quarantine, decided = read_txns(paths.quarantine), set[str]()
    version, is_below = newest if facts.later.back_to is None else facts.later.back_to, False
    for number, info in walk_back(paths.table, version):
        version, is_below = (number if is_below else version), False
        increment = None if info is None else increment_of(info)
        if info is None:
            continue
        run_id, is_undecided = str(info.get("tidegate.run_id")), False
        if WAITED in info:
            decided.add(run_id)
        if info.get("tidegate.outcome") == "waiting":
            is_undecided = run_id not in decided and load_waiting(paths, run_id) is None
        is_taken_back = increment is not None and increment[1] > taken_back.get(increment[0], increment[1])
        # A refresh reads the records of a version again, but not those of a discarded increment.
        can_refresh = all_were_read and info.get("tidegate.outcome") != "discarded"
        if is_undecided or is_taken_back or (_is_lacking(facts, info, in_quarantine) and not can_refresh):
            version, is_below, decided = -1, True, set()
    try:
        return None if version in (-1, newest) else look_back(paths, with_current_note(facts), version)
    except (UsageError, SourceLostError):
        return None


def _is_lacking(facts: Facts, info: CommitInfo, in_quarantine: Mapping[str, int]) -> bool:
    """Return whether quarantine, whose log has the numbers ``in_quarantine``, lacks its part of a version."""
    if COMPANION in info:
        app_id, part = json.loads(info[COMPANION])
        return in_quarantine.get(app_id, -1) < int(part)
    increment = increment_of(info)
    if increment is None or not count_quarantined(info) or info.get("tidegate.outcome") == "waiting":
        return False
    query, batch = increment
    return batch not in facts.staged(query) and in_quarantine.get(query, -1) < batch


def with_current_note(facts: Facts) -> Facts:
    """The facts with a note that matches the table; the caller knows that the stored one does not."""
    assert facts.table is not None
    return replace(facts, published=Published(facts.table.table_id, facts.table.version, None, -1), later=Later())
