"""Topics of a test's own on the session's broker."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_NUMBERS = itertools.count(1)


class Topics:
    """What the tests do to a broker: topics made, deleted and cut, records sent."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.address = address
        self.admin: AdminClient = AdminClient({"bootstrap.servers": address})

    def name(self, word: str = "t") -> str:
        """A topic name that no other test has."""
        return f"{word}{next(_NUMBERS)}"

    def create(self, topic: str | None = None, partitions: int = 1, **config: Any) -> str:
        """Make a topic (again) and wait until it is there."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        topic = topic or self.name()
        for attempt in range(50):
            try:
                new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
                self.admin.create_topics([new])[topic].result()
                break
            except KafkaException:
                if attempt == 49:
                    raise
                time.sleep(0.1)
        self._wait(lambda: self._has_leaders(topic, partitions))
        return topic

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        """Whether offsets can be looked up: a broker lists partitions before it leads them."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if len(self._partitions(topic)) != partitions:
            return False
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        try:
            return all(found.result() for found in self.admin.list_offsets(asked).values())
        except KafkaException:
            return False

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result()
        self._wait(lambda: not self._partitions(topic))

    def grow(self, topic: str, partitions: int) -> None:
        """Give the topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self._wait(lambda: self._has_leaders(topic, partitions))

    def cut(self, topic: str, partition: int, before: int) -> None:
        """Lose what retention would lose: every record before an offset."""
        from confluent_kafka import TopicPartition

        where = TopicPartition(topic, partition, before)
        self.admin.delete_records([where])[where].result()

    def send(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send ``values`` in order to one partition."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": "0"})
        more: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        for value in values:
            producer.produce(topic, value=value, key=key, partition=partition, headers=dict(headers or {}), **more)
        assert producer.flush(10) == 0

    def send_in_transaction(self, topic: str, values: Sequence[str], *, commit: bool, partition: int = 0) -> None:
        """Send ``values`` in a transaction of their own."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "transactional.id": self.name("tx")})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value, partition=partition)
        producer.flush(10)
        producer.commit_transaction(10) if commit else producer.abort_transaction(10)

    @contextlib.contextmanager
    def forbidden(self, kind: str, name: str, operation: str) -> Iterator[None]:
        """Forbid everybody ``operation`` (read, write) on a topic, group or transactional-id for a while."""
        from confluent_kafka.admin import (
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        resource = ResourceType[kind.upper().replace("-", "_")]
        what = (resource, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation[operation.upper()])
        deny, allow = AclPermissionType.DENY, AclPermissionType.ALLOW
        everything = (*what[:-1], AclOperation.ALL, allow)  # a rule on a thing takes away what everybody may
        rules = [AclBinding(*what, deny), AclBinding(*everything)]
        filters = [AclBindingFilter(*what, deny), AclBindingFilter(*everything)]

        def wait_for(count: int) -> None:
            """The broker follows its controller a moment later; what it describes is what it goes by."""
            until = time.monotonic() + 20
            while any(len(self.admin.describe_acls(one).result()) != count for one in filters):
                assert time.monotonic() < until, "the broker did not take the rules"
                time.sleep(0.05)

        for future in self.admin.create_acls(rules).values():
            future.result()
        wait_for(1)
        try:
            yield
        finally:
            for future in self.admin.delete_acls(filters).values():
                future.result()
            wait_for(0)

    def _partitions(self, topic: str) -> Sequence[int]:
        found = self.admin.list_topics(timeout=5).topics.get(topic)
        return [] if found is None or found.error is not None else list(found.partitions)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "the broker did not get there in 10 s"
            time.sleep(0.05)
