"""Rebuild an interval: a side job reads its records again, the same gate judges them, and one version swaps them in.

The side job has its own state folder (:meth:`tidegate.core.paths.PipelinePaths.beside`), so runs do not see what it
stages. Nothing counts before its one intent is written, which replaces the rows and adds newly quarantined records to
quarantine. A job that was stopped before that starts from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import HeldError
from tidegate.core.outputs import Columns, RuleResult, SourceReport, TableFigures
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Scope, join_choices
from tidegate.rework.backfill.examine import Finding
from tidegate.rework.backfill.excluded import Excluded, quarantined_before
from tidegate.rework.backfill.hand_over import (
    plan_hand_over,
    prepare_checkpoint,
    refuse_pending,
    within_pipeline,
)
from tidegate.rework.backfill.held import describe_runs, keep_held, name_attempt, remove_held_figures, report_held
from tidegate.rework.backfill.losses import count_by_day
from tidegate.rework.backfill.older import describe_older
from tidegate.rework.backfill.read_again import check_files, check_read, read_records
from tidegate.rework.backfill.side_job import Built, clear_attempts, plan_quarantine_half, plan_rows
from tidegate.rework.backfill.span import Interval, join_intervals
from tidegate.runs.gate.increment import Rebuilt, judge_staged, publish_plan
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport, check_balance, fill_from_manifests
from tidegate.runs.reports.verdicts import quote_word
from tidegate.sources.files.unreadable import is_in_quarantine, unreadable_record
from tidegate.state.birth import read_birth
from tidegate.state.manifest import BatchManifest, files_within
from tidegate.state.open_state import text_of_ms
from tidegate.table.log.state import digest_files, list_data_files
from tidegate.table.publish.intent import PublishIntent, WholeFiles
from tidegate.table.publish.origins import READ_AGAIN, Batch
from tidegate.table.publish.plan import KEEPS_OLDER, WITHIN, Changes, Rework
from tidegate.table.schema import column_texts, extends
from tidegate.table.upsert.folded import fold_unpublished

MADE_BY = "tidegate.made_by"
"""In a commit: the fingerprint of the transform and spec, which must be the same for all parts of one job."""
_COUNTS: tuple[Literal["rows", "malformed", "files", "bytes"], ...] = ("rows", "malformed", "files", "bytes")


@dataclass(frozen=True)
class Rebuild:
    """An interval whose rows are staged and judged."""

    scope: Scope
    finding: Finding
    built: Built

    @property
    def days(self) -> set[str]:
        """Its days, as reports name them."""
        return {day.label for day in self.finding.interval.days}

    @property
    def folder(self) -> Path:
        """The folder of the attempt that built it."""
        return self.built.side.state

    @property
    def passed(self) -> bool:
        """Whether the gate lets it pass."""
        return self.built.verdict.passed


def _plan_swap(context: RunContext, rebuild: Rebuild, report: RunReport) -> PublishIntent:
    """Plan the publish of what was built; ``report`` is the report after it. Raises TryAgainError
    BACKFILL_TABLE_CHANGED when another program wrote to the table meanwhile."""
    scope, finding, built = rebuild.scope, rebuild.finding, rebuild.built
    table_files = list_data_files(context.paths.table)
    if digest_files(table_files) != digest_files(scope.files):
        raise errors.BACKFILL_TABLE_CHANGED(where=f"pipeline {context.name}", label=finding.interval.label)
    if scope.hands_over:
        batches = {(one.query_id[:8], one.batch_id) for one in built.manifests}
        plan_quarantine = partial(_plan_quarantine, context.paths, finding, built, batches)
        plan = plan_hand_over(context, built, table_files, report, plan_quarantine)
    else:
        plan_quarantine = partial(_plan_quarantine, context.paths, finding, built, finding.choice.batches)
        metadata = {
            WITHIN: json.dumps(finding.interval.within, ensure_ascii=False),
            READ_AGAIN: json.dumps(sorted(finding.choice.batches)),
            MADE_BY: json.dumps(scope.made_by, ensure_ascii=False),
            **({KEEPS_OLDER: "true"} if finding.interval.but_older else {}),
        }
        changes = Changes(
            new=built.files,
            remove=finding.replaced,
            table_files=table_files,
            metadata=metadata,
            replaces_schema=finding.interval.replaces_all,
        )
        plan = plan_rows(context, built.manifests, changes, report, plan_quarantine)
    return replace(plan, whole_files=list(built.whole_files))


def _find_whole(context: RunContext, finding: Finding, side: PipelinePaths) -> list[WholeFiles]:
    folder = str(side.state.relative_to(context.paths.state))
    links = [row.link for rows in finding.choice.files.values() for row in rows]
    quarantined = [link for link in links if unreadable_record(side.unreadable, link) is not None]
    read = set(links).difference(quarantined)
    read = {link for link in read if is_in_quarantine(context.paths.unreadable, link)}
    return [WholeFiles(folder, quarantined, sorted(read))] if quarantined or read else []


def _plan_quarantine(
    paths: PipelinePaths, finding: Finding, built: Built, batches: Collection[Batch], work: Rework, token: str
) -> PublishIntent | None:
    """Plan the quarantine half of the swap: add newly quarantined records, which are of ``batches``. A rebuild of the
    whole table also removes its records' old rows there."""
    old = quarantined_before(paths.quarantine, finding.choice)[0] if finding.interval.is_whole_table else []
    if not built.quarantine and not old:
        return None
    return plan_quarantine_half(paths, work, Changes(token, new=built.quarantine, remove=old), of=batches)


