"""Ranges of offsets read in Python on a real broker: exact at every bound, and every loss as a fault with its range."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.kafka.raw_producer import send_with_header
from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers import kafka_records
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.kafka_records import Records, read_range
from tidegate.sources.readers.kafka_worker import RangesReader
from tidegate.sources.readers.unreadable import RangeFault, RangeProblem, TopicRange

if TYPE_CHECKING:
    from tests.support.topics import Topics
    from tools.broker import Broker

_SMALL_STEPS = {"fetch.message.max.bytes": 50_000, "queued.max.messages.kbytes": 64, "queued.min.messages": 10}
"""For a client that is never far ahead."""


def settings_of(topics: Topics, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": topics.address, **more}


def read(topics: Topics, topic: str, begin: int, end: int, partition: int = 0, **more: Any) -> dict[int, bytes | None]:
    """The values of a range by their offsets, which ascend."""
    found: list[tuple[int, bytes | None]] = []
    for records in read_range(settings_of(topics), TopicRange(topic, partition, begin, end), **more):
        found += zip(records.offsets, records.values, strict=True)
    assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    return dict(found)


def fault_of(records: Iterator[Records]) -> RangeFault:
    with pytest.raises(RangeFault) as caught:
        list(records)
    return caught.value


def topic_id_of(topics: Topics, topic: str) -> str:
    from confluent_kafka import TopicCollection

    [found] = topics.admin.describe_topics(TopicCollection([topic])).values()
    return str(found.result().topic_id)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("PATIENCE", 2.0), ("_LOOK", 0.3), ("_SETTLE", 1.0), ("_ANSWER", 1.0)):
        monkeypatch.setattr(kafka_records, f"{name}_SECONDS", seconds)


def test_200_000_records(topics: Topics) -> None:
    from confluent_kafka import Producer

    topic, dice = topics.create(partitions=4), random.Random(7)
    producer = Producer(settings_of(topics, **{"linger.ms": 20, "compression.type": "zstd"}))
    sent: list[list[bytes]] = [[] for _ in range(4)]
    for number in range(200_000):
        value = b"%d %s" % (number, b"x" * dice.randrange(300))
        sent[number % 4].append(value)
        producer.produce(topic, value, partition=number % 4)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    for partition, values in enumerate(sent):
        cuts = [0, *sorted(dice.sample(range(1, 50_000), 3)), 50_000]
        for begin, end in itertools.pairwise(cuts):
            assert read(topics, topic, begin, end, partition) == dict(enumerate(values[begin:end], begin))
    [clients] = [clients for (_, settings), clients in kafka_records._idle.items() if clients and len(settings) == 1]
    assert len(clients) == 1


def test_transactions_at_every_bound(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, ["a", "b"])
    topics.send_in_transaction(topic, ["x", "y"], commit=False)
    topics.send_in_transaction(topic, ["c"], commit=True)
    topics.send_in_transaction(topic, ["z"], commit=False)
    committed = {0: b"a", 1: b"b", 5: b"c"}  # 4, 6 and 8 are markers
    for begin in range(10):
        for end in range(begin, 10):
            wanted = {offset: value for offset, value in committed.items() if begin <= offset < end}
            assert read(topics, topic, begin, end) == wanted, (begin, end)


def test_records_that_compaction_took(topics: Topics) -> None:
    from confluent_kafka import Producer

    topic = topics.create(
        **{
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "segment.ms": "100",
            "delete.retention.ms": "0",
        }
    )
    producer = Producer(settings_of(topics))

    def send(key: str, value: str) -> None:
        producer.produce(topic, value, key=key)
        assert producer.flush(10) == 0

    for number in range(6):
        send("ab"[number % 2], str(number))
    deadline, last = time.monotonic() + 60, 6
    while len(found := read(topics, topic, 0, 6)) > 2:  # a segment is closed by the next record
        assert time.monotonic() < deadline, "the broker did not compact the topic"
        time.sleep(0.3)
        send("c", str(last))
        last += 1
    assert found == {4: b"4", 5: b"5"}
    assert read(topics, topic, 0, 4) == {} and read(topics, topic, 2, 5) == {4: b"4"}


def test_what_retention_takes_in_mid_read(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x" * 3000 for _ in range(3000)])
    topic_id = topic_id_of(topics, topic)
    records = read_range(settings_of(topics, **_SMALL_STEPS), TopicRange(topic, 0, 0, 3000), topic_id)
    begun = next(records).offsets
    last = begun[-1]
    assert begun[0] == 0 and last < 2800
    topics.cut(topic, 0, 2900)
    with pytest.raises(RangeFault) as caught:
        for some in records:
            assert some.offsets[0] == last + 1
            last = some.offsets[-1]
    fault = caught.value
    assert (fault.problem, fault.where.end) == (RangeProblem.LOST, 2900) and last < fault.where.begin < 2900
    for begin, end, lost in ((10, 20, (10, 20)), (10, 2950, (10, 2900))):
        fault = fault_of(read_range(settings_of(topics), TopicRange(topic, 0, begin, end), topic_id))
        assert (fault.problem, (fault.where.begin, fault.where.end)) == (RangeProblem.LOST, lost)
    assert len(read(topics, topic, 2900, 3000)) == 100


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_deleted_and_made_again(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, ["a", "b", "c"])
    known = topic_id_of(topics, topic)
    assert len(read(topics, topic, 0, 3, topic_id=known)) == 3
    topics.delete(topic)
    fault = fault_of(read_range(settings_of(topics), TopicRange(topic, 0, 0, 3), known))
    assert (fault.problem, fault.where.topic, fault.where.begin, fault.where.end) == (
        RangeProblem.TOPIC_GONE,
        topic,
        0,
        3,
    )
    topics.create(topic)
    topics.send(topic, ["A", "B", "C", "D"])
    assert (
        fault_of(read_range(settings_of(topics), TopicRange(topic, 0, 0, 3), known)).problem
        == RangeProblem.TOPIC_RECREATED
    )
    assert (
        fault_of(read_range(settings_of(topics), TopicRange(topic, 0, 90, 99), known)).problem
        == RangeProblem.TOPIC_RECREATED
    )
    assert len(read(topics, topic, 0, 4, topic_id=topic_id_of(topics, topic))) == 4


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_is_deleted_in_mid_read(topics: Topics, is_made_again: bool) -> None:
    topic, values = topics.create(), [b"x" * 3000] * 3000
    topics.send(topic, values)
    records = read_range(settings_of(topics, **_SMALL_STEPS), TopicRange(topic, 0, 0, 3000), topic_id_of(topics, topic))
    assert next(records).offsets[-1] < 2800
    topics.delete(topic)
    if is_made_again:
        topics.create(topic)
        topics.send(topic, values)
    assert fault_of(records).problem == (RangeProblem.TOPIC_RECREATED if is_made_again else RangeProblem.TOPIC_GONE)


def test_the_client_says_how_far_it_has_received(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka import TopicPartition

    monkeypatch.setattr(kafka_records, "_FIXED", {**kafka_records._FIXED, "statistics.interval.ms": 100})
    topic = topics.create()
    topics.send_in_transaction(topic, ["x"] * 500, commit=False)
    client = kafka_records._Client(settings_of(topics))
    client.consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + 20
    while client.find_next_offset(topic, 0) < 500:
        assert time.monotonic() < deadline
        assert all(message.error() is not None for message in client.consumer.consume(10, 0.1))
    client.close()


@pytest.mark.usefixtures("impatient")
def test_a_log_or_a_topic_that_ends_before_the_range(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, ["a", "b", "c"])
    for begin, end in ((0, 5), (3, 5), (4, 5)):
        fault = fault_of(read_range(settings_of(topics), TopicRange(topic, 0, begin, end)))
        assert (fault.problem, fault.where.begin, fault.where.end) == (RangeProblem.TRUNCATED, 3, 5)
    assert fault_of(read_range(settings_of(topics), TopicRange(topic, 1, 0, 1))).problem == RangeProblem.TOPIC_GONE


@pytest.mark.usefixtures("impatient")
def test_the_way_to_the_broker(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, ["a"])
    assert list(read_range({"bootstrap.servers": "127.0.0.1:1"}, TopicRange(topic, 0, 7, 7))) == []
    fault = fault_of(read_range({"bootstrap.servers": "127.0.0.1:1"}, TopicRange(topic, 0, 0, 1)))
    assert fault.problem == RangeProblem.SILENT and "refused" in fault.reason
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "pw",
    }
    fault = fault_of(read_range(settings_of(topics, **login), TopicRange(topic, 0, 0, 1)))
    assert fault.problem == RangeProblem.LOGIN and "SASL" in fault.reason
    fault = fault_of(read_range(settings_of(topics, **{"security.protocol": "SSL"}), TopicRange(topic, 0, 0, 1)))
    assert fault.problem == RangeProblem.SILENT and "SSL" in fault.reason
    with topics.forbidden("topic", topic, "read"):
        fault = fault_of(read_range(settings_of(topics), TopicRange(topic, 0, 0, 1)))
        assert fault.problem == RangeProblem.FORBIDDEN
    with topics.forbidden("group", "tidegate", "read"), topics.forbidden("group", "tidegate", "describe"):
        fresh = settings_of(topics, **{"client.id": "of-no-group"})
        assert [records.values for records in read_range(fresh, TopicRange(topic, 0, 0, 1))] == [[b"a"]]


def _read_in_child(settings: dict[str, Any], topic: str, answer: Any) -> None:
    answer.put([records.values for records in read_range(settings, TopicRange(topic, 0, 0, 2))])


def test_the_child_of_a_fork_has_a_client_of_its_own(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, ["a", "b"])
    assert len(read(topics, topic, 0, 2)) == 2
    fork = multiprocessing.get_context("fork")
    answer = fork.Queue()
    child = fork.Process(target=_read_in_child, args=(settings_of(topics), topic, answer))
    child.start()
    assert answer.get(timeout=30) == [[b"a", b"b"]]
    child.join(10)
    assert child.exitcode == 0 and len(read(topics, topic, 0, 2)) == 2


def test_a_reader_that_is_left_early(topics: Topics) -> None:
    first, second = topics.create(), topics.create()
    for topic in (first, second):
        topics.send(topic, [b"%s %d " % (topic.encode(), number) + b"x" * 500 for number in range(2000)])
    small = settings_of(topics, **_SMALL_STEPS)
    for begin in (0, 700, 300):
        records = read_range(small, TopicRange(first, 0, begin, 2000))
        assert next(records).offsets[0] == begin
        records.close()
        values = [
            value for some in read_range(small, TopicRange(second, 0, begin, begin + 100)) for value in some.values
        ]
        assert [value.split()[:2] for value in values if value] == [
            [second.encode(), b"%d" % number] for number in range(begin, begin + 100)
        ]


def rows_of(topics: Topics, form: Form, topic: str, end: int, metadata: bool = True) -> list[dict[str, Any]]:
    part = {"topic": topic, "partition": 0, "begin": 0, "end": end, "topic_id": topic_id_of(topics, topic)}
    reader = RangesReader(form, settings_of(topics), metadata)
    lines = pa.RecordBatch.from_pydict({"value": [json.dumps(part)]})
    return [row for batch in reader(iter([lines])) for row in batch.to_pylist()]


def test_columns_of_records(topics: Topics) -> None:
    topic = topics.create(**{"retention.ms": "-1"})
    topics.send(topic, [b'{"id": 1}', None], key=b"k", headers={"h": b"v"}, timestamp_ms=1_767_225_600_123)
    topics.send(topic, ['{"id": 2}'], headers={"none": None, "empty": b""})  # type: ignore[dict-item]
    send_with_header(topics.address, topic, b'{"id": 3}', b"\xff")
    topics.send(topic, ['{"id": 4}'])
    rows = rows_of(topics, Form("json", "id INT"), topic, 5)
    assert [(row["id"], row["_detail"]) for row in rows] == [
        (1, None),
        (None, "null value (tombstone)"),
        (2, None),
        (None, "headers: a name that is not valid UTF-8"),
        (4, None),
    ]
    assert [row["_key"] for row in rows] == [b"k", b"k", None, None, None]
    assert [row["_headers"] for row in rows] == [
        [{"key": "h", "value": b"v"}],
        [{"key": "h", "value": b"v"}],
        [{"key": "none", "value": None}, {"key": "empty", "value": b""}],
        None,
        None,
    ]
    assert rows[0]["_timestamp"].isoformat() == "2026-01-01T00:00:00.123000+00:00"
    assert [row["_offset"] for row in rows] == list(range(5)) and rows[4]["_topic"] == topic
    assert rows[4]["_position"] == f'{{"topic":"{topic}","partition":0,"offset":4}}'


def test_time_stamps_of_the_broker(topics: Topics) -> None:
    topic = topics.create(**{"message.timestamp.type": "LogAppendTime"})
    before = time.time()
    topics.send(topic, ["a"], timestamp_ms=1_767_225_600_123)
    [row] = rows_of(topics, Form("text", "value STRING"), topic, 1)
    assert before - 1 < row["_timestamp"].timestamp() < time.time() + 1


def test_a_record_of_10_mb(topics: Topics) -> None:
    from confluent_kafka import Producer

    topic = topics.create(**{"max.message.bytes": str(2 * LONGEST_RECORD_BYTES)})
    producer = Producer(settings_of(topics, **{"message.max.bytes": 2 * LONGEST_RECORD_BYTES}))
    large = b"x" * (10 << 20)
    for value in (b"a", large, b"b"):
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    tight = settings_of(topics, **{"fetch.message.max.bytes": 1000})
    [_, value, _] = [value for some in read_range(tight, TopicRange(topic, 0, 0, 3)) for value in some.values]
    assert value == large
    rows = rows_of(topics, Form("text", "value STRING"), topic, 3, metadata=False)
    assert [row["value"] for row in rows if not row["_malformed"]] == ["a", "b"] and rows[1]["_raw"] == "x" * 1000
    assert rows[1]["_detail"] == (
        "value of 10,485,760 bytes; the limit is 8,388,608 bytes, and only the topic has all of it; "
        "raw has its first 1,000 characters"
    )


def test_records_that_are_damaged_on_disk(topics: Topics, kafka_broker: Broker) -> None:
    topic = topics.create(**{"compression.type": "uncompressed"})
    topics.send(topic, ["good"])
    topics.send(topic, ["x" * 2000])
    topics.send(topic, ["good"])
    [log] = kafka_broker.folder.glob(f"data/{topic}-0/*.log")
    written = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(written.index(b"x" * 100))
        file.write(b"y")
    fault = fault_of(read_range(settings_of(topics), TopicRange(topic, 0, 0, 3)))
    assert fault.problem == RangeProblem.DAMAGED
    assert "xxx" not in fault.reason
