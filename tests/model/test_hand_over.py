"""A refresh whose query takes the place of the pipeline's: each record once, wherever it is killed, frozen or cut off.

The query says that it keeps state (:data:`tests.model.fake_spark.STATE`); that what it keeps goes on is for tests with
Spark (tests/streams/test_refresh.py).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.beside import KEPT, code_of, decide, done, points_of_finishing, refresh, refuse_all, run_live
from tests.model.processes import Stop
from tests.model.world import NAME, Make, Shape, World, read_log
from tests.support.sweep import choose
from tidegate.core.errors import HeldError, UsageError
from tidegate.rework.backfill.command import preview_backfill
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.report import load_report
from tidegate.state.birth import read_birth, read_births
from tidegate.state.published import read_retired

SHAPES: tuple[Shape, ...] = ("files", "kafka")


@pytest.fixture(autouse=True)
def keeps_state() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", [KEPT])
        yield


@pytest.fixture
def make(new_world: Make) -> Make:
    def make_world(shape: Shape) -> World:
        """Two runs, with a record that is malformed, and records that no run has read yet."""
        world = new_world(shape)
        world.batch_size = 2
        world.offer(0, ["good", "good", "malformed"])
        world.offer(1, ["good"])
        done(world.run(world.new_run_id()))
        world.offer(0, ["good"] * 3)
        done(world.run(world.new_run_id()))
        world.offer(1, ["good", "malformed"])
        return world

    return make_world


@pytest.mark.parametrize("shape", SHAPES)
def test_live_runs_go_on_with_the_new_query(make: Make, shape: Shape) -> None:
    world = make(shape)
    before = gather_facts(world.paths, world.spec)
    report = done(refresh(world))
    assert (report["outcome"], report["mode"], report["rebuilt"]) == ("published", "refresh", ["the whole table"])
    facts = gather_facts(world.paths, world.spec)
    check_agreement(facts, NAME)
    assert before.query_id is not None and facts.query_id != before.query_id
    assert read_retired(world.paths) == {before.query_id: before.settled_up_to(before.query_id)}
    assert facts.settled_up_to(str(facts.query_id)) == facts.checkpoint.last_commit
    assert not list(world.paths.backfills.rglob("*")) and not list(world.paths.intents.glob("*"))
    assert done(refresh(world)) == report  # a retry
    run_live(world)


@pytest.mark.parametrize("shape", SHAPES)
def test_again_and_again(make: Make, shape: Shape) -> None:
    """What the second one reads again are the records that the first one had read, and those of live runs since."""
    world = make(shape)
    for number in range(3):
        done(refresh(world, f"fresh-{number}"))
        world.check()
        run_live(world)
    births = read_births(world.paths)
    assert [birth.replaces is not None for birth in births] == [False, True, True, True]


def all_points(make: Make, shape: Shape) -> list[int]:
    return list(range(1, len(refresh(make(shape)).calls) + 1))


def kill_at(make: Make, shape: Shape, point: int, *, after: bool, next_is: str) -> None:
    world = make(shape)
    process = refresh(world, stop=Stop(nth=point, after=after))
    world.kill(process)
    world.check()
    if next_is == "run":
        run_live(world)
    assert done(refresh(world))["outcome"] == "published"
    run_live(world)
    told = load_report(world.paths, "fresh")
    assert told is not None and told.outcome == "published"


def freeze_at(make: Make, shape: Shape, point: int, *, other: bool) -> None:
    """Others take the lease, finish what it began, and go on; then it wakes up and changes nothing."""
    world = make(shape)
    world.freeze(refresh(world, stop=Stop(nth=point)))
    done(world.run(world.new_run_id()))
    world.check_all()
    if other:
        done(refresh(world, "other"))
    world.thaw(0)
    run_live(world)
    done(refresh(world, "last"))
    run_live(world)


@pytest.mark.parametrize("shape", SHAPES)
def test_killed_while_it_is_finished(make: Make, shape: Shape) -> None:
    for number, point in enumerate(choose(points_of_finishing(refresh(make(shape)), killed=True), 6)):
        kill_at(make, shape, point, after=False, next_is="refresh" if number % 2 else "run")


@pytest.mark.parametrize("shape", SHAPES)
def test_frozen_while_it_is_finished(make: Make, shape: Shape) -> None:
    for number, point in enumerate(choose(points_of_finishing(refresh(make(shape))), 6)):
        freeze_at(make, shape, point, other=number % 2 == 0)


@pytest.mark.parametrize("next_is", ["run", "refresh"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_killed_at_every_storage_call(make: Make, shape: Shape, after: bool, next_is: str) -> None:
    for point in all_points(make, shape):
        kill_at(make, shape, point, after=after, next_is=next_is)


@pytest.mark.parametrize("other", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_frozen_at_every_storage_call(make: Make, shape: Shape, other: bool) -> None:
    for point in all_points(make, shape):
        freeze_at(make, shape, point, other=other)


@pytest.mark.parametrize("how", ["names", "names and zeros"])
def test_a_power_cut_while_it_is_finished(make: Make, how: Any) -> None:
    for point in choose(points_of_finishing(refresh(make("files"))), 6):
        world = make("files")
        world.disk.sync_all()
        world.kill(refresh(world, stop=Stop(nth=point)))
        world.cut_power(how)
        run_live(world)
        done(refresh(world, "again"))
        run_live(world)


def hold(world: World) -> None:
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        assert isinstance(refresh(world).error, HeldError)


def test_a_held_one_is_released_as_it_was_built(make: Make) -> None:
    world = make("files")
    hold(world)
    report = done(decide(world, "release"))
    assert (report["outcome"], report["mode"]) == ("published", "refresh")
    assert [birth.rebuilt_up_to is not None for birth in read_births(world.paths)] == [False, True]
    run_live(world)


def test_a_held_one_is_not_released_when_runs_have_read_more(make: Make) -> None:
    """Even where what they read changed no file of the table: the new query would not have it."""
    world = make("files")
    hold(world)
    done(world.run(world.new_run_id()))
    files = sorted(world.paths.table.rglob("[!.]*.parquet"))
    assert code_of(decide(world, "release")) == "BACKFILL_OUTDATED"
    assert sorted(world.paths.table.rglob("[!.]*.parquet")) == files
    done(decide(world, "discard"))
    del world.judged["fresh"]  # its rows are those of runs
    done(refresh(world, "anew"))
    run_live(world)


def test_what_is_held_or_not_published_is_in_the_way(make: Make) -> None:
    world = make("files")
    world.kill(world.run("half", stop=Stop("replace data/state/orders/verdicts")))
    process = refresh(world)
    assert isinstance(process.error, UsageError) and code_of(process) == "REFRESH_PENDING"
    assert read_births(world.paths)[-1].rebuilt_up_to is None
    run_live(world)
    done(refresh(world, "then"))
    run_live(world)


def test_a_batch_that_was_only_planned_is_read_by_the_next_run(make: Make) -> None:
    world = make("kafka")
    world.kill(world.run("half", stop=Stop("manifests")))
    facts = gather_facts(world.paths, world.spec)
    assert facts.in_flight is not None and not facts.unpublished
    done(refresh(world))
    run_live(world)


@pytest.mark.parametrize("shape", SHAPES)
def test_discarded_records_stay_left_out(make: Make, shape: Shape) -> None:
    world = make(shape)
    done(world.run(world.new_run_id()))
    world.offer(0, ["bad", "bad", "good"])
    assert isinstance(world.run("held").error, HeldError)
    done(world.decide("discard", "held"))
    world.offer(0, ["good"])
    done(world.run(world.new_run_id()))
    for number in range(2):
        report = done(refresh(world, f"fresh {number}"))
        assert any("3 records of excluded increments stay excluded" in note for note in report["notes"])
        world.check_all()
    run_live(world)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_backfill_after_it(make: Make, shape: Shape) -> None:
    """Of what the new query has passed over, and its ranges go over, nothing is read."""
    world = make(shape)
    done(world.run(world.new_run_id()))
    world.offer(0, ["bad", "bad", "good"])
    assert isinstance(world.run("held").error, HeldError)
    done(world.decide("discard", "held"))
    world.offer(0, ["good", "good"])
    done(world.run(world.new_run_id()))
    done(refresh(world))
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(fake_spark, "STATE", [])
        done(refresh(world, "stateless"))
        world.check_all()
        for number, (first, last) in enumerate([("2026-01-01", "2026-01-01"), ("2026-01-01", "2026-01-02")]):
            done(world.backfill(f"days {number}", first, last))
            world.check_all()
        run_live(world)


def test_no_rollback_goes_back_over_it(make: Make) -> None:
    world = make("files")
    done(refresh(world))
    for then in ("reread", "leave-out"):
        assert code_of(world.rollback(0, then)) == "ROLLBACK_MOVED"
    run_live(world)


def test_a_copy_of_the_table_from_before_it_is_not_read_on_from(make: Make) -> None:
    """The files of its rows count as read by the new query: with a new checkpoint they would be read once more."""
    world = make("files")
    before = world.root / "before"
    shutil.copytree(world.paths.table, before)
    done(refresh(world))
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr("tidegate.runs.restart.repair.query_keeps_state", lambda *_: False)
        shutil.rmtree(world.paths.table)
        shutil.copytree(before, world.paths.table)
        assert code_of(world.repair()) == "NOT_IN_TABLE"


def test_a_transform_that_keeps_state_only_now_or_not_any_more(make: Make, keeps_state: None) -> None:
    world = make("files")
    done(refresh(world))
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(fake_spark, "STATE", [])
        assert code_of(world.run(world.new_run_id())) == "STATE_CHANGED"
        done(refresh(world, "stateless"))
        run_live(world)
        birth = read_birth(world.paths)
        assert birth is not None and not birth.keeps_state
        done(refresh(world, "as ever"))
        run_live(world)
        assert read_birth(world.paths) == birth
    done(refresh(world, "stateful"))
    birth = read_birth(world.paths)
    assert birth is not None and birth.keeps_state
    run_live(world)


def test_a_dry_run_says_what_is_in_the_way(make: Make) -> None:
    world = make("files")
    plan = preview_backfill(world.project, NAME, None)
    assert plan["hindrance"] is None and plan["intervals"][0]["files"] == 3
    assert read_log(world.paths.table) == Counter(
        one for one, kind in world.offered.items() if one[:2] != "f4" and kind == "good"
    )
