"""Pipelines whose state is on an object store, and whose commands are on one machine after the other."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.model.machine import Pipeline
from tests.model.on_store import put_on_store
from tests.model.processes import Stop
from tests.model.world import Make, Shape, World
from tidegate.core.errors import HeldError

_EACH = os.environ.get("TIDEGATE_SWEEP", "0") != "0"


class OnStore(Pipeline):
    """The model on two machines. Its power cuts, edits and clocks are about one disk."""

    on_store = True
    without = frozenset({"cut", "edit", "clock"})


TestOnStore = OnStore.TestCase
TestOnStore.settings = settings(
    max_examples=6,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


def begin(make: Make, patch: pytest.MonkeyPatch, shape: Shape) -> World:
    world = make(shape)
    put_on_store(world, patch)
    world.offer(0, ["good", "malformed"])
    assert world.run("first").error is None
    world.offer(1, ["good", "good"])
    return world


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_stopped_at_any_request(new_world: Make, patch: pytest.MonkeyPatch, shape: Shape, how: str) -> None:
    """The next run, on another machine, continues; a process that was frozen changes nothing that a reader sees."""
    at, is_over = 0, False
    while not is_over:
        at += 1 if _EACH else 7
        world = begin(new_world, patch, shape)
        process = world.run("second", stop=Stop("store/", nth=at, after=at % 2 == 0))
        is_over = process.state == "ended"
        if not is_over:
            world.kill(process) if how == "killed" else world.freeze(process)
        world.check()
        assert world.run("third").error is None
        world.settle("release")
    assert at > 15


def test_a_held_increment_is_decided_on_another_machine(new_world: Make, patch: pytest.MonkeyPatch) -> None:
    for decision in ("release", "discard", "reread"):
        world = begin(new_world, patch, "files")
        world.offer(0, ["poor", "poor", "poor"])
        assert isinstance(world.run("held").error, HeldError)
        error = world.decide(decision, "held").error
        assert error is None or (decision == "reread" and isinstance(error, HeldError))
        world.settle("release")


def test_each_command_is_on_a_new_machine(new_world: Make, patch: pytest.MonkeyPatch) -> None:
    world = new_world("files")
    put_on_store(world, patch, machines=99)
    for number in range(5):
        world.offer(0, ["good", "malformed"])
        assert world.run_steps(f"run {number}").error is None
    assert world.backfill("b", "2026-01-01", "2026-01-02").error is None
    world.settle("release")
    world.replay_all()