def _report_after(before: RunReport, path: Path, rebuild: Rebuild, *, is_last: bool) -> RunReport:
    """The report after the swap: the figures of earlier intervals and of this one together."""
    finding, built = rebuild.finding, rebuild.built
    part = RunReport(before.pipeline, before.run_id)
    fill_from_manifests(part, built.manifests)
    staged, published = (sum(file.rows for file in files) for files in (built.files, built.published))
    part.rows |= {"staged": staged, "transformed": part.rows["rejected"] + staged, "published": published}
    part.rows["superseded"] = staged - published
    check_balance(part.rows, published=True)
    report = RunReport.from_json(before.to_json())
    report.rows = {key: report.rows.get(key, 0) + value for key, value in part.rows.items()}
    for name, source in part.sources.items():
        known = report.sources.get(name, {})
        joined: SourceReport = {**known, **source}
        for key in _COUNTS:
            if key in source:
                joined[key] = known.get(key, 0) + source[key]
        report.sources[name] = joined
    report.batches += part.batches
    report.quality = built.verdict.quality
    report.rebuilt = [*dict.fromkeys([*report.rebuilt, *(day.label for day in finding.interval.days)])]
    figures = report.table
    report.table = {
        "path": str(path),
        "version": None,
        "files_added": figures.get("files_added", 0) + len(built.published),
        "files_removed": figures.get("files_removed", 0) + len(finding.replaced),
        "rows_added": figures.get("rows_added", 0) + published,
        "rows_removed": figures.get("rows_removed", 0) + sum(file.rows for file in finding.replaced),
    }
    columns = _compare_columns(figures, rebuild)
    if columns["before"] != columns["after"]:
        report.table["columns"] = columns
    if finding.excluded.total:
        count = count_of(finding.excluded.total, "record")
        report.add_note(
            f"{finding.interval.label}: in quarantine, until they are replayed: {count} of what was read again"
        )
    if finding.interval.joined and (empty := [day for day in finding.interval.days if not _has_rows(day, rebuild)]):
        report.add_note(f"{join_intervals(empty).label}: no record that runs have read belongs to it")
    if finding.choice.excluded:
        count = count_of(finding.choice.excluded, "record")
        report.add_note(f"{finding.interval.label}: {count} of excluded increments stay excluded")
    if finding.closes_at_ms is not None:
        until = text_of_ms(finding.closes_at_ms) or "the first watermark"
        still_open = f"windows and joins that end after {until} are still open"
        report.add_note(f"{finding.interval.label}: {still_open}; a later run publishes them")
    if finding.older is not None:
        report.add_note(describe_older(finding.older.to_json()))
    report.outcome = "published" if is_last else None
    report.error = None
    report.ended_at = now_text() if is_last else None
    return report


