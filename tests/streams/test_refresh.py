"""A whole table rebuilt beside the old one: rows and quarantine are what a first run would make of all records."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.streams.joins import TIMED as JOIN_TIMED
from tests.streams.joins import event
from tests.streams.windows import SCHEMA, TIMED, at, row
from tests.support.project import in_session
from tests.support.readers import read_agreed
from tests.support.storage_calls import KilledHere, kill
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import HeldError, SourceLostError, UsageError
from tidegate.rework.backfill.command import backfill_table, preview_backfill, preview_refresh, refresh_table
from tidegate.rework.backfill.held import decide_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.decide import decide
from tidegate.runs.reports.verdicts import Answer
from tidegate.runs.rollback import roll_back

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
UNIQUE = """\
name: flow
expectations:
  - {type: expect_column_values_to_be_unique, kwargs: {column: n}, severity: critical, meta: {rule: n_unique}}
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


def refresh(flow: Streaming, run_id: str = "fresh", **more: Any) -> dict[str, Any]:
    return dict(refresh_table(flow.project, flow.name, run_id, submit=in_session(flow.spark), **more))


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
    decide(flow.project, "flow", "bad", Answer("discard", "doubled by the source"))
    report = refresh(flow, "again")
    assert any("2 records of excluded increments" in note for note in report["notes"])
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
    report = decide_backfill(flow.project, "flow", "fresh", Answer("release", "known"))
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
    looked = preview_backfill(flow.project, "flow", None)
    assert looked["hindrance"] is not None and looked["hindrance"]["code"] == "BACKFILL_GONE"
    with pytest.raises(SourceLostError):
        refresh(flow)
    flow.expect("id", [("a",)])


def test_the_older_part_stays_where_its_files_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    first = flow.offer("events", {"id": "a", "n": 1}, {"id": "b", "n": 50}, {"id": "c", "n": "many"})
    flow.run()
    flow.offer("events", {"id": "d", "n": 7}, {"id": "e", "n": "many"})
    flow.run()
    grown = flow.offer("events", {"id": "f", "n": 60}, {"id": "g", "n": 6})
    flow.run()
    before = {path: path.read_bytes() for path in flow.table.glob("*.parquet")}
    first.unlink()
    with grown.open("a") as file:
        file.write('{"id": "not taken", "n": 1}\n')
    with pytest.raises(SourceLostError) as gone:
        refresh(flow)
    assert gone.value.code == "BACKFILL_GONE" and "`tidegate refresh flow --keep-older`" in str(gone.value.fix)
    set_most(flow, 5)
    looked = preview_backfill(flow.project, "flow", None, keeps_older=True)
    older = looked["intervals"][0]["older"]
    assert looked["hindrance"] is None and older is not None and (older["rows"], older["files"]) == (1, 1)
    report = refresh(flow, keeps_older=True)
    assert (report["rebuilt"], report["rows"]["read"]) == (["the table, but for its older part"], 4)
    assert any("1 row in 1 file" in note and "0001.json is gone" in note for note in report["notes"])
    flow.expect("id", [("a",)])
    assert [path for path in flow.table.glob("*.parquet") if before.get(path) == path.read_bytes()]
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 2, "not_too_large": 4}
    set_most(flow, 100)
    flow.offer("events", {"id": "h", "n": 8})
    flow.run()
    refresh(flow, "again", keeps_older=True)
    flow.expect("id n", [("a", 1), ("d", 7), ("f", 60), ("g", 6), ("h", 8)])
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 2, "not_too_large": 1}
    flow.run()
    assert len(flow.rows("id")) == 5


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


def test_state_does_not_go_without_the_older_records(spark: SparkSession, tmp_path: Path) -> None:
    flow, offered = windowed(tmp_path, spark)
    offer(flow, offered, row("a", "12:01", 1), row("b", "13:02", 60))
    flow.run()
    with pytest.raises(UsageError) as refused:
        refresh(flow, keeps_older=True)
    assert refused.value.code == "REFRESH_KEEPS_STATE"
    flow.expect("start end count sum", closed(offered, lambda n: n < 100))


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.runs.recovery.side_jobs.write_birth", lambda *a: kill("birth"))
        with pytest.raises(KilledHere):
            refresh(flow)
    flow.run()  # finishes it: the version was committed
    flow.expect(columns, by_window(offered, lambda n: n < 50).values())
    assert refresh(flow)["outcome"] == "published"
    for number in (8, 16):
        offer(flow, offered, row(f"e{number}", "12:05", number))
        flow.run()
        flow.expect(columns, by_window(offered, lambda n: n < 50).values())


