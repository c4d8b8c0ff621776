"""Partitions rebuilt from what runs have read: exact rows beside live runs, and what cannot be rebuilt is refused."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import HeldError, SourceLostError, TidegateError, UsageError
from tidegate.rework.backfill.command import backfill_table, find_backfill_days, preview_backfill
from tidegate.rework.backfill.held import decide_backfill, is_held_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.reports.verdicts import Answer
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.table.log.state import read_table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, at TIMESTAMP, n INT"
SPEC = "table: {partition_by: [day]}\nsources:\n" + source("events", SCHEMA)
FORGIVING = f"quality: {{max_quarantine_share: 1}}\n{SPEC}"
AS_IT_WAS = "def transform(events):\n    return events.where('n >= 0').withColumn('day', F.to_date('at'))\n"
CORRECTED = (
    "def transform(events):\n"
    "    return events.where('n >= -5').withColumn('day', F.to_date('at')).withColumn('twice', F.col('n') * 2)\n"
)
LATER = "def transform(events):\n    return events.where('n >= 0').withColumn('day', F.date_add(F.to_date('at'), 1))\n"
SUITE = """\
name: flow
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: n, max_value: 1000}
    severity: critical
    meta: {rule: not_too_large, on_failure: quarantine}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    severity: critical
    meta: {rule: has_id}
"""
ONCE = """\
  - type: unexpected_rows_expectation
    kwargs:
      unexpected_rows_query: >
        SELECT id FROM {table} GROUP BY id HAVING count(*) > 1
        UNION ALL SELECT 'all days' FROM {table} HAVING count(DISTINCT day) < 3
    meta: {rule: once_in_three_days}
"""


def event(name: str, day: int, n: int) -> dict[str, Any]:
    return {"id": name, "at": f"2026-01-{day:02d}T12:00:00Z", "n": n}


def make(root: Path, spark: SparkSession, spec: str = SPEC, transform: str = AS_IT_WAS) -> Streaming:
    flow = make_streaming(root, spark, spec, transform)
    flow.write("expectations/flow.yaml", SUITE)
    return flow


def change(flow: Streaming, transform: str) -> None:
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{transform}")


def backfill(flow: Streaming, start: str, end: str, run_id: str = "again", **more: Any) -> dict[str, Any]:
    wanted = Wanted(start, end, **more)
    return dict(backfill_table(flow.project, flow.name, run_id, wanted, submit=in_session(flow.spark)))


def version(flow: Streaming) -> int:
    state = read_table_state(flow.table)
    assert state is not None
    return state.version


def test_a_corrected_transform_between_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Of three days the middle one is rebuilt, between live runs that add rows to it; all others stay as they were."""
    flow = make(tmp_path, spark)
    flow.write("expectations/flow.yaml", SUITE + ONCE)
    flow.offer("events", event("a", 1, 1), event("b", 2, 2), event("c", 2, -3), event("d", 3, 4))
    flow.offer("events", event("e", 2, 5), {"id": "broken", "at": "no time", "n": 1}, event("large", 2, 5000))
    flow.run()
    flow.offer("events", event("f", 3, 6), event("late", 2, 7))
    flow.run()
    before = [("a", 1), ("b", 2), ("d", 4), ("e", 5), ("f", 6), ("late", 7)]
    flow.expect("id n", before)
    change(flow, CORRECTED)
    report = backfill(flow, "2026-01-02", "2026-01-02")
    assert (report["mode"], report["outcome"], report["rebuilt"]) == ("backfill", "published", ["day=2026-01-02"])
    rows = report["rows"]
    assert rows["read"] == rows["malformed"] + rows["entered"] == 7, "two records stay in quarantine"
    assert rows["transformed"] == rows["rejected"] + rows["staged"] and rows["published"] == 4
    assert (report["table"]["rows_added"], report["table"]["rows_removed"]) == (4, 3)
    found = {row[0]: row[1:] for row in flow.rows("id", "n", "twice")}
    assert found == {
        "a": (1, None),
        "d": (4, None),
        "f": (6, None),
        "b": (2, 4),
        "c": (-3, -6),
        "e": (5, 10),
        "late": (7, 14),
    }
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 1, "not_too_large": 1}
    flow.offer("events", event("later", 2, 8))
    flow.run()
    assert Counter(row[0] for row in flow.rows("id")) == Counter([*"abcdef", "late", "later"])


