"""Sending an example's records to Kafka, until the broker has acknowledged each."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # which re-exports it

from tidegate.core import errors as core_errors
from tidegate.core.errors import TryAgainError

DELIVERY_TIMEOUT_SECONDS = 60.0

KafkaRecord = tuple[str | None, str | bytes | None]
"""Key and value."""


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create ``topic`` unless it is there. Raises TryAgainError when no broker answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=20)[topic].result(timeout=30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _broker_away(bootstrap_servers, str(error.args[0])) from error


def send_records(bootstrap_servers: str, topic: str, records: Iterable[KafkaRecord], *, partitions: int) -> None:
    """Send ``records`` to ``topic``, which is created with ``partitions`` when it is absent.

    Raises TryAgainError when the broker is away or refuses a record; some records may be in the topic by then.
    """
    create_topic(bootstrap_servers, topic, partitions)
    refused: list[str] = []

    def note_refusal(error: object, _message: object) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "compression.type": "lz4",
            "enable.idempotence": True,  # a retry inside the client must not double a record
            "queue.buffering.max.messages": 200_000,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_SECONDS * 1000),
            "delivery.report.only.error": True,
            "on_delivery": note_refusal,
            "log_level": 0,
        }
    )
    try:
        for number, (key, value) in enumerate(records):
            while True:
                try:
                    producer.produce(topic, value=value, key=key)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 10_000 == 0:
                producer.poll(0)
                if refused:
                    break
        left = producer.flush(DELIVERY_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise _broker_away(bootstrap_servers, str(error)) from error
    if refused or left:
        raise _broker_away(bootstrap_servers, refused[0] if refused else f"{left} records not acknowledged")


def _broker_away(bootstrap_servers: str, reason: str) -> TryAgainError:
    return core_errors.BROKER_TOOK_NOTHING(where=bootstrap_servers, bootstrap_servers=bootstrap_servers, reason=reason)
