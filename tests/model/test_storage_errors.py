"""One call of the operating system fails, with EIO or an errno that nobody knows: 75 with the path, then all rows."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.model.beside import D1, D2
from tests.model.processes import Process
from tests.model.world import Make, Shape, World
from tests.support.storage_errors import ERRNOS, UNKNOWN, FailingCalls
from tidegate.core.errors import TidegateError
from tidegate.core.extras import explain_missing
from tidegate.core.storage import name_cause
from tidegate.rework.replay.choose import Selection
from tidegate.spec.models import MaintenanceSpec


def make_ready(world: World) -> None:
    """Two versions with small files, records in quarantine, and records that no run has read yet."""
    world.batch_size = 2
    world.offer(0, ["good", "good", "malformed"])
    assert world.run(world.new_run_id()).error is None
    world.offer(1, ["good", "malformed"])
    assert world.run(world.new_run_id()).error is None
    world.offer(0, ["good", "malformed", "good"])


def run(world: World) -> Process:
    return world.run("failing")


def maintain(world: World) -> Process:
    return world.maintain("failing", MaintenanceSpec(keep_versions=0, compact_below="1 MiB", source="archive"))


def backfill(world: World) -> Process:
    return world.backfill("failing", D1, D2)


def replay(world: World) -> Process:
    return world.replay("failing", Selection(), mend=True)


COMMANDS: dict[str, Callable[[World], Process]] = {one.__name__: one for one in (run, maintain, backfill, replay)}


def as_main(command: Callable[[], Any]) -> Any:
    """What ``cli.main`` and the operators make of an error."""
    try:
        return command()
    except TidegateError:
        raise
    except Exception as error:
        known = explain_missing(error) or name_cause(error, Path.cwd())
        if known is None:
            raise
        raise known from error


def try_out(world: World, command: str, at: int, number: int) -> FailingCalls:
    """The command with call ``at`` failing, and what comes after it."""
    make_ready(world)
    start = world._start
    with pytest.MonkeyPatch.context() as patch:
        calls = FailingCalls(patch, world.root, at, number)
        patch.setattr(world, "_start", lambda name, act, stop: start(name, lambda: as_main(act), stop))
        error = COMMANDS[command](world).error
    told = f"{command} with {number} at call {at}, {calls.failed}"
    if error is not None:
        assert isinstance(error, TidegateError) and error.exit_code == 75, f"{told}: {error}"
        assert str(world.root) in str(error), f"{told}: names no path: {error}"
        if number == UNKNOWN and error.code == "STORAGE_FAILED":
            assert "(errno 4095)" in error.message
    try:
        world.check()
        again = COMMANDS[command](world) if error is not None else None
        assert again is None or again.error is None, again.error
        assert world.run(world.new_run_id()).error is None
        world.check_all()
    except AssertionError as wrong:
        raise AssertionError(f"{told}: {wrong}\n" + "\n".join(world.log)) from wrong
    return calls


def sweep(new_world: Make, shape: Shape, command: str, sample: int | None) -> None:
    """Have each line of the program's first call of each kind fail, or as many of them as the sample has."""
    places = sorted(try_out(new_world(shape), command, 0, errno.EIO).first.values())
    faults = []
    for turn, at in enumerate(places[:: len(places) // sample if sample else 1]):
        try:
            try_out(new_world(shape), command, at, ERRNOS[turn % 2])
        except AssertionError as fault:
            faults.append(str(fault))
    assert not faults, "\n\n".join(faults)


SAMPLES: list[tuple[str, Shape]] = [("run", "files"), ("maintain", "files"), ("backfill", "kafka"), ("replay", "kafka")]


@pytest.mark.parametrize(("command", "shape"), SAMPLES)
def test_a_call_fails(new_world: Make, shape: Shape, command: str) -> None:
    sweep(new_world, shape, command, 3)


@pytest.mark.parametrize("shape", ["files", "kafka"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_call_fails(new_world: Make, shape: Shape, command: str) -> None:
    sweep(new_world, shape, command, None)
