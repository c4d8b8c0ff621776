"""The gate: Great Expectations judges the staged increment, and what passed goes into the table.

In update and complete mode what remains of the increment is judged, and replaces rows in the table. Modules
that load pandas or pyarrow are imported in functions: decisions, repairs and most publishes need neither.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.extras import check_extra
from tidegate.core.outputs import RowKey
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.limit import print_if_slow
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of, list_first, shorten
from tidegate.quality.engine import Question, RuleResult, StagedInput, read_column_types, read_driver_results
from tidegate.quality.suite import SuiteSpec, digest_suite, load_suite
from tidegate.quality.verdict import Quarantined, WholeFiles, decide_verdict
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.side_jobs import finish_work
from tidegate.runs.reports.report import count_rows
from tidegate.runs.reports.verdicts import (
    Decision,
    StoredVerdict,
    held_error,
    list_verdicts,
    load_decision,
    load_verdict,
    not_audited,
    save_verdict,
)
from tidegate.state.files import check_whole
from tidegate.state.manifest import (
    BatchManifest,
    StagedFile,
    batch_keys,
    end_positions,
    event_times,
    files_within,
    joined_rule,
)
from tidegate.state.topics import positions_to_json
from tidegate.table.log.state import DataFile, digest_files, list_data_files, read_table_state
from tidegate.table.publish.fit import check_features, check_rows_fit
from tidegate.table.publish.intent import PublishIntent, write_intent
from tidegate.table.publish.plan import parse_file_name, plan_publish, plan_replacement
from tidegate.table.publish.publish import CommitResult
from tidegate.table.schema import merge_schemas
from tidegate.table.upsert.columns import UpsertColumns
from tidegate.table.upsert.folded import Folded, drop_older, find_folded, fold_unpublished, load_folded

if TYPE_CHECKING:
    from tidegate.quality.queries import Relation

_PLANS_AT_MOST = 3
_DETAIL_AT_MOST = 400
_CAUSES_AT_MOST = 3

Within = Mapping[str, Sequence[str]]
"""{partition column: values}: the rows of these partitions."""


@dataclass(frozen=True)
class Rebuilt:
    """How a side job's rows go into the table: beside which of its files, and which days are judged one by one."""

    others: Sequence[DataFile] = ()
    """The table's files that remain; without any, the table gets the columns of the rows."""
    days: Mapping[str, Within] = field(default_factory=dict)
    """{label: partitions}, each of which is an increment of its own for the suite; by default everything is one."""
    losses: Mapping[str, Quarantined] = field(default_factory=dict)
    """{label: the records and rows in quarantine}, of each day that is one for the limits as well."""


def audit_increment(context: RunContext, facts: Facts) -> StoredVerdict:
    """The verdict on the unpublished batches; an earlier one of this run is kept if the rules are still the same."""
    unpublished = facts.unpublished
    context.lease.check()
    folded = fold_unpublished(context.paths, unpublished, context.spec)
    folds = [each.token for each in folded or ()]
    rules = digest_rules(context, load_suite(context.project, context.name))
    known = load_verdict(context.paths, context.report.run_id)
    if known is not None and known.covers(unpublished) and (known.folds, known.rules) == (folds, rules):
        return known
    causes = find_most_frequent(context.paths, unpublished)
    verdict = judge_staged(context, unpublished, folded=folded, most_frequent=causes)
    context.lease.check()
    save_verdict(context.paths, verdict)
    return verdict


