"""Read-only requests to the brokers through librdkafka: names, ids and partitions of topics, and offsets.

A request that takes longer than ``_PATIENCE_SECONDS`` raises an error that names the fault of the connection.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.words import count_of
from tidegate.sources import errors
from tidegate.sources.kafka.settings import KafkaSettings, settings_of
from tidegate.spec.models import KafkaSource, PipelineSpec, ProjectKafkaSpec
from tidegate.state.birth import Start
from tidegate.state.topics import Offsets, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_K = TypeVar("_K")
_V = TypeVar("_V")

_PATIENCE_SECONDS = 6.0
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers without topic ids (before 2.8) report."""


@dataclass(frozen=True)
class TopicState:
    """The present state of a topic. ``topic_id`` is None where the broker has no ids."""

    topic_id: str | None
    partitions: tuple[int, ...]
    internal: bool


_LIST_TOPICS, _ASK_CLUSTER_ID = "list the topics", "ask for the cluster id"
"""Attempts, as an error names them."""


def _describing(topics: Iterable[str]) -> str:
    """The attempt to describe these topics, as an error names it."""
    names = sorted(topics)
    return f"describe {'topic' if len(names) == 1 else 'topics'} {', '.join(names)}"


def _looking_up(partitions: Iterable[TopicPartition]) -> str:
    """The attempt to look up these offsets, as an error names it."""
    return f"look up offsets of {', '.join(map(str, sorted(partitions)))}"


