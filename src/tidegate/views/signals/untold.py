"""What became of a run and was not told yet: a note in the state folder, from the begin of its first task in Airflow
until its outcome is told.

A task that is killed before it has told leaves the note, and by it the next one tells: another try, or any task of a
later run, of which one takes it on. So an outcome is told at least once; twice, when the task was killed between
telling and forgetting the note, or tells for so long that another one takes it on.
A disk that takes or gives no note costs this alone: no task fails because of it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from tidegate.core import storage
from tidegate.core.outputs import RunReport
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.report import FINAL_OUTCOMES, choose_recent, load_report
from tidegate.views.faults import STATE_FAULTS

_LOOKED_THROUGH = 50
_AT_ONCE = 5
"""Runs that one task tells of besides its own: a notifier may take a minute for each."""
_TELLING = timedelta(minutes=5)
"""How long the task that has ended a run may take to tell: until then no other run does it."""


@dataclass(frozen=True)
class Untold:
    """``told`` is the outcome of the run that was told last; ``by`` tells this process from others in the note, ""
    where the state folder has none."""

    told: str | None
    by: str = ""

    def look_again(self, paths: PipelinePaths, run_id: str, outcome: str | None) -> str | None:
        """The outcome that was told last, now that the run has come to ``outcome``: that, when another process has told
        it since and has forgotten the note."""
        if not self.by:
            return self.told
        try:
            noted = _read(paths.untold_run(run_id))
        except STATE_FAULTS:
            return self.told
        return outcome if noted is None else noted.told


@dataclass(frozen=True)
class _Note:
    """``by`` is the task that began last; ``taken_at`` when a task of another run began to tell."""

    run_id: str
    told: str | None
    by: str
    taken_at: str | None = None


@dataclass(frozen=True)
class Left:
    """What nobody has told of a run: its report, and the outcome that was told last."""

    report: RunReport
    told: str | None


def note_untold(paths: PipelinePaths, run_id: str, outcome: str | None) -> Untold:
    """Note that what becomes of a run, which stands at ``outcome`` now, is to be told. One that is over has a note only
    from a task that was killed; of one that goes on again whatever it comes to is told."""
    path = paths.untold_run(run_id)
    try:
        noted = _read(path)
        told = outcome if noted is None or outcome is None else noted.told
        if noted is None and outcome in FINAL_OUTCOMES:
            return Untold(told)
        by = secrets.token_hex(8)
        _write(path, _Note(run_id, told, by))
    except STATE_FAULTS:
        return Untold(outcome)
    return Untold(told, by)


def list_left(paths: PipelinePaths, own: str, now: datetime) -> list[Left]:
    """The runs other than ``own`` that have come to an outcome of which nobody has told and nobody is about to: the one
    that ended first in front."""
    found = []
    for noted in _list_notes(paths):
        if noted.run_id != own and (left := _find_left(paths, noted, now)) is not None:
            found.append(left)
    return sorted(found, key=lambda one: str(one.report["ended_at"]))[:_AT_ONCE]


def take_left(paths: PipelinePaths, left: Left, now: datetime) -> bool:
    """Whether this process is to tell it: tasks of several runs find the same, and one is to tell."""
    path = paths.untold_run(left.report["run_id"])
    try:
        noted = _read(path)
        if noted is None or _find_left(paths, noted, now) is None:
            return False
        _write(path, replace(noted, taken_at=now.isoformat()))
    except STATE_FAULTS:
        return False  # what cannot be noted would be told by every task
    return True


def note_left_told(paths: PipelinePaths, left: Left) -> None:
    """All of it is told. Of a run that is not over the note stays, and says so."""
    run_id, outcome = left.report["run_id"], left.report["outcome"]
    if outcome in FINAL_OUTCOMES:
        with contextlib.suppress(OSError):
            storage.remove(paths.untold_run(run_id))
        return
    with contextlib.suppress(*STATE_FAULTS):
        if (noted := _read(paths.untold_run(run_id))) is not None:
            _write(paths.untold_run(run_id), replace(noted, told=outcome, taken_at=None))


def note_told(paths: PipelinePaths, run_id: str, untold: Untold, outcome: str | None) -> None:
    """All of the run is told, as it stood at ``outcome``. The note of a task that has begun since stays, and says so:
    by it that one tells what the run has come to since."""
    path = paths.untold_run(run_id)
    with contextlib.suppress(*STATE_FAULTS):
        noted = _read(path)
        if noted is None:
            return
        if noted.by == untold.by or outcome in FINAL_OUTCOMES:
            storage.remove(path)
        elif outcome is not None and noted.told != outcome:
            _write(path, replace(noted, told=outcome))


def _find_left(paths: PipelinePaths, noted: _Note, now: datetime) -> Left | None:
    try:
        report = load_report(paths, noted.run_id)
        if report is None or report.outcome is None or report.ended_at is None:
            return None
        if report.outcome not in FINAL_OUTCOMES and report.outcome == noted.told:
            return None  # a person is to decide, or it is tried again
        since = max(datetime.fromisoformat(one) for one in (report.ended_at, noted.taken_at) if one is not None)
        return Left(report.to_json(), noted.told) if now - since >= _TELLING else None
    except STATE_FAULTS:
        return None  # whoever works on that run says what is wrong


def _list_notes(paths: PipelinePaths) -> Iterator[_Note]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in storage.list_names(paths.untold) if name.endswith(".json") and name[0] != "."]
    for name in choose_recent(names, _LOOKED_THROUGH):
        with contextlib.suppress(*STATE_FAULTS):
            if (noted := _read(paths.untold / name)) is not None:
                yield noted


def _read(path: Path) -> _Note | None:
    value = storage.read_json(path)
    if value is None:
        return None
    return _Note(str(value["run_id"]), value["told"], str(value.get("by", "")), value.get("taken_at"))


def _write(path: Path, note: _Note) -> None:
    storage.replace(path, storage.dump_json(asdict(note)))
