"""Deduplication across runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.streams.joins import event
from tests.support.streaming import make_streaming, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMED = {"event_time": "dt", "watermark": "30 minutes"}
SCHEMA = "id STRING, dt TIMESTAMP"


def _transform(call: str) -> str:
    return f"def transform(events):\n    return events.{call}\n"


def test_without_a_watermark_a_key_comes_once_for_ever(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(
        tmp_path, spark, "sources:\n" + source("events", SCHEMA), _transform("dropDuplicates(['id'])")
    )
    flow.offer("events", event("a", "10:00"), event("a", "10:01"), event("b", "10:00"))
    assert flow.run()["rows"]["duplicates"] == 1
    flow.offer("events", event("b", "23:00"), event("c", "10:00"))
    assert flow.run()["rows"]["duplicates"] == 1
    flow.offer("events", event("a", "10:00"), event("b", "10:00"), event("c", "10:00"))
    report = flow.run()
    assert (report["rows"]["duplicates"], report["rows"]["published"]) == (3, 0)
    assert sorted(flow.rows("id")) == [("a",), ("b",), ("c",)]


def test_with_the_event_time_among_the_keys(spark: SparkSession, tmp_path: Path) -> None:
    """A record that comes again after the watermark has passed it is late, not a duplicate."""
    spec = "sources:\n" + source("events", SCHEMA, **TIMED)
    flow = make_streaming(tmp_path, spark, spec, _transform("dropDuplicates(['id', 'dt'])"))
    flow.offer("events", event("a", "10:00"), event("a", "10:00"), event("a", "10:10"))
    assert flow.run()["rows"]["duplicates"] == 1
    flow.offer("events", event("a", "10:10"), event("b", "12:00"))
    assert flow.run()["rows"]["duplicates"] == 1
    flow.offer("events", event("a", "10:10"), event("c", "12:10"))
    report = flow.run()
    assert (report["rows"]["duplicates"], report["rows"]["late"]) == (0, 1)
    assert flow.aside("late") == [event("a", "10:10")]
    assert flow.rows("id") == [("a",), ("a",), ("b",), ("c",)]


def test_within_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """The same key with another time: dropped for as long as the watermark may be late."""
    spec = "sources:\n" + source("events", SCHEMA, **TIMED)
    flow = make_streaming(tmp_path, spark, spec, _transform("dropDuplicatesWithinWatermark(['id'])"))
    flow.offer("events", event("a", "10:00"))
    flow.run()
    flow.offer("events", event("a", "10:20"), event("b", "10:05"))
    assert flow.run()["rows"]["duplicates"] == 1
    flow.offer("events", event("c", "12:00"))
    flow.run()
    flow.offer("events", event("a", "12:01"))
    flow.run()
    assert flow.rows("id") == [("a",), ("a",), ("b",), ("c",)]


def test_a_rejected_row_behind_a_deduplication_keeps_its_record(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(
        tmp_path, spark, "sources:\n" + source("events", SCHEMA), _transform("dropDuplicates(['id'])")
    )
    flow.write(
        "expectations/flow.yaml",
        "name: flow\nexpectations:\n  - type: expect_column_values_to_not_match_regex\n    kwargs: {column: id, regex: "
        "'^bad'}\n    severity: critical\n    meta: {rule: id_form, on_failure: quarantine}\n",
    )
    for number in range(3):
        flow.offer("events", event(f"bad{number}", "10:00"), event(f"good{number}", "10:00"))
        flow.run()
    assert flow.aside("id_form") == [event(f"bad{number}", "10:00") for number in range(3)]
    assert flow.rows("id") == [("good0",), ("good1",), ("good2",)]
