"""What waits in the sources, for the metrics of lag."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.settled_projects import make_project, make_settled
from tidegate.errors import TidegateError
from tidegate.signals.backlog import look_at_backlog


def test_files_that_no_run_has_taken_and_the_age_of_the_oldest(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "orders", waiting=2)
    for number, moment in enumerate((1_700_000_000, 1_600_000_000)):
        os.utime(tmp_path / "inbox" / "orders" / f"new-{number}.txt", (moment, moment))
    (waits,) = look_at_backlog(project, "orders")
    assert (waits.source, waits.files, waits.bytes, waits.offsets) == ("s", 2, 4, None)
    assert waits.oldest == "2020-09-13T12:26:40.000+00:00" and waits.has_any


def test_nothing_waits(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "orders")
    (waits,) = look_at_backlog(project, "orders")
    assert (waits.files, waits.oldest, waits.has_any) == (0, None, False)


def test_a_source_that_is_away_is_an_error(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "orders")
    (tmp_path / "inbox").rename(tmp_path / "gone")
    with pytest.raises(TidegateError, match="SOURCE_MISSING"):
        look_at_backlog(project, "orders")
