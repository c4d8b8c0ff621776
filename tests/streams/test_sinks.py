"""Further sinks of a pipeline in one session: what a consumer gets when a sink fails halfway."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.streaming import make_streaming, source
from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.views.outlook import plan_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics


_SINKS = """\
import json
from pathlib import Path

HERE = Path(__file__).parent


def write(df, batch_id):
    with (HERE / "got.jsonl").open("a") as out:
        for number, row in enumerate(df.orderBy("id").collect()):
            if number == 2 and (HERE / "breaks").exists():
                raise ConnectionError("gone in the middle")
            out.write(json.dumps([row.id, row._run_id, row._version]) + "\\n")
            out.flush()
"""


def test_a_sink_that_fails_after_some_rows(spark: SparkSession, tmp_path: Path) -> None:
    """It gets the version again, whole: rows that it had come twice, with the same run_id and version, none is lost."""
    spec = (
        "sources:\n" + source("events", "id STRING") + 'sinks:\n  - {type: foreach_batch, function: "sinks.py:write"}\n'
    )
    flow = make_streaming(tmp_path, spark, spec)
    flow.write("jobs/flow/sinks.py", _SINKS)
    for number in range(3):
        flow.offer("events", *({"id": f"{number}-{row}"} for row in range(4)))
        if number != 1:
            flow.run()
            continue
        breaks = flow.write("jobs/flow/breaks", "")
        with pytest.raises(TryAgainError, match="version 1: ConnectionError: gone in the middle") as caught:
            flow.run()
        assert caught.value.code == "SINK_FAILED" and "sinks.py:" in str(caught.value.where)
        breaks.unlink()
    flow.expect("id", [(f"{number}-{row}",) for number in range(3) for row in range(4)])
    got = Counter(tuple(json.loads(line)) for line in (tmp_path / "jobs/flow/got.jsonl").read_text().splitlines())
    assert got == Counter(
        {
            (f"{number}-{row}", f"run-{number + 1}", number): 2 if number == 1 and row < 2 else 1
            for number in range(3)
            for row in range(4)
        }
    )


def test_a_sink_that_is_behind_gets_rows_that_were_replaced_since(spark: SparkSession, tmp_path: Path) -> None:
    """Their file has another name by then, one that Spark does not list."""
    spec = (
        "output_mode: update\ntable: {keys: [id], partition_by: [k]}\nmaintenance: {keep_versions: 0 seconds}\n"
        + "sources:\n"
        + source("events", "id STRING, k STRING")
        + 'sinks:\n  - {type: foreach_batch, function: "sinks.py:write"}\n'
    )
    flow = make_streaming(tmp_path, spark, spec)
    flow.write("jobs/flow/sinks.py", _SINKS.replace("[row.id, row._run_id,", "[row.id, row.k,").replace("== 2", "== 0"))
    breaks = flow.write("jobs/flow/breaks", "")
    for _ in range(2):
        flow.offer("events", {"id": "a", "k": "x"}, {"id": "b", "k": "y=1"})
        with pytest.raises(TryAgainError, match="gone in the middle"):
            flow.run()
    breaks.unlink()
    flow.offer("events", {"id": "c", "k": "x"})
    flow.run()
    got = [tuple(json.loads(line)) for line in (tmp_path / "jobs/flow/got.jsonl").read_text().split("\n") if line]
    assert got == [("a", "x", 0), ("b", "y=1", 0), ("a", "x", 2), ("b", "y=1", 2), ("c", "x", 3)]


def test_columns_that_a_kafka_sink_cannot_take(spark: SparkSession, tmp_path: Path) -> None:
    """What the transform makes of them is refused before a row is staged; what the table has, by the plan."""
    sinks = "sinks:\n  - {type: kafka, value: columns, topic: t}\n"
    spec = "sources:\n" + source("events", "id STRING, n BIGINT") + sinks
    flow = make_streaming(
        tmp_path, spark, spec, "def transform(events):\n    return events.withColumn('value', F.col('n'))\n"
    )
    flow.offer("events", {"id": "a", "n": 1})
    said = "sinks[0]: the column value is BIGINT, and a kafka sink with value: columns wants STRING or BINARY"
    with pytest.raises(TidegateError, match=re.escape(said)) as caught:
        flow.run()
    assert (caught.value.code, caught.value.exit_code) == ("BAD_SINK", 64)
    assert not list(flow.state.rglob("*.parquet"))

    pipeline = tmp_path / "jobs/flow/pipeline.yaml"
    text = pipeline.read_text()
    pipeline.write_text(text.replace(sinks, ""))
    flow.run()
    flow.expect("id value", [("a", 1)])
    pipeline.write_text(text)
    [error] = plan_pipeline(flow.project, flow.name)["errors"]
    assert error["code"] == "BAD_SINK" and said in error["message"]


_RECORDS = """\
SELECT
  id AS key,
  to_json(struct(id, amount)) AS value,
  concat('orders-', lower(country)) AS topic,
  CAST(NULL AS INT) AS partition,
  array(named_struct('key', 'source', 'value', CAST('shop' AS BINARY))) AS headers,
  country
