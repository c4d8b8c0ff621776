"""``value: columns`` with a real broker: a row is the record that its columns say; one that can go nowhere is named,
and nothing of its version is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.topic_reader import read_topic
from tests.support.sink_bench import Bench
from tests.support.staged import Stager
from tests.support.topics import Topics
from tidegate.core.errors import TryAgainError
from tidegate.sinks.feed import SinkFault, begin_sink, feed_sink, last_fed
from tidegate.sinks.kafka import KafkaFeeder
from tidegate.spec.models import KafkaSink, KafkaSource, PipelineSpec, ProjectKafkaSpec
from tidegate.spec.sink_checks import explain_topic

OURS = ("run_id", "table_version", "row")
ALL = {"key": "string", "value": "binary", "topic": "string", "partition": "integer", "headers": "headers"}


class Columns(Bench):
    """A table with columns of the test's choice, and a Kafka sink that takes them."""

    def __init__(self, root: Path, kafka: ProjectKafkaSpec, name: str | None, /, **columns: str) -> None:
        super().__init__(root)
        self.kafka = kafka
        self.sink = KafkaSink(type="kafka", topic=name, value="columns")
        self.stager = Stager(self.paths, columns, [])
        begin_sink(self.paths, self.sink.name, None, "begin")

    def publish_columns(self, *rows: dict[str, Any]) -> int:
        return self.publish_rows([dict.fromkeys(self.stager.columns) | row for row in rows])

    def deliver(self, check_lease: Callable[[], None] = lambda: None, spec: PipelineSpec | None = None) -> None:
        table = self.table()
        assert table is not None
        explain = partial(explain_topic, spec=spec) if spec is not None else lambda topic: None
        make = partial(KafkaFeeder, self.sink, self.paths, table.schema_json, self.kafka, explain)
        feed_sink(self.paths, self.sink, table, make, run_id="feeder", check_lease=check_lease)

    def refused(self) -> SinkFault:
        with pytest.raises(SinkFault) as caught:
            self.deliver()
        table = self.table()
        assert table is not None and last_fed(self.paths, self.sink.name, table) == table.version - 1
        return caught.value


MURMUR2 = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
"""Hashes from the tests of Kafka's Java client."""


