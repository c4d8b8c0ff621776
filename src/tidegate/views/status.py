"""``tidegate status``: every pipeline with its last runs and what is pending. Reads only, starts no JVM.

Each pipeline is read once, each broker asked once, and an error of one pipeline stays in its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.core.errors import Caught, DisagreementError
from tidegate.core.outputs import (
    Ahead,
    Error,
    Lost,
    RunReport,
    Sink,
    SourceReport,
    Status,
    Trouble,
    TroubleKind,
    UnreadFile,
)
from tidegate.core.paths import PipelinePaths
from tidegate.core.storage import name_cause
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.tables import AT_A_GLANCE, OF_ONE
from tidegate.runs.recovery.lost_rows import list_lost_rows
from tidegate.runs.recovery.upkeep import find_left
from tidegate.runs.reports import report
from tidegate.runs.reports.report import LIVE_MODES, describe_left, read_newest
from tidegate.runs.reports.schedule import find_last_success, is_behind
from tidegate.runs.restart.table_repair import rebuilding_command
from tidegate.sources.files.findings import list_unread
from tidegate.sources.files.listing import SUB_FOLDER
from tidegate.sources.kafka.brokers import survey_brokers
from tidegate.sources.registry import Connections
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import check_name, list_pipelines, load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import LeaseState, read_lease
from tidegate.state.open_state import describe_open_state, read_open_state, text_of_ms
from tidegate.table.log.files import list_versions
from tidegate.table.publish.publish import describe_missed
from tidegate.views.faults import to_error
from tidegate.views.logs import describe_reading
from tidegate.views.outlook import look_ahead

_SHOWN_RUNS_OF_ONE = 10
_SHOWN_RUNS_OF_EACH = 3
_UNREAD_RUNS = 2
"""A file that so many runs in a row could not read needs a person; until then its writer may be about to finish it."""
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
        "unread": [],
        "changed": [],
        "notes": [],
        "lease": None,
        "watermark": None,
        "state": None,
        "runs": [],
        "sinks": [],
    }
    row = _Row(name, value)
    with Caught() as caught:
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
    row.fault = caught.error
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
    connections = Connections(survey_brokers(project.spec.kafka, starts))
    for row, spec, facts in looked:
        if row.fault is not None:
            continue
        with Caught() as caught:
            at_most = OF_ONE if row.reports is None else AT_A_GLANCE
            ahead = look_ahead(project, spec, facts, connections, row.reports, files_at_most=at_most)
            _fill_ahead(row.value, ahead.plan, ahead.sinks)
            row.value["unread"] = _count_unread(
                ahead.plan["sources"], _live_of(row.value) if row.live is None else row.live
            )
            _add_lease_note(project.paths(row.name), row.value, row.lease)
        row.fault = caught.error


def _fill_ahead(value: Status, plan: Ahead, sinks: Sequence[Sink]) -> None:
    value["sinks"] = list(sinks)
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


def _count_unread(sources: Mapping[str, SourceReport], live: Sequence[RunReport]) -> list[UnreadFile]:
    """List the files that cannot be read, with how many runs in a row have found them so."""
    reported = [{(name, one["path"]) for name, one in list_unread(run["sources"])} for run in live if run["outcome"]]
    found: list[UnreadFile] = []
    for name, one in list_unread(sources):
        runs = next((n for n, paths in enumerate(reported) if (name, one["path"]) not in paths), len(reported))
        found.append({"source": name, "path": one["path"], "why": one["why"], "fix": one["fix"], "runs": runs})
    return found


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


def _add_lease_note(paths: PipelinePaths, value: Status, lease: LeaseState | None) -> None:
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
        if holder.run_id is not None and (reading := describe_reading(paths, holder.run_id)) is not None:
            value["notes"].append(reading)


KINDS: dict[TroubleKind, str] = {
    "held": "held",
    "failed": "failed",
    "missed": "with rows that readers miss",
    "lost": "with lost rows",
    "refused": "would refuse",
    "unknown": "cannot be read",
    "behind": "behind schedule",
    "undone": "with a decision not carried out",
    "unread": "with files that cannot be read",
    "changed": "with changed files",
}
"""Kinds of trouble, the worst first, with their texts in the summary."""


def find_trouble(row: Status, now: datetime | None = None, *, live: Sequence[RunReport] | None = None) -> list[Trouble]:
    """List everything in a row that needs a person, the worst first: ``status --check`` exits with 1 for it.

    ``live`` are its newest live runs, where the row shows none.
    """
    found: list[Trouble] = []

    def add(kind: TroubleKind, message: str) -> None:
        found.append({"kind": kind, "message": message})

    for held in _describe_held(row):
        add("held", held)
    for failed in _find_failed(row, _live_of(row) if live is None else live):
        add("failed", failed)
    for missed in row["missed"]:
        add("missed", f"{missed}; the next run finishes it")
    if (lost := row["lost"]) is not None:
        commands = f"`{lost['command']}`; to accept the loss: `tidegate acknowledge {row['pipeline']} --reason '...'`"
        add("lost", f"{_count_lost(lost)}; to rebuild them: {commands}")
    for error in row["errors"]:
        short, first_line = _name_error(row, error), str(error["message"]).partition("\n")[0]
        add(short["kind"], f"{short['message']}: {first_line}")
    if (since := find_behind(row, now or datetime.now(UTC), live=live)) is not None:
        add("behind", f"behind its schedule {row['schedule']!r}: no successful run since {since}")
    for one in row["decided"]:
        add("undone", f"the decision to {one['decision']} run {one['run_id']} was not carried out")
    if lasting := [one for one in row["unread"] if one["runs"] >= _UNREAD_RUNS]:
        files = count_of(len(lasting), "file or folder", "files or folders")
        first = f"{lasting[0]['path']} ({lasting[0]['why']})"
        add("unread", f"{files} could not be read by the last {lasting[0]['runs']} runs or more, first {first}")
    if row["changed"]:
        files = count_of(len(row["changed"]), "changed file is", "changed files are")
        add("changed", f"{files} not acknowledged")
    return _sort(found)


def _sort(trouble: Sequence[Trouble]) -> list[Trouble]:
    return sorted(trouble, key=lambda one: list(KINDS).index(one["kind"]))


def _name_error(row: Status, error: Error) -> Trouble:
    """The trouble of an error, with its code alone."""
    if error == row["backlog_unknown"]:
        return {"kind": "unknown", "message": error["code"]}
    return {"kind": "refused", "message": f"would refuse: {error['code']}"}


def _describe_held(row: Status) -> list[str]:
    held = [] if row["held"] is None else [f"run {row['held']['run_id']} is held"]
    held += [f"run {one['run_id']} waits for a decision; later runs continue" for one in row["waiting"]]
    for job in row["held_work"]:
        held.append(f"{job['kind']} {job['run_id']} is held ({job['partitions']}); {job['runs']}")
    return held


def _count_lost(lost: Lost) -> str:
    is_file = [one["of"] == "table" or one["path"].endswith(".parquet") for one in lost["files"]]
    lacking = [one["path"] for one, is_one in zip(lost["files"], is_file, strict=True) if not is_one]
    files = [one for one, is_one in zip(lost["files"], is_file, strict=True) if is_one]
    of_table = [one for one in files if one["of"] == "table"]
    found = [describe_partition([*one["partition"].items()]) for one in of_table if one["partition"]]
    partitions = f" ({list_first(sorted(set(found)))})" if found else ""
    whose = [f"of {count_of(len(of_table), 'file')}{partitions}"] if of_table else []
    if others := len(files) - len(of_table):
        whose.append(f"of {count_of(others, 'file')} of quarantine")
    rows = count_of(sum(one["rows"] for one in files), "row")
    found = [f"lost with damaged files and not rebuilt: {rows} {' and '.join(whose)}"] if files else []
    if lacking:
        found.append(f"quarantine was restored from an older copy and lacks {list_first(lacking)}")
    return "; ".join(found)


def _live_of(row: Status) -> list[RunReport]:
    return [run for run in row["runs"] if run["mode"] in LIVE_MODES]


def _find_failed(row: Status, live: Sequence[RunReport]) -> list[str]:
    """Describe failures of the last run and of the last job of each other kind; held ones are reported as held."""
    failed = []
    for run in [*live[:1], *_other_jobs(row)]:
        if run["outcome"] == "failed" and run["error"] is not None:
            code = run["error"]["code"]
            is_live = run["mode"] in LIVE_MODES
            failed.append(
                f"its last run failed ({code})"
                if is_live
                else f"its last {run['mode']} failed ({code}): {run['run_id']}"
            )
    return failed


def _other_jobs(row: Status) -> list[RunReport]:
    held = {work["run_id"] for work in row["held_work"]}
    newest: dict[str, RunReport] = {}
    for run in row["runs"]:
        if run["mode"] not in LIVE_MODES:
            newest.setdefault(run["mode"], run)
    return [run for run in newest.values() if run["run_id"] not in held]


def find_behind(row: Status, now: datetime, *, live: Sequence[RunReport] | None = None) -> str | None:
    """Return since when a pipeline with a schedule has had no successful run.

    None when that is less than two intervals, nothing is pending, it never ran, or it has no schedule. ``live`` as in
    :func:`find_trouble`; other jobs ingest nothing, so their success does not count."""
    runs = _live_of(row) if live is None else live
    if row["schedule"] is None or not row["runs"] or not row["pending"]:
        return None
    since = find_last_success((run["outcome"], run["ended_at"]) for run in runs)
    # With no success among the known runs, there was none since the oldest of them began.
    since = since or min(run["started_at"] for run in runs or row["runs"])
    return since if is_behind(row["schedule"], since, now) else None


def needs_a_person(rows: Sequence[Status]) -> list[str]:
    """A line for each trouble that makes ``status --check`` exit with 1; details are in the row."""
    return [f"{row['pipeline']}: {one['message']}" for row in rows for one in _shorten_trouble(row)]


def _shorten_trouble(row: Status) -> list[Trouble]:
    """The trouble of a row, with only the codes of errors and the number of lost rows."""
    short = [one for one in row["trouble"] if one["kind"] not in ("lost", "refused", "unknown")]
    if row["lost"] is not None:
        short.append({"kind": "lost", "message": _count_lost(row["lost"])})
    return _sort([*short, *(_name_error(row, error) for error in row["errors"])])


def rank(row: Status) -> tuple[int, str]:
    """The key that sorts rows by trouble, the worst first, then by name."""
    kinds = [list(KINDS).index(one["kind"]) for one in row["trouble"]]
    return (min(kinds, default=len(KINDS)), row["pipeline"])


def summarise(rows: Sequence[Status]) -> str:
    """``22 pipelines: 2 held, 1 failed``: each pipeline counts once, for its worst trouble."""
    worst = [row["trouble"][0]["kind"] for row in rows if row["trouble"]]
    counts = [f"{worst.count(kind)} {words}" for kind, words in KINDS.items() if kind in worst]
    count = count_of(len(rows), "pipeline")
    return f"{count}: {', '.join(counts)}" if counts else f"{count}, nothing needs a person"
