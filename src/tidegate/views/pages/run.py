"""The page of a run, from its report, its progress, the lease and the current suite."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import quote

from typing_extensions import TypedDict

from tidegate.core import storage
from tidegate.core.outputs import Error, LeaseRow
from tidegate.core.paths import PipelinePaths
from tidegate.rework.held import HeldWork, find_held_work
from tidegate.runs.reports.report import RunState
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.lease import LeaseState, read_lease
from tidegate.table.schema import describe_columns
from tidegate.views.faults import (
    STATE_FAULTS,
    UNREADABLE,
    Unchecked,
    check_report_size,
    describe_unreadable,
    name_unreadable,
)
from tidegate.views.logs import describe_reading, list_driver_logs, parse_events
from tidegate.views.pages.flow import Flow, make_flow
from tidegate.views.pages.runs import (
    RunRow,
    is_in_progress,
    list_runs,
    make_row,
    name_end,
)
from tidegate.views.pages.specs import describe_expected, list_expected, read_spec, show_value

_LOOKED_THROUGH = 60
_APPLICATIONS_AT_MOST = 5
_PATHS_AT_MOST = 20
_ENDED = ("success", "failed")


Shown: TypeAlias = dict[str, object]
"""A rule or a source for its template: as the report has it, with more keys. A value that cannot be rendered hides the
report."""


class KeptFile(TypedDict):
    """A driver's log that is kept, and its step."""

    step: str
    path: str
    bytes: int


class SparkLink(TypedDict):
    """A page of Spark's UI on an application of the run."""

    name: str
    address: str


@dataclass
class RunPage:
    """One run. ``report`` is the report itself; ``fault`` says why there is none yet. ``newer`` and ``older`` are the
    next and the previous run, ``reading`` is how far one that reads is."""

    pipeline: str
    run_id: str
    state: RunState = "unreadable"
    fault: str | None = None
    row: RunRow | None = None
    report: Unchecked | None = None
    error: Error | None = None
    is_live: bool = False
    reading: str | None = None
    flow: Flow | None = None
    batches: list[Batch] = field(default_factory=list)
    rules: list[Shown] = field(default_factory=list)
    sources: list[Shown] = field(default_factory=list)
    lease: LeaseRow | None = None
    undecided: HeldWork | None = None
    logs: list[KeptFile] = field(default_factory=list)
    spark: list[SparkLink] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    columns: str = ""
    """How a refresh or backfill changed the table's columns."""
    newer: str | None = None
    older: str | None = None


def look_at_run(project: Project, name: str, run_id: str) -> RunPage:
    """Make a run's page. Errors are in the page; raises OSError only for a state folder that cannot be read."""
    paths = project.paths(name)
    page = RunPage(name, run_id)
    path = paths.report(run_id)
    try:
        lease = read_lease(paths)
        check_report_size(storage.stat(path).size_bytes)
        data = storage.read(path)
    except FileNotFoundError:
        page.fault = "No report of this run yet: it waits for its turn, or has not come to its first step."
        page.is_live, page.state = True, "running"
        return page
    except OSError as error:
        hide_report(page, paths, describe_unreadable(error))
        return page
    try:
        report: Unchecked = json.loads(data)
        _fill(page, project, paths, report, lease)
    except UNREADABLE as error:
        hide_report(page, paths, describe_unreadable(error))
    return page


def settle(page: RunPage, state: str | None, refused: Error | None = None) -> None:
    """Correct the page of a run that is in progress or waits for its turn, by its ``state`` in the scheduler.

    ``state`` is None where the scheduler has no such run; ``refused`` is why its task does not accept its form.
    A run whose process has the lease is in progress, whatever the scheduler says."""
    if not page.is_live:
        return
    if page.report is None and state in (None, *_ENDED):
        page.is_live, page.state = False, "no_report"
        if refused is not None and state == "failed":
            page.state, page.error = "refused", refused
    elif state == "failed" and (page.lease is None or page.lease["state"] != "held"):
        page.is_live, page.state = False, name_end(None if page.row is None else page.row.decision)
    elif state == "queued":
        page.state = "queued"