def test_a_row_is_what_its_columns_say(tmp_path: Path, kafka: ProjectKafkaSpec, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    bench = Columns(tmp_path, kafka, topic, **ALL, other="long")
    headers = [{"key": "trace", "value": b"\x00\xff"}, {"key": "trace", "value": None}, {"key": "row", "value": b"9"}]
    bench.publish_columns(
        {"key": "k", "value": b"\x00\xfe", "partition": 2, "headers": headers, "other": 7},
        {"key": "gone", "partition": 0},
        {"value": b"", "partition": 1, "headers": []},
        *({"key": key, "value": b"hashed"} for key in MURMUR2),
    )
    bench.deliver()
    bench.deliver()
    records = read_topic(topics, topic)
    assert len(records) == 3 + len(MURMUR2)
    assert all([name for name, _ in one.headers[-3:]] == list(OURS) for one in records)
    by_row = {dict(one.headers)["row"]: one for one in records}
    first, tombstone, empty = (by_row[number] for number in (b"0", b"1", b"2"))
    assert first[:3] == (b"k", b"\x00\xfe", 2)
    assert first.headers[:3] == [("trace", b"\x00\xff"), ("trace", None), ("row", b"9")]
    assert tombstone[:3] == (b"gone", None, 0) and empty[:3] == (None, b"", 1)
    assert [len(one.headers) for one in (tombstone, empty)] == [3, 3]
    hashed = {(one.key or b"").decode(): one.partition for one in records if one.value == b"hashed"}
    assert hashed == {key: (number & 0x7FFFFFFF) % 3 for key, number in MURMUR2.items()}  # where Java's client sends it


def test_the_topic_of_the_sink_goes_over_the_column(tmp_path: Path, kafka: ProjectKafkaSpec, topics: Topics) -> None:
    """As in Spark's sink. Whatever the column holds does not matter then, nor does its type."""
    sinks, own = topics.create(), topics.create(partitions=2)
    bench = Columns(tmp_path, kafka, sinks, topic="long", value="string")
    bench.publish_columns({"value": "a", "topic": 1}, {"value": "b"})
    bench.deliver()
    assert sorted(one.value or b"" for one in read_topic(topics, sinks)) == [b"a", b"b"]
    assert read_topic(topics, own) == []


def test_a_version_over_several_topics_arrives_whole_or_not_at_all(
    tmp_path: Path, kafka: ProjectKafkaSpec, topics: Topics
) -> None:
    """Each row names its topic. Stopped at each step, and overtaken, each is there once, in all topics or in none."""
    names = [topics.create(), topics.create()]
    bench = Columns(tmp_path, kafka, None, topic="string", value="string")
    wanted: dict[str, list[bytes]] = {name: [] for name in names}
    for version in range(2):
        rows = [{"value": f"{version}-{row}", "topic": names[(version + row) % 2]} for row in range(5)]
        bench.publish_columns(*rows)
        for row in rows:
            wanted[row["topic"]].append(row["value"].encode())

    def found() -> dict[str, list[bytes | None]]:
        return {name: [one.value for one in read_topic(topics, name)] for name in names}

    def stop_at(number: int, act: Callable[[], None]) -> Callable[[], None]:
        asked = iter(range(1, 100))

        def check() -> None:
            if next(asked) == number:
                act()

        return check

    def die() -> None:
        raise TryAgainError("LEASE_LOST", "overtaken")

    for number, sent in ((1, 0), (2, 0), (3, 0), (4, 5), (2, 5)):  # after the third the version is committed
        with pytest.raises(TryAgainError):
            bench.deliver(stop_at(number, die))
        assert sum(len(values) for values in found().values()) == sent
    with pytest.raises(SinkFault, match=r"another process feeds the topic as tidegate\.orders\.[0-9a-f]{8},"):
        bench.deliver(stop_at(5, bench.deliver))
    assert found() == wanted
    table = bench.table()
    assert table is not None and last_fed(bench.paths, bench.sink.name, table) == 1


@pytest.mark.parametrize(
    ("bad", "said", "fix"),
    [
        ({}, "row 2 of the version (row 2 of part-", "have the transform give each row a topic"),
        ({"topic": "a b"}, "cannot be sent: 'a b' cannot be a topic", "use 1 to 249 letters"),
        ({"topic": "read-1"}, "the topic read-1 is read by the source it: the pipeline would feed itself", "another"),
        (
            {"topic": "{there}", "partition": 1},
            "names partition 1; topic '{there}' has the partitions 0 to 0",
            "--alter",
        ),
        ({"topic": "{there}", "partition": -1}, "names the partition -1; nothing", "a partition from 0, or NULL"),
        (
            {"topic": "nowhere"},
            "there is no topic 'nowhere', named by row 2 of the version",
            "--create --topic nowhere",
        ),
        ({"topic": "{there}", "headers": [{"key": None, "value": b""}]}, "has a header without a key", "its key"),
        ({"topic": "{there}", "headers": [None]}, "has a header without a key", "its key"),
        ({"topic": "__consumer_offsets"}, "the topic '__consumer_offsets' is the brokers' own", "another topic"),
    ],
)
def test_a_row_that_can_go_nowhere_keeps_its_version_from_being_sent(
    tmp_path: Path, kafka: ProjectKafkaSpec, topics: Topics, bad: dict[str, Any], said: str, fix: str
) -> None:
    there = topics.create()
    bad = {name: value.format(there=there) if isinstance(value, str) else value for name, value in bad.items()}
    bench = Columns(tmp_path, kafka, None, **ALL)
    bench.publish_columns({"topic": there}, {"topic": there}, bad)
    reads = KafkaSource(type="kafka", topic_pattern="read-.*", format="raw")
    spec = PipelineSpec(version=1, name="orders", sources={"it": reads})
    with pytest.raises(SinkFault) as caught:
        bench.deliver(spec=spec)
    told = caught.value
    assert said.format(there=there) in told.message and fix in told.fix, told.to_dict()
    assert told.message.startswith("version 0: ") and "other" not in told.message
    assert read_topic(topics, there, "read_uncommitted") == []
    table = bench.table()
    assert table is not None and last_fed(bench.paths, bench.sink.name, table) == -1


def test_a_topic_that_is_made_afterwards(tmp_path: Path, kafka: ProjectKafkaSpec, topics: Topics) -> None:
    later = topics.name("later")
    bench = Columns(tmp_path, kafka, None, topic="string", value="string")
    bench.publish_columns({"topic": later, "value": "a"})
    assert later in bench.refused().message
    topics.create(later)
    bench.deliver()
    assert [one.value for one in read_topic(topics, later)] == [b"a"]


def test_columns_of_a_living_table_that_do_not_fit(tmp_path: Path, kafka: ProjectKafkaSpec, topics: Topics) -> None:
    bench = Columns(tmp_path, kafka, topics.create(), value="long")
    bench.publish_columns({"value": 1})
    assert bench.refused().message == (
        "version 0: the column value is BIGINT, and a kafka sink with value: columns wants STRING or BINARY"
    )
