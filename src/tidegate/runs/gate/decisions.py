"""Held increments: deferred (``on_critical: continue``), judged again, and decided on.

A decision is recorded first, then carried out by the next process, before anything else. A deferred increment is
published on its own: its publish is the record.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

from tidegate.core import outputs
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.quality.suite import load_suite
from tidegate.runs import errors
from tidegate.runs.gate.increment import digest_rules, find_most_frequent, judge_staged, load_judged, publish_increment
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.after_commit import carry_out_plan, plan_waiting
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import FINAL_OUTCOMES, LIVE_MODES, RunReport, count_rows, load_report
from tidegate.runs.reports.verdicts import (
    WAITED,
    Decision,
    Ruling,
    StoredVerdict,
    WaitingIncrement,
    forget,
    list_decided,
    list_rereads,
    load_verdict,
    quote_word,
    save_decision,
    save_waiting,
)
from tidegate.state.files import check_whole
from tidegate.state.manifest import joined_rule
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.fit import check_rows_fit
from tidegate.table.publish.intent import COMPANION
from tidegate.table.publish.plan import RELEASE, REWORK
from tidegate.table.schema import extend_schema, extends, merge_schemas


def carry_out(context: RunContext, facts: Facts, *, for_repair: bool = False) -> bool:
    """Carry out the oldest open decision: publish or discard exactly its batches. Returns whether there was one; the
    facts have to be gathered again then.

    Raises DisagreementError when checkpoint, table and spec do not fit: nothing is published then. With ``for_repair``
    only discards are carried out, and only if the table is the known one; otherwise the repair would read and judge
    their records again. Released records are read again by the repair and need a new decision.
    """
    decided = [
        (verdict, ruling) for verdict, ruling in list_decided(context.paths) if verdict.choose(facts.unpublished)
    ]
    decided = [one for one in decided if one[1].decision == "discard" or not for_repair]
    # tidegate.runs.restart.recorded carries rereads out.
    decided = [one for one in decided if one[1].decision != "reread"]
    if not decided or any(one.at < min(ruling.at for _, ruling in decided) for one in list_rereads(context.paths)):
        return False  # of two decisions the first counts, and that is carried out by tidegate.runs.restart.recorded
    (check_table if for_repair else check_agreement)(facts, context.name)
    verdict, ruling = min(decided, key=lambda one: one[1].at)
    try:
        publish_increment(context, facts, verdict, ruling)
    except TryAgainError as error:
        if error.code != "NOT_AUDITED":
            raise
        # What was decided on is no longer there as it was: the increment is judged, and decided on, again.
        context.lease.check()
        forget(context.paths, ruling)
    return True


def find_held(paths: PipelinePaths, facts: Facts, name: str, run_id: str) -> StoredVerdict:
    """The verdict on a run's increment that waits for a decision. Raises UsageError NOT_HELD or DECIDED_ALREADY."""
    verdict = load_verdict(paths, run_id)
    if verdict is not None and not verdict.passed and verdict.comes_next(facts.unpublished):
        return verdict
    report = load_report(paths, run_id)
    if report is not None and report.outcome in FINAL_OUTCOMES and report.decision and report.published_by is None:
        raise decided_already(name, run_id, report.mode, report.decision)
    raise not_held(name, run_id, report)


def check_decided(context: RunContext, ruling: Ruling) -> None:
    """Whether a run that is over ended as ``ruling`` asks for. Raises UsageError NOT_HELD or DECIDED_ALREADY."""
    report, name = context.report, context.name
    before = report.decision
    if before is None or report.published_by is not None:
        raise not_held(name, report.run_id, report)
    if before["decision"] != ruling:
        raise decided_already(name, report.run_id, report.mode, before)


def decided_already(name: str, run_id: str, mode: str, before: outputs.Ruling) -> UsageError:
    """The error of a decision on what was decided otherwise before; ``mode`` is that of the run."""
    where = f"run {run_id} of pipeline {name}"
    if before["decision"] == "reread":
        return errors.REREAD_ALREADY(where=where, who=before["who"], at=before["at"])
    fix = errors.READ_AGAIN.format(name=name)
    if mode not in LIVE_MODES:
        fix = f"start a new {mode} under another run id"
        if before["decision"] == "release":
            fix = (
                f"`tidegate rollback {name} --to-version N` gives the table the rows of the version before it "
                f"(`tidegate status {name}` shows the versions); or {fix}"
            )
    who, decision, at = before["who"], before["decision"], before["at"]
    return errors.DECIDED_ALREADY(where=where, who=who, decision=decision, at=at, fix=fix)


def not_held(name: str, run_id: str, report: RunReport | None) -> UsageError:
    """The error of a decision on a run whose increment does not wait for one: how the run ended, and what leads to
    having the records of one that is over read again."""
    where, fix = f"run {run_id} of pipeline {name}", f"tidegate status {name} shows what is held"
    if report is None or report.outcome in (None, "held"):
        why = "nothing is held under this run id"
        if report is not None and report.mode not in LIVE_MODES:
            quoted = quote_word(run_id)
            why = f"it is a {report.mode}, which can be released or discarded, not read again"
            fix = (
                f"correct data or suite and start it again with --run-id {quoted}; or `tidegate release {name} "
                f"{quoted}` or `tidegate discard {name} {quoted}`, each with a --reason"
            )
        return errors.NOT_HELD(where=where, name=name, run_id=run_id, why=why, fix=fix)
    rows, outcome = report.rows, report.outcome.replace("_", " ")
    quarantined = rows["malformed"] + rows["late"] + rows["rejected"]
    why = f"it is {outcome}: {count_of(rows['read'], 'record')} read, {count_of(rows['published'], 'row')} published, "
    why += f"{quarantined:,} in quarantine"
    if report.outcome in ("published", "discarded"):
        fix = errors.READ_AGAIN.format(name=name)
    return errors.NOT_HELD(where=where, name=name, run_id=run_id, why=why, fix=fix)


