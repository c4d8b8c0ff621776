"""``starting_offsets`` against what a broker has, and what its refusals are reported as."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.support.fake_kafka import FakeBroker
from tidegate.core.errors import TidegateError
from tidegate.sources.kafka.brokers import Brokers
from tidegate.sources.kafka.offsets import resolve_birth
from tidegate.sources.kafka.settings import map_settings
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
        ({"t": {"0": 7}}, "STARTING_OFFSETS", "topic t partition 1 is not named"),
        ({"t": {"0": 7, "1": 0, "2": 0}}, "STARTING_OFFSETS", "topic t partition 2 is not of this source"),
        ({"t": {"0": 4, "1": 0}}, "STARTING_OFFSETS_GONE", "topic t partition 0: offset 4, but the broker has 5 to 9"),
        ({"t": {"0": 9, "1": 5}}, "STARTING_OFFSETS_GONE", "topic t partition 1: offset 5, but the broker has 0 to 4"),
    ],
)
def test_numbers_that_a_broker_does_not_have(offsets: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(TidegateError) as refused:
        start(offsets)
    assert refused.value.code == code and said in refused.value.message


def test_a_setting_that_the_client_refuses() -> None:
    with pytest.raises(TidegateError, match=r"KAFKA_OPTIONS: the Kafka client refuses its settings: .*ssl.ca.location"):
        Brokers(
            map_settings(
                "b:9092",
                {
                    "security.protocol": "SSL",
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": "/no/such/ca.pem",
                },
                {},
                (),
            )
        )


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
    brokers = Brokers(map_settings("localhost:1", {}, {}, ()))
    monkeypatch.setattr(brokers, "_gather", lambda futures: dict.fromkeys(futures, KafkaError(number)))
    with pytest.raises(TidegateError) as refused:
        brokers.describe(["t"])
    assert (refused.value.code, refused.value.exit_code) == (code, exit_code)