def judge_staged(
    context: RunContext,
    staged: Sequence[BatchManifest],
    *,
    folded: Sequence[Folded] | None = None,
    most_frequent: str = "",
    counts_quarantined: bool = True,
    rebuilt: Rebuilt | None = None,
) -> StoredVerdict:
    """The verdict on staged batches by the current suite and limits; it is not stored.

    Args:
        folded: The remaining rows, where rows replace others.
        most_frequent: Why most of the records are in quarantine (:func:`find_most_frequent`).
        counts_quarantined: Off where all of the records were in quarantine before: they do not count then.
        rebuilt: Of a backfill or refresh.
    """
    suite, limits = load_suite(context.project, context.name), context.spec.quality
    rules = digest_rules(context, suite)
    results: list[RuleResult] = []
    failing: Mapping[str, str] = {}
    if suite is not None and staged:
        others = _find_others(context, staged, folded, rebuilt) if suite.reads_table else None
        if rebuilt is not None and rebuilt.days:
            of_days = {
                label: _judge_day(context, suite, staged, within, others) for label, within in rebuilt.days.items()
            }
            results, failing = _join_results(list(of_days.values())), _name_failing(of_days)
            on_all = [rule for rule in suite.queries if not rule.reads_batch]
        else:
            results = _judge(context, suite, staged, folded)
            on_all = [*suite.queries]
        if on_all:
            asked = replace(suite, rules=tuple(on_all))
            results += _judge_queries(context, asked, _list_visible(staged, folded), staged[-1].schema_json, others)
        by_rule = {result.rule: result for result in results}
        results = [by_rule[rule.rule] for rule in suite.rules]
        if counts_quarantined:
            results = _add_quarantined(results, suite, staged)
    whole = WholeFiles.of(file for one in staged for source in one.sources.values() for file in source.whole_files)
    quarantined = Quarantined.of(count_rows(staged if counts_quarantined else []), whole)
    by_day = None if rebuilt is None else rebuilt.losses
    verdict = decide_verdict(suite, results, quarantined, limits, most_frequent, by_day)
    return StoredVerdict(
        run_id=context.report.run_id,
        batches=batch_keys(staged),
        quality=verdict.quality,
        failed_critical=[*verdict.failed_critical],
        reasons=[f"{rule}: {reason}{failing.get(rule, '')}" for rule, reason in verdict.failed_critical.items()],
        at=now_text(),
        folds=[each.token for each in folded or ()],
        rules=rules,
    )


def check_rules(context: RunContext, verdict: StoredVerdict) -> None:
    """Raise TryAgainError NOT_AUDITED when the suite or its limits were changed after the verdict was given, or the
    table that its queries read."""
    suite = load_suite(context.project, context.name)
    if verdict.rules != digest_rules(context, suite):
        changed = "its suite or max_quarantine_share was changed since"
        if suite is not None and suite.reads_table:
            changed = "its suite, max_quarantine_share or the table, which custom SQL reads, was changed since"
        raise not_audited(context.name, verdict.run_id, changed)


def digest_rules(context: RunContext, suite: SuiteSpec | None) -> str:
    """Key of one way of judging an increment; where queries read the table, it holds for the table's present files."""
    parts = [digest_suite(suite), str(context.spec.quality.max_quarantine_share)]
    if suite is not None and suite.reads_table:
        parts.append(digest_files(list_data_files(context.paths.table)))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _judge_day(
    context: RunContext, suite: SuiteSpec, staged: Sequence[BatchManifest], within: Within, others: Relation | None
) -> list[RuleResult]:
    """The results on one day: of all rules but the custom SQL that reads the table alone, and so no day."""
    part = [replace(one, files=files_within(one.files, within)) for one in staged]
    results = _judge(context, suite, part, None, within)
    if queries := [rule for rule in suite.queries if rule.reads_batch]:
        files = _list_visible(part, None)
        if others is not None:  # the other days are in the table as well, when these rows are
            of_day = {file.path for file in files}
            rest = [file for file in _list_visible(staged, None) if file.path not in of_day]
            others = replace(others, files=[*others.files, *_locate(context, rest)])
        asked = replace(suite, rules=tuple(queries))
        results += _judge_queries(context, asked, files, staged[-1].schema_json, others)
    return results


def _join_results(of_days: Sequence[Sequence[RuleResult]]) -> list[RuleResult]:
    """One result per rule: it holds where it holds for each day, and its figure is that of the first other day."""
    joined = []
    for results in zip(*of_days, strict=True):
        shown = next((one for one in results if not one.success), results[-1])
        counts = [one.unexpected_count for one in results if one.unexpected_count is not None]
        joined.append(replace(shown, unexpected_count=sum(counts) if counts else None))
    return joined


def _name_failing(of_days: Mapping[str, Sequence[RuleResult]]) -> dict[str, str]:
    """{rule: the days for which it does not hold}, in brackets."""
    found: dict[str, list[str]] = {}
    for label, results in of_days.items():
        for one in results:
            if not one.success:
                found.setdefault(one.rule, []).append(label)
    return {rule: f" ({list_first(labels)})" for rule, labels in found.items()}


