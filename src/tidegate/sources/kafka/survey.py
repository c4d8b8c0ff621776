"""Checks many Kafka sources together: one client and one round of requests per broker, all brokers at once.

A broker that does not answer costs its timeout once, for any number of sources.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from tidegate.core.errors import TidegateError, UsageError
from tidegate.sources.kafka.brokers import (
    ASK_CLUSTER_ID,
    LIST_TOPICS,
    Asked,
    Brokers,
    OpenBrokers,
    TopicState,
    describing,
    looking_up,
)
from tidegate.sources.kafka.offsets import settings_of
from tidegate.sources.kafka.settings import KafkaSettings
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.state.topics import Offsets, TopicPartition

_OF_THE_BROKER = ("BROKER_AWAY", "KAFKA_LOGIN", "KAFKA_OPTIONS")
"""Errors that all sources on a broker share; others concern one topic, and only its source has them."""

_BROKERS_AT_ONCE = 32


def survey_brokers(
    project_kafka: ProjectKafkaSpec, sources: Iterable[tuple[KafkaSource, Iterable[str]]]
) -> OpenBrokers:
    """Request everything that a check of ``sources`` needs; each comes with the topics it had before.

    The result answers from these responses. A source with unusable settings is excluded: its own check fails.
    """
    surveys: dict[object, _Survey] = {}
    for source, known_topics in sources:
        try:
            settings = settings_of(project_kafka, source)
        except UsageError:
            continue
        surveys.setdefault(_key(settings), _Survey(settings)).add(source, known_topics)
    if surveys:
        with ThreadPoolExecutor(min(len(surveys), _BROKERS_AT_ONCE)) as threads:
            list(threads.map(_Survey.ask, surveys.values()))

    def open_brokers(settings: KafkaSettings) -> Asked:
        return surveys.get(_key(settings)) or Brokers(settings)

    return open_brokers


def _key(settings: KafkaSettings) -> object:
    return frozenset(settings.client.items())


class _Survey:
    """One broker's responses; further requests use the same client."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._brokers: Brokers | None = None
        self._wanted: set[str] = set()
        self._patterns: set[str] = set()
        self._names: list[str] | None = None
        self._topics: dict[str, TopicState] = {}
        self._begin: Offsets = {}
        self._end: Offsets = {}
        self._cluster_id: str | None = None
        self._fault: Exception | None = None

    def add(self, source: KafkaSource, known_topics: Iterable[str]) -> None:
        """Add the requests for a source."""
        self._wanted.update(source.topics or source.assign or (), known_topics)
        if source.topic_pattern is not None:
            self._patterns.add(source.topic_pattern)

    def ask(self) -> None:
        """Make the requests. An error is raised later, for the sources that need the response."""
        try:
            brokers = self._brokers = Brokers(self._settings)
            if self._patterns:
                self._names = brokers.list_names()
                self._wanted.update(name for name in self._names if any(_matches(one, name) for one in self._patterns))
            topics = brokers.describe(self._wanted)
            partitions = [TopicPartition(topic, n) for topic, state in topics.items() for n in state.partitions]
            # The end first, as for a single source: records that arrive in between are left for the next run.
            self._end = brokers.end_offsets(partitions)
            self._begin = brokers.begin_offsets(partitions)
            self._cluster_id = brokers.cluster_id()
            self._topics = topics
        except Exception as fault:  # noqa: BLE001 - raised for its own sources, not for other pipelines
            self._fault = fault

    def list_names(self) -> list[str]:
        """See :class:`Brokers`."""
        brokers = self._open(LIST_TOPICS)
        return brokers.list_names() if self._fault is not None or self._names is None else self._names

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """See :class:`Brokers`."""
        wanted = set(topics)
        brokers = self._open(describing(wanted))
        if self._fault is not None or not wanted <= self._wanted:
            return brokers.describe(wanted)
        return {topic: self._topics[topic] for topic in sorted(wanted & set(self._topics))}

    def begin_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """See :class:`Brokers`."""
        brokers = self._open(looking_up(partitions))
        if self._fault is not None or not set(partitions) <= self._begin.keys():
            return brokers.begin_offsets(partitions)
        return {partition: self._begin[partition] for partition in partitions}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """See :class:`Brokers`."""
        brokers = self._open(looking_up(partitions))
        if self._fault is not None or not set(partitions) <= self._end.keys():
            return brokers.end_offsets(partitions)
        return {partition: self._end[partition] for partition in partitions}

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Offsets:
        """See :class:`Brokers`."""
        return self._open(looking_up(partitions)).offsets_at(partitions, at)

    def cluster_id(self) -> str | None:
        """See :class:`Brokers`."""
        brokers = self._open(ASK_CLUSTER_ID)
        return brokers.cluster_id() if self._fault is not None else self._cluster_id

    def _open(self, attempt: str) -> Brokers:
        """Return the connection, for further requests. Raises an error that every request would meet, as the error of
        ``attempt``: the round may have met it for a topic of another pipeline."""
        fault, brokers = self._fault, self._brokers
        if fault is not None and (brokers is None or not isinstance(fault, TidegateError)):
            raise fault
        assert brokers is not None, "ask() comes first"
        if isinstance(fault, TidegateError) and fault.code in _OF_THE_BROKER:
            raise brokers.explain_again(attempt) or fault
        return brokers


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:  # its own source reports it
        return False
