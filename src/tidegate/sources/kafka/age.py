"""How old the pending records of topics are, and when retention deletes them.

For ``plan``: no offset is committed, and values that the brokers do not report are None.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidegate.sources.kafka.offsets import KafkaPlan, settings_of
from tidegate.sources.port import Age
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.state.topics import TopicPartition

_PATIENCE_SECONDS = 3.0
_PARTITIONS_AT_MOST = 64


def find_age(kafka: ProjectKafkaSpec, source: KafkaSource, plan: KafkaPlan) -> Age:
    """Find the age of the pending records, by the first one of each partition, of at most 64 partitions."""
    waiting = {one: offsets.begin for one, offsets in list(plan.ranges.items())[:_PARTITIONS_AT_MOST]}
    if not waiting:
        return Age()
    client = {**settings_of(kafka, source).client, "log_level": "0"}
    stamps = _read_stamps(client, waiting)
    if not stamps:
        return Age()
    retention = _read_retention(client, sorted({one.topic for one in stamps}))
    taken = [stamp + kept for one, stamp in stamps.items() if (kept := retention.get(one.topic)) is not None]
    return Age(min(stamps.values()), min(taken, default=None))


def _read_stamps(client: Mapping[str, str], waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Read the time stamp of the first record at or after each of these offsets, for those that answer in time."""
    from confluent_kafka import Consumer, KafkaException
    from confluent_kafka import TopicPartition as Assigned

    more = {"group.id": "tidegate-look", "enable.auto.commit": False, "isolation.level": "read_committed"}
    small = {"fetch.max.bytes": 1 << 20, "max.partition.fetch.bytes": 1 << 16, "queued.min.messages": 1}
    stamps: dict[TopicPartition, int] = {}
    consumer = Consumer({**client, **more, **small, "message.max.bytes": 1 << 19})
    try:
        consumer.assign([Assigned(one.topic, one.partition, offset) for one, offset in waiting.items()])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(stamps) < len(waiting) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            place = TopicPartition(str(message.topic()), int(message.partition() or 0))
            kind, stamp = message.timestamp()
            if place not in stamps:
                consumer.pause([Assigned(*place)])
                if kind and stamp > 0:
                    stamps[place] = int(stamp)
    except KafkaException:
        pass  # the check of the source itself reports it
    finally:
        consumer.close()
    return stamps


def _read_retention(client: Mapping[str, str], topics: list[str]) -> dict[str, int]:
    """Read ``retention.ms`` of the topics that delete by time."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        ConfigResource,
        ResourceType,
    )

    found: dict[str, int] = {}
    try:
        admin = AdminClient(dict(client))
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
