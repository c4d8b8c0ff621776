"""Work beside the runs that slept, also in front of the removal of a folder: it changes nothing of its successor's."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.model.beside import D1, D2, decide, done, refuse_all
from tests.model.processes import Stop, current
from tests.model.world import Make, World
from tidegate.core.errors import HeldError
from tidegate.runs.gate import increment
from tidegate.runs.reports.report import load_report
from tidegate.spec.models import MaintenanceSpec


@pytest.fixture
def trees(patch: pytest.MonkeyPatch) -> None:
    """The removal of a folder is a storage call too: a process may be frozen before it, after its look at the lease."""
    real = shutil.rmtree

    def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
        process = current()
        with process.at(f"rmtree {Path(path).parent.name}") if process is not None else contextlib.nullcontext():
            real(path, *args, **kwargs)

    patch.setattr(shutil, "rmtree", rmtree)


def hold_first_day(make: Make) -> World:
    """The first of two days is held, and the command was killed before the second one."""
    world = make("files")
    world.day_by_day = True
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        world.kill(world.backfill("b", D1, D2, stop=Stop("/held.json", after=True)))
    world.passed |= set(world.offered)
    return world


@pytest.mark.parametrize("stop", [Stop("unlink held.json"), Stop("rmtree backfill-")], ids=["at the note", "before"])
def test_a_release_that_slept_removes_nothing_of_the_next_interval_that_is_held(
    make: Make, trees: None, stop: Stop
) -> None:
    world = hold_first_day(make)
    world.freeze(decide(world, "release", "b", stop=stop))
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        process = world.backfill("b", D1, D2)
        assert isinstance(process.error, HeldError), repr(process.error)
    assert world.held_beside == ["b"]
    world.thaw(0)
    told = load_report(world.paths, "b")
    assert told is not None and told.outcome == "held"
    assert world.held_beside == ["b"], "the report says that it is held, and nothing can be decided on any more"


@pytest.mark.parametrize("nth", [9, 11, 15, 30, 31, 32, 37, 38, 39])
def test_a_release_that_slept_removes_nothing_that_is_being_published(make: Make, trees: None, nth: int) -> None:
    """``nth``: how far its successor has come with the next interval, from its intent on, when it wakes up."""
    world = hold_first_day(make)
    world.freeze(decide(world, "release", "b", stop=Stop("rmtree backfill-")))
    calls = probe(make, lambda world: world.backfill("b", D1, D2))
    first = next(n for n, call in enumerate(calls) if call.startswith("link data/state/orders/intents")) + 1
    if first + nth > len(calls):
        pytest.skip("it has fewer")
    world = hold_first_day(make)
    world.freeze(decide(world, "release", "b", stop=Stop("rmtree backfill-")))
    process = world.backfill("b", D1, D2, stop=Stop(nth=first + nth - 1, after=True))
    world.thaw(0)
    process.thaw()
    done(world.run("after"))
    world.check_all()


def probe(make: Make, command: Any) -> list[str]:
    world = hold_first_day(make)
    done(decide(world, "release", "b"))
    return list(command(world).calls)


def test_maintenance_that_slept_removes_nothing_of_a_backfill_that_is_held_since(make: Make, trees: None) -> None:
    """It looked for a backfill that was stopped; under the same run id that goes on in the same folder."""
    world = make("files")
    world.offer(0, ["good"] * 4)
    done(world.run("r1"))
    world.kill(world.backfill("b", D1, D1, stop=Stop("link data/state/orders/intents")))
    settings = MaintenanceSpec(keep_versions="7 days", compact_below=0, source="keep")
    world.freeze(world.maintain("m", settings, stop=Stop("rmtree backfill-")))
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        assert isinstance(world.backfill("b", D1, D1).error, HeldError)
    assert world.held_beside == ["b"]
    world.thaw(0)
    assert world.held_beside == ["b"]


@pytest.mark.parametrize("then", ["held again", "published"])
def test_a_backfill_that_slept_puts_no_note_over_that_of_its_successor(make: Make, then: str) -> None:
    """It does not look at the lease between the gate's word and the note that it is held."""

    def begin() -> World:
        world = make("files")
        world.offer(0, ["good"] * 4)
        done(world.run("r1"))
        return world

    def judged(*args: Any) -> Any:
        results = refused(*args)
        process = current()
        assert process is not None
        with process.at("judged"):
            return results

    world = begin()
    with pytest.MonkeyPatch.context() as inner:
        refuse_all(inner)
        refused = increment._judge
        inner.setattr(increment, "_judge", judged)
        asleep = world.backfill("b", D1, D1, stop=Stop("judged", after=True))
        world.freeze(asleep)
        if then == "held again":
            assert isinstance(world.backfill("b", D1, D1).error, HeldError)
    if then == "published":
        done(world.backfill("b", D1, D1))
    world.passed |= set(world.offered)
    world.thaw(0)
    if then == "published":
        assert world.held_beside == [], "it is over, and a backfill is said to be held"
    else:
        assert done(decide(world, "release", "b"))["outcome"] == "published"