class Brokers:
    """A connection to the brokers, for one check of a source."""

    def __init__(self, settings: KafkaSettings) -> None:
        # confluent_kafka costs 0.04 CPU-seconds, and only Kafka pipelines should pay them.
        import confluent_kafka.admin

        self._kafka = confluent_kafka
        self._settings = settings
        self._complaints: list[KafkaError] = []
        self._failed: KafkaError | None = None
        try:
            # Without log_level librdkafka writes to stderr; the error callback gets the same errors, and more.
            options: dict[str, str | int | float | bool] = {**settings.client, "log_level": "0"}
            options["reconnect.backoff.max.ms"] = "1000"
            self._admin = confluent_kafka.admin.AdminClient(options, error_cb=self._complaints.append)
        except confluent_kafka.KafkaException as error:
            raise errors.KAFKA_OPTIONS(
                where="kafka.options in tidegate.yaml, or options of the source in pipeline.yaml",
                faults=settings.scrub(error.args[0].str()),
            ) from None

    def list_names(self) -> list[str]:
        """List all topics that this user may see, internal ones included."""
        kafka = self._kafka
        try:
            return sorted(self._admin.list_topics(timeout=_PATIENCE_SECONDS).topics)
        except kafka.KafkaException as error:
            self._admin.poll(0)
            raise self._explain(error.args[0], _LIST_TOPICS) from None

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """Describe those of ``topics`` that exist."""
        kafka = self._kafka
        names = sorted(topics)
        if not names:
            return {}
        futures = self._admin.describe_topics(kafka.TopicCollection(names), request_timeout=_PATIENCE_SECONDS)
        found, failed = self._gather(futures)
        for topic, error in failed.items():
            if error.code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._explain(error, _describing([topic]))
        return {
            topic: TopicState(
                None if str(one.topic_id) == _NO_ID else str(one.topic_id),
                tuple(sorted(partition.id for partition in one.partitions)),
                bool(one.is_internal),
            )
            for topic, one in found.items()
        }

    def begin_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset that each partition still has."""
        return self._list_offsets(partitions, "earliest")

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the last stable offset of each partition: records after it may still be aborted."""
        return self._list_offsets(partitions, "latest")

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Offsets:
        """Return the first offset of each partition with a time stamp of ``at`` or later, or -1 where there is none."""
        return self._list_offsets(partitions, "for_timestamp", int(at.timestamp() * 1000))

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None where the brokers have none. Make another request first: that one reports
        faults of the connection."""
        kafka = self._kafka
        try:
            return self._admin.cluster_id(timeout=_PATIENCE_SECONDS) or None
        except kafka.KafkaException as error:
            raise self._explain(error.args[0], _ASK_CLUSTER_ID) from None

    def _list_offsets(self, partitions: Collection[TopicPartition], which: str, *arguments: int) -> Offsets:
        kafka = self._kafka
        spec = getattr(kafka.admin, "OffsetSpec")  # noqa: B009 - not among the exported names of the package's types
        spec = getattr(spec, which)(*arguments)
        wanted = {kafka.TopicPartition(*partition): spec for partition in partitions}
        if not wanted:
            return {}
        futures = self._admin.list_offsets(
            wanted, isolation_level=kafka.IsolationLevel.READ_COMMITTED, request_timeout=_PATIENCE_SECONDS
        )
        found, failed = self._gather(futures)
        for asked, error in failed.items():
            raise self._explain(error, _looking_up([TopicPartition(asked.topic, asked.partition)]))
        return {TopicPartition(asked.topic, asked.partition): int(one.offset) for asked, one in found.items()}

    def _gather(self, futures: Mapping[_K, Future[_V]]) -> tuple[dict[_K, _V], dict[_K, KafkaError]]:
        """Collect the results of the futures, and the errors of those that failed. A refused login is raised at
        once."""
        kafka = self._kafka
        deadline = time.monotonic() + _PATIENCE_SECONDS + 1.0
        while not all(future.done() for future in futures.values()) and time.monotonic() < deadline:
            self._admin.poll(0.002)
            for complaint in self._complaints:
                if complaint.code() in (kafka.KafkaError._AUTHENTICATION, kafka.KafkaError._SSL):
                    raise self._explain(complaint, "log in")
        results: dict[_K, _V] = {}
        failed: dict[_K, KafkaError] = {}
        for key, future in futures.items():
            try:
                results[key] = future.result(timeout=0.5)
            except kafka.KafkaException as error:
                failed[key] = error.args[0]
            except TimeoutError:
                failed[key] = kafka.KafkaError(kafka.KafkaError._TIMED_OUT)
        return results, failed

    def _explain(self, error: KafkaError, attempt: str) -> TidegateError:
        kafka = self._kafka
        self._failed = error
        address = self._settings.address
        for complaint in self._complaints:
            if complaint.code() in (kafka.KafkaError._AUTHENTICATION, kafka.KafkaError._SSL):
                error = complaint
        said = self._settings.scrub(error.str())
        code = error.code()
        if code in (
            kafka.KafkaError._AUTHENTICATION,
            kafka.KafkaError.SASL_AUTHENTICATION_FAILED,
            kafka.KafkaError._SSL,
        ):
            return errors.KAFKA_LOGIN(where=f"kafka brokers {address}", address=address, error=said)
        if code in (kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return errors.KAFKA_NOT_ALLOWED(where=f"kafka brokers {address}", attempt=attempt, error=said)
        if code in (
            kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
            kafka.KafkaError.LEADER_NOT_AVAILABLE,
            kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        ):
            return errors.KAFKA_UNSETTLED(where=f"kafka brokers {address}", attempt=attempt, error=said)
        codes = kafka.KafkaError._TRANSPORT, kafka.KafkaError._RESOLVE
        causes = [self._settings.scrub(one.str()) for one in self._complaints if one.code() in codes]
        reason = "; ".join(list(dict.fromkeys(causes))[:_CAUSES_AT_MOST]) or said
        silence = f"no answer from the Kafka brokers at {address} within {_PATIENCE_SECONDS:g} seconds"
        return errors.BROKER_AWAY(
            where=f"kafka brokers {address}", fault=f"{silence}, trying to {attempt}", reason=reason
        )


def one_topic(topic: str) -> KafkaSource:
    """A source for what is asked of a topic by its name."""
    return KafkaSource(type="kafka", topics=[topic], format="text")


def describe_brokers(settings: KafkaSettings) -> str:
    """Describe the brokers in a sentence. Raises TidegateError when they do not answer."""
    return f"{settings.address} has {count_of(len(Brokers(settings).list_names()), 'topic')}"


_CAUSES_AT_MOST = 3
OpenBrokers = Callable[[KafkaSettings], Brokers]

_OF_THE_BROKER = ("BROKER_AWAY", "KAFKA_LOGIN", "KAFKA_OPTIONS")
"""Errors that all sources on a broker share; others concern one topic, and only its source has them."""
_BROKERS_AT_ONCE = 32


class SurveyedBrokers(Brokers):
    """Brokers that answer from one round of requests for many sources; further requests use the same client.

    A broker that does not answer costs its timeout once, for any number of sources.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._wanted: set[str] = set()
        self._patterns: set[str] = set()
        self._names: list[str] | None = None
        self._topics: dict[str, TopicState] = {}
        self._begin: Offsets = {}
        self._end: Offsets = {}
        self._cluster: str | None = None
        self._fault: Exception | None = None

    def add(self, source: KafkaSource, known_topics: Iterable[str]) -> None:
        """Add the requests for a source."""
        self._wanted.update(source.topics or source.assign or (), known_topics)
        if source.topic_pattern is not None:
            self._patterns.add(source.topic_pattern)

    def ask(self) -> None:
        """Make the requests. An error is raised later, for the sources that need the response."""
        try:
            if self._patterns:
                self._names = super().list_names()
                self._wanted.update(name for name in self._names if any(_matches(one, name) for one in self._patterns))
            topics = super().describe(self._wanted)
            partitions = [TopicPartition(topic, n) for topic, state in topics.items() for n in state.partitions]
            # The end first, as for a single source: records that arrive in between are left for the next run.
            self._end = super().end_offsets(partitions)
            self._begin = super().begin_offsets(partitions)
            self._cluster = super().cluster_id()
            self._topics = topics
        except Exception as fault:  # noqa: BLE001 - raised for its own sources, not for other pipelines
            self._fault = fault

    def list_names(self) -> list[str]:
        """As the survey found them."""
        return self._names if self._answers(_LIST_TOPICS) and self._names is not None else super().list_names()

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        """As the survey found them."""
        wanted = set(topics)
        if not self._answers(_describing(wanted)) or not wanted <= self._wanted:
            return super().describe(wanted)
        return {topic: self._topics[topic] for topic in sorted(wanted & self._topics.keys())}

    def _list_offsets(self, partitions: Collection[TopicPartition], which: str, *arguments: int) -> Offsets:
        found = {"earliest": self._begin, "latest": self._end}.get(which, {})
        if not self._answers(_looking_up(partitions)) or not set(partitions) <= found.keys():
            return super()._list_offsets(partitions, which, *arguments)
        return {partition: found[partition] for partition in partitions}

    def cluster_id(self) -> str | None:
        """As the survey found it."""
        return self._cluster if self._answers(_ASK_CLUSTER_ID) else super().cluster_id()

    def _answers(self, attempt: str) -> bool:
        """Return whether the survey has responses. Raises an error that every request would meet, as the error of
        ``attempt``: the survey may have met it for a topic of another pipeline."""
        fault = self._fault
        if fault is None:
            return True
        if not isinstance(fault, TidegateError):
            raise fault
        if fault.code in _OF_THE_BROKER:
            raise (fault if self._failed is None else self._explain(self._failed, attempt))
        return False


