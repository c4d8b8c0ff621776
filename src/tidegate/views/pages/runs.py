"""Runs as the pages show them: a row for each of the newest reports, including those that cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from typing_extensions import TypedDict

from tidegate.core import storage
from tidegate.core.outputs import Error, RowKey, RuleResult
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.quality.verdict import Quarantined
from tidegate.runs.reports.report import FINAL_OUTCOMES, LIVE_MODES, ROW_KEYS, RUN_STATES, RunState, choose_recent
from tidegate.sources.files.findings import describe_unread
from tidegate.state.lease import LeaseState
from tidegate.views.faults import UNREADABLE, Unchecked, check_report_size, describe_unreadable
from tidegate.views.pages.specs import is_settled

_COUNT_AT_MOST = 1 << 63
_REMEMBERED = 25_000
_REMEMBERED_LISTS = 2_000
_PARTITIONS_AT_MOST = 4
_REFUSED_AT_MOST = 5
"""How many refused forms are shown: more would hide the runs of the pipeline."""
_OPEN_AT_MOST = timedelta(hours=26)
"""How long a run without an outcome may be between two of its tasks: somewhat longer than a timeout of a day."""


class Scheduled(TypedDict):
    """A run that is queued, running or failed in the scheduler. ``is_live``: it ingests records; ``decides_on`` is the
    run on which it carries out a ``decision``, if any; ``refused`` is why its task does not accept its form."""

    run_id: str
    state: str
    started_at: str
    ended_at: str | None
    is_live: bool
    decides_on: str | None
    decision: str | None
    refused: Error | None


class Taken(TypedDict):
    """What a run read of a source: ``offsets`` as text, of the first partitions; topics have no files and bytes."""

    rows: int
    files: int | None
    bytes: int | None
    offsets: str


@dataclass(frozen=True)
class RunRow:
    """One run. ``quarantined`` counts malformed, late and rejected records. ``published_by`` is another run, whose
    figures include those of this one. ``error`` is [code, message]; ``unread`` describes files that cannot be read."""

    run_id: str
    state: RunState
    started_at: str
    mode: str = ""
    is_live: bool = True
    ended_at: str | None = None
    seconds: float | None = None
    steps: dict[str, float] = field(default_factory=dict)
    rows: dict[RowKey, int] = field(default_factory=lambda: dict.fromkeys(ROW_KEYS, 0))
    quarantined: int = 0
    quarantine_share: float | None = None
    sources: dict[str, Taken] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    batches: int = 0
    watermark: str | None = None
    verdict: str | None = None
    rules: list[RuleResult] = field(default_factory=list)
    version: int | None = None
    published_by: str | None = None
    decision: str | None = None
    error: list[str] | None = None


@dataclass(frozen=True)
class Runs:
    """The newest runs of a pipeline, newest first; ``total`` is how many reports it keeps."""

    rows: list[RunRow]
    total: int

    @property
    def live(self) -> list[RunRow]:
        """Those that ingest records."""
        return [row for row in self.rows if row.is_live]

    @property
    def counted(self) -> list[RunRow]:
        """Live runs whose figures can be summed: those that are over, unless a shown run has published their increment.

        A held increment is neither in the table nor in quarantine."""
        shown = {row.run_id for row in self.rows}
        return [row for row in self.live if row.state in FINAL_OUTCOMES and row.published_by not in shown]


@dataclass(frozen=True)
class _Listed:
    """The newest runs in a folder that was last changed at ``changed_ns``, and their files."""

    changed_ns: int
    files: list[tuple[storage.Stat, Path]]
    rows: list[RunRow]
    total: int

    def is_current(self) -> bool:
        """Return whether no file has changed: a backup may be restored into a file, which does not change the
        folder."""
        try:
            return all(storage.stat(path) == stat for stat, path in self.files)
        except OSError:
            return False


_lists: dict[tuple[Path, int], _Listed] = {}
"""Reports are replaced by a rename, so a folder that has not changed has no newer ones."""


def list_runs(
    paths: PipelinePaths, limit: int, lease: LeaseState | None = None, scheduled: Sequence[Scheduled] = ()
) -> Runs:
    """List the newest ``limit`` runs, including those that failed in the scheduler before they left a report.

    Reads only these reports. Raises OSError when the folder cannot be listed."""
    listed = _list(paths.runs, limit)
    failed = {one["run_id"]: one for one in scheduled if one["state"] == "failed"}
    rows = [_settle(row, lease, failed, is_newest=number == 0) for number, row in enumerate(listed.rows)]
    unreported = list(_list_unreported(paths, listed, failed.values()))
    if unreported:
        rows = sorted([*rows, *unreported], key=lambda row: row.started_at, reverse=True)[:limit]
    return Runs(rows, listed.total + len(unreported))


def _list_unreported(paths: PipelinePaths, listed: _Listed, failed: Iterable[Scheduled]) -> Iterator[RunRow]:
    """Make rows for runs without a report, which failed before their first step, such as by a broken DAG file or a
    refused form: that one says nothing of the pipeline."""
    left = _REFUSED_AT_MOST
    shown = {row.run_id for row in listed.rows}
    # Reports of older runs may have expired.
    since = min((row.started_at for row in listed.rows), default="") if listed.total > len(listed.rows) else ""
    for one in failed:
        if one["run_id"] in shown or one["started_at"] < since or storage.exists(paths.report(one["run_id"])):
            continue
        at, refused = one["started_at"], one["refused"]
        if refused is None:
            yield RunRow(one["run_id"], "no_report", at, ended_at=one["ended_at"], is_live=one["is_live"])
        elif left > 0:
            left -= 1
            why = [refused["code"], refused["message"]]
            yield RunRow(one["run_id"], "refused", at, ended_at=one["ended_at"], is_live=False, error=why)


def _list(folder: Path, limit: int) -> _Listed:
    try:
        changed_ns = storage.stat(folder).modified_ns
    except FileNotFoundError:
        return _Listed(0, [], [], 0)
    known = _lists.get((folder, limit))
    if known is not None and known.changed_ns == changed_ns and known.is_current():
        return known
    names = [name for name in storage.list_names(folder) if name.endswith(".json") and not name.startswith(".")]
    found: list[tuple[storage.Stat, Path]] = []
    for name in choose_recent(names, limit):
        path = folder / name
        try:
            found.append((storage.stat(path), path))
        except OSError:
            continue  # pruned meanwhile
    newest = sorted(found, key=lambda one: one[0].modified_ns, reverse=True)[:limit]
    rows = sorted((_read(path, stat) for stat, path in newest), key=lambda row: row.started_at, reverse=True)
    listed = _Listed(changed_ns, newest, rows, len(names))
    # An unreadable report may become readable (permissions, a disk) without a change of the folder.
    if is_settled(storage.Stat(0, changed_ns)) and all(row.state != "unreadable" for row in rows):
        if len(_lists) >= _REMEMBERED_LISTS:
            _lists.clear()
        _lists[folder, limit] = listed
    return listed


@lru_cache(_REMEMBERED)
def _read_row(path: Path, found: storage.Stat) -> RunRow:
    """Read a report; ``found`` distinguishes its versions."""
    return make_row(json.loads(storage.read(path)))


def _read(path: Path, found: storage.Stat) -> RunRow:
    try:
        check_report_size(found.size_bytes)
        return (_read_row if is_settled(found) else _read_row.__wrapped__)(path, found)
    except UNREADABLE as error:
        run_id = unquote(path.name.removesuffix(".json"))
        why = ["REPORT_UNREADABLE", describe_unreadable(error)]
        return RunRow(run_id, "unreadable", _guess_start(run_id, found), error=why)


def _guess_start(run_id: str, found: storage.Stat) -> str:
    """When a run whose report cannot be read began: by its run id, else by the time of the file."""
    try:
        at = datetime.fromisoformat(run_id.partition("__")[2])
    except ValueError:
        at = datetime.fromtimestamp(found.modified_ns / 1e9, UTC)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds")


def make_row(report: Unchecked) -> RunRow:
    """Make the row of a report. Raises one of :data:`~tidegate.views.faults.UNREADABLE` for anything else."""
    rows: dict[RowKey, int] = {key: _count(report["rows"].get(key, 0)) for key in ROW_KEYS}
    error, outcome = report.get("error"), report.get("outcome")
    started, ended = _time(report["started_at"]), _time(report.get("ended_at"))
    if outcome is not None and not (outcome in RUN_STATES and RUN_STATES[outcome].is_outcome):
        raise TypeError(f"{outcome!r} is not an outcome")
    if started is None:
        raise TypeError("it has no start")
    quality, table = report.get("quality") or {}, report.get("table") or {}
    return RunRow(
        run_id=str(report["run_id"]),
        mode=str(report["mode"]),
        is_live=report["mode"] in LIVE_MODES,
        state=outcome or "running",
        started_at=started.isoformat(timespec="milliseconds"),
        ended_at=None if ended is None else ended.isoformat(timespec="milliseconds"),
        seconds=None if ended is None else max((ended - started).total_seconds(), 0.0),
        steps={str(step): _seconds(value) for step, value in (report.get("duration_seconds") or {}).items()},
        rows=rows,
        quarantined=rows["malformed"] + rows["late"] + rows["rejected"],
        quarantine_share=share_of(rows),
        sources={str(name): _taken(one) for name, one in report["sources"].items()},
        unread=describe_unread(report["sources"]),
        batches=_count(report.get("batches", 0)),
        watermark=_text(report.get("watermark")),
        verdict=_text(quality.get("verdict")),
        rules=[_rule(one) for one in quality.get("results") or ()],
        version=None if table.get("version") is None else _count(table["version"]),
        published_by=_text(report.get("published_by")),
        decision=_text((report.get("decision") or {}).get("decision")),
        error=None if error is None else [str(error.get("code", "")), str(error.get("message", ""))],
    )


def _taken(value: Unchecked) -> Taken:
    files, size = value.get("files"), value.get("bytes")
    return {
        "rows": _count(value.get("rows", 0)),
        "files": None if files is None else _count(files),
        "bytes": None if size is None else _count(size),
        "offsets": _describe_offsets(value.get("offsets") or {}),
    }


def _describe_offsets(offsets: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Like ``clicks 0: 100 to 250, clicks 1: 80 to 95``: ends are exclusive, and empty partitions are skipped."""
    read = [
        (topic, int(partition), _count(first), _count(until))
        for topic, partitions in offsets.items()
        for partition, (first, until) in partitions.items()
        if _count(until) > _count(first)
    ]
    texts = [
        f"{topic} {one}: {first:,} to {until:,}" for topic, one, first, until in sorted(read)[:_PARTITIONS_AT_MOST]
    ]
    if len(read) > len(texts):
        texts.append(f"and {count_of(len(read) - len(texts), 'more partition')}")
    return ", ".join(texts)


