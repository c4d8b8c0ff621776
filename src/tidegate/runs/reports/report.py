"""The run report: one value, one JSON file, one XCom, one table in the terminal (docs/reference/report.md); run ids."""

from __future__ import annotations

import contextlib
import heapq
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs import errors
from tidegate.state.lease import Holder
from tidegate.state.manifest import UNKNOWN_NAMES_AT_MOST, BatchManifest
from tidegate.state.open_state import text_of_ms
from tidegate.state.topics import join_ranges, ranges_to_json

if TYPE_CHECKING:
    from tidegate.core import outputs
    from tidegate.core.outputs import (
        AcceptedLoss,
        Error,
        OpenState,
        Quality,
        RowKey,
        Ruling,
        Sink,
        SourceReport,
        TableFigures,
        VerdictName,
    )

RunState = Literal[
    "published",
    "nothing_new",
    "held",
    "discarded",
    "failed",
    "running",
    "decided",
    "died",
    "unreadable",
    "no_report",
    "refused",
    "queued",
]
"""The state of a run: its outcome; ``running``; ``decided`` where it ended by a decision that another run carries out
(its records are read again, or more parts of a backfill are built); ``died`` where it ended without an outcome;
``unreadable`` where its report cannot be read; ``no_report`` for a run that ended in Airflow without one; ``refused``
for one of these whose trigger form was refused; ``queued`` for one that waits for its turn there."""


class _Traits(NamedTuple):
    """Properties of a state: ``is_outcome`` of those that a report has, ``is_final`` of those that a retry keeps."""

    text: str
    is_outcome: bool = False
    is_final: bool = False
    is_bad: bool = False


RUN_STATES: dict[RunState, _Traits] = {
    "published": _Traits("published", is_outcome=True, is_final=True),
    "nothing_new": _Traits("nothing new", is_outcome=True, is_final=True),
    "held": _Traits("held", is_outcome=True),
    "discarded": _Traits("discarded", is_outcome=True, is_final=True),
    "failed": _Traits("failed", is_outcome=True, is_bad=True),
    "running": _Traits("running"),
    "decided": _Traits("decided"),
    "died": _Traits("ended without an outcome", is_bad=True),
    "unreadable": _Traits("report cannot be read"),
    "no_report": _Traits("no report", is_bad=True),
    "refused": _Traits("form refused"),
    "queued": _Traits("queued"),
}
FINAL_OUTCOMES = tuple(state for state, traits in RUN_STATES.items() if traits.is_final)
LIVE_MODES = ("incremental", "reread")
"""The modes of runs that take records in: a schedule is kept by these, and no other work hides how they ended."""
RUN_ID_OPTIONS = {"backfill": "--run-id", "refresh": "--run-id", "replay": "--as", "maintain": "--run-id"}
"""Work of which a run finishes at most a publish, and the option that names it."""
KEPT_REPORTS = 1000
_PRUNED_AT_ONCE = 100
_TIMED_RUNS = ("manual__2", "scheduled__2")
"""Prefixes of run ids, ours and Airflow's, that are followed by the time of the run, in UTC."""
ROW_KEYS: tuple[RowKey, ...] = (
    *("read", "malformed", "entered", "late", "transformed"),
    *("rejected", "staged", "published", "superseded", "duplicates"),
)


def unjudged(verdict: VerdictName | None = None) -> Quality:
    """The ``quality`` of an increment whose results are not there: not yet, or no longer."""
    return {"suite": None, "verdict": verdict, "results": []}


_T = TypeVar("_T")


