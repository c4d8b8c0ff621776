"""A clock that cannot be right removes nothing: what it makes look old may be of yesterday."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.kept import Kept
from tests.support.readers import read_agreed
from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.rework.maintain.command import preview_maintenance
from tidegate.runs.recovery.upkeep import find_clock_fault

DAY = 86_400.0


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def make_table(root: Path) -> Kept:
    """A table with old partitions and replaced files, and reports of its runs."""
    kept = Kept(root, columns={"id": "long", "day": "date"}, partition_by=["day"])
    today = datetime.now(UTC).date()
    for begin in (0, 100):
        kept.publish([{"id": begin + n, "day": today - timedelta(days=n)} for n in range(4)])
    kept.maintain("M0")
    kept.maintenance = {"expire": {"partitions": "2 days", "reports": "1 day"}}
    return kept


def jump(kept: Kept, days: float) -> None:
    """The clock jumps ahead: all that is there is so much older."""
    kept.age(days)
    for folder in (kept.paths.runs, kept.paths.lease):
        for path in storage.list_folder(folder, "*"):
            os.utime(path, (time.time() - days * DAY,) * 2)


def left(kept: Kept) -> tuple[int, list[str], list[str]]:
    """Rows of the table, its files, the reports of the runs before."""
    reports = [path.name for path in storage.list_folder(kept.paths.runs, "[!.]*.json") if path.stem in ("M0", "r0")]
    return len(read_agreed(kept.paths.table)), kept.on_disk(), reports


def test_a_clock_that_jumped_ahead_removes_nothing(tmp_path: Path) -> None:
    kept = make_table(tmp_path)
    jump(kept, 400)
    before = left(kept)
    (note,) = [one for one in preview_maintenance(kept.project, "orders")["notes"] if "this clock says" in one]
    assert {work for work, _ in kept.foresee()}.isdisjoint({"expire", "replaced", "reports", "source"})
    report = kept.maintain()
    assert note[:40] in report["notes"][0] and "nothing is removed for its age" in report["notes"][0]
    assert "correct the clock" in report["notes"][0]
    assert left(kept) == before
    # Also not when runs have published with the wrong clock since.
    kept.publish([{"id": 200, "day": datetime.now(UTC).date()}])
    assert "this clock says" in kept.maintain("M2")["notes"][0]
    assert {name for name in before[1] if name.endswith(".replaced")} <= set(kept.on_disk())


def test_a_clock_that_is_right_after_a_long_pause_is_believed_twelve_hours_later(tmp_path: Path) -> None:
    kept = make_table(tmp_path)
    jump(kept, 400)
    assert "this clock says" in kept.maintain()["notes"][0]
    for path in storage.list_folder(kept.paths.runs, "M1.json"):
        os.utime(path, (time.time() - 13 * 3600,) * 2)
    report = kept.maintain("M2")
    assert report["notes"][0].startswith("expired: ")
    assert len(read_agreed(kept.paths.table)) < 8


def test_a_clock_that_is_behind_removes_nothing(tmp_path: Path) -> None:
    kept = make_table(tmp_path)
    kept.age(-3)
    before = left(kept)
    report = kept.maintain()
    assert "the newest version of the table is of" in report["notes"][0] and "correct the clock" in report["notes"][0]
    assert left(kept) == before
    kept.publish([{"id": 200, "day": datetime.now(UTC).date()}])  # the other clock was wrong: this version shows it
    assert kept.maintain("M2")["notes"][0].startswith("expired: ")


def test_what_is_kept_for_no_time_needs_no_clock(tmp_path: Path) -> None:
    kept = make_table(tmp_path)
    kept.maintenance = {"keep_versions": 0, "expire": {"reports": 0}}
    jump(kept, 400)
    report = kept.maintain()
    assert any(note.startswith("vacuumed: ") for note in report["notes"])


def test_a_heartbeat_from_the_future(tmp_path: Path) -> None:
    paths = PipelinePaths("orders", tmp_path / "jobs", tmp_path / "table", tmp_path / "quarantine", tmp_path / "state")
    assert find_clock_fault(paths, time.time()) is None  # a pipeline that has never run
    paths.lease.mkdir(parents=True)
    (paths.lease / "1").write_text("")
    assert find_clock_fault(paths, time.time()) is None
    assert "a heartbeat of the lease is of" in (find_clock_fault(paths, time.time() - 2 * 3600) or "")


def test_a_table_that_gets_rows_once_a_month_is_believed(tmp_path: Path) -> None:
    kept = make_table(tmp_path)
    jump(kept, 31)
    assert find_clock_fault(kept.paths, time.time()) is None
    assert kept.maintain()["notes"][0].startswith("expired: ")