def _judge(
    context: RunContext,
    suite: SuiteSpec,
    unpublished: Sequence[BatchManifest],
    folded: Sequence[Folded] | None,
    within: Within | None = None,
) -> list[RuleResult]:
    """The results of Great Expectations: one per rule that is no query, in the order of the suite."""
    asked = Question(batch_keys(unpublished), [each.token for each in folded or ()], digest_suite(suite), within)
    results = read_driver_results(context.paths, context.report.run_id, asked)
    if results is not None:
        # The increment is large: the ingest driver's Spark has compared and judged it before its JVM ended.
        return results
    visible = _list_visible(unpublished, folded)
    check_whole(context.paths.state, visible, context.name)
    if not suite.without_queries.rules:
        return []
    from tidegate.quality.pandas_engine import judge_files

    types = read_column_types(unpublished[-1].schema_json)
    with print_if_slow(f"audit: {count_of(len(suite.rules), 'rule')} on {_count(visible)}, without Spark"):
        return judge_files(suite.without_queries, _locate(context, visible), types)


def _count(files: Sequence[StagedFile]) -> str:
    return f"{count_of(sum(file.rows for file in files), 'row')} in {count_of(len(files), 'file')}"


def _list_visible(unpublished: Sequence[BatchManifest], folded: Sequence[Folded] | None) -> list[StagedFile]:
    return [file for part in (unpublished if folded is None else folded) for file in part.files]


def _find_others(
    context: RunContext,
    staged: Sequence[BatchManifest],
    folded: Sequence[Folded] | None,
    rebuilt: Rebuilt | None,
) -> Relation:
    """The rows of the table beside these, for custom SQL, which reads the table as the publish will leave it."""
    check_extra("duckdb")
    from tidegate.quality.queries import Relation

    replaced_by = UpsertColumns()
    table = read_table_state(context.paths.table)
    schema_json = staged[-1].schema_json
    if rebuilt is not None:
        files = rebuilt.others  # the rows have all columns of the table, or replace its columns
    else:
        schema_json = schema_json if table is None else table.schema_json
        replaced_by = folded[0].columns if folded else replaced_by
        files = [] if context.spec.output_mode == "complete" else list_data_files(context.paths.table)
    return Relation(schema_json, [(context.paths.table / file.path, file.partition) for file in files], replaced_by)


def _judge_queries(
    context: RunContext,
    suite: SuiteSpec,
    files: Sequence[StagedFile],
    schema_json: str,
    others: Relation | None,
) -> list[RuleResult]:
    """The results of a suite of custom SQL on staged files, and on the table that has ``others`` as well."""
    check_extra("duckdb")
    from tidegate.quality.queries import Relation, judge_queries

    spill = context.paths.spill(context.report.run_id)
    storage.remove_tree(spill)  # of an audit that was killed
    storage.make_folder(spill.parent)
    return judge_queries(suite, Relation(schema_json, _locate(context, files)), others, spill)


def _locate(context: RunContext, files: Sequence[StagedFile]) -> list[StagedInput]:
    return [(context.paths.state / file.path, file.partition) for file in files]


def _add_quarantined(
    results: Sequence[RuleResult], suite: SuiteSpec, unpublished: Sequence[BatchManifest]
) -> list[RuleResult]:
    """The results, with the rows that the stream quarantined by each rule, which were not there to be judged."""
    rules = {rule.rule for rule in suite.quarantine_rules}
    return [
        replace(one, quarantined=sum(batch.rejected_by_rule.get(one.rule, 0) for batch in unpublished))
        if one.rule in rules
        else one
        for one in results
    ]