FROM orders
"""
_RULE = """\
name: flow
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: topic}
    meta: {rule: topic_present, on_failure: quarantine}
"""


def test_each_order_goes_to_the_topic_of_its_country(spark: SparkSession, tmp_path: Path, topics: Topics) -> None:
    """The example of docs/how-to/feed-further-sinks.md, from the file to the topics."""
    from confluent_kafka import Consumer

    spec = "transform: transform.sql\ntable: {partition_by: [country]}\nsinks:\n  - {type: kafka, value: columns}\n"
    flow = make_streaming(
        tmp_path, spark, spec + "sources:\n" + source("orders", "id STRING, amount INT, country STRING")
    )
    flow.write("jobs/flow/transform.sql", _RECORDS)
    flow.write("expectations/flow.yaml", _RULE)
    settings = flow.root / "tidegate.yaml"
    settings.write_text(f"{settings.read_text()}kafka: {{bootstrap_servers: '{topics.address}'}}\n")
    names = [topics.create(name) for name in ("orders-de", "orders-fr")]
    flow.offer("orders", {"id": "1", "amount": 5, "country": "DE"}, {"id": "2", "amount": 7, "country": "FR"})
    flow.offer("orders", {"id": "3", "amount": 9, "country": None}, {"id": "4", "amount": 1, "country": "DE"})
    report = flow.run()
    assert report["sinks"] == [{"type": "kafka", "name": "kafka:*", "version": 0, "behind": 0, "error": None}]
    assert list(flow.quarantined()) == ["topic_present"]

    consumer = Consumer({"bootstrap.servers": topics.address, "group.id": "streams", "auto.offset.reset": "earliest"})
    consumer.subscribe(names)
    found = {}
    for message in consumer.consume(3, timeout=60):
        key, headers = message.key(), message.headers()
        assert key is not None and headers is not None
        assert headers[:2] == [("source", b"shop"), ("run_id", b"run-1")]
        found[key.decode()] = (message.topic(), json.loads(message.value() or b""))
    consumer.close()
    assert found == {
        "1": ("orders-de", {"id": "1", "amount": 5}),
        "2": ("orders-fr", {"id": "2", "amount": 7}),
        "4": ("orders-de", {"id": "4", "amount": 1}),
    }

    # A country without a topic: the table has its row, the sink waits for the topic, and then gets the version whole.
    flow.offer("orders", {"id": "5", "amount": 2, "country": "DE"}, {"id": "6", "amount": 3, "country": "IT"})
    with pytest.raises(TryAgainError, match=r"there is no topic 'orders-it', named by row .* of the version") as caught:
        flow.run()
    assert caught.value.code == "SINK_FAILED" and "--create --topic orders-it" in str(caught.value.fix)
    topics.create("orders-it")
    assert flow.run()["sinks"][0]["behind"] == 0
