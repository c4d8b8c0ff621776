"""A checkpoint of Spark's own Kafka source goes on with batch files: with state, and joined with files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.former import go_back, keep_batch_files
from tests.support.streaming import make_streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics


def test_state_and_files_go_on(
    topics: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records that come twice the second is dropped, whichever version has read the first."""
    topic = topics.create(partitions=2)
    sources = {
        "feed": {
            "type": "kafka",
            "topics": [topic],
            "format": "json",
            "schema": "id INT, at TIMESTAMP",
            "starting_offsets": "earliest",
            "event_time": "at",
            "watermark": "1 day",
        },
        "lines": {
            "type": "files",
            "path": "data/inbox",
            "format": "csv",
            "schema": "id INT, at TIMESTAMP",
            "event_time": "at",
            "watermark": "1 day",
        },
    }
    transform = """
def transform(feed, lines):
    return feed.unionByName(lines).dropDuplicatesWithinWatermark(["id"]).select("id")
"""
    flow = make_streaming(tmp_path, spark, f"sources: {json.dumps(sources)}\n", transform)
    settings = tmp_path / "tidegate.yaml"
    settings.write_text(settings.read_text() + f"kafka: {{bootstrap_servers: '{topics.address}'}}\n")

    def send(*numbers: int) -> None:
        for number in numbers:
            record = {"id": number, "at": f"2026-01-01T00:{number:02}:00Z"}
            topics.send(topic, [json.dumps(record)], partition=number % 2)

    def write(name: str, *numbers: int) -> None:
        (tmp_path / f"data/inbox/{name}.csv").write_text(
            "".join(f"{number},2026-01-01T00:{number:02}:00Z\n" for number in numbers)
        )

    (tmp_path / "data/inbox").mkdir(parents=True, exist_ok=True)
    keep_batch_files(monkeypatch)
    send(1, 2)
    write("a", 3)
    flow.run()
    send(4)
    flow.run()
    write("b", 5)
    flow.run()  # nothing of the topic
    go_back(flow.project.paths(flow.name), "feed")
    send(1, 5, 6)
    write("c", 4, 7)
    report = flow.run()
    assert any("0.1.0" in note for note in report["notes"])
    assert Counter(number for (number,) in flow.rows("id")) == dict.fromkeys(range(1, 8), 1)
    send(2, 8)
    assert not any("0.1.0" in note for note in flow.run()["notes"])
    assert Counter(number for (number,) in flow.rows("id")) == dict.fromkeys(range(1, 9), 1)
