"""The transforms of the examples with memory, on this Spark, against what plain Python says each run must come to.

Here Spark is driven as a run of the product drives it (good records, watermark, transform, AvailableNow, one checkpoint
over all runs), with nothing of the product between, but its parser and its suites. Kafka's topics are files of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyspark.sql import functions as F

from tests.support.examples import SILENT_TOPICS
from tidegate.examples import (
    make_ad_clicks,
    make_bitcoin_prices,
    make_device_sessions,
    make_students,
    make_word_count,
)
from tidegate.examples.outcome import Outcome, Row, dump
from tidegate.quality.row_rules import row_rules
from tidegate.quality.suite import load_suite
from tidegate.sources.files.forms import form_of_texts
from tidegate.spark.ingest.apply import TransformContext, apply_transform
from tidegate.spark.ingest.plan import REJECTED, flag_rules
from tidegate.spark.reading.parts import parse_texts
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import load_project
from tidegate.spec.source_checks import list_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Pipeline:
    """One of the repository's pipelines, run by Spark alone, with its sources as folders under ``folder``."""

    spark: SparkSession
    name: str
    folder: Path
    progress: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = (ROOT / "jobs" / self.name / "pipeline.yaml").read_text()
        self.spec = PipelineSpec.read(yaml.safe_load(text))
        self.rules = row_rules(load_suite(load_project(ROOT), self.name))
        for name in self.spec.sources:
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def offer(self, source: str, records: Iterable[str | bytes]) -> None:
        """A new file of records."""
        number = len(list((self.folder / source).iterdir()))
        texts = (text.encode() if isinstance(text, str) else text for text in records)
        (self.folder / source / f"{number:05d}").write_bytes(b"".join(text + b"\n" for text in texts))

    def run(self) -> tuple[list[Row], list[Row]]:
        """One run over what was offered since the last: the rows that pass the suite's row rules, and those that do
        not."""
        frames = {name: self.read(name, source) for name, source in self.spec.sources.items()}
        context = TransformContext(self.name, "run")
        job, spec = ROOT / "jobs" / self.name, self.spec
        out = apply_transform(self.spark, job, spec.transform, frames, context, spec.output_mode)
        passed: list[Row] = []
        rejected: list[Row] = []

        def collect(batch: DataFrame, _batch_id: int) -> None:
            for *row, is_rejected in batch.select(*out.columns, REJECTED).collect():
                (rejected if is_rejected else passed).append(tuple(row))

        query = (
            flag_rules(out, self.rules)
            .writeStream.outputMode(self.spec.output_mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(collect)
            .start()
        )
        query.awaitTermination()
        self.progress = query.recentProgress
        return passed, rejected

    def count_dropped(self) -> int:
        """State updates that the last run dropped as late."""
        return sum(state["numRowsDroppedByWatermark"] for one in self.progress for state in one["stateOperators"])

    def read(self, name: str, source: Any) -> DataFrame:
        """The frame of a source as a transform gets it."""
        folder = str(self.folder / name)
        if source.static:
            return self.spark.read.schema(source.schema).options(**source.options).format(source.format).load(folder)
        lines = self.spark.readStream.name(name).text(folder)
        texts = lines.select(F.col("value").alias("_raw"), F.lit("").alias("_position"))
        parsed = parse_texts(texts, form_of_texts(source))
        good = parsed.where("NOT _malformed").select(*(column.name for column in list_columns(source) or ()))
        if source.watermark is None:
            return good
        return good.withWatermark(source.event_time, f"{source.watermark:.0f} seconds")


def in_utc(rows: Iterable[Row]) -> list[Row]:
    """Rows that compare by instant, in whatever zone a time is told; sorted, also where a value is None."""
    return sorted((tuple(v.timestamp() if hasattr(v, "timestamp") else v for v in row) for row in rows), key=repr)


@pytest.fixture(scope="module", autouse=True)
def end_state_stores(spark: SparkSession) -> Iterator[None]:
    """Their maintenance, once a minute, would speak of a session that has ended."""
    yield
    package = spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state
    getattr(getattr(package, "StateStore$"), "MODULE$").stop()


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Callable[[str], Pipeline]:
    return lambda name: Pipeline(spark, name, tmp_path / name)


def check(pipeline: Pipeline, outcome: Outcome) -> None:
    """One run gives what it must."""
    passed, rejected = pipeline.run()
    assert in_utc(passed) == in_utc(outcome.rows)
    assert in_utc(rejected) == in_utc(row for rows in outcome.rejected.values() for row in rows)


def texts_of(records: Sequence[tuple[Any, Any]]) -> list[Any]:
    return [text for text, _ in records if text is not None]


def test_bitcoin_prices_by_delivery(start: Callable[[str], Pipeline]) -> None:
    deliveries = [list(make_bitcoin_prices.iter_trades(number, 120, faults=0.05)) for number in range(1, 5)]
    outcomes = make_bitcoin_prices.list_outcomes(deliveries)
    assert [bool(outcome.rejected) for outcome in outcomes] == [False, True, False, False]
    pipeline = start("bitcoin_prices")

    for records, outcome in zip(deliveries, outcomes, strict=True):
        pipeline.offer("trades", texts_of(records))
        check(pipeline, outcome)
        assert pipeline.progress[-1]["eventTime"]["watermark"] == make_bitcoin_prices.show_time(outcome.watermark)
        # What Spark counts are dropped partial sums, so it says that there are late records, not how many.
        assert bool(pipeline.count_dropped()) == bool(outcome.late or outcome.partly_late)


def test_a_window_without_any_amount_has_no_average_and_is_set_aside(start: Callable[[str], Pipeline]) -> None:
    pipeline = start("bitcoin_prices")
    trades = [("00:01:00", 0, 5.0), ("00:10:00", 2, 3.0), ("00:11:00", 1, 6.0), ("01:00:00", 1, 1.0)]
    pipeline.offer("trades", (dump({"dt": f"2026-03-02T{at}Z", "amount": n, "price": p}) for at, n, p in trades))

    passed, rejected = pipeline.run()
    assert sorted(row[2:] for row in passed) == [(4.0, 2, 3), (4.0, 2, 3)]
    assert [row[2:] for row in rejected] == [(None, 1, 0), (None, 1, 0)]


def test_word_count_gives_the_words_that_changed(start: Callable[[str], Pipeline]) -> None:
    deliveries = [list(make_word_count.iter_lines(number, 40, seed=4, faults=0.2)) for number in range(1, 5)]
    outcomes = make_word_count.list_outcomes(deliveries)
    assert any(outcome.rejected for outcome in outcomes)
    assert {row[0] for row in outcomes[1].rows} != {row[0] for row in outcomes[2].rows}
    pipeline = start("word_count")

    for lines, outcome in zip(deliveries, outcomes, strict=True):
        pipeline.offer("lines", texts_of(lines))
        check(pipeline, outcome)


def test_students_have_the_class_of_the_day(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(spark, "students", tmp_path)
    for delivery in range(1, 5):
        outcome = make_students.make_students(
            tmp_path / "students",
            tmp_path / "classes",
            delivery,
            rows=6 if delivery == 1 else 40,
            faults=0.1 * delivery - 0.1,
        )
        check(pipeline, outcome)
        michael = {row[3] for row in outcome.rows if row[0] == "Michael"}
        assert michael == ({None} if delivery < 3 else {"class1"})


def test_ad_clicks_by_delivery(start: Callable[[str], Pipeline]) -> None:
    deliveries = make_ad_clicks.make_deliveries(5, 60, faults=0.05)
    outcomes = make_ad_clicks.list_outcomes(deliveries)
    assert all(outcome.late for outcome in outcomes[2:]) and any(outcome.rejected for outcome in outcomes)
    pipeline = start("ad_clicks")

    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        pipeline.offer("impressions", texts_of(delivery.impressions))
        pipeline.offer("clicks", texts_of(delivery.clicks))
        check(pipeline, outcome)
        assert pipeline.progress[-1]["eventTime"]["watermark"] == make_ad_clicks.show_time(outcome.watermark)
        assert pipeline.count_dropped() == len(outcome.late)


def test_plain_spark_forgets_where_a_silent_topic_stood(start: Callable[[str], Pipeline]) -> None:
    """Why the expected outcomes are not plain Spark's here; tests/streams/test_examples.py runs the same deliveries
    through tidegate."""
    outcomes = make_ad_clicks.list_outcomes(SILENT_TOPICS)
    pipeline = start("ad_clicks")
    hours, rows = [], []
    for delivery in SILENT_TOPICS:
        for source, records in (("impressions", delivery.impressions), ("clicks", delivery.clicks)):
            if records:
                pipeline.offer(source, texts_of(records))
        rows.append(len(pipeline.run()[0]))
        hours.append(make_ad_clicks.read_time(pipeline.progress[-1]["eventTime"]["watermark"]).hour)

    assert [outcome.watermark.hour for outcome in outcomes if outcome.watermark] == [0, 10, 10, 14, 14]
    assert hours == [0, 10, 10, 10, 11]
    assert [len(outcome.rows) for outcome in outcomes] == [0, 1, 0, 2, 0]
    assert rows == [0, 1, 0, 0, 1]


def test_device_sessions_by_delivery(start: Callable[[str], Pipeline]) -> None:
    deliveries = make_device_sessions.make_deliveries(4, 80, faults=0.08)
    outcomes = make_device_sessions.list_outcomes(deliveries)
    assert all(outcome.late for outcome in outcomes[1:]) and any(outcome.rejected for outcome in outcomes)
    pipeline = start("device_sessions")

    for records, outcome in zip(deliveries, outcomes, strict=True):
        pipeline.offer("events", texts_of(records))
        check(pipeline, outcome)
        assert pipeline.progress[-1]["eventTime"]["watermark"] == make_device_sessions.show_time(outcome.watermark)
        assert pipeline.count_dropped() == len(outcome.late)


def test_a_session_that_ends_as_the_watermark_comes_waits_beside_one_that_is_over(
    start: Callable[[str], Pipeline],
) -> None:
    # 30 minutes after 09:30 the first run's watermark stands; a moment later is the first event that is no longer late.
    days = ["09:00:00.000", "09:30:00.000", "10:10:00.000"], ["10:00:00.001", "10:40:00.000"]
    deliveries = [
        [(dump({"device": "d", "event_time": f"2026-03-02T{time}Z", "kind": "tap"}), None) for time in times]
        for times in days
    ]
    outcomes = make_device_sessions.list_outcomes(deliveries)
    assert [[row[3] for row in outcome.rows] for outcome in outcomes] == [[1], [1]]
    pipeline = start("device_sessions")

    for records, outcome in zip(deliveries, outcomes, strict=True):
        pipeline.offer("events", texts_of(records))
        check(pipeline, outcome)


@pytest.mark.parametrize("name", ["bitcoin_prices", "word_count", "students", "ad_clicks", "device_sessions"])
def test_tables_hold_what_every_reader_can_read(
    spark: SparkSession, start: Callable[[str], Pipeline], name: str
) -> None:
    pipeline = start(name)
    frames = {source: pipeline.read(source, spec) for source, spec in pipeline.spec.sources.items()}
    context = TransformContext(name, "run")
    job, spec = ROOT / "jobs" / name, pipeline.spec
    out = apply_transform(spark, job, spec.transform, frames, context, spec.output_mode)
    plain = {"string", "bigint", "int", "double", "timestamp", "date", "boolean"}
    assert {type_ for _, type_ in out.dtypes} <= plain
    suite = load_suite(load_project(ROOT), name)
    assert suite is not None and set(suite.columns) <= set(out.columns)
    assert set(pipeline.spec.table.keys) <= set(out.columns)