def test_a_retry_changes_nothing_and_says_the_same(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", event("a", 1, 1), event("b", 2, 2))
    flow.run()
    change(flow, CORRECTED)
    report = backfill(flow, "2026-01-01", "2026-01-02")
    assert report["rebuilt"] == ["day=2026-01-01", "day=2026-01-02"] and report["rows"]["published"] == 2
    at = version(flow)
    assert backfill(flow, "2026-01-01", "2026-01-02") == report and version(flow) == at
    with pytest.raises(UsageError) as other:
        backfill(flow, "2026-01-01", "2026-01-02", "run-1")
    assert other.value.code == "OTHER_ARGUMENTS"


def test_rows_that_move_to_another_day(spark: SparkSession, tmp_path: Path) -> None:
    """A day alone would lose the rows that are of the next one by now; both days together are rebuilt as one."""
    flow = make(tmp_path, spark)
    flow.offer("events", event("a", 1, 1), event("b", 2, 2))
    flow.offer("events", event("c", 3, 3))
    flow.run()
    change(flow, LATER)
    at = version(flow)
    with pytest.raises(UsageError) as refused:
        backfill(flow, "2026-01-01", "2026-01-01")
    assert refused.value.code == "BACKFILL_SPILLS" and "day=2026-01-04" in refused.value.message
    assert version(flow) == at
    report = backfill(flow, "2026-01-01", "2026-01-06", "all")
    assert report["rows"]["published"] == 3 and report["rebuilt"] == [f"day=2026-01-0{day}" for day in range(1, 7)]
    flow.expect("id day", [("a", date(2026, 1, 2)), ("b", date(2026, 1, 3)), ("c", date(2026, 1, 4))])


def test_of_folders_by_day_only_the_days_own_files_are_read(spark: SparkSession, tmp_path: Path) -> None:
    spec = "table: {partition_by: [day]}\nsources:\n" + source("events", "id STRING, n INT, day DATE")
    flow = make(tmp_path, spark, spec, "def transform(events):\n    return events.where('n >= 0')\n")
    sizes = {}
    for day in range(1, 6):
        folder = flow.root / f"data/in/events/day=2026-01-{day:02d}"
        folder.mkdir(parents=True)
        file = folder / "x.json"
        file.write_text("".join(f'{{"id": "{day}-{n}", "n": {n - 1}}}\n' for n in range(day)))
        sizes[day] = file.stat().st_size
    flow.run()
    looked = preview_backfill(flow.project, "flow", Wanted("2026-01-04", "2026-01-04"))
    (interval,) = looked["intervals"]
    assert (interval["by_folder"], interval["files"], interval["bytes"]) == (True, 1, sizes[4])
    change(flow, "def transform(events):\n    return events\n")
    report = backfill(flow, "2026-01-04", "2026-01-04")
    assert report["sources"]["events"]["bytes"] == sizes[4] and report["rows"]["published"] == 4
    assert Counter(str(day)[-2:] for (day,) in flow.rows("day")) == {"02": 1, "03": 2, "04": 4, "05": 4}


def test_what_is_malformed_by_now_is_set_aside_where_its_day_is_known(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", event("a", 1, 1), event("b", 1, 2))
    flow.run()
    flow.offer("events", event("c", 2, 3), {"id": "d", "at": "2026-01-03T00:00:00Z", "n": 4})
    flow.run()
    stricter = SPEC.replace("n INT", "n INT, more STRING NOT NULL")
    flow.write(
        "jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\ntransform: transform.py\n{stricter}"
    )
    with pytest.raises(UsageError) as refused:
        backfill(flow, "2026-01-02", "2026-01-02")
    assert refused.value.code == "BACKFILL_NOT_EXACT" and "malformed now" in refused.value.message
    flow.expect("id", [("a",), ("b",), ("c",), ("d",)])
    flow.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\ntransform: transform.py\n"
               f"{stricter}quality: {{max_quarantine_share: 1}}\n")  # fmt: skip
    report = backfill(flow, "2026-01-01", "2026-01-01", "strict")
    assert (report["rows"]["malformed"], report["rows"]["published"]) == (2, 0)
    flow.expect("id", [("c",), ("d",)])
    assert len(flow.aside("malformed")) == 2
    flow.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\ntransform: transform.py\n{SPEC}")
    report = backfill(
        flow, "2026-01-01", "2026-01-01", "loose"
    )  # what is left of the day is in quarantine, and stays there
    assert any(
        "in quarantine, until they are replayed: 2 records of what was read again" in note for note in report["notes"]
    )
    flow.expect("id", [("c",), ("d",)])
    assert len(flow.aside("malformed")) == 2


def test_each_day_of_an_interval_has_its_own_share_of_quarantined_records(spark: SparkSession, tmp_path: Path) -> None:
    """A seventh of all records is in quarantine, and half of two days: both are held, as each of them alone is."""
    flow = make(tmp_path, spark)
    whole = {"more": "yes"}
    for day, count, complete, step in ((1, 20, 20, 1), (2, 4, 2, 1), (3, 4, 4, 100)):
        records = [event(f"{day}-{number}", day, number * step) for number in range(count)]
        flow.offer("events", *(one | (whole if place < complete else {}) for place, one in enumerate(records)))
        flow.run()
    stricter = SPEC.replace("n INT", "n INT, more STRING NOT NULL")
    flow.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\ntransform: transform.py\n"
               f"{stricter}quality: {{max_quarantine_share: 0.3}}\n")  # fmt: skip
    flow.write("expectations/flow.yaml", SUITE.replace("1000", "150"))
    with pytest.raises(HeldError) as held:
        backfill(flow, "2026-01-01", "2026-01-03", "all")
    found = "2 of 4 records malformed (50.0%), allowed: 30.0%"
    assert f"max_quarantine_share: {found} (day=2026-01-02, day=2026-01-03)" in held.value.message
    for day, says in ((2, found), (3, "2 of 4 records rejected (50.0%), allowed: 30.0%")):
        with pytest.raises(HeldError) as held:
            backfill(flow, f"2026-01-0{day}", f"2026-01-0{day}", f"alone-{day}")
        assert f"max_quarantine_share: {says}" in held.value.message
    assert backfill(flow, "2026-01-01", "2026-01-01", "alone")["outcome"] == "published"


