"""Partitions of windowed and joined pipelines rebuilt: the rows of closed windows are those of all records that were
not late, what is open stays with the live runs, and nothing is there twice or missing, for three readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import HeldError, UsageError
from tidegate.rework.backfill.command import backfill_table, preview_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.decide import decide
from tidegate.runs.reports.verdicts import Answer
from tidegate.spark.driver.submit import SubmitPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, at TIMESTAMP, n INT"
TIMED = {"event_time": "at", "watermark": "20 minutes"}
DAILY = "table: {partition_by: [day]}\nquality: {max_quarantine_share: 1}\nsources:\n"
HOUR = timedelta(hours=1)


def moment(text: str) -> datetime:
    """``"2 13:30"`` is half past one on the second day of the tests' month."""
    day, clock = text.split()
    hour, minute = clock.split(":")
    return datetime(2026, 1, int(day), int(hour), int(minute), tzinfo=UTC)


def event(name: str, when: str, n: int = 1) -> dict[str, Any]:
    return {"id": name, "at": moment(when).isoformat(), "n": n}


def windows(least: int, length: str = "'6 hours'") -> str:
    """Counts and sums of windows, of records with ``n`` of ``least`` or more."""
    return (
        f"def transform(events):\n    w = F.window('at', {length})\n"
        f"    out = events.where('n >= {least}').groupBy(w).agg(F.count('*').alias('count'), F.sum('n').alias('sum'))\n"
        "    return out.select('window.start', 'count', 'sum').withColumn('day', F.to_date('start'))\n"
    )


def change(flow: Streaming, transform: str) -> None:
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{transform}")


def backfill(flow: Streaming, first: int, last: int, run_id: str = "again", submit: Any = None) -> dict[str, Any]:
    wanted = Wanted(f"2026-01-{first:02d}", f"2026-01-{last:02d}")
    return dict(backfill_table(flow.project, flow.name, run_id, wanted, submit=submit or in_session(flow.spark)))


def looked_at(flow: Streaming, day: int) -> dict[str, Any]:
    looked = preview_backfill(flow.project, flow.name, Wanted(f"2026-01-{day:02d}", f"2026-01-{day:02d}"))
    return dict(looked["intervals"][0])


Row = tuple[datetime, int, int]


def truth(
    records: Iterable[dict[str, Any]],
    *,
    least: int,
    length: timedelta = 6 * HOUR,
    slide: timedelta = 6 * HOUR,
    until: datetime | None = None,
    keep: Callable[[datetime], bool] = lambda start: True,
) -> list[Row]:
    """The windows that end by ``until``, made of the records as they came."""
    found: dict[datetime, list[int]] = defaultdict(list)
    for record in records:
        at = datetime.fromisoformat(record["at"])
        start = datetime(2026, 1, 1, tzinfo=UTC) + (at - datetime(2026, 1, 1, tzinfo=UTC)) // slide * slide
        while at - start < length:
            if record["n"] >= least:
                found[start].append(record["n"])
            start -= slide
    closed = {start: some for start, some in found.items() if until is None or start + length <= until}
    return [(start, len(some), sum(some)) for start, some in closed.items() if keep(start)]


