"""The frames of a pipeline's sources: streams, a batch's range again, static sources at their pinned version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest.batch_checks import Ranges
from tidegate.spark.ingest.pace import ReportListener
from tidegate.spark.ingest.plan import demand_event_time, link_name
from tidegate.spark.reading.frames import Frames
from tidegate.spark.reading.sending import find_unseen
from tidegate.spec.ddl import quote_column
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.manifest import Taken

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_PLACE, _DIGEST, _STAYS = "_tidegate_place", "_tidegate_digest", "_tidegate_stays"


def _exclude(frame: DataFrame, listed: DataFrame, name: str) -> DataFrame:
    """Exclude the records of source ``name`` that stay in quarantine, which :func:`excluded_metric` counts.

    Read again by a side job, they would be in two places. A record is known by its position and its text: equal records
    of one file are one. ``listed`` has (source, position, digest).
    """
    stays = listed.where(F.col("source") == name).select(
        F.col("position").alias(_PLACE), F.col("digest").alias(_DIGEST), F.lit(True).alias(_STAYS)
    )
    # A topic's record is known by its position; of a file the position is its link, whose last part is unique.
    is_topic = F.col("_position").startswith("{")
    place = F.when(is_topic, F.col("_position")).otherwise(link_name("_position"))
    digest = F.when(is_topic, F.lit("")).otherwise(F.sha2(F.coalesce("_raw", F.lit("")).cast("binary"), 256))
    known = frame.withColumns({_PLACE: place, _DIGEST: digest})
    marked = known.join(F.broadcast(stays.distinct()), [_PLACE, _DIGEST], "left")
    counted = marked.observe(excluded_metric(name), F.count(F.when(F.col(_STAYS), 1)).alias("left_out"))
    return counted.where(F.col(_STAYS).isNull()).select(*(F.col(quote_column(one)) for one in frame.columns))


def excluded_metric(name: str) -> str:
    """The metric that counts the records of source ``name`` that stay in quarantine."""
    return f"left_out:{name}"


@dataclass(frozen=True)
class FailingRecord:
    """A record of ``source`` on which the transform fails, or ``count`` equal ones of a file; ``detail`` is why it goes
    to quarantine (``on_row_error: quarantine``). Every read of a batch marks it, in the stream and in a second look, so
    that counts, records and reasons agree."""

    source: str
    position: str
    digest: str
    detail: str
    count: int = 1

    @property
    def key(self) -> str:
        """Its key among the records of its source: :func:`record_key` as a value."""
        return f"{self.place} {self.digest}"

    @property
    def place(self) -> str:
        """The position, of a record of a file without its line."""
        return self.position.partition("#")[0]


def record_key() -> Column:
    """The place of a parsed record and the digest of its text, with a blank between them."""
    digest = F.sha2(F.coalesce(F.col("_raw"), F.lit("")).cast("binary"), 256)
    return F.concat_ws(" ", _place(), digest)


def _place() -> Column:
    return F.substring_index("_position", "#", 1)


def mark_failing(parsed: DataFrame, source: str, failing: Sequence[FailingRecord]) -> DataFrame:
    """``parsed`` of a source with those of ``failing`` that are its records marked malformed, with their details."""
    known = {one.key: one.detail for one in failing if one.source == source}
    if not known:
        return parsed
    # A text is digested only where its file, or its place in a topic, has such a record at all.
    places = sorted({one.place for one in failing if one.source == source})
    details = F.create_map(*(F.lit(text) for pair in known.items() for text in pair))
    why = F.when(_place().isin(places), F.try_element_at(details, record_key()))
    return parsed.withColumns(
        {"_detail": F.coalesce("_detail", why), "_malformed": F.col("_malformed") | why.isNotNull()}
    )


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
    reports: ReportListener | None = None

    def streams(self) -> dict[str, DataFrame]:
        """The streams, by source."""
        return {name: self._prepare(name, self._reported(name).stream()) for name in self.spec.streams}

    def statics(self) -> dict[str, DataFrame]:
        """The static sources, each at the version that the order pins."""
        return {name: self._frames(name).pinned(self.order.statics[name]) for name in self.spec.statics}

    def batch(self, ranges: Ranges) -> dict[str, DataFrame]:
        """The same of one batch, in batch mode, by source."""
        return {name: self._prepare(name, self._reported(name).batch(taken)) for name, taken in ranges.items()}

    def range(self, name: str, taken: Taken) -> DataFrame:
        """The input of a batch from a stream, in batch mode."""
        return self._prepare(name, self._frames(name).taken(taken))

    def _prepare(self, name: str, frame: DataFrame) -> DataFrame:
        if self.order.bounds is not None and self.order.bounds.left_out:
            frame = _exclude(frame, self._read_excluded(self.paths.state / self.order.bounds.left_out), name)
        if name in self.spec.watermarks:
            frame = demand_event_time(frame, self.spec.event_times[name])
        return mark_failing(frame, name, self.failing)

    def _read_excluded(self, file: Path) -> DataFrame:
        if find_unseen(self.spark, self.paths) is None:
            return self.spark.read.schema("source STRING, position STRING, digest STRING").parquet(str(file))
        import pyarrow.parquet as pq  # a driver loads it after its session

        return self.spark.createDataFrame(pq.read_table(storage.open_input(file)))

    def _reported(self, name: str) -> Frames:
        reports = self.reports
        return replace(self._frames(name), report_to=None if reports is None else reports.address_of(name))

    def _frames(self, name: str) -> Frames:
        columns = self.order.partition_columns.get(name, [])
        return Frames(self.spark, self.project, self.paths, name, self.spec.sources[name], columns)
