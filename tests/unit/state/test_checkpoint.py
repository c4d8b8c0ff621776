"""Reading Spark's checkpoint from outside: which files a batch took, and what is wrong with a list of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.core import storage
from tidegate.state.checkpoint import (
    files_between,
    plan_closing_batch,
    read_checkpoint,
    read_offsets,
    read_watermark,
)


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


def test_a_source_that_had_nothing_yet_is_missing_from_the_offsets(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "2").write_text('v2\n{"batchWatermarkMs":0}\norders:{"logOffset":2}\nclicks:-')
    assert read_offsets(checkpoint, 2) == {"orders": 2}
    assert read_checkpoint(checkpoint).faults == []


def test_a_checkpoint_of_an_earlier_version_is_named(checkpoint: Path) -> None:
    """Its sources have numbers instead of names, so nothing of it may be taken for what it is not."""
    (checkpoint / "offsets" / "2").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":2}')
    why = "'v1' instead of v2: no run of tidegate made this checkpoint"
    assert read_checkpoint(checkpoint).faults == [f"the offsets of batch 2 cannot be read: {why}"]
    with pytest.raises(ValueError, match=why):
        read_offsets(checkpoint, 2)


WATERMARK = 1_767_225_600_000


@pytest.fixture
def with_state(checkpoint: Path) -> Path:
    """The last batch ran with a watermark, and Spark has left a higher one for the next."""
    metadata = json.dumps({"batchWatermarkMs": WATERMARK, "batchTimestampMs": 5, "conf": {"a": "b"}})
    (checkpoint / "offsets" / "2").write_text(f'v2\n{metadata}\norders:{{"logOffset":2}}\nclicks:-')
    (checkpoint / "commits" / "2").write_text(f'v1\n{{"nextBatchWatermarkMs":{WATERMARK + 60_000}}}')
    return checkpoint


def test_the_watermark_of_the_next_batch(with_state: Path, tmp_path: Path) -> None:
    assert read_watermark(with_state) == WATERMARK + 60_000
    assert read_watermark(tmp_path / "nothing") == 0
    (with_state / "commits" / "2").write_text("v1\n{}")
    assert read_watermark(with_state) == 0


def test_a_closing_batch_is_the_last_one_with_another_watermark(with_state: Path) -> None:
    assert plan_closing_batch(with_state, WATERMARK + 60_000) == 3
    version, metadata, *sources = (with_state / "offsets" / "3").read_text().splitlines()
    assert (version, sources) == ("v2", ['orders:{"logOffset":2}', "clicks:-"])
    planned = json.loads(metadata)
    assert planned.pop("batchTimestampMs") > 5  # now
    assert planned == {"batchWatermarkMs": WATERMARK + 60_000, "conf": {"a": "b"}}
    state = read_checkpoint(with_state)
    assert (state.in_flight, state.faults) == (3, [])


@pytest.mark.parametrize("watermark", [WATERMARK, WATERMARK - 1, 0])
def test_a_watermark_that_the_last_batch_had_closes_nothing(with_state: Path, watermark: int) -> None:
    assert plan_closing_batch(with_state, watermark) is None
    assert read_checkpoint(with_state).in_flight is None
    assert sorted(path.name for path in (with_state / "offsets").iterdir()) == ["0", "1", "2"]


def test_without_a_batch_there_is_nothing_to_close(tmp_path: Path) -> None:
    assert plan_closing_batch(tmp_path / "checkpoint", WATERMARK) is None
    assert not (tmp_path / "checkpoint").exists()


def test_what_somebody_else_has_planned_stands(with_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was believed dead plans its own batch between the look and the write."""
    theirs, put = b"v2\nplanned by somebody else", storage.put_if_absent

    def put_late(path: Path, data: bytes) -> bool:
        assert put(path, theirs)
        return put(path, data)

    monkeypatch.setattr(storage, "put_if_absent", put_late)
    assert plan_closing_batch(with_state, WATERMARK + 60_000) == 3
    assert (with_state / "offsets" / "3").read_bytes() == theirs
    assert sorted(path.name for path in (with_state / "offsets").iterdir()) == ["0", "1", "2", "3"]
