"""Spark's side of a Kafka source on a real broker: streams from pinned offsets, exact ranges again, losses mid-way."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tests.support.planned import read_ranges, stream_topics, stream_written
from tidegate.sources.bounds import CUT_CHARACTERS, LONGEST_RECORD_BYTES
from tidegate.sources.kafka.offsets import birth_after_loss, extend_birth, find_loss, plan_kafka, resolve_birth
from tidegate.sources.port import Cut
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.kafka_worker import RangesReader
from tidegate.sources.readers.unreadable import RangeFault
from tidegate.spark.driver.failures import explain
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.spec.source_checks import KAFKA_METADATA
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import OffsetRange, OffsetRanges, Offsets, RangePart, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from tests.support.topics import Topics
    from tools.broker import Broker

SCHEMA = "id INT NOT NULL, amount DECIMAL(10,2), at TIMESTAMP"


def source(**keys: Any) -> KafkaSource:
    return KafkaSource(type="kafka", **{"format": "text", **keys})


@pytest.fixture
def drain(tmp_path: Path) -> Callable[[DataFrame], list[Row]]:
    """Run a stream to the end with one checkpoint per test; the rows that it gave."""

    def run(stream: DataFrame) -> list[Row]:
        rows: list[Row] = []
        failures: list[Exception] = []

        def take(batch: DataFrame, number: int) -> None:
            try:
                rows.extend(batch.collect())
            except Exception as error:  # as the driver keeps it: the query hands on its text alone
                failures.append(error)
                raise

        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except Exception as error:
            raise (failures[-1] if failures else error) from error
        return rows

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Where the stream has its checkpoint."""
    return tmp_path / "checkpoint"


def logged_offsets(tmp_path: Path, batch: int) -> Offsets:
    """Where a batch ends, by its batch file."""
    found = BatchFiles(tmp_path / "checkpoint", "s").describe_batch(batch)
    assert found is not None
    return found.ends


def ranges_between(before: Offsets, after: Offsets) -> OffsetRanges:
    """What a batch took, without partitions that gave nothing."""
    ranges = {partition: OffsetRange(before.get(partition, 0), until) for partition, until in after.items()}
    return {partition: one for partition, one in ranges.items() if one.count != 0}


