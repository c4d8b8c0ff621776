"""How each kind of source becomes a DataFrame: its stream, what one batch took, a static source at its version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.project import Project
from tidegate.reading.files import read_links, stream_files
from tidegate.reading.kafka import empty_records, empty_stream, read_kafka, read_range, shape_records
from tidegate.reading.texts import columns_in_folders, parse_file_texts, parse_topic_texts, read_texts, stream_texts
from tidegate.sources.kafka.offsets import KafkaBirth
from tidegate.sources.port import Pinned
from tidegate.spec.as_read import KeptSource, SpooledSource, TextsSource
from tidegate.spec.models import FilesSource, KafkaSource, ProjectKafkaSpec, SourceSpec
from tidegate.staging.birth import Start
from tidegate.staging.manifest import Taken
from tidegate.staging.topics import ranges_from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Frames(ABC):
    """Every frame has the source's columns and what the accounting needs (see :mod:`tidegate.reading.files`)."""

    @abstractmethod
    def stream(self, start: Start, *, unlimited: bool, is_bounded: bool = False) -> DataFrame:
        """The stream, from ``start`` (of the birth record) where the checkpoint has no place yet. ``unlimited`` takes
        all that is there as one batch (trigger ``once``); ``is_bounded`` leaves alone what ``start`` does not name."""

    @abstractmethod
    def taken(self, taken: Taken) -> DataFrame:
        """What a batch took (:meth:`tidegate.sources.port.Source.range_of`), in batch mode."""

    @abstractmethod
    def empty_stream(self) -> DataFrame:
        """A stream of the same columns that never has a record; asks nothing of the source."""

    @abstractmethod
    def empty(self) -> DataFrame:
        """The same columns without a record, in batch mode; asks nothing of the source."""


class StaticFrames(Frames):
    """Of a kind of source that may be static too."""

    @abstractmethod
    def pinned(self, version: Pinned) -> DataFrame:
        """The source at a version (:meth:`tidegate.sources.port.StaticSource.pin`)."""


class FileFrames(StaticFrames):
    """The files that are linked in ``folder``, the intake, with values of ``partition_columns`` in folder names."""

    def __init__(
        self, spark: SparkSession, name: str, spec: FilesSource, folder: Path, partition_columns: Sequence[str]
    ) -> None:
        self._spark, self._name, self._spec = spark, name, spec
        self._folder, self._partition_columns = folder, partition_columns

    def stream(self, start: Start, *, unlimited: bool, is_bounded: bool = False) -> DataFrame:
        """What is linked; the ledger knows what was before."""
        columns = self._partition_columns
        return stream_files(self._spark, self._folder, self._spec, columns, name=self._name, unlimited=unlimited)

    def taken(self, taken: Taken) -> DataFrame:
        """Some of the links."""
        return read_links(self._spark, self._folder, taken.links, self._spec, self._partition_columns)

    def pinned(self, version: Pinned) -> DataFrame:
        """The copies that were made of the files."""
        folder, columns = Path(version["folder"]), version["partition_columns"]
        return read_links(self._spark, folder, version["links"], self._spec, columns)

    def empty_stream(self) -> DataFrame:
        """The stream of a folder that has nothing."""
        return self.stream({}, unlimited=False)

    def empty(self) -> DataFrame:
        """No link."""
        return self.taken(Taken())


class KafkaFrames(StaticFrames):
    """The records of topics."""

    def __init__(self, spark: SparkSession, name: str, spec: KafkaSource, kafka: ProjectKafkaSpec) -> None:
        self._spark, self._name, self._spec, self._kafka = spark, name, spec, kafka

    def stream(self, start: Start, *, unlimited: bool, is_bounded: bool = False) -> DataFrame:
        """The topics that ``start`` names, or exactly its partitions."""
        birth, how = KafkaBirth.from_dict(start), {"unlimited": unlimited, "is_assigned": is_bounded}
        return read_kafka(self._spark, self._kafka, self._name, self._spec, birth, **how)

    def taken(self, taken: Taken) -> DataFrame:
        """A range of offsets of each partition."""
        return read_range(self._spark, self._kafka, self._spec, taken.offsets or {})

    def pinned(self, version: Pinned) -> DataFrame:
        """The offsets of the version."""
        return self.taken(Taken(offsets=ranges_from_json(version["offsets"])))

    def empty_stream(self) -> DataFrame:
        """A stream that needs neither jars nor a broker."""
        return shape_records(empty_stream(self._spark, self._name), self._spec)

    def empty(self) -> DataFrame:
        """No record; needs neither jars nor a broker."""
        return shape_records(empty_records(self._spark), self._spec)


class TextFrames(Frames):
    """Texts that are at hand, in the files of ``folder``, parsed as the records of the stream that they are of."""

    def __init__(
        self, spark: SparkSession, name: str, spec: TextsSource, folder: Path, partition_columns: Sequence[str]
    ) -> None:
        self._spark, self._name, self._origin = spark, name, spec.origin
        self._folder, self._in_folders = folder, columns_in_folders(spec.origin, partition_columns)

    def stream(self, start: Start, *, unlimited: bool, is_bounded: bool = False) -> DataFrame:
        """All files, as one batch or several."""
        return self._parse(stream_texts(self._spark, self._folder, self._in_folders, name=self._name))

    def taken(self, taken: Taken) -> DataFrame:
        """Some of the files."""
        return self._parse(read_texts(self._spark, self._folder, taken.links, self._in_folders))

    def _parse(self, texts: DataFrame) -> DataFrame:
        if isinstance(self._origin, KafkaSource):
            return parse_topic_texts(texts, self._origin)
        return parse_file_texts(texts, self._origin, self._in_folders)

    def empty_stream(self) -> DataFrame:
        """The stream of a folder that has nothing."""
        return self.stream({}, unlimited=False)

    def empty(self) -> DataFrame:
        """No text."""
        return self.taken(Taken())


_Open = Callable[["SparkSession", Project, str, Any, Path, Sequence[str]], Frames]


def _open_files(
    spark: SparkSession, project: Project, name: str, spec: FilesSource, folder: Path, columns: Sequence[str]
) -> Frames:
    return FileFrames(spark, name, spec, folder, columns)


def _open_kafka(
    spark: SparkSession, project: Project, name: str, spec: KafkaSource, folder: Path, columns: Sequence[str]
) -> Frames:
    return KafkaFrames(spark, name, spec, project.spec.kafka)


def _open_texts(
    spark: SparkSession, project: Project, name: str, spec: TextsSource, folder: Path, columns: Sequence[str]
) -> Frames:
    return TextFrames(spark, name, spec, folder, columns)


KINDS: Mapping[type, _Open] = {
    FilesSource: _open_files,
    KeptSource: _open_files,
    SpooledSource: _open_files,
    KafkaSource: _open_kafka,
    TextsSource: _open_texts,
}
"""How each kind is read, by its model in a spec as a run reads it."""


def open_frames(
    spark: SparkSession,
    project: Project,
    name: str,
    spec: SourceSpec,
    intake: Path,
    partition_columns: Sequence[str] = (),
) -> Frames:
    """How source ``name`` becomes a DataFrame. ``intake`` has the links of its files, if it is one of files."""
    return KINDS[type(spec)](spark, project, name, spec, intake, partition_columns)
