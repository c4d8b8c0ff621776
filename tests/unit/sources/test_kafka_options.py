"""Client settings: what is mapped, what is refused, and that no secret is told."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.errors import UsageError
from tidegate.sources.kafka.settings import KafkaSettings, settings_of
from tidegate.sources.readers.kafka_records import _Client
from tidegate.spec.kafka_options import TUNING_SETTINGS
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec

CANARY = 'can"ary\\S3cret'
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def settings(source: dict[str, Any] | None = None, **project: Any) -> KafkaSettings:
    kafka = ProjectKafkaSpec(bootstrap_servers="b:9092", options=project)
    return settings_of(kafka, KafkaSource(type="kafka", topics=["t"], format="csv", options=source or {}))


def test_both_forms_of_a_login() -> None:
    short = settings(**LOGIN, **{"sasl.username": "u", "kafka.sasl.password": CANARY})
    assert short.client["sasl.username"] == "u" and short.client["sasl.password"] == CANARY
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="u" password="can\\"ary\\\\S3cret";'
    assert settings(**LOGIN, **{"sasl.jaas.config": jaas}).client == short.client


def test_no_secret_is_told() -> None:
    made = settings(**LOGIN, **{"sasl.username": "u", "sasl.password": CANARY})
    assert CANARY not in repr(made) and "S3cret" not in repr(made)
    assert made.scrub(f"failed with {CANARY}!") == "failed with ***!"
    refused = "h:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
    for state in ("(after 0ms in state CONNECT)", "(after 12ms in state AUTH_REQ, 3 identical error(s) suppressed)"):
        assert made.scrub(f"{refused} {state}") == refused
    with pytest.raises(UsageError) as caught:
        settings({}, **LOGIN, **{"sasl.jaas.config": f'x required password="{CANARY}"'})
    assert "S3cret" not in str(caught.value)


def test_options_of_the_stream_and_the_parser_are_not_the_client_s() -> None:
    made = settings({"maxOffsetsPerTrigger": 5, "kafka.fetch.max.bytes": 1, "sep": ";"})
    assert made.client["bootstrap.servers"] == "b:9092" and not {"sep", "maxOffsetsPerTrigger"} & made.reading.keys()
    assert "fetch.max.bytes" not in made.client and made.reading == {**made.client, "fetch.max.bytes": "1000000"}


@pytest.mark.parametrize("number", ["-1", "0", "5000", "99999999999"])
def test_what_matters_while_records_are_read(number: str) -> None:
    options = {f"kafka.{name}": number for name, theirs in TUNING_SETTINGS.items() if theirs is not None}
    made = settings({**options, "kafka.client.rack": "r1", "kafka.max.poll.records": 5})
    assert made.reading.keys() - made.client.keys() == {
        *("client.rack", "fetch.max.bytes", "fetch.wait.max.ms", "fetch.min.bytes", "fetch.message.max.bytes"),
        *("socket.receive.buffer.bytes", "socket.timeout.ms"),
    }
    _Client(made.reading).close()  # the client takes every one of them


@pytest.mark.parametrize(
    ("source", "project", "words"),
    [
        ({}, {"sasl.username": "u", "sasl.password": "p"}, "ignored in silence"),
        ({}, {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "one of PLAIN, SCRAM-SHA-256"),
        ({}, {**LOGIN, "sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required a=b;"}, "Jndi"),
        ({}, {**LOGIN}, "user name or password is empty"),
        ({}, {"ssl.truststore.location": "/t", "ssl.truststore.type": "PEM"}, "is not SSL or SASL_SSL"),
        ({}, {"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"}, "only PEM"),
        ({}, {"security.protocol": "SSL", "ssl.keystore.location": "/k.jks"}, "PEM or PKCS12"),
    ],
)
def test_what_cannot_mean_the_same_on_both_sides_is_refused(
    source: dict[str, Any], project: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        settings(source, **project)
    assert caught.value.code == "KAFKA_OPTIONS" and words in caught.value.message


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        settings({}, **{"sasl.username": "u", "ssl.key.password": "k"})
    for name in ("sasl.*", "ssl.key.password"):
        assert name in caught.value.message


def test_certificates() -> None:
    pem = settings(
        **{
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "k",
            "ssl.endpoint.identification.algorithm": "",
        }
    ).client
    assert pem["ssl.ca.location"] == "/ca.pem" and pem["ssl.key.password"] == "k"
    assert pem["ssl.key.location"] == pem["ssl.certificate.location"] == "/me.pem"
    assert pem["ssl.endpoint.identification.algorithm"] == "none"
    store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p"}
    client = settings(**{"security.protocol": "SSL"}, **store).client
    assert (client["ssl.keystore.location"], client["ssl.keystore.password"]) == ("/me.p12", "p")