CLICKS, VIEWS = "id STRING, dt TIMESTAMP", "id STRING, dt TIMESTAMP, n INT"
JOINED = "sources:\n" + source("clicks", CLICKS, **JOIN_TIMED) + source("views", VIEWS, **JOIN_TIMED)
JOIN = """\
def transform(clicks, views):
    near = F.expr('c.id = v.id AND c.dt BETWEEN v.dt AND v.dt + INTERVAL 10 MINUTES')
    out = clicks.alias('c').join(views.alias('v').where("n < 100"), near, 'rightOuter')
    return out.select('v.id', 'n', F.col('c.dt').alias('at'))
"""


def view(name: str, clock: str, n: int) -> dict[str, Any]:
    return {**event(name, clock), "n": n}


def test_a_join_goes_on_with_what_waits_for_a_partner(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, JOINED, JOIN)
    flow.offer("views", view("a", "12:00", 1), view("b", "12:01", 2), view("c", "12:02", 60))
    flow.offer("clicks", event("a", "12:05"))
    flow.run()
    flow.offer("views", view("d", "13:00", 3), view("e", "13:00", 70))
    flow.offer("clicks", event("z", "13:00"))
    flow.run()  # closes what was at noon
    assert flow.rows("id", "n") == [("a", 1), ("b", 2), ("c", 60)]
    keep(flow, "n < 50")
    flow.offer("clicks", event("d", "13:03"))  # arrives before the refresh, and is the next run's
    assert refresh(flow)["rows"]["read"] == 7
    flow.expect("id n at", [("a", 1, at("12:05")), ("b", 2, None)])
    flow.run()  # a view that the refresh has read, a click that it has not
    flow.expect("id n at", [("a", 1, at("12:05")), ("b", 2, None), ("d", 3, at("13:03"))])
    flow.offer("views", view("f", "14:30", 4))
    flow.offer("clicks", event("y", "14:30"))
    flow.run()
    flow.expect("id n at", [("a", 1, at("12:05")), ("b", 2, None), ("d", 3, at("13:03"))])
    flow.offer("views", view("g", "16:00", 5))
    flow.offer("clicks", event("f", "14:35"), event("x", "16:00"))
    flow.run()
    flow.expect("id n at", [("a", 1, at("12:05")), ("b", 2, None), ("d", 3, at("13:03")), ("f", 4, at("14:35"))])


def test_late_records_and_batches_by_the_limits_of_the_spec(spark: SparkSession, tmp_path: Path) -> None:
    """What comes late in the refresh goes to quarantine, as in a run; what is not late this time leaves it."""
    spec = "sources:\n" + source("trades", SCHEMA, **TIMED, options={"maxFilesPerTrigger": 1})
    flow, offered = make_streaming(tmp_path, spark, spec, BY_WINDOW.replace("KEPT", "n < 100")), list[dict[str, Any]]()
    offer(flow, offered, row("a", "12:01", 1))
    flow.run()
    offer(flow, offered, row("b", "13:01", 2))
    offer(flow, offered, row("c", "13:02", 16))
    flow.run()
    late = row("late", "12:02", 4)
    flow.offer("trades", late)
    flow.run()
    assert flow.aside("late") == [late]
    keep(flow, "n < 50")
    report = refresh(flow)
    assert report["batches"] >= 3 and report["rows"]["late"] == 1
    assert flow.aside("late") == [late]
    flow.expect("start end count sum", closed(offered, lambda n: n < 50))
    path = flow.root / "jobs/flow/pipeline.yaml"
    path.write_text(path.read_text().replace('"maxFilesPerTrigger": 1', '"maxFilesPerTrigger": 9'))
    refresh(flow, "whole")
    assert not flow.quarantined()
    flow.expect("start end count sum", closed([*offered, late], lambda n: n < 50))
    offer(flow, offered, row("d", "15:01", 8))
    flow.run()
    flow.expect("start end count sum", closed([*offered, late], lambda n: n < 50))