def test_days_of_tumbling_windows_between_live_runs(spark: SparkSession, tmp_path: Path) -> None:
    """A rule in front of the window is corrected. Late records stay in quarantine, one of the future has closed all
    before it, its own window stays open; a day reads only the files with records of its own time."""
    flow = make_streaming(tmp_path, spark, DAILY + source("events", SCHEMA, **TIMED), windows(0))
    first = [event("a", "1 00:01"), event("b", "1 07:00", -3), event("c", "1 13:00", 2), event("d", "2 01:00", 5)]
    flow.offer("events", *first)
    flow.run()
    late = event("late", "1 20:00", 100)
    second = [event("e", "2 08:00", 4), event("f", "2 02:00", -7), event("g", "2 02:30", -2)]
    flow.offer("events", *second, late)
    flow.run()
    third = [event("h", "3 03:00"), event("i", "3 10:00", -4), event("future", "5 01:00", 9), event("j", "5 02:00", -1)]
    flow.offer("events", *third)
    flow.run()
    seen = [*first, *second, *third]
    closed = moment("5 01:40")
    flow.expect("start count sum", truth(seen, least=0, until=closed))
    assert flow.aside("late") == [late]

    looked = looked_at(flow, 3)
    assert (looked["files"], looked["hindrance"]) == (1, None)
    assert looked["margin"] == {"files": 0, "bytes": 0, "offsets": 0, "is_known": True}
    assert [looked_at(flow, day)["files"] for day in (1, 2)] == [2, 2], "the late record's file is one of them"
    change(flow, windows(-5))
    report = backfill(flow, 3, 3)
    assert (report["outcome"], report["rebuilt"]) == ("published", ["day=2026-01-03"])
    assert (report["rows"]["read"], report["rows"]["published"]) == (4, 2), "the window without a row has one now"
    assert any("2026-01-05T01:40" in note and "still open" in note for note in report["notes"])

    def corrected(*days: int) -> list[Row]:
        return truth(seen, least=-5, until=closed, keep=lambda start: start.day in days)

    old = truth(seen, least=0, until=closed, keep=lambda start: start.day < 3)
    flow.expect("start count sum", [*old, *corrected(3)])
    backfill(flow, 1, 2, "both")
    flow.expect("start count sum", corrected(1, 2, 3))
    assert flow.aside("late") == [late]

    fourth = [event("k", "5 03:00", -2), event("l", "5 09:00", 3)]
    flow.offer("events", *fourth)
    flow.run()
    flow.offer("events", event("m", "7 00:00"))
    flow.run()
    # What is open keeps what the old rule let in: j was left out then, k came after the correction.
    rest = [record for record in seen if record["id"] != "j"]
    live = truth([*rest, *fourth], least=-5, until=moment("6 23:40"), keep=lambda start: start.day >= 5)
    flow.expect("start count sum", [*corrected(1, 2, 3), *live])
    backfill(flow, 5, 5, "later")
    everything = [*seen, *fourth, event("m", "7 00:00")]
    flow.expect("start count sum", truth(everything, least=-5, until=moment("6 23:40")))


