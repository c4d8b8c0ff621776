"""Streams of topics without a run around them: planned as a run does, and read by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.reading.kafka import read_parts_of_topics, stream_batches
from tidegate.sources.kafka.batch_plan import Limits, divide, write_batches
from tidegate.sources.kafka.offsets import KafkaBirth, plan_kafka
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.staging.batch_files import BatchFiles
from tidegate.staging.topics import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_topics(
    spark: SparkSession,
    kafka: ProjectKafkaSpec,
    spec: KafkaSource,
    birth: KafkaBirth,
    checkpoint: Path,
    *,
    unlimited: bool = False,
) -> DataFrame:
    """The stream ``s`` of all that is behind what the checkpoint has, as it is now."""
    files = BatchFiles(checkpoint, "s")
    plan = plan_kafka(kafka, spec, birth, files.read_position())
    files.folder.mkdir(parents=True, exist_ok=True)  # as :meth:`KafkaStream.write_batches` does
    write_batches(files, birth, plan, Limits.of(spec, unlimited=unlimited), lambda: None)
    return stream_batches(spark, kafka, "s", spec, files)


def read_ranges(
    spark: SparkSession, kafka: ProjectKafkaSpec, spec: KafkaSource, ranges: Mapping[TopicPartition, OffsetRange]
) -> DataFrame:
    """The records of these ranges, as a batch."""
    return read_parts_of_topics(spark, kafka, spec, divide(ranges.items(), {}, Limits.of(spec, unlimited=True)))
