"""``starting_offsets`` against what a broker has, its refusals, and topics that are compared again after the read."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.support.fake_kafka import FakeBroker
from tidegate.core.errors import SourceLostError, TidegateError, UsageError
from tidegate.sources.kafka.brokers import Brokers
from tidegate.sources.kafka.offsets import TopicWatch, resolve_birth
from tidegate.sources.kafka.settings import settings_of
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.state.topics import OffsetsJson, offsets_to_json

BROKER = FakeBroker(begin={"t": {0: 5, 1: 0}}, end={"t": {0: 9, 1: 4}})


def start(offsets: OffsetsJson) -> OffsetsJson:
    source = KafkaSource(type="kafka", topics=["t"], format="text", starting_offsets=offsets)
    return offsets_to_json(resolve_birth(ProjectKafkaSpec(), source, BROKER).offsets)


def test_numbers_and_their_two_abbreviations() -> None:
    assert start({"t": {"0": 7, "1": 4}}) == {"t": {"0": 7, "1": 4}}
    assert start({"t": {"0": -2, "1": -1}}) == {"t": {"0": 5, "1": 4}}


@pytest.mark.parametrize(
    ("offsets", "code", "said"),
    [
        ({"t": {"0": 7}}, "KAFKA_OPTIONS", "topic t partition 1 is not named"),
        ({"t": {"0": 7, "1": 0, "2": 0}}, "KAFKA_OPTIONS", "topic t partition 2 is not of this source"),
        ({"t": {"0": 4, "1": 0}}, "STARTING_OFFSETS_GONE", "topic t partition 0: offset 4, but the broker has 5 to 9"),
        ({"t": {"0": 9, "1": 5}}, "STARTING_OFFSETS_GONE", "topic t partition 1: offset 5, but the broker has 0 to 4"),
    ],
)
def test_numbers_that_a_broker_does_not_have(offsets: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(TidegateError) as refused:
        start(offsets)
    assert refused.value.code == code and said in refused.value.message


def test_a_setting_that_the_client_refuses() -> None:
    with pytest.raises(TidegateError, match=r"KAFKA_OPTIONS: settings of Kafka that cannot be used: .*ssl.ca.location"):
        options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/such/ca.pem"}
        Brokers(settings_of(ProjectKafkaSpec(options={"security.protocol": "SSL", **options})))


@pytest.mark.parametrize(
    ("number", "code", "exit_code"),
    [
        (KafkaError.SASL_AUTHENTICATION_FAILED, "KAFKA_LOGIN", 64),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "KAFKA_NOT_ALLOWED", 64),
        (KafkaError.LEADER_NOT_AVAILABLE, "KAFKA_UNSETTLED", 75),
        (KafkaError._TIMED_OUT, "BROKER_AWAY", 75),
    ],
)
def test_a_broker_that_refuses(number: int, code: str, exit_code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the broker's; no broker is asked for it."""
    brokers = Brokers(settings_of(ProjectKafkaSpec(bootstrap_servers="localhost:1")))
    monkeypatch.setattr(brokers, "_gather", lambda futures: ({}, dict.fromkeys(futures, KafkaError(number))))
    with pytest.raises(TidegateError) as refused:
        brokers.describe(["t"])
    assert (refused.value.code, refused.value.exit_code) == (code, exit_code)


def test_the_causes_of_silence_are_named_each_once_without_the_state_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(settings_of(ProjectKafkaSpec(bootstrap_servers="localhost:1")))
    refused, unknown = (
        "localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused",
        "nosuch: unknown",
    )
    for milliseconds in (0, 1, 2):
        state = f"(after {milliseconds}ms in state CONNECT)"
        brokers._complaints.append(KafkaError(KafkaError._TRANSPORT, f"{refused} {state}"))
        brokers._complaints.append(KafkaError(KafkaError._RESOLVE, f"{unknown} {state}"))
    brokers._complaints.append(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    monkeypatch.setattr(brokers, "_gather", lambda futures: ({}, dict.fromkeys(futures, KafkaError(-185))))
    with pytest.raises(TidegateError) as away:
        brokers.describe(["t"])
    assert away.value.message.endswith(f": {refused}; {unknown}"), "and what the client itself finds is the first"


def test_a_topic_that_is_another_one_now() -> None:
    broker = FakeBroker({}, {"a": {0: 5}, "b": {0: 5}})
    watch = TopicWatch("clicks", {"s": {"a": "id-a", "b": "id-b"}}, {"s": broker})
    watch.check(7)
    broker.ids["b"] = "another"
    with pytest.raises(SourceLostError) as told:
        watch.check(7)
    assert (told.value.code, told.value.exit_code) == ("KAFKA_LOSS", 66)
    assert "topic b was deleted and created again while a batch was read" in told.value.message
    assert str(told.value.next_run).endswith("; no record behind it was staged"), "earlier batches of the run may be"
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
