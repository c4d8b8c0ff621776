"""The final reports of runs whose batches the table's log holds. What became of them is what the commit says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.commits import Figures, Increment, find_increments
from tidegate.runs.reports.report import (
    FINAL_OUTCOMES,
    RunReport,
    check_balance,
    fill_from_manifests,
    load_report,
    new_report,
    save_report,
    unjudged,
)
from tidegate.runs.reports.verdicts import StoredVerdict, are_settled, list_verdicts, load_decision
from tidegate.runs.reports.waiting import waiting_error
from tidegate.state.manifest import BatchKey, BatchManifest
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.publish import CommitResult

if TYPE_CHECKING:
    from tidegate.core.outputs import Ruling, TableFigures


def finish_reports(
    paths: PipelinePaths, facts: Facts, settled: Sequence[BatchManifest], waiting: Collection[BatchKey]
) -> tuple[list[BatchManifest], list[RunReport]]:
    """Write the final report of each run that had to do with these batches; the batches that nothing more needs,
    and the reports. ``waiting`` are the batches of deferred increments.

    An increment of two queries takes two commits. Until both are there its batches are kept, so that the report is of
    all of it.
    """
    verdicts = list_verdicts(paths)
    newest = {manifest.query_id: facts.settled_up_to(manifest.query_id) for manifest in settled}
    increments = find_increments(paths, settled, newest)
    reported = [manifest for increment in increments for manifest in increment.manifests]
    unreported = [manifest for manifest in settled if manifest not in reported]
    for verdict in verdicts:
        batches = verdict.choose(unreported)
        waits = any(manifest.key in waiting for manifest in batches)
        increments.append(Increment(verdict.run_id, [], batches, "waiting" if waits else None))
    kept, ended = [], []
    for increment in increments:
        own = next((verdict for verdict in verdicts if verdict.run_id == increment.run_id), None)
        is_whole = own is None or are_settled(own.batches, facts.settled_up_to)
        if not is_whole or increment.outcome not in ("published", "discarded", "waiting", None):
            kept += increment.manifests
            continue
        judged = [v for v in verdicts if v.choose(increment.manifests) and are_settled(v.batches, facts.settled_up_to)]
        ended += _finish(paths, increment, own, {verdict.run_id: verdict for verdict in judged})
    return [manifest for manifest in settled if manifest not in kept], ended


def finish_increment(paths: PipelinePaths, increment: Increment, own: StoredVerdict) -> list[RunReport]:
    """The final reports of an increment that had been deferred; may be repeated. ``own`` is the verdict on it."""
    return _finish(paths, increment, own, {})


def tell_rework(paths: PipelinePaths, intent: PublishIntent, result: CommitResult) -> None:
    """Store the report that a publish of no batch carries, now that it is done. May be repeated; a publish that was
    overtaken or outdated did nothing, and has none."""
    if intent.report is None or result.overtaken or result.outdated:
        return
    report, stored = RunReport.from_json(intent.report), load_report(paths, intent.run_id)
    if stored is not None and (stored.outcome in FINAL_OUTCOMES or len(stored.rebuilt) > len(report.rebuilt)):
        return  # a plan that came late: the work has gone on under the same run id
    report.table = {**report.table, "version": result.version}
    report.ended_at = report.ended_at or now_text()
    save_report(paths, report)


def _finish(
    paths: PipelinePaths, increment: Increment, own: StoredVerdict | None, judged: dict[str, StoredVerdict]
) -> list[RunReport]:
    """The reports of the run that published (or excluded) an increment, of those that staged it and of those that only
    judged it."""
    if not increment.manifests or (increment.outcome == "waiting" and own is None):
        return []  # the latter: a stale process has written a manifest again
    ended = []
    outcome, decision = _ask_commit(paths, increment, own)
    for run_id in dict.fromkeys([increment.run_id, *judged, *(manifest.run_id for manifest in increment.manifests)]):
        report = load_report(paths, run_id) or new_report(paths.name, run_id)
        if report.outcome in FINAL_OUTCOMES:
            continue
        whole = run_id == increment.run_id
        mine = increment.manifests
        if run_id in judged and not whole:
            mine = judged[run_id].choose(mine)
        elif not whole:
            mine = [manifest for manifest in mine if manifest.run_id == run_id]
        fill_from_manifests(report, mine)
        waits = outcome == "waiting" and own is not None
        report.outcome = "held" if waits else outcome
        report.error = waiting_error(paths.name, own).to_dict() if waits and own is not None else None
        report.ended_at = now_text()
        report.quality = own.quality if own is not None else unjudged(increment.verdict)
        report.decision = decision or (report.decision if report.mode == "reread" else None)
        report.published_by = None if whole else increment.run_id
        published = outcome == "published"
        report.rows["superseded"] = sum(increment.superseded_of(manifest) for manifest in mine)
        report.rows["published"] = report.rows["staged"] - report.rows["superseded"] if published else 0
        report.table = table_figures(paths, mine, increment, published=published, whole=whole)
        if whole and increment.figures is not None:
            report.rows["published"] = increment.figures.rows_added
        check_balance(report.rows, published=published)
        save_report(paths, report)
        ended.append(report)
    return ended


def _ask_commit(paths: PipelinePaths, increment: Increment, own: StoredVerdict | None) -> tuple[str, Ruling | None]:
    """(outcome, decision) as the commit has them. If the commit files were removed, the outcome is the presumed one, or
    else that of the decision's file."""
    if increment.outcome is not None:
        return increment.outcome, increment.commits[0].decision if increment.commits else None
    decision = None if own is None else load_decision(paths, own)
    if decision is None:
        return "published", None
    return "discarded" if decision.decision == "discard" else "published", decision.to_report()


def table_figures(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], increment: Increment, *, published: bool, whole: bool
) -> TableFigures:
    """The report's ``table``: the version that holds these batches, and what they added to it.

    ``whole``: the batches are the whole increment. What a commit took out of the table is in that report alone.
    """
    rows = sum(manifest.staged - increment.superseded_of(manifest) for manifest in manifests)
    figures = increment.figures if whole else None
    if figures is None:
        files = sum(len(manifest.files) for manifest in manifests)
        figures = Figures(files, 0, rows, 0) if published else Figures(0, 0, 0, 0)
    return {
        "path": str(paths.table),
        "version": increment.version,
        "files_added": figures.files_added,
        "files_removed": figures.files_removed,
        "rows_added": figures.rows_added,
        "rows_removed": figures.rows_removed,
    }
