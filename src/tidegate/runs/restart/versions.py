"""What a rollback of the table would do: to its files and rows, and to the records of the versions in between."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.restart.disagreement import find_disagreement, why_files_are_unknown
from tidegate.runs.restart.rebuild import query_keeps_state
from tidegate.runs.restart.repair_plan import files_to_read_again, known_queries, quarantine_to_take_back
from tidegate.runs.restart.starts import starts_of_sources
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.ledger import LedgerRow
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.files import list_versions, read_actions
from tidegate.table.log.state import read_commit_metadata
from tidegate.table.log.taken import REREAD, ROLLED_BACK_TO, THEN, log_is_cut, settled_batches, walk_back
from tidegate.table.publish.intent import REPLACES
from tidegate.table.publish.restore import Restore, nearest_restorable, plan_restore
from tidegate.table.publish.rework import ABANDONED, REWORK

ALLOWED = ("SPEC_CHANGED",)
"""A disagreement that reading again settles; and a rule that was wrong is corrected before the rows go."""
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
        """Whether there is nothing to roll back: no file changes, no record would be read again, and none that is to be
        excluded is about to be read."""
        has_records = bool(self.given_back) if then == "leave-out" else bool(self.increments)
        return not (self.restore.back or self.restore.leave or has_records)


def look_back(paths: PipelinePaths, facts: Facts, version: int) -> Look:
    """What a rollback to ``version`` would do now. Raises UsageError NO_SUCH_VERSION or VERSION_TAKEN_BACK,
    SourceLostError VERSION_GONE_BY_VACUUM with the nearest version that is available, DisagreementError for a table
    that is not the one of the last publish."""
    where, table = f"pipeline {paths.name}, {paths.table}", facts.table
    check_table(facts, paths.name)
    if table is None:
        raise errors.NO_VERSION_YET(where=where, version=version, name=paths.name)
    if not 0 <= version <= table.version:
        raise errors.NO_SUCH_VERSION(where=where, version=version, newest=table.version)
    try:
        settled = settled_batches(paths.table, known_queries(paths, facts), version)
        restore = plan_restore(paths.table, version)
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        nearest = nearest_restorable(paths.table, version, table.version)
        raise errors.VERSION_OF_OLD_LOG(where=where, version=version, nearest=nearest) from None
    between, foreign = _list_between(paths, version, table.version)
    if restore.gone:
        raise errors.VERSION_VACUUMED(
            where=where,
            version=version,
            files=count_of(len(restore.gone), "file"),
            example=restore.gone[0],
            nearest=nearest_restorable(paths.table, version, table.version),
        )
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
    raise errors.VERSION_TAKEN_BACK(where=f"pipeline {paths.name}, {paths.table}", version=version, by=last)


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
    """Whether another program has changed rows in a version."""
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
            return errors.ROLLBACK_REFRESHED(
                where=f"pipeline {paths.name}", version=one.version, run_id=one.run_id, name=paths.name
            )
        if one.kind == "release" or (one.kind, one.run_id) in in_quarantine:
            return errors.ROLLBACK_MOVED(
                where=f"pipeline {paths.name}",
                version=one.version,
                kind=one.kind,
                run_id=one.run_id,
                other="an increment that waited" if one.kind == "release" else "quarantine",
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


def list_choices(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, look: Look
) -> list[outputs.RollbackChoice]:
    """What can become of the records in between, what each choice does, and what is in its way."""
    choices: list[outputs.RollbackChoice] = []
    if look.increments:
        again = files_to_read_again(paths, look.settled) if spec.file_streams else []
        choices.append(
            {
                "then": "reread",
                "does": _describe_reread(project, spec, paths, facts, look, again),
                "hindrance": _to_dict(find_reread_hindrance(project, spec, paths, facts, look)),
            }
        )
    if look.increments or look.given_back:
        choices.append(
            {
                "then": "leave-out",
                "does": _describe_leave_out(look),
                "hindrance": _to_dict(find_leave_out_hindrance(spec, facts, look)),
            }
        )
    return choices


def _to_dict(error: TidegateError | None) -> outputs.Error | None:
    return None if error is None else error.to_dict()


def _describe_reread(
    project: Project,
    spec: PipelineSpec,
    paths: PipelinePaths,
    facts: Facts,
    look: Look,
    again: Sequence[LedgerRow],
) -> list[str]:
    sentences = [
        f"the next run reads {describe_records(look)} again, with schema, suite and transform as they are then"
    ]
    if again:
        sentences.append(f"back to the intake: {count_of(len(again), 'file')}, what waits for a batch included")
    starts: Mapping[str, Start] = {}
    with contextlib.suppress(TidegateError):  # named as the hindrance
        starts = _starts(project, spec, paths, facts, look)
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


def _describe_leave_out(look: Look) -> list[str]:
    rows = look.left_out["rows"]
    if not look.increments:
        return []
    return [
        f"{describe_records(look)} stay taken: no run reads them again",
        f"{count_of(rows, 'row')} that they gave are left out; report and table log say which batches",
    ]


def describe_records(look: Look) -> str:
    """The records in between, counted."""
    return f"the {_count(look.increments)}"


def _count(increments: list[Between]) -> str:
    return f"{count_of(sum(one.read for one in increments), 'record')} of {count_of(len(increments), 'version')}"


def _starts(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, look: Look
) -> Mapping[str, Start]:
    return starts_of_sources(project, spec, paths, facts, back_to=look.version)


def find_leave_out_hindrance(spec: PipelineSpec, facts: Facts, look: Look) -> UsageError | None:
    """Why the records in between cannot be excluded; None when they can. What a query in update or complete mode has
    counted comes back with the next row of the same key; what an earlier rollback gave back, the next run reads."""
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
        return errors.ROLLBACK_COUNTED(
            where=f"pipeline {spec.name}", name=spec.name, mode=spec.output_mode, records=describe_records(look)
        )
    return None


def find_reread_hindrance(
    project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, look: Look
) -> TidegateError | None:
    """Why the records in between cannot be read again; None when they can."""
    if not look.increments:
        return None
    where = f"pipeline {spec.name}"
    if query_keeps_state(facts, spec):
        others = "" if spec.output_mode != "append" else "`--then leave-out`; or "
        return errors.ROLLBACK_STATE(where=where, name=spec.name, records=describe_records(look), others=others)
    found = find_disagreement(paths, facts, spec.name)
    if found is not None and found.code not in ALLOWED:
        return found
    if spec.file_streams and (unknown := why_files_are_unknown(paths, facts, errors.ROLLBACK())) is not None:
        return unknown
    try:
        gone = _list_gone(project, spec, paths, facts, look)
    except TidegateError as error:
        return error
    if gone:
        more = f" and {len(gone) - _NAMED_AT_MOST} more" if len(gone) > _NAMED_AT_MOST else ""
        return errors.ROLLBACK_LOST(
            where=where, lost="; ".join(gone[:_NAMED_AT_MOST]), more=more, records=describe_records(look)
        )
    return None


def _list_gone(project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, look: Look) -> list[str]:
    """What the sources no longer have of what is to be read again."""
    gone: list[str] = []
    if spec.file_streams:
        again = files_to_read_again(paths, look.settled)
        gone += find_differences(project, paths, spec.file_streams, again)
    sources = open_sources(project, paths, spec)
    for name, start in _starts(project, spec, paths, facts, look).items():
        gone += sources[name].find_gone(start)
    return gone
