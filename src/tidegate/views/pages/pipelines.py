"""The page of all pipelines: a row for each, the worst first, from reports and names of files.

The log of a table is read only for a deferred increment, and no source is looked at: :mod:`ahead` does that for one
pipeline per request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Literal, get_args

from typing_extensions import TypedDict

from tidegate.core.errors import Caught, TidegateError
from tidegate.core.outputs import Error, RowKey
from tidegate.core.paths import PipelinePaths
from tidegate.rework.held import HeldWork, list_held_work, name_kind
from tidegate.runs.reports.report import ROW_KEYS, RUN_STATES
from tidegate.runs.reports.schedule import find_last_success, is_behind
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import check_name, list_pipelines
from tidegate.spec.project import Project
from tidegate.state.lease import read_lease
from tidegate.table.log.files import list_versions
from tidegate.views.faults import UNREADABLE, name_unreadable, to_error
from tidegate.views.pages.runs import RunRow, Runs, Scheduled, list_runs, share_of
from tidegate.views.pages.specs import Map, Neighbour, list_feeds, list_reads, read_spec, read_specs

PipelineState = Literal["held", "failing", "broken", "behind", "never_ran", "up_to_date"]
"""The states of a pipeline, the worst first."""
STATES: tuple[PipelineState, ...] = get_args(PipelineState)
STRIP_RUNS = 20


@dataclass
class PipelineRow:
    """One pipeline. ``runs`` are its newest, newest first; figures of rows are sums over the live ones among them;
    ``undecided`` is what a person has to decide on."""

    pipeline: str
    description: str = ""
    owner: str | None = None
    schedule: str | None = None
    state: PipelineState = "broken"
    why: list[str] = field(default_factory=list)
    is_running: bool = False
    runs: list[RunRow] = field(default_factory=list)
    kept_runs: int = 0
    published: int = 0
    quarantined: int = 0
    quarantine_share: float | None = None
    watermark: str | None = None
    version: int | None = None
    undecided: list[HeldWork] = field(default_factory=list)
    reads: list[Neighbour] = field(default_factory=list)
    feeds: list[Neighbour] = field(default_factory=list)
    error: Error | None = None


class Overview(TypedDict):
    """All pipelines that the user may see, and the number in each state."""

    rows: list[PipelineRow]
    counts: dict[PipelineState, int]
    running: int


Ask = Callable[[str, Callable[[], PipelineRow]], PipelineRow | None]


def overview(
    project: Project,
    names: Sequence[str],
    around: Map | None = None,
    ask: Ask = lambda _, look: look(),
    scheduled: Mapping[str, Sequence[Scheduled]] = MappingProxyType({}),
) -> Overview:
    """Make the page of these pipelines.

    Args:
        ask: Makes the row of one pipeline by the given function; returns None where that takes too long.
        scheduled: The runs of each pipeline by the scheduler.
    """
    around = around or Map.of(project, read_specs(project, list(names)))
    found = {
        name: ask(name, partial(look_at, project, name, around, scheduled=scheduled.get(name, ()))) for name in names
    }
    rows = sorted(
        (_row_without_answer(project, name) if row is None else row for name, row in found.items()), key=_rank
    )
    counts = {state: sum(row.state == state for row in rows) for state in STATES}
    return {"rows": rows, "counts": counts, "running": sum(row.is_running for row in rows)}


def _row_without_answer(project: Project, name: str) -> PipelineRow:
    row = PipelineRow(name)
    row.error = to_error(project, name, TimeoutError(f"{project.state / name} does not answer"))
    row.state, row.why = _judge(row)
    return row


def list_names(project: Project) -> list[str]:
    """List the project's pipelines with valid names: no DAG can have another name."""
    return [name for name in list_pipelines(project) if _is_name(name)]


def _is_name(name: str) -> bool:
    try:
        return check_name(name) == name
    except TidegateError:
        return False


def _rank(row: PipelineRow) -> tuple[int, str]:
    return STATES.index(row.state), row.pipeline


