"""Rollbacks and rereads: recorded first, then carried out by the next process, before anything else.

A rollback makes one new version with the rows of an earlier one. The version says in the log how far the records count
as taken, so that a repair that comes between the two steps finds the same. A reread reads a held increment again, with
the schema, suite or transform as they are now. Where records are read again, the query is ended and a new one begins
as a repair does it (:mod:`tidegate.runs.restart.repair_steps`). The note or decision stays until all is done, so a
process that is killed anywhere is followed by one that resumes it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import SourceLostError, TidegateError, UsageError
from tidegate.core.outputs import Reread, RereadSource, RunReport, TableFigures
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.core.words import count_of, list_first
from tidegate.runs import errors
from tidegate.runs.gate.decisions import carry_out, find_held
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.facts import Facts, Situation, query_keeps_state
from tidegate.runs.preflight.gather import gather_facts, look_at_pipeline
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.side_jobs import prepare_files
from tidegate.runs.reports.report import keep_named, load_report, new_report, save_report
from tidegate.runs.reports.verdicts import (
    Answer,
    Decision,
    StoredVerdict,
    forget,
    list_rereads,
    load_decision,
    load_verdict,
    load_waiting,
    quote_word,
    save_decision,
)
from tidegate.runs.restart.disagreement import READ_TWICE, SETTLED_BY_READING_AGAIN, find_remaining, state_needed
from tidegate.runs.restart.repair_plan import list_files_to_read_again, starts_of_sources
from tidegate.runs.restart.repair_steps import read_again
from tidegate.runs.restart.versions import Look, look_back
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.ledger import shown_path
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.transform import check_transform
from tidegate.state.birth import as_read
from tidegate.state.topics import join_ranges, ranges_to_json
from tidegate.table.log.state import (
    EXCLUDED,
    GENERATION,
    REREAD,
    ROLLED_BACK_TO,
    SETTLED,
    THEN,
    list_data_files,
    read_table_state,
)
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.plan import Changes, Rework, plan_rework
from tidegate.table.schema import extends

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


def carry_out_recorded(context: RunContext, facts: Facts) -> bool:
    """Carry out one thing that people decided, a rollback first; whether there was any."""
    return _carry_out_rollback(context, facts) or carry_out(context, facts) or _carry_out_rereads(context, facts)


def _carry_out_rollback(context: RunContext, facts: Facts) -> bool:
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
        # Nothing is published between the decision and this: another table means that a stale process recorded it.
        decided_on = (rollback.table_id, rollback.table_version)
        if table is None or (table.table_id, table.version) != decided_on:
            forget_rollback(context)
            return True
        try:
            look_back(context.paths, facts, rollback.version)
        except (UsageError, SourceLostError):
            forget_rollback(context)
            raise
        publish_rollback(context, facts, rollback)
    if rollback.then == REREAD and context.paths.newest_generation() == rollback.generation:
        _read_again_since(context, rollback)
    if rollback.run_id != context.report.run_id:
        context.report.add_note(
            f"the table was rolled back to version {rollback.version} first (run {rollback.run_id})"
        )
    forget_rollback(context)
    return True


def publish_rollback(context: RunContext, facts: Facts, rollback: Rollback) -> None:
    """Make the version with the rows of the earlier one."""
    work = Rework(context.name, KIND, rollback.run_id)
    publish_plan(context, partial(_plan_rollback, context, facts, rollback, work))


def forget_rollback(context: RunContext) -> None:
    """It is carried out, or dropped."""
    context.lease.check()
    with contextlib.suppress(FileNotFoundError):
        storage.take_away(context.paths.rollback, storage.read(context.paths.rollback))


def _plan_rollback(context: RunContext, facts: Facts, rollback: Rollback, work: Rework) -> PublishIntent:
    paths = context.paths
    table = read_table_state(paths.table, (work.app_id,))
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
    schema_json = look.restore.schema_json
    has_other_columns = not extends(schema_json, table.schema_json)
    changes = Changes(
        token,
        new=prepare_files(paths, work, paths.table, look.restore.back, token),
        remove=look.restore.leave,
        table_files=list_data_files(paths.table),
        outcome="rolled_back",  # so that no sink is fed: what comes back was fed when it was published
        metadata=metadata,
        schema_json=schema_json if has_other_columns else None,
        replaces_schema=has_other_columns,
    )
    return plan_rework(work, table, changes, report=_make_report(paths, rollback, look))


def _make_report(paths: PipelinePaths, rollback: Rollback, look: Look) -> RunReport:
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
        report.add_note(f"back to version {rollback.version}; {records} count as read and are excluded")
    if rollback.then != REREAD:
        figures["left_out"] = look.left_out
    report.table = figures
    return report.to_json()


def _check_before_reading(context: RunContext, facts: Facts, *, is_ended: bool) -> None:
    """Raise what reading again does not settle. Where a process that was stopped has ended the query (``is_ended``),
    checkpoint and staging no longer have to fit."""
    if is_ended:
        check_table(facts, context.name)
    else:
        _check_agreement(context.paths, facts, context.name)


def _begin_next_query(context: RunContext, why: Literal["ROLLBACK", "REREAD"]) -> list[str]:
    """End the query and begin the next one, of which the context is then; the files that are gone."""
    context.paths, lost = read_again(context, why)
    context.spec = as_read(load_pipeline(context.project, context.name), context.paths)
    return lost


def _read_again_since(context: RunContext, rollback: Rollback) -> None:
    """End the query and begin the next one, which reads what came after the version."""
    facts = gather_facts(context.paths, context.spec)
    _check_before_reading(context, facts, is_ended=facts.living_query in facts.retired)
    lost = _begin_next_query(context, "ROLLBACK")
    report = load_report(context.paths, rollback.run_id)
    if lost and report is not None:
        report.add_note(f"gone, and not read again: {', '.join(lost)}")
        context.lease.check()
        save_report(context.paths, report)


def record_reread(context: RunContext, verdict: StoredVerdict, reason: str, who: str | None = None) -> None:
    """Write the decision down. Nothing is decided when what would be read again is not all there. ``who`` is by default
    the person at this terminal.

    Raises UsageError STATE_NEEDED, SourceLostError REREAD_LOST, DisagreementError, TryAgainError BROKER_AWAY.
    """
    check_transform(context.project, context.spec)
    _check_possible(context.situation, verdict.run_id)
    context.lease.check()
    save_decision(context.paths, Answer("reread", reason, who).decide_on(verdict))


def refuse_waiting(paths: PipelinePaths, name: str, run_id: str) -> None:
    """Raise UsageError WAITING_NOT_READ_AGAIN for an increment that later runs have passed."""
    if load_waiting(paths, run_id) is not None:
        raise errors.WAITING_NOT_READ_AGAIN(
            where=f"pipeline {name}", run_id=run_id, name=name, quoted=quote_word(run_id)
        )


def _carry_out_rereads(context: RunContext, facts: Facts) -> bool:
    """Carry out the first open decision to read again; whether there was one. Paths, spec and facts are others then."""
    open_ones = list_rereads(context.paths)
    if not open_ones:
        return False
    decision = min(open_ones, key=lambda one: one.at)
    lost: list[str] = []
    if _is_unpublished(facts, decision):
        lost = _begin_again(context, facts, decision)
    verdict = load_verdict(context.paths, decision.run_id)
    if verdict is None or decision.is_on(
        verdict
    ):  # else the run id was judged again since, and this is an old decision
        _note_in_report(context, decision, lost)
        if verdict is not None:
            context.lease.check()
            forget(context.paths, verdict)
    context.lease.check()
    forget(context.paths, decision)  # last: without it the report would not be updated
    return True


def _is_unpublished(facts: Facts, decision: Decision) -> bool:
    """True if the query that read the increment is still the pipeline's, and no process has begun the next one."""
    return facts.living_query in {query_id for query_id, _ in decision.batches}


