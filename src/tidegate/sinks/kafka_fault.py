"""Errors of the Kafka client as faults of a sink: what happened, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from tidegate.core.words import list_first
from tidegate.sinks.fault import SinkFault
from tidegate.sources.kafka.settings import KafkaSettings

_NAMED_AT_MOST = 5


def name_topics(topics: Iterable[str]) -> str:
    """The topics, as the beginning of a ``where``."""
    names = list(topics)
    if not names:
        return ""
    return f"topic{'s' * (len(names) > 1)} {list_first(names, _NAMED_AT_MOST)}, "


@dataclass
class KafkaFaults:
    """Makes the faults of one sink.

    ``topics`` are those that it feeds; ``name`` is its transactional id and its consumer group; ``former`` is the group
    of earlier versions, without the project's id. ``complaints`` are errors that the client reported in the background,
    which often name the cause."""

    topics: tuple[str, ...]
    name: str
    settings: KafkaSettings = field(repr=False)
    transaction_seconds: float
    former: str
    complaints: list[str] = field(default_factory=list)

    def fault(self, message: str, fix: str = "correct the row, or the topic's settings") -> SinkFault:
        """A fault of this topic."""
        where = f"{name_topics(self.topics)}kafka brokers {self.settings.address}"
        return SinkFault(self.settings.scrub(message), where=where, fix=fix)

    def explain(self, error: KafkaError, attempt: str, topic: str | None = None) -> SinkFault:
        """The fault for ``error``, raised while the sink tried to ``attempt``; ``topic`` is that of the record."""
        code, said = error.code(), error.str()
        if code in (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return self.fault(f"the broker does not allow this user to {attempt}: {said}", self._grant())
        if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return self.fault(
                f"the broker ended this sink's transaction, and nothing of it is seen: another process feeds the topic "
                f"as {self.name}, or the transaction took longer than {self.transaction_seconds:.0f} s ({said})",
                "nothing, if another run has taken over; else look for a copy of this project that was made with its "
                "state folder, and remove .project.json there",
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            needed = round(self.transaction_seconds * 1000)
            return self.fault(
                f"the brokers allow only shorter transactions than {self.transaction_seconds:.0f} s: {said}",
                f"set transaction.max.timeout.ms={needed} (the default) or more in the brokers' server.properties",
            )
        if code in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
            return self.fault(f"the brokers know no transactions: {said}", "feed a topic of brokers that have them")
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return self.fault(
                f"the sink could not {attempt}: {said}",
                f"correct the row, or: kafka-configs.sh --bootstrap-server {self.settings.address} --alter "
                f"--entity-type topics --entity-name {topic or '<topic>'} --add-config max.message.bytes=<bytes>",
            )
        causes = "; ".join(dict.fromkeys([said, *self.complaints[-1:]]))
        return self.fault(f"the sink could not {attempt}: {causes}", "look at the brokers and the topic")

    def _grant(self) -> str:
        add = f"kafka-acls.sh --bootstrap-server {self.settings.address} --add --allow-principal User:<name>"
        topics = " ".join(f"--topic {topic}" for topic in self.topics or ("<topic>",))
        return (
            f"{add} --operation Read --operation Write {topics}; "
            f"{add} --operation Write --resource-pattern-type prefixed --transactional-id {self.former}.; "
            f"{add} --operation Read --resource-pattern-type prefixed --group {self.former}."
        )