@dataclass
class RunReport:
    """One run. ``outcome`` is None while its steps run (or when it died between them)."""

    pipeline: str
    run_id: str
    mode: str = "incremental"
    outcome: str | None = None
    started_at: str = ""
    ended_at: str | None = None
    duration_seconds: dict[str, float] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    """Requests to object stores by step, those of Spark's workers excluded; {} where all is on a file system."""
    sources: dict[str, SourceReport] = field(default_factory=dict)
    batches: int = 0
    watermark: str | None = None
    rows: dict[RowKey, int] = field(default_factory=lambda: dict.fromkeys(ROW_KEYS, 0))
    quality: Quality = field(default_factory=unjudged)
    table: TableFigures = field(default_factory=lambda: cast("TableFigures", {}))
    state: OpenState = field(default_factory=lambda: cast("OpenState", {}))
    """What a query with state has open after the run: rows, memory, windows, event times."""
    sinks: list[Sink] = field(default_factory=list)
    error: Error | None = None
    adopted_runs: list[str] = field(default_factory=list)
    """Runs that staged batches and died; this run checks and publishes them."""
    published_by: str | None = None
    """Another run that published what this one staged."""
    accepted_loss: AcceptedLoss | None = None
    decision: Ruling | None = None
    asked: str | None = None
    """The options of a side job; None for a run, and in a report of an earlier version."""
    rebuilt: list[str] = field(default_factory=list)
    """The partitions that a backfill has rebuilt so far."""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> outputs.RunReport:
        """The report as it is printed and stored, keys in the order of docs/reference/report.md."""
        return cast("outputs.RunReport", asdict(self))

    def view(self) -> outputs.RunReport:
        """:meth:`to_json` without a copy, which is what would take longest where hundreds of reports are shown."""
        return cast("outputs.RunReport", vars(self))

    def add_note(self, note: str) -> None:
        """Append ``note`` once: a step that is repeated finds it again."""
        if note not in self.notes:
            self.notes.append(note)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> RunReport:
        """A stored report. Raises TypeError for one of another version."""
        report = RunReport(**value)
        if not isinstance(report.started_at, str):  # lists are sorted by it
            raise TypeError("started_at is not a string")
        return report


def new_report(pipeline: str, run_id: str) -> RunReport:
    """An empty report of a run that starts now."""
    return RunReport(pipeline=pipeline, run_id=run_id, started_at=now_text())


def describe_left(holder: Holder, who: str) -> str:
    """What is known of a holder of the lease that died, and what ``who`` takes over from it."""
    rest = f"{who} continues what it had begun"
    if holder.command in RUN_ID_OPTIONS:
        again = "the same command" + (
            f" with {RUN_ID_OPTIONS[holder.command]} {holder.run_id}" if holder.run_id else ""
        )
        rest = f"{who} finishes its publish, if that was begun, and nothing else of it; {again} does the rest"
    cause = "it was killed, its machine went down, or its state folder could not be written (a full disk)"
    return f"{holder.describe()} {RUN_STATES['died'].text}: {cause}; {rest}"


def failed_report(pipeline: str, run_id: str, error: TidegateError) -> RunReport:
    """The report of a run that could not begin; nobody stores it."""
    report = new_report(pipeline, run_id)
    report.outcome, report.error, report.ended_at = "failed", error.to_dict(), report.started_at
    return report


def load_report(paths: PipelinePaths, run_id: str) -> RunReport | None:
    """The report of a run, or None."""
    value = storage.read_json(paths.report(run_id))
    with storage.unreadable_is_named(paths.report(run_id)):
        return RunReport.from_json(value) if value is not None else None


def save_report(paths: PipelinePaths, report: RunReport) -> None:
    """Store the report, whole."""
    storage.replace(paths.report(report.run_id), storage.dump_json(report.view()))


def remove_unfinished(paths: PipelinePaths, run_id: str) -> None:
    """Remove what a process that was overtaken has written of a report and not yet put in its place: if it was only
    suspended, it fails there, and puts no older report over the one that its successor stores."""
    for path in storage.list_folder(paths.runs, ".*.tmp"):
        if path.name.startswith(f".{run_id}.json."):
            storage.remove(path)


def list_reports(paths: PipelinePaths, limit: int = 10) -> list[RunReport]:
    """The newest reports, newest first; what cannot be read is excluded."""
    return read_newest(paths, limit)[0]


