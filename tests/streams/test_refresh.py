"""A whole table rebuilt beside the old one: rows and quarantine are what a first run would make of all records."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.streams.windows import SCHEMA, TIMED, row
from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.backfill.command import look_at_backfill, refresh_table
from tidegate.backfill.held import decide_backfill
from tidegate.errors import HeldError, SourceLostError, UsageError
from tidegate.run.steps import decide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = "quality: {max_quarantine_share: 1}\nsources:\n" + source("events", "id STRING, n INT")
SUITE = """\
name: flow
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: n, max_value: MOST}
    severity: critical
    meta: {rule: not_too_large, on_failure: quarantine}
  - type: expect_column_values_to_be_unique
    kwargs: {column: id}
    severity: critical
    meta: {rule: id_unique}
"""


def make(root: Path, spark: SparkSession) -> Streaming:
    flow = make_streaming(root, spark, SPEC)
    set_most(flow, 10)
    return flow


def set_most(flow: Streaming, most: int) -> None:
    flow.write("expectations/flow.yaml", SUITE.replace("MOST", str(most)))


def set_schema(flow: Streaming, schema: str) -> None:
    spec = SPEC.replace("id STRING, n INT", schema)
    flow.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\n{spec}")


def refresh(flow: Streaming, run_id: str = "fresh") -> dict[str, Any]:
    return dict(refresh_table(flow.project, flow.name, run_id, submit=in_session(flow.spark)))


def test_table_and_quarantine_are_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", {"id": "a", "n": 1}, {"id": "b", "n": 50}, {"id": "c", "n": 3_000_000_000})
    flow.run()
    flow.offer("events", {"id": "d", "n": 7}, {"id": "e", "n": "many"})
    flow.run()
    flow.expect("id", [("a",), ("d",)])
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 2, "not_too_large": 1}
    set_most(flow, 5)
    report = refresh(flow)
    assert (report["mode"], report["outcome"], report["rebuilt"]) == ("refresh", "published", ["the whole table"])
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["rejected"]) == (5, 2, 2)
    flow.expect("id", [("a",)])
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 2, "not_too_large": 2}
    assert refresh(flow) == report
    set_most(flow, 100)
    refresh(flow, "again")
    flow.expect("id n", [("a", 1), ("b", 50), ("d", 7)])
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 2}
    flow.offer("events", {"id": "f", "n": 8})
    flow.run()  # live runs go on from where they were
    flow.expect("id", [("a",), ("b",), ("d",), ("f",)])


def test_beside_what_is_held_or_was_discarded(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", {"id": "a", "n": 1})
    flow.run()
    flow.offer("events", {"id": "twice", "n": 2}, {"id": "twice", "n": 2})
    with pytest.raises(HeldError):
        flow.run("bad")
    refresh(flow)
    flow.expect("id", [("a",)])
    decide(flow.project, "flow", "bad", decision="discard", reason="doubled by the source")
    report = refresh(flow, "again")
    assert any("2 records of discarded increments" in note for note in report["notes"])
    flow.expect("id", [("a",)])


def test_a_held_refresh_and_its_release(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", {"id": "a", "n": 1})
    flow.run()
    flow.offer("events", {"id": "a", "n": 2})
    flow.run()
    with pytest.raises(HeldError) as held:  # both increments together have an id twice
        refresh(flow)
    assert held.value.code == "BACKFILL_HELD"
    flow.expect("id n", [("a", 1), ("a", 2)])
    report = decide_backfill(flow.project, "flow", "fresh", decision="release", reason="known")
    assert (report["outcome"], report["mode"]) == ("published", "refresh")
    flow.expect("id n", [("a", 1), ("a", 2)])


def test_what_cannot_be_refreshed(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    with pytest.raises(UsageError) as no_table:
        refresh(flow)
    assert no_table.value.code == "BACKFILL_NO_TABLE"
    first = flow.offer("events", {"id": "a", "n": 1})
    flow.run()
    first.unlink()
    looked = look_at_backfill(flow.project, "flow", None)
    assert looked["hindrance"] is not None and looked["hindrance"]["code"] == "BACKFILL_GONE"
    with pytest.raises(SourceLostError):
        refresh(flow)
    flow.expect("id", [("a",)])


# -- queries that keep state: what they keep goes on with the rows --

TIMED_SPEC = "sources:\n" + source("trades", SCHEMA, **TIMED)
BY_WINDOW = """\
def transform(trades):
    w = F.window('dt', '10 minutes')
    out = trades.where("KEPT").groupBy(w).agg(F.count('*').alias('count'), F.sum('n').alias('sum'))
    return out.select('window.start', 'window.end', 'count', 'sum')
