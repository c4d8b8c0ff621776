"""Which alerts are due, and their text: what happened, where, what happens next, and the command.

An alert is sent once when a condition begins, not by every run that meets it: a run is compared with the one before.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Literal, TypeAlias

from tidegate.core.outputs import Error, RunReport
from tidegate.core.words import count_of, escape_controls
from tidegate.quality.verdict import Quarantined
from tidegate.runs.reports.report import LIVE_MODES
from tidegate.runs.reports.schedule import find_last_success
from tidegate.runs.reports.verdicts import quote_word
from tidegate.spec.models import AlertsSpec, NotifierSpec

AlertKind = Literal["held", "failing", "behind", "quarantine_share"]
_BLOCKED = "EARLIER_INCREMENT_HELD"


@dataclass(frozen=True)
class Alert:
    """One message to people.

    ``title`` is one line; ``command`` is what to type or to do; ``page`` is the URL of the run's page, or ''. No part
    has control characters."""

    kind: AlertKind
    pipeline: str
    run_id: str
    title: str
    what: str
    where: str
    next: str
    command: str
    page: str = ""

    def __post_init__(self) -> None:
        for part in ("title", "what", "where", "next", "command"):
            object.__setattr__(self, part, escape_controls(getattr(self, part)))

    @property
    def text(self) -> str:
        """The whole message, a line for each part."""
        text = f"{self.title}\nwhat: {self.what}\nwhere: {self.where}\nnext: {self.next}\nfix: {self.command}"
        return f"{text}\npage: {self.page}" if self.page else text

    @property
    def html(self) -> str:
        """The text for an HTML mail, escaped."""
        return f"<pre>{html.escape(self.text)}</pre>"


def find_alerts(alerts: AlertsSpec, report: RunReport, earlier: Sequence[RunReport]) -> list[Alert]:
    """Find the alerts that are due when the outcome of a run has changed. ``earlier`` are older runs, newest first."""
    found = [_find_held(report, earlier)] if alerts.held else []
    if alerts.quarantine_share is not None:
        found.append(_find_share(alerts.quarantine_share, report, earlier))
    return [alert for alert in found if alert is not None]


def find_failure(
    name: str, run_id: str, error: Error | None, task: str, mode: str, earlier: Sequence[RunReport]
) -> Alert | None:
    """Find the alert of a run whose ``task`` has failed without a retry left.

    ``error`` is None when the task's process was killed. None is returned when the previous run of this ``mode`` ended
    with the same error."""
    before = _find_before(mode, earlier)
    if error is None:
        what = f"its task {task} was ended from outside (killed, out of memory, or its worker went away)"
        return Alert(
            "failing",
            name,
            run_id,
            f"{name} is failing: task {task} was ended",
            what,
            f"run {run_id}",
            "the next run resumes the work of this one; nothing is lost",
            f"tidegate logs {name} {quote_word(run_id)}",
        )
    if before is not None and before["error"] is not None and before["error"]["code"] == error["code"]:
        return None
    return _of_error("failing", f"{name} is failing: {error['code']}", name, run_id, error)


def find_behind(name: str, run_id: str, limit_seconds: float, runs: Sequence[RunReport], now: datetime) -> Alert | None:
    """Find the alert of a run that is not over ``limit_seconds`` after it was queued.

    ``runs`` are all known ones, newest first. None is returned when another run has succeeded since, or has sent this
    alert before, and for concurrent jobs such as a backfill, which ingest nothing however long they take."""
    if any(run["run_id"] == run_id and run["mode"] not in LIVE_MODES for run in runs):
        return None
    live = [run for run in runs if run["mode"] in LIVE_MODES]
    since = find_last_success((run["outcome"], run["ended_at"]) for run in live)
    if since is not None and (now - datetime.fromisoformat(since)).total_seconds() < limit_seconds:
        return None
    for run in live:
        was_before = run["run_id"] != run_id and (since is None or run["started_at"] > since)
        if was_before and (now - datetime.fromisoformat(run["started_at"])).total_seconds() >= limit_seconds:
            return None
    this = next((run for run in live if run["run_id"] == run_id), None)
    how = "no run has succeeded yet" if since is None else f"no run has succeeded since {since}"
    return Alert(
        "behind",
        name,
        run_id,
        f"{name} is behind: {how}",
        f"{how}; run {run_id}, queued at least {_duration(limit_seconds)} ago, {_describe_state(this)}",
        f"run {run_id} of pipeline {name}",
        "new records wait in the source; they are lost only if the source drops them before a run reads them",
        f"tidegate status {name}",
    )


def _describe_state(run: RunReport | None) -> str:
    """The state of a run, as the end of a sentence about it."""
    if run is None:
        return "has ingested nothing yet"
    if run["error"] is not None:
        how = "is held" if run["outcome"] == "held" else "failed"
        first_line = run["error"]["message"].partition("\n")[0]
        return f"{how}: {run['error']['code']}: {first_line}"
    return "is still running" if run["outcome"] is None else f"ended as {run['outcome']}"


def _find_held(report: RunReport, earlier: Sequence[RunReport]) -> Alert | None:
    error = report["error"]
    if report["outcome"] != "held" or error is None:
        return None
    name, run_id = report["pipeline"], report["run_id"]
    if error["code"] != _BLOCKED:
        kind = "its run" if report["mode"] in LIVE_MODES else f"a {report['mode']}"
        return _of_error("held", f"{name} is held: {kind} {run_id} waits for a decision", name, run_id, error)
    before = _find_before(report["mode"], earlier)
    if before is not None and before["error"] is not None and before["error"]["code"] == _BLOCKED:
        return None
    return _of_error("held", f"{name} is still held: run {run_id} could not begin", name, run_id, error)


def _find_share(limit: float, report: RunReport, earlier: Sequence[RunReport]) -> Alert | None:
    quarantined = Quarantined.of(report["rows"])
    if not _has_published(report) or quarantined.share <= limit:
        return None
    before = next((run for run in earlier if _has_published(run) and run["mode"] == report["mode"]), None)
    if before is not None and Quarantined.of(before["rows"]).share > limit:
        return None
    name, run_id = report["pipeline"], report["run_id"]
    return Alert(
        "quarantine_share",
        name,
        run_id,
        f"{name} quarantined {float(quarantined.share):.1%} of run {run_id}",
        f"{quarantined.describe()}; the limit, alerts.quarantine_share, is {limit:.1%}",
        f"run {run_id} of pipeline {name}, version {report['table'].get('version')} of its table",
        f"the run has published {count_of(report['rows']['published'], 'row')}; later runs continue as usual",
        f"tidegate quarantine list {name} --run-id {quote_word(run_id)}",
    )


def _has_published(run: RunReport) -> bool:
    """Return whether the run itself has published; what another run published for it is in the figures of that run."""
    return run["outcome"] == "published" and run["published_by"] is None


def _find_before(mode: str, earlier: Sequence[RunReport]) -> RunReport | None:
    """The previous run of this kind."""
    kinds = LIVE_MODES if mode in LIVE_MODES else (mode,)
    return next((run for run in earlier if run["mode"] in kinds), None)


def _of_error(kind: AlertKind, title: str, name: str, run_id: str, error: Error) -> Alert:
    return Alert(
        kind,
        name,
        run_id,
        title,
        f"{error['code']}: {error['message']}",
        error["where"] or f"run {run_id} of pipeline {name}",
        error["next_run"] or "the next run tries again",
        error["fix"] or f"tidegate status {name}",
    )


def _duration(seconds: float) -> str:
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = f"{seconds / size:.3g}"
            return f"{count} {word}" if count == "1" else f"{count} {word}s"
    return f"{seconds:g} seconds"


Notifier: TypeAlias = Callable[[Mapping[str, object]], object]
"""A notifier of users, which is called with Airflow's context."""


def use_notifier(spec: NotifierSpec, use: Callable[[Notifier], object]) -> str | None:
    """Create the notifier with its arguments, and use it; return what its code has raised, None where it went well."""
    module, _, name = spec.notifier.rpartition(".")
    try:
        use(getattr(import_module(module), name)(**spec.arguments))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - users' code may raise anything
        return escape_controls(f"{type(error).__name__}: {error}")
    return None