def test_sliding_windows_over_midnight_killed_and_begun_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last window of a day has records of the next one, which is the margin. A record that was late for one of its
    windows is counted in both. Killed in the job and at steps of the swap, the next one completes it."""
    both = {"length": 2 * HOUR, "slide": HOUR}
    sliding = "'2 hours', '1 hour'"
    flow = make_streaming(tmp_path, spark, DAILY + source("events", SCHEMA, **TIMED), windows(0, sliding))
    runs = [
        [event("a", "1 22:30", -1), event("b", "1 23:10", 2)],
        [event("c", "2 00:30", 4), event("d", "2 12:00", 8)],
        [event("partly", "2 10:30", 16), event("late", "2 00:10", 1000), event("e", "3 01:00", 32)],
        [event("f", "4 12:00", 64)],
    ]
    for records in runs:
        flow.offer("events", *records)
        flow.run()
    assert flow.aside("late") == [runs[2][1]]
    assert flow.reports[2]["sources"]["events"]["partly_late"] == 1
    looked = looked_at(flow, 1)
    assert (looked["files"], looked["margin"]["files"], looked["margin"]["is_known"]) == (3, 2, True), (
        "the late one's too"
    )

    change(flow, windows(-5, sliding))

    def killed_in_the_job(plan: SubmitPlan) -> int:
        in_session(spark)(plan)
        raise KilledHere("in the job")

    with pytest.raises(KilledHere):
        backfill(flow, 1, 2, submit=killed_in_the_job)
    for step in (4, 10):

        def killed_later(plan: SubmitPlan, step: int = step) -> int:
            code = in_session(spark)(plan)
            StorageCalls(monkeypatch, step, kill)
            return code

        with pytest.raises(KilledHere):
            backfill(flow, 1, 2, submit=killed_later)
        monkeypatch.undo()
    report = backfill(flow, 1, 2)
    assert report["outcome"] == "published"
    records = [record for some in runs for record in some if record["id"] != "late"]
    new = truth(records, least=-5, until=moment("4 11:40"), keep=lambda start: start.day < 3, **both)
    old = truth(records, least=0, until=moment("4 11:40"), keep=lambda start: start.day >= 3, **both)
    flow.expect("start count sum", [*new, *old])
    for more in ([event("g", "4 12:30")], [event("h", "6 00:00")]):
        flow.offer("events", *more)
        records += more
        flow.run()
    later = truth(records, least=-5, until=moment("5 23:40"), keep=lambda start: start.day >= 3, **both)
    flow.expect("start count sum", [*new, *later])


LEFT, RIGHT = "id STRING, at TIMESTAMP, n INT", "key STRING, seen TIMESTAMP"


def joined(how: str, least: int) -> str:
    return (
        f"def transform(l, r):\n    pairs = l.where('n >= {least}').join(r, F.expr('id = key AND seen >= at AND "
        f"seen <= at + INTERVAL 2 HOURS'), '{how}')\n"
        "    return pairs.withColumn('day', F.to_date('at')).select('id', 'n', F.col('seen').alias('found'), 'day')\n"
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_days_of_a_join_of_two_streams(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Each day alone needs all that was read, so two days are rebuilt as one. A row of the left side without a match is
    there when its time is over, and not before."""
    spec = DAILY + source("l", LEFT, **TIMED) + source("r", RIGHT, event_time="seen", watermark="20 minutes")
    flow = make_streaming(tmp_path, spark, spec, joined(how, 0))
    lefts, rights = list[dict[str, Any]](), list[dict[str, Any]]()

    def take(left: list[dict[str, Any]], right: list[tuple[str, str]], *, late: bool = False) -> None:
        seen = [{"key": key, "seen": moment(when).isoformat()} for key, when in right]
        flow.offer("l", *left)
        flow.offer("r", *seen)
        flow.run()
        lefts.extend(left)
        rights.extend(one for one in seen if not (late and one["key"] == "late"))

    def pairs(least: int, until: str, days: Iterable[int]) -> list[tuple[Any, ...]]:
        rows = []
        for left in lefts:
            at = datetime.fromisoformat(left["at"])
            if left["n"] < least or at.day not in days:
                continue
            times = [datetime.fromisoformat(one["seen"]) for one in rights if one["key"] == left["id"]]
            found = [when for when in times if at <= when <= at + 2 * HOUR]
            if not found and how == "left" and at + 2 * HOUR < moment(until):
                rows.append((left["id"], left["n"], None))
            rows += [(left["id"], left["n"], when) for when in found]
        return rows

    take(
        [event("a", "1 23:00"), event("b", "1 10:00"), event("no", "1 11:00", -1)],
        [("no", "1 11:30"), ("x", "1 23:10")],
    )
    take([event("c", "2 09:00"), event("late", "2 08:00")], [("a", "2 00:30"), ("no", "2 01:00"), ("y", "2 09:00")])
    take([event("d", "3 12:00")], [("late", "1 12:00"), ("c", "2 10:00"), ("z", "3 13:00")], late=True)
    closed = "3 11:40"
    flow.expect("id n found", pairs(0, closed, range(1, 9)))
    assert [one["key"] for one in flow.aside("late")] == ["late"]
    looked = looked_at(flow, 1)
    assert (looked["hindrance"], looked["files"], looked["margin"]["is_known"]) == (None, 6, False)
    change(flow, joined(how, -1))
    report = backfill(flow, 1, 2)
    assert report["rebuilt"] == ["day=2026-01-01", "day=2026-01-02"]
    assert report["rows"]["read"] == 13, "what is late stays out"
    rebuilt = pairs(-1, closed, (1, 2))
    flow.expect("id n found", [*rebuilt, *pairs(0, closed, range(3, 9))])
    assert ("no", -1, moment("1 11:30")) in rebuilt
    take([event("e", "3 13:00")], [("d", "3 13:30"), ("z", "3 13:00")])
    take([event("f", "5 00:00")], [("z", "5 00:00")])
    flow.expect("id n found", [*rebuilt, *pairs(0, "4 23:40", range(3, 9))])