def read_newest(paths: PipelinePaths, limit: int, *, by_name: bool = False) -> tuple[list[RunReport], list[str]]:
    """The newest reports, newest first, and the files among them that cannot be read.

    ``by_name`` looks only at those whose run ids say that they are new, which is cheaper: of an old run that was
    cleared and has run again it knows nothing.
    """
    names = [name for name in storage.list_names(paths.runs) if name.endswith(".json")]
    files = []
    for name in choose_recent(names, limit * 2) if by_name else names:
        with contextlib.suppress(FileNotFoundError):  # pruned meanwhile
            files.append((storage.stat(paths.runs / name).modified_ns, paths.runs / name))
    found, unreadable = [], []
    for _, path in sorted(files, reverse=True)[: limit * 2]:
        try:
            value = storage.read_json(path)
            if value is not None:
                found.append(RunReport.from_json(value))
        except (OSError, ValueError, TypeError):
            unreadable.append(str(path))
    return sorted(found, key=lambda report: report.started_at, reverse=True)[:limit], unreadable


def choose_recent(names: Sequence[str], at_most: int) -> list[str]:
    """The names that may be among the newest: of run ids that carry when the run began, the last by that time, and all
    others. A pipeline keeps up to :data:`KEPT_REPORTS`, and asking each file for its time is what would take longest.
    """
    timed = [name for name in names if name.startswith(_TIMED_RUNS)]
    if len(timed) <= at_most:
        return list(names)
    others = [name for name in names if not name.startswith(_TIMED_RUNS)]
    return others + heapq.nlargest(at_most, timed, key=lambda name: name.partition("__")[2])


def prune_reports(paths: PipelinePaths) -> None:
    """Keep the newest reports, so that a pipeline that ticks every minute does not fill its folder; open ones stay.

    With a report go its progress events, what its drivers left and its unsent messages. A file that cannot be read
    or removed stays: the run is over, and may not fail for one that was long before it.
    """
    with contextlib.suppress(OSError):
        reports = storage.list_folder(paths.runs, "[!.]*.json")
        if len(reports) <= KEPT_REPORTS + _PRUNED_AT_ONCE:
            return
        oldest = sorted(reports, key=lambda path: storage.stat(path).modified_ns)
        for path in oldest[: len(reports) - KEPT_REPORTS]:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                value = storage.read_json(path)
                if value is not None and value.get("outcome") in (*FINAL_OUTCOMES, "failed"):
                    name = path.name.removesuffix(".json")
                    storage.remove(path)
                    storage.remove(paths.runs / f"{name}.progress.jsonl")
                    storage.remove(paths.untold / path.name)
                    storage.remove_tree(paths.exchanges / name)


def keep_named(source: SourceReport) -> SourceReport:
    """What a source's part of a report names once and no later look finds again."""
    return join_named(source, {})


def join_named(before: SourceReport, now: SourceReport) -> SourceReport:
    """``now``, with what ``before`` named."""
    joined: SourceReport = {**now}
    if lost := before.get("lost"):
        joined["lost"] = _join(lost, now.get("lost", []))
    if changed := before.get("changed"):
        joined["changed"] = _join(changed, now.get("changed", []))
    if vanished := before.get("vanished"):
        joined["vanished"] = _join(vanished, now.get("vanished", []))
    if before_start := before.get("before_start"):
        joined["before_start"] = before_start  # with the paths, which one look alone names
    return joined


def _join(before: Sequence[_T], now: Sequence[_T]) -> list[_T]:
    return [*before, *(one for one in now if one not in before)]


def count_rows(manifests: Sequence[BatchManifest]) -> dict[RowKey, int]:
    """The report's ``rows`` of these batches; ``published`` and ``superseded``, which no manifest knows, are 0."""
    rows: dict[RowKey, int] = dict.fromkeys(ROW_KEYS, 0)
    for key in set(ROW_KEYS) - {"published", "superseded"}:
        rows[key] = sum(getattr(manifest, key) for manifest in manifests)
    return rows


