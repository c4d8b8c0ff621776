"""The page of a pipeline: its history, and parts that the page loads separately because they cost more
(:func:`look_at_table`, :func:`look_at_quarantine`, :func:`look_at_state`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from tidegate.core import storage
from tidegate.core.errors import Caught
from tidegate.core.outputs import Change, LeaseRow, OpenState, QuarantineCount, QuarantinedRecord
from tidegate.core.paths import PipelinePaths
from tidegate.rework.held import find_held_records
from tidegate.runs.preflight.definition import Edit, list_changes, list_edits, list_settings
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import as_read, read_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.state.lease import read_lease
from tidegate.state.manifest import read_all_manifests
from tidegate.state.open_state import describe_open_state, read_open_state, text_of_ms
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions, read_actions
from tidegate.table.log.snapshot import DataFile, data_file
from tidegate.table.log.state import has_log, read_log
from tidegate.table.quarantine.read import list_quarantine, show_quarantine
from tidegate.table.schema import fields_of
from tidegate.views.pages.pipelines import PipelineRow, look_at
from tidegate.views.pages.runs import RunRow, Scheduled
from tidegate.views.pages.specs import Map, describe_expected, list_expected, read_spec, read_specs

HISTORY_CHOICES = (50, 100, 500)
_PARTITIONS_AT_MOST = 400
_VERSIONS_AT_MOST = 50
_CAUSES_AT_MOST = 100
_SAMPLES_AT_MOST = 20


RuleOutcome = Literal["held", "quarantined", "failed"]


@dataclass
class RuleHistory:
    """A rule in each run, oldest first; None where it was not checked. ``quarantined`` are the runs in which it held
    because rows that broke it were put into quarantine."""

    rule: str
    severity: str
    expected: str | None
    quarantines: bool
    results: list[RuleOutcome | None]
    failed: int = 0
    quarantined: int = 0
    judged: int = 0


class PipelinePage(TypedDict):
    """A pipeline's history: ``runs`` newest first; ``row`` has their sums, and what the pipeline reads and feeds."""

    row: PipelineRow
    runs: list[RunRow]
    shown: int
    rules: list[RuleHistory]
    steps: list[str]


class Partition(TypedDict):
    """A partition of the table."""

    name: str
    files: int
    rows: int
    bytes: int


class Version(TypedDict):
    """A version of the table: rows that it ``added``, files that it ``removed``."""

    version: int
    at: str | None
    operation: str
    run_id: str | None
    added: int
    removed: int


@dataclass
class TablePart:
    """The table's size and content now, and its newest versions, newest first."""

    path: str
    version: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    columns: list[tuple[str, str]] = field(default_factory=list)
    partition_by: list[str] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    partitions_total: int = 0
    versions: list[Version] = field(default_factory=list)
    fault: str | None = None


@dataclass
class QuarantinePart:
    """The quarantine by cause, with what held increments would add. Texts of records are None unless the project shows
    data."""

    shows_data: bool
    records: int = 0
    held: int = 0
    causes: list[QuarantineCount] = field(default_factory=list)
    causes_total: int = 0
    samples: list[QuarantinedRecord] = field(default_factory=list)
    fault: str | None = None


@dataclass
class StatePart:
    """Checkpoint and state. ``changes`` of the spec are those since the last run that read something, ``edits`` earlier
    ones, newest first."""

    query_id: str | None = None
    last_planned: int | None = None
    last_committed: int | None = None
    in_flight: int | None = None
    staged: int = 0
    lease: LeaseRow | None = None
    watermark: str | None = None
    open: OpenState | None = None
    settings: list[tuple[str, str]] = field(default_factory=list)
    changes_since: str | None = None
    changes: list[Change] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def look_at_pipeline(
    project: Project, name: str, names: Sequence[str], limit: int, scheduled: Sequence[Scheduled] = ()
) -> PipelinePage:
    """Make the page.

    Args:
        names: The pipelines that the user may see, among which neighbours are shown.
        scheduled: The pipeline's runs by the scheduler.
    """
    around = Map.of(project, read_specs(project, list({*names, name})))
    row = look_at(project, name, around, limit, scheduled)
    runs = row.runs
    steps = list(dict.fromkeys(step for run in runs for step in run.steps))
    return {"row": row, "runs": runs, "shown": limit, "rules": _list_rules(project, name, runs), "steps": steps}


def _list_rules(project: Project, name: str, runs: Sequence[RunRow]) -> list[RuleHistory]:
    """Each rule over the runs that were judged, oldest first."""
    judged = [run for run in reversed(runs) if run.rules]
    if not judged:
        return []
    suite = list_expected(project, name)
    found: dict[str, RuleHistory] = {}
    for place, run in enumerate(judged):
        for result in run.rules:
            rule, spec = result["rule"], suite.get(result["rule"])
            if rule not in found:
                empty: list[RuleOutcome | None] = [None] * len(judged)
                found[rule] = RuleHistory(
                    rule=rule,
                    severity=result["severity"],
                    expected=None if spec is None else describe_expected(spec),
                    quarantines=spec is not None and spec.quarantine,
                    results=empty,
                )
            history = found[rule]
            outcome: RuleOutcome = "quarantined" if result.get("quarantined") else "held"
            history.results[place] = outcome if result["success"] else "failed"
            history.failed += not result["success"]
            history.quarantined += history.results[place] == "quarantined"
            history.judged += 1
    return list(found.values())


_sizes: dict[Path, tuple[storage.Stat, TablePart]] = {}
"""{table: the stat of its newest commit, and the size at that commit}."""


