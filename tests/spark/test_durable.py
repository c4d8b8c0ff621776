"""What this Spark writes into a checkpoint is on disk after each sync: bytes and names, logs and state."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.synced import Synced
from tidegate.state.durable import CheckpointSync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@pytest.mark.parametrize("kept_by", ["nothing", "HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_everything_under_the_checkpoint_is_synced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_by: str
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "state" / "checkpoint"
    source.mkdir()
    for number in range(3):
        path = source / f"{number}.json"
        path.write_text(json.dumps({"id": number}) + "\n")
        os.utime(path, (1_700_000_000 + number,) * 2)
    synced, sync = Synced(monkeypatch), CheckpointSync(checkpoint)
    batches = []

    def stage(frame: Any, batch_id: int) -> None:
        frame.write.format("noop").mode("overwrite").save()
        sync.sync_batch(batch_id)
        batches.append((batch_id, synced.missing(checkpoint)))

    rows = spark.readStream.name("lines").option("maxFilesPerTrigger", 1).schema("id INT").json(str(source))
    with_state = kept_by != "nothing"
    rows = rows.groupBy("id").agg(F.count("*")) if with_state else rows
    before = spark.conf.get(_PROVIDER)
    try:
        if with_state:
            spark.conf.set(_PROVIDER, f"{_PROVIDERS}.{kept_by}")
        query = (
            rows.writeStream.outputMode("update" if with_state else "append")
            .foreachBatch(stage)
            .trigger(availableNow=True)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        query.awaitTermination()
    finally:
        spark.conf.set(_PROVIDER, before)
    assert batches == [(0, []), (1, []), (2, [])]
    assert synced.missing(checkpoint) != [], "the last commit came after the last batch"
    sync.sync_batch(2)
    assert synced.missing(checkpoint) == []
