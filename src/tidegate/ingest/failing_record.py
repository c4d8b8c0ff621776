"""Which record the transform failed on.

Spark's error names a value, and no record. So the batch is read once more, in batch mode, by halves, with the query as
it is: first its files or partitions, then the rows of the one that is left, which are kept for that. It works for SQL
and for Python code alike. What bounds it is time: the run has failed already, and a person waits for the message.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidegate.ingest.failures import is_row_fault
from tidegate.ingest.order import emit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.ingest.batch_checks import Ranges
    from tidegate.ingest.look import BatchLook
    from tidegate.ingest.positions import PositionFinder

SEARCH_SECONDS = 180.0
_ROW = "_tidegate_row"
_JOB_GROUP = "tidegate: the failing record"
_NAMED_AT_MOST = 3

Part = tuple[str, dict[str, Any]]
"""A source and what is taken of it: one file, or one partition of a topic."""


class _GivenUp(Exception):
    """The time is over, or Spark fails for another reason."""


def find_failing_record(look: BatchLook, ranges: Ranges, finder: PositionFinder, *, keeps_state: bool) -> str:
    """In words: the record of a batch on which its transform fails, or among which records it is.

    A query with state cannot be computed again without another step of its state: there the batch is named.
    """
    parts = _split(ranges)
    search = _Search(look, parts, time.monotonic() + SEARCH_SECONDS)
    if not keeps_state:
        emit("progress", note="the transform failed on a row; looking for its record")
        # Whatever goes wrong with the search must not hide what went wrong with the run.
        with contextlib.suppress(Exception), _limited(look.spark, SEARCH_SECONDS):
            search.find_part()
            found = search.find_row(finder)
            if found is not None:
                return f"the record: {_describe_position(found)}"
            search.suspects = parts
    return f"the record is among those of {_describe_parts(search.suspects, look.order.original)}"


class _Search:
    """``suspects`` are the parts that are left."""

    def __init__(self, look: BatchLook, parts: Sequence[Part], deadline: float) -> None:
        self.suspects = list(parts)
        self._look, self._deadline = look, deadline
        self._sources = list(dict.fromkeys(name for name, _ in parts))

    def find_part(self) -> None:
        """Halve the suspects until one is left."""
        while len(self.suspects) > 1:
            middle = len(self.suspects) // 2
            first, rest = self.suspects[:middle], self.suspects[middle:]
            self.suspects = first if self._fails(self._read(first)) else rest

    def find_row(self, finder: PositionFinder) -> dict[str, Any] | None:
        """The position of the row in the one part that is left; None when no single row fails alone."""
        [(source, _)] = self.suspects
        frames = self._read(self.suspects)
        rows = frames[source].where("NOT _malformed").withColumn(_ROW, F.monotonically_increasing_id()).persist()

        def fails(low: int, high: int) -> bool:
            chosen = rows.where(F.col(_ROW).between(low, high - 1)).drop(_ROW)
            return self._fails({**frames, source: chosen})

        try:
            spans = self._spans(rows)
            if not spans:
                return None
            at = _halve(0, len(spans), lambda low, high: fails(spans[low][0], spans[high - 1][1] + 1))
            row = _halve(spans[at][0], spans[at][1] + 1, fails)
            if not fails(row, row + 1):
                return None
            [found] = rows.where(F.col(_ROW) == row).select("_position", "_raw").collect()
        finally:
            rows.unpersist()
        [located] = finder.locate([{"position": found["_position"], "raw": found["_raw"]}])
        return dict(json.loads(located["position"]))

    def _spans(self, rows: DataFrame) -> list[tuple[int, int]]:
        """The first and the last number of each of Spark's partitions."""
        by_partition = rows.groupBy(F.shiftright(_ROW, 33)).agg(F.min(_ROW).alias("low"), F.max(_ROW).alias("high"))
        with self._as_given_up():
            return sorted((one["low"], one["high"]) for one in by_partition.collect())

    def _fails(self, parsed: Mapping[str, DataFrame]) -> bool:
        if time.monotonic() > self._deadline:
            raise _GivenUp
        try:
            with self._as_given_up():
                self._look.rows(parsed).write.format("noop").mode("overwrite").save()
        except _RowFault:
            return True
        return False

    def _read(self, parts: Sequence[Part]) -> dict[str, DataFrame]:
        taken: dict[str, dict[str, Any]] = {}
        for name, one in parts:
            known = taken.setdefault(name, {})
            if "links" in one:
                known["links"] = [*known.get("links", ()), *one["links"]]
            for topic, partitions in one.get("offsets", {}).items():
                known.setdefault("offsets", {}).setdefault(topic, {}).update(partitions)
        return {name: self._look.read(name, taken.get(name, {"links": [], "offsets": {}})) for name in self._sources}

    @contextlib.contextmanager
    def _as_given_up(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise (_RowFault if is_row_fault(error) else _GivenUp) from error


class _RowFault(_GivenUp):
    """A row failed."""


@contextlib.contextmanager
def _limited(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Within it, Spark's jobs of this thread are cancelled when the time is over, and pyspark does not log each of the
    failures that are looked for."""
    from pyspark.logger import PySparkLogger

    context = spark.sparkContext
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    context.setJobGroup(_JOB_GROUP, _JOB_GROUP, interruptOnCancel=True)
    timer = threading.Timer(seconds, context.cancelJobGroup, [_JOB_GROUP])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was
        context.setLocalProperty("spark.jobGroup.id", None)


def _halve(low: int, high: int, fails: Callable[[int, int], bool]) -> int:
    """The number in [low, high) that fails, if one does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(low, middle) else (middle, high)
    return low


def _split(ranges: Ranges) -> list[Part]:
    parts: list[Part] = []
    for name, taken in ranges.items():
        parts += [(name, {"links": [link]}) for link in sorted(taken.get("links", ()))]
        for topic, partitions in taken.get("offsets", {}).items():
            parts += [
                (name, {"offsets": {topic: {number: pair}}}) for number, pair in partitions.items() if pair[1] > pair[0]
            ]
    return parts


def _describe_position(position: Mapping[str, Any]) -> str:
    if "file" in position:
        return str(position["file"]) + (f", line {position['line']}" if "line" in position else "")
    return f"topic {position['topic']}, partition {position['partition']}, offset {position['offset']}"


def _describe_parts(parts: Sequence[Part], original: Callable[[str], str]) -> str:
    told = []
    for _, taken in parts:
        told += [original(link) for link in taken.get("links", ())]
        for topic, partitions in taken.get("offsets", {}).items():
            told += [
                f"topic {topic}, partition {n}, offsets {low} to {high - 1}" for n, (low, high) in partitions.items()
            ]
    more = f" and {len(told) - _NAMED_AT_MOST} more" if len(told) > _NAMED_AT_MOST else ""
    return "; ".join(told[:_NAMED_AT_MOST]) + more