def survey_brokers(
    kafka: ProjectKafkaSpec, pipelines: Iterable[tuple[PipelineSpec, Mapping[str, Start]]]
) -> OpenBrokers:
    """Request everything that a check of many pipelines needs, from all brokers at once; each pipeline comes with the
    starts of its birth record, for the topics that it had before.

    The result answers from these responses. A source with unusable settings, or without the Kafka client, is excluded:
    its own check fails.
    """
    surveys: dict[frozenset[tuple[str, str]], SurveyedBrokers] = {}
    for spec, starts in pipelines:
        for name, source in spec.streams.items():
            if isinstance(source, KafkaSource):
                _add_to_survey(surveys, kafka, source, (starts.get(name) or {}).get("offsets", ()))
        for topic in spec.notification_topics.values():
            _add_to_survey(surveys, kafka, one_topic(topic), ())
    if surveys:
        with ThreadPoolExecutor(min(len(surveys), _BROKERS_AT_ONCE)) as threads:
            list(threads.map(lambda survey: survey.ask(), surveys.values()))
    return lambda settings: surveys.get(frozenset(settings.client.items())) or Brokers(settings)


def _add_to_survey(
    surveys: dict[frozenset[tuple[str, str]], SurveyedBrokers],
    kafka: ProjectKafkaSpec,
    source: KafkaSource,
    known_topics: Iterable[str],
) -> None:
    with contextlib.suppress(UsageError, ImportError):
        settings = settings_of(kafka, source)
        key = frozenset(settings.client.items())
        if key not in surveys:
            surveys[key] = SurveyedBrokers(settings)
        surveys[key].add(source, known_topics)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:  # its own source reports it
        return False