def find_most_frequent(paths: PipelinePaths, unpublished: Sequence[BatchManifest]) -> str:
    """What most of the records that these batches quarantined are malformed, late or rejected for: up to three causes,
    each with its count; "" when there are none. Their files are staged, or in the quarantine table when an earlier
    version of tidegate audited them."""
    from tidegate.table.quarantine.read import count_details

    staged = [paths.state / file.path for one in unpublished for file in one.quarantine_files]
    if not staged:
        return ""
    files = [path for path in staged if storage.exists(path)]
    if len(files) < len(staged):
        batches = {(manifest.query_id[:8], manifest.batch_id) for manifest in unpublished if manifest.quarantine_files}
        there = [paths.quarantine / file.path for file in list_data_files(paths.quarantine)]
        files += [path for path in there if parse_file_name(path.name) in batches and storage.exists(path)]
    counts = count_details(files)
    if not counts:
        return ""
    causes = []
    for (reason, detail), count in counts[:_CAUSES_AT_MOST]:
        why = shorten(detail, _DETAIL_AT_MOST) or reason
        causes.append(f"{f'late: {why}' if reason == 'late' and detail else why} ({count:,})")
    if more := len(counts) - len(causes):
        causes.append(f"and {more:,} more cause{'' if more == 1 else 's'}")
    return "; ".join(causes)


def publish_increment(
    context: RunContext,
    facts: Facts,
    verdict: StoredVerdict,
    decision: Decision | None = None,
    *,
    waits: bool = False,
) -> None:
    """Commit the unpublished batches that the verdict is on, one version per query (two only after an accepted loss).

    A discarded increment is a version without files: the log moves on past it, and says so; so is one that ``waits``
    for a decision while later ones continue. Raises HeldError or TryAgainError DECISION_PENDING when another verdict on
    one of these batches failed.
    """
    increment = verdict.choose(facts.unpublished)
    if not verdict.comes_next(facts.unpublished):
        raise not_audited(context.name, verdict.run_id)
    _refuse_others(context, facts, verdict, decision, waits=waits)
    discard = waits or (decision is not None and decision.decision == "discard")
    outcome = "waiting" if waits else "discarded" if discard else "published"
    for query_id in dict.fromkeys(manifest.query_id for manifest in increment):
        batches = [manifest for manifest in increment if manifest.query_id == query_id]
        folded = None if discard else load_judged(context, batches, verdict, decided=decision is not None)
        published = 0 if discard else sum(manifest.staged for manifest in batches)
        rows = count_rows(increment) | {"published": published, "superseded": 0}
        extra = {"tidegate.outcome": outcome, "tidegate.rows": json.dumps(rows), **_describe_batches(batches, verdict)}
        if context.spec.watermarks:
            extra["tidegate.event_times"] = json.dumps(event_times(batches))
        if decision is not None:
            extra["tidegate.decision"] = json.dumps(decision.to_report(), ensure_ascii=False)
        before = facts.settled_up_to(query_id)
        if folded is not None:
            plan = partial(
                plan_merge,
                context,
                batches,
                folded,
                run_id=verdict.run_id,
                app_version_before=before,
                rows=rows,
                custom_metadata=extra,
            )
        else:
            plan = partial(
                plan_publish,
                batches,
                run_id=verdict.run_id,
                partition_by=list(context.spec.table.partition_by),
                app_version_before=before,
                discard=discard,
                custom_metadata=extra,
            )
        with print_if_slow(
            f"publish in progress: {_count(_list_visible(batches, None if folded is None else [folded]))}"
        ):
            publish_plan(context, plan)


def _describe_batches(batches: Sequence[BatchManifest], verdict: StoredVerdict) -> dict[str, str]:
    """The metadata of a commit on the batches of one query."""
    return {
        "tidegate.query_id": batches[0].query_id,
        "tidegate.batches": json.dumps([batches[0].batch_id, batches[-1].batch_id]),
        "tidegate.positions": json.dumps(positions_to_json(end_positions(batches))),
        "tidegate.verdict": str(verdict.quality.get("verdict")),
        "tidegate.partitioned": json.dumps(joined_rule(batches)),
    }


def _refuse_others(
    context: RunContext, facts: Facts, verdict: StoredVerdict, decision: Decision | None, *, waits: bool
) -> None:
    """What failed under another run waits for a person, or for what the person decided to be carried out.

    A stale run leaves a verdict next to its successor's, on the same batches or on fewer. What a
    person decides on one of them counts for its batches in every other one, and of two decisions the first; what is
    left of the other one waits for its own.
    """
    for other in list_verdicts(context.paths):
        shared = verdict.choose(other.choose(facts.unpublished))
        if other.run_id == verdict.run_id or other.passed or not shared:
            continue
        theirs = load_decision(context.paths, other)
        if decision is not None and (theirs is None or theirs.at >= decision.at):
            continue
        if theirs is None and waits:
            continue  # its other batches wait under that run
        if theirs is None:
            raise held_error(context.name, other, earlier=True)
        raise errors.DECISION_PENDING(
            where=f"run {other.run_id} of pipeline {context.name}",
            who=theirs.who,
            at=theirs.at,
            decision=theirs.decision,
            pipeline=context.name,
        )