def record(context: RunContext, verdict: StoredVerdict, decision: Decision) -> None:
    """Write the decision on a verdict down: from here on it is carried out, whatever happens to this process.

    Raises DisagreementError, or TryAgainError NOT_AUDITED, when it could not be.
    """
    assert context.facts is not None
    check_agreement(context.facts, context.name)
    if decision.decision == "release":
        for query_id in dict.fromkeys(query_id for query_id, _ in verdict.batches):
            batches = [one for one in verdict.choose(context.facts.unpublished) if one.query_id == query_id]
            if batches:
                load_judged(context, batches, verdict, decided=True)
    context.lease.check()
    save_decision(context.paths, decision)


def may_wait(context: RunContext, facts: Facts, verdict: StoredVerdict) -> bool:
    """Whether later runs continue past an increment that this verdict holds."""
    return (
        context.spec.quality.on_critical == "continue" and not verdict.folds and verdict.comes_next(facts.unpublished)
    )


def set_waiting(context: RunContext, facts: Facts, verdict: StoredVerdict) -> None:
    """Move the table's log on past a failed increment; recovery then writes down what a decision needs.

    Raises TryAgainError DECISION_PENDING when somebody has decided on one of its batches.
    """
    check_agreement(facts, context.name)
    publish_increment(context, facts, verdict, waits=True)


def audit_waiting(context: RunContext, waiting: WaitingIncrement) -> WaitingIncrement:
    """Judge the same rows by the current suite; what is kept of the increment gets the new verdict."""
    suite, batches = load_suite(context.project, context.name), waiting.manifests
    if waiting.verdict.rules == digest_rules(context, suite):
        return waiting
    check_whole(context.paths.state, [file for one in batches for file in one.files], context.name)
    verdict = judge_staged(context, batches, most_frequent=find_most_frequent(context.paths, batches))
    judged = replace(waiting, verdict=replace(verdict, batches=waiting.verdict.batches, folds=waiting.verdict.folds))
    context.lease.check()
    save_waiting(context.paths, judged)
    return judged


def publish_waiting(context: RunContext, waiting: WaitingIncrement, decision: Decision | None) -> None:
    """End the waiting: its rows become one version of the table, or none where they are discarded; recovery completes
    it. Without a decision it was judged again, and passed. The publish is the record of the decision: once it is
    planned, it is carried out, whatever happens to this process.

    Nothing is written before everything was found to fit: raises DisagreementError when checkpoint, table and spec do
    not agree or a staged file is damaged, UsageError SCHEMA_CHANGE when the table's columns are others by now.
    """
    assert context.facts is not None
    check_agreement(context.facts, context.name)
    paths, manifests = context.paths, waiting.manifests
    table = read_table_state(paths.table)
    assert table is not None  # the log has moved on past it
    discard = decision is not None and decision.decision == "discard"
    files = [file for one in manifests for file in one.quarantine_files]
    files += [] if discard else [file for one in manifests for file in one.files]
    check_whole(paths.state, files, context.name)
    staged = [one.schema_json for one in manifests]
    schema = table.schema_json if discard else _join_schemas(table.schema_json, staged, context.name)
    check_rows_fit(schema, table.partition_columns, table, context.name)
    rows = count_rows(manifests)
    outcome: Literal["discarded", "published"] = "discarded" if discard else "published"
    extra = {
        REWORK: RELEASE,
        "tidegate.outcome": outcome,
        "tidegate.rows": json.dumps(rows | {"published": 0 if discard else rows["staged"]}),
        "tidegate.partitioned": json.dumps(joined_rule(manifests)),
        WAITED: json.dumps([list(one) for one in waiting.spans]),
        "tidegate.verdict": str(waiting.verdict.quality.get("verdict")),
    }
    if any(one.quarantine_files for one in manifests):
        extra[COMPANION] = json.dumps([waiting.app_id, 0])  # once the table has this
    if decision is not None:
        extra["tidegate.decision"] = json.dumps(decision.to_report(), ensure_ascii=False)
    intent = plan_waiting(
        waiting,
        "table",
        schema_json=schema,
        partition_by=table.partition_columns,
        custom_metadata=extra,
    )
    if discard:
        intent = replace(intent, files_to_add=[])
    context.lease.check()
    save_waiting(paths, replace(waiting, begun=outcome))  # another engine may clean the commit away
    carry_out_plan(paths, intent, context.lease)


def _join_schemas(table: str, staged: list[str], name: str) -> str:
    """The table's columns and those of the rows. What the table got meanwhile is null in rows from before."""
    rows = merge_schemas(staged, name)
    return table if extends(rows, table) else extend_schema(table, rows, name)
