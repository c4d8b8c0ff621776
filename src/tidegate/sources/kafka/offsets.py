"""Kafka offsets without a JVM: where a pipeline starts, and what the brokers hold that it has not taken.

``KafkaBirth`` is a part of the birth record and alone defines which topics belong to the pipeline. The run layer
writes it before Spark starts, whenever :func:`extend_birth` changed it. :mod:`tidegate.sources.kafka.loss` finds lost
records.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidegate.sources import errors
from tidegate.sources.kafka.brokers import Asked, Brokers, OpenBrokers, TopicState
from tidegate.sources.kafka.settings import KafkaSettings, map_settings
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.spec.reader_options import parser_options
from tidegate.state.birth import Start
from tidegate.state.topics import (
    OffsetRange,
    OffsetRanges,
    Offsets,
    OffsetsJson,
    TopicPartition,
    offsets_from_json,
    offsets_to_json,
)


@dataclass(frozen=True)
class KafkaBirth:
    """Where a checkpoint starts: the first offset of each partition, and the ids of their topics.

    ``gone`` lists topics of the spec whose loss a person accepted: their absence is no longer an error. ``cluster_id``
    is None until the brokers report one; some have none.
    """

    offsets: Offsets
    topic_ids: dict[str, str | None]
    gone: tuple[str, ...] = ()
    cluster_id: str | None = None

    def to_dict(self) -> Start:
        """JSON form, sorted by topic and partition."""
        return {
            "offsets": offsets_to_json(dict(sorted(self.offsets.items()))),
            "topic_ids": self.topic_ids,
            "gone": list(self.gone),
            "cluster_id": self.cluster_id,
        }

    @staticmethod
    def from_dict(value: Start) -> KafkaBirth:
        """Read the result of :meth:`to_dict`."""
        offsets, gone = offsets_from_json(value["offsets"]), tuple(value.get("gone", ()))
        return KafkaBirth(offsets, dict(value["topic_ids"]), gone, value.get("cluster_id"))


@dataclass(frozen=True)
class KafkaPlan:
    """What the brokers hold at this moment, and what of it is pending.

    ``begin`` and ``end`` are the retained offsets of each partition (``end``: last stable offset, exclusive).
    ``next_offsets`` has the first offset that is not taken yet, of every partition that is or was known. ``ranges`` has
    the pending offsets, sorted, of partitions that have any.
    """

    begin: Offsets
    end: Offsets
    next_offsets: Offsets
    topic_ids: dict[str, str | None]
    ranges: OffsetRanges
    new_partitions: frozenset[TopicPartition]
    """Of topics that were known."""
    cluster_id: str | None = None

    @property
    def pending_offsets(self) -> int:
        """The number of pending offsets: the backlog."""
        return sum(one.count for one in self.ranges.values())


def settings_of(project_kafka: ProjectKafkaSpec, source_spec: KafkaSource) -> KafkaSettings:
    """The source's client settings. Raises a UsageError that lists everything that cannot be used."""
    return map_settings(
        project_kafka.bootstrap_servers,
        project_kafka.options,
        source_spec.options,
        tuple(parser_options(source_spec)),
    )


def resolve_birth(
    project_kafka: ProjectKafkaSpec, source_spec: KafkaSource, open_brokers: OpenBrokers | None = None
) -> KafkaBirth:
    """Turn ``starting_offsets`` into a number for every partition that the source has now.

    Raises SourceLostError (a missing topic, partition or offset), UsageError (offsets for some partitions only, a
    refused login) and TryAgainError (the broker does not answer).
    """
    settings = settings_of(project_kafka, source_spec)
    brokers = (open_brokers or Brokers)(settings)
    topics = _find_topics(brokers, source_spec)
    _refuse_missing(topics, source_spec, settings.address)
    partitions = _list_partitions(topics, source_spec)
    starting = source_spec.starting_offsets
    offsets: Offsets
    if isinstance(starting, dict):
        offsets = _check_explicit(brokers, starting, partitions)
    elif starting == "earliest":
        offsets = brokers.begin_offsets(partitions)
    elif starting == "latest":
        offsets = brokers.end_offsets(partitions)
    else:
        offsets = _offsets_at(brokers, starting, partitions)
    ids = {topic: state.topic_id for topic, state in topics.items()}
    return KafkaBirth(offsets, ids, cluster_id=brokers.cluster_id())


def plan_kafka(
    project_kafka: ProjectKafkaSpec,
    source_spec: KafkaSource,
    birth: KafkaBirth,
    taken: Offsets,
    open_brokers: OpenBrokers | None = None,
) -> KafkaPlan:
    """Compare the brokers with what was taken (``taken``: the next offsets to read, from the last batch's offset log).

    A partition that is neither in ``taken`` nor in ``birth`` is new and pending from offset 0. Never raises for a loss:
    pass the plan to :func:`tidegate.sources.kafka.loss.find_loss` before acting on it.
    """
    brokers = (open_brokers or Brokers)(settings_of(project_kafka, source_spec))
    topics = _find_topics(brokers, source_spec, also=(topic for topic, _ in birth.offsets))
    partitions = _list_partitions(topics, source_spec)
    # The end first: a record that arrives in between is left for the next run, not half counted.
    end = brokers.end_offsets(partitions)
    begin = brokers.begin_offsets(partitions)
    known = {**birth.offsets, **taken}
    known_topics = {topic for topic, _ in known}
    appeared = set(partitions) - set(known)
    next_offsets = {**known, **dict.fromkeys(appeared, 0)}
    pending = {one: OffsetRange(max(next_offsets[one], begin[one]), until) for one, until in sorted(end.items())}
    return KafkaPlan(
        begin=begin,
        end=end,
        next_offsets=next_offsets,
        topic_ids={topic: state.topic_id for topic, state in topics.items()},
        ranges={partition: one for partition, one in pending.items() if one.count > 0},
        new_partitions=frozenset(one for one in appeared if one.topic in known_topics),
        cluster_id=brokers.cluster_id(),
    )


