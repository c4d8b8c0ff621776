"""The Kafka sink with a real broker: each row once, repeats that can be told, failures that name their cause."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.topic_reader import read_topic
from tests.support.sink_bench import Bench
from tests.support.topics import Topics
from tidegate.core.errors import TryAgainError
from tidegate.sinks.feed import SinkFault, begin_sink, feed_sink, last_fed, raise_numbers
from tidegate.sinks.kafka import KafkaFeeder, _project_id
from tidegate.sinks.kafka_producer import KafkaFaults, TransactionalProducer
from tidegate.sinks.kafka_records import Record as KafkaRecord
from tidegate.sources.kafka.settings import settings_of
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec

Record = tuple[str | None, dict[str, Any] | None, dict[str, str]]


def read_json(topics: Topics, topic: str, isolation: str = "read_committed") -> list[Record]:
    """Every record that a reader sees now: key, value and headers."""
    return [
        (
            one.key.decode() if one.key else None,
            json.loads(one.value) if one.value else None,
            {name: (text or b"").decode() for name, text in one.headers},
        )
        for one in read_topic(topics, topic, isolation)
    ]


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
            table = raise_numbers(bench.paths, table)
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
    records = read_json(topics, sink.topic)
    assert sorted(value["id"] for _, value, _ in records if value) == sorted(bench.offered)
    for key, value, headers in records:
        assert value is not None and list(value) == ["id", "day"] and key == value["day"]
        version = bench.offered[value["id"]]
        assert (headers["run_id"], headers["table_version"]) == (f"run-{version}", str(version))
    marks = {(headers["table_version"], headers["row"]) for _, _, headers in records}
    assert len(marks) == len(records)


def check_whole_and_once(bench: Bench, topics: Topics, topic: str, *, whole_table: bool = True) -> None:
    """Who reads committed records only has each row once, and each version whole or not at all."""
    records = read_json(topics, topic)
    ids = sorted(value["id"] for _, value, _ in records if value)
    assert len(set(ids)) == len(ids)
    versions = {bench.offered[key] for key in ids}
    assert ids == sorted(key for key, version in bench.offered.items() if version in versions)
    assert versions == set(range(len(versions)))
    assert not whole_table or ids == sorted(bench.offered)


def test_stopped_anywhere_every_version_arrives_whole_and_once(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    for _ in range(2):
        bench.publish()
    for die_at in (1, 2, 3, 4, 5, 2, 7):  # after four the version is committed, after five it is noted
        asked = iter(range(1, 100))

        def check(at: int = die_at, asked: Iterator[int] = asked) -> None:
            if next(asked) == at:
                raise TryAgainError("LEASE_LOST", "overtaken")

        with pytest.raises(TryAgainError):
            feed(sink, check)
        check_whole_and_once(bench, topics, sink.topic, whole_table=False)
    feed(sink)
    check_whole_and_once(bench, topics, sink.topic)
    table = bench.table()
    assert table is not None and last_fed(bench.paths, sink.name, table) == 1


def test_two_environments_feed_one_topic_from_pipelines_of_one_name(
    tmp_path: Path, topics: Topics, kafka: ProjectKafkaSpec
) -> None:
    """Neither ends the other's transactions, and neither takes the other's note for its own."""
    sink = KafkaSink(type="kafka", topic=topics.create())
    benches = [Bench(tmp_path / name) for name in ("staging", "production")]

    def feed_it(bench: Bench, check_lease: Callable[[], None] = lambda: None) -> None:
        table = bench.table()
        begin_sink(bench.paths, sink.name, table, "feeder")
        assert table is not None
        make = partial(KafkaFeeder, sink, bench.paths, table.schema_json, kafka)
        feed_sink(bench.paths, sink, table, make, run_id="feeder", check_lease=check_lease)

    for bench in benches:
        begin_sink(bench.paths, sink.name, None, "feeder")
        bench.publish()
    asked = iter(range(1, 100))

    def feed_the_other() -> None:
        if next(asked) == 3:  # in the middle of a transaction
            feed_it(benches[1])

    feed_it(benches[0], feed_the_other)
    for bench in benches:
        feed_it(bench)
    ids = sorted(value["id"] for _, value, _ in read_json(topics, sink.topic) if value)
    assert ids == sorted([*benches[0].offered, *benches[1].offered])


CHILD = """
import sys, time
from functools import partial
from pathlib import Path
from tests.support.staged import make_paths
from tidegate.sinks.feed import feed_sink
from tidegate.sinks.kafka import KafkaFeeder
from tidegate.sinks.kafka_producer import KafkaFaults
from tidegate.sinks.kafka_producer import TransactionalProducer
from tidegate.sinks.kafka_records import Record as KafkaRecord
from tidegate.sources.kafka.settings import settings_of
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec
from tidegate.table.log.state import read_table_state
root, topic, address = sys.argv[1:]
paths, sink = make_paths(Path(root)), KafkaSink(type="kafka", topic=topic)
table = read_table_state(paths.table)
asked = iter(range(1, 100))

def check():
    if next(asked) == 3:  # the first file's rows are sent
        feeder._producer._producer.flush(10)
        print("halfway", flush=True)
        time.sleep(60)

def make():
    global feeder
    feeder = KafkaFeeder(sink, paths, table.schema_json, ProjectKafkaSpec(bootstrap_servers=address))
    return feeder

