"""A backfill of many days: one driver for the days of an interval, and one decision on all that the gate holds."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.beside import D1, D2, decide, done, find_malformed
from tests.model.processes import Process, Stop
from tests.model.world import NAME, Make, World, newest_version, read_log
from tidegate.core import outputs
from tidegate.core.errors import HeldError
from tidegate.rework.backfill import examine, intervals
from tidegate.rework.backfill.command import preview_backfill
from tidegate.rework.backfill.held import list_held
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.gate import increment
from tidegate.runs.reports.report import load_report
from tidegate.table.log.state import read_commit_metadata

D3 = "2026-01-03"
_EVERY = 6 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 66
"""Each so many storage calls, a process is stopped."""
_FILE_BYTES = len("f1-0,good\n") * 2
_SWAP = 2
"""Versions of one replacement: the first one makes room for files that come under other names."""


def a_day_per_file(make: Make, patch: pytest.MonkeyPatch, *, at_once: int) -> World:
    """Three days, each with two rows of a file of its own; an interval reads ``at_once`` bytes."""
    patch.setattr(fake_spark, "day_of", lambda row: f"2026-01-0{row['id'][1]}")
    patch.setattr(intervals, "_BYTES_AT_ONCE", at_once)
    world = make("files")
    for number in range(3):
        world.offer(0, ["good"] * 2)
        done(world.run(f"of-{number}"))
    world.drivers = world.reads = 0
    return world


def foresee(world: World) -> list[outputs.BackfillInterval]:
    """The intervals that the dry run of three days shows."""
    plan = done(world._start("look", lambda: preview_backfill(world.project, NAME, Wanted(D1, D3)), None))
    intervals: list[outputs.BackfillInterval] = plan["intervals"]
    return intervals


def test_a_dry_run_counts_a_file_of_many_days_once(make: Make) -> None:
    world = make("files")
    for _ in range(2):
        world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    (interval,) = foresee(world)
    size = sum(file.stat().st_size for file in (world.root / "data" / "inbox").iterdir())
    assert (interval["files"], interval["bytes"], interval["rows_of_others"]) == (2, size, 0)


def test_a_dry_run_shows_each_day_where_one_cannot_be_rebuilt(make: Make, patch: pytest.MonkeyPatch) -> None:
    world = a_day_per_file(make, patch, at_once=2 * _FILE_BYTES)
    (world.root / "data" / "inbox" / "3.csv").unlink()
    plan = [(one["days"], one["hindrance"] and one["hindrance"]["code"]) for one in foresee(world)]
    assert plan == [([f"day={D1}"], None), ([f"day={D2}"], None), ([f"day={D3}"], "BACKFILL_GONE")]


def test_a_dry_run_shows_days_that_can_only_be_rebuilt_alone(make: Make, patch: pytest.MonkeyPatch) -> None:
    """Those before them are rebuilt together."""
    world = a_day_per_file(make, patch, at_once=2 * _FILE_BYTES)
    done(world.run("none"))
    world.offer(0, ["good"] * 2)
    done(world.run("of-3"))
    find = examine._find_hindrance

    def find_in_joined(scope: Any, interval: Any, choice: Any, excluded: Any) -> Any:
        if f"day={D3}" in [day.label for day in interval.joined]:
            return examine.several_rows_error(NAME, interval.label, excluded)
        return find(scope, interval, choice, excluded)

    patch.setattr(examine, "_find_hindrance", find_in_joined)
    days = [f"day={day}" for day in (D1, D2, D3, "2026-01-04")]
    plan = done(world._start("look", lambda: preview_backfill(world.project, NAME, Wanted(D1, "2026-01-04")), None))
    assert [one["days"] for one in plan["intervals"]] == [days[:2], days[2:3], days[3:]]
    assert plan["hindrance"] is None


def each_once(world: World) -> None:
    assert read_log(world.paths.table) == Counter(list(world.offered))


def check_figures(report: outputs.RunReport, days: int = 3) -> None:
    """The report counts each of so many days once; each has two rows, read from one file."""
    keys = ("read", "transformed", "staged", "published", "superseded")
    assert [report["rows"][key] for key in keys] == [2 * days] * 4 + [0]
    [source] = report["sources"].values()
    assert (source["rows"], source["files"], report["batches"]) == (2 * days, days, days)
    table = report["table"]
    changed = [table["files_added"], table["files_removed"], table["rows_added"], table["rows_removed"]]
    assert changed == [2 * days] * 4, "each row is in a file of its own"


def refuse(patch: pytest.MonkeyPatch, *days: str) -> None:
    """The gate holds these days."""
    judge = increment._judge

    def judge_again(context: Any, suite: Any, staged: Any, *rest: Any) -> list[Any]:
        is_bad = any(file.partition["day"] in days for one in staged for file in one.files)
        results = judge(context, suite, staged, *rest)
        return [replace(one, success=False) for one in results] if is_bad else results

    patch.setattr(increment, "_judge", judge_again)


def test_days_of_the_same_files_are_rebuilt_by_one_driver(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    before, world.drivers, world.reads = newest_version(world.paths.table), 0, 0
    report = done(world.backfill("b", D1, D2))
    assert report["rebuilt"] == [f"day={D1}", f"day={D2}"] and report["rows"]["published"] == 8
    assert (world.drivers, world.reads, newest_version(world.paths.table)) == (1, 8, before + _SWAP)
    world.check_all()


@pytest.mark.parametrize(
    ("at_once", "intervals"), [(0, [[D1], [D2], [D3]]), (2 * _FILE_BYTES, [[D1, D2], [D3]]), (1 << 20, [[D1, D2, D3]])]
)
def test_an_interval_reads_so_many_bytes(
    make: Make, patch: pytest.MonkeyPatch, at_once: int, intervals: list[list[str]]
) -> None:
    """The dry run shows the intervals as the run makes them."""
    world = a_day_per_file(make, patch, at_once=at_once)
    before, drivers = newest_version(world.paths.table), len(intervals)
    plan = foresee(world)
    assert [one["days"] for one in plan] == [[f"day={day}" for day in days] for days in intervals]
    assert [(one["files"], one["rows_now"]) for one in plan] == [(len(days), 2 * len(days)) for days in intervals]
    report = done(world.backfill("b", D1, D3))
    assert (world.drivers, newest_version(world.paths.table)) == (drivers, before + drivers * _SWAP)
    assert world.reads == report["rows"]["read"] == report["rows"]["published"] == 6, "each file is read once"
    assert report["rebuilt"] == [f"day={day}" for day in (D1, D2, D3)]
    world.check_all()


def test_the_gate_judges_each_day_of_an_interval(make: Make) -> None:
    """Half of all rows are good, which passes; of the first day none is."""
    world = make("files")
    world.offer(0, ["bad", "good"] * 2)
    done(world.run("r1"))
    error = world.backfill("b", D1, D2).error
    assert isinstance(error, HeldError) and f"day={D1}..2026-01-02 did not pass" in error.message
    assert f"(day={D1})" in error.message and f"(day={D1}, " not in error.message
    assert world.held_beside == ["b"]


def test_days_that_can_only_be_rebuilt_alone(make: Make, patch: pytest.MonkeyPatch) -> None:
    """A record of the first day is malformed now, and the second day's file has a row of another day: read together,
    nobody knows to which day the record belongs."""
    world = a_day_per_file(make, patch, at_once=0)
    before = fake_spark.day_of
    patch.setattr(fake_spark, "day_of", lambda row: "2026-01-09" if row["id"] == "f4-1" else before(row))
    world.offer(0, ["good"] * 2)
    done(world.run("of-3"))
    patch.setattr(intervals, "_BYTES_AT_ONCE", 1 << 20)
    world.drivers = 0
    assert len(foresee(world)) == 1, "what only the driver finds out is not foreseen"
    with patch.context() as inner:
        find_malformed(inner, "f1-0")
        report = done(world.backfill("b", D1, "2026-01-04"))
    assert report["rebuilt"] == [f"day={day}" for day in (D1, D2, D3, "2026-01-04")]
    assert (world.drivers, report["rows"]["malformed"]) == (5, 1), "all together, then each"
    assert read_log(world.paths.table) + read_log(world.paths.quarantine) == Counter(list(world.offered))


def hold_two_days(world: World, patch: pytest.MonkeyPatch, stop: Stop | None = None) -> Process:
    with patch.context() as inner:
        refuse(inner, D1, D3)
        return world.backfill("b", D1, D3, stop=stop)


@pytest.mark.parametrize("decision", ["release", "discard", "again"])
def test_one_decision_for_all_that_is_held(make: Make, patch: pytest.MonkeyPatch, decision: Any) -> None:
    """A day in between passes, and is published."""
    world = a_day_per_file(make, patch, at_once=0)
    before = newest_version(world.paths.table)
    error = hold_two_days(world, patch).error
    assert isinstance(error, HeldError) and f"day={D1},{D3} did not pass" in error.message
    report = load_report(world.paths, "b")
    assert report is not None and (report.outcome, report.rebuilt) == ("held", [f"day={D2}"])
    assert (report.rows["staged"], report.rows["published"]) == (6, 2)
    [held] = list_held(world.paths)
    assert held.label == f"day={D1},{D3}" and newest_version(world.paths.table) == before + _SWAP
    done(world.run("r2"))
    ended = done(world.backfill("b", D1, D3) if decision == "again" else decide(world, decision, "b"))
    swaps = {"release": 1, "discard": 0, "again": 2}[decision]
    assert newest_version(world.paths.table) == before + _SWAP + swaps * _SWAP
    days = [f"day={D2}"] if decision == "discard" else [f"day={D2}", f"day={D1}", f"day={D3}"]
    published = 2 if decision == "discard" else 6
    assert (ended["outcome"], ended["rebuilt"], ended["rows"]["published"]) == ("published", days, published)
    assert world.held_beside == []
    world.check_all()
    each_once(world)


@pytest.mark.parametrize("then", ["kill", "freeze"])
def test_a_command_that_is_stopped_anywhere(make: Make, patch: pytest.MonkeyPatch, then: str) -> None:
    """Its successor completes it, and what it thaws to changes nothing of that."""
    for point in range(11, 900, _EVERY):
        world = a_day_per_file(make, patch, at_once=0)
        process = hold_two_days(world, patch, Stop(nth=point))
        if process.state != "stopped":
            return
        if then == "kill":
            world.kill(process)
            done(world.run("r2"))
        else:
            world.freeze(process)
        world.check()
        report = done(world.backfill("b", D1, D3))
        assert sorted(report["rebuilt"]) == [f"day={day}" for day in (D1, D2, D3)]
        check_figures(report)
        if then == "freeze":
            world.thaw(0)
        done(world.run("r3"))
        assert world.held_beside == []
        world.check_all()
        each_once(world)
    raise AssertionError("the command makes fewer calls")


def test_a_release_that_is_killed_anywhere(make: Make, patch: pytest.MonkeyPatch) -> None:
    for point in range(3, 400, _EVERY // 2):
        world = a_day_per_file(make, patch, at_once=0)
        hold_two_days(world, patch)
        process = decide(world, "release", "b", Stop(nth=point))
        if process.state != "stopped":
            return
        world.kill(process)
        done(world.run("r2"))
        world.check()
        report = done(decide(world, "release", "b"))
        assert report["outcome"] == "published"
        check_figures(report)
        world.check_all()
        each_once(world)
    raise AssertionError("a release makes fewer calls")


@pytest.mark.parametrize("decision", ["release", "discard", "again"])
def test_what_was_published_after_a_plan_of_the_same_number(
    make: Make, patch: pytest.MonkeyPatch, decision: Any
) -> None:
    """Killed between the second day's publish and the next note on what is held: the release is not taken for it, and
    the report has the figures of both."""
    world = a_day_per_file(make, patch, at_once=0)
    world.kill(hold_two_days(world, patch, Stop("unlink data/state/orders/intents/table", after=True)))
    assert [one.label for one in list_held(world.paths)] == [f"day={D1}"]
    before = newest_version(world.paths.table)
    days = [f"day={D2}"] if decision == "discard" else [f"day={D2}", f"day={D1}", f"day={D3}"]
    if decision != "again":
        report = done(decide(world, decision, "b"))
        is_release = decision == "release"
        assert newest_version(world.paths.table) == before + is_release * _SWAP
        assert (report["outcome"], report["rebuilt"]) == (None, days[:2]) if is_release else ("published", days)
        check_figures(report, days=1 + is_release)
        stored = load_report(world.paths, "b")
        assert stored is not None
        check_figures(stored.to_json(), days=1 + is_release)
    ended = done(world.backfill("b", D1, D3))
    assert (ended["outcome"], ended["rebuilt"]) == ("published", days)
    check_figures(ended, days=len(days))
    world.check_all()
    if decision == "release":
        info = read_commit_metadata(world.paths.table, before + _SWAP)
        assert json.loads(info["tidegate.rows"])["published"] == 4 and "tidegate.decision" in info
    each_once(world)


def test_the_newest_plan_is_known_without_the_times_of_files(make: Make, patch: pytest.MonkeyPatch) -> None:
    """A backup was restored, which gave its files other times."""
    world = a_day_per_file(make, patch, at_once=0)
    hold_two_days(world, patch)
    saved = sorted(
        world.paths.backfills.rglob("held.json"), key=lambda one: len(json.loads(one.read_text())["within"]["day"])
    )
    assert len(saved) == 2
    for stamp, path in enumerate(reversed(saved), 1):
        os.utime(path, (stamp, stamp))
    assert [one.label for one in list_held(world.paths)] == [f"day={D1},{D3}"]
    assert done(decide(world, "release", "b"))["rows"]["published"] == 6
    each_once(world)


@pytest.mark.parametrize("saved", [(), ("rows", "sources", "batches", "notes")])
def test_what_an_earlier_version_has_held(make: Make, patch: pytest.MonkeyPatch, saved: tuple[str, ...]) -> None:
    """It did not save all figures of the report before."""
    world = a_day_per_file(make, patch, at_once=0)
    hold_two_days(world, patch)
    for path in sorted(world.paths.backfills.rglob("held.json"), key=lambda one: one.stat().st_mtime_ns):
        held = json.loads(path.read_text())
        held["before"] = {key: held["before"][key] for key in saved}
        path.write_text(json.dumps(held))
    check_figures(done(decide(world, "release", "b")))


def test_a_frozen_command_does_not_replace_the_report_of_its_successor(make: Make, patch: pytest.MonkeyPatch) -> None:
    """It has published a day, and its successor has held the others when it is resumed."""
    world = a_day_per_file(make, patch, at_once=0)
    world.freeze(hold_two_days(world, patch, Stop("replace data/state/orders/published/4.json")))
    assert isinstance(hold_two_days(world, patch).error, HeldError)
    report = load_report(world.paths, "b")
    assert report is not None and report.outcome == "held" and report.rows["staged"] == 6
    with patch.context() as inner:
        refuse(inner, D1, D3)
        world.thaw(0)
    assert load_report(world.paths, "b") == report
    check_figures(done(decide(world, "release", "b")))


def test_two_commands_at_once(make: Make, patch: pytest.MonkeyPatch) -> None:
    """The second one, in a pause of the first one, takes what that holds away, and holds its own."""
    world = a_day_per_file(make, patch, at_once=0)
    with patch.context() as inner:
        refuse(inner, D1, D3)
        first = world.backfill("b", D1, D3, stop=Stop("replace data/state/orders/lease", nth=2))
        world.freeze(first)
        assert isinstance(world.backfill("b", D1, D3).error, HeldError)
        world.thaw(0)
    assert world.held_beside == ["b"] and len(list_held(world.paths)) == 1
    assert done(decide(world, "release", "b"))["rows"]["published"] == 6
    each_once(world)