def publish_plan(context: RunContext, make_plan: Callable[[], PublishIntent]) -> CommitResult:
    """Publish as planned; planned again when the table got other files in between. Raises DefectError
    PUBLISH_DOES_NOT_FIT when the log holds other figures than the plan."""
    for _ in range(_PLANS_AT_MOST):
        context.lease.check()
        intent = make_plan()
        if intent.report is not None:
            intent = replace(intent, writer=context.lease.number)
        if intent.target == "table":
            intent = replace(intent, keeps_names=context.spec.table.readers == "delta")
        context.lease.check()
        table_path = intent.table_path(context.paths)
        check_features(intent, table_path, read_table_state(table_path))  # before it is begun, and has to be undone
        in_force = write_intent(context.paths, intent)
        result = finish_work(context.paths, in_force, context.lease)
        if not result.outdated:
            break
    if result.overtaken or result.outdated or result.rows_added != intent.rows_added:
        raise errors.PUBLISH_DOES_NOT_FIT(
            where=str(in_force.table_path(context.paths)),
            target=intent.target,
            committed=result.rows_added,
            expected=intent.rows_added,
            pipeline=context.name,
        )
    return result


def load_judged(
    context: RunContext, batches: Sequence[BatchManifest], verdict: StoredVerdict, *, decided: bool = False
) -> Folded | None:
    """What remains of the batches of one query, as the verdict saw it; None when it was judged in append mode.

    ``decided``: a person decided on these rows, under whatever mode and columns they were folded. Raises TryAgainError
    NOT_AUDITED when these were changed since and nobody decided, or the files are gone.
    """
    mode = context.spec.output_mode
    if not verdict.folds and (decided or mode == "append"):
        return None
    if decided or mode == "append":
        folded = find_folded(context.paths, batches) if decided else None
    else:
        folded = load_folded(context.paths, batches, mode, context.spec.table)
    if folded is None or folded.token not in verdict.folds:
        raise not_audited(context.name, verdict.run_id)
    return folded


def plan_merge(
    context: RunContext,
    batches: Sequence[BatchManifest],
    folded: Folded,
    *,
    run_id: str,
    app_version_before: int,
    rows: Mapping[RowKey, int],
    custom_metadata: Mapping[str, str],
) -> PublishIntent:
    """The publish of ``folded`` into the table as it is now, without rows for which the table has newer ones; files
    that lose rows are copied without them first. ``rows`` are the figures of the increment, of which the commit gets
    the published and superseded ones from the merge.

    Raises UsageError SCHEMA_CHANGE or PARTITION_BY where the rows do not fit the table."""
    from tidegate.table.upsert.merge import replace_rows

    paths, last, token = context.paths, batches[-1], secrets.token_hex(6)
    partition_by = list(context.spec.table.partition_by)
    schema_json = merge_schemas([one.schema_json for one in batches], context.name)
    check_rows_fit(schema_json, partition_by, read_table_state(paths.table), context.name)
    check_whole(paths.state, folded.files, context.name)  # their keys say what leaves the table
    table_files = list_data_files(paths.table)
    folder = paths.merge_folder(last.query_id, last.batch_id, token)
    replacement, older = replace_rows(
        folded.files, folded.columns, paths.table, table_files, state=paths.state, folder=folder
    )
    folded = drop_older(paths, folded, batches, older)
    counts: dict[RowKey, int] = {"published": folded.rows, "superseded": sum(folded.superseded.values())}
    empty = plan_publish(
        batches,
        run_id=run_id,
        partition_by=partition_by,
        app_version_before=app_version_before,
        discard=True,
        custom_metadata={**custom_metadata, "tidegate.rows": json.dumps({**rows, **counts})},
    )
    return plan_replacement(empty, batches, folded, replacement, token=token, table_files=table_files)
