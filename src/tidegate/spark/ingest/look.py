"""One micro-batch again, read in batch mode: what the streaming pass cannot carry along is taken from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.files.unreadable import describe_kept
from tidegate.spark.catalyst.late import LateRecords, find_late
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest import plan
from tidegate.spark.ingest.batch_checks import Ranges
from tidegate.spark.ingest.capture import PositionFinder, file_position
from tidegate.spark.ingest.query import PreparedQuery
from tidegate.spark.ingest.write import write_rows
from tidegate.spark.reading.sending import find_unseen
from tidegate.spec.models import PipelineSpec
from tidegate.state.manifest import Taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BatchLook:
    """A second look at a batch: quarantined records that are more than the metrics carry, and late ones.

    The rows that pass were written already. The count of what is taken from this pass must match the first one, so a
    difference between the two fails the batch instead of losing a record. ``read`` gives the parsed records of a
    source's range in batch mode; ``statics`` are its static sources.
    """

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
        return plan.rejected_rows(self.rows(self._parsed(ranges)), self.prepared.rules)

    def rows(self, parsed: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of ``parsed``, {stream: records}, with what the rules say of each, by running the transform again;
        for a query without state. As in the stream, the transform gets good records alone."""
        good = {
            name: plan.observe_entered(plan.good_records(frame, name, with_provenance=True), name)
            for name, frame in parsed.items()
        }
        good |= {name: plan.good_records(frame, name, with_provenance=False) for name, frame in self.statics.items()}
        out = plan.transformed_rows(self.spark, self.spec, self.paths.job, good, self.order.run_id)
        return plan.flag_rules(out, self.prepared.rules, self.order.within)

    def late(self, ranges: Ranges, source: str, late_before_ms: int) -> LateRecords:
        """The records of ``source`` that the watermark ``late_before_ms`` dropped."""
        frames = {
            name: plan.good_records(frame, name, with_provenance=True) if name in self.spec.watermarks else frame
            for name, frame in self._parsed(ranges).items()
        }
        return find_late(self.prepared.out, frames, source, late_before_ms)

    def write(self, records: DataFrame, folder: Path, finder: PositionFinder) -> None:
        """Write quarantined records as rows of the quarantine table into the new ``folder``."""
        found = [(name, begin, file_position(file), before) for name, begin, file, before in finder.list_places()]
        places = self.spark.createDataFrame(found, "_name STRING, _begin BIGINT, _file STRING, _before BIGINT")
        rows = _as_quarantine(records, self.spec.name, self.order.run_id, places)
        write_rows(rows, folder, (), find_unseen(self.spark, self.paths))

    def _parsed(self, ranges: Ranges) -> dict[str, DataFrame]:
        return {name: self.read(name, taken) for name, taken in ranges.items()}


def malformed_records(parsed: Mapping[str, DataFrame]) -> DataFrame:
    """The malformed records of a batch's ``parsed`` sources."""
    found = [frame.where("_malformed").select(*plan.malformed_columns(name)) for name, frame in parsed.items()]
    return reduce(lambda one, two: one.unionByName(two), found)


def late_rows(late: DataFrame, detail: str) -> DataFrame:
    """Late records (source, position, raw) as records for quarantine."""
    return late.select("source", "position", "raw", F.lit("late").alias("reason"), F.lit(detail).alias("detail"))


def kept_files(folder: Path) -> set[str]:
    """The names of files that the rows in ``folder`` say are kept, since quarantine has not all of a record."""
    import pyarrow.compute as pc  # which few batches need
    import pyarrow.parquet as pq

    names = set[str]()
    for path in storage.list_tree(folder, "*.parquet"):
        for some in pq.ParquetFile(storage.open_input(path)).iter_batches(columns=["detail"]):
            details = some.column("detail")
            found = details.filter(pc.match_substring(details, describe_kept("")))
            names.update(text.rpartition(describe_kept(""))[2] for text in found.to_pylist())
    return names


def _as_quarantine(records: DataFrame, pipeline: str, run_id: str, places: DataFrame) -> DataFrame:
    """``records`` as rows of the quarantine table; ``places`` are :meth:`PositionFinder.list_places`."""
    # Behind the `#` are the first byte of the part, or `row`, and the number of the line in it, or of the row.
    place = F.split(F.substring_index("position", "#", -1), r"\+")
    has_number = F.col("position").rlike(r"#([0-9]+|row)\+[0-9]+$")
    is_row = has_number & (place[0] == "row")
    begin = F.when(has_number & ~is_row, place[0].cast("bigint")).otherwise(F.lit(0))
    number = F.when(has_number, place[1].cast("bigint"))
    named = records.withColumns(
        {"_name": plan.link_name("position"), "_begin": begin, "_number": number, "_is_row": is_row}
    )
    located = named.join(F.broadcast(places), ["_name", "_begin"], "left")
    opened = F.expr("left(_file, length(_file) - 1)")
    unit = F.when(F.col("_is_row"), F.lit(', "row": ')).otherwise(F.lit(', "line": '))
    before = F.when(F.col("_is_row"), F.lit(0)).otherwise(F.col("_before"))
    numbered = F.concat(opened, unit, F.col("_number") + before, F.lit("}"))
    is_cut = (F.col("reason") == "malformed") & F.col("_file").isNotNull() & F.col("detail").contains(TOO_LARGE)
    return located.select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(run_id).alias("run_id"),
        "source",
        F.coalesce(numbered, "_file", "position").alias("position"),
        "raw",
        "reason",
        F.when(is_cut, F.concat("detail", F.lit(describe_kept("")), "_name"))
        .otherwise(F.col("detail"))
        .alias("detail"),
        F.current_timestamp().alias("quarantined_at"),
    )
