"""Find the record that the transform failed on, or all such records.

Spark's error names a value, and no record. So the batch is read again, in batch mode, by halves, with the query as
it is: first its files or partitions, then the rows of the one that is left, which are kept for that. It works for SQL
and for Python code alike. What bounds the search for one record is time: the run has failed already, and a person waits
for the message. The search for all of them (``on_row_error: quarantine``) is limited by their number.

A record is to blame only when the query fails on it alone, with no other record of any stream, and does not fail
without it. Forms of expressions that cannot fail (``try_cast``) would not show that: Spark moves filters below
projections, so that a row may never meet the expression that fails on it elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F

from tidegate.core.words import list_first
from tidegate.spark.catalyst.plans import with_settings
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.failures import RowFailed, is_row_fault, name_row_fault
from tidegate.spark.driver.order import emit
from tidegate.spark.ingest.batch_checks import Ranges
from tidegate.spark.ingest.capture import PositionFinder
from tidegate.spark.ingest.look import BatchLook
from tidegate.spark.ingest.read import FailingRecord, record_key
from tidegate.state.manifest import Taken
from tidegate.table.quarantined import CapturedRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SEARCH_SECONDS = 180.0
FAILING_AT_MOST = 100
"""With more failing records in one batch, the transform is at fault."""
SEARCH_ALL_SECONDS = 900.0
_WITHOUT_RECORDS = "it fails without any record of the streams too"
_ROW = "_tidegate_row"
_KEY = "_tidegate_key"
_JOB_GROUP = "tidegate: the failing record"
_NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""Spark computes both sides of a join, also where one of them turns out to be empty."""
_NAMED_AT_MOST = 3

Part = tuple[str, Taken]
"""A source and what is taken of it: one file, or one partition of a topic."""


class _Abandoned(Exception):
    """The search ran out of time, or Spark failed for another reason than a row."""


class _RowFault(Exception):
    """A row failed."""


class _NotByRecord(Exception):
    """The query fails without any record."""


def find_failing_record(look: BatchLook, ranges: Ranges, finder: PositionFinder, *, keeps_state: bool) -> str:
    """Describe a record of a batch on which its transform fails, or the records among which it is.

    A query with state cannot be computed again without another step of its state: there the batch is named.
    """
    search = _Search(look, _split(ranges), time.monotonic() + SEARCH_SECONDS)
    if not keeps_state:
        emit("progress", note="the transform failed on a row; looking for its record")
        try:
            with _searching(look.spark, SEARCH_SECONDS):
                for one, raw in search.find_all():
                    return f"the record: {_describe(finder, one, raw)}"
        except _NotByRecord:
            return _WITHOUT_RECORDS
        except _Abandoned as abandoned:
            emit("progress", note=f"the search was abandoned: {type(abandoned.__cause__ or abandoned).__name__}")
    return f"the record is among those of {_describe_parts(search.suspects, look.order.original)}"


def find_failing_records(
    look: BatchLook, ranges: Ranges, finder: PositionFinder, known: Sequence[FailingRecord]
) -> list[FailingRecord]:
    """All records of a batch on which its transform, which has no state, fails; ``known`` are those that are marked
    already.

    Raises RowFailed where they are too many, and where the batch fails on no record alone.
    """
    emit("progress", note="the transform failed on a row; looking for all records that it fails on")
    search = _Search(look, _split(ranges), time.monotonic() + SEARCH_ALL_SECONDS)
    found: list[tuple[FailingRecord, str | None]] = []
    left = FAILING_AT_MOST - sum(one.count for one in known)
    try:
        with _searching(look.spark, SEARCH_ALL_SECONDS):
            for one in search.find_all():
                found.append(one)
                left -= one[0].count
                if left < 0:
                    break
    except _NotByRecord:
        raise RowFailed(f"{_WITHOUT_RECORDS}, so no record is put in quarantine") from None
    except _Abandoned as error:
        among = _describe_parts(search.suspects, look.order.original)
        why = "the search for the records that it fails on was abandoned, so none is put in quarantine"
        raise RowFailed(f"{why}; they are among those of {among}") from error
    if left < 0:
        raise RowFailed(
            f"more than {FAILING_AT_MOST} records of the batch fail, which is more than on_row_error: quarantine "
            f"takes; the first that was found: {_describe(finder, *found[0])}"
        )
    if not found:
        among = _describe_parts(search.suspects, look.order.original)
        raise RowFailed(f"no record fails alone, so none is put in quarantine; it fails among those of {among}")
    return [one for one, _ in found]