def hide_report(page: RunPage, paths: PipelinePaths, why: str) -> None:
    """Replace the report on the page by the reason why it cannot be shown."""
    page.state, page.is_live = "unreadable", False
    page.row, page.report, page.flow, page.rules, page.sources = None, None, None, [], []
    page.error = name_unreadable(paths.report(page.run_id), why)


def _fill(page: RunPage, project: Project, paths: PipelinePaths, report: Unchecked, lease: LeaseState | None) -> None:
    row = make_row(report)
    page.row, page.report, page.error = row, report, report.get("error")
    newest = [one.run_id for one in list_runs(paths, _LOOKED_THROUGH).rows]
    is_newest = True
    if row.run_id in newest:
        place = newest.index(row.run_id)
        is_newest = place == 0
        page.newer = newest[place - 1] if place else None
        page.older = newest[place + 1] if place + 1 < len(newest) else None
    page.state = row.state
    if row.state == "running":
        page.is_live = is_in_progress(row.run_id, row.started_at, lease, is_newest=is_newest)
        page.state = "running" if page.is_live else name_end(row.decision)
        page.reading = describe_reading(paths, row.run_id) if page.is_live else None
    if lease is not None and lease.holder.run_id == row.run_id:
        page.lease = lease.to_json()
    page.flow = make_flow(report)
    progress = read_progress(paths, row.run_id)
    page.batches = progress["batches"]
    page.spark = list(_list_spark(project, progress["applications"], is_live=page.is_live))
    page.rules = _list_rules(project, page.pipeline, row)
    page.sources = [_source(name, one) for name, one in report["sources"].items()]
    page.logs = [
        {"step": step, "path": str(path), "bytes": size} for step, path, size in list_driver_logs(paths, row.run_id)
    ]
    page.notes = [str(note) for note in (report.get("notes") or [])]
    page.notes += [str(one) for one in ((report.get("quality") or {}).get("warnings") or [])]
    if (columns := (report.get("table") or {}).get("columns")) is not None:
        page.columns = describe_columns(columns["before"], columns["after"])
    try:
        page.undecided = find_held_work(paths, row.run_id)
    except STATE_FAULTS:
        page.undecided = None


def _list_spark(project: Project, applications: Sequence[Application], *, is_live: bool) -> Iterator[SparkLink]:
    """List pages of Spark on the run's applications: the UI of the newest while it runs, of others in the history."""
    history = project.spec.ui.spark_history
    for one in applications[-_APPLICATIONS_AT_MOST:]:
        if is_live and one["ui"] is not None and one is applications[-1]:
            yield {"name": "Spark UI", "address": one["ui"]}
        elif history is not None and one["is_logged"]:
            place = f"{history.rstrip('/')}/history/{quote(one['application_id'], safe='')}/"
            yield {"name": f"Spark history of {one['application_id']}", "address": place}


def _list_rules(project: Project, name: str, row: RunRow) -> list[Shown]:
    """The results of the rules, with what the current suite says of each; the worst first."""
    suite = list_expected(project, name) if row.rules else {}
    spec_now = read_spec(project, name)
    limit = spec_now.quality.max_quarantine_share if isinstance(spec_now, PipelineSpec) else None
    rules: list[Shown] = []
    for one in sorted(
        row.rules, key=lambda one: (one["success"], not one.get("quarantined"), one["severity"] != "critical")
    ):
        spec, observed = suite.get(one["rule"]), one["observed_value"]
        expected = None if spec is None else describe_expected(spec)
        text = None if observed is None else show_value(observed)
        if one["rule"] == "max_quarantine_share":  # not of the suite, and its figures are shares
            expected = "the limit of tidegate" if limit is None else f"at most {limit:.4g} of the records"
            text = f"{observed:.4g}" if isinstance(observed, int | float) else None
        columns = [] if spec is None else list(spec.columns)
        quarantines = spec is not None and spec.quarantine
        rules.append({**one, "expected": expected, "columns": columns, "quarantines": quarantines, "observed": text})
    return rules