def test_a_run_that_was_killed_before_it_closed_what_it_could(spark: SparkSession, tmp_path: Path) -> None:
    """Its records are published, and the windows that they close are not: they come with the next run, once."""
    flow = make_streaming(tmp_path, spark, DAILY + source("events", SCHEMA, **TIMED), windows(0))
    records = [event("a", "1 01:00"), event("b", "2 01:00", 2)]
    flow.offer("events", *records)
    flow.run()
    flow.offer("events", event("c", "2 02:00", 4), event("d", "4 00:00", 8))
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        flow.run()
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    first = truth(records, least=0, until=moment("2 00:40"))
    flow.expect("start count sum", first)
    backfill(flow, 1, 1)
    flow.expect("start count sum", first)
    flow.offer("events", event("e", "4 07:00", 16))
    flow.run()
    records += [event("c", "2 02:00", 4), event("d", "4 00:00", 8), event("e", "4 07:00", 16)]
    flow.expect("start count sum", truth(records, least=0, until=moment("4 06:40")))


def test_what_is_closed_at_the_end_of_each_run(spark: SparkSession, tmp_path: Path) -> None:
    spec = f"close_windows: at_end\n{DAILY}" + source("events", SCHEMA, **TIMED)
    flow = make_streaming(tmp_path, spark, spec, windows(0))
    records = [event("a", "1 01:00"), event("b", "2 01:00", 2)]
    flow.offer("events", *records)
    flow.run()
    flow.offer("events", event("late", "2 02:00", 4), event("c", "3 00:00", -8))
    flow.run()
    records.append(event("c", "3 00:00", -8))
    flow.expect("start count sum", truth(records, least=0))
    change(flow, windows(-9))
    backfill(flow, 1, 2)
    flow.expect("start count sum", truth(records, least=-9, keep=lambda start: start.day < 3))
    flow.offer("events", event("d", "4 00:00"))
    flow.run()
    flow.expect(
        "start count sum", truth([*records, event("d", "4 00:00")], least=-9, keep=lambda start: start.day != 3)
    )


