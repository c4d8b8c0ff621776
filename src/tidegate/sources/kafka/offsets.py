"""Kafka offsets without a JVM: where a pipeline starts, what is pending, and what was lost.

``KafkaBirth`` is a part of the birth record and alone defines which topics belong to the pipeline. The run layer
writes it before Spark starts, whenever :func:`extend_birth` changed it.

Losses are found by comparing a birth record with a plan (promise 9). Only a person can accept one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Literal

from tidegate.core.errors import SourceLostError
from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors
from tidegate.sources.kafka.brokers import Brokers, OpenBrokers, TopicState, one_topic
from tidegate.sources.kafka.settings import settings_of
from tidegate.spec.models import KafkaSource, PipelineSpec, ProjectKafkaSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start, read_birth
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


def resolve_birth(kafka: ProjectKafkaSpec, source: KafkaSource, open_brokers: OpenBrokers | None = None) -> KafkaBirth:
    """Turn ``starting_offsets`` into a number for every partition that the source has now.

    Raises SourceLostError (a missing topic, partition or offset), UsageError (offsets for some partitions only, a
    refused login) and TryAgainError (the broker does not answer).
    """
    settings = settings_of(kafka, source)
    brokers = (open_brokers or Brokers)(settings)
    topics = _find_topics(brokers, source)
    _refuse_missing(topics, source, settings.address)
    partitions = _list_partitions(topics, source)
    starting = source.starting_offsets
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
    kafka: ProjectKafkaSpec,
    source: KafkaSource,
    birth: KafkaBirth,
    taken: Offsets,
    open_brokers: OpenBrokers | None = None,
) -> KafkaPlan:
    """Compare the brokers with what was taken (``taken``: the next offsets to read, from the last batch's offset log).

    A partition that is neither in ``taken`` nor in ``birth`` is new and pending from offset 0. Never raises for a loss:
    pass the plan to :func:`find_loss` before acting on it.
    """
    brokers = (open_brokers or Brokers)(settings_of(kafka, source))
    topics = _find_topics(brokers, source, also=(topic for topic, _ in birth.offsets))
    partitions = _list_partitions(topics, source)
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


def newest_offsets(kafka: ProjectKafkaSpec, source: KafkaSource, records: int) -> tuple[Offsets, Offsets]:
    """Return offsets about ``records`` before the end, divided among the partitions, and the ends."""
    begin, end = (
        resolve_birth(kafka, source.replace(starting_offsets=where)).offsets for where in ("earliest", "latest")
    )
    share = max(1, records // max(1, len(end)))
    return {partition: max(begin[partition], until - share) for partition, until in end.items()}, end


def find_bounds(
    kafka: ProjectKafkaSpec, topic: str, open_brokers: OpenBrokers | None = None
) -> tuple[str | None, Offsets, Offsets]:
    """The id of a topic, and where each of its partitions begins and ends. Raises SourceLostError TOPIC_MISSING."""
    source = one_topic(topic)
    settings = settings_of(kafka, source)
    brokers = (open_brokers or Brokers)(settings)
    topics = _find_topics(brokers, source)
    _refuse_missing(topics, source, settings.address)
    partitions = _list_partitions(topics, source)
    end = brokers.end_offsets(partitions)
    return topics[topic].topic_id, brokers.begin_offsets(partitions), end


def _find_topics(brokers: Brokers, spec: KafkaSource, also: Iterable[str] = ()) -> dict[str, TopicState]:
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


def _offsets_at(brokers: Brokers, text: str, partitions: Collection[TopicPartition]) -> Offsets:
    at = datetime.fromisoformat(text)
    end = brokers.end_offsets(partitions)
    found = brokers.offsets_at(partitions, at)
    return {partition: offset if offset >= 0 else end[partition] for partition, offset in found.items()}


def _check_explicit(brokers: Brokers, starting: OffsetsJson, partitions: Collection[TopicPartition]) -> Offsets:
    """Check offsets of the spec: one for every partition, and each exists (-2 earliest, -1 latest)."""
    wanted = offsets_from_json(starting)
    faults = [f"{one} is not named" for one in sorted(set(partitions) - set(wanted))]
    faults += [f"{one} is not of this source" for one in sorted(set(wanted) - set(partitions))]
    faults += [f"{one}: offset {offset}" for one, offset in sorted(wanted.items()) if offset < -2]
    if faults:
        needed = "starting_offsets, which needs an offset (or -2 for earliest, -1 for latest) for every partition"
        raise errors.KAFKA_OPTIONS(
            where="starting_offsets of the source in pipeline.yaml", faults=f"{needed}: {'; '.join(faults)}"
        )
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


Cause = Literal["retention", "topic_deleted", "topic_recreated", "partition_vanished", "truncated"]

_WORDS: dict[str, str] = {
    "retention": "taken by retention",
    "topic_deleted": "the topic was deleted",
    "topic_recreated": "the topic was deleted and created again",
    "partition_vanished": "the partition is gone",
    "truncated": "the partition ends before what was already read or planned: its log was cut",
}


@dataclass(frozen=True)
class LostRange:
    """Offsets of one partition that can no longer be read: from ``lost_from`` up to ``lost_until``, exclusive.

    ``lost_until`` is None when the end of the lost records is not known. Reading continues at ``goes_on_at`` once the
    loss is accepted; None when nothing is left to read. For ``truncated`` the range was read, or planned, and no longer
    exists; records that replaced it below ``goes_on_at`` cannot be distinguished from read ones and count as lost.
    """

    topic: str
    partition: int
    cause: Cause
    lost_from: int
    lost_until: int | None
    goes_on_at: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def is_of_known_records(self, planned: Offsets) -> bool:
        """Return whether records were lost that are known to have existed, not only positions of future ones."""
        seen = planned.get(self.topic_partition, self.lost_from)
        return self.lost_until is not None or seen > self.lost_from

    def end_at(self, until: Offsets) -> LostRange:
        """Leave out the offsets behind ``until``, if it names the partition and there are others."""
        end = until.get(self.topic_partition)
        if end is None or self.lost_until is None or not self.lost_from < end < self.lost_until:
            return self
        return replace(self, lost_until=end)

    def __str__(self) -> str:
        if self.lost_until is None:
            span = f"from offset {self.lost_from} on"
        else:
            span = f"offsets {self.lost_from} to {self.lost_until - 1} ({self.lost_until - self.lost_from})"
        return f"{self.topic_partition} {span}: {_WORDS[self.cause]}"


def find_loss(birth: KafkaBirth, plan: KafkaPlan, planned: Offsets | None = None) -> list[LostRange]:
    """Compare the pending offsets with what the brokers retain, and return what is lost.

    ``planned`` is where the last planned batch ends ({} or None without one): its records existed then.
    """
    lost: list[LostRange] = []
    for partition, start in sorted(plan.next_offsets.items()):
        topic = partition.topic
        if topic not in plan.topic_ids:
            if topic not in birth.gone:
                lost.append(LostRange(*partition, "topic_deleted", start, None, None))
            continue
        recorded, now = birth.topic_ids.get(topic), plan.topic_ids[topic]
        recreated = recorded is not None and now is not None and recorded != now
        until = max(start, (planned or {}).get(partition, start))
        lost += _lost_of_partition(plan, partition, start, until, recreated=recreated)
    return lost


def _lost_of_partition(
    plan: KafkaPlan, partition: TopicPartition, start: int, until: int, *, recreated: bool
) -> list[LostRange]:
    """Find the losses of a partition that is pending from ``start`` on and once reached ``until``."""
    if partition not in plan.end:
        return [LostRange(*partition, "topic_recreated" if recreated else "partition_vanished", start, None, None)]
    begin, end = plan.begin[partition], plan.end[partition]
    lost = []
    if recreated and partition not in plan.new_partitions:
        lost.append(LostRange(*partition, "topic_recreated", start, None, begin))
        if begin > 0:
            lost.append(LostRange(*partition, "retention", 0, begin, begin))
        return lost
    if start < begin:
        lost.append(LostRange(*partition, "retention", start, begin, begin))
    if end < until:
        lost.append(LostRange(*partition, "truncated", end, until, min(max(start, begin), end)))
    return lost


def birth_after_loss(birth: KafkaBirth, plan: KafkaPlan, lost: Sequence[LostRange]) -> KafkaBirth:
    """Make the birth record of the checkpoint that continues after this loss was accepted, with an offset for every
    partition that exists now."""
    accepted = {one.topic_partition: one.goes_on_at for one in lost if one.goes_on_at is not None}
    offsets = {partition: accepted.get(partition, plan.next_offsets[partition]) for partition in plan.end}
    gone = {topic for topic in (*(one.topic for one in lost), *birth.gone) if topic not in plan.topic_ids}
    return KafkaBirth(offsets, dict(plan.topic_ids), tuple(sorted(gone)), birth.cluster_id or plan.cluster_id)


def loss_to_dict(lost: Sequence[LostRange]) -> dict[str, object]:
    """The JSON form that is recorded when the loss is accepted. Ranges without an end do not count."""
    known = sum(one.lost_until - one.lost_from for one in lost if one.lost_until is not None)
    return {"lost_offsets": known, "ranges": [asdict(one) for one in lost]}


def loss_error(pipeline: str, source: str, lost: Sequence[LostRange], planned: Offsets) -> SourceLostError:
    """Make the error that stops the run, with the exact ranges and the command that continues without them."""
    is_known = any(one.is_of_known_records(planned) for one in lost)
    what = "Kafka no longer has records that this pipeline has not read yet"
    if not is_known:
        what = "every record that tidegate had seen was read, but records that arrived later may be lost"
    return errors.KAFKA_LOSS(
        where=f"source {source} of pipeline {pipeline}",
        what=what,
        ranges="; ".join(map(str, lost)),
        pipeline=pipeline,
    )


def recreated_error(where: str, pipeline: str, topics: str) -> SourceLostError:
    """Make the error for topics that were created again while a batch was read. The next run names what is lost."""
    what = f"topic {topics} was deleted and created again while a batch was read"
    ranges = "the batch may contain records of the new topic, so it was not staged"
    return errors.KAFKA_LOSS(where=where, what=what, ranges=ranges, pipeline=pipeline)


@dataclass(frozen=True)
class TopicWatch:
    """Checks, after a batch was read, that its topics are still those that the pipeline knows.

    Topics are compared by id before Spark starts. If one is then deleted, created again and filled beyond the planned
    offsets, Spark reads its new records at the old offsets, without an error. ``known`` maps each Kafka source to its
    topics' ids when the run began, ``brokers`` to its connection.
    """

    pipeline: str
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[str, Brokers] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    """{source: (id of its cluster, address)}"""

    def check(self, batch_id: int) -> None:
        """Raise SourceLostError KAFKA_LOSS when a topic was created again: the batch may have read its records.

        To be called after the last read of a batch, before it counts as staged. A deleted topic is not an error here:
        its records were read before, and the next run reports it. Raises UsageError KAFKA_CLUSTER_CHANGED,
        TryAgainError BROKER_AWAY.
        """
        for source, known in self.known.items():
            now = self.brokers[source].describe(known)
            if source in self.clusters:
                cluster_id, address = self.clusters[source]
                found = self.brokers[source].cluster_id()
                check_cluster(cluster_id, found, address, pipeline=self.pipeline, source=source)
            others = sorted(t for t, state in now.items() if state.topic_id not in (None, known[t]))
            if others:
                where = f"source {source} of pipeline {self.pipeline}"
                raise recreated_error(where, self.pipeline, ", ".join(others))


def watch_topics(project: Project, paths: PipelinePaths, spec: PipelineSpec) -> TopicWatch:
    """Watch the topics of the birth record; topics of brokers without topic ids cannot be watched."""
    known: dict[str, dict[str, str]] = {}
    brokers: dict[str, Brokers] = {}
    clusters: dict[str, tuple[str | None, str]] = {}
    birth = read_birth(paths)
    for name, source in spec.streams.items():
        if isinstance(source, KafkaSource) and birth is not None:
            settings = settings_of(project.spec.kafka, source)
            ids = birth.sources[name]["topic_ids"]
            known[name] = {topic: str(topic_id) for topic, topic_id in ids.items() if topic_id is not None}
            brokers[name] = Brokers(settings)
            clusters[name] = (birth.sources[name].get("cluster_id"), settings.address)
    return TopicWatch(spec.name, known, brokers, clusters)