def _is_begun(facts: Facts, decision: Decision) -> bool:
    """Return whether the query was ended already, so that checkpoint and staging no longer have to fit."""
    return any(query in facts.retired and facts.retired[query] < batch for query, batch in decision.batches)


def find_hindrance(facts: Facts, name: str, decisions: Sequence[Decision]) -> TidegateError | None:
    """What the next run ends with before it has carried out the first of these decisions; None for nothing."""
    decision = min(decisions, key=lambda one: one.at)
    if not _is_unpublished(facts, decision):
        return None
    try:
        (check_table if _is_begun(facts, decision) else check_agreement)(facts, name)
    except TidegateError as error:
        return None if error.code == SETTLED_BY_READING_AGAIN else error
    return None


def _begin_again(context: RunContext, facts: Facts, decision: Decision) -> list[str]:
    """End the query and begin the next one; the files that changed or went away since it was decided."""
    _check_before_reading(context, facts, is_ended=_is_begun(facts, decision))
    changed = _missing_files(context.project, context.spec, context.paths)
    lost = _begin_next_query(context, "REREAD")
    return changed + [f"{path} is gone" for path in lost if f"{path} is gone" not in changed]


def _note_in_report(context: RunContext, decision: Decision, lost: list[str]) -> None:
    """The run's report starts over: what it counted is counted again."""
    paths = context.paths
    before = load_report(paths, decision.run_id)
    if before is not None and before.outcome in ("published", "discarded"):
        return
    report = new_report(paths.name, decision.run_id)
    report.started_at = before.started_at if before is not None else report.started_at
    report.mode, report.decision = "reread", decision.to_report()
    if before is not None:  # what is named once, and not found again
        report.accepted_loss, report.notes = before.accepted_loss, list(before.notes)
        report.sources = {name: named for name, one in before.sources.items() if (named := keep_named(one))}
    if lost:
        report.notes.append(
            f"not all of the increment could be read again: {'; '.join(lost)}. What was read of these files before is "
            f"in neither table nor quarantine; the rows that were staged of it are kept below {paths.set_aside}"
        )
    context.lease.check()
    save_report(paths, report)


