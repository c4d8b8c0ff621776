"""The frames of a pipeline's sources: streams, a batch's range again, static sources at their pinned version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.core.paths import PipelinePaths
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest.bounded import keep_within
from tidegate.spark.ingest.plan import demand_event_time
from tidegate.spark.ingest.row_failures import FailingRecord, mark_failing
from tidegate.spark.reading.frames import Frames, open_frames, read_pinned
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.manifest import Taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SourceReader:
    """Every frame has the source's columns and what the accounting needs (see :mod:`tidegate.spark.reading.parts`)."""

    spark: SparkSession
    project: Project
    paths: PipelinePaths
    order: IngestOrder
    spec: PipelineSpec
    failing: list[FailingRecord] = field(default_factory=list)
    """Records on which the transform fails: every frame that is asked for from now on has them as malformed."""

    def streams(self) -> dict[str, DataFrame]:
        """The streams, by source."""
        return {
            name: self._checked(name, self._bounded(name, self._frames(name).stream())) for name in self.spec.streams
        }

    def statics(self) -> dict[str, DataFrame]:
        """The static sources, each at the version that the order pins."""
        return {
            name: read_pinned(self.spark, self._frames(name), source, self.order.statics[name])
            for name, source in self.spec.statics.items()
        }

    def range(self, name: str, taken: Taken) -> DataFrame:
        """The input of a batch from a stream, in batch mode."""
        return self._checked(name, self._bounded(name, self._frames(name).taken(taken)))

    def _checked(self, name: str, frame: DataFrame) -> DataFrame:
        if name in self.spec.watermarks:
            frame = demand_event_time(frame, self.spec.event_times[name])
        return mark_failing(frame, name, self.failing)

    def _bounded(self, name: str, frame: DataFrame) -> DataFrame:
        bounds = self.order.bounds
        return frame if bounds is None else keep_within(self.spark, self.paths, name, frame, bounds)

    def _frames(self, name: str) -> Frames:
        columns = self.order.partition_columns.get(name, [])
        return open_frames(self.spark, self.project, self.paths, name, self.spec.sources[name], columns)
