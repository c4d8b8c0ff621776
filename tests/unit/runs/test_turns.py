"""Between two intervals of a backfill a run that was refused comes first."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.staged import make_paths
from tests.unit.settled_projects import make_project, make_settled
from tidegate.core.errors import TryAgainError
from tidegate.runs import opening as turns
from tidegate.runs.opening import open_run
from tidegate.state.lease import acquire


def test_nobody_waits(tmp_path: Path) -> None:
    assert turns.give_way(make_paths(tmp_path)) is None


def test_a_refused_run_has_its_turn(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    turns.note_refused(paths, "live")
    threading.Timer(0.8, turns.note_admitted, (paths, "live")).start()
    began = time.monotonic()
    told = turns.give_way(paths)
    assert told is not None and told.startswith("gave way to run live, for ")
    assert 0.7 < time.monotonic() - began < 10
    assert turns.give_way(paths) is None


def test_one_that_does_not_come_again_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WAIT_SECONDS", 0.3)
    paths = make_paths(tmp_path)
    turns.note_refused(paths, "gone")
    turns.note_admitted(paths, "another")  # its turn is not the refused run's
    assert turns.give_way(paths) is not None
    turns.note_refused(paths, "gone")
    time.sleep(0.4)
    assert turns.give_way(paths) is None, "an old note is not waited for"


def test_who_is_refused_says_that_it_will_come_again(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "orders")
    paths = project.paths("orders")
    with acquire(paths, run_id="backfill", command="backfill", expires_after_seconds=60):
        with pytest.raises(TryAgainError), open_run(project, "orders", "live", "run"):
            pass
        assert paths.refused.exists()
    with open_run(project, "orders", "live", "run", note_failure=False):
        assert not paths.refused.exists()
