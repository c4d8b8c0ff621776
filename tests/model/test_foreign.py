"""Another engine acts on the table between any two storage calls of ours: each record is accounted for once through
each reader, or the command is refused and its own words lead on."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.model.foreign import TENDS
from tests.model.processes import Process, Stop
from tests.model.world import Make, Shape, World
from tidegate.core.errors import DisagreementError, SourceLostError
from tidegate.rework.replay.choose import Selection
from tidegate.spec.models import ExpireSpec, MaintenanceSpec

ACTS = [
    ("append", 4),
    ("delete", 0),
    ("delete", 3),
    ("compact", 0),
    ("vacuum all", 0),
    *((what, 0) for what in TENDS if what not in ("vacuum", "vacuum all", "property")),
]
_SWEEP = os.environ.get("TIDEGATE_SWEEP", "")


def _expire(world: World, stop: Stop | None) -> Process:
    expire: Any = {"partitions": f"{world.age_of_first_day()} seconds"}
    return world.maintain("c", MaintenanceSpec(keep_versions=0, expire=ExpireSpec(**expire)), stop=stop)


COMMANDS: dict[str, Callable[[World, Stop | None], Process]] = {
    "run": lambda world, stop: world.run("c", stop=stop),
    "steps": lambda world, stop: world.run_steps("c", stop=stop),
    "maintain": lambda world, stop: world.maintain("c", MaintenanceSpec(keep_versions=0), stop=stop),
    "expire": _expire,
    "backfill": lambda world, stop: world.backfill("c", "2026-01-01", "2026-01-02", stop=stop),
    "refresh": lambda world, stop: world.refresh("c", stop=stop),
    "leave-out": lambda world, stop: world.rollback(1, "leave-out", "c", stop=stop),
    "reread": lambda world, stop: world.rollback(1, "reread", "c", stop=stop),
    "replay": lambda world, stop: world.replay("c", Selection(), mend=True, stop=stop),
    "discard": lambda world, stop: world.decide("discard", "held", stop=stop),
    "release": lambda world, stop: world.decide("release", "held", stop=stop),
}


def begin(make: Make, shape: Shape, command: str) -> World:
    """Three runs, and something for the command to do."""
    world = make(shape)
    for number in range(3):
        world.offer(number % 2, ["good", "good", "malformed"])
        assert world.run(world.new_run_id()).error is None
    if command in ("discard", "release"):
        world.offer(0, ["poor", "poor"])
        assert world.run("held").error is not None
    elif command in ("run", "steps"):
        world.offer(1, ["good", "good", "malformed"])
    world.foreign.age(world.paths.state)
    return world


def meet(world: World, command: str, number: int, what: str, seed: int, fate: str) -> None:
    """The command stops at a call; the other engine acts; the command goes on, or another run comes."""
    process = COMMANDS[command](world, Stop(nth=number))
    if process.state == "stopped":
        world.disturb(what, seed)
        if fate == "killed":
            world.kill(process)
        else:
            world.freeze(process)
            world.thaw(0)
    world.check()
    world.settle("discard" if command == "discard" else "release")
    world.tend(source="keep")


def count_calls(make: Make, shape: Shape, command: str) -> int:
    return len(COMMANDS[command](begin(make, shape, command), None).calls)


def choose(make: Make, command: str) -> Iterator[tuple[Shape, int, str, int, str]]:
    """Which calls, and what happens there: three by chance, as many as ``TIDEGATE_SWEEP`` says, or all of them."""
    shapes: list[Shape] = ["kafka", "files"]
    chance = random.Random(command)
    if not _SWEEP:
        shapes = [chance.choice(shapes)]
    points = [(shape, number + 1) for shape in shapes for number in range(count_calls(make, shape, command))]
    every = [(*point, *act, fate) for point in points for act in ACTS for fate in ("killed", "thawed")]
    yield from every if _SWEEP == "all" else chance.sample(every, int(_SWEEP or 3))


@pytest.mark.parametrize("command", COMMANDS)
def test_between_any_two_calls(new_world: Make, command: str) -> None:
    """The command is killed there, or goes on behind what the other engine did."""
    for shape, *where in choose(new_world, command):
        world = begin(new_world, shape, command)
        try:
            meet(world, command, *where)
        except AssertionError as error:
            error.add_note("\n".join([f"{shape} {where}", *world.log]))
            raise


FOUND = [
    ("leave-out", "fsync data/state/orders/runs", 1, "delete", 3),
    ("refresh", ".replaced", 2, "vacuum all", 0),
    ("maintain", ".replaced", 2, "vacuum all", 0),
    ("maintain", "staging/maintain", 2, "compact", 0),
    ("leave-out", "fsync data/state/orders/intents", 1, "clean up", 0),
]
"""A rollback, or a maintenance, that had looked at the table before; old files that were just given the names under
which they stay; a rollback that is planned, to a version whose commits are then removed."""


@pytest.mark.parametrize("command, call, nth, what, seed", FOUND)
def test_found(new_world: Make, command: str, call: str, nth: int, what: str, seed: int) -> None:
    """What the sweep has found: nothing is lost, and nothing ends as a defect."""
    world = begin(new_world, "files", command)
    process = COMMANDS[command](world, Stop(call, nth))
    world.freeze(process)
    world.disturb(what, seed)
    world.thaw(0)
    if command == "leave-out":  # all files of the version are on disk
        assert process.error is None, process.error
    assert process.error is None or isinstance(process.error, SourceLostError | DisagreementError), process.error
    world.check()
    world.settle("release")


def test_found_killed(new_world: Make) -> None:
    """A refresh that was killed when old files were hidden, and of which another engine then replaced some: it is given
    up, and the next run goes on."""
    world = begin(new_world, "files", "refresh")
    process = COMMANDS["refresh"](world, Stop("unlink data/warehouse/orders/day", 1))
    world.disturb("compact", 0)
    world.kill(process)
    world.settle("release")


def test_found_after_a_power_cut(new_world: Make) -> None:
    """What a maintenance hid and noted as hidden stays hidden."""
    world = begin(new_world, "files", "run")
    world.disturb("compact", 0)
    assert world.maintain("m", MaintenanceSpec()).error is None
    world.cut_power("names and zeros")
    world.settle("release")
