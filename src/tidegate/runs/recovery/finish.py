"""The final reports of runs whose batches the table's log holds. The outcome, and the figures that manifests lack, come
from the commits."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs.preflight.facts import Facts
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
from tidegate.runs.reports.verdicts import StoredVerdict, are_settled, list_verdicts, load_decision, waiting_error
from tidegate.state.manifest import BatchKey, BatchManifest
from tidegate.table.log.state import find_commit, read_commit_metadata

if TYPE_CHECKING:
    from tidegate.core.outputs import Ruling, TableFigures, VerdictName


class Merged(TypedDict):
    """Files and rows that a commit added and removed, and by batch the staged rows that a later one replaced."""

    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    superseded: dict[str, int]


@dataclass(frozen=True)
class Commit:
    """One version of the table: the batches of ``query_id`` from behind ``after`` up to ``last``.

    ``outcome`` is ``published``, ``discarded`` or ``waiting``; a commit that says something else settled nothing.
    """

    version: int
    run_id: str
    outcome: str
    query_id: str
    after: int
    last: int
    decision: Ruling | None = None
    """Who decided on the increment, when it was held: as the report carries it."""
    verdict: VerdictName | None = None
    merged: Merged | None = None
    """What the version replaced in the table, and which staged rows never came into it (update and complete mode)."""

    @staticmethod
    def read(paths: PipelinePaths, version: int, query_id: str, last: int, after: int | None = None) -> Commit:
        """Read it from the table's log; without ``after`` the log says up to where the commit before it was."""
        info = read_commit_metadata(paths.table, version)
        merged, decision = info.get("tidegate.table"), info.get("tidegate.decision")
        return Commit(
            version,
            str(info.get("tidegate.run_id")),
            str(info.get("tidegate.outcome")),
            query_id,
            int(info.get("tidegate.app_version_before", last - 1)) if after is None else after,
            last,
            json.loads(decision) if decision else None,
            info.get("tidegate.verdict"),
            json.loads(merged) if merged else None,
        )

    def holds(self, manifest: BatchManifest) -> bool:
        """Return whether this commit dealt with the batch."""
        return manifest.query_id == self.query_id and self.after < manifest.batch_id <= self.last


@dataclass(frozen=True)
class Increment:
    """What one run published, or excluded: its commits, one per query, and the batches they dealt with.

    If the commit files were removed, ``commits`` is empty, ``run_id`` is the run of the verdict on the batches, and
    ``presumed`` is the outcome if it can be inferred.
    """

    run_id: str
    commits: list[Commit]
    manifests: list[BatchManifest]
    presumed: Literal["waiting", "published", "discarded"] | None = None

    @property
    def outcome(self) -> str | None:
        """What became of it; None when the commit files are gone and it cannot be inferred."""
        return self.commits[0].outcome if self.commits else self.presumed

    @property
    def version(self) -> int | None:
        """The newest version; None when the commit files are gone."""
        return max((commit.version for commit in self.commits), default=None)

    @property
    def verdict(self) -> VerdictName | None:
        """As the commit has it; None when the commit files are gone."""
        return self.commits[0].verdict if self.commits else None

    @property
    def merged(self) -> list[Merged]:
        """The commits' own figures; empty for commits that only add what the manifests name."""
        return [commit.merged for commit in self.commits if commit.merged is not None]

    def superseded_of(self, manifest: BatchManifest) -> int:
        """Rows of this batch that a later one replaced, so that they never came into the table."""
        merged = [commit.merged for commit in self.commits if commit.query_id == manifest.query_id and commit.merged]
        return sum(one["superseded"].get(str(manifest.batch_id), 0) for one in merged)


def find_increments(paths: PipelinePaths, settled: Sequence[BatchManifest], newest: dict[str, int]) -> list[Increment]:
    """The increments that the settled batches went into, newest first, by the run that each commit names.

    ``newest`` is the last batch of each query that the log holds. Batches whose commit files are gone are excluded.
    """
    commits: list[Commit] = []
    for query_id in dict.fromkeys(manifest.query_id for manifest in settled):
        oldest = min(manifest.batch_id for manifest in settled if manifest.query_id == query_id)
        commits += _commits_back_to(paths, query_id, newest[query_id], oldest)
    commits.sort(key=lambda commit: -commit.version)
    found = []
    for run_id in dict.fromkeys(commit.run_id for commit in commits):
        own = [commit for commit in commits if commit.run_id == run_id]
        batches = [manifest for manifest in settled if any(commit.holds(manifest) for commit in own)]
        if batches:
            found.append(Increment(run_id, own, batches))
    return found


def _commits_back_to(paths: PipelinePaths, query_id: str, last: int, oldest: int) -> list[Commit]:
    """The commits of a query, newest first, down to the one that holds batch ``oldest``."""
    found: list[Commit] = []
    while last >= oldest and (version := find_commit(paths.table, query_id, last)) is not None:
        found.append(Commit.read(paths, version, query_id, last))
        if found[-1].after >= last:
            break
        last = found[-1].after
    return found


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
        ended += finish_increment(paths, increment, own, {verdict.run_id: verdict for verdict in judged})
    return [manifest for manifest in settled if manifest not in kept], ended


def finish_increment(
    paths: PipelinePaths, increment: Increment, own: StoredVerdict | None, judged: Mapping[str, StoredVerdict]
) -> list[RunReport]:
    """Write the final reports of the run that published (or excluded) an increment, of those that staged it and of
    those that only ``judged`` it; may be repeated. ``own`` is the verdict on it."""
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
        if whole and increment.merged:
            report.rows["published"] = report.table["rows_added"]
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
    merged = increment.merged if whole else []
    if not merged:
        rows = sum(manifest.staged - increment.superseded_of(manifest) for manifest in manifests) if published else 0
        files = sum(len(manifest.files) for manifest in manifests) if published else 0
        merged = [{"files_added": files, "files_removed": 0, "rows_added": rows, "rows_removed": 0, "superseded": {}}]
    return {
        "path": str(paths.table),
        "version": increment.version,
        "files_added": sum(one["files_added"] for one in merged),
        "files_removed": sum(one["files_removed"] for one in merged),
        "rows_added": sum(one["rows_added"] for one in merged),
        "rows_removed": sum(one["rows_removed"] for one in merged),
    }
