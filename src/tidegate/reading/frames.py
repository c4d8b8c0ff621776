"""How each kind of source becomes a DataFrame: its stream, what one batch took, a static source at its version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.paths import PipelinePaths
from tidegate.project import Project
from tidegate.reading.files import read_files
from tidegate.reading.kafka import read_records
from tidegate.reading.parts import (
    count_cores,
    count_tasks,
    no_lines,
    read_lines,
    read_parts,
    stream_batches,
)
from tidegate.reading.texts import columns_in_folders, parse_file_texts, parse_topic_texts, read_texts
from tidegate.sources.kafka.batch_plan import Limits, divide
from tidegate.sources.port import Cut, Pinned
from tidegate.spec.as_read import KeptSource, SpooledSource, TextsSource
from tidegate.spec.models import FilesSource, KafkaSource, ProjectKafkaSpec, SourceSpec
from tidegate.staging.batch_files import BatchFiles
from tidegate.staging.manifest import Taken
from tidegate.staging.topics import ranges_from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Frames(ABC):
    """Every frame has the source's columns and what the accounting needs (see :mod:`tidegate.reading.parts`)."""

    @abstractmethod
    def stream(self) -> DataFrame:
        """The stream, which takes all that is there, as one batch or several."""

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
        self,
        spark: SparkSession,
        name: str,
        spec: FilesSource,
        folder: Path,
        files: BatchFiles,
        partition_columns: Sequence[str],
    ) -> None:
        self._spark, self._name, self._spec, self._files = spark, name, spec, files
        self._folder, self._partition_columns = folder, partition_columns

    def stream(self) -> DataFrame:
        """What is in the batch files."""
        frame = self._read(stream_batches(self._spark, self._name, self._files, count_tasks(self._spark)))
        return frame if self._spec.partitions is None else frame.repartition(self._spec.partitions)

    def taken(self, taken: Taken) -> DataFrame:
        """The parts of a batch."""
        return self._read(read_lines(self._spark, taken.parts, count_tasks(self._spark)))

    def pinned(self, version: Pinned) -> DataFrame:
        """The copies that were made of the files."""
        folder, columns = Path(version["folder"]), version["partition_columns"]
        return read_files(self._spark, folder, version["links"], self._spec, columns)

    def empty_stream(self) -> DataFrame:
        """A stream without a line."""
        return self._read(no_lines(self._spark, self._name))

    def empty(self) -> DataFrame:
        """No part."""
        return self.taken(Taken())

    def _read(self, lines: DataFrame) -> DataFrame:
        return read_parts(lines, self._folder, self._spec, self._partition_columns)


class KafkaFrames(StaticFrames):
    """The records of topics, by the batch files ``files``."""

    def __init__(
        self, spark: SparkSession, name: str, spec: KafkaSource, kafka: ProjectKafkaSpec, files: BatchFiles
    ) -> None:
        self._spark, self._name, self._spec, self._kafka, self._files = spark, name, spec, kafka, files

    def stream(self) -> DataFrame:
        """What is in the batch files."""
        return self._read(stream_batches(self._spark, self._name, self._files, count_cores(self._spark)))

    def taken(self, taken: Taken) -> DataFrame:
        """The parts of a batch."""
        return self._read(read_lines(self._spark, taken.parts, count_cores(self._spark)))

    def pinned(self, version: Pinned) -> DataFrame:
        """The offsets of the version."""
        parts = divide(ranges_from_json(version["offsets"]).items(), {}, Limits.of(self._spec, Cut.NOWHERE))
        return self.taken(Taken.of(parts))

    def empty_stream(self) -> DataFrame:
        """A stream that needs no broker."""
        return self._read(no_lines(self._spark, self._name))

    def empty(self) -> DataFrame:
        """No record; needs no broker."""
        return self.taken(Taken())

    def _read(self, lines: DataFrame) -> DataFrame:
        return read_records(lines, self._kafka, self._spec)


class TextFrames(Frames):
    """Texts that are at hand, in the files of ``folder``, parsed as the records of the stream that they are of."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        spec: TextsSource,
        folder: Path,
        files: BatchFiles,
        partition_columns: Sequence[str],
    ) -> None:
        self._spark, self._name, self._origin, self._files = spark, name, spec.origin, files
        self._folder, self._in_folders = folder, columns_in_folders(spec.origin, partition_columns)

    def stream(self) -> DataFrame:
        """What is in the batch files."""
        return self._read(stream_batches(self._spark, self._name, self._files, count_cores(self._spark)))

    def taken(self, taken: Taken) -> DataFrame:
        """The files of a batch."""
        return self._read(read_lines(self._spark, taken.parts, count_cores(self._spark)))

    def _read(self, lines: DataFrame) -> DataFrame:
        texts = read_texts(lines, self._folder, self._in_folders)
        if isinstance(self._origin, KafkaSource):
            return parse_topic_texts(texts, self._origin)
        return parse_file_texts(texts, self._origin, self._in_folders)

    def empty_stream(self) -> DataFrame:
        """A stream without a line."""
        return self._read(no_lines(self._spark, self._name))

    def empty(self) -> DataFrame:
        """No text."""
        return self.taken(Taken())


_Open = Callable[["SparkSession", Project, PipelinePaths, str, Any, Sequence[str]], Frames]


def _open_files(
    spark: SparkSession, project: Project, paths: PipelinePaths, name: str, spec: FilesSource, columns: Sequence[str]
) -> Frames:
    return FileFrames(spark, name, spec, paths.intake(name), BatchFiles(paths.checkpoint, name), columns)


def _open_kafka(
    spark: SparkSession, project: Project, paths: PipelinePaths, name: str, spec: KafkaSource, columns: Sequence[str]
) -> Frames:
    return KafkaFrames(spark, name, spec, project.spec.kafka, BatchFiles(paths.checkpoint, name))


def _open_texts(
    spark: SparkSession, project: Project, paths: PipelinePaths, name: str, spec: TextsSource, columns: Sequence[str]
) -> Frames:
    return TextFrames(spark, name, spec, paths.intake(name), BatchFiles(paths.checkpoint, name), columns)


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
    paths: PipelinePaths,
    name: str,
    spec: SourceSpec,
    partition_columns: Sequence[str] = (),
) -> Frames:
    """How source ``name`` of the pipeline with ``paths`` becomes a DataFrame."""
    return KINDS[type(spec)](spark, project, paths, name, spec, partition_columns)