def look_at_reread(project: Project, name: str, run_id: str) -> Reread:
    """``tidegate reread --dry-run``: what would be read again, and what prevents it. Nothing is decided.

    Raises UsageError NOT_HELD or DECIDED_ALREADY, and DisagreementError for a torn table log.
    """
    situation = look_at_pipeline(project, name)
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    refuse_waiting(paths, name, run_id)
    verdict = find_held(paths, facts, name, run_id)
    hindrance: TidegateError | None = None
    try:
        check_transform(project, spec)
        _check_possible(situation, run_id)
    except TidegateError as error:
        hindrance = error
    decided = load_decision(paths, verdict)
    return {
        "pipeline": name,
        "run_id": run_id,
        "held": verdict.reasons or verdict.failed_critical,
        "rows": sum(manifest.read for manifest in facts.unpublished),
        "sources": _describe_sources(situation),
        "decided": None if decided is None else decided.to_report(),
        "hindrance": None if hindrance is None else hindrance.to_dict(),
    }


def _describe_sources(situation: Situation) -> dict[str, RereadSource]:
    """What was read of each source, and the files that a new query would read: those that wait for a batch too."""
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    files: dict[str, list[str]] = {}
    if spec.file_streams:
        for row in list_files_to_read_again(paths, spec):
            files.setdefault(row.source, []).append(shown_path(row.path))
    by_source: dict[str, RereadSource] = {}
    for name, source in spec.streams.items():
        taken = [manifest.sources[name] for manifest in facts.unpublished if name in manifest.sources]
        by_source[name] = {"rows": sum(one.rows for one in taken)}
        if source.takes_files:
            by_source[name]["files"] = files.get(name, [])
        else:
            by_source[name]["offsets"] = ranges_to_json(join_ranges(one.offsets or {} for one in taken))
    return by_source


def _check_agreement(paths: PipelinePaths, facts: Facts, name: str) -> None:
    found = find_remaining(paths, facts, name)
    if found is not None:
        raise found


def _check_possible(situation: Situation, run_id: str) -> None:
    spec, paths, facts = situation.spec, situation.paths, situation.facts
    name, quoted = spec.name, quote_word(run_id)
    _check_agreement(paths, facts, name)
    others = f'tidegate release {name} {quoted} --reason "...", or tidegate discard {name} {quoted} --reason "..."; '
    if facts.table is not None and query_keeps_state(facts, spec):
        raise state_needed(name, f"the records of run {run_id}", READ_TWICE, others=f"{others}or ")
    gone = [*_missing_files(situation.project, spec, paths), *_missing_offsets(situation)]
    if gone:
        raise errors.REREAD_LOST(
            where=f"run {run_id} of pipeline {name}; {sum(one.staged for one in facts.unpublished):,} rows of the "
            f"{sum(one.read for one in facts.unpublished):,} records that it read are staged, and stay",
            records=f"the records of run {run_id}",
            lost=list_first(gone, 3, "; "),
            others=f"{others}release publishes the staged rows",
        )


def _missing_files(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> list[str]:
    """Files of the increment that no longer hold what was read of them, each with how it differs."""
    return find_differences(project, paths, spec.file_streams, list_files_to_read_again(paths, spec))


def _missing_offsets(situation: Situation) -> list[str]:
    """Ranges that the brokers no longer have."""
    facts = situation.facts
    sources = open_sources(situation.project, situation.paths, situation.spec)
    if not any(source.keeps_start for source in sources.values()):
        return []
    if any(manifest.query_id != facts.living_query for manifest in facts.unpublished):
        return ["a loss was accepted in the middle of it"]
    starts = starts_of_sources(situation)
    return [gone for name, start in starts.items() for gone in sources[name].find_gone(start)]
