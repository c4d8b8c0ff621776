"""An increment that replaces rows of a table, for tests that stop or fail its publish at every storage call."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.keyed import Keyed
from tests.support.object_servers import folder_of
from tests.support.readers import canonical, read_agreed
from tests.support.storage_calls import StorageCalls, split_devices, watch
from tidegate.runs.reports.report import load_report

ROWS = ("published", "superseded", "staged")
TABLE = ("files_added", "files_removed", "rows_added", "rows_removed")


def row(id_: int, n: int, city: str) -> dict[str, Any]:
    return {"id": id_, "n": n, "city": city}


BEFORE = [row(1, 0, "Oslo"), row(2, 0, "Oslo"), row(3, 0, "a/b %"), row(4, 0, "a/b %")]
BATCHES = [
    [row(2, 1, "Oslo"), row(3, 1, "Oslo"), row(5, 1, "01"), row(5, 0, "Rome")],
    [row(2, 2, "Oslo"), row(6, 2, "01"), row(4, -1, "Oslo")],
]
"""In update mode the newest ``n`` of a key counts: the last row of each batch is late."""
AFTER = {
    "update": [BEFORE[0], row(2, 2, "Oslo"), row(3, 1, "Oslo"), BEFORE[3], row(5, 1, "01"), row(6, 2, "01")],
    "complete": BATCHES[1],
}


@dataclass
class Scenes:
    """A table with rows and an increment of two batches that replaces some of them, as often as a test wants it."""

    root: Path
    mode: str
    lake: Path | None = None
    """Where the tables are; None: below ``root``."""

    def __post_init__(self) -> None:
        keyed = self._open("model", 0)
        keyed.stage(BEFORE)
        keyed.run("first")
        keyed.stage(*BATCHES)

    def make(self, name: str) -> Keyed:
        """One more, untouched."""
        for place in filter(None, (self.root, self.lake)):
            shutil.copytree(folder_of(place / "model"), folder_of(place / name))
        return self._open(name, 3)

    def _open(self, name: str, next_batch: int) -> Keyed:
        keys, order_by = (["id"], "n") if self.mode == "update" else ([], None)
        lake = None if self.lake is None else self.lake / name
        keyed = Keyed(
            self.root / name, keys=keys, partition_by=["city"], mode=self.mode, next_batch=next_batch, lake=lake
        )
        keyed.order_by = order_by
        return keyed


def figures_of(keyed: Keyed, run_id: str) -> list[int]:
    report = load_report(keyed.paths, run_id)
    assert report is not None and report.outcome == "published"
    return [report.rows[key] for key in ROWS] + [report.table[key] for key in TABLE]


def count_calls(scenes: Scenes, devices: int = 1, act: Callable[[str], None] = watch) -> tuple[list[str], list[int]]:
    """The storage calls of a run that nothing disturbs, as ``act`` counts them, and its figures."""
    keyed = scenes.make("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        if devices == 2:
            split_devices(patch, keyed.paths.state)
        calls = StorageCalls(patch, -1, act)
        keyed.run("second")
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER[scenes.mode])
    return calls.names, figures_of(keyed, "second")
