"""The page of a run, from its report, its progress, the lease and the current suite."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from typing_extensions import TypedDict

from tidegate.core import storage
from tidegate.core.outputs import Error, LeaseRow
from tidegate.core.paths import PipelinePaths
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.lease import LeaseState, read_lease
from tidegate.views.faults import (
    STATE_FAULTS,
    UNREADABLE,
    check_report_size,
    describe_unreadable,
    name_unreadable,
)
from tidegate.views.pages.flow import Flow, make_flow
from tidegate.views.pages.held import Undecided, find_undecided
from tidegate.views.pages.progress import Application, Batch, read_progress
from tidegate.views.pages.rules import describe_expected, list_expected, show_value
from tidegate.views.pages.runs import (
    RunRow,
    RunState,
    is_in_progress,
    list_runs,
    make_row,
    name_end,
)
from tidegate.views.pages.specs import read_spec

_LOOKED_THROUGH = 60
_APPLICATIONS_AT_MOST = 5
_PATHS_AT_MOST = 20
_ENDED = ("success", "failed")


class Rule(TypedDict):
    """The result of a rule: ``expected`` is the rule in the current suite, None where it no longer has it;
    ``quarantined`` counts rows that it put into quarantine before the audit."""

    rule: str
    type: str
    severity: str
    success: bool
    expected: str | None
    columns: list[str]
    quarantines: bool
    quarantined: int
    unexpected_count: int | None
    observed: str | None


class Offsets(TypedDict):
    """The offsets that were read of a partition, from ``first`` up to ``until``, which is not included."""

    topic: str
    partition: str
    first: int
    until: int


class Source(TypedDict):
    """What was read of a source. ``remarks`` are (what, how many, the first of them)."""

    name: str
    rows: int
    malformed: int
    late: int
    partly_late: int
    files: int | None
    bytes: int | None
    backlog: int | None
    offsets: list[Offsets]
    unknown_fields: dict[str, str]
    unknown_records: int
    schema: str | None
    static: str | None
    replayable: bool
    remarks: list[tuple[str, int, list[str]]]


class KeptFile(TypedDict):
    """A driver's log that is kept, and its step."""

    step: str
    path: str
    bytes: int


class SparkLink(TypedDict):
    """A page of Spark's UI on an application of the run."""

    name: str
    address: str


class RunPage(TypedDict):
    """One run. ``report`` is the report itself; ``fault`` says why there is none yet. ``newer`` and ``older`` are the
    next and the previous run."""

    pipeline: str
    run_id: str
    state: RunState
    fault: str | None
    row: RunRow | None
    report: dict[str, Any] | None
    error: Error | None
    is_live: bool
    flow: Flow | None
    batches: list[Batch]
    rules: list[Rule]
    sources: list[Source]
    lease: LeaseRow | None
    undecided: Undecided | None
    logs: list[KeptFile]
    spark: list[SparkLink]
    notes: list[str]
    newer: str | None
    older: str | None


def look_at_run(project: Project, name: str, run_id: str) -> RunPage:
    """Make a run's page. Errors are in the page; raises OSError only for a state folder that cannot be read."""
    paths = project.paths(name)
    page: RunPage = {
        "pipeline": name,
        "run_id": run_id,
        "state": "unreadable",
        "fault": None,
        "row": None,
        "report": None,
        "error": None,
        "is_live": False,
        "flow": None,
        "batches": [],
        "rules": [],
        "sources": [],
        "lease": None,
        "undecided": None,
        "logs": [],
        "spark": [],
        "notes": [],
        "newer": None,
        "older": None,
    }
    path = paths.report(run_id)
    try:
        lease = read_lease(paths)
        check_report_size(storage.stat(path).size_bytes)
        data = storage.read(path)
    except FileNotFoundError:
        page["fault"] = "No report of this run yet: it waits for its turn, or has not come to its first step."
        page["is_live"], page["state"] = True, "running"
        return page
    except OSError as error:
        hide_report(page, paths, describe_unreadable(error))
        return page
    try:
        report: dict[str, Any] = json.loads(data)
        _fill(page, project, paths, report, lease)
    except UNREADABLE as error:
        hide_report(page, paths, describe_unreadable(error))
    return page


def settle(page: RunPage, state: str | None) -> None:
    """Correct the page of a run that is in progress or waits for its turn, by its ``state`` in the scheduler.

    ``state`` is None where the scheduler has no such run. A run whose process has the lease is in progress, whatever
    the scheduler says."""
    if not page["is_live"]:
        return
    if page["report"] is None and state in (None, *_ENDED):
        page["is_live"], page["state"] = False, "no_report"
    elif state == "failed" and (page["lease"] is None or page["lease"]["state"] != "held"):
        page["is_live"], page["state"] = False, name_end(None if page["row"] is None else page["row"]["decision"])
    elif state == "queued":
        page["state"] = "queued"


def hide_report(page: RunPage, paths: PipelinePaths, why: str) -> None:
    """Replace the report on the page by the reason why it cannot be shown."""
    page["state"], page["is_live"] = "unreadable", False
    page["row"], page["report"], page["flow"], page["rules"], page["sources"] = None, None, None, [], []
    page["error"] = name_unreadable(paths.report(page["run_id"]), why)


