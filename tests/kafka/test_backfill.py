"""Days rebuilt from topics: exactly the offsets that runs have taken, and what retention has taken is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming
from tidegate.backfill.command import backfill_table, look_at_backfill
from tidegate.backfill.span import Wanted
from tidegate.errors import SourceLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka.conftest import Topics

TRANSFORM = (
    "def transform(events):\n    return events.withColumn('day', F.to_date('at')).withColumn('n', F.col('n') * {})\n"
)


def record(name: str, day: int, n: int = 1) -> str:
    return json.dumps({"id": name, "at": f"2026-01-{day:02d}T08:00:00Z", "n": n})


def make(topics: Topics, spark: SparkSession, root: Path, topic: str) -> Streaming:
    kafka = json.dumps(
        {"type": "kafka", "topics": [topic], "format": "json", "schema": "id STRING, at TIMESTAMP, n INT"}
    )
    flow = make_streaming(root, spark, f"table: {{partition_by: [day]}}\nsources:\n  events: {kafka}\n", "pass\n")
    flow.write(
        "tidegate.yaml",
        f'version: 1\nspark: {{master: "local[2]"}}\nkafka: {{bootstrap_servers: "{topics.address}"}}\n',
    )
    change(flow, 1)
    return flow


def change(flow: Streaming, factor: int) -> None:
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{TRANSFORM.format(factor)}")


def backfill(flow: Streaming, first: int, last: int, run_id: str) -> dict[str, Any]:
    wanted = Wanted(f"2026-01-{first:02d}", f"2026-01-{last:02d}")
    return dict(backfill_table(flow.project, flow.name, run_id, wanted, submit=in_session(flow.spark)))


def test_the_offsets_that_runs_have_taken(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1), record("b", 1), "broken"], partition=0)
    topics.send(topic, [record("c", 1)], partition=1)
    flow.run()
    topics.send(topic, [record("d", 2), record("late", 1)], partition=0)
    flow.run()
    topics.send(topic, [record("e", 3)], partition=1)
    flow.run()
    topics.send(topic, [record("waits", 1)], partition=1)  # the next run's
    looked = look_at_backfill(flow.project, "flow", Wanted("2026-01-01", "2026-01-01"))
    assert looked["intervals"][0]["offsets"] == 6 and looked["intervals"][0]["stays_in_quarantine"] == 1
    change(flow, 10)
    report = backfill(flow, 1, 1, "first")
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (5, 0, 4)
    flow.expect("id n", [("a", 10), ("b", 10), ("c", 10), ("late", 10), ("d", 1), ("e", 1)])
    assert len(flow.quarantined()["malformed"]) == 1
    change(flow, 1)
    flow.run()
    flow.expect("id n", [("a", 10), ("b", 10), ("c", 10), ("late", 10), ("d", 1), ("e", 1), ("waits", 1)])
    change(flow, 3)
    backfill(flow, 1, 3, "all")
    flow.expect("id n", [(one, 3) for one in ("a", "b", "c", "late", "d", "e", "waits")])


def test_partitions_without_a_record_and_new_ones(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(partitions=3)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1)], partition=1)
    flow.run()
    topics.grow(topic, 5)
    topics.send(topic, [record("unseen", 1)], partition=4)
    change(flow, 10)
    assert backfill(flow, 1, 1, "first")["rows"]["published"] == 1
    flow.expect("id n", [("a", 10)])
    flow.run()
    flow.expect("id n", [("a", 10), ("unseen", 10)])


def test_what_retention_has_taken(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(partitions=1)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1), record("b", 1)])
    flow.run()
    topics.send(topic, [record("c", 2)])
    flow.run()
    topics.cut(topic, 0, before=1)
    change(flow, 10)
    with pytest.raises(SourceLostError) as gone:
        backfill(flow, 1, 2, "both")
    assert gone.value.code == "BACKFILL_GONE" and "day=2026-01-02" in str(gone.value.fix)
    flow.expect("id n", [("a", 1), ("b", 1), ("c", 1)])
    assert backfill(flow, 2, 2, "possible")["rows"]["published"] == 1
    flow.expect("id n", [("a", 1), ("b", 1), ("c", 10)])
