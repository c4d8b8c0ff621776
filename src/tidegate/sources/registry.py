"""All kinds of sources by their model: a new kind is a line here.

Kinds that need more than files (a Kafka client, sockets) are imported when such a source is opened: a run that finds
nothing new takes less time than these imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import Ledger
from tidegate.sources.files.pinned import StaticFiles
from tidegate.sources.files.scan import FilesScan
from tidegate.sources.files.source import FilesArrival, FilesStream, TextsStream
from tidegate.sources.port import Arrival, Broker, Source, StaticSource
from tidegate.spec.as_read import KeptSource, SpooledSource, TextsSource
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start

if TYPE_CHECKING:
    from tidegate.sources.generators.socket_listener import Listeners
    from tidegate.sources.kafka.brokers import OpenBrokers


@dataclass(frozen=True)
class Connections:
    """Connections and the ledger, which several sources share."""

    brokers: OpenBrokers | None = None
    """Opens a connection; by default one for each check."""
    listeners: Listeners | None = None
    """For ``tidegate stream``: connections that stay open between runs."""
    ledger: Ledger | None = None
    """The pipeline's ledger, when it reads files."""


def _open_received(place: tuple[Project, PipelinePaths, str], spec: SpooledSource, held: Connections) -> Source:
    from tidegate.sources.generators.source import ReceivedStream

    return ReceivedStream(*place, spec, held.ledger, held.listeners)


def _open_topics(place: tuple[Project, PipelinePaths, str], spec: KafkaSource, held: Connections) -> Source:
    from tidegate.sources.kafka.source import KafkaStream

    return KafkaStream(*place, spec, held.brokers)


def _open_static_topics(place: tuple[Project, PipelinePaths, str], spec: KafkaSource) -> StaticSource:
    from tidegate.sources.kafka.source import StaticTopics

    return StaticTopics(place[0], spec)


def _find_broker(project: Project, spec: KafkaSource) -> Broker:
    from tidegate.sources.kafka.source import find_broker

    return find_broker(project, spec)


_Open = Callable[[tuple[Project, PipelinePaths, str], Any, Connections], Source]

KINDS: Mapping[type, _Open] = {
    FilesSource: lambda place, spec, held: FilesStream(*place, spec, held.ledger),
    KeptSource: lambda place, spec, held: FilesStream(*place, spec, held.ledger),
    SpooledSource: _open_received,
    TextsSource: lambda place, spec, held: TextsStream(*place, spec, None),
    KafkaSource: _open_topics,
}
"""How each kind is opened, by its model in a spec as a run reads it (:func:`tidegate.spec.as_read.read_spec`)."""


_OpenStatic = Callable[[tuple[Project, PipelinePaths, str], Any], StaticSource]

STATIC_KINDS: Mapping[type, _OpenStatic] = {
    FilesSource: lambda place, spec: StaticFiles(*place, spec),
    KeptSource: lambda place, spec: StaticFiles(*place, spec),
    KafkaSource: _open_static_topics,
}


def open_statics(project: Project, paths: PipelinePaths, spec: PipelineSpec) -> dict[str, StaticSource]:
    """Open the static sources of ``spec`` as a run reads it. Returns them by name."""
    return {name: STATIC_KINDS[type(source)]((project, paths, name), source) for name, source in spec.statics.items()}


def open_sources(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, connections: Connections | None = None
) -> dict[str, Source]:
    """Open the streams of ``spec`` as a run reads it. Returns them by name."""
    held = connections or Connections()
    return {name: KINDS[type(source)]((project, paths, name), source, held) for name, source in spec.streams.items()}


BROKERS: Mapping[type, Callable[[Project, Any], Broker]] = {KafkaSource: _find_broker}
"""Kinds that read from a service."""


def scans_of(arrivals: Mapping[str, Arrival]) -> dict[str, FilesScan]:
    """Return the scans of file sources, by source."""
    return {name: one.scan for name, one in arrivals.items() if isinstance(one, FilesArrival)}


def connect(project: Project, pipelines: Iterable[tuple[PipelineSpec, Mapping[str, Start]]]) -> Connections:
    """Prepare a check of many pipelines, each with the starts of its birth record: one round of requests per broker,
    all brokers at once."""
    sources = [
        (source, (starts.get(name) or {}).get("offsets", ()))
        for spec, starts in pipelines
        for name, source in spec.streams.items()
        if isinstance(source, KafkaSource)
    ]
    if not sources:
        return Connections()
    from tidegate.sources.kafka.survey import survey_brokers

    return Connections(brokers=survey_brokers(project.spec.kafka, sources))