"""


def windowed(
    root: Path, spark: SparkSession, mode: str = "", most: str = "n < 100"
) -> tuple[Streaming, list[dict[str, Any]]]:
    """A pipeline that sums by windows of 10 minutes, and what was offered to it."""
    flow = make_streaming(root, spark, mode + TIMED_SPEC, BY_WINDOW.replace("KEPT", most))
    return flow, []


def keep(flow: Streaming, kept: str) -> None:
    """Another transform."""
    path = flow.root / "jobs/flow/transform.py"
    path.write_text(re.sub(r'where\(".*?"\)', f'where("{kept}")', path.read_text()))


def offer(flow: Streaming, offered: list[dict[str, Any]], *rows: dict[str, Any]) -> None:
    flow.offer("trades", *rows)
    offered += rows


def by_window(offered: list[dict[str, Any]], kept: Callable[[int], bool]) -> dict[datetime, tuple[Any, ...]]:
    """The truth: {start: row} of every window."""
    found: dict[datetime, list[int]] = {}
    for one in offered:
        moment = datetime.fromisoformat(one["dt"])
        start = moment.replace(minute=moment.minute // 10 * 10)
        if kept(one["n"]):
            found.setdefault(start, []).append(one["n"])
    return {
        start: (start, start + timedelta(minutes=10), len(some), sum(some)) for start, some in sorted(found.items())
    }


def closed(offered: list[dict[str, Any]], kept: Callable[[int], bool]) -> list[tuple[Any, ...]]:
    """Rows of the windows that are closed by the watermark that all of these records give."""
    watermark = max(datetime.fromisoformat(one["dt"]) for one in offered if kept(one["n"])) - timedelta(minutes=20)
    return [row for row in by_window(offered, kept).values() if row[1] <= watermark]


def test_windows_go_on_with_their_state(spark: SparkSession, tmp_path: Path) -> None:
    flow, offered = windowed(tmp_path, spark)
    offer(flow, offered, row("a", "12:01", 1), row("b", "12:02", 60), row("c", "12:13", 2))
    flow.run()
    offer(flow, offered, row("d", "12:41", 4), row("e", "12:42", 70))
    flow.run()
    columns = "start end count sum"
    flow.expect(columns, closed(offered, lambda n: n < 100))
    keep(flow, "n < 50")
    offer(flow, offered, row("f", "12:44", 8))  # arrives before the refresh, and is the next run's
    report = refresh(flow)
    taken = offered[:-1]
    assert (report["outcome"], report["rows"]["read"]) == ("published", 5)
    flow.expect(columns, closed(taken, lambda n: n < 50))
    offer(flow, offered, row("g", "13:05", 16))
    flow.run()  # closes windows of which a part was read by the refresh, and a part since
    flow.expect(columns, closed(offered, lambda n: n < 50))
    offer(flow, offered, row("h", "14:05", 32))
    flow.run()
    flow.expect(columns, closed(offered, lambda n: n < 50))
    assert len(flow.rows("start")) == 4 and not flow.quarantined()
    assert refresh(flow, "again")["outcome"] == "published"
    flow.expect(columns, closed(offered, lambda n: n < 50))
    offer(flow, offered, row("i", "15:05", 1))
    flow.run()
    flow.expect(columns, closed(offered, lambda n: n < 50))


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_table_whose_rows_replace_others(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    keys = "output_mode: update\ntable: {keys: [start]}\n" if mode == "update" else "output_mode: complete\n"
    flow, offered = windowed(tmp_path, spark, keys)
    offer(flow, offered, row("a", "12:01", 1), row("b", "12:02", 60))
    flow.run()
    offer(flow, offered, row("c", "12:03", 2), row("d", "12:14", 4))
    flow.run()
    columns = "start end count sum"
    flow.expect(columns, by_window(offered, lambda n: n < 100).values())
    keep(flow, "n < 50")
    report = refresh(flow)
    assert report["outcome"] == "published"
    flow.expect(columns, by_window(offered, lambda n: n < 50).values())
    for number in (8, 16):
        offer(flow, offered, row(f"e{number}", "12:05", number))
        flow.run()
        flow.expect(columns, by_window(offered, lambda n: n < 50).values())
