"""Opens sources by the model of their kind: a new kind is a branch here.

Kinds that need more than files (a Kafka client, sockets) are imported when such a source is opened: a run that finds
nothing new takes less time than these imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import Ledger
from tidegate.sources.files.message_files import read_message_files
from tidegate.sources.files.notifications import ReadMessages
from tidegate.sources.files.pinned import StaticFiles
from tidegate.sources.files.scan import FilesScan
from tidegate.sources.files.source import FilesArrival, FilesStream, StoredTexts
from tidegate.sources.port import Arrival, Messages, Source, StaticSource, Stream
from tidegate.spec.as_read import SpooledSource, TextsSource
from tidegate.spec.models import BaseSource, FilesSource, KafkaSource, PipelineSpec
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.sources.generators.sockets import Listeners
    from tidegate.sources.kafka.brokers import OpenBrokers
    from tidegate.sources.kafka.source import KafkaStream


@dataclass(frozen=True)
class Connections:
    """Connections and the ledger, which several sources share."""

    brokers: OpenBrokers | None = None
    """Opens a connection; by default one for each check."""
    listeners: Listeners | None = None
    """For ``tidegate stream``: connections that stay open between runs."""
    ledger: Ledger | None = None
    """The pipeline's ledger, when it reads files."""


def open_statics(project: Project, paths: PipelinePaths, spec: PipelineSpec) -> dict[str, StaticSource]:
    """Open the static sources of ``spec`` as a run reads it. Returns them by name."""
    return {name: _open_static(project, paths, name, source) for name, source in spec.statics.items()}


def _open_static(project: Project, paths: PipelinePaths, name: str, source: FilesSource | KafkaSource) -> StaticSource:
    if isinstance(source, FilesSource):
        return StaticFiles(project, paths, name, source)
    return _open_topics(project, paths, name, source)


def _open_topics(
    project: Project, paths: PipelinePaths, name: str, source: KafkaSource, brokers: OpenBrokers | None = None
) -> KafkaStream:
    from tidegate.sources.kafka.source import KafkaStream

    return KafkaStream(project, paths, name, source, brokers)


def open_sources(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, connections: Connections | None = None
) -> dict[str, Source]:
    """Open the streams of ``spec`` as a run reads it (:func:`tidegate.spec.as_read.read_spec`), or the stored texts
    that a side job reads in their place. Returns them by name."""
    held = connections or Connections()
    return {name: _open_source(project, paths, name, source, held) for name, source in spec.streams.items()}


def open_streams(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, connections: Connections | None = None
) -> dict[str, Stream]:
    """Open the streams of the ``spec`` of a run, by name."""
    sources = open_sources(project, paths, spec, connections)
    return {name: source for name, source in sources.items() if isinstance(source, Stream)}


def _open_source(project: Project, paths: PipelinePaths, name: str, source: BaseSource, held: Connections) -> Source:
    if isinstance(source, SpooledSource):
        from tidegate.sources.generators.source import ReceivedStream

        return ReceivedStream(project, paths, name, source, held.ledger, held.listeners)
    if isinstance(source, FilesSource):
        read = _open_messages(project, paths, name, source, held.brokers)
        return FilesStream(project, paths, name, source, held.ledger, read)
    if isinstance(source, KafkaSource):
        return _open_topics(project, paths, name, source, held.brokers)
    assert isinstance(source, TextsSource), "every other source is received into files"
    return StoredTexts(project, paths, name)


def _open_messages(
    project: Project, paths: PipelinePaths, name: str, source: FilesSource, brokers: OpenBrokers | None
) -> ReadMessages | None:
    """What reads the notifications of a source; None where it has none."""
    if source.notifications is None:
        return None
    if (path := source.notifications.path) is not None:
        return partial(read_message_files, project, paths, name, path)

    def read(since: object) -> Messages:
        from tidegate.sources.kafka.records import read_messages

        assert source.notifications is not None and source.notifications.topic is not None, "a topic or a path"
        return read_messages(project.spec.kafka, source.notifications.topic, since, brokers)

    return read


def scans_of(arrivals: Mapping[str, Arrival]) -> dict[str, FilesScan]:
    """Return the scans of file sources, by source."""
    return {name: one.scan for name, one in arrivals.items() if isinstance(one, FilesArrival)}
