"""Checkpoints of version 0.1.0, whose lists of files named links, are taken over by the first run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.model import fake_spark
from tests.model.processes import Process, Stop
from tests.model.world import World
from tests.support.former import go_back_to_links
from tests.support.sweep import choose

Make = Callable[..., World]
STATE: list[Any] = [{"operator": "Aggregate", "keys": [], "values": []}]
LAST = "rename data/state/orders/checkpoint/{}/4"
KILLS = {
    "": None,
    "listed": Stop(LAST.format("sources/orders"), after=True),
    "planned": Stop(LAST.format("offsets"), after=True),
    "staged": Stop(LAST.format("commits")),
}
"""Where the last run of version 0.1.0 was killed."""


@pytest.fixture(params=[False, True], ids=["without state", "with state"])
def keeps_state(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", STATE if request.param else [])
        yield


def go(world: World, name: str) -> Process:
    """A run that goes well."""
    process = world.run(name)
    assert process.error is None, repr(process.error)
    return process


def make_former(new_world: Make, killed: str, *, compact_at: int | None = None) -> World:
    """Two runs of two batches each, perhaps a third one that was killed, and files that no run has seen."""
    world = new_world("files", batch_size=1)
    for number in range(2):
        world.offer(0, ["good"])
        world.offer(1, ["good", "malformed"])
        go(world, f"r{number}")
    if KILLS[killed] is not None:
        world.offer(0, ["good"])
        world.offer(1, ["good"])
        process = world.run("r2", stop=KILLS[killed])
        assert process.state == "stopped", process.calls[-5:]
        world.kill(process)
    go_back_to_links(world.paths, "orders", compact_at=compact_at)
    return world


@pytest.mark.parametrize(
    ("killed", "compact_at"),
    [(killed, at) for killed in KILLS for at in (None, 2, 3, 4) if killed or at != 4],
)
def test_each_record_is_read_once(new_world: Make, keeps_state: None, killed: str, compact_at: int | None) -> None:
    world = make_former(new_world, killed, compact_at=compact_at)
    world.offer(0, ["good"] * 2)
    report = go(world, "new").value
    note = "the checkpoint of version 0.1.0 was taken over: what it reads is in batch files now"
    assert note in report["notes"]
    world.offer(1, ["good"])
    assert note not in go(world, "newer").value["notes"]
    assert go(world, "idle").value["outcome"] == "nothing_new"
    world.check_all()


@pytest.mark.parametrize(("killed", "compact_at", "after"), [("planned", 3, False), ("listed", 4, True)])
def test_killed_anywhere(new_world: Make, killed: str, compact_at: int, after: bool) -> None:
    """And the next run takes the rest over."""
    calls = go(make_former(new_world, killed, compact_at=compact_at), "probe").calls
    first, *_, last = [
        number
        for number, call in enumerate(calls)
        if "/batches/orders/" in call or "checkpoint/sources/orders/" in call
    ]
    points = [nth for nth in range(first + 1, last + 2) if not calls[nth - 1].startswith("fsync ")]
    for nth in choose(points, 8):
        world = make_former(new_world, killed, compact_at=compact_at)
        process = world.run("killed", stop=Stop("", nth, after=after))
        assert process.state == "stopped"
        world.kill(process)
        world.offer(0, ["good"])
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
    world = make_former(new_world, "")
    assert go(world, "idle").value["outcome"] == "nothing_new"
    world.offer(0, ["good"])
    go(world, "next")
    world.check_all()
