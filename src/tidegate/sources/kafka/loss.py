"""Finds records that Kafka lost before a pipeline read them (promise 9). Only a person can accept a loss.

Pure: compares a birth record with a plan, and returns values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from tidegate.core.errors import SourceLostError
from tidegate.sources import errors
from tidegate.sources.kafka.offsets import KafkaBirth, KafkaPlan
from tidegate.state.topics import Offsets, TopicPartition

Cause = Literal["retention", "topic_deleted", "topic_recreated", "partition_vanished", "truncated"]

_WORDS: dict[str, str] = {
    "retention": "taken by retention before they were read",
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

    def is_of_known_records(self, begun: Offsets) -> bool:
        """Whether records were lost that are known to have existed, not only positions of future ones."""
        seen = begun.get(self.topic_partition, self.lost_from)
        return self.lost_until is not None or seen > self.lost_from

    def __str__(self) -> str:
        if self.lost_until is None:
            span = f"from offset {self.lost_from} on"
        else:
            span = f"offsets {self.lost_from} to {self.lost_until - 1} ({self.lost_until - self.lost_from})"
        return f"{self.topic_partition} {span}: {_WORDS[self.cause]}"


@dataclass(frozen=True)
class KafkaLoss:
    """All losses of one source, as they are recorded when they are accepted."""

    ranges: tuple[LostRange, ...]

    @property
    def lost_offsets(self) -> int:
        """The known number of lost offsets; ranges without an end do not count."""
        return sum(lost.lost_until - lost.lost_from for lost in self.ranges if lost.lost_until is not None)

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        return {"lost_offsets": self.lost_offsets, "ranges": [asdict(lost) for lost in self.ranges]}

    def to_error(self, pipeline: str, source: str, begun: Offsets | None = None) -> SourceLostError:
        """Make the error that stops the run, with the exact ranges and the command that continues without them. For
        ``begun`` see :func:`find_loss`."""
        known = any(lost.is_of_known_records(begun or {}) for lost in self.ranges)
        entry = errors.KAFKA_LOSS if known else errors.KAFKA_LOSS_UNKNOWN
        return entry(
            where=f"source {source} of pipeline {pipeline}",
            ranges="; ".join(str(lost) for lost in self.ranges),
            pipeline=pipeline,
        )


def find_loss(birth: KafkaBirth, plan: KafkaPlan, begun: Offsets | None = None) -> KafkaLoss | None:
    """Compare the pending offsets with what the brokers retain; None when nothing is lost.

    ``begun`` is where the batch in flight ends ({} or None without one): its records existed when it was planned.
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
        until = max(start, (begun or {}).get(partition, start))
        lost += _lost_of_partition(plan, partition, start, until, recreated=recreated)
    return KafkaLoss(tuple(lost)) if lost else None


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


def offsets_after_loss(plan: KafkaPlan, loss: KafkaLoss) -> Offsets:
    """Return the starting offsets of the new checkpoint, for every partition that exists now."""
    accepted = {lost.topic_partition: lost.goes_on_at for lost in loss.ranges if lost.goes_on_at is not None}
    return {partition: accepted.get(partition, plan.next_offsets[partition]) for partition in plan.end}


def birth_after_loss(birth: KafkaBirth, plan: KafkaPlan, loss: KafkaLoss) -> KafkaBirth:
    """Make the birth record of the checkpoint that continues after ``loss`` was accepted."""
    deleted = {lost.topic for lost in loss.ranges if lost.topic not in plan.topic_ids}
    still_gone = {topic for topic in birth.gone if topic not in plan.topic_ids}
    gone = tuple(sorted(deleted | still_gone))
    return KafkaBirth(offsets_after_loss(plan, loss), dict(plan.topic_ids), gone, birth.cluster_id or plan.cluster_id)