def share_of(rows: Mapping[RowKey, int]) -> float | None:
    """The share in quarantine, as for the gate and alerts: a rejected row counts as many records as it was made of.

    None where nothing was read."""
    quarantined = Quarantined.of(rows)
    return float(quarantined.share) if quarantined.read or quarantined.transformed else None


def _count(value: float | str) -> int:
    """A count that can be shown and summed. Raises ValueError, TypeError, OverflowError."""
    count = int(value)
    if abs(count) >= _COUNT_AT_MOST:
        raise ValueError("no count of records is so large")
    return count


def _seconds(value: float | str) -> float:
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError("not a number of seconds")
    return seconds


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _rule(value: Unchecked) -> RuleResult:
    count, quarantined = value.get("unexpected_count"), value.get("quarantined")
    rule: RuleResult = {
        "rule": str(value["rule"]),
        "type": str(value.get("type", "")),
        "severity": str(value.get("severity", "")),
        "success": bool(value["success"]),
        "unexpected_count": None if count is None else _count(count),
        "observed_value": value.get("observed_value"),
    }
    if quarantined is not None:
        rule["quarantined"] = _count(quarantined)
    return rule


def _settle(row: RunRow, lease: LeaseState | None, failed: Collection[str], *, is_newest: bool) -> RunRow:
    """Complete the row of a run without an outcome: the report alone does not say whether it is in progress."""
    if row.state != "running":
        return row
    if is_in_progress(row.run_id, row.started_at, lease, is_newest=is_newest) and (
        row.run_id not in failed or has_lease(row.run_id, lease)
    ):
        return row
    return replace(row, state=name_end(row.decision))


def name_end(decision: str | None) -> RunState:
    """The state of a run that ended without an outcome in its report."""
    return "died" if decision is None else "decided"


def has_lease(run_id: str, lease: LeaseState | None) -> bool:
    """Return whether a process works on the run now, whatever the scheduler says."""
    return lease is not None and lease.holder.run_id == run_id and lease.state == "held"


def is_in_progress(run_id: str, started_at: str, lease: LeaseState | None, *, is_newest: bool) -> bool:
    """Return whether a run without an outcome is in progress.

    It has the lease, or may be between two tasks of its DAG.
    """
    if lease is not None and lease.holder.run_id == run_id:
        return lease.state in ("held", "parked")
    age = datetime.now(UTC) - datetime.fromisoformat(started_at)
    return is_newest and age < _OPEN_AT_MOST and (lease is None or lease.state not in ("held", "parked"))


def _time(text: object) -> datetime | None:
    """A moment of a report, in UTC. Raises ValueError, TypeError."""
    if text is None or text == "":
        return None
    moment = datetime.fromisoformat(str(text))
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
