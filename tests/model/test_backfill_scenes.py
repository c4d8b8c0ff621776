"""Backfills and refreshes beside all else: rows that move, work that slept, what two people decide, power cuts."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.beside import D1, D2, done, find_malformed, refresh, refuse_all
from tests.model.processes import Stop
from tests.model.world import NAME, Make, Shape, World, read_log
from tidegate.core.errors import DisagreementError, HeldError, SourceLostError, UsageError
from tidegate.rework.backfill.command import preview_backfill
from tidegate.rework.backfill.held import decide_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.decide import reread_run
from tidegate.runs.gate_steps import audit_run, publish_run
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer
from tidegate.runs.steps import ingest_run, run_pipeline
from tidegate.table.log.snapshot import read_snapshot


def move(patch: pytest.MonkeyPatch, **days: str) -> None:
    """The transform is another by now: it gives these records to these days."""
    before = fake_spark.day_of
    patch.setattr(fake_spark, "day_of", lambda row: days.get(row["id"].replace("-", "_")) or before(row))


def each_once(world: World) -> None:
    assert read_log(world.paths.table) + read_log(world.paths.quarantine) == Counter(list(world.offered))


@pytest.mark.parametrize("moved", [{"f1_0": D2}, {"f1_1": D1}, {"f1_0": D2, "f1_1": D1}], ids=["out", "in", "exchange"])
@pytest.mark.parametrize("day", [D1, D2])
def test_rows_that_may_have_moved_are_not_rebuilt_alone(
    make: Make, patch: pytest.MonkeyPatch, moved: dict[str, str], day: str
) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    move(patch, **moved)
    refused = world.backfill("one", day, day).error
    assert isinstance(refused, UsageError) and refused.code == "BACKFILL_SPILLS"
    world.check_all()
    assert done(world.backfill("both", D1, D2))["rebuilt"] == [f"day={D1}", f"day={D2}"]
    world.check_all()


@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_a_day_to_which_an_earlier_backfill_moved_rows(make: Make, patch: pytest.MonkeyPatch, shape: Shape) -> None:
    """The batch of such a row has never given one to that day by itself."""
    world = make(shape)
    world.offer(0, ["good"])
    done(world.run("r1"))
    world.offer(1, ["good"] * 4)
    done(world.run("r2"))
    move(patch, f1_0=D2, k0_0=D2)
    done(world.backfill("b", D1, D2))
    world.check_all()
    done(world.backfill("c", D2, D2))
    world.check_all()


def test_a_correction_that_is_taken_back(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    with pytest.MonkeyPatch.context() as inner:
        move(inner, f1_1=D1)
        done(world.backfill("b", D1, D2))
    refused = world.backfill("c", D1, D1).error
    assert isinstance(refused, UsageError) and refused.code == "BACKFILL_SPILLS"
    world.check_all()
    done(world.backfill("d", D1, D2))
    world.check_all()


def test_a_plan_that_comes_late_does_not_tell_an_old_report(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    asleep = world.backfill("b", D1, D2, stop=Stop("link data/state/orders/intents"))
    world.freeze(asleep)
    report = done(world.backfill("b", D1, D2))
    world.thaw(0)
    done(world.run("r2"))
    told = load_report(world.paths, "b")
    assert told is not None and (told.outcome, told.rebuilt) == (report["outcome"], report["rebuilt"])
    assert done(world.backfill("b", D1, D2)) == report
    world.check_all()


def test_a_plan_that_comes_late_is_not_carried_out_after_a_person_decided(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    asleep = world.backfill("a", D1, D1, stop=Stop("link data/state/orders/intents"))
    world.freeze(asleep)
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        assert isinstance(world.backfill("b", D1, D1).error, HeldError)
    decided = world._start(
        "decide b", lambda: decide_backfill(world.project, NAME, "b", Answer("discard", "wrong")), None
    )
    assert decided.error is None
    world.thaw(0)
    before = sorted(path.name for path in world.paths.table.rglob("[!.]*.parquet"))
    done(world.run("r2"))
    assert sorted(path.name for path in world.paths.table.rglob("[!.]*.parquet")) == before


def test_a_refresh_that_slept_while_records_were_quarantined(make: Make) -> None:
    """The files of the table are the same, those of quarantine are not: both are swapped, or neither."""
    world = make("files")
    world.offer(0, ["good", "good", "malformed"])
    done(world.run("r1"))
    with pytest.MonkeyPatch.context() as inner:
        find_malformed(inner, "f1-0", good=("f1-2",))
        world.freeze(refresh(world, "fresh", stop=Stop("link data/state/orders/intents")))
    world.offer(0, ["malformed"])
    done(world.run("r2"))
    world.thaw(0)
    done(world.run("r3"))
    each_once(world)


def test_a_held_refresh_is_not_released_over_records_that_were_quarantined_since(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good", "good", "malformed"])
    done(world.run("r1"))
    with pytest.MonkeyPatch.context() as inner:
        find_malformed(inner, "f1-0", good=("f1-2",))
        refuse_all(inner)
        assert isinstance(refresh(world, "fresh").error, HeldError)
    world.offer(0, ["malformed"])
    done(world.run("r2"))
    released = world._start(
        "decide fresh", lambda: decide_backfill(world.project, NAME, "fresh", Answer("release", "good")), None
    )
    assert isinstance(released.error, UsageError) and released.error.code == "BACKFILL_OUTDATED"
    each_once(world)


def test_a_damaged_staged_file_is_named_and_ends_the_run(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    world.kill(world.run("r1", stop=Stop("link data/state/orders/intents", after=True)))
    for file in (world.paths.state / "staging").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-3] + b"xxx")
    error = world.run("r2").error
    assert isinstance(error, DisagreementError) and error.code == "STAGED_FILE_DAMAGED"


@pytest.mark.parametrize("how", ["names", "names and zeros"])
def test_a_power_cut_during_a_backfill(make: Make, how: Any) -> None:
    """At every 24th storage call; a sweep over seeds takes others (tests/model/machine.py)."""
    for point in range(7, 480, 24):
        world = make("files")
        world.offer(0, ["good"] * 3)
        world.offer(0, ["good"] * 3)
        done(world.run("r1"))
        world.disk.sync_all()
        process = world.backfill("b", D1, D2, stop=Stop(nth=point))
        if process.state != "stopped":
            return
        world.kill(process)
        world.cut_power(how)
        for number in range(2):
            done(world.run(f"after-{number}"))
        world.check_all()
        done(world.backfill("b", D1, D2))
        world.check_all()
    raise AssertionError("a backfill takes fewer calls")


def test_a_dry_run_says_of_each_day_that_cannot_be_rebuilt_which_others_can(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    for file in (world.root / "data" / "inbox").glob("*.csv"):
        file.unlink()
    look = world._start("look", lambda: preview_backfill(world.project, NAME, Wanted(D1, D2)), None)
    fixes = [one["hindrance"]["fix"] for one in done(look)["intervals"]]
    way = "restore them, if they were files; what can be rebuilt without them: none; or `tidegate repair orders "
    assert len(fixes) == 2 and all(fix.startswith(way) for fix in fixes)


def test_a_run_under_the_id_of_a_held_backfill_is_refused(make: Make, patch: pytest.MonkeyPatch) -> None:
    """The run's report would take the place of the backfill's, and the release would find its work done."""
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    with pytest.MonkeyPatch.context() as refusing:
        refuse_all(refusing)
        assert isinstance(world.backfill("b", D1, D1).error, HeldError)
    world.offer(0, ["good"] * 2)
    for step in (ingest_run, run_pipeline):
        with pytest.raises(UsageError) as error:
            step(world.project, NAME, "b", submit=world._submit)
        assert error.value.code == "OTHER_ARGUMENTS"
    for later in (audit_run, publish_run):
        with pytest.raises(UsageError) as error:
            later(world.project, NAME, "b")
        assert error.value.code == "OTHER_ARGUMENTS"
    with pytest.raises(UsageError) as error:
        reread_run(world.project, NAME, "b", reason="again", submit=world._submit)
    assert error.value.code == "NOT_HELD" and "released or discarded, not read again" in str(error.value)
    report = done(world.decide_beside("release", "b"))
    assert (report["outcome"], report["rebuilt"]) == ("published", [f"day={D1}"])
    assert done(world.run("r2"))["rows"]["published"] == 2


@pytest.mark.parametrize("decision", ["release", "discard", "again"])
def test_a_held_backfill_tells_what_it_has_read_and_would_publish(
    make: Make, patch: pytest.MonkeyPatch, decision: str
) -> None:
    world = make("files")
    world.offer(0, ["good"] * 5)
    done(world.run("r1"))
    world.day_by_day = True
    world.kill(world.backfill("b", D1, D2, stop=Stop("unlink data/state/orders/intents/table")))
    with pytest.MonkeyPatch.context() as refusing:
        refuse_all(refusing)
        for _ in range(2):  # a second try counts anew
            assert isinstance(world.backfill("b", D1, D2).error, HeldError)
            report = load_report(world.paths, "b")
            assert report is not None and report.outcome == "held" and report.rebuilt == [f"day={D1}"]
            read = report.sources["orders"]["rows"]
            rows = {key: report.rows[key] for key in ("rejected", "transformed", "staged", "published")}
            assert rows == {"rejected": 0, "transformed": 5, "staged": 5, "published": 3} and read == 10
            assert report.notes[-1] == f"day={D2}: held: 2 rows would take the place of 2"
    after = {"release": 5, "again": 5, "discard": 3}[decision]
    if decision == "again":
        told = done(world.backfill("b", D1, D2))
    else:
        told = done(world.decide_beside(decision, "b"))
    assert (told["outcome"], told["rows"]["staged"], told["rows"]["published"]) == ("published", after, after)
    assert told["sources"]["orders"]["rows"] == (5 if decision == "discard" else 10)
    each_once(world)


def delete_from_outside(table: Path, path: str) -> None:
    """What DELETE of another program does that takes all rows of a file: it adds none."""
    number = max(int(one.stem) for one in (table / "_delta_log").glob("*[0-9].json")) + 1
    actions = [
        {"commitInfo": {"operation": "DELETE", "timestamp": 1}},
        {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}},
    ]
    text = "\n".join(json.dumps(one) for one in actions)
    (table / "_delta_log" / f"{number:020d}.json").write_text(text)


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
def test_rows_that_another_program_deleted_do_not_come_back(make: Make, kind: str) -> None:
    world = make("files")
    world.offer(0, ["good"])
    done(world.run("r0"))
    (path,) = read_snapshot(world.paths.table).added
    world.offer(0, ["good"])
    done(world.run("r1"))
    delete_from_outside(world.paths.table, path)
    assert read_log(world.paths.table) == Counter(["f2-0"])
    process = world.backfill("b", D1, D1) if kind == "backfill" else world.refresh("b")
    assert isinstance(process.error, UsageError) and process.error.code == "BACKFILL_FOREIGN_ROWS"
    assert read_log(world.paths.table) == Counter(["f2-0"])


def test_a_file_of_a_deletion_may_be_spelled_as_the_disk_has_it(make: Make) -> None:
    """So deltalake 1.6.6 does."""
    from deltalake import DeltaTable

    world = make("files")
    world.offer(0, ["good"])
    done(world.run("r0"))
    DeltaTable(str(world.paths.table)).delete("id = 'f1-0'")
    process = world.backfill("b", D1, D1)
    assert isinstance(process.error, UsageError) and process.error.code == "BACKFILL_FOREIGN_ROWS"


@pytest.mark.parametrize(("how", "rows"), [("grew", 4), ("another time stamp", 4), ("grew", 4000)])
def test_a_file_is_read_again_as_far_as_it_was_read(make: Make, how: str, rows: int) -> None:
    """What was appended since no run has taken; bytes that were brought back from a copy are the same. Of a large file
    its beginning and the end of what was read tell that it grew."""
    world = make("files")
    world.offer(0, ["good"] * rows)
    done(world.run("r1"))
    file = world.root / "data/inbox/1.csv"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data + (b"f1-new,good\n" if how == "grew" else b""))
    assert done(world.backfill("b", D1, D2))["rows"]["read"] == rows, "it is read once for both days"
    world.check_all()
    assert done(refresh(world, "fresh"))["rows"]["read"] == rows
    world.check_all()


def test_of_a_large_file_with_another_time_stamp_nobody_can_tell_that_it_is_the_same(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4000)
    done(world.run("r1"))
    os.utime(world.root / "data/inbox/1.csv", ns=(10**18, 10**18))
    refused = world.refresh("fresh").error
    assert isinstance(refused, SourceLostError) and refused.code == "BACKFILL_GONE"
    assert world.reads == 4000, "it is told before anything is read"


@pytest.mark.parametrize("is_readable", [True, False])
@pytest.mark.parametrize("source", ["gone", "another"])
def test_a_file_in_quarantine_whole_is_read_again_from_what_is_kept(make: Make, source: str, is_readable: bool) -> None:
    """Whatever has become of it in the source: its bytes are those that were read."""
    world = make("files")
    world.broken = 1
    for _ in range(4):
        world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    file = world.root / "data/inbox/1.csv"
    file.unlink()
    if source == "another":
        file.write_text("f1-other,good\n")
    world.is_readable = is_readable
    assert done(refresh(world, "fresh"))["rows"]["read"] == (16 if is_readable else 13)
    world.check_all()
    if is_readable:
        each_once(world)
