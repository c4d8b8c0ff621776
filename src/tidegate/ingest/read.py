"""The frames of a pipeline's sources: streams, a batch's range again, static sources at their pinned version."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.driver.order import IngestOrder
from tidegate.ingest.plan import demand_event_time
from tidegate.ingest.row_failures import FailingRecord, mark_failing
from tidegate.project import PipelinePaths, Project
from tidegate.reading.files import read_links, stream_files
from tidegate.reading.kafka import read_kafka, read_range
from tidegate.sources.kafka.offsets import KafkaBirth
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.staging.birth import read_birth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SourceReader:
    """Every frame has the source's columns and what the accounting needs (see :mod:`tidegate.reading.files`)."""

    spark: SparkSession
    project: Project
    paths: PipelinePaths
    order: IngestOrder
    spec: PipelineSpec
    failing: list[FailingRecord] = field(default_factory=list)
    """Records on which the transform fails: every frame that is asked for from now on has them as malformed."""

    def streams(self) -> dict[str, DataFrame]:
        """The streams, by source."""
        return {name: self._checked(name, self._stream(name)) for name in self.spec.streams}

    def statics(self) -> dict[str, DataFrame]:
        """The static sources, each at the version that the order pins."""
        return {name: self._static(name) for name in self.spec.statics}

    def range(self, name: str, taken: dict[str, Any]) -> DataFrame:
        """What a batch took of a stream ({"links": [...]} or {"offsets": ...}), in batch mode."""
        source = self.spec.streams[name]
        if isinstance(source, FilesSource):
            columns = self.order.partition_columns.get(name, [])
            frame = read_links(self.spark, self.paths.intake(name), taken["links"], source, columns)
        else:
            assert isinstance(source, KafkaSource)
            frame = read_range(self.spark, self.project.spec.kafka, name, source, taken["offsets"])
        return self._checked(name, frame)

    def _checked(self, name: str, frame: DataFrame) -> DataFrame:
        if name in self.spec.watermarks:
            frame = demand_event_time(frame, str(getattr(self.spec.streams[name], "event_time", None)))
        return mark_failing(frame, name, self.failing)

    def _stream(self, name: str) -> DataFrame:
        source = self.spec.streams[name]
        unlimited = self.spec.trigger == "once"
        if isinstance(source, FilesSource):
            columns = self.order.partition_columns.get(name, [])
            return stream_files(self.spark, self.paths.intake(name), source, columns, name=name, unlimited=unlimited)
        assert isinstance(source, KafkaSource)
        birth = read_birth(self.paths)
        assert birth is not None, "the ingest step writes the birth before it starts Spark"
        start = KafkaBirth.from_dict(birth.sources[name])
        return read_kafka(self.spark, self.project.spec.kafka, name, source, start, unlimited=unlimited)

    def _static(self, name: str) -> DataFrame:
        source, pinned = self.spec.statics[name], self.order.statics[name]
        if isinstance(source, FilesSource):
            return read_links(self.spark, Path(pinned["folder"]), pinned["links"], source, pinned["partition_columns"])
        return read_range(self.spark, self.project.spec.kafka, name, source, pinned["offsets"])