def test_a_held_backfill_holds_only_itself(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", event("a", 1, 1))
    flow.offer("events", event("b", 2, 2))
    flow.run()
    change(flow, "def transform(events):\n    return events.withColumn('day', F.to_date('at')).withColumn('id', "
           "F.lit(None).cast('string'))\n")  # fmt: skip
    for run_id in ("dropped", "outdated"):
        with pytest.raises(HeldError) as held:
            backfill(flow, "2026-01-01", "2026-01-01", run_id)
        assert held.value.code == "BACKFILL_HELD" and "has_id" in held.value.message
    with pytest.raises(HeldError):
        backfill(flow, "2026-01-02", "2026-01-02", "released")
    flow.expect("id", [("a",), ("b",)])
    assert decide(flow, "dropped", "discard")["outcome"] == "discarded"
    change(flow, AS_IT_WAS)
    flow.offer("events", event("c", 1, 3))
    flow.run()  # live runs go on
    with pytest.raises(UsageError) as outdated:
        decide(flow, "outdated", "release")
    assert outdated.value.code == "BACKFILL_OUTDATED"
    assert decide(flow, "outdated", "discard")["outcome"] == "discarded"
    report = decide(flow, "released", "release")
    assert (report["outcome"], report["decision"]["reason"], report["rows"]["published"]) == ("published", "seen", 1)
    flow.expect("id", [("a",), ("c",), (None,)])
    assert not list((flow.state / "backfills").iterdir())
    assert backfill(flow, "2026-01-01", "2026-01-02", "other")["rows"]["published"] == 3
    flow.expect("id", [("a",), ("b",), ("c",)])


def decide(flow: Streaming, run_id: str, decision: str) -> dict[str, Any]:
    assert is_held_backfill(flow.project, flow.name, run_id)
    return dict(decide_backfill(flow.project, flow.name, run_id, Answer(decision, "seen")))


def test_files_that_are_gone_or_changed(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    first = flow.offer("events", event("a", 1, 1))
    flow.run()
    flow.offer("events", event("b", 2, 2))
    flow.run()
    os.rename(first, flow.root / "kept.json")
    flow.run()
    with pytest.raises(SourceLostError) as gone:
        backfill(flow, "2026-01-01", "2026-01-02")
    assert gone.value.code == "BACKFILL_GONE" and "0001.json is gone" in gone.value.message
    assert "day=2026-01-02" in str(gone.value.fix)
    first.write_text('{"id": "other"}\n')
    with pytest.raises(SourceLostError, match="after it was read"):
        backfill(flow, "2026-01-01", "2026-01-01")
    assert backfill(flow, "2026-01-02", "2026-01-02", "possible")["rows"]["published"] == 1
    flow.expect("id", [("a",), ("b",)])


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted("2026-01-02", "2026-01-01"), "BACKFILL_ARGUMENTS"),
        (Wanted("2026-01-01"), "BACKFILL_ARGUMENTS"),
        (Wanted(), "BACKFILL_ARGUMENTS"),
        (Wanted("2026-01-01", "2026-01-02", ("day=2026-01-01",)), "BACKFILL_ARGUMENTS"),
        (Wanted("yesterday", "2026-01-02"), "BACKFILL_ARGUMENTS"),
        (Wanted("2026-13-01", "2026-13-02"), "BACKFILL_ARGUMENTS"),
        (Wanted("2026-01-01T06:00", "2026-01-02T00:00"), "BACKFILL_ARGUMENTS"),
        (Wanted("2026-01-01T00:00", "2026-01-02T00:00", zone="Mars/Sea"), "BACKFILL_ARGUMENTS"),
        (Wanted("2027-01-01", "2027-01-02"), "BACKFILL_NO_SUCH_PARTITION"),
        (Wanted(partitions=("month=1",)), "BACKFILL_ARGUMENTS"),
        (Wanted(partitions=("day",)), "BACKFILL_ARGUMENTS"),
        (Wanted(partitions=("day=2030-01-01",)), "BACKFILL_NO_SUCH_PARTITION"),
    ],
)
def test_wrong_ranges(settled: Streaming, wanted: Wanted, code: str) -> None:
    at = version(settled)
    for act in (
        lambda: preview_backfill(settled.project, "flow", wanted),
        lambda: backfill_table(settled.project, "flow", "wrong", wanted, submit=in_session(settled.spark)),
    ):
        with pytest.raises(TidegateError) as refused:
            act()
        assert (refused.value.code, refused.value.exit_code) == (code, 64)
    assert version(settled) == at