def look_at_size(project: Project, name: str) -> TablePart:
    """Find the size of the table by its log, which is read again only for a newer version."""
    table = project.paths(name).table
    part = TablePart(str(table))
    with Caught() as caught:
        newest = max(list_versions(table), default=None)
        if newest is None:
            return part
        found = storage.stat(table / LOG_FOLDER / commit_name(newest))
        if table in _sizes and _sizes[table][0] == found:
            return _sizes[table][1]
        snapshot = read_log(table)
        _fill_size(part, snapshot.version, snapshot.files())
        _sizes[table] = found, part
    part.fault = caught.text
    return part


def _fill_size(part: TablePart, version: int, files: Sequence[DataFile]) -> None:
    part.version, part.files = version, len(files)
    part.rows, part.bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)


def look_at_table(project: Project, name: str) -> TablePart:
    """Describe the table by its log."""
    paths = project.paths(name)
    part = TablePart(str(paths.table))
    with Caught() as caught:
        if not has_log(paths.table):
            return part
        snapshot = read_log(paths.table)
        files = snapshot.files()
        _fill_size(part, snapshot.version, files)
        part.partition_by, part.columns = snapshot.partition_columns, _list_columns(snapshot.schema_json)
        partitions: dict[str, Partition] = {}
        for file in files if snapshot.partition_columns else ():
            key = ", ".join(f"{column}={file.partition.get(column)}" for column in snapshot.partition_columns)
            one = partitions.setdefault(key, {"name": key, "files": 0, "rows": 0, "bytes": 0})
            one["files"] += 1
            one["rows"] += file.rows
            one["bytes"] += file.size_bytes
        part.partitions_total = len(partitions)
        part.partitions = [partitions[key] for key in sorted(partitions)[-_PARTITIONS_AT_MOST:]]
        newest = list_versions(paths.table)[: -_VERSIONS_AT_MOST - 1 : -1]
        part.versions = [_describe_version(paths, one) for one in newest]
    part.fault = caught.text
    return part


def _list_columns(schema_json: str) -> list[tuple[str, str]]:
    fields = fields_of(schema_json)
    return [(str(one["name"]), str(kind if isinstance(kind := one["type"], str) else kind["type"])) for one in fields]


def _describe_version(paths: PipelinePaths, version: int) -> Version:
    made: Version = {"version": version, "at": None, "operation": "", "run_id": None, "added": 0, "removed": 0}
    try:
        actions = read_actions(paths.table, version)
        info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        made["at"] = text_of_ms(int(info["timestamp"])) if info.get("timestamp") is not None else None
        made["operation"], made["run_id"] = str(info.get("operation", "")), info.get("tidegate.run_id")
        made["added"] = sum(data_file(action["add"]).rows for action in actions if "add" in action)
        made["removed"] = sum("remove" in action for action in actions)
    except (OSError, ValueError, TypeError, KeyError):
        made["operation"] = "its commit file cannot be read"
    return made


def look_at_quarantine(project: Project, name: str, *, shows_data: bool) -> QuarantinePart:
    """Describe the quarantine by cause, with samples where the project shows data. Reads all of it except the texts."""
    paths = project.paths(name)
    part = QuarantinePart(shows_data)
    with Caught() as caught:
        by_cause: dict[tuple[str | None, str, str | None, bool], QuarantineCount] = {}
        for one in list_quarantine(paths.quarantine, None, find_held_records(paths)):
            detail = one["detail"] if shows_data else None
            cause = one["source"], one["reason"], detail, one["held"]
            known = by_cause.get(cause)
            if known is None:
                example = one["example"] if shows_data else None
                by_cause[cause] = {**one, "detail": detail, "example": example}
            else:
                known["records"] += one["records"]
                known["first_at"] = min(known["first_at"], one["first_at"])
                known["last_at"] = max(known["last_at"], one["last_at"])
        causes = sorted(by_cause.values(), key=lambda one: (not one["held"], -one["records"]))
        part.records = sum(one["records"] for one in causes if not one["held"])
        part.held = sum(one["records"] for one in causes if one["held"])
        part.causes_total = len(causes)
        part.causes = causes[:_CAUSES_AT_MOST]
        if shows_data:
            part.samples = show_quarantine(paths.quarantine, None, _SAMPLES_AT_MOST)
    part.fault = caught.text
    return part


def look_at_state(project: Project, name: str) -> StatePart:
    """Describe checkpoint, staged batches, lease, state of the query, the spec and its changes."""
    part = StatePart()
    for fill in (_fill_checkpoint, _fill_lease, _fill_spec):
        with Caught() as caught:
            fill(part, project, project.paths(name).pinned())
        part.faults += [caught.text] if caught.text is not None else []
    return part


def _fill_checkpoint(part: StatePart, project: Project, paths: PipelinePaths) -> None:
    birth = read_birth(paths)
    checkpoint = read_checkpoint(paths.checkpoint)
    part.query_id = checkpoint.query_id or (None if birth is None else birth.query_id)
    part.last_planned, part.last_committed = checkpoint.last_offset, checkpoint.last_commit
    part.in_flight = checkpoint.in_flight
    part.staged = sum(len(found) for found in read_all_manifests(paths.manifests).values())
    note = read_open_state(paths, part.query_id)
    if note is not None:
        part.watermark, part.open = text_of_ms(note.watermark_ms), describe_open_state(note)


def _fill_lease(part: StatePart, project: Project, paths: PipelinePaths) -> None:
    lease = read_lease(paths)
    part.lease = None if lease is None else lease.to_json()


def _fill_spec(part: StatePart, project: Project, paths: PipelinePaths) -> None:
    part.edits = list_edits(paths)[::-1]
    spec = read_spec(project, paths.name)
    if isinstance(spec, PipelineSpec):
        part.settings = list(list_settings(spec))
        part.changes_since, part.changes = list_changes(project, as_read(spec, paths), paths)
