"""Reading the checkpoint that this Spark writes: ids, offsets, the log of files with its compactions, a batch begun."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.state.checkpoint import files_between, log_entry, read_checkpoint, read_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES = 13


class _Stop(Exception):
    """Ends a batch before it is committed."""


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 13 committed batches of a file each (Spark compacts its log every 10) and one in flight."""
    folder = tmp_path_factory.mktemp("a folder with spaces, % and é")
    source, checkpoint = folder / "source", folder / "checkpoint"
    source.mkdir()

    def offer(number: int) -> None:
        path = source / _name(number)
        path.write_text(f"line {number}\n")
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first

    for number in range(_FILES):
        offer(number)

    def drain(act: Any) -> None:
        stream = spark.readStream.name("lines").option("maxFilesPerTrigger", 1).text(str(source))
        query = (
            stream.writeStream.foreachBatch(act)
            .trigger(availableNow=True)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        query.awaitTermination()

    def read(frame: Any, batch_id: int) -> None:
        frame.count()

    def stop(frame: Any, batch_id: int) -> None:
        raise _Stop

    drain(read)
    for number in (_FILES, _FILES + 1):
        offer(number)
    with pytest.raises(Exception, match="_Stop"):
        drain(stop)
    return checkpoint


def _name(number: int) -> str:
    return f"file {number:02d} %é.txt"


def test_state_with_a_batch_in_flight(written: Path) -> None:
    state = read_checkpoint(written)
    assert (state.exists, state.last_offset, state.last_commit, state.faults) == (True, _FILES, _FILES - 1, [])
    assert state.in_flight == _FILES
    assert state.query_id is not None and len(state.query_id) == 36


def test_each_batch_has_its_file(written: Path) -> None:
    """Also those whose entry stands in a compact file only."""
    folder = written / "sources/lines"
    compacts = sorted(path.name for path in folder.glob("*.compact"))
    assert compacts == ["9.compact"], "this Spark compacts otherwise: look at files_between"
    for entry in range(9):
        (folder / str(entry)).unlink(missing_ok=True)  # Spark removes them later, on its own time
    found = []
    for batch in range(_FILES + 1):
        until = log_entry(read_offsets(written, batch)["lines"])
        after = log_entry(read_offsets(written, batch - 1)["lines"]) if batch else -1
        found += files_between(written, "lines", after, until)
    assert sorted(Path(path).name for path in found) == [_name(number) for number in range(_FILES + 1)]
    assert all(Path(path).exists() for path in found), "paths are decoded"


def test_an_incomplete_copy_is_found(written: Path, tmp_path: Path) -> None:
    """A restore that was not whole, each kind of it."""

    def state_without(*names: str) -> list[str]:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(written, copy)
        for name in names:
            (copy / name).unlink()
        return read_checkpoint(copy).faults

    assert state_without() == []
    assert "metadata" in state_without("metadata")[0]
    assert state_without(f"offsets/{_FILES}", f"offsets/{_FILES - 1}")
    assert state_without(f"commits/{_FILES - 1}", f"commits/{_FILES - 2}")
    assert state_without("offsets/5")
    assert state_without(f"sources/lines/{_FILES}")
    assert not read_checkpoint(tmp_path / "nothing").exists
