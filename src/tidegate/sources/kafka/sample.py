"""Reads the newest records of a topic, without a JVM, to find their columns. No offset is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.core.errors import TidegateError
from tidegate.sources import errors
from tidegate.sources.kafka.offsets import resolve_birth, settings_of
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec

if TYPE_CHECKING:
    from confluent_kafka import Message

_RECORDS_AT_MOST = 1_000
_SECONDS = 10.0


def sample_topic(kafka: ProjectKafkaSpec, topic: str) -> list[bytes]:
    """Return the values of up to 1,000 of the newest committed records of ``topic``, divided among its partitions.

    Records without a value are skipped.

    Raises SourceLostError TOPIC_MISSING, UsageError for a refused login or option, TryAgainError BROKER_AWAY.
    """
    source = KafkaSource(type="kafka", topics=[topic], format="text")
    begin = resolve_birth(kafka, source).offsets
    end = resolve_birth(kafka, source.replace(starting_offsets="latest")).offsets
    share = max(1, _RECORDS_AT_MOST // max(1, len(end)))
    wanted = {one.partition: max(begin[one], until - share) for one, until in end.items() if until > begin[one]}
    settings = settings_of(kafka, source)
    more = {"group.id": "tidegate-new", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": "0"}
    consumer = Consumer({**settings.client, **more, "isolation.level": "read_committed"})
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in wanted.items()])
        left, deadline = set(wanted), time.monotonic() + _SECONDS
        while left and time.monotonic() < deadline:
            message: Message | None = consumer.poll(0.5)
            error = None if message is None else message.error()
            if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                continue  # until the deadline
            if error is not None:
                left.discard(int(message.partition() or 0))
            elif (value := message.value()) is not None:
                values.append(value if isinstance(value, bytes) else str(value).encode())
    except KafkaException as error:
        raise _not_read(topic, settings.address, settings.scrub(str(error))) from None
    finally:
        consumer.close()
    if left and not values:
        raise _not_read(topic, settings.address, f"nothing came within {_SECONDS:g} seconds")
    return values


def _not_read(topic: str, address: str, why: str) -> TidegateError:
    return errors.SAMPLE_NOT_READ(where=f"kafka brokers {address}", topic=topic, why=why)
