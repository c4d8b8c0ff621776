"""Checks, after a batch was read, that its topics are still those that the pipeline knows.

Topics are compared by id before Spark starts. If one is then deleted, created again and filled beyond the planned
offsets, Spark reads its new records at the old offsets, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors
from tidegate.sources.kafka.brokers import Asked, Brokers
from tidegate.sources.kafka.offsets import check_cluster, settings_of
from tidegate.spec.models import KafkaSource, PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import read_birth


@dataclass(frozen=True)
class TopicWatch:
    """``known`` maps each Kafka source to its topics' ids when the run began, ``brokers`` to its connection."""

    pipeline: str
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[str, Asked] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    """{source: (id of its cluster, address)}"""

    def check(self, batch_id: int) -> None:
        """Raise SourceLostError TOPIC_RECREATED when a topic was created again: the batch may have read its records.

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
                raise errors.TOPIC_RECREATED(
                    where=f"source {source} of pipeline {self.pipeline}",
                    topics=", ".join(others),
                    pipeline=self.pipeline,
                )


def watch_topics(project: Project, paths: PipelinePaths, spec: PipelineSpec) -> TopicWatch:
    """Watch the topics of the birth record; topics of brokers without topic ids cannot be watched."""
    known: dict[str, dict[str, str]] = {}
    brokers: dict[str, Asked] = {}
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
