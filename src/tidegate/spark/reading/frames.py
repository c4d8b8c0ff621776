"""DataFrames of each kind of source: its stream, the input of one batch, a static source at its version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.batch_plan import divide_files
from tidegate.sources.files.forms import form_of_texts
from tidegate.sources.kafka.batch_plan import Limits, divide
from tidegate.sources.kafka.settings import settings_of
from tidegate.sources.port import Cut, Pinned
from tidegate.sources.readers.form import FRAMEWORK_DDL, RESCUED_DDL, Form
from tidegate.sources.readers.meter import ReportAddress
from tidegate.spark.reading.parts import (
    FRAMEWORK_COLUMNS,
    count_cores,
    count_tasks,
    no_lines,
    parse_texts,
    read_lines,
    read_parts,
    show_columns,
    stream_batches,
)
from tidegate.spark.reading.sending import find_unseen, show_parts
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN, TextsSource
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.models import BaseSource, FilesSource, KafkaSource, ProjectKafkaSpec
from tidegate.spec.project import Project
from tidegate.spec.source_checks import KAFKA_METADATA
from tidegate.state.batch_files import BatchFiles
from tidegate.state.manifest import Taken
from tidegate.state.topics import ranges_from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.core.storage.mirror import Mirror


def read_files(
    spark: SparkSession,
    folder: Path,
    links: Iterable[str],
    spec: FilesSource,
    partition_columns: Sequence[str] = (),
    unseen: Mirror | None = None,
) -> DataFrame:
    """The records of some files of ``folder``, perhaps none, as a batch; ``unseen`` as for :func:`show_parts`."""
    lines = show_parts(divide_files(folder, links, spec), folder, unseen)
    return read_parts(read_lines(spark, lines, count_tasks(spark)), folder, spec, partition_columns)


def read_json_texts(spark: SparkSession, folder: Path, links: Iterable[str], spec: FilesSource) -> DataFrame:
    """The texts of all records of JSON in some files of ``folder`` that can be decoded, as ``_raw``."""
    # No record has this column, so none is malformed for it.
    any_object = spec.replace(schema="_tidegate_none STRING", unknown_fields="report")
    return read_files(spark, folder, links, any_object).where(~F.col("_malformed")).select("_raw")


def read_records(
    lines: DataFrame, kafka: ProjectKafkaSpec, spec: KafkaSource, report_to: ReportAddress | None = None
) -> DataFrame:
    """The records of the parts that ``lines`` (value STRING) name."""
    from tidegate.sources.readers.kafka_worker import RangesReader  # confluent_kafka, which files do not need

    form = form_of_records(spec)
    rescued = RESCUED_DDL if form.policy == "rescue" else ""
    metadata = show_columns(KAFKA_METADATA) if spec.metadata else ""
    ddl = filter(None, [show_columns(parse_ddl(form.ddl)), rescued, metadata, FRAMEWORK_DDL])
    patience_ms = spec.options.get("kafkaConsumer.pollTimeoutMs")
    patience = None if patience_ms is None else int(patience_ms) / 1000
    reader = RangesReader(form, settings_of(kafka, spec).reading, spec.metadata, patience, report_to=report_to)
    return lines.select("value").mapInArrow(reader, ", ".join(ddl))


def form_of_records(spec: KafkaSource) -> Form:
    """Parse the values of records of ``spec`` into columns."""
    return Form("raw", "value BINARY") if spec.format == "raw" else form_of_texts(spec)


def read_texts(lines: DataFrame, folder: Path, in_folders: Sequence[Column]) -> DataFrame:
    """The texts in the files of ``folder`` that ``lines`` (value STRING) of batch files name, as ``_raw`` and
    ``_position``, with the columns ``in_folders`` whose values are in the names of folders."""
    from tidegate.sources.readers.worker import TextFilesReader  # pyarrow: see parts.py

    reader = TextFilesReader(str(folder), (TEXT_COLUMN, PLACE_COLUMN), in_folders)
    ddl = ", ".join(filter(None, ["_raw STRING, _position STRING", show_columns(in_folders)]))
    return lines.select("value").mapInArrow(reader, ddl)


def parse_file_texts(texts: DataFrame, origin: FilesSource, in_folders: Sequence[Column]) -> DataFrame:
    """The records of a source of files."""
    below = [column.name for column in in_folders]
    parsed = parse_texts(texts, form_of_texts(origin, below), below)
    own = [column.name for column in parse_ddl(origin.schema)] if origin.schema else ["value"]
    names = [*own, *(["_rescued"] if origin.unknown_fields == "rescue" else [])]
    return parsed.select(*(F.col(quote_column(name)) for name in names), *FRAMEWORK_COLUMNS)


def parse_topic_texts(texts: DataFrame, origin: KafkaSource) -> DataFrame:
    """The records of a source of topics; values of format raw are in base64."""
    if origin.format != "raw":
        return parse_texts(texts, form_of_texts(origin))
    return texts.select(
        F.unbase64("_raw").alias("value"),
        "_raw",
        "_position",
        F.lit(False).alias("_malformed"),
        F.lit(None).cast("string").alias("_detail"),
        F.lit(None).cast("array<string>").alias("_unknown"),
    )


@dataclass(frozen=True)
class Frames:
    """Source ``name`` of the pipeline with ``paths`` as frames, each with the source's columns and what the accounting
    needs (see :mod:`tidegate.spark.reading.parts`). ``partition_columns`` have their values in the names of folders.
    Tasks report how far they are to ``report_to``."""

    spark: SparkSession
    project: Project
    paths: PipelinePaths
    name: str
    spec: BaseSource
    partition_columns: Sequence[str] = ()
    report_to: ReportAddress | None = None

    def stream(self) -> DataFrame:
        """The content of all batch files that exist, as one batch or several."""
        files = BatchFiles(self.paths.checkpoint, self.name)
        return self._divide(self._read(stream_batches(self.spark, self.name, files, self._count_tasks())))

    def batch(self, taken: Taken) -> DataFrame:
        """The same of one batch, in batch mode."""
        return self._divide(self.taken(taken))

    def _divide(self, frame: DataFrame) -> DataFrame:
        partitions = self.spec.partitions if isinstance(self.spec, FilesSource) else None
        return frame if partitions is None else frame.repartition(partitions)

    def taken(self, taken: Taken) -> DataFrame:
        """The input of a batch (:meth:`tidegate.sources.port.Source.range_of`), in batch mode."""
        lines = show_parts(taken.parts, self.paths.intake(self.name), find_unseen(self.spark, self.paths))
        return self._read(read_lines(self.spark, lines, self._count_tasks()))

    def empty_stream(self) -> DataFrame:
        """A stream of the same columns that never has a record; asks nothing of the source."""
        return self._read(no_lines(self.spark, self.name))

    def empty(self) -> DataFrame:
        """The same columns without a record, in batch mode; asks nothing of the source."""
        return self.taken(Taken())

    def pinned(self, version: Pinned) -> DataFrame:
        """A static source at a version (:meth:`tidegate.sources.port.StaticSource.pin`): the copies that were made of
        files, or offsets of topics."""
        if isinstance(self.spec, KafkaSource):
            parts = divide(ranges_from_json(version["offsets"]).items(), {}, Limits.of(self.spec, Cut.NOWHERE))
            return self.taken(Taken.of(parts))
        assert isinstance(self.spec, FilesSource), f"a spec refuses {self.name} as a static source"
        folder, columns = Path(version["folder"]), version["partition_columns"]
        unseen = find_unseen(self.spark, self.paths)
        return read_files(self.spark, folder, version["links"], self.spec, columns, unseen)

    def _count_tasks(self) -> int:
        return count_tasks(self.spark) if isinstance(self.spec, FilesSource) else count_cores(self.spark)

    def _read(self, lines: DataFrame) -> DataFrame:
        """The records of the parts that ``lines`` (value STRING) of batch files name."""
        spec, intake = self.spec, self.paths.intake(self.name)
        if isinstance(spec, KafkaSource):
            return read_records(lines, self.project.spec.kafka, spec, self.report_to)
        if isinstance(spec, FilesSource):
            return read_parts(lines, intake, spec, self.partition_columns, self.report_to)
        assert isinstance(spec, TextsSource), f"no run reads a source of type {type(spec).__name__}"
        origin = spec.origin
        schema = parse_ddl(origin.schema) if origin.schema else []
        in_folders = [column for column in schema if column.name in self.partition_columns]
        texts = read_texts(lines, intake, in_folders)
        if isinstance(origin, KafkaSource):
            return parse_topic_texts(texts, origin)
        return parse_file_texts(texts, origin, in_folders)
