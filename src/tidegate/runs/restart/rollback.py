"""``tidegate rollback``: the table goes back to the rows of an earlier version, in one new version.

It is recorded first, and then carried out by the next process, before anything else: the version is published,
and where the records in between are to be read again, the query is ended and a new one begins as a repair does it
(:mod:`tidegate.runs.restart.new_checkpoint`). The version says in the log how far the records count as taken, so that a
repair that comes between the two finds the same. The note stays until all is done.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import SourceLostError, UsageError
from tidegate.core.outputs import TableFigures
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.core.words import count_of
from tidegate.runs import errors
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.abandoned import prepare_files
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import load_report, new_report, save_report
from tidegate.runs.restart.disagreement import find_disagreement
from tidegate.runs.restart.new_checkpoint import read_again
from tidegate.runs.restart.versions import ALLOWED, Look, look_back
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.birth import as_read
from tidegate.table.log.state import TableState, list_data_files, read_table_state
from tidegate.table.log.taken import EXCLUDED, GENERATION, REREAD, ROLLED_BACK_TO, SETTLED, THEN
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.rework import Rework, plan_rework

KIND = "rollback"
Then = Literal["reread", "leave-out"]


@dataclass(frozen=True)
class Rollback:
    """A rollback that a person decided on: to ``version`` of a table as it was when it was decided (``table_id``,
    ``table_version``), under the query with the number ``generation``."""

    run_id: str
    version: int
    then: Then
    who: str
    at: str
    table_id: str
    table_version: int
    generation: int


def record_rollback(context: RunContext, look: Look, then: Then) -> bool:
    """Write it down: from here on it is carried out, whatever happens to this process. False, and nothing is written,
    when another program has changed the table since the look."""
    table = read_table_state(context.paths.table)
    if table is None or table.version != look.newest:
        return False
    context.lease.check()
    rollback = Rollback(
        run_id=context.report.run_id,
        version=look.version,
        then=then,
        who=name_person(),
        at=now_text(),
        table_id=table.table_id,
        table_version=table.version,
        generation=context.paths.newest_generation(),
    )
    storage.replace(context.paths.rollback, storage.dump_json(asdict(rollback)))
    return True


def load_rollback(paths: PipelinePaths) -> Rollback | None:
    """The rollback that was decided on and not carried out; None for none. Raises UnreadableStateError."""
    value = storage.read_json(paths.rollback)
    with storage.unreadable_is_named(paths.rollback):
        return None if value is None else Rollback(**value)


def describe_rollback(rollback: Rollback) -> str:
    """A rollback that is not carried out, in a sentence."""
    return (
        f"decided, and not done yet: {rollback.who} decided at {rollback.at} to roll the table back to version "
        f"{rollback.version} ({rollback.then}), run {rollback.run_id}; the next run does it first"
    )


def carry_out_rollback(context: RunContext, facts: Facts) -> bool:
    """Carry out the rollback that was decided on; whether there was one. Paths, spec and facts are others then.

    One that a stale process recorded after the table had advanced is dropped. So is one whose version
    was vacuumed meanwhile: SourceLostError says so.
    """
    rollback = load_rollback(context.paths)
    if rollback is None:
        return False
    work = Rework(context.name, KIND, rollback.run_id)
    table = read_table_state(context.paths.table, (work.app_id,))
    if table is None or work.app_id not in table.txns:
        check_table(facts, context.name)
        if not _is_in_force(rollback, table):
            forget_rollback(context)
            return True
        try:
            look_back(context.paths, facts, rollback.version)
        except (UsageError, SourceLostError):
            forget_rollback(context)
            raise
        publish_rollback(context, facts, rollback)
    if rollback.then == REREAD and context.paths.newest_generation() == rollback.generation:
        _begin_again(context, rollback)
    if rollback.run_id != context.report.run_id:
        context.report.add_note(
            f"the table was rolled back to version {rollback.version} first (run {rollback.run_id})"
        )
    forget_rollback(context)
    return True


def publish_rollback(context: RunContext, facts: Facts, rollback: Rollback) -> None:
    """Make the version with the rows of the earlier one."""
    work = Rework(context.name, KIND, rollback.run_id)
    publish_plan(context, partial(_plan, context, facts, rollback, work))


def _is_in_force(rollback: Rollback, table: TableState | None) -> bool:
    """Whether the table is the one that it was decided on. Nothing is published between the two: the next process
    carries it out."""
    decided_on = (rollback.table_id, rollback.table_version)
    return table is not None and (table.table_id, table.version) == decided_on


def forget_rollback(context: RunContext) -> None:
    """It is carried out, or dropped."""
    context.lease.check()
    with contextlib.suppress(FileNotFoundError):
        storage.take_away(context.paths.rollback, storage.read(context.paths.rollback))


def _plan(context: RunContext, facts: Facts, rollback: Rollback, work: Rework) -> PublishIntent:
    paths = context.paths
    table = read_table_state(paths.table)
    assert table is not None
    look = look_back(paths, facts, rollback.version)
    metadata = {
        ROLLED_BACK_TO: str(rollback.version),
        THEN: rollback.then,
        GENERATION: str(rollback.generation),
        "tidegate.decision": json.dumps({"decision": KIND, "who": rollback.who, "at": rollback.at}),
    }
    if rollback.then == REREAD:
        metadata[SETTLED] = json.dumps(look.settled)
    else:
        metadata[EXCLUDED] = json.dumps(look.left_out)
    token = secrets.token_hex(6)
    return plan_rework(
        work,
        target="table",
        table=table,
        table_files=list_data_files(paths.table),
        token=token,
        new=prepare_files(paths, work, paths.table, look.restore.back, token),
        remove=look.restore.leave,
        outcome="rolled_back",  # so that no sink is fed: what comes back was fed when it was published
        metadata=metadata,
        report=_make_report(paths, rollback, look),
    )


def _make_report(paths: PipelinePaths, rollback: Rollback, look: Look) -> dict[str, object]:
    """The report of the rollback as it is once the version is published."""
    report = load_report(paths, rollback.run_id) or new_report(paths.name, rollback.run_id)
    report.mode, report.outcome, report.error, report.ended_at = KIND, "published", None, None
    back, leave = look.restore.back, look.restore.leave
    figures: TableFigures = {
        "path": str(paths.table),
        "files_added": len(back),
        "files_removed": len(leave),
        "rows_added": sum(file.rows for file in back),
        "rows_removed": sum(file.rows for file in leave),
        "rolled_back_to": rollback.version,
    }
    records = f"{count_of(look.left_out['records'], 'record')} of {count_of(len(look.increments), 'version')}"
    if not look.increments:
        report.add_note(f"back to version {rollback.version}; no record was read in between")
    elif rollback.then == REREAD:
        report.add_note(f"back to version {rollback.version}; the next run reads {records} again")
    else:
        report.add_note(f"back to version {rollback.version}; {records} stay taken and are left out")
    if rollback.then != REREAD:
        figures["left_out"] = look.left_out
    report.table = figures
    return {**report.to_json()}


def _begin_again(context: RunContext, rollback: Rollback) -> None:
    """End the query and begin the next one, which reads what came after the version."""
    facts = gather_facts(context.paths, context.spec)
    living = facts.query_id or (facts.birth.query_id if facts.birth is not None else None)
    if living in facts.retired:  # begun by a process that was stopped: checkpoint and staging no longer have to fit
        check_table(facts, context.name)
    else:
        found = find_disagreement(context.paths, facts, context.name)
        if found is not None and found.code not in ALLOWED:
            raise found
    context.paths, lost = read_again(context.project, context.spec, context.paths, context.lease, errors.ROLLBACK())
    context.spec = as_read(load_pipeline(context.project, context.name), context.paths)
    report = load_report(context.paths, rollback.run_id)
    if lost and report is not None:
        report.add_note(f"gone, and not read again: {', '.join(lost)}")
        context.lease.check()
        save_report(context.paths, report)
