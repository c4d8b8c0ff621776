"""Backfills and refreshes that were killed: no run resumes them, and nothing else reports them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.held import list_held
from tidegate.rework.backfill.span import Wanted, find_span
from tidegate.runs.recovery.abandoned import list_unfinished_work
from tidegate.runs.reports.report import RunReport, load_report, new_report, read_newest
from tidegate.runs.reports.verdicts import quote_word
from tidegate.state.lease import LeaseState, read_lease
from tidegate.table.log.state import list_data_files, read_table_state

_KINDS = ("backfill", "refresh")
_LOOKED_THROUGH = 100
_MAY_WAIT_SECONDS = 90.0
"""How long a backfill lets a run that was refused go first (:mod:`tidegate.runs.turns`)."""


@dataclass(frozen=True)
class Unfinished:
    """An unfinished job. ``is_certain``: no process works on it or waits for its turn."""

    name: str
    kind: str
    run_id: str
    done: str
    asked: str | None
    is_certain: bool

    @property
    def found(self) -> str:
        """What was found: how far the job is."""
        waits = "" if self.is_certain else ", or waits for its turn"
        return f"{self.kind} {self.run_id} is unfinished{waits}: {self.done}"

    @property
    def command(self) -> str | None:
        """The command that resumes it; None where its options are not recorded."""
        if self.asked is None:
            return None
        options = "" if self.asked == "no options" else f" {self.asked}"
        return f"tidegate {self.kind} {self.name}{options} --run-id {quote_word(self.run_id)}"

    @property
    def fix(self) -> str:
        """What resumes it."""
        return self.command or f"the same command with --run-id {quote_word(self.run_id)}"

    def describe(self) -> str:
        """The whole sentence."""
        return f"{self.found}; {f'`{self.command}`' if self.command else self.fix} resumes it"


def list_unfinished(paths: PipelinePaths, reports: Sequence[RunReport] | None = None) -> list[Unfinished]:
    """List unfinished jobs, except those that are reported elsewhere: failed, held, or interrupted in their publish.

    ``reports`` are those that are known already, where no more are to be read."""
    lease = read_lease(paths)
    if reports is None:
        reports = read_newest(paths, _LOOKED_THROUGH)[0]
    found = [one for one in reports if one.mode in _KINDS and one.outcome is None]
    if lease is not None and lease.state in ("dead", "expired") and lease.holder.command in _KINDS:
        found += _find_without_report(paths, lease, found)
    if not found:
        return []
    reported = {one.run_id for one in (*list_unfinished_work(paths), *list_held(paths))}
    is_busy = lease is not None and lease.state in ("held", "parked")
    if lease is not None and is_busy:
        reported.add(str(lease.holder.run_id))
    is_certain = not is_busy and not _lets_one_go_first(paths)
    return [
        Unfinished(paths.name, one.mode, one.run_id, _describe_done(paths, one), one.asked, is_certain)
        for one in found
        if one.run_id not in reported
    ]


def _find_without_report(paths: PipelinePaths, lease: LeaseState, known: Sequence[RunReport]) -> list[RunReport]:
    """The job that only the lease records: it was killed before anything was read, or in a retry."""
    run_id, kind = lease.holder.run_id, lease.holder.command
    if run_id is None or kind is None or any(one.run_id == run_id for one in known):
        return []
    report = load_report(paths, run_id)
    if report is None:
        report = new_report(paths.name, run_id)
        report.mode = kind
        return [report]
    return [report] if report.outcome in (None, "failed") else []


def _lets_one_go_first(paths: PipelinePaths) -> bool:
    note = storage.read_json(paths.refused)
    return note is not None and 0 <= time.time() - float(note["at_s"]) < _MAY_WAIT_SECONDS


def _describe_done(paths: PipelinePaths, report: RunReport) -> str:
    if not report.rebuilt:
        return "nothing of it is rebuilt"
    left = [label for label in _list_wanted(paths, report) if label not in report.rebuilt]
    rest = f"{', '.join(left)} {'is' if len(left) == 1 else 'are'} not" if left else "the rest is not"
    return f"{', '.join(report.rebuilt)} {'is' if len(report.rebuilt) == 1 else 'are'} rebuilt, {rest}"


def _list_wanted(paths: PipelinePaths, report: RunReport) -> list[str]:
    """The intervals that were asked for; none where report and table do not say."""
    words = shlex.split(report.asked or "")
    if report.mode != "backfill" or len(words) % 2:
        return []
    given = list(zip(words[::2], words[1::2], strict=True))
    one = dict(given)
    partitions = tuple(value for option, value in given if option == "--partition")
    wanted = Wanted(one.get("--from"), one.get("--to"), partitions, one.get("--zone"))
    table = read_table_state(paths.table)
    if table is None:
        return []
    try:
        span = find_span(
            wanted,
            paths.name,
            schema_json=table.schema_json,
            partition_by=table.partition_columns,
            files=list_data_files(paths.table),
        )
    except TidegateError:
        return []
    return [interval.label for interval in span.intervals]
