"""Checkpoints of version 0.1.0, whose lists of files named links, are taken over by the first run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.model import fake_spark
from tests.model.processes import Process, Stop
from tests.model.world import World
from tests.support.former import go_back_to_links

Make = Callable[..., World]
STATE = [{"operator": "Aggregate", "keys": [], "values": []}]


@pytest.fixture(params=[False, True], ids=["without state", "with state"])
def keeps_state(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", STATE if request.param else [])
        yield


def go(world: World, name: str) -> Process:
    process = world.run(name)
    assert process.error is None, repr(process.error)
    return process


def make_former(new_world: Make, killed_at: Stop | None, *, idle: bool = False, compact_at: int | None = None) -> World:
    """Two runs of two files each, and a third one that was killed; the fourth has other files to read."""
    world = new_world("files", batch_size=1)
    for number in range(2):
        world.offer(0, ["good"])
        world.offer(1, ["good", "malformed"])
        go(world, f"r{number}")
    if killed_at is not None:
        world.offer(0, ["good"])
        world.offer(1, ["good"])
        process = world.run("r2", stop=killed_at)
        assert process.state == "stopped", process.calls[-5:]
        world.kill(process)
    go_back_to_links(world.paths, "orders", compact_at=compact_at)
    if not idle:
        world.offer(0, ["good"] * 2)
    return world


@pytest.mark.parametrize("compact_at", [None, 2, 3, 4])
@pytest.mark.parametrize(
    "killed_at",
    [
        None,
        Stop("rename data/state/orders/checkpoint/sources/orders/4", after=True),
        Stop("rename data/state/orders/checkpoint/offsets/4", after=True),
        Stop("checkpoint/commits/4"),
    ],
    ids=["", "listed", "planned", "staged"],
)
def test_each_record_is_read_once(
    new_world: Make, keeps_state: None, killed_at: Stop | None, compact_at: int | None
) -> None:
    world = make_former(new_world, killed_at, compact_at=compact_at if killed_at or compact_at != 4 else None)
    report = go(world, "new").value
    note = "the checkpoint of version 0.1.0 was taken over: what it reads is in batch files now"
    assert note in report["notes"]
    world.offer(1, ["good"])
    assert note not in go(world, "newer").value["notes"]
    assert go(world, "idle").value["outcome"] == "nothing_new"
    world.check_all()


@pytest.mark.parametrize("after", [False, True])
def test_killed_anywhere(new_world: Make, after: bool) -> None:
    """And the next run goes on."""
    at = Stop("checkpoint/offsets/4", after=True)
    calls = go(make_former(new_world, at, compact_at=3), "probe").calls
    last = max(
        number for number, call in enumerate(calls) if "checkpoint/sources/orders/" in call and "replace" in call
    )
    for nth in range(1, last + 2):
        world = make_former(new_world, at, compact_at=3)
        process = world.run("killed", stop=Stop("", nth, after=after))
        assert process.state == "stopped"
        world.kill(process)
        go(world, "next")
        world.check_all()


@pytest.mark.parametrize("file", ["sources/orders", "offsets"])
def test_the_first_batch_was_never_staged(new_world: Make, file: str) -> None:
    world = new_world("files", batch_size=1)
    world.offer(0, ["good"])
    world.offer(1, ["good"])
    process = world.run("r0", stop=Stop(f"rename data/state/orders/checkpoint/{file}/0", after=True))
    assert process.state == "stopped"
    world.kill(process)
    go_back_to_links(world.paths, "orders")
    world.offer(0, ["good"])
    go(world, "new")
    world.check_all()


def test_nothing_is_new(new_world: Make) -> None:
    world = make_former(new_world, None, idle=True)
    assert go(world, "idle").value["outcome"] == "nothing_new"
    world.offer(0, ["good"])
    go(world, "next")
    world.check_all()
