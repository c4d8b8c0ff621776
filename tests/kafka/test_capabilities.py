"""What a Kafka source can be told, each as a pipeline over three runs: exact rows, through every reader."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import SourceLostError, TidegateError
from tidegate.runs.steps import run_pipeline
from tidegate.spark.driver.submit import SubmitPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics

_SCHEMA = {"format": "json", "schema": "id STRING, n INT"}
_OLD, _CUT, _NEW = (1_767_225_600_000 + 3_600_000 * hour for hour in (0, 2, 4))


def _kafka(topics: Topics, root: Path, spark: SparkSession, name: str, keys: dict[str, Any], **more: Any) -> Streaming:
    spec = f"sources:\n  {name}: {json.dumps({'type': 'kafka', **_SCHEMA, **keys})}\n{more.pop('spec', '')}"
    flow = make_streaming(root, spark, spec, **more)
    flow.write(
        "tidegate.yaml",
        f'version: 1\nspark: {{master: "local[2]"}}\nkafka: {{bootstrap_servers: "{topics.address}"}}\n',
    )
    return flow


def _records(*ids: str, n: int = 1) -> list[str]:
    return [json.dumps({"id": name, "n": n}) for name in ids]


@dataclass(frozen=True)
class Start:
    """``keys`` of the source with TOPIC for the topic; the records that its first run takes of those already there, and
    whether it takes partition 1."""

    keys: dict[str, Any]
    takes: tuple[str, ...]
    second_partition: bool = True


_STARTS = {
    "topics, earliest": Start({"topics": ["TOPIC"]}, ("old", "new", "side")),
    "pattern": Start({"topic_pattern": "TOPIC.*"}, ("old", "new", "side")),
    "assign": Start({"assign": {"TOPIC": [0]}}, ("old", "new"), second_partition=False),
    "latest": Start({"topics": ["TOPIC"], "starting_offsets": "latest"}, ()),
    "timestamp": Start(
        {
            "topics": ["TOPIC"],
            "starting_offsets": datetime.fromtimestamp(_CUT / 1000, UTC).isoformat().replace("+00:00", "Z"),
        },
        ("new", "side"),
    ),
    "offsets": Start({"topics": ["TOPIC"], "starting_offsets": {"TOPIC": {"0": 1, "1": 1}}}, ("new",)),
}


@pytest.mark.parametrize("start", _STARTS.values(), ids=_STARTS)
def test_where_to_read_and_from_where(start: Start, topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(topics.name("start"), partitions=2, **{"retention.ms": "-1"})
    topics.send(topic, _records("old"), timestamp_ms=_OLD)
    topics.send(topic, _records("new"), timestamp_ms=_NEW)
    topics.send(topic, _records("side"), partition=1, timestamp_ms=_NEW)
    flow = _kafka(topics, tmp_path, spark, "events", json.loads(json.dumps(start.keys).replace("TOPIC", topic)))
    assert flow.run()["outcome"] == ("published" if start.takes else "nothing_new")
    wanted = list(start.takes)
    for number in (2, 3):
        topics.send(topic, _records(f"run {number}"))
        topics.send(topic, _records(f"run {number}, side"), partition=1)
        wanted += [f"run {number}", *([f"run {number}, side"] if start.second_partition else [])]
        if number == 2 and "topic_pattern" in start.keys:
            topics.create(f"{topic}-later")
            topics.send(f"{topic}-later", _records("of a later topic"))
            wanted.append("of a later topic")
        flow.run()
    flow.expect("id n", [(name, 1) for name in wanted])
    assert sum(report["rows"]["read"] for report in flow.reports) == len(wanted)
    assert flow.run()["outcome"] == "nothing_new"


def test_headers_and_a_limit(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """What came with a record is a column; a run of several batches is one version of the table."""
    topic = topics.create(topics.name("headers"))
    keys = {"topics": [topic], "metadata": True, "options": {"maxOffsetsPerTrigger": 2}}
    transform = (
        "def transform(events):\n"
        "    first = F.col('_headers')[0]\n"
        "    return events.select('id', F.col('_key').cast('string').alias('key'), '_offset',\n"
        "                         first['key'].alias('header'), first['value'].cast('string').alias('value'))\n"
    )
    flow = _kafka(topics, tmp_path, spark, "events", keys, transform=transform)
    wanted = []
    for run in range(3):
        ids = [f"{run}-{number}" for number in range(5)]
        topics.send(topic, _records(*ids), key=b"k", headers={"from": f"run {run}".encode()})
        wanted += [(name, "k", run * 5 + number, "from", f"run {run}") for number, name in enumerate(ids)]
        report = flow.run()
        assert report["batches"] == 3 and report["table"]["version"] == run
        assert report["sources"]["events"]["offsets"] == {topic: {"0": [run * 5, run * 5 + 5]}}
    flow.expect("id key _offset header value", wanted)


def test_changes_of_rows_that_arrive_out_of_order(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The newest change of a key, by the time of the change, then by the offset; a tombstone is in quarantine."""
    topic = topics.create(topics.name("changes"), partitions=2)
    keys = {"topics": [topic], "metadata": True, "options": {"maxOffsetsPerTrigger": 6}}
    update = "output_mode: update\ntable: {keys: [id], order_by: [n, _offset]}\n"
    flow = _kafka(topics, tmp_path, spark, "changes", keys, spec=update)
    topics.send(topic, [*_records("a", "b", "a", n=5), *_records("a", "b", n=3), *_records("c", n=1)])
    topics.send(topic, [None, *_records("x", "x", n=1)], partition=1, key=b"x")
    report = flow.run()
    assert (report["batches"], report["rows"]["malformed"]) == (2, 1)
    assert [report["rows"][key] for key in ("staged", "superseded", "published")] == [8, 4, 4]
    flow.expect("id n _offset", [("a", 5, 2), ("b", 5, 1), ("c", 1, 5), ("x", 1, 2)])
    topics.send(topic, [*_records("a", n=4), *_records("b", n=6), *_records("b", n=5), *_records("c", "c", n=1)])
    report = flow.run()
    assert [report["rows"][key] for key in ("staged", "superseded", "published")] == [5, 3, 2]
    flow.expect("id n _offset", [("a", 5, 2), ("b", 6, 7), ("c", 1, 10), ("x", 1, 2)])