def _has_rows(day: Interval, rebuild: Rebuild) -> bool:
    """Return whether the day has rows before or after the swap."""
    replaced, new = rebuild.finding.replaced, rebuild.built.files
    return any(day.holds(file.partition) for file in replaced) or any(day.holds(file.partition) for file in new)


def rebuild_interval(
    context: RunContext, scope: Scope, finding: Finding, submit: Submit, keep: Collection[Path] = ()
) -> Rebuild:
    """Read and judge one interval. Of earlier attempts those to ``keep`` stay, which are held.

    Raises UsageError BACKFILL_SPILLS when rows would move to partitions that are not rebuilt, REFRESH_PENDING,
    REFRESH_KEEPS_STATE, and what a run's ingest raises.
    """
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    folder = f"backfills/{work.app_id}/{name_attempt(context)}"
    if not keep:
        remove_held_figures(context)
    clear_attempts(context, [paths.backfills / work.app_id], keep)
    side = paths.beside(folder)
    storage.make_folder(side.state)
    storage.sync_names_above([side.state], paths.state)
    job = replace(context, paths=side, facts=None)
    manifests: list[BatchManifest] = []
    if not finding.choice.is_empty:
        manifests = read_records(context, job, scope, finding, folder, submit)
        birth = read_birth(side)
        keeps_state = birth is not None and birth.keeps_state
        if not scope.hands_over and finding.interval.is_whole_table and keeps_state:
            # The transform has become stateful: the state has to be handed over with the rows.
            if finding.interval.but_older:
                raise errors.REFRESH_KEEPS_STATE(where=f"pipeline {context.name}", name=context.name)
            assert context.facts is not None
            refuse_pending(context.paths, context.facts, context.name)
            return rebuild_interval(context, replace(scope, hands_over=True), finding, submit)
        _check_columns(context, manifests)
        if scope.hands_over:
            prepare_checkpoint(job, folder, paths)
        check_files(job, finding, manifests)
        check_read(context, finding, manifests)
    built = _judge(job, scope, finding, manifests, folder)
    return Rebuild(scope, finding, replace(built, whole_files=_find_whole(context, finding, side)))


def swap_in(context: RunContext, rebuild: Rebuild, *, is_last: bool, keep: Collection[Path] = ()) -> None:
    """Publish an interval that has passed the gate, and add it to the report. Held attempts to ``keep`` stay. Raises
    TryAgainError BACKFILL_TABLE_CHANGED when another program wrote to the table meanwhile."""
    report = _report_after(context.report, context.paths.table, rebuild, is_last=is_last)
    report.table["version"] = publish_plan(context, partial(_plan_swap, context, rebuild, report)).version
    context.report = report
    clear_attempts(context, [rebuild.folder.parent], keep)


def hold(context: RunContext, rebuild: Rebuild, *, is_last: bool) -> HeldError:
    """Keep what has not passed the gate for a decision. Returns the error for the end of the command; where it
    ``is_last`` the report has the figures. Raises TryAgainError BACKFILL_TABLE_CHANGED."""
    report = _report_after(context.report, context.paths.table, rebuild, is_last=is_last)
    plan = _plan_swap(context, rebuild, report)
    context.lease.check()
    interval, older = rebuild.finding.interval, rebuild.finding.older
    stays = [] if older is None else older.stays
    changes_columns = not extends(rebuild.scope.table.schema_json, plan.schema_json)
    keep_held(rebuild.built.side, plan, interval, context.report, stays, changes_columns=changes_columns)
    if is_last:
        report_held(context.report, report, interval)
    return errors.BACKFILL_HELD(
        where=f"run {plan.run_id} of pipeline {context.name}",
        label=interval.label,
        reasons="; ".join(rebuild.built.verdict.reasons),
        name=context.name,
        run_id=quote_word(plan.run_id),
        next_run=("" if changes_columns else "is not affected: ") + describe_runs(changes_columns=changes_columns),
    )


