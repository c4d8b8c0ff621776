"""One micro-batch again, read in batch mode: what the streaming pass cannot carry along is taken from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.paths import PipelinePaths
from tidegate.spark.catalyst.late import LateRecords, find_late
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest import plan
from tidegate.spark.ingest.batch_checks import Ranges
from tidegate.spark.ingest.positions import PositionFinder
from tidegate.spark.ingest.query import PreparedQuery
from tidegate.spark.ingest.second_look import broken_rows, flagged_rows, malformed_records, write_set_aside
from tidegate.spec.models import PipelineSpec
from tidegate.state.manifest import Taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BatchLook:
    """``read`` gives the parsed records of a source's range in batch mode; ``statics`` are its static sources."""

    spark: SparkSession
    spec: PipelineSpec
    paths: PipelinePaths
    order: IngestOrder
    prepared: PreparedQuery
    read: Callable[[str, Taken], DataFrame]
    statics: Mapping[str, DataFrame]

    def malformed(self, ranges: Ranges) -> DataFrame:
        """The malformed records of a batch."""
        return malformed_records(self._parsed(ranges))

    def rejected(self, ranges: Ranges) -> DataFrame:
        """The rows of a batch that rules reject; for a query without state."""
        return broken_rows(self.rows(self._parsed(ranges)), self.prepared.rules)

    def rows(self, parsed: Mapping[str, DataFrame]) -> DataFrame:
        """The result of the transform and the rules for ``parsed``, {stream: records}; for a query without state."""
        rules, run_id = self.prepared.rules, self.order.run_id
        within = None if self.order.bounds is None else self.order.bounds.within
        return flagged_rows(self.spark, self.spec, self.paths, run_id, rules, parsed, self.statics, within)

    def late(self, ranges: Ranges, source: str, late_before_ms: int) -> LateRecords:
        """The records of ``source`` that the watermark ``late_before_ms`` dropped."""
        frames = {
            name: plan.good_records(frame, name, with_provenance=True) if name in self.spec.watermarks else frame
            for name, frame in self._parsed(ranges).items()
        }
        return find_late(self.prepared.out, frames, source, late_before_ms)

    def write(self, records: DataFrame, folder: Path, finder: PositionFinder) -> None:
        """Write quarantined records as rows of the quarantine table into the new ``folder``."""
        write_set_aside(self.spark, self.spec.name, self.order.run_id, records, folder, finder)

    def _parsed(self, ranges: Ranges) -> dict[str, DataFrame]:
        return {name: self.read(name, taken) for name, taken in ranges.items()}
