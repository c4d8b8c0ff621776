"""A held increment that is read again: stopped anywhere, killed or frozen, each record counts once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model.machine import ROOM
from tests.model.processes import Stop
from tests.model.world import NAME, Shape, World
from tidegate.errors import HeldError, SourceLostError, UsageError
from tidegate.run.report import load_report
from tidegate.run.status import project_status

_EVERY = 7
"""Each so many calls the command is stopped; a sweep over seeds stops it at others (tests/model/machine.py)."""
Make = Callable[[Shape], World]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes pipelines in memory, each with a published increment, and one that is held under r2."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-reread-", dir=ROOM))
    worlds: list[tuple[World, pytest.MonkeyPatch]] = []

    def end() -> None:
        for world, patch in worlds:
            world.end()
            patch.undo()
        worlds.clear()

    def make_world(shape: Shape) -> World:
        end()
        patch = pytest.MonkeyPatch()
        world = World(folder / str(len(list(folder.iterdir()))), shape, patch)
        worlds.append((world, patch))
        world.offer(0, ["good", "good"])
        assert world.run("r1").error is None
        world.offer(0, ["poor", "malformed"])
        world.offer(1, ["poor"])
        assert isinstance(world.run("r2").error, HeldError)
        return world

    yield make_world
    end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_with_a_corrected_rule_everything_is_published_by_the_same_run(make: Make, shape: Shape) -> None:
    world = make(shape)
    reads = world.reads
    world.offer(1, ["good", "good", "good"])  # what came since tips the scales
    process = world.decide("reread", "r2")
    assert process.error is None and process.value["outcome"] == "published"
    assert process.value["mode"] == "reread" and process.value["decision"]["decision"] == "reread"
    assert (process.value["rows"]["read"], world.reads - reads) == (6, 6)
    assert process.value["rows"]["malformed"] == 1
    world.check_all()
    again = world.decide("reread", "r2")
    assert again.error is None and again.value == process.value, "deciding the same again changes nothing"
    world.settle("discard")


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_what_is_held_again_can_be_decided_again(make: Make, shape: Shape) -> None:
    world = make(shape)
    assert isinstance(world.decide("reread", "r2").error, HeldError)
    assert isinstance(world.run("r3").error, HeldError)
    assert isinstance(world.decide("reread", "r2").error, HeldError)
    assert world.decide("discard", "r2").error is None
    world.settle("release")


@pytest.mark.parametrize("fate", ["killed", "frozen"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_stopped_anywhere(make: Make, shape: Shape, fate: str) -> None:
    stopped = 0
    for at in range(1, 1000, _EVERY):
        world = make(shape)
        process = world.decide("reread", "r2", stop=Stop(nth=at, after=at % 2 == 0))
        if process.state != "stopped":
            break
        stopped += 1
        world.check()
        if fate == "killed":
            world.kill(process)
        else:
            world.freeze(process)
        world.offer(1, ["good"])
        world.run(world.new_run_id("x"))
        world.settle("discard")
    assert stopped > 5


def test_a_stop_behind_the_decision_is_told_and_the_next_run_goes_on(make: Make) -> None:
    world = make("files")
    world.kill(world.decide("reread", "r2", stop=Stop("set_aside")))
    (row,) = project_status(world.project, NAME)
    assert [(one["decision"], one["run_id"]) for one in row["decided"]] == [("reread", "r2")]
    assert row["errors"] == [] and [one["kind"] for one in row["trouble"]] == ["undone"]
    world.offer(1, ["good", "good", "good"])
    process = world.run("r3")
    assert process.error is None and process.value["rows"]["published"] == 5
    report = load_report(world.paths, "r2")
    assert report is not None and (report.outcome, report.mode) == (None, "reread")
    assert report.decision is not None and report.rows["read"] == 0
    world.settle("discard")


def test_nothing_is_decided_when_the_records_are_gone(make: Make) -> None:
    world = make("kafka")
    world.retain_from(0, 3)
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, SourceLostError) and refused.code == "REREAD_LOST"
    assert world.decide("discard", "r2").error is None
    world.settle("discard")


def test_files_that_were_deleted_are_read_again_from_their_links(make: Make) -> None:
    world = make("files")
    for file in (world.root / "data" / "inbox").iterdir():
        file.unlink()
    world.offer(1, ["good", "good", "good"])
    assert world.decide("reread", "r2").error is None
    world.check_all()


def test_files_of_which_nothing_is_left(make: Make) -> None:
    world = make("files")
    for folder in (world.root / "data" / "inbox", world.paths.intake("orders")):
        for file in folder.rglob("*.csv"):
            file.unlink()
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, SourceLostError) and "2.csv is gone" in refused.message
    assert world.decide("release", "r2").error is None, "what is staged is still there"


def test_only_what_is_held_is_read_again(make: Make) -> None:
    world = make("files")
    for run_id in ("r1", "nosuch"):
        refused = world.decide("reread", run_id).error
        assert isinstance(refused, UsageError) and refused.code == "NOT_HELD"
    world.settle("discard")