def check_cluster(known: str | None, now: str | None, address: str, *, pipeline: str, source: str) -> None:
    """Raise UsageError KAFKA_CLUSTER_CHANGED when ``address`` is no longer the cluster that the source was read from:
    the same topic names and offsets are other records there."""
    if known is None or now is None or known == now:
        return
    raise errors.KAFKA_CLUSTER_CHANGED(
        where=f"source {source} of pipeline {pipeline}", address=address, now=now, known=known, pipeline=pipeline
    )


def extend_birth(birth: KafkaBirth, plan: KafkaPlan) -> KafkaBirth:
    """Add the new topics and partitions of the plan to the birth record, each pending from its beginning.

    Equal to ``birth`` when nothing is new. Write it before Spark starts: it defines which topics Spark reads.
    """
    offsets = {**dict.fromkeys(plan.end, 0), **birth.offsets}
    topic_ids = dict(birth.topic_ids)
    for topic in plan.topic_ids:
        if topic_ids.get(topic) is None:
            topic_ids[topic] = plan.topic_ids[topic]
    gone = tuple(topic for topic in birth.gone if topic not in plan.topic_ids)
    return KafkaBirth(offsets, topic_ids, gone, birth.cluster_id or plan.cluster_id)


def _find_topics(brokers: Asked, spec: KafkaSource, also: Iterable[str] = ()) -> dict[str, TopicState]:
    """Find the existing topics of the source; ``also`` are topics known from before, in the spec or not."""
    if spec.topic_pattern is None:
        return brokers.describe({*(spec.topics or spec.assign or ()), *also})
    pattern = re.compile(spec.topic_pattern)
    names = {name for name in brokers.list_names() if pattern.fullmatch(name)}
    return {name: state for name, state in brokers.describe({*names, *also}).items() if not state.internal}


def _list_partitions(topics: Mapping[str, TopicState], spec: KafkaSource) -> list[TopicPartition]:
    """List the partitions of these topics that the source reads."""
    assigned = spec.assign or {}
    return [
        TopicPartition(topic, number)
        for topic, state in topics.items()
        for number in state.partitions
        if topic not in assigned or number in assigned[topic]
    ]


def _refuse_missing(topics: Mapping[str, TopicState], spec: KafkaSource, address: str) -> None:
    if spec.topic_pattern is not None:
        missing = [] if topics else [f"no topic matches {spec.topic_pattern!r}"]
    else:
        missing = [f"topic {topic} does not exist" for topic in spec.topics or spec.assign or () if topic not in topics]
        missing += [
            f"topic {topic} has no partition {number}"
            for topic, numbers in (spec.assign or {}).items()
            for number in numbers
            if topic in topics and number not in topics[topic].partitions
        ]
    if missing:
        raise errors.TOPIC_MISSING(where="the source in pipeline.yaml", address=address, missing="; ".join(missing))


def _offsets_at(brokers: Asked, text: str, partitions: Collection[TopicPartition]) -> Offsets:
    at = datetime.fromisoformat(text)
    end = brokers.end_offsets(partitions)
    found = brokers.offsets_at(partitions, at)
    return {partition: offset if offset >= 0 else end[partition] for partition, offset in found.items()}


def _check_explicit(brokers: Asked, starting: OffsetsJson, partitions: Collection[TopicPartition]) -> Offsets:
    """Check offsets of the spec: one for every partition, and each exists (-2 earliest, -1 latest)."""
    wanted = offsets_from_json(starting)
    faults = [f"{one} is not named" for one in sorted(set(partitions) - set(wanted))]
    faults += [f"{one} is not of this source" for one in sorted(set(wanted) - set(partitions))]
    faults += [f"{one}: offset {offset}" for one, offset in sorted(wanted.items()) if offset < -2]
    if faults:
        raise errors.STARTING_OFFSETS(where="starting_offsets of the source in pipeline.yaml", faults="; ".join(faults))
    end, begin = brokers.end_offsets(partitions), brokers.begin_offsets(partitions)
    outside = [
        f"{one}: offset {offset}, but the broker has {begin[one]} to {end[one]}"
        for one, offset in sorted(wanted.items())
        if offset >= 0 and not begin[one] <= offset <= end[one]
    ]
    if outside:
        raise errors.STARTING_OFFSETS_GONE(
            where="starting_offsets of the source in pipeline.yaml", offsets="; ".join(outside)
        )
    special = {-2: begin, -1: end}
    return {one: special.get(offset, wanted)[one] for one, offset in wanted.items()}
