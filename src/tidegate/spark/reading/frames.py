"""DataFrames of each kind of source: its stream, the input of one batch, a static source at its version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.core.paths import PipelinePaths
from tidegate.sources.kafka.batch_plan import Limits, divide
from tidegate.sources.port import Cut, Pinned
from tidegate.spark.reading.files import read_files
from tidegate.spark.reading.kafka import read_records
from tidegate.spark.reading.parts import (
    count_cores,
    count_tasks,
    no_lines,
    read_lines,
    read_parts,
    stream_batches,
)
from tidegate.spark.reading.texts import columns_in_folders, parse_file_texts, parse_topic_texts, read_texts
from tidegate.spec.as_read import KeptSource, SpooledSource, TextsSource
from tidegate.spec.models import FilesSource, KafkaSource, SourceSpec
from tidegate.spec.project import Project
from tidegate.state.batch_files import BatchFiles
from tidegate.state.manifest import Taken
from tidegate.state.topics import ranges_from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Frames:
    """A source as frames. Each has the source's columns and what the accounting needs (see
    :mod:`tidegate.spark.reading.parts`)."""

    spark: SparkSession
    name: str
    files: BatchFiles
    read: Callable[[DataFrame], DataFrame]
    """Makes records of the lines of batch files."""
    count: Callable[[SparkSession], int] = count_cores
    """The number of tasks that read."""
    partitions: int | None = None
    """The number of tasks of the stream, if the spec sets it."""

    def stream(self) -> DataFrame:
        """The content of all batch files that exist, as one batch or several."""
        frame = self.read(stream_batches(self.spark, self.name, self.files, self.count(self.spark)))
        return frame if self.partitions is None else frame.repartition(self.partitions)

    def taken(self, taken: Taken) -> DataFrame:
        """The input of a batch (:meth:`tidegate.sources.port.Source.range_of`), in batch mode."""
        return self.read(read_lines(self.spark, taken.parts, self.count(self.spark)))

    def empty_stream(self) -> DataFrame:
        """A stream of the same columns that never has a record; asks nothing of the source."""
        return self.read(no_lines(self.spark, self.name))

    def empty(self) -> DataFrame:
        """The same columns without a record, in batch mode; asks nothing of the source."""
        return self.taken(Taken())


def read_pinned(spark: SparkSession, frames: Frames, spec: SourceSpec, version: Pinned) -> DataFrame:
    """A static source at a version (:meth:`tidegate.sources.port.StaticSource.pin`): the copies that were made of
    files, or offsets of topics."""
    if isinstance(spec, KafkaSource):
        parts = divide(ranges_from_json(version["offsets"]).items(), {}, Limits.of(spec, Cut.NOWHERE))
        return frames.taken(Taken.of(parts))
    assert isinstance(spec, FilesSource), f"a spec refuses {frames.name} as a static source"
    return read_files(spark, Path(version["folder"]), version["links"], spec, version["partition_columns"])


_Open = Callable[["SparkSession", Project, PipelinePaths, str, Any, Sequence[str]], Frames]


def _open_files(
    spark: SparkSession, project: Project, paths: PipelinePaths, name: str, spec: FilesSource, columns: Sequence[str]
) -> Frames:
    """The files that are linked in the intake, with values of ``columns`` in the names of folders."""
    return Frames(
        spark,
        name,
        BatchFiles(paths.checkpoint, name),
        lambda lines: read_parts(lines, paths.intake(name), spec, columns),
        count_tasks,
        spec.partitions,
    )


def _open_kafka(
    spark: SparkSession, project: Project, paths: PipelinePaths, name: str, spec: KafkaSource, columns: Sequence[str]
) -> Frames:
    """The records of topics."""
    kafka = project.spec.kafka
    return Frames(spark, name, BatchFiles(paths.checkpoint, name), lambda lines: read_records(lines, kafka, spec))


def _open_texts(
    spark: SparkSession, project: Project, paths: PipelinePaths, name: str, spec: TextsSource, columns: Sequence[str]
) -> Frames:
    """Texts that are at hand, in the files of the intake, parsed as the records of the stream that they are of."""
    origin, in_folders = spec.origin, columns_in_folders(spec.origin, columns)

    def read(lines: DataFrame) -> DataFrame:
        texts = read_texts(lines, paths.intake(name), in_folders)
        if isinstance(origin, KafkaSource):
            return parse_topic_texts(texts, origin)
        return parse_file_texts(texts, origin, in_folders)

    return Frames(spark, name, BatchFiles(paths.checkpoint, name), read)


KINDS: Mapping[type, _Open] = {
    FilesSource: _open_files,
    KeptSource: _open_files,
    SpooledSource: _open_files,
    KafkaSource: _open_kafka,
    TextsSource: _open_texts,
}
"""The reader of each kind, by its model in a spec as a run reads it."""


def open_frames(
    spark: SparkSession,
    project: Project,
    paths: PipelinePaths,
    name: str,
    spec: SourceSpec,
    partition_columns: Sequence[str] = (),
) -> Frames:
    """The reader of source ``name`` of the pipeline with ``paths``."""
    return KINDS[type(spec)](spark, project, paths, name, spec, partition_columns)