DATED = ".withColumn('day', F.to_date('at'))"
REFUSED = {
    "a session": (
        "    s = events.groupBy(F.session_window('at', '5 minutes').alias('s'), 'id').agg(F.count('*').alias('c'))\n"
        "    return s.select('s.start', 'c').withColumn('day', F.to_date('start'))\n",
        "session",
    ),
    "the first": (
        "    w = events.groupBy(F.window('at', '5 minutes').alias('w')).agg(F.first('n').alias('n'))\n"
        "    return w.select('w.start', 'n').withColumn('day', F.to_date('start'))\n",
        "`first`",
    ),
    "within the watermark": (f"    return events.dropDuplicatesWithinWatermark(['id']){DATED}\n", "same batch"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_results_that_depend_on_how_records_came(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    body, said = REFUSED[kind]
    flow = make_streaming(tmp_path, spark, DAILY + source("events", SCHEMA, **TIMED), f"def transform(events):\n{body}")
    flow.offer("events", event("a", "1 00:00"), event("b", "3 00:00"))
    flow.run()
    before = flow.rows("day")
    with pytest.raises(UsageError) as refused:
        backfill(flow, 1, 1)
    assert refused.value.code == "BACKFILL_STATE" and said in refused.value.message
    assert "tidegate refresh flow" in str(refused.value.fix)
    assert flow.rows("day") == before


def test_duplicates(spark: SparkSession, tmp_path: Path) -> None:
    """Of equal ones it does not matter which was kept. Of others it does, and so they are refused."""
    deduplicated = f"def transform(events):\n    return events.where('n >= LEAST').dropDuplicates(KEYS){DATED}\n"
    for keys in ("", "['id', 'at']"):
        transform = deduplicated.replace("KEYS", keys)
        flow = make_streaming(
            tmp_path / str(len(keys)), spark, DAILY + source("events", SCHEMA, **TIMED), transform.replace("LEAST", "0")
        )
        flow.offer("events", event("a", "1 00:10"), event("b", "1 01:00", 2), event("c", "2 00:00", -1))
        flow.run()
        flow.offer("events", event("b", "1 23:59", 2), event("b", "1 23:59", 2), event("d", "2 00:00"))
        flow.run()
        change(flow, transform.replace("LEAST", "-1"))
        if keys:
            with pytest.raises(UsageError) as refused:
                backfill(flow, 1, 1)
            assert refused.value.code == "BACKFILL_STATE" and "1 duplicate" in refused.value.message
        else:
            backfill(flow, 1, 2)
        rows = [("a", 1, date(2026, 1, 1)), ("b", 2, date(2026, 1, 1)), ("b", 2, date(2026, 1, 1))]
        rows += [("d", 1, date(2026, 1, 2)), *([] if keys else [("c", -1, date(2026, 1, 2))])]
        flow.expect("id n day", rows)


SUITE = """\
name: flow
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: sum, max_value: 100}
    severity: critical
    meta: {rule: not_too_large, on_failure: quarantine}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: RULE}
    severity: critical
"""


def test_what_cannot_be_rebuilt_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """A window in quarantine is of one day alone. A changed aggregate, a record of before 1970, and a day whose rows a
    person has discarded are refused, with the table as it was."""
    flow = make_streaming(tmp_path, spark, DAILY + source("events", SCHEMA, **TIMED), windows(0))
    flow.write("expectations/flow.yaml", SUITE.replace("RULE", "sum"))
    old = {"id": "old", "at": "1969-12-31T00:00:00+00:00", "n": -7}
    records = [
        event("a", "1 00:00", 500),
        event("b", "2 00:00", 2),
        event("c", "3 00:00", -3),
        event("d", "4 00:00", 4),
    ]
    flow.offer("events", *records, old)
    flow.run()
    assert len(flow.quarantined()["not_too_large"]) == 1

    def refuse(first: int, last: int, code: str, said: str) -> None:
        before = flow.rows("start", "sum")
        with pytest.raises(UsageError) as refused:
            backfill(flow, first, last)
        assert refused.value.code == code and said in refused.value.message, refused.value.message
        assert flow.rows("start", "sum") == before

    change(flow, windows(-5))
    refuse(1, 2, "BACKFILL_NOT_EXACT", "1 row")
    backfill(flow, 2, 3, "sound")
    flow.expect("start sum", [(moment("2 00:00"), 2), (moment("3 00:00"), -3)])
    change(flow, windows(-9))
    refuse(2, 2, "BACKFILL_NOT_EXACT", "1970")
    change(flow, windows(0).replace("F.sum('n')", "F.sum(F.col('n') * 2)"))
    refuse(2, 2, "BACKFILL_STATE_CHANGED", "sum")
    change(flow, windows(0).replace("F.to_date('start')", "F.date_add(F.to_date('start'), 1)"))
    refuse(2, 2, "BACKFILL_SPILLS", "")
    change(flow, windows(0))
    flow.write("expectations/flow.yaml", SUITE.replace("RULE", "count").replace("not_be_null", "be_null"))
    flow.offer("events", event("e", "9 00:00"))
    with pytest.raises(HeldError):
        flow.run("bad")
    backfill_error = looked_at(flow, 2)["hindrance"]
    assert backfill_error is None, "what is held has closed nothing yet"
    decide(flow.project, "flow", "bad", Answer("discard", "seen"))
    refuse(2, 2, "BACKFILL_STATE", "discarded")
