"""Replace rows of the table by those that a side job has built: one version, one intent, one report."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tidegate.core.outputs import SourceReport
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.backfill.examine import Finding, Scope
from tidegate.rework.backfill.excluded import quarantined_before
from tidegate.rework.backfill.hand_over import plan_hand_over
from tidegate.rework.backfill.older import describe_older
from tidegate.rework.backfill.plan_rows import plan_quarantine_half, plan_rows
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import RunReport, check_balance, fill_from_manifests
from tidegate.runs.reports.verdicts import StoredVerdict
from tidegate.sources.files.unreadable import is_in_quarantine, unreadable_record
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.state.open_state import text_of_ms
from tidegate.table.log.state import (
    DataFile,
    digest_files,
    list_data_files,
    read_table_state,
)
from tidegate.table.publish.intent import PublishIntent, WholeFiles
from tidegate.table.publish.origins import READ_AGAIN, Batch
from tidegate.table.publish.rework import KEEPS_OLDER, WITHIN, Rework
from tidegate.table.upsert.folded import Folded

MADE_BY = "tidegate.made_by"
"""In a commit: the fingerprint of the transform and spec, which must be the same for all parts of one job."""
_COUNTS: tuple[Literal["rows", "malformed", "files", "bytes"], ...] = ("rows", "malformed", "files", "bytes")


@dataclass(frozen=True)
class Built:
    """The files that a side job has staged for an interval; paths are relative to the pipeline's state folder."""

    manifests: list[BatchManifest]
    files: list[StagedFile]
    quarantine: list[StagedFile]
    verdict: StoredVerdict
    side: PipelinePaths
    folded: Folded | None = None
    """Where rows replace others: those that remain."""

    @property
    def published(self) -> list[StagedFile]:
        """The files that are added to the table."""
        return self.files if self.folded is None else self.folded.files


def swap_interval(context: RunContext, scope: Scope, finding: Finding, built: Built, *, is_last: bool) -> None:
    """Replace the interval's rows and quarantine newly rejected records, in one version of the table."""
    report = report_after(context.report, context.paths.table, finding, built, is_last=is_last)
    publish_plan(context, partial(plan_swap, context, scope, finding, built, report))
    context.report = report
    context.report.table["version"] = _version(context)


def plan_swap(context: RunContext, scope: Scope, finding: Finding, built: Built, report: RunReport) -> PublishIntent:
    """Plan the publish of what was built; ``report`` is the report after it. Raises TryAgainError
    BACKFILL_TABLE_CHANGED when another program wrote to the table meanwhile."""
    plan = _plan_hand_over if scope.hands_over else _plan_rows
    return replace(plan(context, scope, finding, built, report), whole_files=_find_whole(context, finding, built))


def _find_whole(context: RunContext, finding: Finding, built: Built) -> WholeFiles | None:
    side, folder = built.side, str(built.side.state.relative_to(context.paths.state))
    links = [row.link for rows in finding.choice.files.values() for row in rows]
    quarantined = [link for link in links if unreadable_record(side.unreadable, link) is not None]
    read = set(links).difference(quarantined)
    read = {link for link in read if is_in_quarantine(context.paths.unreadable, link)}
    return WholeFiles(folder, quarantined, sorted(read)) if quarantined or read else None


def _plan_rows(context: RunContext, scope: Scope, finding: Finding, built: Built, report: RunReport) -> PublishIntent:
    return plan_rows(
        context,
        new=built.files,
        table_files=_unchanged_files(context, scope, finding),
        manifests=built.manifests,
        report=report,
        metadata={
            WITHIN: json.dumps(finding.interval.within, ensure_ascii=False),
            READ_AGAIN: json.dumps(sorted(finding.choice.batches)),
            MADE_BY: json.dumps(scope.made_by, ensure_ascii=False),
            **({KEEPS_OLDER: "true"} if finding.interval.but_older else {}),
        },
        plan_quarantine=partial(_plan_quarantine, context.paths, finding, built, finding.choice.batches),
        remove=finding.replaced,
    )


def _unchanged_files(context: RunContext, scope: Scope, finding: Finding) -> list[DataFile]:
    files = list_data_files(context.paths.table)
    if digest_files(files) != digest_files(scope.files):
        raise errors.BACKFILL_TABLE_CHANGED(where=f"pipeline {context.name}", label=finding.interval.label)
    return files


def _plan_hand_over(
    context: RunContext, scope: Scope, finding: Finding, built: Built, report: RunReport
) -> PublishIntent:
    paths, facts = context.paths, context.facts
    assert facts is not None
    work = Rework(context.name, context.report.mode, context.report.run_id)
    quarantine = read_table_state(paths.quarantine, (work.app_id,))
    work = replace(work, part=0 if quarantine is None else quarantine.txns.get(work.app_id, -1) + 1)
    batches = {(one.query_id[:8], one.batch_id) for one in built.manifests}
    return plan_hand_over(
        paths,
        built.side,
        facts,
        context.spec,
        run_id=work.run_id,
        manifests=built.manifests,
        folded=built.folded,
        verdict=built.verdict,
        table_files=_unchanged_files(context, scope, finding),
        report=dict(report.to_json()),
        companion=_plan_quarantine(paths, finding, built, batches, work, secrets.token_hex(6)),
    )


def _plan_quarantine(
    paths: PipelinePaths, finding: Finding, built: Built, batches: Collection[Batch], work: Rework, token: str
) -> PublishIntent | None:
    """Plan the quarantine half of the swap: add newly quarantined records, which are of ``batches``. A rebuild of the
    whole table also removes its records' old rows there."""
    old = quarantined_before(paths.quarantine, finding.choice)[0] if finding.interval.is_whole_table else []
    if not built.quarantine and not old:
        return None
    return plan_quarantine_half(paths, work, token, new=built.quarantine, of=batches, remove=old)


def report_after(before: RunReport, path: Path, finding: Finding, built: Built, *, is_last: bool) -> RunReport:
    """The report after the swap: the figures of earlier intervals and of this one together."""
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
        report.sources[name] = _add(known, source)
    report.batches += part.batches
    report.quality = built.verdict.quality
    report.rebuilt = [*report.rebuilt, finding.interval.label]
    figures = report.table
    report.table = {
        "path": str(path),
        "version": None,
        "files_added": figures.get("files_added", 0) + len(built.published),
        "files_removed": figures.get("files_removed", 0) + len(finding.replaced),
        "rows_added": figures.get("rows_added", 0) + published,
        "rows_removed": figures.get("rows_removed", 0) + sum(file.rows for file in finding.replaced),
    }
    if finding.excluded.total:
        count = count_of(finding.excluded.total, "record")
        report.add_note(
            f"{finding.interval.label}: in quarantine, until they are replayed: {count} of what was read again"
        )
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


def _add(before: SourceReport, now: SourceReport) -> SourceReport:
    """The figures of one source, added up."""
    joined: SourceReport = {**before, **now}
    for key in _COUNTS:
        if key in now:
            joined[key] = before.get(key, 0) + now[key]
    return joined


def _version(context: RunContext) -> int | None:
    state = read_table_state(context.paths.table)
    return None if state is None else state.version
