"""A refresh whose query takes the place of the pipeline's: each record once, wherever it is killed, frozen or cut off.

The query says that it keeps state (:data:`tests.model.fake_spark.STATE`); that what it keeps goes on is for tests with
Spark (tests/streams/test_refresh.py).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.machine import ROOM
from tests.model.processes import Process, Stop
from tests.model.world import NAME, Shape, World
from tidegate.backfill.command import refresh_table
from tidegate.backfill.held import decide_backfill
from tidegate.errors import TidegateError
from tidegate.preflight.agreement import check_agreement
from tidegate.preflight.facts import gather_facts
from tidegate.reports.report import load_report
from tidegate.staging.birth import KeptState, read_births
from tidegate.staging.retired import read_retired

SHAPES: tuple[Shape, ...] = ("files", "kafka")
KEPT: KeptState = {"operator": "aggregate", "keys": ["id"], "values": ["count"]}
Make = Callable[..., World]


@pytest.fixture(autouse=True)
def keeps_state() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", [KEPT])
        yield


@pytest.fixture
def make() -> Iterator[Make]:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-hand-over-", dir=ROOM))
    worlds: list[tuple[World, pytest.MonkeyPatch]] = []

    def end() -> None:
        while worlds:
            world, own = worlds.pop()
            world.end()
            own.undo()
            shutil.rmtree(world.root)

    def make_world(shape: Shape) -> World:
        """Two runs, with a record that is malformed, and records that no run has read yet."""
        end()
        own = pytest.MonkeyPatch()
        world = World(folder / str(len(list(folder.iterdir()))), shape, own, batch_size=2)
        worlds.append((world, own))
        world.offer(0, ["good", "good", "malformed"])
        world.offer(1, ["good"])
        done(world.run(world.new_run_id()))
        world.offer(0, ["good"] * 3)
        done(world.run(world.new_run_id()))
        world.offer(1, ["good", "malformed"])
        return world

    yield make_world
    end()
    shutil.rmtree(folder, ignore_errors=True)


def done(process: Process) -> Any:
    assert process.error is None, repr(process.error)
    return process.value


def refresh(world: World, run_id: str = "fresh", stop: Stop | None = None) -> Process:
    return world._start(
        f"backfill {run_id}", lambda: refresh_table(world.project, NAME, run_id, submit=world._submit), stop
    )


def decide(world: World, decision: Any, run_id: str = "fresh") -> Process:
    return world._start(
        f"decide {run_id}", lambda: decide_backfill(world.project, NAME, run_id, decision=decision, reason="seen"), None
    )


def go_on(world: World) -> None:
    """Two live runs, with more records between them; then all that was offered is there, once."""
    world.check()
    done(world.run(world.new_run_id()))
    world.check_all()
    world.offer(0, ["good", "malformed"])
    done(world.run(world.new_run_id()))
    world.check_all()
    reads = world.reads
    done(world.run(world.new_run_id()))
    assert world.reads == reads


def code_of(process: Process) -> str:
    assert isinstance(process.error, TidegateError), repr(process.error)
    return process.error.code


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
    go_on(world)


@pytest.mark.parametrize("shape", SHAPES)
def test_again_and_again(make: Make, shape: Shape) -> None:
    """What the second one reads again are the records that the first one had read, and those of live runs since."""
    world = make(shape)
    for number in range(3):
        done(refresh(world, f"fresh-{number}"))
        world.check()
        go_on(world)
    births = read_births(world.paths)
    assert [birth.replaces is not None for birth in births] == [False, True, True, True]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_storage_call(make: Make, shape: Shape, after: bool) -> None:
    points = 0
    while True:
        points += 1
        world = make(shape)
        process = refresh(world, stop=Stop(nth=points, after=after))
        if process.state != "stopped":
            break
        world.kill(process)
        world.check()
        if points % 2:
            go_on(world)
            done(refresh(world))
        else:
            assert done(refresh(world))["outcome"] == "published"
        go_on(world)
        told = load_report(world.paths, "fresh")
        assert told is not None and told.outcome == "published", points
    assert points > 100


@pytest.mark.parametrize("shape", SHAPES)
def test_frozen_at_every_storage_call(make: Make, shape: Shape) -> None:
    """Others take the lease, finish what it began, and go on; then it wakes up and changes nothing."""
    points = 0
    while True:
        points += 1
        world = make(shape)
        process = refresh(world, stop=Stop(nth=points))
        if process.state != "stopped":
            break
        world.freeze(process)
        done(world.run(world.new_run_id()))
        world.check_all()
        if points % 2:
            done(refresh(world, "other"))
        world.thaw(0)
        go_on(world)
        done(refresh(world, "last"))
        go_on(world)
    assert points > 100
