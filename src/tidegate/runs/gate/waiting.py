"""``on_critical: continue``: a failed increment is set waiting, judged again, and decided on, each on its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

from tidegate.core.errors import UsageError
from tidegate.core.process.machine import now_text
from tidegate.quality.engine import read_column_types
from tidegate.quality.suite import load_suite
from tidegate.quality.verdict import Quarantined, WholeFiles, decide_verdict
from tidegate.runs.gate.increment import digest_rules, find_most_frequent, publish_increment
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.quarantine import carry_out_plan, plan_waiting
from tidegate.runs.reports.report import count_rows
from tidegate.runs.reports.verdicts import Decision, StoredVerdict
from tidegate.runs.reports.waiting import WAITED, WaitingIncrement, save_waiting
from tidegate.state.digest import check_whole
from tidegate.state.manifest import joined_rule
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.fit import check_rows_fit
from tidegate.table.publish.intent import COMPANION
from tidegate.table.publish.rework import RELEASE, REWORK
from tidegate.table.schema import check_schema_change, merge_schemas


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
    """The same rows judged by the current suite; what is kept of the increment has the new verdict."""
    from tidegate.quality.pandas_engine import judge_files

    suite, quality = load_suite(context.project, context.name), context.spec.quality
    rules, batches = digest_rules(suite, quality), waiting.manifests
    if waiting.verdict.rules == rules:
        return waiting
    files = [file for one in batches for file in one.files]
    check_whole(context.paths.state, files, context.name)
    types = read_column_types(batches[-1].schema_json)
    places = [(context.paths.state / file.path, file.partition) for file in files]
    results = [] if suite is None else judge_files(suite, places, types)
    whole = WholeFiles.of(file for one in batches for source in one.sources.values() for file in source.whole_files)
    causes = find_most_frequent(context.paths, batches)
    verdict = decide_verdict(suite, results, Quarantined.of(count_rows(batches)), quality, causes, whole)
    judged = replace(
        waiting.verdict,
        quality=verdict.quality,
        failed_critical=[failed.rule for failed in verdict.failed_critical],
        reasons=[f"{failed.rule}: {failed.reason}" for failed in verdict.failed_critical],
        at=now_text(),
        rules=rules,
    )
    context.lease.check()
    save_waiting(context.paths, replace(waiting, verdict=judged))
    return replace(waiting, verdict=judged)


def publish_waiting(context: RunContext, waiting: WaitingIncrement, decision: Decision | None) -> None:
    """End the waiting: its rows become one version of the table, or none where they are discarded; recovery completes
    it. Without a decision it was judged again, and passed.

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
    schema = table.schema_json if discard else _join_schemas(table.schema_json, [one.schema_json for one in manifests])
    check_rows_fit(schema, table.partition_columns, table)
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
        manifests,
        "table",
        app_id=waiting.app_id,
        run_id=waiting.run_id,
        schema_json=schema,
        partition_by=table.partition_columns,
        custom_metadata=extra,
    )
    if discard:
        intent = replace(intent, files_to_add=[])
    context.lease.check()
    save_waiting(paths, replace(waiting, begun=outcome))  # another engine may clean the commit away
    carry_out_plan(paths, intent, context.lease)


def _join_schemas(table: str, staged: list[str]) -> str:
    """The table's columns and those of the rows. A column that the table got meanwhile is null in rows from before."""
    rows = merge_schemas(staged)
    try:
        check_schema_change(rows, table)
    except UsageError:
        check_schema_change(table, rows)
        return rows
    return table
