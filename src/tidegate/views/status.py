"""``tidegate status``: every pipeline with its last runs and what is pending. Reads only, starts no JVM.

Each pipeline is read once, each broker asked once, and an error of one pipeline stays in its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.core.errors import DisagreementError
from tidegate.core.outputs import Ahead, Lost, RunReport, SourceReport, Status
from tidegate.core.paths import PipelinePaths
from tidegate.core.storage import name_cause
from tidegate.core.words import count_of
from tidegate.runs.deliver import SinkState
from tidegate.runs.preflight.damage import AT_A_GLANCE, OF_ONE
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.lost_rows import list_lost_rows
from tidegate.runs.recovery.upkeep import find_left
from tidegate.runs.reports import report
from tidegate.runs.reports.report import LIVE_MODES, describe_left, read_newest
from tidegate.runs.restart.damaged import rebuilding_command
from tidegate.sources.files.listing import SUB_FOLDER
from tidegate.sources.registry import connect
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import check_name, list_pipelines, load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import LeaseState, read_lease
from tidegate.state.open_state import describe_open_state, read_open_state, text_of_ms
from tidegate.table.log.files import list_versions
from tidegate.table.publish.missed import describe_missed
from tidegate.views.faults import to_error
from tidegate.views.outlook import look_ahead
from tidegate.views.trouble import find_trouble, rank

_SHOWN_RUNS_OF_ONE = 10
_SHOWN_RUNS_OF_EACH = 3
_LOOKED_THROUGH = 100
"""Reports that are searched for a live run, when all that are shown are of other jobs."""


@dataclass
class _Row:
    """A row while it is filled: what was read so far, and the error that ended the reading."""

    name: str
    value: Status
    spec: PipelineSpec | None = None
    facts: Facts | None = None
    lease: LeaseState | None = None
    fault: Exception | None = None
    reports: list[report.RunReport] | None = None
    """Its newest reports, where no more are to be read."""
    live: list[RunReport] | None = None
    """Its newest live runs, where all that are shown are of other jobs; else None."""


def project_status(project: Project, name: str | None, limit: int | None = None) -> list[Status]:
    """List the pipelines, the worst first, each with its newest runs (at most ``limit``), backlog, lease and trouble.

    An error while a pipeline is read is in its row; its ``backlog`` is then None, and the error is also in
    ``backlog_unknown``. With a ``name``, errors other than a DisagreementError are raised: a bad spec, a wrong name.
    """
    if name is not None:
        rows = [_read_row(project, name, limit or _SHOWN_RUNS_OF_ONE, at_a_glance=False)]
    else:
        shown = limit or _SHOWN_RUNS_OF_EACH
        rows = [_read_row(project, one, shown, at_a_glance=True) for one in list_pipelines(project)]
    _look_at_sources(project, rows)
    for row in rows:
        if row.fault is not None:
            if name is not None and not isinstance(row.fault, DisagreementError):
                raise name_cause(row.fault, project.root) or row.fault
            unknown = row.value["backlog_unknown"] = to_error(project, row.name, row.fault)
            row.value["errors"].append(unknown)
        row.value["trouble"] = find_trouble(row.value, live=row.live)
    return sorted((row.value for row in rows), key=rank)


def _read_row(project: Project, name: str, runs: int, *, at_a_glance: bool) -> _Row:
    value: Status = {
        "pipeline": name,
        "schedule": None,
        "table": None,
        "pending": False,
        "backlog": None,
        "backlog_unknown": None,
        "held": None,
        "waiting": [],
        "held_work": [],
        "errors": [],
        "trouble": [],
        "missed": [],
        "lost": None,
        "decided": [],
        "changed": [],
        "notes": [],
        "lease": None,
        "watermark": None,
        "state": None,
        "runs": [],
        "sinks": [],
    }
    row = _Row(name, value)
    try:
        paths = project.paths(check_name(name)).pinned()
        reports, unreadable = read_newest(paths, runs, by_name=at_a_glance)
        value["runs"] = [one.view() for one in reports]
        row.reports = reports if at_a_glance else None
        if reports and not any(one.mode in LIVE_MODES for one in reports):
            more = read_newest(paths, _LOOKED_THROUGH)[0]
            row.live = [one.view() for one in more if one.mode in LIVE_MODES]
        value["notes"] += [f"a run report cannot be read: {path}" for path in unreadable]
        row.lease = read_lease(paths)
        value["lease"] = None if row.lease is None else row.lease.to_json()
        row.spec = as_read(load_pipeline(project, name), paths)
        value["schedule"] = row.spec.schedule
        row.facts = gather_facts(paths, row.spec, at_a_glance=at_a_glance, needs_log=False)
        if row.facts.table is not None:
            value["table"] = {"path": str(paths.table), "version": row.facts.table.version}
        elif row.facts.log_fault is not None:
            value["table"] = {"path": str(paths.table), "version": max(list_versions(paths.table), default=-1)}
        value["lost"] = _find_lost(paths, row.spec, row.facts)
        _fill_open_state(paths, row.facts, value)
        # A run in progress repairs both.
        is_running = row.lease is not None and row.lease.state == "held"
        if not is_running and row.facts.log_fault is None:
            value["missed"] = describe_missed(paths)
            value["notes"] += [
                f"the {target}: {line}"
                for target, _, left in find_left(paths, row.spec, row.facts)
                for line in left.describe()
            ]
    except Exception as error:  # noqa: BLE001 - an error of one pipeline must not hide the others
        row.fault = error
    return row


def _find_lost(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> Lost | None:
    lost = list_lost_rows(paths)
    if not lost:
        return None
    partitions = [one.partition for one in lost if one.target == "table"]
    return {
        "rows": sum(one.rows for one in lost),
        "files": [one.to_json() for one in lost],
        "command": rebuilding_command(paths, spec, facts, partitions, len(partitions) < len(lost)).text,
    }


def _fill_open_state(paths: PipelinePaths, facts: Facts, value: Status) -> None:
    note = read_open_state(paths, facts.query_id)
    if note is not None:
        value["watermark"] = text_of_ms(note.watermark_ms)
        value["state"] = describe_open_state(note)


def _look_at_sources(project: Project, rows: Sequence[_Row]) -> None:
    """Fill in what the next runs would read."""
    looked = [(row, row.spec, row.facts) for row in rows if row.spec is not None and row.facts is not None]
    starts = [(spec, facts.birth.sources if facts.birth is not None else {}) for _, spec, facts in looked]
    connections = connect(project, starts)
    for row, spec, facts in looked:
        if row.fault is not None:
            continue
        try:
            at_most = OF_ONE if row.reports is None else AT_A_GLANCE
            ahead = look_ahead(project, spec, facts, connections, row.reports, files_at_most=at_most)
        except Exception as error:  # noqa: BLE001 - as above
            row.fault = error
        else:
            _fill_ahead(row.value, ahead.plan, ahead.sinks)
            _add_lease_note(row.value, row.lease)


def _fill_ahead(value: Status, plan: Ahead, sinks: Sequence[SinkState]) -> None:
    value["sinks"] = [sink.to_json() for sink in sinks]
    value["held"] = plan["held"]
    value["waiting"] = plan["waiting"]
    value["held_work"] = plan["held_work"]
    value["decided"] = plan["decided"]
    value["pending"] = plan["pending"]
    value["errors"] += plan["errors"]
    value["notes"] += [*plan["notes"], *_describe_sub_folders(plan["sources"])]
    value["changed"] = plan["changed"]
    value["backlog_unknown"] = plan["sources_unknown"]
    if value["backlog_unknown"] is None:
        value["backlog"] = {
            source: {"files": one["files"], "bytes": one["bytes"]}
            if "files" in one
            else {"offsets": one["pending_offsets"]}
            for source, one in plan["sources"].items()
        }


def _describe_sub_folders(sources: Mapping[str, SourceReport]) -> list[str]:
    """Describe folders that a source does not read, although the user may expect that it does."""
    found = {
        name: [left["path"] for left in one.get("skipped", ()) if left["why"] == SUB_FOLDER]
        for name, one in sources.items()
    }
    return [
        f"source {name}: {count_of(len(folders), 'sub-folder is', 'sub-folders are')} skipped (only k=v folders are "
        f"followed), first {folders[0]}"
        for name, folders in found.items()
        if folders
    ]


def _add_lease_note(value: Status, lease: LeaseState | None) -> None:
    if lease is None:
        return
    holder = lease.holder
    if lease.state == "dead":
        value["notes"].append(describe_left(holder, "the next run"))
    if lease.state in ("held", "parked"):
        value["notes"].append(
            f"lease: {lease.state} by run {holder.run_id} ({holder.command}, pid {holder.pid} on {holder.host}) since "
            f"{holder.acquired_at}"
        )
