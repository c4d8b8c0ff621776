"""The progress of a run: what a killed driver has torn, and what grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.held import Held
from tidegate.spark.ingest.progress_log import ProgressLog
from tidegate.views.pages import run
from tidegate.views.pages.run import read_progress


def session(number: int) -> dict[str, object]:
    return {"event": "session", "application": f"local-{number}", "ui": f"http://host:{number}", "eventLog": False}


def test_a_retry_is_told_of_behind_a_line_that_a_kill_has_torn(tmp_path: Path) -> None:
    paths = Held(tmp_path).paths
    path = paths.progress("R1")
    for number in (1, 2):
        log = ProgressLog(path)
        log._append(session(number))
        log._append({"event": "staged", "batchId": number, "rows": 3})
        path.write_bytes(path.read_bytes()[:-5])
    found = read_progress(paths, "R1")
    assert [one["application_id"] for one in found["applications"]] == ["local-1", "local-2"]
    assert found["batches"] == []


def test_a_disk_that_is_full_fails_no_batch(tmp_path: Path) -> None:
    """What could not be written is missing, and what follows is read all the same."""
    paths = Held(tmp_path).paths
    path = paths.progress("R1")
    log = ProgressLog(path)
    log._append(session(1))
    kept = path.rename(path.with_name("kept"))
    path.symlink_to("/dev/full")
    log._append({"event": "staged", "batchId": 0, "rows": 3})
    path.unlink()
    kept.rename(path)
    log._append({"event": "staged", "batchId": 1, "rows": 3})
    found = read_progress(paths, "R1")
    assert [one["batch_id"] for one in found["batches"]] == [1] and len(found["applications"]) == 1
    ProgressLog(path / "below a file")._append(session(2))


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Held(tmp_path).paths
    log = ProgressLog(paths.progress("R1"))
    for number in range(100):
        log._append({"event": "staged", "batchId": number, "rows": 3})
    whole = paths.progress("R1").stat().st_size
    monkeypatch.setattr(run, "_READ_AT_MOST", whole // 10)
    monkeypatch.setattr("tidegate.core.storage.read", None)
    assert [one["batch_id"] for one in read_progress(paths, "R1")["batches"]][-1] == 99
    assert 5 <= len(read_progress(paths, "R1")["batches"]) <= 11
