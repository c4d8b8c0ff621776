"""Topics compared by id again after the read."""

from __future__ import annotations

import pytest

from tests.support.fake_kafka import FakeBroker
from tidegate.core.errors import SourceLostError, UsageError
from tidegate.sources.kafka.offsets import resolve_birth
from tidegate.sources.kafka.topics import TopicWatch
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec


def test_a_topic_that_is_another_one_now() -> None:
    broker = FakeBroker({}, {"a": {0: 5}, "b": {0: 5}})
    watch = TopicWatch("clicks", {"s": {"a": "id-a", "b": "id-b"}}, {"s": broker})
    watch.check(7)
    broker.ids["b"] = "another"
    with pytest.raises(SourceLostError) as told:
        watch.check(7)
    assert (told.value.code, told.value.exit_code) == ("TOPIC_RECREATED", 66)
    assert "topic b was deleted and created again while a batch was read" in told.value.message
    del broker.end["b"]
    watch.check(7)  # gone: what was read was read before


def test_topics_that_are_missing_are_told_with_the_brokers_that_were_asked() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "hush-hush",
    }
    kafka = ProjectKafkaSpec(bootstrap_servers="kafka-1:9092,kafka-2:9092", options=dict(options))
    source = KafkaSource(type="kafka", topics=["orders", "clicks"], format="text")
    with pytest.raises(SourceLostError) as told:
        resolve_birth(kafka, source, FakeBroker({"clicks": {0: 0}}, {"clicks": {0: 0}}))
    assert told.value.code == "TOPIC_MISSING"
    asked = "on the Kafka brokers at kafka-1:9092,kafka-2:9092, "
    assert told.value.message == f"{asked}topic orders does not exist"
    assert "kafka.bootstrap_servers in tidegate.yaml" in str(told.value.fix) and "hush" not in str(told.value)


def test_brokers_of_another_cluster() -> None:
    broker = FakeBroker({}, {"a": {0: 5}}, {"a": "another"}, cluster="cluster-2")
    watch = TopicWatch("clicks", {"s": {"a": "id-a"}}, {"s": broker}, {"s": ("cluster-1", "localhost:9092")})
    with pytest.raises(UsageError) as told:
        watch.check(7)
    assert told.value.code == "KAFKA_CLUSTER_CHANGED"
