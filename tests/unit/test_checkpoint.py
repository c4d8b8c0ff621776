"""Reading Spark's checkpoint from outside: which files a batch took, and what is wrong with a list of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.staging.checkpoint import files_between, read_checkpoint


def entry(batch: int, path: str) -> str:
    """One line of a file source's log, as Spark 4.2 writes it."""
    return json.dumps({"path": path, "timestamp": 1, "batchId": batch})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three batches of one file source; the first two stand in a compacted log."""
    for name in ("offsets", "commits", "sources/orders"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id":"aaaaaaaa-0000-0000-0000-000000000001"}')
    for batch in range(3):
        (tmp_path / "offsets" / str(batch)).write_text(f'v2\n{{"batchWatermarkMs":0}}\norders:{{"logOffset":{batch}}}')
        (tmp_path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    first, second = entry(0, "file:///in/a%20b%25%3F%23.json"), entry(1, "file:/in/%C3%A9.json")
    (tmp_path / "sources" / "orders" / "1.compact").write_text(f"v1\n{first}\n{second}")
    (tmp_path / "sources" / "orders" / "2").write_text(
        f"v1\n{entry(2, 'file:///in/c.json')}\n{entry(2, 'file:///in/d.json')}"
    )
    return tmp_path


def test_the_files_of_each_batch(checkpoint: Path) -> None:
    assert files_between(checkpoint, "orders", -1, 0) == ["/in/a b%?#.json"]
    assert files_between(checkpoint, "orders", 0, 2) == ["/in/é.json", "/in/c.json", "/in/d.json"]
    assert files_between(checkpoint, "orders", 2, 2) == []


def test_a_sound_checkpoint_has_no_faults(checkpoint: Path) -> None:
    state = read_checkpoint(checkpoint)
    assert (state.last_offset, state.last_commit, list(state.faults)) == (2, 2, [])


def test_a_list_that_is_gone(checkpoint: Path) -> None:
    (checkpoint / "sources" / "orders" / "2").unlink()
    assert list(read_checkpoint(checkpoint).faults) == ["the file list sources/orders/2 of source orders is gone"]


@pytest.mark.parametrize("keep", [-1, -20, 3, 0])
def test_a_torn_list(checkpoint: Path, keep: int) -> None:
    log = checkpoint / "sources" / "orders" / "2"
    log.write_bytes(log.read_bytes()[:keep])
    assert list(read_checkpoint(checkpoint).faults) == ["the file list sources/orders/2 is torn"]