feed_sink(paths, sink, table, make, run_id="child", check_lease=check)
"""


def test_killed_in_the_middle_of_a_version_nothing_of_it_is_seen(
    bench: Bench, feed: Feed, topics: Topics, tmp_path: Path
) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    bench.publish(100)
    command = [sys.executable, "-c", CHILD, str(tmp_path), sink.topic, topics.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "halfway\n"
        child.kill()
    assert len(read_json(topics, sink.topic, "read_uncommitted")) == 50
    assert read_json(topics, sink.topic) == []
    feed(sink)
    check_whole_and_once(bench, topics, sink.topic)


def test_a_process_that_was_overtaken_is_fenced(bench: Bench, feed: Feed, topics: Topics) -> None:
    """Frozen after it asked for the lease and before it commits: what it sent is never seen."""
    sink = KafkaSink(type="kafka", topic=topics.create(partitions=2))
    feed(sink)
    bench.publish()
    asked = iter(range(1, 100))

    def freeze() -> None:
        if next(asked) == 4:
            feed(sink)

    with pytest.raises(SinkFault, match=r"another process feeds the topic as tidegate\.orders\."):
        feed(sink, freeze)
    check_whole_and_once(bench, topics, sink.topic)
    bench.publish()
    feed(sink)
    check_whole_and_once(bench, topics, sink.topic)


def test_a_version_too_large_for_one_transaction_comes_in_pieces(
    bench: Bench, feed: Feed, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sinks.kafka._PIECE_SECONDS", 0.0)
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    bench.publish(2500)
    asked = iter(range(1, 100))

    def die() -> None:
        if next(asked) == 4:  # a piece of 1,000 rows is committed, the next one is sent
            raise TryAgainError("LEASE_LOST", "overtaken")

    with pytest.raises(TryAgainError):
        feed(sink, die)
    assert len(read_json(topics, sink.topic)) == 1000
    feed(sink)
    rows = [int(headers["row"]) for _, _, headers in read_json(topics, sink.topic)]
    assert rows == list(range(2500))


def test_a_version_of_a_restored_table_is_not_taken_for_the_one_of_its_number(
    bench: Bench, feed: Feed, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    bench.publish()
    shutil.copytree(bench.paths.table, tmp_path / "copy")
    bench.publish()
    feed(sink)
    shutil.rmtree(bench.paths.table)
    (tmp_path / "copy").rename(bench.paths.table)
    feed(sink)
    bench.batches = 1
    monkeypatch.setattr(bench.stager, "stage", partial(bench.stager.stage, attempt="a2"))  # no two attempts are one
    bench.publish()
    feed(sink)
    versions = [headers["table_version"] for _, _, headers in read_json(topics, sink.topic)]
    assert versions == ["0"] * 4 + ["1"] * 4 + ["3"] * 4 + ["4"] * 4


@pytest.mark.parametrize("kind", ["transactional-id", "group", "topic"])
def test_what_is_missing_of_the_users_rights_is_named(bench: Bench, feed: Feed, topics: Topics, kind: str) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    bench.publish()
    project = _project_id(bench.paths)
    name = sink.topic if kind == "topic" else f"tidegate.orders.{sink.topic}.{project}"
    with topics.forbidden(kind, name, "write" if kind != "group" else "read"), pytest.raises(SinkFault) as failed:
        feed(sink)
    assert "does not allow this user to" in failed.value.message
    right = "Read --operation Write" if kind == "topic" else "Read" if kind == "group" else "Write"
    named = f"--topic {name}" if kind == "topic" else f"--resource-pattern-type prefixed --{kind} {name[:-8]}"
    assert f"--operation {right} {named}" in failed.value.fix
    feed(sink)
    check_whole_and_once(bench, topics, sink.topic)


def test_a_record_after_the_one_that_was_refused_names_the_cause_too(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create()
    settings = settings_of(kafka)
    faults = KafkaFaults((topic,), "tidegate.late", settings, 60.0, "tidegate.former")
    producer = TransactionalProducer(faults)
    producer.begin()
    with topics.forbidden("topic", topic, "write"), pytest.raises(SinkFault) as failed:
        for number in range(600):  # nobody asks how the earlier ones fared
            producer.send(KafkaRecord(topic, b"x", None), {"row": str(number)})
            time.sleep(0.05)
    producer.close()
    assert "does not allow this user to send row" in failed.value.message


def test_brokers_with_shorter_transactions(
    bench: Bench, feed: Feed, topics: Topics, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.sinks.kafka._TRANSACTION_SECONDS", 901.0)
    sink = KafkaSink(type="kafka", topic=topics.create())
    feed(sink)
    bench.publish()
    with pytest.raises(SinkFault, match="allow only shorter transactions than 901 s") as failed:
        feed(sink)
    assert "transaction.max.timeout.ms=901000" in failed.value.fix
    assert capfd.readouterr().err == ""


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
    assert len(read_json(topics, sink.topic)) == 4


def test_a_key_that_is_no_column(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create(), key="start")
    feed(sink)
    bench.publish()
    with pytest.raises(SinkFault, match="its key 'start' is not a column of the table; the columns are: id, day"):
        feed(sink)


def test_a_record_that_the_topic_does_not_take(bench: Bench, feed: Feed, topics: Topics) -> None:
    sink = KafkaSink(type="kafka", topic=topics.create(**{"max.message.bytes": "60"}))
    feed(sink)
    bench.publish()
    with pytest.raises(SinkFault, match=r"could not send a record: .*too large"):
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
