"""``table: {readers: delta}``: replaced files keep their names, so that Delta readers of older versions go on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.held import Leases
from tests.support.held_backfill import hold
from tests.support.kept import Kept
from tests.support.readers import canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.support.sweep import sweep
from tidegate.core import storage
from tidegate.rework.backfill.held import decide_backfill
from tidegate.runs.reports.verdicts import Answer
from tidegate.runs.restart.repair_plan import list_orphans
from tidegate.runs.rollback import roll_back
from tidegate.table.publish.replace import nearest_restorable, plan_restore


@pytest.fixture(autouse=True)
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    leases = Leases()
    monkeypatch.setattr("tidegate.runs.opening.acquire", leases.acquire)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    return leases


def row(id_: int, n: int) -> dict[str, Any]:
    return {"id": id_, "n": n, "city": ["Oslo", "Rome"][id_ % 2]}


class Slow:
    """A Delta reader that opens a version, and reads its rows only later."""

    def __init__(self, kept: Kept) -> None:
        self.path = str(kept.paths.table)
        table = DeltaTable(self.path)
        self.version, self.rows = table.version(), canonical(table.to_pyarrow_table().to_pylist())
        self.dataset = table.to_pyarrow_dataset()

    def check(self) -> None:
        """What it opened is what it reads, and what time travel gives."""
        assert canonical(self.dataset.to_table().to_pylist()) == self.rows
        older = DeltaTable(self.path, version=self.version)
        assert canonical(older.to_pyarrow_table().to_pylist()) == self.rows


def make(root: Path, readers: str = "delta") -> tuple[Kept, list[Slow]]:
    """A table in update mode after an update and a compaction, with a reader from before each."""
    kept = Kept(root, mode="update", keys=["id"], readers=readers)
    slow = []
    for n in range(3):
        kept.publish([row(1, n), row(10 + n, n)], files=2)
        slow.append(Slow(kept))
    assert kept.maintain()["table"]["files_removed"] > 1
    slow.append(Slow(kept))
    return kept, slow


NOW = [row(1, 2), row(10, 0), row(11, 1), row(12, 2)]


def test_slow_readers_and_time_travel(tmp_path: Path) -> None:
    kept, slow = make(tmp_path)
    for one in slow:
        one.check()
    assert not [name for name in kept.on_disk() if name.startswith(".")]
    assert canonical(read_with_deltalake(kept.paths.table)) == canonical(NOW)
    assert [one.version for one in slow] == [0, 1, 2, 3], "one version for each publish: none that renames"
    DeltaTable(str(kept.paths.table)).vacuum(168, dry_run=False)
    for one in slow:
        one.check()
    kept.age(8)
    kept.maintain("M2")
    assert kept.on_disk() == sorted(file.path for file in kept.files)
    assert canonical(read_agreed(kept.paths.table)) == canonical(NOW)


def test_vacuum_of_another_engine_leaves_the_table(tmp_path: Path) -> None:
    kept, _ = make(tmp_path)
    DeltaTable(str(kept.paths.table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert canonical(read_agreed(kept.paths.table)) == canonical(NOW)
    kept.publish([row(1, 9)])
    assert canonical(read_with_deltalake(kept.paths.table)) == canonical([row(1, 9), *NOW[1:]])


def test_a_backfill(tmp_path: Path) -> None:
    kept = hold(tmp_path, is_last=True)
    kept.readers = "delta"
    slow = Slow(kept)
    assert decide_backfill(kept.project, "orders", "B1", Answer("release", "seen"))["outcome"] == "published"
    slow.check()
    assert [one["id"] for one in read_with_deltalake(kept.paths.table)] == [2]


def test_both_kinds_of_readers_is_the_default_and_hides(tmp_path: Path) -> None:
    """What the page says of slow Delta readers then: they fail, and do not get other rows."""
    kept, slow = make(tmp_path, "both")
    assert canonical(read_agreed(kept.paths.table)) == canonical(NOW)
    for one in slow[:3]:
        with pytest.raises(FileNotFoundError):
            one.check()


def test_an_older_version_comes_back_and_a_repair_takes_nothing_away(tmp_path: Path) -> None:
    kept, slow = make(tmp_path)
    assert list_orphans(kept.paths, kept.paths.table) == []
    restore = plan_restore(kept.paths.table, 0)
    assert (restore.gone, sum(file.rows for file in restore.back)) == ([], 2)
    assert nearest_restorable(kept.paths.table, 0, slow[-1].version) == 1
    roll_back(kept.project, "orders", 2, None, "R1")
    for one in slow:
        one.check()
    assert canonical(read_with_deltalake(kept.paths.table)) == slow[2].rows


def test_a_file_that_is_hidden_during_the_look_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rollback` looks before it has the lease, and a run may hide what another engine left at that moment."""
    kept, _ = make(tmp_path)
    exists = storage.exists

    def look_and_hide(path: Path) -> bool:
        found = exists(path)
        name = path.name.removeprefix(".").removesuffix(".replaced")
        if not found and path.name != name and exists(path.with_name(name)):
            path.with_name(name).rename(path)
        return found

    monkeypatch.setattr(storage, "exists", look_and_hide)
    assert plan_restore(kept.paths.table, 0).gone == []


def test_changed_to_delta_what_is_hidden_stays_and_counts(tmp_path: Path) -> None:
    kept, _ = make(tmp_path, "both")
    hidden = [name for name in kept.on_disk() if name.startswith(".")]
    kept.readers = "delta"
    slow = Slow(kept)
    kept.publish([row(1, 9)])
    slow.check()
    assert hidden and set(hidden) <= set(kept.on_disk())
    assert plan_restore(kept.paths.table, 0).gone == []
    kept.age(8)
    kept.maintenance = {"compact_below": 0}
    kept.maintain("M2")
    assert kept.on_disk() == sorted(file.path for file in kept.files)


def test_killed_at_every_call_and_run_again(tmp_path: Path) -> None:
    original = tmp_path / "original"
    make(original)

    def copy(name: str) -> Kept:
        shutil.copytree(original, tmp_path / name)
        return Kept(tmp_path / name, mode="update", keys=["id"], readers="delta", next_batch=3)

    after = canonical([row(1, 9), row(10, 9), *NOW[2:]])
    whole = copy("whole")
    whole.stage([row(1, 9), row(10, 9)])
    with pytest.MonkeyPatch.context() as patch:
        calls = StorageCalls(patch, -1, kill)
        whole.run("second")
    for at in sweep(calls.count, 10):
        kept = copy(str(at))
        slow = Slow(kept)
        kept.stage([row(1, 9), row(10, 9)])
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
            StorageCalls(patch, at, kill)
            kept.run("second")
        assert canonical(read_with_deltalake(kept.paths.table)) in (canonical(NOW), after), f"killed at {at}"
        kept.run("second")
        assert canonical(read_with_deltalake(kept.paths.table)) == after, f"killed at {at}"
        assert kept.leftovers() == []
        slow.check()


def test_changed_to_both_plain_readers_agree_after_the_next_run(tmp_path: Path) -> None:
    kept, _ = make(tmp_path)
    assert len(read_with_duckdb(kept.paths.table)) > len(NOW)
    kept.readers = "both"
    kept.maintain("M2")
    assert canonical(read_agreed(kept.paths.table)) == canonical(NOW)
    assert plan_restore(kept.paths.table, 0).gone == []
