"""A backfill reads all that the day had, also what a refresh took out of quarantine; no sound file is marked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.beside import D1, D2, code_of, done, refuse_all
from tests.model.processes import Stop
from tests.model.world import Make, Shape, World, read_log, read_plain
from tidegate.core.errors import HeldError, TidegateError
from tidegate.table.log.state import list_data_files


@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_a_backfill_of_a_day_to_which_a_refresh_gave_a_record_of_quarantine(make: Make, shape: Shape) -> None:
    """The refresh put it into the table; no publish of a run gave it to the day."""
    world = make(shape)
    world.offer(0, ["malformed", "good"])
    done(world.run("r1"))
    world.mended |= {one for one, kind in world.offered.items() if kind == "malformed"}  # the schema is corrected
    done(world.refresh("fresh"))
    world.check_all()
    assert len(read_log(world.paths.table)) == 2
    done(world.backfill("b", D1, D1))
    world.check_all()


def two_files(make: Make) -> World:
    world = make("files")
    world.offer(0, ["good"])
    world.offer(0, ["good"])
    done(world.run("r1"))
    world.broken = 1  # with the schema of now it goes to quarantine whole
    return world


def unreadable(world: World) -> list[str]:
    return sorted(path.name for path in world.paths.unreadable.glob("*.json"))


def test_a_backfill_killed_before_its_intent_leaves_no_mark_on_files_whose_rows_are_in_the_table(make: Make) -> None:
    world = two_files(make)
    world.kill(world.backfill("b", D1, D1, stop=Stop("link data/state/orders/intents")))
    world.broken = None
    done(world.run("r2"))
    assert len(read_log(world.paths.table)) == 2
    assert unreadable(world) == [], "its rows are in the table, and nothing of it is in quarantine"


def test_a_backfill_that_lost_its_lease_leaves_no_mark(make: Make) -> None:
    world = two_files(make)
    world.freeze(world.backfill("b", D1, D1, stop=Stop("link data/state/orders/intents")))
    world.broken = None
    done(world.run("r2"))
    before = unreadable(world)
    world.thaw(0)
    assert unreadable(world) == before == []


def test_a_retry_after_that_kill_goes_well(make: Make) -> None:
    world = two_files(make)
    world.kill(world.backfill("b", D1, D1, stop=Stop("link data/state/orders/intents")))
    world.broken = None
    done(world.backfill("b", D1, D1))
    world.check_all()


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
def test_a_held_one_that_is_released_keeps_the_whole_file(make: Make, kind: str) -> None:
    world = two_files(make)
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        process = world.backfill("b", D1, D1) if kind == "backfill" else world.refresh("b")
        assert isinstance(process.error, HeldError)
    done(world.decide_beside("release", "b"))
    aside = read_plain(world.paths.quarantine)
    assert aside == Counter({"None": 1}), aside
    assert unreadable(world), "quarantine names the file, and nothing is kept of it"


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
def test_what_one_that_passed_keeps(make: Make, kind: str) -> None:
    world = two_files(make)
    done(world.backfill("b", D1, D1) if kind == "backfill" else world.refresh("b"))
    assert unreadable(world)


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
@pytest.mark.parametrize("what", ["rewritten", "shrunk", "deleted"])
def test_a_file_that_changes_while_the_driver_starts(make: Make, kind: str, what: str) -> None:
    """The JVM takes seconds to start. What the file held when runs read it must not leave the table unnoticed."""
    world = make("files")
    world.offer(0, ["good"])
    world.offer(0, ["good"])
    done(world.run("r1"))
    submit, file = World._submit, world.root / "data" / "inbox" / "1.csv"

    def change_and_submit(self: World, plan: Any) -> int:
        if what == "deleted":
            file.unlink(missing_ok=True)
        else:
            file.write_text("f1-2,good\n" if what == "rewritten" else "")
        return submit(self, plan)

    world.passed.add("f1-2")
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(World, "_submit", change_and_submit)
        process = world.backfill("b", D1, D1) if kind == "backfill" else world.refresh("b")
    if what == "deleted":  # its link was there
        done(process)
    else:
        assert isinstance(process.error, TidegateError) and process.error.code == "BACKFILL_GONE"
    assert read_log(world.paths.table) == Counter(["f1-0", "f2-0"])


def test_a_file_that_was_copied_back_is_the_same_and_one_that_grew_is_read_as_far_as_it_was(make: Make) -> None:
    """Its time is another by now; what it holds tells."""
    world = make("files")
    world.offer(0, ["good"])
    done(world.run("r1"))
    file = world.root / "data" / "inbox" / "1.csv"
    text = file.read_bytes()
    file.unlink()
    for link in (world.paths.state / "intake").rglob("*.csv"):
        link.unlink()
    assert code_of(world.backfill("gone", D1, D1)) == "BACKFILL_GONE"
    file.write_bytes(text)
    done(world.backfill("b1", D1, D1))
    done(world.refresh("fresh"))
    assert read_log(world.paths.table) == Counter(["f1-0"])
    file.write_bytes(text + text)
    done(world.backfill("b2", D1, D1))
    done(world.refresh("again"))
    assert read_log(world.paths.table) == Counter(["f1-0"])
    file.write_bytes(text.replace(b"good", b"evil"))
    assert code_of(world.backfill("b3", D1, D1)) == code_of(world.refresh("other")) == "BACKFILL_GONE"


def test_a_day_that_a_backfill_emptied_can_be_rebuilt(make: Make) -> None:
    world = make("files")
    world.offer(0, ["good"])
    world.offer(0, ["good"])
    done(world.run("r1"))
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(fake_spark, "day_of", lambda row: D2)
        done(world.backfill("b", D1, D2))
    assert code_of(world.backfill("none", "2026-02-01", "2026-02-01")) == "BACKFILL_NO_SUCH_PARTITION"
    assert {file.partition["day"] for file in list_data_files(world.paths.table)} == {D2}
    assert code_of(world.backfill("b2", D1, D1)) in (None, "BACKFILL_SPILLS")
    done(world.backfill("b3", D1, D2))
    assert read_log(world.paths.table) == Counter(["f1-0", "f2-0"])