def fill_from_manifests(report: RunReport, manifests: Sequence[BatchManifest]) -> None:
    """The figures of the increment: always from the manifests, never from a process's memory, so a retry says the
    same.
    """
    sources: dict[str, SourceReport] = {}
    for manifest in manifests:
        for name, taken in manifest.sources.items():
            source = sources.setdefault(name, {"rows": 0, "malformed": 0})
            source["rows"] += taken.rows
            source["malformed"] += taken.malformed
            if taken.late:
                source["late"] = source.get("late", 0) + taken.late
            if taken.partly_late:
                source["partly_late"] = source.get("partly_late", 0) + taken.partly_late
            if taken.files is not None:
                source["files"] = source.get("files", 0) + len(taken.files)
                source["bytes"] = source.get("bytes", 0) + (taken.bytes or 0)
            if taken.offsets is not None:
                source["offsets"] = {}  # joined below; the key has its place here
            if taken.unknown_fields:
                known = {**taken.unknown_fields, **source.get("unknown_fields", {})}
                source["unknown_fields"] = dict(list(known.items())[-UNKNOWN_NAMES_AT_MOST:])
                source["unknown_records"] = source.get("unknown_records", 0) + taken.unknown_records
    for name, source in sources.items():
        if "offsets" in source:
            batches = (manifest.sources[name].offsets or {} for manifest in manifests if name in manifest.sources)
            source["offsets"] = ranges_to_json(join_ranges(batches))
        report.sources[name] = {**report.sources.get(name, {}), **source}
    report.rows = {**count_rows(manifests), **{key: report.rows.get(key, 0) for key in ("published", "superseded")}}
    report.batches = len(manifests)
    marks = [manifest.watermark_ms for manifest in manifests if manifest.watermark_ms is not None]
    report.watermark = text_of_ms(max(marks, default=None))
    untold = sum(manifest.unattributed for manifest in manifests)
    note = (
        f"{untold} changes of the state came too late and were dropped: after this transform's operators not all of "
        "their records is known, and these count as read"
    )
    if untold:
        report.add_note(note)
    report.adopted_runs = sorted({manifest.run_id for manifest in manifests} - {report.run_id})


def check_balance(rows: Mapping[RowKey, int], *, published: bool) -> None:
    """Raise DefectError UNBALANCED unless read = malformed + entered, transformed = rejected + staged, and published +
    superseded = staged once published. Each of these was counted at another place; staged rows by their files' footers.
    """
    wrong = []
    if rows["read"] != rows["malformed"] + rows["entered"]:
        wrong.append(f"read {rows['read']} != malformed {rows['malformed']} + entered {rows['entered']}")
    if rows["transformed"] != rows["rejected"] + rows["staged"]:
        wrong.append(f"transformed {rows['transformed']} != rejected {rows['rejected']} + staged {rows['staged']}")
    if published and rows["published"] + rows["superseded"] != rows["staged"]:
        replaced = f" + superseded {rows['superseded']}" if rows["superseded"] else ""
        wrong.append(f"published {rows['published']}{replaced} != staged {rows['staged']}")
    if wrong:
        raise errors.RUN_UNBALANCED(faults="; ".join(wrong))


RUN_ID_AT_MOST = 250
"""Characters of a run id: as many as Airflow allows."""


def new_run_id(kind: str = "manual") -> str:
    """A run id nobody else has."""
    return f"{kind}__{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%S')}_{secrets.token_hex(3)}"


def check_run_id(run_id: str) -> str:
    """``run_id`` when it can be one. Raises UsageError BAD_RUN_ID."""
    if run_id.isprintable() and 0 < len(run_id) <= RUN_ID_AT_MOST:
        return run_id
    what = f"it has {len(run_id)} characters" if run_id.isprintable() else "it holds characters that cannot be printed"
    raise errors.BAD_RUN_ID(run_id=run_id[:80], why=what, longest=RUN_ID_AT_MOST)