@pytest.fixture(scope="module")
def settled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streaming:
    """Two days, published."""
    flow = make(tmp_path_factory.mktemp("settled"), spark)
    flow.offer("events", event("a", 1, 1), event("b", 2, 2))
    flow.run()
    return flow


def test_a_range_of_time_stamps_is_half_open(settled: Streaming) -> None:
    looked = preview_backfill(settled.project, "flow", Wanted("2026-01-01T00:00", "2026-01-02T00:00:00+00:00"))
    assert [one["partitions"] for one in looked["intervals"]] == ["day=2026-01-01"]
    assert looked["hindrance"] is None
    assert find_backfill_days(settled.project, "flow") == ("2026-01-01", "2026-01-02")


def why_no_day(flow: Streaming) -> str:
    """Why none can be asked for, whichever it is: what the page says before it asks for days."""
    with pytest.raises(TidegateError) as caught:
        find_backfill_days(flow.project, "flow")
    return caught.value.code


def test_pipelines_that_cannot_be_rebuilt_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    flat = make_streaming(tmp_path / "flat", spark, "sources:\n" + source("events", SCHEMA))
    with pytest.raises(UsageError) as none_yet:
        backfill(flat, "2026-01-01", "2026-01-01")
    assert none_yet.value.code == why_no_day(flat) == "BACKFILL_NO_TABLE"
    flat.offer("events", event("a", 1, 1))
    flat.run()
    with pytest.raises(UsageError) as unpartitioned:
        backfill(flat, "2026-01-01", "2026-01-01")
    assert unpartitioned.value.code == why_no_day(flat) == "BACKFILL_ONLY_WHOLE"
    by_n = make_streaming(tmp_path / "by_n", spark, "table: {partition_by: [n]}\nsources:\n" + source("events", SCHEMA))
    by_n.offer("events", event("a", 1, 1), event("b", 1, 2))
    by_n.run()
    with pytest.raises(UsageError) as no_days:
        backfill(by_n, "2026-01-01", "2026-01-01")
    assert no_days.value.code == why_no_day(by_n) == "BACKFILL_ARGUMENTS"
    assert "--partition n=1" in no_days.value.message
    wanted = Wanted(partitions=("n=2",))
    report = backfill_table(by_n.project, "flow", "two", wanted, submit=in_session(spark))
    assert report["rows"]["published"] == 1
    by_n.expect("id n", [("a", 1), ("b", 2)])
    kept = make_streaming(
        tmp_path / "kept",
        spark,
        "table: {partition_by: [day], keys: [id]}\noutput_mode: update\nsources:\n" + source("events", SCHEMA),
        "def transform(events):\n    return events.withColumn('day', F.to_date('at'))\n",
    )
    kept.offer("events", event("a", 1, 1))
    kept.run()
    with pytest.raises(UsageError) as not_append:
        backfill(kept, "2026-01-01", "2026-01-01")
    assert not_append.value.code == why_no_day(kept) == "BACKFILL_ONLY_WHOLE" and "update" in not_append.value.message