def test_two_topics_from_their_beginning_then_only_what_is_new(
    topics: Topics,
    kafka: ProjectKafkaSpec,
    spark: SparkSession,
    drain: Callable[[DataFrame], list[Row]],
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    a, b = topics.create(partitions=2), topics.create()
    topics.send(a, ["a0", "a1"])
    topics.send(a, ["a2"], partition=1)
    topics.send(b, ["b0"])
    spec = source(topics=[a, b])
    birth = resolve_birth(kafka, spec)
    rows = drain(stream_topics(spark, kafka, spec, birth, checkpoint))
    assert sorted((row.value, row._position) for row in rows) == sorted(
        (value, json.dumps({"topic": topic, "partition": partition, "offset": offset}, separators=(",", ":")))
        for value, topic, partition, offset in [("a0", a, 0, 0), ("a1", a, 0, 1), ("a2", a, 1, 0), ("b0", b, 0, 0)]
    )
    log = logged_offsets(tmp_path, 0)
    first = ranges_between(birth.offsets, log)
    assert first == {(a, 0): OffsetRange(0, 2), (a, 1): OffsetRange(0, 1), (b, 0): OffsetRange(0, 1)}
    assert not plan_kafka(kafka, spec, birth, log).ranges
    topics.grow(b, 2)
    topics.send(b, ["b1"], partition=1)
    plan = plan_kafka(kafka, spec, birth, log)
    rows = drain(stream_topics(spark, kafka, spec, extend_birth(birth, plan), checkpoint))
    assert [row.value for row in rows] == ["b1"]
    assert ranges_between(log, logged_offsets(tmp_path, 1)) == {(b, 1): OffsetRange(0, 1)} == plan.ranges


def test_records_of_aborted_transactions_do_not_count_and_the_next_tick_is_idle(
    topics: Topics,
    kafka: ProjectKafkaSpec,
    spark: SparkSession,
    drain: Callable[[DataFrame], list[Row]],
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    topic = topics.create()
    topics.send_in_transaction(topic, ["kept"], commit=True)
    topics.send_in_transaction(topic, ["dropped"] * 5, commit=False)
    topics.send(topic, ["plain"])
    topics.send_in_transaction(topic, ["dropped"], commit=False)
    spec = source(topics=[topic])
    birth = resolve_birth(kafka, spec)
    assert [row.value for row in drain(stream_topics(spark, kafka, spec, birth, checkpoint))] == ["kept", "plain"]
    log = logged_offsets(tmp_path, 0)
    assert log == plan_kafka(kafka, spec, birth, {}).end
    assert not plan_kafka(kafka, spec, birth, log).ranges
    taken = ranges_between(birth.offsets, log)
    assert [row.value for row in read_ranges(spark, kafka, spec, taken).collect()] == ["kept", "plain"]


def test_json_values_with_all_that_is_wrong_with_them(
    topics: Topics,
    kafka: ProjectKafkaSpec,
    spark: SparkSession,
    drain: Callable[[DataFrame], list[Row]],
    checkpoint: Path,
) -> None:
    topic = topics.create()
    good = '{"id": 1, "amount": 1.5, "at": "2026-01-01T00:00:00Z"}'
    bad = {
        None: "null value (tombstone)",
        "": "empty",
        '{"id": 1': "not valid JSON",
        '{"id": 1}{"id": 2}': "text after the JSON object",
        '{"id": "1"}': "id: not an INT",
        '{"amount": 1}': "id: missing or null, but NOT NULL",
        b'{"id": 1, "x": "\xff"}': "not valid UTF-8",
    }
    topics.send(topic, [good, *bad, '{"id": 2, "extra": 1}'])
    spec = source(topics=[topic], format="json", schema=SCHEMA)
    rows = drain(stream_topics(spark, kafka, spec, resolve_birth(kafka, spec), checkpoint))
    assert [row.id for row in rows if not row._malformed] == [1, 2]
    assert [row._unknown for row in rows if not row._malformed] == [None, ["extra"]]
    set_aside = [row for row in rows if row._malformed]
    assert [row._detail for row in set_aside] == list(bad.values())
    raw = [None if v is None else base64.b64encode(v).decode() if isinstance(v, bytes) else v for v in bad]
    assert [row._raw for row in set_aside] == raw
    picked = read_ranges(spark, kafka, spec, {TopicPartition(topic, 0): OffsetRange(1, 4)})
    assert [row._detail for row in picked.collect()] == list(bad.values())[:3]


def test_metadata_columns_and_raw_values(
    topics: Topics,
    kafka: ProjectKafkaSpec,
    spark: SparkSession,
    drain: Callable[[DataFrame], list[Row]],
    checkpoint: Path,
) -> None:
    topic = topics.create(**{"retention.ms": "-1"})
    topics.send(topic, [b"\x00\xff"], key=b"k", headers={"h": b"v"}, timestamp_ms=1_767_225_600_000)
    spec = source(topics=[topic], format="raw", metadata=True)
    (row,) = drain(stream_topics(spark, kafka, spec, resolve_birth(kafka, spec), checkpoint))
    assert bytes(row.value) == b"\x00\xff" and base64.b64decode(row._raw) == b"\x00\xff"
    assert (bytes(row._key), row._topic, row._partition, row._offset) == (b"k", topic, 0, 0)
    assert [(header.key, bytes(header.value)) for header in row._headers] == [("h", b"v")]
    assert row._timestamp.timestamp() == 1_767_225_600 and not row._malformed
    spec = source(topics=[topic], format="json", schema=SCHEMA, metadata=True)
    frame = read_ranges(spark, kafka, spec, {TopicPartition(topic, 0): OffsetRange(0, 1)})
    assert frame.columns == [
        *("id", "amount", "at"),
        *(column.name for column in KAFKA_METADATA),
        *("_raw", "_position", "_malformed", "_detail", "_unknown"),
    ]
    assert frame.collect()[0]._detail == "not valid UTF-8"


@pytest.mark.parametrize("format_", ["json", "raw"])
def test_a_record_too_large_is_malformed_and_cut(
    format_: str, topics: Topics, kafka: ProjectKafkaSpec, spark: SparkSession
) -> None:
    from confluent_kafka import Producer

    topic = topics.create(**{"max.message.bytes": str(2 * LONGEST_RECORD_BYTES)})
    head, tail = '{"name": "' + "ä" * CUT_CHARACTERS, '"}'
    fits = f"{head}{'x' * (LONGEST_RECORD_BYTES - len(head.encode()) - len(tail))}{tail}".encode()
    settings = {"bootstrap.servers": topics.address, "message.max.bytes": 2 * LONGEST_RECORD_BYTES}
    producer = Producer({**settings, "compression.type": "lz4"})
    for key, value in ((b"k", fits), (b"k", fits + b" "), (fits + b" ", b"{}")):
        producer.produce(topic, value=value, key=key, partition=0)
    half = b"x" * (LONGEST_RECORD_BYTES // 2)
    producer.produce(topic, value=b"{}", partition=0, headers=[("a", half[1:]), ("b", half[1:])])
    producer.produce(topic, value=b"{}", partition=0, headers=[("a", half), ("none", None), ("b", half)])
    assert producer.flush(30) == 0
    schema = {"schema": "name STRING"} if format_ == "json" else {}
    spec = source(topics=[topic], format=format_, metadata=True, **schema)
    frame = read_ranges(spark, kafka, spec, {TopicPartition(topic, 0): OffsetRange(0, 5)}).withColumn(
        "_size", F.octet_length("_raw")
    )
    frame = frame.withColumn("_count", F.size("_headers")).drop("_headers")
    whole, value, key, some, headers = frame.withColumn("_raw", F.left("_raw", F.lit(5000))).collect()
    assert not whole._malformed and whole._detail is None and whole._size >= LONGEST_RECORD_BYTES
    assert value._malformed and key._malformed and len(key._key) == CUT_CHARACTERS
    limit = "8,388,609 bytes; the limit is 8,388,608 bytes, and only the topic has all of it"
    assert not some._malformed and some._count == 2 and headers._malformed and headers._count == 0
    assert headers._detail == f"headers of {limit}".replace("8,388,609", "8,388,614")
    unit = "bytes" if format_ == "raw" else "characters"
    assert value._detail == f"value of {limit}; raw has its first 1,000 {unit}" and key._detail == f"key of {limit}"
    if format_ == "raw":
        assert base64.b64decode(value._raw) == fits[:CUT_CHARACTERS] and base64.b64decode(key._raw) == b"{}"
    else:
        assert value._raw == fits.decode()[:CUT_CHARACTERS] and key._raw == "{}"


def test_a_limit_makes_batches_and_once_takes_all(
    topics: Topics,
    kafka: ProjectKafkaSpec,
    spark: SparkSession,
    drain: Callable[[DataFrame], list[Row]],
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    topic = topics.create()
    topics.send(topic, [str(n) for n in range(10)])
    spec = source(topics=[topic], options={"maxOffsetsPerTrigger": 4})
    birth = resolve_birth(kafka, spec)
    assert [row.value for row in drain(stream_topics(spark, kafka, spec, birth, checkpoint))] == [
        str(n) for n in range(10)
    ]
    assert len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) == 3
    topics.send(topic, [str(n) for n in range(10)])
    assert len(drain(stream_topics(spark, kafka, spec, birth, checkpoint, cut=Cut.NOWHERE))) == 10
    assert len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) == 4


def test_a_loss_fails_spark_too_and_the_accepted_offsets_start_a_new_checkpoint(
    topics: Topics,
    kafka: ProjectKafkaSpec,
    spark: SparkSession,
    drain: Callable[[DataFrame], list[Row]],
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    topic = topics.create()
    topics.send(topic, [str(n) for n in range(4)])
    spec = source(topics=[topic])
    birth = resolve_birth(kafka, spec)
    assert len(drain(stream_topics(spark, kafka, spec, birth, checkpoint))) == 4
    topics.send(topic, [str(n) for n in range(4, 10)])
    topics.cut(topic, 0, 7)
    taken = logged_offsets(tmp_path, 0)
    files = BatchFiles(checkpoint, "s")
    files.put(BatchFile(1, taken, {TopicPartition(topic, 0): 10}, [RangePart(topic, 0, 4, 10)]))
    with pytest.raises(Exception) as caught:
        drain(stream_written(spark, kafka, spec, files))
    assert explain(caught.value, "clicks", tmp_path, tmp_path).code == "KAFKA_RECORDS_LOST"
    plan = plan_kafka(kafka, spec, birth, taken)
    loss = find_loss(birth, plan)
    assert [(r.lost_from, r.lost_until) for r in loss] == [(4, 7)]
    (tmp_path / "checkpoint").rename(tmp_path / "old")
    (tmp_path / "batches").rename(tmp_path / "old-batches")
    rows = drain(stream_topics(spark, kafka, spec, birth_after_loss(birth, plan, loss), checkpoint))
    assert [row.value for row in rows] == ["7", "8", "9"]


def test_records_that_retention_took_after_the_plan(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, [f"{number}" for number in range(10)])
    topics.cut(topic, 0, 5)
    kafka = ProjectKafkaSpec(bootstrap_servers=topics.address)
    planned = read_ranges(spark, kafka, source(topics=[topic]), {TopicPartition(topic, 0): OffsetRange(0, 10)})
    with pytest.raises(Exception) as caught:
        planned.collect()
    error = explain(caught.value, "clicks", tmp_path, tmp_path)
    assert (error.code, error.exit_code) == ("KAFKA_RECORDS_LOST", 66)


def test_records_that_are_damaged_on_the_disk_of_the_broker(
    spark: SparkSession, topics: Topics, kafka_broker: Broker, tmp_path: Path
) -> None:
    topic = topics.create(**{"compression.type": "uncompressed"})
    topics.send(topic, ["x" * 2000])
    [log] = kafka_broker.folder.glob(f"data/{topic}-0/*.log")
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"x" * 100))
        file.write(b"y")
    kafka = ProjectKafkaSpec(bootstrap_servers=topics.address)
    planned = read_ranges(spark, kafka, source(topics=[topic]), {TopicPartition(topic, 0): OffsetRange(0, 1)})
    with pytest.raises(Exception) as caught:
        planned.collect()
    error = explain(caught.value, "clicks", tmp_path, tmp_path)
    assert (error.code, error.exit_code) == ("KAFKA_DAMAGED", 75)
    assert error.where == f"topic {topic} partition 0, offsets 0 to 0, for pipeline clicks"


def test_a_reader_of_topics_that_fails_is_no_fault_of_the_transform(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, ["1"])
    monkeypatch.setattr("tidegate.sources.readers.kafka_worker.read_texts", lambda *_: 1 // 0)
    part = json.dumps({"topic": topic, "partition": 0, "begin": 0, "end": 1})
    reader = RangesReader(Form("text", "value STRING"), {"bootstrap.servers": topics.address})
    with pytest.raises(RangeFault) as caught:
        list(reader(iter([pa.RecordBatch.from_pydict({"value": [part]})])))
    raised = f"An exception was thrown:\n{RangeFault.__module__}.RangeFault: {caught.value}\n"
    error = explain(RuntimeError(raised), "clicks", tmp_path, tmp_path)
    assert (error.code, error.exit_code) == ("READER_FAILED", 70)
    assert "ZeroDivisionError" in error.message
