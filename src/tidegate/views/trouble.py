"""The trouble in rows of ``status`` that needs a person, the order of the rows, and their summary line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tidegate.core.outputs import Error, Lost, RunReport, Status, Trouble, TroubleKind
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.runs.reports.report import LIVE_MODES
from tidegate.runs.reports.schedule import find_last_success, is_behind

_NAMED_AT_MOST = 5

KINDS: dict[TroubleKind, str] = {
    "held": "held",
    "failed": "failed",
    "missed": "with rows that readers miss",
    "lost": "with lost rows",
    "refused": "would refuse",
    "unknown": "cannot be read",
    "behind": "behind schedule",
    "undone": "with a decision not carried out",
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
        held.append(f"{job['kind']} {job['run_id']} is held ({job['partitions']}); live runs continue")
    return held


def _count_lost(lost: Lost) -> str:
    is_file = [one["of"] == "table" or one["path"].endswith(".parquet") for one in lost["files"]]
    lacking = [one["path"] for one, is_one in zip(lost["files"], is_file, strict=True) if not is_one]
    files = [one for one, is_one in zip(lost["files"], is_file, strict=True) if is_one]
    of_table = [one for one in files if one["of"] == "table"]
    found = [describe_partition([*one["partition"].items()]) for one in of_table if one["partition"]]
    partitions = f" ({list_first(sorted(set(found)), _NAMED_AT_MOST, ', ')})" if found else ""
    whose = [f"of {count_of(len(of_table), 'file')}{partitions}"] if of_table else []
    if others := len(files) - len(of_table):
        whose.append(f"of {count_of(others, 'file')} of quarantine")
    rows = count_of(sum(one["rows"] for one in files), "row")
    found = [f"lost with damaged files and not rebuilt: {rows} {' and '.join(whose)}"] if files else []
    if lacking:
        found.append(
            f"quarantine was restored from an older copy and lacks {list_first(lacking, _NAMED_AT_MOST, ', ')}"
        )
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