def test_a_bounded_read_beside_a_stream(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """A static Kafka source is read from its beginning to its end of the moment, once per run."""
    topic = topics.create(topics.name("names"))
    stream = source("events", "id STRING")
    flow = _kafka(
        topics,
        tmp_path,
        spark,
        "names",
        {"topics": [topic], "static": True},
        spec=stream,
        transform="def transform(events, names):\n    return events.join(names, 'id', 'left')\n",
    )
    for run in range(3):
        topics.send(topic, _records(f"known {run}", n=run))
        flow.offer("events", {"id": f"known {run}"}, {"id": f"known {run + 1}"})
        report = run_pipeline(flow.project, flow.name, f"run-{run}", submit=in_session(spark))
        assert report["sources"]["names"]["offsets"] == {topic: {"0": [0, run + 1]}}
    flow.expect(
        "id n",
        [("known 0", 0), ("known 1", None), ("known 1", 1), ("known 2", None), ("known 2", 2), ("known 3", None)],
    )


def test_a_query_with_state_goes_on_behind_a_loss(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """``--accept-loss`` keeps what the query remembers: a new checkpoint would have forgotten it."""
    topic = topics.create(topics.name("loss"))
    flow = _kafka(
        topics,
        tmp_path,
        spark,
        "events",
        {"topics": [topic]},
        spec="output_mode: update\ntable: {keys: [id]}\n",
        transform="def transform(events):\n    return events.groupBy('id').agg(F.sum('n').alias('total'))\n",
    )
    topics.send(topic, _records("a", "b"))
    flow.run()
    topics.send(topic, _records("lost", "lost", "a", "c"))
    topics.cut(topic, 0, 4)
    with pytest.raises(SourceLostError) as told:
        flow.run()
    assert told.value.exit_code == 66 and "2 to 3" in told.value.message.replace("..", " to "), told.value.message
    report = run_pipeline(
        flow.project, flow.name, "accepted", submit=in_session(spark), accept_loss="the broker kept too little"
    )
    assert report["outcome"] == "published" and report["accepted_loss"]["reason"] == "the broker kept too little"
    flow.expect("id total", [("a", 2), ("b", 1), ("c", 1)])
    topics.send(topic, _records("a", "d"))
    flow.run()
    flow.expect("id total", [("a", 3), ("b", 1), ("c", 1), ("d", 1)])
    assert flow.run()["outcome"] == "nothing_new"


def test_a_topic_is_used_twice(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """In a union and in a join with itself, with every column that came with the records."""
    topic = topics.create(topics.name("twice"))
    flow = _kafka(
        topics,
        tmp_path,
        spark,
        "events",
        {"topics": [topic], "metadata": True},
        transform=(
            "def transform(events):\n"
            "    both = events.where('n > 1').unionByName(events.where('n < 3'))\n"
            "    other = events.select(F.col('id').alias('other'), F.col('_offset').alias('at'))\n"
            "    return both.join(other, F.expr('id = other')).select('id', 'n', '_offset', 'at')\n"
        ),
    )
    wanted = []
    for run, n in enumerate((1, 2, 3)):
        topics.send(topic, _records(f"run {run}", n=n))
        report = flow.run()
        assert report["rows"]["read"] == 1 and report["sources"]["events"]["offsets"] == {topic: {"0": [run, run + 1]}}
        wanted += [(f"run {run}", n, run, run)] * (2 if n == 2 else 1)
    flow.expect("id n _offset at", wanted)


@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
def test_a_topic_created_again_before_spark_reads(
    topics: Topics, spark: SparkSession, tmp_path: Path, with_state: bool
) -> None:
    """Between the look and the read, and grown past the planned offsets: nothing of it passes for the old one's."""
    topic = topics.create(topics.name("again"))
    grouped = "def transform(events):\n    return events.groupBy('id').agg(F.sum('n').alias('n'))\n"
    flow = _kafka(
        topics,
        tmp_path,
        spark,
        "events",
        {"topics": [topic]},
        spec="output_mode: update\ntable: {keys: [id]}\n" if with_state else "",
        transform=grouped if with_state else None,
    )
    topics.send(topic, _records("a", "b"))
    flow.run()
    topics.send(topic, _records("lost"))

    def recreate(plan: SubmitPlan) -> int:
        topics.delete(topic)
        topics.create(topic)
        topics.send(topic, _records(*(f"new {n}" for n in range(6))))
        return in_session(spark)(plan)

    with pytest.raises(SourceLostError) as told:
        run_pipeline(flow.project, flow.name, "in between", submit=recreate)
    assert told.value.code == "KAFKA_LOSS" and f"topic {topic} was deleted" in told.value.message, told.value
    with pytest.raises(SourceLostError) as told:
        flow.run()
    assert told.value.code == "KAFKA_LOSS" and "from offset 2 on: the topic was deleted" in told.value.message
    report = run_pipeline(flow.project, flow.name, "accepted", submit=in_session(spark), accept_loss="created again")
    assert report["rows"]["read"] == 6
    flow.expect("id n", [("a", 1), ("b", 1), *((f"new {n}", 1) for n in range(6))])


def test_a_transform_that_fails_until_it_is_corrected(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The usual way to a batch in flight for days: retention takes a part of it, and the rest is not lost with that."""
    topic = topics.create(topics.name("flight"), partitions=2)
    flow = _kafka(topics, tmp_path, spark, "events", {"topics": [topic]}, transform=_RAISES)
    for partition in (0, 1):
        topics.send(topic, _records(*(f"{partition}-{n}" for n in range(5))), partition=partition)
    with pytest.raises(TidegateError):
        flow.run()
    flow.write(f"jobs/{flow.name}/transform.py", "def transform(events):\n    return events\n")
    topics.cut(topic, 0, 3)
    with pytest.raises(SourceLostError, match=f"topic {topic} partition 0 offsets 0 to 2"):
        flow.run()
    run_pipeline(flow.project, flow.name, "accepted", submit=in_session(spark), accept_loss="too short")
    flow.expect("id n", [("0-3", 1), ("0-4", 1), *((f"1-{n}", 1) for n in range(5))])


_RAISES = "def transform(events):\n    return events.selectExpr('id', 'assert_true(n > 1) IS NULL AS n')\n"