def _fill(
    page: RunPage, project: Project, paths: PipelinePaths, report: dict[str, Any], lease: LeaseState | None
) -> None:
    row = make_row(report)
    page["row"], page["report"], page["error"] = row, report, report.get("error")
    newest = [one["run_id"] for one in list_runs(paths, _LOOKED_THROUGH).rows]
    is_newest = True
    if row["run_id"] in newest:
        place = newest.index(row["run_id"])
        is_newest = place == 0
        page["newer"] = newest[place - 1] if place else None
        page["older"] = newest[place + 1] if place + 1 < len(newest) else None
    page["state"] = row["state"]
    if row["state"] == "running":
        page["is_live"] = is_in_progress(row["run_id"], row["started_at"], lease, is_newest=is_newest)
        page["state"] = "running" if page["is_live"] else name_end(row["decision"])
    if lease is not None and lease.holder.run_id == row["run_id"]:
        page["lease"] = lease.to_json()
    page["flow"] = make_flow(report)
    progress = read_progress(paths, row["run_id"])
    page["batches"] = progress["batches"]
    page["spark"] = list(_list_spark(project, progress["applications"], is_live=page["is_live"]))
    page["rules"] = _list_rules(project, page["pipeline"], row)
    page["sources"] = [_source(name, one) for name, one in report["sources"].items()]
    page["logs"] = _list_logs(paths, row["run_id"])
    page["notes"] = [str(note) for note in (report.get("notes") or [])]
    page["notes"] += [str(one) for one in ((report.get("quality") or {}).get("warnings") or [])]
    try:
        page["undecided"] = find_undecided(paths, row["run_id"])
    except STATE_FAULTS:
        page["undecided"] = None


def _list_spark(project: Project, applications: Sequence[Application], *, is_live: bool) -> Iterator[SparkLink]:
    """List pages of Spark on the run's applications: the UI of the newest while it runs, of others in the history."""
    history = project.spec.ui.spark_history
    for one in applications[-_APPLICATIONS_AT_MOST:]:
        if is_live and one["ui"] is not None and one is applications[-1]:
            yield {"name": "Spark UI", "address": one["ui"]}
        elif history is not None and one["is_logged"]:
            place = f"{history.rstrip('/')}/history/{quote(one['application_id'], safe='')}/"
            yield {"name": f"Spark history of {one['application_id']}", "address": place}


def _list_rules(project: Project, name: str, row: RunRow) -> list[Rule]:
    suite = list_expected(project, name) if row["rules"] else {}
    spec_now = read_spec(project, name)
    limit = spec_now.quality.max_quarantine_share if isinstance(spec_now, PipelineSpec) else None
    rules: list[Rule] = []
    for one in row["rules"]:
        spec = suite.get(one["rule"])
        rules.append(
            {
                "rule": one["rule"],
                "type": one["type"],
                "severity": one["severity"],
                "success": one["success"],
                "expected": None if spec is None else describe_expected(spec),
                "columns": [] if spec is None else list(spec.columns),
                "quarantines": spec is not None and spec.quarantine,
                "quarantined": one.get("quarantined") or 0,
                "unexpected_count": one["unexpected_count"],
                "observed": None if one["observed_value"] is None else show_value(one["observed_value"]),
            }
        )
        if one["rule"] == "max_quarantine_share":  # not of the suite, and its figures are shares
            observed = one["observed_value"]
            rules[-1]["expected"] = "the limit of tidegate" if limit is None else f"at most {limit:.4g} of the records"
            rules[-1]["observed"] = f"{observed:.4g}" if isinstance(observed, int | float) else None
    return sorted(rules, key=lambda rule: (rule["success"], not rule["quarantined"], rule["severity"] != "critical"))


def _source(name: str, value: Mapping[str, Any]) -> Source:
    offsets: list[Offsets] = []
    for topic, partitions in sorted((value.get("offsets") or {}).items()):
        for partition, (first, until) in sorted(partitions.items(), key=lambda one: int(one[0])):
            offsets.append({"topic": topic, "partition": partition, "first": int(first), "until": int(until)})
    backlog = value.get("backlog")
    return {
        "name": name,
        "rows": int(value.get("rows", 0)),
        "malformed": int(value.get("malformed", 0)),
        "late": int(value.get("late", 0)),
        "partly_late": int(value.get("partly_late", 0)),
        "files": None if value.get("files") is None else int(value["files"]),
        "bytes": None if value.get("bytes") is None else int(value["bytes"]),
        "backlog": None if backlog is None else int(backlog),
        "offsets": offsets,
        "unknown_fields": {str(key): str(where) for key, where in (value.get("unknown_fields") or {}).items()},
        "unknown_records": int(value.get("unknown_records", 0)),
        "schema": value.get("schema"),
        "static": None if value.get("static") is None else str(value["static"]),
        "replayable": value.get("replayable") is not False,
        "remarks": list(_list_remarks(value)),
    }


def _list_remarks(value: Mapping[str, Any]) -> Sequence[tuple[str, int, list[str]]]:
    remarks: list[tuple[str, int, list[str]]] = []
    for key, what in (
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


def _list_logs(paths: PipelinePaths, run_id: str) -> list[KeptFile]:
    found: list[KeptFile] = []
    for step, path in (("ingest", paths.driver_log(run_id)), ("deliver", paths.delivery_log(run_id))):
        try:
            found.append({"step": step, "path": str(path), "bytes": storage.stat(path).size_bytes})
        except OSError:
            continue
    return found