def join_held(scope: Scope, held: Sequence[Rebuild]) -> Rebuild:
    """All held intervals of a command as one, on which a person decides. ``scope`` is the current one."""
    if len(held) == 1:
        return replace(held[0], scope=scope)
    findings, builts = [one.finding for one in held], [one.built for one in held]
    results: dict[str, RuleResult] = {}
    for result in (one for built in builts for one in built.verdict.quality["results"]):
        known = results.get(result["rule"])
        if known is None or known["success"]:
            results[result["rule"]] = result
    last = builts[-1]
    verdict = replace(
        last.verdict,
        quality={
            **last.verdict.quality,
            "results": list(results.values()),
            "warnings": [*dict.fromkeys(text for built in builts for text in built.verdict.quality["warnings"])],
        },
        failed_critical=[*dict.fromkeys(rule for built in builts for rule in built.verdict.failed_critical)],
        reasons=[reason for built in builts for reason in built.verdict.reasons],
    )
    finding = Finding(
        interval=join_intervals([one.interval for one in findings]),
        choice=join_choices([one.choice for one in findings]),
        excluded=Excluded({str(number): one.excluded.total for number, one in enumerate(findings)}),
        replaced=[file for one in findings for file in one.replaced],
        error=None,
        closes_at_ms=findings[-1].closes_at_ms,
    )
    built = replace(
        last,
        manifests=[one for built in builts for one in built.manifests],
        files=[one for built in builts for one in built.files],
        quarantine=[one for built in builts for one in built.quarantine],
        verdict=verdict,
        whole_files=[one for built in builts for one in built.whole_files],
    )
    return Rebuild(scope, finding, built)


def _compare_columns(figures: TableFigures, rebuild: Rebuild) -> Columns:
    """The columns of the table before the command, of which ``figures`` are known, and after this interval."""
    table, built = rebuild.scope.table.schema_json, rebuild.built
    now = column_texts(table)
    is_replaced = built.manifests and (built.files or rebuild.finding.interval.replaces_all)
    return {
        "before": figures["columns"]["before"] if "columns" in figures else now,
        "after": column_texts(built.manifests[-1].schema_json, table) if is_replaced else now,
    }


def _check_columns(context: RunContext, manifests: Sequence[BatchManifest]) -> None:
    """Raise UsageError REFRESH_PENDING if the rows do not fit the columns of the table, and runs have staged rows that
    still have to be published to it."""
    facts = context.facts
    assert facts is not None and facts.table is not None, "there are rows to replace"
    if manifests and not extends(facts.table.schema_json, manifests[-1].schema_json):
        refuse_pending(context.paths, facts, context.name)


def _judge(job: RunContext, scope: Scope, finding: Finding, manifests: Sequence[BatchManifest], folder: str) -> Built:
    """Judge the interval's rows by the gate, each of its days that has rows, or had some, as an increment of its own;
    where rows replace others, only those that remain."""
    interval = finding.interval
    inside = [_keep_within(one, interval) for one in manifests]
    folds = fold_unpublished(job.paths, inside, job.spec) if scope.hands_over and inside else None
    partitions = [file.partition for file in finding.replaced]
    partitions += [file.partition for one in inside for file in one.files]
    days = {day.label: day.within for day in interval.joined if any(map(day.holds, partitions))}
    replaced = {file.path for file in (scope.files if scope.hands_over else finding.replaced)}
    others = [file for file in scope.files if file.path not in replaced]
    losses = count_by_day(scope, interval, finding.choice, job.paths.state, inside)
    verdict = judge_staged(job, inside, folded=folds, rebuilt=Rebuilt(others, days, losses))
    moved, folded = within_pipeline(inside, folds[0] if folds else None, folder)
    return Built(
        manifests=moved,
        files=[file for one in moved for file in one.files],
        quarantine=[file for one in moved for file in one.quarantine_files],
        verdict=verdict,
        side=job.paths,
        folded=folded,
    )


def _keep_within(manifest: BatchManifest, interval: Interval) -> BatchManifest:
    """The batch without the rows of partitions that are not rebuilt."""
    if interval.is_whole_table:
        return manifest
    files = files_within(manifest.files, interval.within)
    return replace(manifest, files=files, transformed=manifest.rejected + sum(file.rows for file in files))
