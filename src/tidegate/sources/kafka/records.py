"""Reads a few records of topics, without a JVM and without committing an offset: the oldest pending ones for ``plan``,
the newest ones to find their columns, those that came since a position for event notifications.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tidegate.core.errors import TidegateError
from tidegate.sources import errors
from tidegate.sources.kafka.brokers import OpenBrokers, one_topic
from tidegate.sources.kafka.offsets import KafkaPlan, find_bounds, newest_offsets
from tidegate.sources.kafka.settings import KafkaSettings, settings_of
from tidegate.sources.port import Age, Messages
from tidegate.sources.readers.kafka_records import read_range
from tidegate.sources.readers.unreadable import RangeFault, TopicRange
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.state.topics import OffsetRange, Offsets, TopicPartition, offsets_from_json, offsets_to_json

_PATIENCE_SECONDS = 3.0
_PARTITIONS_AT_MOST = 64
_RECORDS_AT_MOST = 1_000
_SAMPLE_SECONDS = 10.0
_MESSAGES_AT_MOST = 100_000
"""So many are read in a second or two."""


def find_age(kafka: ProjectKafkaSpec, source: KafkaSource, plan: KafkaPlan) -> Age:
    """Find the age of the pending records, by the first one of each partition, of at most 64 partitions.

    Values that the brokers do not report are None.
    """
    waiting = {one: offsets.begin for one, offsets in list(plan.ranges.items())[:_PARTITIONS_AT_MOST]}
    client = settings_of(kafka, source).client
    stamps: dict[TopicPartition, int] = {}
    small = {"fetch.max.bytes": 1 << 20, "max.partition.fetch.bytes": 1 << 16, "queued.min.messages": 1}
    options = {**client, **small, "message.max.bytes": 1 << 19, "group.id": "tidegate-look"}
    seen: set[TopicPartition] = set()
    try:
        for consumer, message in _poll(options, waiting, _PATIENCE_SECONDS):
            place = _partition_of(message)
            kind, stamp = message.timestamp()
            if message.error() is None and place not in seen:
                seen.add(place)
                consumer.pause([Assigned(*place)])
                if kind and stamp > 0:
                    stamps[place] = stamp
            if len(stamps) == len(waiting):
                break
    except KafkaException:
        pass  # the check of the source itself reports it
    retention = _read_retention(client, sorted({one.topic for one in stamps}))
    taken = [stamp + kept for one, stamp in stamps.items() if (kept := retention.get(one.topic)) is not None]
    return Age(min(stamps.values(), default=None), min(taken, default=None))


def _poll(options: Mapping[str, object], begins: Offsets, seconds: float) -> Iterator[tuple[Consumer, Message]]:
    """Yield committed records from these offsets on, and errors, with their consumer, for up to ``seconds``."""
    if not begins:
        return
    more = {"enable.auto.commit": False, "isolation.level": "read_committed", "log_level": "0"}
    consumer = Consumer({**options, **more})
    try:
        consumer.assign([Assigned(one.topic, one.partition, offset) for one, offset in begins.items()])
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None:
                yield consumer, message
    finally:
        consumer.close()


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(str(message.topic()), int(message.partition() or 0))


def _read_retention(client: Mapping[str, str], topics: list[str]) -> dict[str, int]:
    """Read ``retention.ms`` of the topics that delete by time."""
    found: dict[str, int] = {}
    if not topics:
        return found
    try:
        admin = AdminClient({**client, "log_level": "0"})
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        for resource, future in admin.describe_configs(wanted, request_timeout=_PATIENCE_SECONDS).items():
            try:
                answer = future.result(timeout=_PATIENCE_SECONDS)
                kept, policy = int(answer["retention.ms"].value), str(answer["cleanup.policy"].value)
            except (KafkaException, TimeoutError, KeyError, ValueError, TypeError):
                continue
            if kept >= 0 and "delete" in policy:
                found[resource.name] = kept
    except KafkaException:
        pass  # the check of the source itself reports it
    return found


def sample_topic(kafka: ProjectKafkaSpec, topic: str) -> list[bytes]:
    """Return the values of up to 1,000 of the newest committed records of ``topic``, divided among its partitions.

    Records without a value are skipped.

    Raises SourceLostError TOPIC_MISSING, UsageError for a refused login or option, TryAgainError BROKER_AWAY.
    """
    source = one_topic(topic)
    begins, ends = newest_offsets(kafka, source, _RECORDS_AT_MOST)
    left = {one for one, until in ends.items() if until > begins[one]}
    settings = settings_of(kafka, source)
    options = {**settings.client, "group.id": "tidegate-new", "enable.partition.eof": True}
    values: list[bytes] = []
    try:
        for _, message in _poll(options, {one: begins[one] for one in left}, _SAMPLE_SECONDS):
            error, value = message.error(), message.value()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard(_partition_of(message))
            elif error is None and value is not None:
                values.append(value if isinstance(value, bytes) else str(value).encode())
            if not left:
                break
    except KafkaException as error:
        raise _not_read(topic, settings.address, settings.scrub(str(error))) from None
    if left and not values:
        raise _not_read(topic, settings.address, f"nothing came within {_SAMPLE_SECONDS:g} seconds")
    return values


def read_messages(
    kafka: ProjectKafkaSpec, topic: str, since: object, open_brokers: OpenBrokers | None = None
) -> Messages:
    """Return the committed records of ``topic`` since a position that an earlier call returned; none without one.

    Raises what :func:`find_bounds` does, here or while the records are read.
    """
    topic_id, begins, ends = find_bounds(kafka, topic, open_brokers)
    position = {"topic_id": topic_id, "offsets": offsets_to_json(ends)[topic]}
    if not isinstance(since, dict):
        return Messages(position)
    if since["topic_id"] != topic_id:
        return Messages(position, missed=f"topic {topic} was created again")
    before = offsets_from_json({topic: since["offsets"]})
    ranges = {one: OffsetRange(before.get(one, 0), end) for one, end in sorted(ends.items())}
    if any(not begins[one] <= wanted.begin <= wanted.end for one, wanted in ranges.items()) or before.keys() - ends:
        return Messages(position, missed=f"topic {topic} no longer has all records since the last run")
    if sum(wanted.count for wanted in ranges.values()) > _MESSAGES_AT_MOST:
        return Messages(
            position, missed=f"topic {topic} has more than {_MESSAGES_AT_MOST:,} records since the last run"
        )
    return Messages(position, _read_bodies(settings_of(kafka), ranges, topic_id))


def _read_bodies(
    settings: KafkaSettings, ranges: Mapping[TopicPartition, OffsetRange], topic_id: str | None
) -> Iterator[tuple[str, bytes]]:
    for (topic, partition), wanted in ranges.items():
        where = TopicRange(topic, partition, wanted.begin, wanted.end)
        try:
            for records in read_range(settings.reading, where, topic_id):
                for offset, value in zip(records.offsets, records.values, strict=True):
                    if value is not None:
                        yield f"partition {partition} offset {offset}", value
        except RangeFault as fault:
            why = settings.scrub(f"{fault.problem}: {fault.reason}".removesuffix(": "))
            raise _not_read(topic, settings.address, why) from None


def _not_read(topic: str, address: str, why: str) -> TidegateError:
    fault = f"the records of topic {topic} cannot be read"
    return errors.BROKER_AWAY(where=f"kafka brokers {address}", fault=fault, reason=why)
