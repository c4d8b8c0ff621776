"""The Kafka sink with a real broker: each row once, repeats that can be told, failures that name their cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.conftest import Topics
from tests.sink_bench import Bench
from tidegate.errors import TryAgainError
from tidegate.sink.fault import SinkFault
from tidegate.sink.feed import feed_sink
from tidegate.sink.kafka import KafkaFeeder
from tidegate.sink.progress import begin_sink, last_fed
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec

if TYPE_CHECKING:
    from confluent_kafka import Message

Record = tuple[str | None, dict[str, Any] | None, dict[str, str]]


def read_topic(topics: Topics, topic: str) -> list[Record]:
    """Every record: key, value and headers."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": topics.address, "group.id": "reader", "log_level": 0, "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        found: list[Record] = []
        for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
            consumer.assign([TopicPartition(topic, number, 0)])
            at = 0
            while at < end:
                message: Message | None = consumer.poll(10)
                assert message is not None and message.error() is None
                at = message.offset() + 1
                key, value = message.key(), message.value()
                headers = {name: text.decode() for name, text in message.headers() or []}
                found.append((key.decode() if key else None, json.loads(value) if value else None, headers))
        return found
    finally:
        consumer.close()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


Feed = Callable[..., None]


@pytest.fixture
def feed(bench: Bench, kafka: ProjectKafkaSpec) -> Iterator[Feed]:
    def act(sink: KafkaSink, check_lease: Callable[[], None] = lambda: None) -> None:
        table = bench.table()
        begin_sink(bench.paths, sink.name, table, "feeder")
        if table is not None:
            make = partial(KafkaFeeder, sink, bench.paths, table.schema_json, kafka)
            feed_sink(bench.paths, sink, table, make, run_id="feeder", check_lease=check_lease)

    yield act


def test_every_row_is_a_record(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create(partitions=2), key="DAY")
    feed(sink)
    bench.publish()
    bench.publish()
    feed(sink)
    bench.publish(2500)  # more than one batch of rows
    feed(sink)
    feed(sink)
    records = read_topic(topics, sink.topic)
    assert sorted(value["id"] for _, value, _ in records if value) == sorted(bench.offered)
    for key, value, headers in records:
        assert value is not None and list(value) == ["id", "day"] and key == value["day"]
        version = bench.offered[value["id"]]
        assert (headers["run_id"], headers["table_version"]) == (f"run-{version}", str(version))
    marks = {(headers["table_version"], headers["row"]) for _, _, headers in records}
    assert len(marks) == len(records)


def test_a_crash_repeats_the_last_commit_at_most_and_repeats_can_be_told(
    bench: Bench, feed: Feed, topics: Topics
) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    for _ in range(3):
        bench.publish()
    for die_at in (2, 4, 4):  # after the version was sent, before it is noted
        asked = iter(range(1, 100))

        def check(at: int = die_at, asked: Iterator[int] = asked) -> None:
            if next(asked) == at:
                raise TryAgainError("LEASE_LOST", "overtaken")

        with pytest.raises(TryAgainError):
            feed(sink, check)
    feed(sink)
    records = read_topic(topics, sink.topic)
    by_mark: dict[tuple[str, str], list[Any]] = {}
    for _, value, headers in records:
        by_mark.setdefault((headers["table_version"], headers["row"]), []).append(value)
    assert sorted(values[0]["id"] for values in by_mark.values()) == sorted(bench.offered)
    assert all(value == values[0] for values in by_mark.values() for value in values)
    assert len(records) > len(by_mark)
    table = bench.table()
    assert table is not None and last_fed(bench.paths, sink.name, table) == 2


def test_a_missing_topic_is_named_and_not_made(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.name("missing"))
    feed(sink)
    bench.publish()
    with pytest.raises(SinkFault) as failed:
        feed(sink)
    assert failed.value.message == f"version 0: there is no topic '{sink.topic}'"
    assert "--create --topic" in failed.value.fix and topics.address in str(failed.value.where)
    topics.create(sink.topic)
    feed(sink)
    assert len(read_topic(topics, sink.topic)) == 4


def test_a_key_that_is_no_column(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create(), key="start")
    feed(sink)
    bench.publish()
    with pytest.raises(SinkFault, match="its key 'start' is no column of the table; the columns are: id, day"):
        feed(sink)


def test_a_record_that_the_topic_does_not_take(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create(**{"max.message.bytes": "60"}))
    feed(sink)
    bench.publish()
    with pytest.raises(SinkFault, match=r"the broker did not take a record: .*too large"):
        feed(sink)
    table = bench.table()
    assert table is not None and last_fed(bench.paths, sink.name, table) == -1


def test_brokers_that_are_away(bench: Bench, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic="t")
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    kafka = ProjectKafkaSpec(bootstrap_servers="127.0.0.1:9", options=options | {"sasl.password": "canary-7a1"})
    begin_sink(bench.paths, sink.name, None, "feeder")
    bench.publish()
    table = bench.table()
    assert table is not None
    make = partial(KafkaFeeder, sink, bench.paths, table.schema_json, kafka)
    with pytest.raises(SinkFault) as failed:
        feed_sink(bench.paths, sink, table, make, run_id="r", check_lease=lambda: None)
    assert "BROKER_AWAY" in failed.value.message and "127.0.0.1:9" in str(failed.value.where)
    assert "canary" not in str(failed.value.to_dict())
