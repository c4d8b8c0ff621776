"""A query without state whose checkpoint was deleted, edited or exchanged: the next run begins a new one, and each
record is read once."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.model import fake_spark
from tests.model.edits import EDITS, edit
from tests.model.processes import Process, Stop
from tests.model.world import Make, Shape, World
from tidegate.errors import DisagreementError, HeldError
from tidegate.operate.outlook import plan_pipeline
from tidegate.restart.repair import repair_pipeline

_EVERY = 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 5
"""Every so many storage calls; in a sweep every one."""
SHAPES = pytest.mark.parametrize("shape", ["files", "kafka"])
MANIFEST = "link data/state/orders/manifests"


def published(new_world: Make, shape: Shape) -> World:
    """Two increments in the table, of two batches each, and two records more."""
    world = new_world(shape, batch_size=1)
    for number in range(3):
        world.offer(0, ["good", "malformed"])
        world.offer(1, ["good"])
        if number < 2:
            assert world.run(f"q{number}").error is None
    return world


def go(world: World, name: str, stop: Stop | None = None) -> Process:
    process = world.run(name, stop=stop)
    assert process.error is None, repr(process.error)
    return process


def notes_of(process: Process) -> list[str]:
    return [note for note in process.value["notes"] if "a new checkpoint" in note]


@SHAPES
@pytest.mark.parametrize("planned", ["nothing", "a batch", "a staged batch"])
@pytest.mark.parametrize("what", EDITS)
def test_the_next_run_begins_a_new_one(new_world: Make, shape: Shape, planned: str, what: str) -> None:
    if what == "move_end" and planned == "a batch":
        pytest.skip("it has valid digests, which no edit by hand has, and nothing to be compared with")
    world = published(new_world, shape)
    if planned != "nothing":
        world.kill(world.run("killed", stop=Stop(MANIFEST if planned == "a batch" else "commits/")))
    for seed in range(3):
        edit(world, what, seed)
    assert repair_pipeline(world.project, "orders", dry_run=True)["code"] is None
    is_unfit = any("a new checkpoint" in note for note in plan_pipeline(world.project, "orders")["notes"])
    first = go(world, "next")
    assert is_unfit or not notes_of(first)  # what is torn behind the last batch is taken away before
    go(world, "last")
    world.check_all()
    world.offer(0, ["good"])
    assert not notes_of(go(world, "later"))
    world.settle("discard")


@SHAPES
def test_killed_while_it_begins_a_new_one(new_world: Make, shape: Shape) -> None:
    for at in range(1, 1000, _EVERY):
        world = published(new_world, shape)
        edit(world, "delete", 0)
        process = world.run("killed", stop=Stop(nth=at))
        if process.state != "stopped":
            assert at > _EVERY
            return
        world.kill(process)
        try:
            world.settle("discard")
        except AssertionError as error:
            raise AssertionError(f"killed at call {at}: {process.calls[-1]}: {error}") from error


@SHAPES
@pytest.mark.parametrize("where", ["queries/000001/why", "queries/000001/~birth", "retired", "birth", "ledger"])
def test_a_stale_driver_stages_its_batch_meanwhile(new_world: Make, shape: Shape, where: str) -> None:
    """The batch counts, and is not read again; or it does not count, and is."""
    world = published(new_world, shape)
    world.freeze(_stopped(world, "stale", Stop(MANIFEST)))
    edit(world, "delete", 0)
    process = world.run("next", stop=Stop(where))
    if process.state == "stopped":
        world.freeze(process)
    world.thaw(0)
    world.check()
    world.settle("discard")


def _stopped(world: World, name: str, stop: Stop) -> Process:
    process = world.run(name, stop=stop)
    assert process.state == "stopped", (process.error, process.calls[-5:])
    return process


@SHAPES
@pytest.mark.parametrize("decision", ["release", "discard", "reread"])
def test_what_is_held_stays_held(new_world: Make, shape: Shape, decision: str) -> None:
    world = published(new_world, shape)
    go(world, "q2")
    world.offer(0, ["poor"])
    assert isinstance(world.run("held").error, HeldError)
    edit(world, "delete", 0)
    reads = world.reads
    assert isinstance(world.run("later").error, HeldError) and world.reads == reads
    world.decide(decision, "held")
    world.settle("discard")


@SHAPES
@pytest.mark.parametrize("is_known", [False, True])
def test_staging_is_gone_as_well(new_world: Make, shape: Shape, is_known: bool) -> None:
    """Where the ledger has files in a batch that nobody has, a person decides; offsets are read again."""
    world = published(new_world, shape)
    process = world.run("killed", stop=Stop("verdicts" if is_known else "commits/"))
    world.kill(process)
    for folder in (world.paths.checkpoint, world.paths.manifests, world.paths.staging):
        shutil.rmtree(folder)
    error = world.run("next").error
    assert isinstance(error, DisagreementError) == (is_known and shape == "files"), repr(error)
    world.disagrees = error is not None
    world.settle("discard")


@SHAPES
@pytest.mark.parametrize("what", ["delete", "rename_query", "older_copy"])
def test_a_query_with_state_needs_its_checkpoint(
    new_world: Make, monkeypatch: pytest.MonkeyPatch, shape: Shape, what: str
) -> None:
    monkeypatch.setattr(fake_spark, "STATE", [{"operator": "Aggregate", "keys": [], "values": []}])
    world = published(new_world, shape)
    edit(world, what, 1)
    assert isinstance(world.run("next").error, DisagreementError)
    assert repair_pipeline(world.project, "orders", dry_run=True)["code"] is not None
