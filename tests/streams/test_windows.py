"""Windows of the event time across runs: which are emitted when, which records are late, what is open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.streams.windows import SCHEMA, TIMED, TUMBLING, at, row, windows
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import DefectError, DisagreementError
from tidegate.runs.gate_steps import audit_run, publish_run
from tidegate.state.manifest import BatchManifest, write_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SLIDING = windows("F.window('dt', '10 minutes', '5 minutes')").replace("{kind}", "window")
SESSION = windows("F.session_window('dt', '5 minutes'), F.col('n').alias('key')").replace("{kind}", "session_window")


def make(root: Path, spark: SparkSession, transform: str, more: str = "") -> Streaming:
    return make_streaming(root, spark, "sources:\n" + source("trades", SCHEMA, **TIMED) + more, transform)


def test_windows_close_when_the_watermark_has_passed_them(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark, TUMBLING)
    flow.offer("trades", row("a", "10:01"), row("b", "10:09"), row("c", "10:11"))
    first = flow.run()
    assert first["outcome"] == "published" and first["rows"]["published"] == 0
    assert first["state"]["open_windows"] == [
        ["2026-01-01T10:00:00.000+00:00", "2026-01-01T10:10:00.000+00:00"],
        ["2026-01-01T10:10:00.000+00:00", "2026-01-01T10:20:00.000+00:00"],
    ]
    flow.offer("trades", row("d", "10:02"), row("e", "10:31"))  # d is late by no more than 20 minutes
    second = flow.run()
    assert second["watermark"] == "2026-01-01T10:11:00.000+00:00"
    assert second["rows"]["published"] == 1
    flow.expect("start end count sum", [(at("10:00"), at("10:10"), 3, 3)])
    flow.offer("trades", row("f", "11:00"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 3), (at("10:10"), 1), (at("10:30"), 1)])
    assert flow.run()["outcome"] == "nothing_new"


def test_late_records_are_told_apart_from_partly_late_ones(spark: SparkSession, tmp_path: Path) -> None:
    """Equal lines are records of their own; one whose later window is open is in the table with that."""
    flow = make(tmp_path, spark, SLIDING)
    flow.offer("trades", row("a", "10:01"), row("b", "10:40"))
    flow.run()
    flow.offer("trades", row("late", "10:09"), row("late", "10:09"), row("partly", "10:16"), row("c", "10:41"))
    report = flow.run()
    assert report["rows"] == {
        "read": 4, "malformed": 0, "entered": 4, "late": 2, "transformed": 0, "rejected": 0, "staged": 0
    } | {"published": 0, "superseded": 0, "duplicates": 0}  # fmt: skip
    assert (report["sources"]["trades"]["late"], report["sources"]["trades"]["partly_late"]) == (2, 1)
    assert flow.aside("late") == [row("late", "10:09")] * 2
    flow.offer("trades", row("d", "12:00"))
    flow.run()
    flow.expect(
        "start count",
        [(at("9:55"), 1), (at("10:00"), 1), (at("10:15"), 1), (at("10:35"), 2), (at("10:40"), 2)],
    )


_UNION = (
    "def transform(trades, more):\n    both = {both}\n"
    "    out = both.groupBy(F.window('dt', '10 minutes')).agg(F.count('*').alias('count'))\n"
    "    return out.select('window.start', 'count')\n"
)


def test_late_records_behind_a_union(spark: SparkSession, tmp_path: Path) -> None:
    """Each is late of its own source, also where the sources' columns are in another order."""
    both = source("trades", SCHEMA, **TIMED) + source("more", "n INT, dt TIMESTAMP, id STRING", **TIMED)
    transform = _UNION.replace("{both}", "more.select('dt', 'id').unionByName(trades.select('id', 'dt'))")
    flow = make_streaming(tmp_path, spark, f"sources:\n{both}", transform)
    flow.offer("trades", row("a", "10:01"), row("b", "11:00"))
    flow.offer("more", row("c", "10:02"), row("d", "11:01"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 2)])
    flow.offer("trades", row("late 1", "10:03"))
    flow.offer("more", row("late 2", "10:04"), row("e", "11:02"))
    report = flow.run()
    assert [report["sources"][name]["late"] for name in ("trades", "more")] == [1, 1]
    assert flow.aside("late") == [row("late 1", "10:03"), row("late 2", "10:04")]
    flow.offer("trades", row("f", "12:00"))
    flow.offer("more", row("g", "12:00"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 2), (at("11:00"), 3)])


def test_late_records_of_a_source_united_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    """A record that is used twice is late once."""
    transform = _UNION.replace(", more", "").replace("{both}", "trades.union(trades.where('n > 1'))")
    flow = make(tmp_path, spark, transform)
    flow.offer("trades", row("a", "10:01", 2), row("b", "11:00"))
    flow.run()
    flow.offer("trades", row("late", "10:03", 2), row("late", "10:03", 2), row("late", "10:04"))
    report = flow.run()
    assert report["rows"]["late"] == 3
    assert flow.aside("late") == [row("late", "10:03", 2), row("late", "10:03", 2), row("late", "10:04")]
    flow.offer("trades", row("c", "12:00", 3))
    flow.run()
    flow.expect("start count", [(at("10:00"), 2), (at("11:00"), 1)])


