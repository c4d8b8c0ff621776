"""A Kafka topic in memory, and the brokers that answer for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegate.sources.kafka.brokers import TopicState
from tidegate.sources.readers.unreadable import RangeFault, RangeProblem
from tidegate.state.topics import Offsets, TopicPartition

Row = dict[str, str]


def range_lost(
    topic: str, partition: int, begin: int, end: int, problem: RangeProblem = RangeProblem.LOST
) -> RuntimeError:
    """What Spark says when a worker of this driver cannot read these records any more."""
    fault = RangeFault(problem, (topic, partition, begin, end), "the broker does not have them")
    return RuntimeError(f"a task failed\n{RangeFault.__module__}.RangeFault: {fault}")


class SparkError(RuntimeError):
    """An error of Spark's, with its condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(f"[{condition}] {text}")
        self._condition = condition

    def getCondition(self) -> str:
        """As on the errors of pyspark."""
        return self._condition


@dataclass
class FakeKafka:
    """One topic: all records ever sent, by partition, and the first offset that each partition still has."""

    topic: str = "t"
    topic_id: str = "id-1"
    sent: dict[int, list[Row]] = field(default_factory=lambda: {0: [], 1: []})
    begin: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def read(self, partition: int, start: int, until: int, topic_id: str | None) -> list[Row]:
        """The records of a range; fails as a worker does when some of them are gone, or those of another topic."""
        if topic_id not in (None, self.topic_id):
            raise range_lost(self.topic, partition, start, until, RangeProblem.TOPIC_RECREATED)
        if start < self.begin[partition] or until > len(self.sent[partition]):
            raise range_lost(self.topic, partition, start, until)
        return self.sent[partition][start:until]

    def open_brokers(self, settings: Any) -> FakeBrokers:
        """What :class:`tidegate.sources.kafka.brokers.Brokers` is replaced by."""
        return FakeBrokers(self)


@dataclass(frozen=True)
class FakeBrokers:
    """The five questions of a look at a source."""

    kafka: FakeKafka

    def list_names(self) -> list[str]:
        return [self.kafka.topic]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        state = TopicState(self.kafka.topic_id, tuple(sorted(self.kafka.sent)), False)
        return {name: state for name in topics if name == self.kafka.topic}

    def begin_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {one: self.kafka.begin[one.partition] for one in partitions}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {one: len(self.kafka.sent[one.partition]) for one in partitions}

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Offsets:
        raise AssertionError("its records have no time stamps: no scene starts at a time")

    def cluster_id(self) -> str:
        return "cluster-1"