BY_DAY = "quality: {max_quarantine_share: 1}\ntable: {partition_by: [day]}\nsources:\n" + source(
    "events", "id STRING, n INT, day DATE"
)
BEFORE = "def transform(events):\n    return events.withColumn('gone', F.lit(1))\n"
AFTER = (
    "def transform(events):\n    return events.select(F.col('id').alias('name'), F.col('n').cast('BIGINT'), 'day')\n"
)
NEW_COLUMNS = """\
name: flow
expectations:
  - type: unexpected_rows_expectation
    kwargs:
      unexpected_rows_query: >
        SELECT * FROM {table} AS one WHERE typeof(n) <> 'BIGINT' OR length(name) <> 1 OR one::VARCHAR LIKE '%gone%'
    meta: {rule: new_columns}
"""


def event_of(name: str, n: int, day: int = 1) -> dict[str, Any]:
    return {"id": name, "n": n, "day": f"2026-01-0{day}"}


def change_columns(flow: Streaming, transform: str) -> None:
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{transform}")


def test_columns_are_renamed_retyped_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, BY_DAY, BEFORE)
    flow.offer("events", event_of("a", 1), event_of("b", 7, day=2))
    flow.run()
    flow.offer("events", event_of("c", 2))
    change_columns(flow, AFTER)
    with pytest.raises(UsageError) as refused:
        flow.run()
    assert refused.value.code == "SCHEMA_CHANGE" and "`tidegate refresh flow`" in str(refused.value.fix)
    flow.write("expectations/flow.yaml", NEW_COLUMNS)
    looked = preview_refresh(flow.project, "flow")
    assert looked["hindrance"] is None and looked["columns"] == {
        "before": {"id": "STRING", "n": "INT", "gone": "INT", "day": "DATE"},
        "after": {"name": "STRING", "n": "BIGINT", "day": "DATE"},
    }
    report = refresh(flow)
    assert (report["outcome"], report["rows"]["published"], report["table"]["version"]) == ("published", 2, 2)
    new = [("a", 1), ("b", 7)]
    flow.expect("name n", new)
    assert all(row.keys() == {"name", "n", "day"} for row in read_agreed(flow.table, spark))

    roll_back(flow.project, flow.name, 0, None, "back")  # over the change, and forth again
    flow.expect("id n gone", [("a", 1, 1), ("b", 7, 1)])
    with pytest.raises(UsageError):
        flow.run()
    assert roll_back(flow.project, flow.name, 2, None, "forth")["outcome"] == "published"
    flow.expect("name n", new)
    flow.run()
    flow.expect("name n", [*new, ("c", 2)])
    backfill_table(flow.project, flow.name, "day", Wanted("2026-01-01", "2026-01-01"), submit=in_session(spark))
    flow.expect("name n", [*new, ("c", 2)])


def test_columns_stay_while_an_increment_with_the_old_ones_is_undecided(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, BY_DAY, BEFORE)
    flow.write("expectations/flow.yaml", UNIQUE)
    flow.offer("events", event_of("a", 1))
    flow.run()
    flow.offer("events", event_of("b", 2), event_of("c", 2))
    with pytest.raises(HeldError):
        flow.run("held")
    change_columns(flow, AFTER)
    looked = preview_refresh(flow.project, "flow")
    assert looked["hindrance"] is not None and looked["hindrance"]["code"] == "REFRESH_PENDING"
    with pytest.raises(UsageError) as refused:
        refresh(flow)
    assert refused.value.code == "REFRESH_PENDING"
    flow.expect("id gone", [("a", 1)])
    decide(flow.project, "flow", "held", Answer("release", "known"))
    with pytest.raises(HeldError):  # the same two rows, with all others
        refresh(flow)
    flow.expect("id gone", [("a", 1), ("b", 1), ("c", 1)])
    decide_backfill(flow.project, "flow", "fresh", Answer("release", "known"))
    flow.expect("name n", [("a", 1), ("b", 2), ("c", 2)])


def test_a_type_changes_with_the_state_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    count = "def transform(events):\n    return events.groupBy('day').agg(F.NAME('n').alias('figure'))\n"
    spec = BY_DAY.replace("table: {partition_by: [day]}", "output_mode: update\ntable: {keys: [day]}")
    flow = make_streaming(tmp_path, spark, spec, count.replace("NAME", "sum"))
    flow.offer("events", event_of("a", 1), event_of("b", 4))
    flow.run()
    change_columns(flow, count.replace("NAME", "avg"))
    looked = preview_refresh(flow.project, "flow")
    assert looked["columns"] is not None and looked["columns"]["after"] == {"day": "DATE", "figure": "DOUBLE"}
    refresh(flow)
    flow.expect("figure", [(2.5,)])
    flow.offer("events", event_of("c", 7))
    flow.run()
    flow.expect("figure", [(4.0,)])
