"""More batches than one checkpoint remembers: a new one begins where the old one ends, and each file is read once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.streaming import make_streaming, source
from tidegate.runs.restart import new_query
from tidegate.state.checkpoint import count_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_more_batches_than_one_checkpoint_remembers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_query, "FILES_AT_MOST", 3)
    keys = source("events", "id STRING", options={"maxFilesPerTrigger": 1})
    flow = make_streaming(tmp_path, spark, f"sources:\n{keys}")
    checkpoints = []
    for run in range(4):
        for number in range(8):
            flow.offer("events", {"id": f"{run}-{number}"})
        flow.run()
        paths = flow.project.paths("flow").pinned()
        checkpoints.append(paths.checkpoint)
        assert count_files(paths.checkpoint) == 8
    assert len(set(checkpoints)) == 4
    flow.expect("id", [(f"{run}-{number}",) for run in range(4) for number in range(8)])
    assert flow.run()["outcome"] == "nothing_new"


def test_state_is_kept_however_many_there_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_query, "FILES_AT_MOST", 0)
    count = "def transform(events):\n    return events.groupBy('id').count()\n"
    more = "output_mode: update\ntable: {keys: [id]}\n"
    flow = make_streaming(tmp_path, spark, f"{more}sources:\n{source('events', 'id STRING')}", count)
    for _ in range(2):
        flow.offer("events", {"id": "a"})
        flow.offer("events", {"id": "a"})
        flow.run()
    flow.expect("id count", [("a", 4)])


def test_other_files_beside_the_batch_files_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, f"sources:\n{source('events', 'id STRING')}")
    flow.offer("events", {"id": "a"})
    flow.run()
    folder = flow.project.paths("flow").pinned().batches / "events"
    [first] = folder.glob("*.jsonl")
    for name in ("README", f"{first.name}~", "000000000001 (copy).jsonl", "000000000001.jsonl.tmp"):
        (folder / name).write_bytes(first.read_bytes())
    flow.offer("events", {"id": "b"})
    assert flow.run()["rows"]["read"] == 1
    flow.expect("id", [("a",), ("b",)])
