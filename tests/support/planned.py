"""Streams without a run around them: planned as a run does, and read by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.sources.files import batch_plan
from tidegate.sources.kafka.batch_plan import Limits, divide, write_batches
from tidegate.sources.kafka.offsets import KafkaBirth, plan_kafka
from tidegate.sources.port import Cut
from tidegate.spark.reading.frames import read_records
from tidegate.spark.reading.parts import read_lines, read_parts, stream_batches
from tidegate.spark.reading.sending import show_parts
from tidegate.spec.models import FilesSource, KafkaSource, ProjectKafkaSpec
from tidegate.state.batch_files import BatchFiles
from tidegate.state.topics import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_topics(
    spark: SparkSession,
    kafka: ProjectKafkaSpec,
    spec: KafkaSource,
    birth: KafkaBirth,
    checkpoint: Path,
    *,
    cut: Cut = Cut.BY_OPTIONS,
) -> DataFrame:
    """The stream ``s`` of all that is behind what the checkpoint has, as it is now."""
    files = BatchFiles(checkpoint, "s")
    plan = plan_kafka(kafka, spec, birth, files.read_position())
    write_batches(files, birth, plan, Limits.of(spec, cut), lambda: None)
    return stream_written(spark, kafka, spec, files)


def stream_written(spark: SparkSession, kafka: ProjectKafkaSpec, spec: KafkaSource, files: BatchFiles) -> DataFrame:
    """The stream ``s`` of the batch files that are there."""
    return read_records(stream_batches(spark, files.source, files, 2), kafka, spec)


def stream_files(spark: SparkSession, intake: Path, spec: FilesSource, checkpoint: Path) -> DataFrame:
    """The stream ``orders`` of all files of a folder."""
    files = BatchFiles(checkpoint, "orders")
    links = sorted(path.name for path in intake.iterdir())
    batch_plan.write_batches(files, intake, links, spec, batch_plan.Limits.of(spec, Cut.BY_OPTIONS), lambda: None)
    return read_parts(stream_batches(spark, "orders", files, 2), intake, spec)


def read_ranges(
    spark: SparkSession, kafka: ProjectKafkaSpec, spec: KafkaSource, ranges: Mapping[TopicPartition, OffsetRange]
) -> DataFrame:
    """The records of these ranges, as a batch."""
    parts = divide(ranges.items(), {}, Limits.of(spec, Cut.NOWHERE))
    return read_records(read_lines(spark, show_parts(parts, Path(), None), 2), kafka, spec)
