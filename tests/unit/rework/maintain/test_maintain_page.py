"""What docs/how-to/maintain.md shows is what is printed, but for the figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.kept import Kept
from tests.support.page_outputs import shown
from tidegate.cli.show_runs import show_maintenance, show_report
from tidegate.core import storage
from tidegate.rework.maintain import compact
from tidegate.rework.maintain.command import preview_maintenance


def plain(text: str, place: str = "data/warehouse/orders") -> list[str]:
    text = text.replace(place, "TABLE")
    return [re.sub(r"maintain__\S+", "RUN", re.sub(r"[\d.,]+", "N", line)) for line in text.strip().splitlines()]


def test_both_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(compact, "PART_FILES", 8)
    kept = Kept(tmp_path, partition_by=["city"])
    for run in range(12):
        kept.publish([{"id": run * 10 + n, "city": f"city {n}", "n": n} for n in range(3)])
        if run == 5:
            kept.maintain("before")
    kept.age(8)
    for log in (kept.paths.table / "_delta_log").glob("*.compacted.json"):
        log.unlink()
    for name in ("R1", "R2"):
        storage.replace(kept.paths.driver_log(name), b"old")
        os.utime(kept.paths.driver_log(name), (1, 1))
        os.utime(kept.paths.exchange(name), (1, 1))
    show_maintenance(preview_maintenance(kept.project, "orders"))
    assert plain(capsys.readouterr().out) == plain(shown("maintain --dry-run"))
    show_report(kept.maintain("maintain__2026-03-10T03:30:00_a1b2c3"))
    assert plain(capsys.readouterr().out, str(kept.paths.table)) == plain(shown("maintain"))
