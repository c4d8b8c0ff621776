"""Client settings in both dialects: what is mapped, what is refused, and that no secret is told."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.errors import UsageError
from tidegate.sources.kafka.settings import KafkaSettings, map_settings

CANARY = 'can"ary\\S3cret'
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def settings(source: dict[str, Any] | None = None, **project: Any) -> KafkaSettings:
    return map_settings("b:9092", {**project}, source or {}, ("sep",))


def test_a_login_is_written_once_and_known_to_both_sides() -> None:
    short = settings(**LOGIN, **{"sasl.username": "u", "kafka.sasl.password": CANARY})
    assert short.client["sasl.username"] == "u" and short.client["sasl.password"] == CANARY
    jaas = short.spark["kafka.sasl.jaas.config"]
    assert jaas == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="can\\"ary\\\\S3cret";'
    )
    assert "kafka.sasl.password" not in short.spark  # Java's client has no such setting
    long = settings(**LOGIN, **{"sasl.jaas.config": jaas})
    assert long.client == short.client and long.spark == short.spark


def test_no_secret_is_told() -> None:
    made = settings(**LOGIN, **{"sasl.username": "u", "sasl.password": CANARY})
    assert CANARY not in repr(made) and "S3cret" not in repr(made)
    assert made.scrub(f"failed with {CANARY}!") == "failed with ***!"
    with pytest.raises(UsageError) as caught:
        settings({"kafka.nonsense": 1}, **LOGIN, **{"sasl.jaas.config": f'x required password="{CANARY}"'})
    assert "S3cret" not in str(caught.value)


def test_spark_always_reads_committed_records_of_the_projects_brokers() -> None:
    made = settings({"maxOffsetsPerTrigger": 5, "kafka.fetch.max.bytes": 1, "sep": ";"})
    assert made.spark["kafka.isolation.level"] == "read_committed"
    assert made.spark["kafka.bootstrap.servers"] == made.client["bootstrap.servers"] == "b:9092"
    assert made.spark["maxOffsetsPerTrigger"] == "5" and made.spark["kafka.fetch.max.bytes"] == "1"
    assert "sep" not in {**made.spark, **made.client}
    assert "fetch.max.bytes" not in made.client


@pytest.mark.parametrize(
    ("source", "project", "words"),
    [
        ({"kafka.isolation.level": "read_uncommitted"}, {}, "committed records only"),
        ({"kafka.group.id": "g"}, {}, "checkpoint"),
        ({"startingOffsets": "earliest"}, {}, "use starting_offsets"),
        ({"failOnDataLoss": "false"}, {}, "--accept-loss"),
        ({"maxOffsetPerTrigger": 5}, {}, "did you mean maxOffsetsPerTrigger?"),
        ({}, {"bootstrap.servers": "x"}, "bootstrap_servers in tidegate.yaml"),
        ({}, {"security.protocol": "TLS"}, "one of PLAINTEXT, SSL"),
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
        settings({"kafka.group.id": "g", "nonsense": 1}, **{"isolation.level": "x"})
    for name in ("kafka.group.id", "nonsense", "isolation.level"):
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