def look_at(
    project: Project,
    name: str,
    around: Map | None = None,
    limit: int = STRIP_RUNS,
    scheduled: Sequence[Scheduled] = (),
) -> PipelineRow:
    """Make one pipeline's row, with its newest ``limit`` runs. Errors are in the row."""
    row, spec = PipelineRow(name), read_spec(project, name)
    with Caught() as caught:
        if isinstance(spec, PipelineSpec):
            _fill_spec(row, spec, around or Map.of(project, {name: spec}))
        else:
            row.error = spec
        kept = (spec if isinstance(spec, PipelineSpec) else project.spec).maintenance.expire.reports
        since = (datetime.now(UTC) - timedelta(seconds=kept)).isoformat(timespec="milliseconds")
        # Reports of older runs may have expired, so their absence means nothing.
        known = [one for one in scheduled if one["started_at"] >= since]
        _fill_runs(row, project.paths(name), limit, known)
    if caught.error is not None:
        row.error = row.error or to_error(project, name, caught.error)
    try:
        row.state, row.why = _judge(row)
    except UNREADABLE as error:
        row.error = to_error(project, name, error)
        row.state, row.why = _judge(row)
    return row


def _fill_spec(row: PipelineRow, spec: PipelineSpec, around: Map) -> None:
    row.description, row.owner = spec.description, spec.owner
    row.schedule = spec.schedule
    row.reads, row.feeds = list_reads(spec, around), list_feeds(spec, around)


def _fill_runs(row: PipelineRow, paths: PipelinePaths, limit: int, scheduled: Sequence[Scheduled]) -> None:
    lease = read_lease(paths)
    runs = list_runs(paths, limit, lease, scheduled)
    row.runs, row.kept_runs = runs.rows, runs.total
    row.is_running = any(one.state == "running" for one in runs.rows)
    row.published = _sum(runs, "published")
    row.quarantined = sum(one.quarantined for one in runs.counted)
    row.quarantine_share = share_of({key: _sum(runs, key) for key in ROW_KEYS})
    row.watermark = next((one.watermark for one in runs.live if one.watermark), None)
    row.version = max((one.version for one in runs.rows if one.version is not None), default=None)
    if runs.rows and (row.version is None or any(one.state == "unreadable" for one in runs.rows)):
        row.version = max(list_versions(paths.table), default=None)
    row.undecided = list_held_work(paths)
    ended = next((one for one in runs.live if one.state != "running"), None)
    if ended is not None and ended.state == "unreadable" and ended.error is not None:
        row.error = row.error or name_unreadable(paths.report(ended.run_id), ended.error[1])


def _sum(runs: Runs, key: RowKey) -> int:
    return sum(one.rows[key] for one in runs.counted)


def _judge(row: PipelineRow) -> tuple[PipelineState, list[str]]:
    if row.error is not None:
        return "broken", [f"{row.error['code']}: {_first_line(row.error['message'])}"]
    if row.undecided:
        return "held", [_describe_undecided(one) for one in row.undecided]
    live = [one for one in row.runs if one.is_live]
    if all(one.state == "refused" for one in row.runs):
        return "never_ran", ["no run has left a report yet"]
    last = next((one for one in live if one.state != "running"), None)
    if last is not None and RUN_STATES[last.state].is_bad:
        why = "its last run was ended before it could say why"
        if last.state == "no_report":
            why = "its last run failed in Airflow before it left a report: the log of its task says why"
        elif last.error is not None:
            why = f"{last.error[0]}: {_first_line(last.error[1])}"
        return "failing", [f"{why} ({_describe_streak(live)})"]
    since = _find_behind(row.schedule, live)
    if since is not None:
        return "behind", [f"no run has succeeded since {_moment(since)}; its schedule is {row.schedule}"]
    return "up_to_date", [] if last is None else last.unread


def _describe_undecided(one: HeldWork) -> str:
    since = "" if one["since"] is None else f" since {_moment(one['since'])}"
    # The reason comes first: there is little room for this text.
    return "; ".join([*one["reasons"], f"{name_kind(one['kind'])} {one['run_id']} waits for a decision{since}"])


def _describe_streak(live: Sequence[RunRow]) -> str:
    """Since when runs fail: ``3 runs in a row, since 2026-05-03 10:00 UTC``."""
    ended = [one for one in live if one.state != "running"]
    bad = list(takewhile(lambda one: RUN_STATES[one.state].is_bad, ended))
    count = f"at least {len(bad)}" if len(bad) == len(ended) > 1 else f"{len(bad)}"
    since = f"since {_moment(bad[-1].ended_at or bad[-1].started_at)}"
    return since if len(bad) == 1 else f"{count} runs in a row, {since}"


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _find_behind(schedule: str | None, live: Sequence[RunRow]) -> str | None:
    """Return since when a pipeline that is behind its schedule has had no successful run; None where it is on time.

    A run that finds nothing new is successful, so a run was not started, or takes long."""
    if schedule is None or not live:
        return None
    since = find_last_success((one.state, one.ended_at) for one in live)
    since = since or min(one.started_at for one in live)
    return since if is_behind(schedule, since, datetime.now(UTC)) else None


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