@pytest.mark.parametrize(
    "other",
    [
        "trades.groupBy(F.window('dt', '1 hour')).agg(F.count('*').alias('count')).select('window.start', 'count')",
        "trades.select(F.col('dt').alias('start'), F.lit(1).cast('long').alias('count'))",
    ],
    ids=["a longer window", "no state"],
)
def test_a_record_that_one_of_two_uses_dropped_is_partly_late(spark: SparkSession, tmp_path: Path, other: str) -> None:
    """It is in the table with the other use: in quarantine as well it would be doubled."""
    tumbling = "trades.groupBy(F.window('dt', '10 minutes')).agg(F.count('*').alias('count'))"
    body = f"def transform(trades):\n    short = {tumbling}.select('window.start', 'count')\n"
    flow = make(tmp_path, spark, f"{body}    return short.union({other})\n")
    flow.offer("trades", row("a", "10:01"), row("b", "10:50"))
    flow.run()  # the watermark: 10:30
    flow.offer("trades", row("late for ten minutes", "10:03"))
    report = flow.run()
    assert (report["rows"]["late"], report["sources"]["trades"]["partly_late"]) == (0, 1)
    assert flow.aside("late") == []
    flow.offer("trades", row("c", "13:00"))
    flow.run()
    if "hour" in other:
        flow.expect("start count", [(at("10:00"), 1), (at("10:50"), 1), (at("10:00"), 3)])
    else:
        times = [(at(clock), 1) for clock in ("10:01", "10:50", "10:03", "13:00")]
        flow.expect("start count", [(at("10:00"), 1), (at("10:50"), 1), *times])


def test_late_records_that_cannot_be_told_are_said(spark: SparkSession, tmp_path: Path) -> None:
    transform = _UNION.replace(", more", "").replace("{both}", "trades.repartition(2)")
    flow = make(tmp_path, spark, transform)
    flow.offer("trades", row("a", "10:01"), row("b", "11:00"))
    flow.run()
    flow.offer("trades", row("late", "10:03"))
    report = flow.run()
    assert report["rows"]["late"] == 0
    assert [note for note in report["notes"] if note.startswith("1 changes of the state came too late")]


def test_many_late_records(spark: SparkSession, tmp_path: Path) -> None:
    """More than travel through the driver at once are written by Spark."""
    flow = make(tmp_path, spark, TUMBLING)
    flow.offer("trades", row("a", "12:00"))
    flow.run()
    flow.offer("trades", *(row(f"late{number}", "10:00") for number in range(5000)), row("b", "12:01"))
    assert flow.run()["rows"]["late"] == 5000
    assert {record["id"] for record in flow.aside("late")} == {f"late{number}" for number in range(5000)}
    flow.offer("trades", row("c", "13:00"))
    flow.run()
    flow.expect("start count", [(at("12:00"), 2)])


def test_session_windows(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark, SESSION)
    flow.offer("trades", row("a", "10:00"), row("b", "10:04"))
    flow.run()
    flow.offer("trades", row("c", "10:08"), row("d", "10:40"))  # c goes on with the session of the first run
    flow.run()
    flow.expect("start end count", [(at("10:00"), at("10:13"), 3)])
    flow.offer("trades", row("late", "10:11"), row("e", "11:10"))
    assert flow.run()["rows"]["late"] == 1
    flow.expect("start end count", [(at("10:00"), at("10:13"), 3), (at("10:40"), at("10:45"), 1)])


def test_a_record_without_an_event_time_is_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's windows drop it in silence."""
    flow = make(tmp_path, spark, TUMBLING)
    flow.offer("trades", row("a", "10:00"), {"id": "void", "n": 1})
    assert flow.run()["rows"]["malformed"] == 1
    assert flow.aside("malformed") == [{"id": "void", "n": 1}]


def test_the_last_windows_close_at_the_end_of_each_run(spark: SparkSession, tmp_path: Path) -> None:
    """And what comes later for a closed one is late."""
    flow = make(tmp_path, spark, TUMBLING, "close_windows: at_end\n")
    flow.offer("trades", row("a", "10:01"), row("b", "10:11"))
    report = flow.run()
    assert report["state"]["open_windows"] == [] and report["rows"]["published"] == 2
    flow.expect("start count", [(at("10:00"), 1), (at("10:10"), 1)])
    flow.offer("trades", row("late", "10:12"), row("c", "10:21"))
    assert flow.run()["rows"]["late"] == 1
    flow.expect("start count", [(at("10:00"), 1), (at("10:10"), 1), (at("10:20"), 1)])
    flow.offer("trades", row("d", "10:31"))
    flow.run()
    flow.expect("start count", [(at(f"10:{minute:02d}"), 1) for minute in (0, 10, 20, 30)])


