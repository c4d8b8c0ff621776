"""The JVM-free side of a Kafka source: where a pipeline starts, and what the brokers hold that it has not taken.

``KafkaBirth`` is a part of the birth record and the one authority on which topics belong to the pipeline. The run layer
writes it (again) before Spark starts, whenever :func:`extend_birth` changed it. :mod:`tidegate.sources.kafka.loss`
tells what was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tidegate.errors import catalogue
from tidegate.sources.kafka.brokers import Asked, Brokers, Offsets, OpenBrokers, TopicState
from tidegate.sources.kafka.settings import KafkaSettings, map_settings
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.spec.reader_options import parser_options
from tidegate.staging.birth import Start

_FORMS = "earliest, latest, an ISO timestamp such as 2026-01-31T06:00:00Z, or {topic: {partition: offset}}"


@dataclass(frozen=True)
class KafkaBirth:
    """Where a checkpoint starts: ``offsets`` {topic: {partition: offset}} and the ids of exactly these topics.

    ``gone`` lists topics of the spec whose loss a person accepted: their absence is not an error any more.
    ``cluster_id`` is None until it was seen (an earlier version of tidegate did not keep it).
    """

    offsets: Offsets
    topic_ids: dict[str, str | None]
    gone: tuple[str, ...] = ()
    cluster_id: str | None = None

    def to_dict(self) -> Start:
        """JSON form; partitions become strings."""
        return {
            "offsets": offsets_to_json(self.offsets),
            "topic_ids": self.topic_ids,
            "gone": list(self.gone),
            "cluster_id": self.cluster_id,
        }

    @staticmethod
    def from_dict(value: Start) -> KafkaBirth:
        """The value that :meth:`to_dict` made."""
        offsets, gone = offsets_from_json(value["offsets"]), tuple(value.get("gone", ()))
        return KafkaBirth(offsets, dict(value["topic_ids"]), gone, value.get("cluster_id"))


@dataclass(frozen=True)
class KafkaPlan:
    """What the brokers hold at this moment, next to what the pipeline has not read yet.

    ``begin`` and ``end`` are retained offsets per partition (``end``: last stable offset, exclusive). ``owed`` is the
    first offset not yet taken, of every partition that is or was known. ``ranges`` has the pending [from, until] where
    there are any; offsets are counted, so transaction markers and compacted records count too.
    """

    begin: Offsets
    end: Offsets
    owed: Offsets
    topic_ids: dict[str, str | None]
    ranges: dict[str, dict[int, list[int]]]
    new_topics: tuple[str, ...]
    new_partitions: dict[str, list[int]]
    missing_topics: tuple[str, ...]
    cluster_id: str | None = None

    @property
    def pending_offsets(self) -> int:
        """How many offsets wait: the backlog."""
        return sum(until - start for topic in self.ranges.values() for start, until in topic.values())

    @property
    def has_new(self) -> bool:
        """Whether a run would read anything."""
        return bool(self.ranges)

    def to_dict(self) -> dict[str, object]:
        """JSON form for ``tidegate plan --json``; partitions become strings."""
        return {
            **asdict(self),
            "begin": offsets_to_json(self.begin),
            "end": offsets_to_json(self.end),
            "owed": offsets_to_json(self.owed),
            "ranges": ranges_to_json(self.ranges),
            "new_partitions": dict(self.new_partitions),
            "pending_offsets": self.pending_offsets,
        }


def settings_of(project_kafka: ProjectKafkaSpec, source_spec: KafkaSource) -> KafkaSettings:
    """The source's settings in both dialects. UsageError lists everything that cannot be used."""
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

    Raises SourceLostError (a topic, a partition or an offset that is not there), UsageError (offsets for some
    partitions only, a refused login) and TryAgainError (broker away).
    """
    settings = settings_of(project_kafka, source_spec)
    brokers = (open_brokers or Brokers)(settings)
    topics = _find_topics(brokers, source_spec)
    _refuse_missing(topics, source_spec, settings.address)
    partitions = {topic: _partitions_of(topic, state, source_spec) for topic, state in topics.items()}
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
    taken: Mapping[str, Mapping[int, int]],
    open_brokers: OpenBrokers | None = None,
) -> KafkaPlan:
    """Compare the brokers with what was taken (``taken``: the next offset to read, from the last batch's offset log).

    A partition that is neither in ``taken`` nor in ``birth`` is new and pending from offset 0. Never raises for a loss:
    pass the plan to :func:`tidegate.sources.kafka.loss.find_loss` before acting on it.
    """
    brokers = (open_brokers or Brokers)(settings_of(project_kafka, source_spec))
    topics = _find_topics(brokers, source_spec, also=birth.offsets)
    partitions = {topic: _partitions_of(topic, state, source_spec) for topic, state in topics.items()}
    # The end first: a record that arrives in between is then left for the next look, not counted in half.
    end = brokers.end_offsets(partitions)
    begin = brokers.begin_offsets(partitions)
    known: Offsets = {topic: dict(numbers) for topic, numbers in birth.offsets.items()}
    for topic, numbers in taken.items():
        known.setdefault(topic, {}).update(numbers)
    owed: Offsets = {topic: dict(numbers) for topic, numbers in known.items()}
    new_partitions: dict[str, list[int]] = {}
    for topic, present in partitions.items():
        for number in present:
            if number not in owed.setdefault(topic, {}):
                owed[topic][number] = 0
                if topic in known:
                    new_partitions.setdefault(topic, []).append(number)
    ranges: dict[str, dict[int, list[int]]] = {}
    for topic, ends in end.items():
        for number, until in ends.items():
            start = max(owed[topic][number], begin[topic][number])
            if until > start:
                ranges.setdefault(topic, {})[number] = [start, until]
    return KafkaPlan(
        begin=begin,
        end=end,
        owed=owed,
        topic_ids={topic: state.topic_id for topic, state in topics.items()},
        ranges=ranges,
        new_topics=tuple(sorted(set(topics) - set(known))),
        new_partitions=new_partitions,
        missing_topics=tuple(sorted((set(known) | set(source_spec.topics or ())) - set(topics) - set(birth.gone))),
        cluster_id=brokers.cluster_id(),
    )


def check_cluster(known: str | None, now: str | None, address: str, *, pipeline: str, source: str) -> None:
    """Raise UsageError KAFKA_CLUSTER_CHANGED when the brokers at ``address`` are another cluster than the one that the
    source was read from: the same topic names and offsets mean other records there."""
    if known is None or now is None or known == now:
        return
    raise catalogue.KAFKA_CLUSTER_CHANGED(
        where=f"source {source} of pipeline {pipeline}", address=address, now=now, known=known, pipeline=pipeline
    )


def extend_birth(birth: KafkaBirth, plan: KafkaPlan) -> KafkaBirth:
    """The birth record with the topics and partitions that the plan found new, each pending from its beginning.

    Equal to ``birth`` when nothing is new. Write it before Spark starts: it says which topics Spark subscribes to.
    """
    offsets: Offsets = {topic: dict(numbers) for topic, numbers in birth.offsets.items()}
    for topic, numbers in plan.end.items():
        for number in numbers:
            offsets.setdefault(topic, {}).setdefault(number, 0)
    topic_ids = dict(birth.topic_ids)
    for topic in plan.topic_ids:
        if topic_ids.get(topic) is None:
            topic_ids[topic] = plan.topic_ids[topic]
    gone = tuple(topic for topic in birth.gone if topic not in plan.topic_ids)
    return KafkaBirth(offsets, topic_ids, gone, birth.cluster_id or plan.cluster_id)


def offsets_to_json(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Offsets with partitions as strings: Spark's own form, too."""
    return {
        topic: {str(n): offset for n, offset in sorted(numbers.items())} for topic, numbers in sorted(offsets.items())
    }


def offsets_from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets with partitions as numbers again."""
    return {topic: {int(n): int(offset) for n, offset in numbers.items()} for topic, numbers in value.items()}


def ranges_to_json(ranges: Mapping[str, Mapping[int, list[int]]]) -> dict[str, dict[str, list[int]]]:
    """Ranges as the run report has them."""
    return {
        topic: {str(n): list(pair) for n, pair in sorted(numbers.items())} for topic, numbers in sorted(ranges.items())
    }


def _find_topics(brokers: Asked, spec: KafkaSource, also: Iterable[str] = ()) -> dict[str, TopicState]:
    """The topics of the source that exist; ``also``: topics known from before, named in the spec or not."""
    if spec.topic_pattern is None:
        return brokers.describe({*(spec.topics or spec.assign or ()), *also})
    pattern = re.compile(spec.topic_pattern)
    names = {name for name in brokers.list_names() if pattern.fullmatch(name)}
    return {name: state for name, state in brokers.describe({*names, *also}).items() if not state.internal}


def _partitions_of(topic: str, state: TopicState, spec: KafkaSource) -> tuple[int, ...]:
    if spec.assign is None or topic not in spec.assign:
        return state.partitions
    return tuple(number for number in state.partitions if number in spec.assign[topic])


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
        raise catalogue.TOPIC_MISSING(where="the source in pipeline.yaml", address=address, missing="; ".join(missing))


def _offsets_at(brokers: Asked, text: str, partitions: Mapping[str, tuple[int, ...]]) -> Offsets:
    at = datetime.fromisoformat(text)
    end = brokers.end_offsets(partitions)
    found = brokers.offsets_at(partitions, at)
    return {
        topic: {number: offset if offset >= 0 else end[topic][number] for number, offset in numbers.items()}
        for topic, numbers in found.items()
    }


def _check_explicit(
    brokers: Asked, starting: Mapping[str, Mapping[Any, int]], partitions: Mapping[str, tuple[int, ...]]
) -> Offsets:
    """Offsets written in the spec: one for every partition, each of them there (-2 earliest, -1 latest)."""
    wanted = offsets_from_json(starting)
    pairs = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
    named = {(topic, number) for topic, numbers in wanted.items() for number in numbers}
    faults = [f"topic {topic} partition {number} is not named" for topic, number in sorted(pairs - named)]
    faults += [f"topic {topic} partition {number} is not of this source" for topic, number in sorted(named - pairs)]
    faults += [f"topic {t} partition {n}: offset {wanted[t][n]}" for t, n in sorted(named) if wanted[t][n] < -2]
    if faults:
        raise catalogue.STARTING_OFFSETS(
            where="starting_offsets of the source in pipeline.yaml", faults="; ".join(faults)
        )
    end, begin = brokers.end_offsets(partitions), brokers.begin_offsets(partitions)
    outside = [
        f"topic {t} partition {n}: offset {wanted[t][n]}, but the broker has {begin[t][n]} to {end[t][n]}"
        for t, n in sorted(pairs)
        if wanted[t][n] >= 0 and not begin[t][n] <= wanted[t][n] <= end[t][n]
    ]
    if outside:
        raise catalogue.STARTING_OFFSETS_GONE(
            where="starting_offsets of the source in pipeline.yaml", offsets="; ".join(outside)
        )
    special = {-2: begin, -1: end}
    return {
        topic: {number: special.get(wanted[topic][number], wanted)[topic][number] for number in numbers}
        for topic, numbers in partitions.items()
    }
