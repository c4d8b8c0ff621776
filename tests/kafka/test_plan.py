"""Births, plans and losses against a real broker, without a JVM on our side."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.core.errors import SourceLostError, TryAgainError, UsageError
from tidegate.sources.kafka.offsets import (
    KafkaBirth,
    birth_after_loss,
    extend_birth,
    find_loss,
    loss_error,
    loss_to_dict,
    plan_kafka,
    resolve_birth,
)
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.state.topics import OffsetRange, Offsets, TopicPartition

if TYPE_CHECKING:
    from tests.support.topics import Topics


def source(**keys: Any) -> KafkaSource:
    return KafkaSource(type="kafka", **{"format": "text", **keys})


def offsets(topic: str, *numbers: int) -> Offsets:
    """Of the partitions 0, 1, ... of a topic."""
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(numbers)}


def test_earliest_pins_what_is_retained_and_the_plan_names_what_waits(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    a, b = topics.create(partitions=2), topics.create()
    topics.send(a, ["1", "2", "3"])
    topics.send(b, ["1"])
    topics.cut(a, 0, 1)
    spec = source(topics=[a, b])
    birth = resolve_birth(kafka, spec)
    assert birth.offsets == {**offsets(a, 1, 0), **offsets(b, 0)}
    assert all(birth.topic_ids.values()) and set(birth.topic_ids) == {a, b}
    assert KafkaBirth.from_dict(birth.to_dict()) == birth
    plan = plan_kafka(kafka, spec, birth, {})
    assert plan.ranges == {(a, 0): OffsetRange(1, 3), (b, 0): OffsetRange(0, 1)}
    assert plan.pending_offsets == 3
    assert find_loss(birth, plan) == []
    idle = plan_kafka(kafka, spec, birth, {**offsets(a, 3, 0), **offsets(b, 1)})
    assert not idle.ranges and idle.pending_offsets == 0
    assert extend_birth(birth, idle) == birth


def test_latest_is_pinned_at_birth_so_that_nothing_after_it_is_missed(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create()
    topics.send(topic, ["old", "old"])
    spec = source(topics=[topic], starting_offsets="latest")
    birth = resolve_birth(kafka, spec)
    topics.send(topic, ["new"])
    assert birth.offsets == offsets(topic, 2)
    assert plan_kafka(kafka, spec, birth, {}).ranges == {(topic, 0): OffsetRange(2, 3)}


def test_a_time_stamp_starts_at_its_first_record_or_at_the_end(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=2, **{"retention.ms": "-1"})
    for day in (1, 2, 3):
        at = int(datetime(2026, 3, day, tzinfo=UTC).timestamp() * 1000)
        topics.send(topic, [str(day)], timestamp_ms=at)
        if day == 1:
            topics.send(topic, ["1"], partition=1, timestamp_ms=at)
    for text in ("2026-03-02T00:00:00Z", "2026-03-02", "2026-03-02T01:00:00+01:00"):
        birth = resolve_birth(kafka, source(topics=[topic], starting_offsets=text))
        assert birth.offsets == offsets(topic, 1, 1)


def test_explicit_offsets_name_every_partition_and_are_there(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=3)
    topics.send(topic, ["1", "2", "3"])

    def birth(**numbers: int) -> KafkaBirth:
        given = {topic: {name[1:]: offset for name, offset in numbers.items()}}
        return resolve_birth(kafka, source(topics=[topic], starting_offsets=given))

    assert birth(p0=2, p1=-1, p2=-2).offsets == offsets(topic, 2, 0, 0)
    assert birth(p0=-1, p1=0, p2=0).offsets[TopicPartition(topic, 0)] == 3
    with pytest.raises(UsageError, match=f"topic {topic} partition 2 is not named"):
        birth(p0=0, p1=0)
    with pytest.raises(UsageError, match=f"topic {topic} partition 7 is not of this source"):
        birth(p0=0, p1=0, p2=0, p7=0)
    with pytest.raises(SourceLostError, match="offset 4, but the broker has 0 to 3"):
        birth(p0=4, p1=0, p2=0)


def test_a_pattern_takes_whole_names_and_no_internal_topic(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    word = topics.name("pat")
    one = topics.create(f"{word}.one")
    topics.create(f"x{word}.two")
    topics.send_in_transaction(one, ["1"], commit=True)  # makes an internal topic
    spec = source(topic_pattern=rf"(__.*|{word}\..*)")
    birth = resolve_birth(kafka, spec)
    assert {topic for topic, _ in birth.offsets} == {one}
    later = topics.create(f"{word}.later", partitions=2)
    topics.send(later, ["1"], partition=1)
    plan = plan_kafka(kafka, spec, birth, offsets(one, 2))
    assert plan.ranges == {(later, 1): OffsetRange(0, 1)}
    grown = extend_birth(birth, plan)
    assert grown.offsets == {**birth.offsets, **offsets(later, 0, 0)}
    assert grown.topic_ids[later] == plan.topic_ids[later]


def test_assign_takes_only_its_partitions(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=2)
    for partition in (0, 1):
        topics.send(topic, ["1"], partition=partition)
    spec = source(assign={topic: [1]})
    birth = resolve_birth(kafka, spec)
    assert plan_kafka(kafka, spec, birth, {}).ranges == {(topic, 1): OffsetRange(0, 1)}
    with pytest.raises(SourceLostError, match=f"topic {topic} has no partition 5"):
        resolve_birth(kafka, source(assign={topic: [1, 5]}))


def test_a_topic_that_is_not_there_is_named_and_not_created(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    with pytest.raises(SourceLostError, match="topic nowhere does not exist") as caught:
        resolve_birth(kafka, source(topics=["nowhere"]))
    assert caught.value.code == "TOPIC_MISSING"
    with pytest.raises(SourceLostError, match="no topic matches"):
        resolve_birth(kafka, source(topic_pattern="nowhere.*"))
    assert "nowhere" not in topics.admin.list_topics(timeout=5).topics


def test_an_open_transaction_is_not_there_yet_and_an_aborted_one_leaves_an_idle_tick(
    topics: Topics, kafka: ProjectKafkaSpec
) -> None:
    from confluent_kafka import Producer

    topic = topics.create()
    spec = source(topics=[topic])
    birth = resolve_birth(kafka, spec)
    producer = Producer({"bootstrap.servers": topics.address, "transactional.id": topics.name("open")})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, value="1")
    producer.flush(10)
    assert not plan_kafka(kafka, spec, birth, {}).ranges
    producer.abort_transaction(10)
    end = plan_kafka(kafka, spec, birth, {}).end
    assert end == offsets(topic, 2)  # the record and the marker
    assert not plan_kafka(kafka, spec, birth, end).ranges


def test_new_partitions_are_owed_from_their_beginning(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create()
    topics.send(topic, ["1"])
    spec = source(topics=[topic], starting_offsets="latest")
    birth = resolve_birth(kafka, spec)
    topics.grow(topic, 3)
    topics.send(topic, ["1", "2"], partition=2)
    plan = plan_kafka(kafka, spec, birth, offsets(topic, 1))
    assert plan.new_partitions == {(topic, 1), (topic, 2)} and plan.ranges == {(topic, 2): OffsetRange(0, 2)}
    assert find_loss(birth, plan) == []
    assert extend_birth(birth, plan).offsets == offsets(topic, 1, 0, 0)
    topics.cut(topic, 2, 1)
    loss = find_loss(birth, plan_kafka(kafka, spec, birth, offsets(topic, 1)))
    assert [(r.partition, r.cause, r.lost_from, r.lost_until) for r in loss] == [(2, "retention", 0, 1)]


def test_retention_before_we_read_is_told_with_its_ranges(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=2)
    for partition in (0, 1):
        topics.send(topic, [str(n) for n in range(10)], partition=partition)
    spec = source(topics=[topic])
    birth = resolve_birth(kafka, spec)
    topics.cut(topic, 0, 7)
    topics.cut(topic, 1, 5)
    taken = offsets(topic, 3, 5)
    plan = plan_kafka(kafka, spec, birth, taken)
    loss = find_loss(birth, plan)
    error = loss_error("orders", "o", loss, {})
    assert f"topic {topic} partition 0 offsets 3 to 6 (4): taken by retention" in error.message
    assert "partition 1" not in error.message
    assert error.fix == 'tidegate run orders --accept-loss "reason"' and error.exit_code == 66
    assert loss_to_dict(loss)["lost_offsets"] == 4
    after = birth_after_loss(birth, plan, loss)
    assert after.offsets == offsets(topic, 7, 5)
    again = plan_kafka(kafka, spec, after, {})
    assert find_loss(after, again) == []
    assert again.ranges == {(topic, 0): OffsetRange(7, 10), (topic, 1): OffsetRange(5, 10)}


@pytest.mark.parametrize("sent_again", [2, 9], ids=["lower than our offsets", "past our offsets"])
def test_a_topic_created_again_is_another_topic(sent_again: int, topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, ["old"] * 5)
    spec = source(topics=[topic])
    birth = resolve_birth(kafka, spec)
    topics.delete(topic)
    topics.create(topic, partitions=1)
    topics.send(topic, ["new"] * sent_again)
    taken = offsets(topic, 4, 0)
    plan = plan_kafka(kafka, spec, birth, taken)
    loss = find_loss(birth, plan)
    assert [(r.partition, r.cause, r.lost_from, r.lost_until, r.goes_on_at) for r in loss] == [
        (0, "topic_recreated", 4, None, 0),
        (1, "topic_recreated", 0, None, None),
    ]
    after = birth_after_loss(birth, plan, loss)
    again = plan_kafka(kafka, spec, after, {})
    assert find_loss(after, again) == [] and again.ranges == {(topic, 0): OffsetRange(0, sent_again)}


def test_a_deleted_topic_stops_once_and_the_others_go_on_when_it_is_accepted(
    topics: Topics, kafka: ProjectKafkaSpec
) -> None:
    kept, gone = topics.create(), topics.create()
    topics.send(kept, ["1", "2"])
    topics.send(gone, ["1", "2"])
    spec = source(topics=[kept, gone])
    birth = resolve_birth(kafka, spec)
    topics.delete(gone)
    plan = plan_kafka(kafka, spec, birth, {**offsets(kept, 1), **offsets(gone, 1)})
    loss = find_loss(birth, plan)
    assert [(r.topic, r.cause, r.lost_from, r.goes_on_at) for r in loss] == [(gone, "topic_deleted", 1, None)]
    after = birth_after_loss(birth, plan, loss)
    assert after.offsets == offsets(kept, 1) and after.gone == (gone,)
    again = plan_kafka(kafka, spec, after, {})
    assert find_loss(after, again) == []
    topics.create(gone)
    topics.send(gone, ["back"])
    back = plan_kafka(kafka, spec, after, {})
    assert find_loss(after, back) == [] and back.ranges[TopicPartition(gone, 0)] == OffsetRange(0, 1)
    assert extend_birth(after, back).gone == ()


def test_offsets_beyond_the_end_mean_that_the_log_was_cut(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create()
    topics.send(topic, ["1", "2"])
    spec = source(topics=[topic])
    birth = resolve_birth(kafka, spec)
    loss = find_loss(birth, plan_kafka(kafka, spec, birth, offsets(topic, 5)))
    assert [(r.cause, r.lost_from, r.lost_until, r.goes_on_at) for r in loss] == [("truncated", 2, 5, 2)]


def test_a_broker_that_is_away_is_said_in_seconds(kafka: ProjectKafkaSpec) -> None:
    from tools.processes import choose_free_port

    away = ProjectKafkaSpec(bootstrap_servers=f"127.0.0.1:{choose_free_port()}")
    started = time.monotonic()
    with pytest.raises(TryAgainError) as caught:
        resolve_birth(away, source(topics=["t"]))
    assert time.monotonic() - started < 10
    assert caught.value.code == "BROKER_AWAY" and away.bootstrap_servers in caught.value.message
    assert "Connection refused" in caught.value.message
    with pytest.raises(TryAgainError, match="no answer"):
        resolve_birth(away, source(topic_pattern="t.*"))


def test_a_refused_login_never_tells_the_secret(kafka: ProjectKafkaSpec) -> None:
    canary = "canary-S3cret"
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": canary,
    }
    wrong = ProjectKafkaSpec(bootstrap_servers=kafka.bootstrap_servers, options=options)
    with pytest.raises((UsageError, TryAgainError)) as caught:
        resolve_birth(wrong, source(topics=["t"]))
    assert canary not in str(caught.value) and canary not in repr(caught.value)


def test_an_idle_look_costs_little(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=6)
    code = (
        "import resource, sys\n"
        "from tidegate.sources.kafka.offsets import plan_kafka, resolve_birth\n"
        "from tidegate.spec.models import KafkaSource, ProjectKafkaSpec\n"
        "before = resource.getrusage(resource.RUSAGE_SELF)\n"
        f"spec = KafkaSource(type='kafka', format='text', topics=[{topic!r}], starting_offsets='latest')\n"
        f"kafka = ProjectKafkaSpec(bootstrap_servers={kafka.bootstrap_servers!r})\n"
        "birth = resolve_birth(kafka, spec)\n"
        "middle = resource.getrusage(resource.RUSAGE_SELF)\n"
        "assert not plan_kafka(kafka, spec, birth, {}).ranges\n"
        "after = resource.getrusage(resource.RUSAGE_SELF)\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'great_expectations', 'airflow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(after.ru_utime + after.ru_stime - middle.ru_utime - middle.ru_stime,\n"
        "      middle.ru_utime + middle.ru_stime - before.ru_utime - before.ru_stime)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    plan_seconds, birth_seconds = map(float, done.stdout.split())
    assert plan_seconds < 0.1 and birth_seconds < 0.2, done.stdout
    assert done.stderr == ""