def test_rows_of_another_writer_are_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", event("a", 1, 1), event("b", 2, 2))
    flow.run()
    table = DeltaTable(str(flow.table))
    rows = table.to_pyarrow_table().to_pylist()
    strange = [{**one, "id": "theirs"} for one in rows if one["id"] == "b"]
    write_deltalake(table, pa.Table.from_pylist(strange, pa.schema(table.schema().to_arrow())), mode="append")
    with pytest.raises(TidegateError) as foreign:
        backfill(flow, "2026-01-02", "2026-01-02")
    assert foreign.value.code == "BACKFILL_FOREIGN_ROWS" and "day=2026-01-02" in foreign.value.message
    assert backfill(flow, "2026-01-01", "2026-01-01", "possible")["rows"]["published"] == 1
    flow.expect("id", [("a",), ("b",), ("theirs",)])


def test_a_log_that_was_cut_does_not_say_which_run_published_what(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    for day in (1, 2):
        flow.offer("events", event("a", day, day))
        flow.run()
    DeltaTable(str(flow.table)).create_checkpoint()
    (flow.table / f"_delta_log/{0:020d}.json").unlink()
    with pytest.raises(TidegateError) as cut:
        backfill(flow, "2026-01-01", "2026-01-01")
    assert cut.value.code == "BACKFILL_LOG_CUT" and " 0" in cut.value.message
    assert sorted(DeltaTable(str(flow.table)).to_pyarrow_table()["n"].to_pylist()) == [1, 2]


def test_what_a_generator_sent_cannot_be_read_again(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, "sources:\n  ticks: {type: rate, options: {rowsPerSecond: 5}}\n")
    flow.run()
    with pytest.raises(TidegateError) as not_kept:
        backfill(flow, "2026-01-01", "2026-01-01")
    assert not_kept.value.code == why_no_day(flow) == "BACKFILL_NOT_KEPT"
    assert "ticks" in not_kept.value.message


def test_a_rejected_row_of_which_nobody_knows_the_record(spark: SparkSession, tmp_path: Path) -> None:
    """Python code over whole batches gives rows without their records' places."""
    unplaced = (
        "def transform(events):\n"
        "    dated = events.withColumn('day', F.to_date('at'))\n"
        "    return dated.mapInPandas(lambda pieces: (one for one in pieces), dated.schema)\n"
    )
    flow = make(tmp_path, spark, FORGIVING, unplaced)
    flow.offer("events", event("a", 1, 1), event("large", 1, 5000))
    flow.run()
    at = version(flow)
    with pytest.raises(TidegateError) as unknown:
        backfill(flow, "2026-01-01", "2026-01-01")
    assert unknown.value.code == "BACKFILL_NOT_EXACT" and "1 row" in unknown.value.message
    assert version(flow) == at


def test_a_quarantined_record_with_another_text_is_not_left_out_unseen(spark: SparkSession, tmp_path: Path) -> None:
    """Its file is read in another encoding by now: the text is not the one in quarantine."""
    flow = make(tmp_path, spark, FORGIVING)
    events = [event("a", 1, 1), event("gr\u00f6\u00dfer", 1, 5000)]
    flow.write("data/in/events/one.json", "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in events))
    flow.run()
    spec = flow.root / "jobs/flow/pipeline.yaml"
    text = spec.read_text()
    assert text.count('"format": "json"') == 1
    spec.write_text(text.replace('"format": "json"', '"format": "json", "options": {"encoding": "ISO-8859-1"}'))
    at = version(flow)
    with pytest.raises(TidegateError) as other:
        backfill(flow, "2026-01-01", "2026-01-01")
    assert other.value.code == "BACKFILL_OTHER_TEXTS"
    assert version(flow) == at
    flow.expect("id", [("a",)])


def test_a_rejected_row_of_a_record_with_several(spark: SparkSession, tmp_path: Path) -> None:
    """The record stays out of what is read, and so would its other rows, which are in the table."""
    doubled = (
        "def transform(events):\n"
        "    both = events.withColumn('n', F.explode(F.array('n', F.lit(5000))))\n"
        "    return both.withColumn('day', F.to_date('at'))\n"
    )
    flow = make(tmp_path, spark, FORGIVING, doubled)
    flow.offer("events", event("a", 1, 1))
    flow.run()
    at = version(flow)
    with pytest.raises(TidegateError) as several:
        backfill(flow, "2026-01-01", "2026-01-01")
    assert (
        several.value.code == "BACKFILL_NOT_EXACT" and "several rows" in several.value.message and version(flow) == at
    )
    flow.expect("id n", [("a", 1)])


def test_a_table_that_another_program_writes_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.offer("events", event("a", 1, 1))
    flow.run()
    change(flow, CORRECTED)

    def meddle(plan: SubmitPlan) -> int:
        code = in_session(spark)(plan)
        table = DeltaTable(str(flow.table))
        write_deltalake(table, table.to_pyarrow_table(), mode="append")
        return code

    with pytest.raises(TidegateError) as changed:
        backfill_table(flow.project, "flow", "again", Wanted("2026-01-01", "2026-01-01"), submit=meddle)
    assert changed.value.code == "BACKFILL_TABLE_CHANGED"
    flow.expect("id n", [("a", 1), ("a", 1)])
