"""What a batch is held to, without Spark: its equations, what it keeps in memory, what its executors must allow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests.support.staged import make_paths
from tidegate.core.errors import UsageError
from tidegate.spark.driver.order import Bounds, IngestOrder
from tidegate.spark.driver.progress import parse_marker
from tidegate.spark.ingest.batch_checks import describe_imbalance
from tidegate.spark.ingest.stage import BatchStager
from tidegate.spark.session.executors import Executors
from tidegate.state.manifest import BatchManifest, SourceRange, StagedFile


def manifest(**figures: Any) -> BatchManifest:
    source = SourceRange(rows=10, malformed=2, entered=8)
    known: dict[str, Any] = {"transformed": 5, "rejected": 1, "staged": 4, "quarantined": 3, "sources": {"a": source}}
    fixed = {"pipeline": "p", "run_id": "r", "query_id": "q", "batch_id": 0, "attempt": "a", "schema_json": "{}"}
    return BatchManifest(**{**fixed, **known, "files": [], "quarantine_files": [], **figures})


def test_a_batch_that_balances() -> None:
    assert describe_imbalance(manifest()) == []
    staged_before = {"a": SourceRange(rows=10, malformed=2)}
    assert describe_imbalance(manifest(sources=staged_before)) == [], "an earlier version did not count it"
    assert manifest(sources=staged_before).entered == 8


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (
            {"sources": {"a": SourceRange(rows=10, malformed=2, entered=7)}},
            "source a: read 10 != malformed 2 + entered 7",
        ),
        ({"staged": 3}, "transformed 5 != rejected 1 + staged 3"),
        ({"quarantined": 2}, "quarantined 2 != malformed 2 + late 0 + rejected 1"),
    ],
)
def test_a_batch_that_does_not(figures: dict[str, Any], said: str) -> None:
    assert describe_imbalance(manifest(**figures)) == [said]


class Frame:
    """Counts how often it is kept in memory."""

    kept = 0

    def persist(self) -> None:
        self.kept += 1

    def unpersist(self) -> None:
        self.kept -= 1


def test_rows_kept_in_memory_are_let_go_also_when_the_batch_fails() -> None:
    """A session may live on: in a test of the user's, and while `stream` runs."""
    stager = cast(BatchStager, type("Stager", (), {"keeps_state": True, "rules": ["one"]})())
    frame = Frame()
    with pytest.raises(RuntimeError), BatchStager._computed_once(stager, cast(Any, frame)):
        assert frame.kept == 1
        raise RuntimeError
    assert frame.kept == 0


def test_what_executors_write_must_be_removable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that runs as another user leaves files in staging that nobody can sweep."""
    executors = Executors.__new__(Executors)
    executors._paths = make_paths(tmp_path)
    folder = executors._paths.staging / "probe" / "nonce"
    (folder / "answered").mkdir(parents=True)
    (folder / "answered" / "part-0").touch()

    def refuse(*arguments: Any, **more: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(UsageError) as caught:
            executors._remove_probe(folder)
    assert caught.value.code == "STORAGE_NOT_SHARED" and "Permission denied" in caught.value.message
    executors._remove_probe(folder)
    executors._remove_probe(folder)  # swept by another run
    assert not folder.exists()


@pytest.mark.parametrize("recognised", [True, False], ids=["by its file", "by its attempt"])
def test_a_batch_keeps_the_files_that_its_own_manifest_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recognised: bool
) -> None:
    """A file server carries out a request and its reply is lost: what is there already is one's own."""
    paths = make_paths(tmp_path)
    mine, link = manifest(attempt="mine"), os.link

    def lose_reply(old: Any, new: Any, **more: Any) -> None:
        link(old, new, **more)
        raise FileExistsError(17, "File exists", str(new))

    monkeypatch.setattr(os, "link", lose_reply)
    monkeypatch.setattr("tidegate.spark.ingest.stage.check_token", lambda paths, token: None)
    if not recognised:  # as on a file system whose inode numbers change
        monkeypatch.setattr("tidegate.core.storage.files._is_same_file", lambda beside, path: False)
    parts = MagicMock(keeps_state=False, paths=paths)
    for one in (mine, manifest(attempt="another")):
        folder = paths.staging / one.query_id / f"{one.batch_id:012d}" / one.attempt
        folder.mkdir(parents=True)
        BatchStager._write_manifest(cast(BatchStager, parts), one, paths.manifest("q", 0), {}, {})
        assert folder.exists() == (one is mine)
        monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize(("bounds", "staged"), [(None, 7), (Bounds({}), 7), (Bounds({"day": ["2026-01-02"]}), 4)])
def test_progress_counts_the_rows_that_a_side_job_keeps(
    capsys: pytest.CaptureFixture[str], bounds: Bounds | None, staged: int
) -> None:
    """It also reads records of other days, which are in the same files or offsets."""
    order = IngestOrder("/p", "p", "r", "t", bounds=bounds)
    days = {"2026-01-01": 3, "2026-01-02": 4}
    files = [StagedFile(f"day={day}/a", rows, 1, {"day": day}) for day, rows in days.items()]
    stager = MagicMock(spec=BatchStager, order=order, started_at=0.0, rows_so_far=7, links_so_far=0)
    BatchStager._report_progress(stager, 0, manifest(files=files, staged=7))
    event = parse_marker(capsys.readouterr().out.strip())
    assert event is not None and event["staged"] == staged
