"""What became of a run and was not told yet: a note in the state folder, from the begin of its first task in Airflow
until its outcome is told.

A task that is killed before it has told leaves the note, and by it the next one tells: another try, or any task of a
later run. So an outcome is told at least once; twice, when the task was killed between telling and forgetting the note.
A disk that takes or gives no note costs this alone: no task fails of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tidegate import storage
from tidegate.errors import TidegateError
from tidegate.outputs import RunReport
from tidegate.paths import PipelinePaths
from tidegate.reports.report import FINAL_OUTCOMES, choose_recent, load_report

_LOOKED_THROUGH = 50
_AT_ONCE = 5
"""Runs that one task tells of besides its own: a notifier may take a minute for each."""
_TELLING = timedelta(minutes=5)
"""How long the task that has ended a run may take to tell: until then no other run does it."""
_UNUSABLE = (TidegateError, OSError, ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True)
class Untold:
    """``told`` is the outcome of the run that was told last; ``is_noted``, whether the state folder says so."""

    told: str | None
    is_noted: bool

    def look_again(self, paths: PipelinePaths, run_id: str, outcome: str | None) -> str | None:
        """The outcome that was told last, now that the run has come to ``outcome``: that, when another process has told
        it since and has forgotten the note."""
        if not self.is_noted:
            return self.told
        try:
            noted = _read(paths.untold_run(run_id))
        except _UNUSABLE:
            return self.told
        return outcome if noted is None else noted.told


@dataclass(frozen=True)
class _Note:
    run_id: str
    told: str | None


def note_untold(paths: PipelinePaths, run_id: str, outcome: str | None) -> Untold:
    """Note that what becomes of a run, which stands at ``outcome`` now, is to be told. One that is over has a note only
    from a task that was killed; of one that goes on again whatever it comes to is told."""
    path = paths.untold_run(run_id)
    try:
        noted = _read(path)
        told = outcome if noted is None or outcome is None else noted.told
        if noted is None and outcome in FINAL_OUTCOMES:
            return Untold(told, is_noted=False)
        if noted is None or noted.told != told:
            storage.replace(path, storage.dump_json({"run_id": run_id, "told": told}))
    except _UNUSABLE:
        return Untold(outcome, is_noted=False)
    return Untold(told, is_noted=True)


def list_left(paths: PipelinePaths, own: str, now: datetime) -> list[tuple[RunReport, str | None]]:
    """The runs other than ``own`` that are over, and of which nobody has told and nobody is about to: each with the
    outcome that was told last, the one that ended first in front."""
    found = []
    for noted in _list_notes(paths):
        try:
            report = None if noted.run_id == own else load_report(paths, noted.run_id)
            if report is None or report.outcome not in FINAL_OUTCOMES or report.ended_at is None:
                continue
            if now - datetime.fromisoformat(report.ended_at) >= _TELLING:
                found.append((report.to_json(), noted.told))
        except _UNUSABLE:
            continue  # whoever works on that run says what is wrong
    return sorted(found, key=lambda one: str(one[0]["ended_at"]))[:_AT_ONCE]


def forget_untold(paths: PipelinePaths, run_id: str) -> None:
    """All of the run is told."""
    with contextlib.suppress(OSError):
        storage.remove(paths.untold_run(run_id))


def _list_notes(paths: PipelinePaths) -> Iterator[_Note]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in storage.list_names(paths.untold) if name.endswith(".json") and name[0] != "."]
    for name in choose_recent(names, _LOOKED_THROUGH):
        with contextlib.suppress(*_UNUSABLE):
            if (noted := _read(paths.untold / name)) is not None:
                yield noted


def _read(path: Path) -> _Note | None:
    value = storage.read_json(path)
    return None if value is None else _Note(str(value["run_id"]), value["told"])
