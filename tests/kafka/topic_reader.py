"""What a reader sees of a topic, by a consumer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.topics import Topics

if TYPE_CHECKING:
    from confluent_kafka import Message


class Record(NamedTuple):
    """A record as it lies in the topic."""

    key: bytes | None
    value: bytes | None
    partition: int
    headers: list[tuple[str, bytes | None]]


def read_topic(topics: Topics, topic: str, isolation: str = "read_committed") -> list[Record]:
    """Every record that a reader sees now, partition by partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": topics.address, "group.id": "reader", "log_level": 0, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.partition.eof": True})
    try:
        found: list[Record] = []
        for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, number, 0)])
            while True:
                message: Message | None = consumer.poll(10)
                assert message is not None
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    break
                headers: Any = message.headers() or []
                found.append(Record(message.key(), message.value(), number, headers))
        return found
    finally:
        consumer.close()
