"""Tables of earlier versions, which escaped dates and whole numbers in folder names: both names are one partition."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.kept import Kept
from tests.support.keyed import roll_back
from tests.support.readers import read_agreed
from tests.support.staged import QUERY
from tidegate.table.publish.intent import PublishIntent, write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.views.verify import verify_pipeline

DAY = "2026-11-22"


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def row(number: int, n: int = 0, day: str = DAY) -> dict[str, Any]:
    return {"id": number, "day": day, "n": n}


def rows_of(kept: Kept) -> list[dict[str, Any]]:
    return sorted(read_agreed(kept.paths.table), key=lambda one: int(one["id"]))


def folders_of(kept: Kept) -> list[str]:
    """The folder of each file that plain readers see."""
    return sorted(path.parent.name for path in kept.paths.table.rglob("[!.]*.parquet"))


def make_former(root: Path) -> Kept:
    """A table of an earlier version, which was killed when it had planned the publish."""
    columns = {"id": "long", "day": "string", "n": "long"}
    kept = Kept(root, columns, keys=["id"], partition_by=["day"], mode="update")
    manifests = kept.stage([row(1), row(2), row(3, 0, "2026-11-23")])
    plan = plan_publish(manifests, run_id="R0", partition_by=["day"], app_version_before=-1)
    write_intent(kept.paths, name_as_before(plan))
    kept.run("R0")
    return kept


def name_as_before(plan: PublishIntent) -> PublishIntent:
    assert plan.app_id == QUERY
    files = [replace(file, path=file.path.replace("day=2", "day=%32")) for file in plan.files_to_add]
    return replace(plan, files_to_add=files)


def test_the_publish_that_an_earlier_version_planned_is_finished_under_its_names(tmp_path: Path) -> None:
    kept = make_former(tmp_path)
    assert folders_of(kept) == ["day=%32026-11-22", "day=%32026-11-23"]
    assert rows_of(kept) == [row(1), row(2), row(3, 0, "2026-11-23")]


def test_rows_are_replaced_across_both_folders_of_a_day_and_come_back_with_a_rollback(tmp_path: Path) -> None:
    kept = make_former(tmp_path)
    before = rows_of(kept)
    kept.publish([row(1, 1), row(4, 1)])
    assert rows_of(kept) == [row(1, 1), row(2), row(3, 0, "2026-11-23"), row(4, 1)]
    assert folders_of(kept) == ["day=%32026-11-23", *["day=2026-11-22"] * 2], "the row that stays goes to the new name"
    assert verify_pipeline(kept.project, "orders")["ok"]
    report = roll_back(kept, 0)
    assert report is not None and report.outcome == "published"
    assert rows_of(kept) == before
    assert set(folders_of(kept)) == {"day=2026-11-22", "day=%32026-11-23"}


def test_compaction_puts_the_files_of_both_folders_together(tmp_path: Path) -> None:
    kept = make_former(tmp_path)
    kept.publish([row(4, 1)])
    assert folders_of(kept) == ["day=%32026-11-22", "day=%32026-11-23", "day=2026-11-22"]
    before = rows_of(kept)
    assert kept.maintain()["notes"][0].startswith("compacted: 2 small files became 1 file")
    assert folders_of(kept) == ["day=%32026-11-23", "day=2026-11-22"]
    assert rows_of(kept) == before
    assert verify_pipeline(kept.project, "orders")["ok"]