def _source(name: str, value: Unchecked) -> Shown:
    offsets = [
        {"topic": topic, "partition": partition, "first": int(first), "until": int(until)}
        for topic, partitions in sorted((value.get("offsets") or {}).items())
        for partition, (first, until) in sorted(partitions.items(), key=lambda one: int(one[0]))
    ]
    return {**value, "name": name, "offsets": offsets, "remarks": _list_remarks(value)}


def _list_remarks(value: Unchecked) -> Sequence[tuple[str, int, list[str]]]:
    remarks: list[tuple[str, int, list[str]]] = []
    skipped = value.get("skipped") or []
    value = {
        **value,
        "unread": [one for one in skipped if "fix" in one],
        "skipped": [one for one in skipped if "fix" not in one],
    }
    for key, what in (
        ("unread", "cannot be read"),
        ("lost", "taken, and gone before they were read"),
        ("changed", "changed after they were read"),
        ("vanished", "taken by an earlier run, and no longer there"),
        ("settling", "still settling"),
        ("skipped", "skipped"),
    ):
        found = value.get(key) or []
        if found:
            shown = [
                one if isinstance(one, str) else f"{one.get('path', '')}: {one.get('why') or one.get('how') or ''}"
                for one in found[:_PATHS_AT_MOST]
            ]
            remarks.append((what, len(found), shown))
    return remarks


_READ_AT_MOST = 4 << 20
"""Bytes of the log that are read, from its end."""
_BATCHES_AT_MOST = 500


class Batch(TypedDict):
    """A micro-batch as Spark reported it; ``seconds`` is None until it was committed."""

    batch_id: int
    at: str | None
    rows: int
    seconds: float | None
    rows_per_second: float | None
    watermark: str | None


class Application(TypedDict):
    """A Spark application. ``ui`` is the URL of its web UI while it runs, or None; a history server shows it when it
    ``is_logged``."""

    application_id: str
    ui: str | None
    is_logged: bool


class Progress(TypedDict):
    """Both, oldest first; a run with retries has several applications."""

    batches: list[Batch]
    applications: list[Application]


def read_progress(paths: PipelinePaths, run_id: str) -> Progress:
    """Read the progress of a run; empty where there is no log. A line that was cut off by a kill is skipped."""
    batches: dict[tuple[int, int], Batch] = {}
    applications: dict[str, Application] = {}
    try:
        data = storage.read_end(paths.progress(run_id), _READ_AT_MOST)
    except OSError:
        data = b""
    for event in parse_events(data):
        try:
            if event["event"] == "session":
                made = _application(event)
                applications[made["application_id"]] = made
            else:
                key = len(applications), int(event["batchId"])
                _update(batches.setdefault(key, _new_batch(key[1])), event)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    # Each driver of a backfill begins with batch 0; that of a retry repeats a batch that was not committed.
    begun_again = {key for key, one in batches.items() if one["seconds"] is None and (key[0] + 1, key[1]) in batches}
    return {
        "batches": [batches[key] for key in sorted(batches) if key not in begun_again][-_BATCHES_AT_MOST:],
        "applications": list(applications.values()),
    }


def _application(event: Unchecked) -> Application:
    ui = event.get("ui")
    return {
        "application_id": str(event["application"]),
        "ui": ui if isinstance(ui, str) and ui.startswith(("http://", "https://")) else None,
        "is_logged": event.get("eventLog") is True,
    }


def _update(batch: Batch, event: Unchecked) -> None:
    if event["event"] == "staged":
        batch["rows"] = int(event["rows"])
    elif event["event"] == "progress" and (event.get("numInputRows") or batch["seconds"] is None):
        batch["at"] = str(event["timestamp"])
        batch["rows"] = batch["rows"] or int(event.get("numInputRows") or 0)
        batch["seconds"] = float(event.get("batchDuration") or 0) / 1000
        speed = event.get("processedRowsPerSecond")
        batch["rows_per_second"] = float(speed) if speed is not None else None
        batch["watermark"] = (event.get("eventTime") or {}).get("watermark")


def _new_batch(number: int) -> Batch:
    return {"batch_id": number, "rows": 0, "at": None, "seconds": None, "rows_per_second": None, "watermark": None}
