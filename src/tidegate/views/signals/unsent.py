"""Outcomes of runs whose signals, metrics and alerts, are not sent yet: a note per run in the state folder.

The first task of a run in Airflow writes the note, and the task that sends the signals of the outcome removes it. If a
task is killed before that, the next one finds the note and sends them: a retry, or any task of a later run. So signals
are sent at least once; twice when a task was killed between sending and removing the note, or sends for so long that
another one takes over.
Where the disk fails to write or read a note, only this is lost: no task fails because of it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from tidegate.core import storage
from tidegate.core.outputs import RunReport
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.report import FINAL_OUTCOMES, choose_recent, load_report
from tidegate.views.faults import STATE_FAULTS

_LOOKED_THROUGH = 50
_AT_ONCE = 5
"""Other runs whose signals one task sends: a notifier may take a minute for each."""
_SENDING = timedelta(minutes=5)
"""How long the task that ended a run may take to send its signals: until then no other run sends them."""


@dataclass(frozen=True)
class UnsentOutcome:
    """What this process knows of a note: ``sent`` is the outcome that was sent last, ``by`` identifies this process in
    the note, "" where there is none."""

    sent: str | None
    by: str = ""

    def reload_sent(self, paths: PipelinePaths, run_id: str, outcome: str | None) -> str | None:
        """Return the outcome that was sent last, now that the run has come to ``outcome``.

        That is ``outcome`` itself when another process has sent it since and removed the note."""
        if not self.by:
            return self.sent
        try:
            note = _read(paths.untold_run(run_id))
        except STATE_FAULTS:
            return self.sent
        return outcome if note is None else note.sent


@dataclass(frozen=True)
class _Note:
    """A note: ``by`` is the task that began last; ``taken_at`` is when a task of another run began to send."""

    run_id: str
    sent: str | None
    by: str
    taken_at: str | None = None


def note_unsent(paths: PipelinePaths, run_id: str, outcome: str | None) -> UnsentOutcome:
    """Note that signals of a run, whose outcome is ``outcome`` now, are to be sent.

    A run that is over has a note only from a task that was killed. When a run resumes, its next outcome is sent
    whatever it is."""
    path = paths.untold_run(run_id)
    try:
        note = _read(path)
        sent = outcome if note is None or outcome is None else note.sent
        if note is None and outcome in FINAL_OUTCOMES:
            return UnsentOutcome(sent)
        by = secrets.token_hex(8)
        _write(path, _Note(run_id, sent, by))
    except STATE_FAULTS:
        return UnsentOutcome(outcome)
    return UnsentOutcome(sent, by)


def list_unsent_runs(paths: PipelinePaths, own: str, now: datetime) -> list[tuple[RunReport, str | None]]:
    """List the reports of runs other than ``own`` with an outcome that nobody has sent or is about to send.

    The first ended comes first; each with the outcome that was sent last.
    """
    found = []
    for note in _list_notes(paths):
        if note.run_id != own and (run := _find_unsent(paths, note, now)) is not None:
            found.append(run)
    return sorted(found, key=lambda one: str(one[0]["ended_at"]))[:_AT_ONCE]


def claim_unsent_run(paths: PipelinePaths, run_id: str, now: datetime) -> bool:
    """Return whether this process is to send the signals: tasks of several runs find the same run, and one of them
    sends."""
    path = paths.untold_run(run_id)
    try:
        note = _read(path)
        if note is None or _find_unsent(paths, note, now) is None:
            return False
        _write(path, replace(note, taken_at=now.isoformat()))
    except STATE_FAULTS:
        return False  # without the note every task would send them
    return True


def note_run_sent(paths: PipelinePaths, report: RunReport) -> None:
    """Note that all signals of the run are sent. The note of a run that is not over stays, with its outcome."""
    path, outcome = paths.untold_run(report["run_id"]), report["outcome"]
    with contextlib.suppress(*STATE_FAULTS):
        if outcome in FINAL_OUTCOMES:
            storage.remove(path)
        elif (note := _read(path)) is not None:
            _write(path, replace(note, sent=outcome, taken_at=None))


def note_sent(paths: PipelinePaths, run_id: str, unsent: UnsentOutcome, outcome: str | None) -> None:
    """Note that all signals of the run are sent, up to ``outcome``.

    The note of a task that has begun since stays, with this outcome: that task sends what follows."""
    path = paths.untold_run(run_id)
    with contextlib.suppress(*STATE_FAULTS):
        note = _read(path)
        if note is None:
            return
        if note.by == unsent.by or outcome in FINAL_OUTCOMES:
            storage.remove(path)
        elif outcome is not None and note.sent != outcome:
            _write(path, replace(note, sent=outcome))


def _find_unsent(paths: PipelinePaths, note: _Note, now: datetime) -> tuple[RunReport, str | None] | None:
    try:
        report = load_report(paths, note.run_id)
        if report is None or report.outcome is None or report.ended_at is None:
            return None
        if report.outcome not in FINAL_OUTCOMES and report.outcome == note.sent:
            return None  # a person is to decide, or the run is tried again
        since = max(datetime.fromisoformat(one) for one in (report.ended_at, note.taken_at) if one is not None)
        return (report.to_json(), note.sent) if now - since >= _SENDING else None
    except STATE_FAULTS:
        return None  # the next command on that run reports what is wrong


def _list_notes(paths: PipelinePaths) -> Iterator[_Note]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in storage.list_names(paths.untold) if name.endswith(".json") and name[0] != "."]
    for name in choose_recent(names, _LOOKED_THROUGH):
        with contextlib.suppress(*STATE_FAULTS):
            if (note := _read(paths.untold / name)) is not None:
                yield note


def _read(path: Path) -> _Note | None:
    value = storage.read_json(path)
    if value is None:
        return None
    return _Note(str(value["run_id"]), value["told"], str(value.get("by", "")), value.get("taken_at"))


def _write(path: Path, note: _Note) -> None:
    value = {"run_id": note.run_id, "told": note.sent, "by": note.by, "taken_at": note.taken_at}
    storage.replace(path, storage.dump_json(value))
