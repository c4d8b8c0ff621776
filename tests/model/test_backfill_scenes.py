"""Backfills and refreshes beside all else: rows that move, work that slept, what two people decide, power cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.processes import Process, Stop
from tests.model.world import NAME, Make, Shape, World, read_log
from tidegate.backfill.command import refresh_table
from tidegate.backfill.held import decide_backfill
from tidegate.errors import DisagreementError, HeldError, UsageError
from tidegate.gate import increment
from tidegate.reports.report import load_report

D1, D2 = "2026-01-01", "2026-01-02"


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


@pytest.fixture
def make(new_world: Make) -> Make:
    return new_world


def done(process: Process) -> Any:
    assert process.error is None, repr(process.error)
    return process.value


def refresh(world: World, run_id: str, stop: Stop | None = None) -> Process:
    return world._start(
        f"backfill {run_id}", lambda: refresh_table(world.project, NAME, run_id, submit=world._submit), stop
    )


def move(patch: pytest.MonkeyPatch, **days: str) -> None:
    """The transform is another by now: it gives these records to these days."""
    before = fake_spark.day_of
    patch.setattr(fake_spark, "day_of", lambda row: days.get(row["id"].replace("-", "_")) or before(row))


def find_malformed(patch: pytest.MonkeyPatch, *bad: str, good: tuple[str, ...] = ()) -> None:
    """The schema is another by now: these records are malformed, and those are not any more."""
    read = fake_spark._Query._read_files

    def kind(row: dict[str, str]) -> str:
        return "malformed" if row["id"] in bad else "good" if row["id"] in good else row["kind"]

    def read_anew(self: Any, *ranges: Any) -> list[tuple[dict[str, str], str]]:
        return [({**row, "kind": kind(row)}, position) for row, position in read(self, *ranges)]

    patch.setattr(fake_spark._Query, "_read_files", read_anew)


def refuse_all(patch: pytest.MonkeyPatch) -> None:
    judge = increment._judge
    patch.setattr(increment, "_judge", lambda *a: [replace(one, success=False) for one in judge(*a)])


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
    assert done(world.backfill("both", D1, D2))["rebuilt"] == [f"day={D1}..{D2}"]
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
        "decide b", lambda: decide_backfill(world.project, NAME, "b", decision="discard", reason="wrong"), None
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
        "decide fresh", lambda: decide_backfill(world.project, NAME, "fresh", decision="release", reason="good"), None
    )
    assert isinstance(released.error, UsageError) and released.error.code == "BACKFILL_OUTDATED"
    each_once(world)


def test_a_retry_that_asks_for_less(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    world.kill(world.backfill("b", D1, D2, stop=Stop("unlink data/state/orders/intents/table")))
    assert done(world.backfill("b", D1, D1))["outcome"] == "published"
    world.check_all()


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
    """At every 20th storage call; a sweep over seeds takes others (tests/model/machine.py)."""
    for point in range(7, 400, 20):
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


@pytest.mark.parametrize("how", ["grew", "another time stamp"])
def test_a_file_is_read_again_as_far_as_it_was_read(make: Make, how: str) -> None:
    """What was appended since no run has taken; bytes that were brought back from a copy are the same."""
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    file = world.root / "data/inbox/1.csv"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data + (b"f1-4,good\n" if how == "grew" else b""))
    assert done(world.backfill("b", D1, D2))["rows"]["read"] == 8, "each day reads the file"
    world.check_all()
    assert done(refresh(world, "fresh"))["rows"]["read"] == 4
    world.check_all()


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