class _Search:
    """``suspects`` are the parts of the batch among which the failing records are."""

    def __init__(self, look: BatchLook, parts: Sequence[Part], deadline: float) -> None:
        self.suspects = list(parts)
        self._look, self._deadline = look, deadline
        self._sources = list(dict.fromkeys(name for name, _ in parts))
        self._fault: BaseException | None = None

    def find_all(self) -> Iterator[tuple[FailingRecord, str | None]]:
        """Each record on which the query fails alone, with its text; equal ones of a file as one."""
        parts = self.suspects
        for number in _failing(0, len(parts), lambda low, high: self._fails(self._read(parts[low:high]))):
            yield from self._find_all_of(parts[number])

    def _find_all_of(self, part: Part) -> Iterator[tuple[FailingRecord, str | None]]:
        source = part[0]
        read = self._read([part])
        numbered = {_ROW: F.monotonically_increasing_id(), _KEY: record_key()}
        rows = read[source].where("NOT _malformed").withColumns(numbered)
        # Many small queries follow: without the plan that parsed the rows, Spark has little to think about in each.
        with self._classify_errors():
            rows = rows.localCheckpoint()
            frames = {name: frame.localCheckpoint() for name, frame in read.items() if name != source}
        found: list[str] = []

        def fails(low: int, high: int) -> bool:
            chosen = rows.where(F.col(_ROW).between(low, high - 1))
            if found:
                chosen = chosen.where(~F.col(_KEY).isin(found))
            return self._fails({**frames, source: chosen.drop(_ROW, _KEY)})

        def spans_fail(low: int, high: int) -> bool:
            return fails(spans[low][0], spans[high - 1][1] + 1)

        spans = self._spans(rows)
        if not spans:
            return
        with with_settings(self._look.spark, _NOT_ADAPTIVE):
            if fails(-1, 0):  # no row has such a number
                raise _NotByRecord
        for at in _failing(0, len(spans), spans_fail):
            for row in _failing(spans[at][0], spans[at][1] + 1, fails):
                assert self._fault is not None, "the row was seen to fail last"
                detail = f"the transform fails on it: {name_row_fault(self._fault, self._look.paths.job)}"
                with self._classify_errors():
                    [one] = rows.where(F.col(_ROW) == row).select("_position", "_raw", _KEY).collect()
                    count = rows.where(F.col(_KEY) == one[_KEY]).count()
                found.append(one[_KEY])
                digest = one[_KEY].rpartition(" ")[2]
                yield FailingRecord(source, one["_position"], digest, detail, count), one["_raw"]

    def _spans(self, rows: DataFrame) -> list[tuple[int, int]]:
        """The first and the last number of each of Spark's partitions."""
        by_partition = rows.groupBy(F.shiftright(_ROW, 33)).agg(F.min(_ROW).alias("low"), F.max(_ROW).alias("high"))
        with self._classify_errors():
            return sorted((one["low"], one["high"]) for one in by_partition.collect())

    def _fails(self, parsed: Mapping[str, DataFrame]) -> bool:
        if time.monotonic() > self._deadline:
            raise _Abandoned
        try:
            with self._classify_errors():
                self._look.rows(parsed).write.format("noop").mode("overwrite").save()
        except _RowFault as fault:
            self._fault = fault.__cause__
            return True
        return False

    def _read(self, parts: Sequence[Part]) -> dict[str, DataFrame]:
        taken = {name: [one for source, one in parts if source == name] for name in self._sources}
        return {name: self._look.read(name, Taken.join(some)) for name, some in taken.items()}

    @contextlib.contextmanager
    def _classify_errors(self) -> Iterator[None]:
        try:
            yield
        except SPARK_ERRORS as error:
            raise (_RowFault if is_row_fault(error) else _Abandoned) from error


@contextlib.contextmanager
def _searching(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel this thread's Spark jobs when the time is over; any error of the search becomes :class:`_Abandoned`.

    Within the context pyspark does not log each of the failures that are looked for.
    """
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
    except (_NotByRecord, _Abandoned):
        raise
    except Exception as error:  # no fault of the search may hide the one of the run
        raise _Abandoned from error
    finally:
        timer.cancel()
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it


def _failing(low: int, high: int, fails: Callable[[int, int], bool], *, seen: bool = False) -> Iterator[int]:
    """The numbers in [low, high) that fail alone. Each is given right after it was seen to fail, and what the caller
    does with it may change what fails. ``seen``: whether the whole was seen to fail."""
    if high - low < 2:
        if high > low and (seen or fails(low, high)):
            yield low
        return
    middle = (low + high) // 2
    if fails(low, middle):
        yield from _failing(low, middle, fails, seen=True)
        if fails(middle, high):
            yield from _failing(middle, high, fails, seen=True)
    else:
        yield from _failing(middle, high, fails)


def _describe(finder: PositionFinder, record: FailingRecord, raw: str | None) -> str:
    found = CapturedRecord(source=None, position=record.position, raw=raw, reason="", detail=None)
    [located] = finder.locate([found])
    return _describe_position(json.loads(str(located["position"])))


def _split(ranges: Ranges) -> list[Part]:
    parts: list[Part] = []
    for name, taken in ranges.items():
        parts += [(name, one) for one in taken.split()]
    return parts


def _describe_position(position: Mapping[str, object]) -> str:
    if "file" in position:
        unit = next((one for one in ("line", "row") if one in position), None)
        return str(position["file"]) + (f", {unit} {position[unit]}" if unit is not None else "")
    return f"topic {position['topic']}, partition {position['partition']}, offset {position['offset']}"


def _describe_parts(parts: Sequence[Part], original: Callable[[str], str]) -> str:
    names: list[str] = []
    for _, taken in parts:
        names += [original(link) for link in taken.links]
        names += [
            f"topic {topic}, partition {number}, offsets {one.begin} to {one.end - 1}"
            for (topic, number), one in (taken.offsets or {}).items()
        ]
    return list_first(names, _NAMED_AT_MOST, "; ")
