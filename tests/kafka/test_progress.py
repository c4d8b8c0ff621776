"""A run shows how far it is while one task reads for long: a packed file, and a partition of a topic."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.streaming import make_streaming, source
from tidegate.spark.driver.progress import parse_marker
from tidegate.spark.ingest import job, pace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics

_LINES, _OFFSETS = 150_000, 40
_UNION = "def transform(orders, trades):\n    return orders.unionByName(trades)\n"


def test_a_long_task_reports_while_it_reads(
    topics: Topics,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pace, "_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(job, "_POLL_SECONDS", 0.02)
    topic = topics.create()
    # Large records, so that few make several batches of a reader.
    topics.send(topic, [json.dumps({"id": number, "text": "x" * 500_000}) for number in range(_OFFSETS)])
    kafka = json.dumps({"type": "kafka", "topics": [topic], "format": "json", "schema": "id INT"})
    flow = make_streaming(tmp_path, spark, f"sources:\n{source('orders', 'id INT')}  trades: {kafka}\n", _UNION)
    flow.create(f'kafka: {{bootstrap_servers: "{topics.address}"}}\n')
    lines = "".join(f'{{"id": {number}, "text": "{random()}"}}\n' for number in range(_LINES))
    (flow.root / "data/in/orders").mkdir(parents=True)
    packed = gzip.compress(lines.encode())
    (flow.root / "data/in/orders/a.json.gz").write_bytes(packed)
    report = flow.run()
    assert report["rows"]["published"] == _LINES + _OFFSETS
    events: list[Any] = [event for line in capfd.readouterr().out.splitlines() if (event := parse_marker(line))]
    read = [event for event in events if event["event"] == "ingest"]
    assert {(event["bytes_pending"], event["offsets_pending"]) for event in read} == {(len(packed), _OFFSETS)}
    assert any(0 < event["bytes"] < len(packed) for event in read), "a part of the file"
    assert any(0 < event["offsets"] < _OFFSETS for event in read), "a part of the topic"
    assert [event["rows"] for event in read] == sorted(event["rows"] for event in read)
    begun = [event for event in events if "attempt" in event]
    assert [(event["files"], event["offsets"]) for event in begun] == [(1, _OFFSETS)]
