"""What a manifest speaks of is on disk: Spark syncs nothing of its checkpoint, so tidegate does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.synced import Synced
from tidegate.core import storage
from tidegate.state.durable import CheckpointSync

OPERATOR = "state/0/0"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Synced]:
    yield Synced(monkeypatch)


class Spark:
    """Writes a checkpoint as Spark 4.2 does: no file is synced, each has its checksum beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ns = 1_700_000_000_000_000_000
        self.write("metadata", '{"id":"q"}')

    def write(self, name: str, text: str = "v1\n{}") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.now_ns += 1_000_000
        for one in (path.with_name(f".{path.name}.crc"), path):
            one.write_text(text)
            os.utime(one, ns=(self.now_ns,) * 2)
        for folder in [one for one in path.parents if one.is_relative_to(self.folder)]:
            os.utime(folder, ns=(self.now_ns,) * 2)

    def plan(self, batch: int, log: str | None = None) -> None:
        self.write(f"sources/orders/{log or batch}")
        self.write(f"offsets/{batch}", f'v2\n{{"batchWatermarkMs":0}}\norders:{{"logOffset":{batch}}}\nclicks:-')

    def compute(self, batch: int) -> None:
        self.write(f"{OPERATOR}/{batch + 1}.delta")

    def commit(self, batch: int) -> None:
        self.write(f"commits/{batch}")


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path / "state" / "checkpoint")


def test_before_the_first_manifest_everything_is_on_disk(spark: Spark, synced: Synced) -> None:
    spark.write("state/0/_metadata/metadata")
    spark.plan(0)
    spark.compute(0)
    CheckpointSync(spark.folder).sync_batch(0)
    assert synced.missing(spark.folder) == []
    assert str(spark.folder.parent) in synced.paths, "the checkpoint's own name"


def test_each_batch_and_the_last_commit(spark: Spark, synced: Synced) -> None:
    sync = CheckpointSync(spark.folder)
    for batch in range(12):
        spark.plan(batch, log="9.compact" if batch == 9 else None)
        spark.compute(batch)
        if batch == 6:
            spark.write(f"{OPERATOR}/3.snapshot")  # of an older version: Spark's maintenance
        sync.sync_batch(batch)
        assert synced.missing(spark.folder) == [], batch
        spark.commit(batch)
    sync.sync_batch(11)
    assert synced.missing(spark.folder) == []


def test_a_batch_of_years_costs_no_more_than_the_first(spark: Spark, synced: Synced) -> None:
    sync = CheckpointSync(spark.folder)
    counts = []
    for batch in range(30):
        spark.plan(batch)
        spark.compute(batch)
        counts.append(sync.sync_batch(batch))
        spark.commit(batch)
    assert len(set(counts[2:])) == 1 and counts[2] < 20
    fresh = CheckpointSync(spark.folder).sync_batch(29)
    assert fresh < 2 * counts[2], "a new process syncs the batch before again, and nothing older"


def test_a_run_that_was_killed_before_its_last_sync(spark: Spark, synced: Synced) -> None:
    """What the batch before left is synced with the next batch, by whoever stages that."""
    spark.plan(0)
    spark.compute(0)
    CheckpointSync(spark.folder).sync_batch(0)
    spark.write("state/0/1/SSTs/000008-18e1.sst")
    spark.commit(0)
    spark.plan(1)
    spark.compute(1)
    CheckpointSync(spark.folder).sync_batch(1)
    assert synced.missing(spark.folder) == []


@pytest.mark.parametrize("fresh", [False, True])
def test_a_clock_that_is_set_back_between_two_batches(spark: Spark, synced: Synced, fresh: bool) -> None:
    sync = CheckpointSync(spark.folder)
    for batch in range(4):
        spark.now_ns -= 2_000_000_000 if batch == 2 else 0
        spark.plan(batch)
        spark.compute(batch)
        (CheckpointSync(spark.folder) if fresh else sync).sync_batch(batch)
        assert synced.missing(spark.folder) == [], batch
        spark.commit(batch)


def test_a_clock_that_is_set_back_within_a_batch(spark: Spark, synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = CheckpointSync(spark.folder)
    spark.plan(0)
    spark.compute(0)
    sync.sync_batch(0)
    spark.commit(0)
    spark.plan(1)
    spark.now_ns -= 2_000_000_000
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() - 2_000_000_000)
    spark.compute(1)
    sync.sync_batch(1)
    assert synced.missing(spark.folder) == []


def test_a_file_list_of_several_entries(spark: Spark, synced: Synced) -> None:
    """A query that was killed between its list of files and its offsets goes on with the next number."""
    spark.plan(0)
    CheckpointSync(spark.folder).sync_batch(0)
    spark.write("sources/orders/1")
    spark.write("sources/orders/2")
    spark.write("offsets/1", 'v2\n{"batchWatermarkMs":0}\norders:{"logOffset":2}')
    CheckpointSync(spark.folder).sync_batch(1)
    assert synced.missing(spark.folder) == []


def test_a_torn_entry_of_an_older_batch_is_for_others_to_refuse(spark: Spark, synced: Synced) -> None:
    spark.plan(0)
    spark.plan(1)
    torn = spark.folder / "offsets" / "0"
    before = torn.stat().st_mtime_ns
    torn.write_text("")
    os.utime(torn, ns=(before, before))
    CheckpointSync(spark.folder).sync_batch(1)
    assert not [line for line in synced.missing(spark.folder) if "/1" in line]


def test_what_spark_removes_meanwhile_is_no_error(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.plan(0)
    spark.compute(0)
    real = storage.sync_file

    def remove_first(path: Path) -> None:
        if path.name == "1.delta":
            path.unlink()
        real(path)

    monkeypatch.setattr("tidegate.core.storage.files.sync_file", remove_first)
    CheckpointSync(spark.folder).sync_batch(0)


def test_a_file_system_without_sync_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").touch()

    def refuse(handle: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    storage.sync_files([tmp_path / "here", tmp_path / "gone"])