def test_the_last_windows_close_when_nothing_has_come_for_a_while(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = make(tmp_path, spark, TUMBLING, "close_windows: {when: 1 hour}\n")
    flow.offer("trades", row("a", "10:01"), row("b", "10:11"))
    flow.run()
    assert flow.run()["outcome"] == "nothing_new"
    import time

    later = time.time() + 3601
    monkeypatch.setattr("tidegate.runs.drain.time.time", lambda: later)
    report = flow.run()
    assert (report["outcome"], report["rows"]["read"], report["rows"]["published"]) == ("published", 0, 2)
    flow.expect("start count", [(at("10:00"), 1), (at("10:10"), 1)])
    assert flow.run()["outcome"] == "nothing_new"
    flow.offer("trades", row("late", "10:12"), row("c", "12:00"))
    assert flow.run()["rows"]["late"] == 1


_WINDOW_SQL = "SELECT window.start AS start, count(*) AS count FROM {} GROUP BY window(dt, '10 minutes')"


@pytest.mark.parametrize(
    "sql",
    [
        _WINDOW_SQL.format("trades"),
        f"WITH some AS (SELECT dt FROM trades WHERE n > 0) {_WINDOW_SQL.format('some')}",
        f"WITH a AS (SELECT dt FROM trades WHERE n > 0), b AS (SELECT dt FROM trades WHERE n < 1), "
        f"c AS (SELECT * FROM a UNION ALL SELECT * FROM b) {_WINDOW_SQL.format('c')}",
    ],
    ids=["plain", "with", "with, twice"],
)
def test_sql_gives_the_same(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    spec = "transform: transform.sql\nsources:\n" + source("trades", SCHEMA, **TIMED)
    flow = make_streaming(tmp_path, spark, spec)
    flow.write("jobs/flow/transform.sql", sql)
    flow.offer("trades", row("a", "10:01"), row("b", "10:09"))
    flow.run()
    flow.offer("trades", row("c", "10:31"))
    flow.run()
    flow.offer("trades", row("late", "10:01"), row("d", "10:51"))
    assert flow.run()["rows"]["late"] == 1
    flow.expect("start count", [(at("10:00"), 2)])
    flow.offer("trades", row("e", "12:00"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 2), (at("10:30"), 1), (at("10:50"), 1)])


def test_every_batch_leaves_its_progress(spark: SparkSession, tmp_path: Path) -> None:
    import json

    flow = make(tmp_path, spark, TUMBLING)
    flow.offer("trades", row("a", "10:01"))
    flow.run("one")
    events = [json.loads(line) for line in (flow.state / "runs/one.progress.jsonl").read_text().splitlines()]
    session = events.pop(0)
    assert session["event"] == "session" and session["application"] == spark.sparkContext.applicationId
    for kind in ("staged", "progress"):
        assert {event["batchId"] for event in events if event["event"] == kind} == {0, 1}
    assert [event["rows"] for event in events if event["event"] == "staged"] == [1, 0]
    assert events[0]["stateOperators"][0]["numRowsTotal"] == 1


@contextlib.contextmanager
def stopped_before_the_commit() -> Iterator[None]:
    """A run in this block ends when it has written a manifest: Spark does not commit the batch."""

    def write_and_stop(path: Path, manifest: BatchManifest) -> None:
        assert write_manifest(path, manifest)
        raise RuntimeError("stopped here")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(DefectError, match="stopped here"):
        patch.setattr("tidegate.spark.ingest.stage.write_manifest", write_and_stop)
        yield


def test_a_batch_that_spark_did_not_commit_is_computed_again(spark: SparkSession, tmp_path: Path) -> None:
    """Though it is staged and nothing is new: else its windows would stay open, and its input would be forgotten."""
    flow = make(tmp_path, spark, TUMBLING)
    flow.offer("trades", row("a", "10:01"))
    flow.run()
    flow.offer("trades", row("b", "10:02"), row("c", "10:41"))
    with stopped_before_the_commit():
        flow.run("second")
    assert flow.run("second")["rows"]["published"] == 1
    flow.expect("start count", [(at("10:00"), 2)])
    assert flow.run()["outcome"] == "nothing_new"


def test_its_input_stays_when_it_is_published_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """By the audit and publish steps alone."""
    flow = make(tmp_path, spark, TUMBLING)
    flow.offer("trades", row("a", "10:01"))
    flow.run()
    flow.offer("trades", row("b", "10:02"), row("c", "10:41"))
    with stopped_before_the_commit():
        flow.run("second")
    audit_run(flow.project, flow.name, "second")
    assert publish_run(flow.project, flow.name, "second")["outcome"] == "published"
    link = next((flow.state / "intake/trades").iterdir())
    flow.offer("trades", row("d", "10:42"))
    kept = link.rename(tmp_path / "kept")
    with pytest.raises(DisagreementError, match="1 files of source trades from which it is computed are gone"):
        flow.run()
    kept.rename(link)
    flow.run()
    flow.expect("start count", [(at("10:00"), 2)])
    flow.offer("trades", row("e", "12:00"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 2), (at("10:40"), 2)])
    assert list((flow.state / "intake").rglob("*.json")) == []
