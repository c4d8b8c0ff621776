"""What the model has found, as scenes: the shortest way to each, step by step."""

from __future__ import annotations

import contextlib
import json
import shutil

import pytest

from tests.model.edits import edit
from tests.model.fake_kafka import FakeBrokers
from tests.model.fake_spark import Driver
from tests.model.processes import Process, Stop, current
from tests.model.world import Make, World, read_log
from tidegate.core.errors import DisagreementError, HeldError, TryAgainError


@pytest.fixture(params=["kafka", "files"])
def world(new_world: Make, request: pytest.FixtureRequest) -> World:
    """A pipeline of either kind of source."""
    return new_world(request.param)


def frozen(world: World, process: Process) -> None:
    """The process came to its stop and sleeps."""
    assert process.state == "stopped", world.log
    world.freeze(process)


def test_a_run_that_slept_before_its_verdict(world: World) -> None:
    """Its verdict comes beside its successor's, on the same batches: a decision on either of them counts for both."""
    world.offer(0, ["poor"])
    frozen(world, world.run("r1", stop=Stop("verdicts/.r1")))
    assert isinstance(world.run("r2").error, HeldError)
    world.thaw(0)
    assert world.decide("discard", "r2").error is None
    world.check()
    world.settle("discard")


@pytest.mark.parametrize("decision", ["release", "discard"])
@pytest.mark.parametrize("first", ["r1", "r2"])
def test_a_run_that_slept_before_its_verdict_on_fewer_batches(world: World, first: str, decision: str) -> None:
    """A decision is on the batches of its verdict; the rest of what the other verdict holds waits for its own."""
    world.offer(0, ["poor"])
    frozen(world, world.run("r1", stop=Stop("verdicts/.r1")))
    world.offer(1, ["poor"])
    assert isinstance(world.run("r2").error, HeldError)
    world.thaw(0)
    assert world.decide(decision, first).error is None
    world.check()
    if first == "r1":
        assert isinstance(world.run("r3").error, HeldError)
        assert world.decide("release", "r2").error is None
    world.check()
    assert world.run("r4").error is None
    world.settle(decision)


def test_a_run_that_slept_before_its_intent(world: World) -> None:
    """What it had passed is held together with what came after it: its plan must not be carried out any more."""
    world.offer(0, ["poor", "good"])
    frozen(world, world.run("r1", stop=Stop("intents/.table")))
    world.offer(1, ["poor"])
    assert isinstance(world.run("r2").error, HeldError)
    world.thaw(0)
    assert isinstance(world.run("r3").error, HeldError)
    world.check()
    world.settle("discard")


def test_a_checkpoint_exchanged_before_the_run_had_named_its_query(world: World) -> None:
    """Its batch is staged under the old id, and would be read again under the new one."""
    world.offer(0, ["good"])
    world.kill(world.run("r1", stop=Stop("commits/")))
    assert edit(world, "rename_query", 3)
    assert world.run("r2").error is None
    world.settle("discard")


def test_a_checkpoint_deleted_before_the_run_had_named_its_query(world: World) -> None:
    world.offer(0, ["good"])
    world.kill(world.run("r1", stop=Stop("commits/")))
    assert edit(world, "delete", 0)
    assert world.run("r2").error is None
    world.settle("discard")


def test_a_repair_after_a_discard_that_was_only_recorded(world: World) -> None:
    """The records are not read again, to be judged and perhaps released after all."""
    world.offer(0, ["poor", "malformed"])
    assert isinstance(world.run("r1").error, HeldError)
    world.kill(world.decide("discard", "r1", stop=Stop("link data/state/orders/decisions", after=True)))
    assert edit(world, "rename_query", 3)
    assert world.repair().error is None
    world.settle("release")


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("decision", ["release", "discard"])
def test_a_decision_killed_while_it_is_recorded_before_better_records_come(
    world: World, decision: str, nth: int
) -> None:
    """The next run could pass the gate with both: what was decided on the first ones counts as soon as it is there."""
    world.offer(0, ["poor"])
    assert isinstance(world.run("r1").error, HeldError)
    world.kill(world.decide(decision, "r1", stop=Stop("decision", nth, after=True)))
    world.offer(0, ["good"] * 4)
    world.offer(1, ["good"] * 4)
    world.run("r2")
    world.check()
    world.settle(decision)


@pytest.mark.parametrize("successor", ["killed", "asleep", "gone"])
def test_a_driver_that_slept_over_its_manifest_until_its_files_were_swept(world: World, successor: str) -> None:
    """Its manifest is the first one for the batch, and names files that are gone: it does not count."""
    world.offer(0, ["good", "good"])
    frozen(world, world.run("r1", stop=Stop("manifests/")))
    other = world.run("r2", stop=Stop("orders/r2", after=True))
    if successor == "asleep":
        frozen(world, other)
    else:
        world.kill(other)
    if successor == "gone":
        world.offer(1, ["good"])
    world.thaw(0)
    if successor == "asleep":
        assert world.thaw(0).error is None
    process = world.run("r3")
    assert process.error is None, process.error
    world.check_all()
    world.settle("discard")


def test_a_manifest_of_swept_files_that_came_before_the_driver_died(world: World) -> None:
    """Whoever looks behind the driver does not take it for a batch that was seen with its files."""
    world.offer(0, ["good", "good"])
    frozen(world, world.run("r1", stop=Stop("manifests/")))
    frozen(world, world.run("r2", stop=Stop("orders/r2", after=True)))
    world.thaw(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "submit", lambda self, plan: 137)
        died = world.thaw(0).error
    assert isinstance(died, TryAgainError) and died.code == "DRIVER_DIED"
    assert world.run("r3").error is None
    world.check_all()


@pytest.mark.parametrize("kinds", [["good", "malformed"], ["malformed"]])
def test_an_attempt_of_which_only_the_quarantined_records_were_swept(world: World, kinds: list[str]) -> None:
    world.offer(0, kinds)
    frozen(world, world.run("r1", stop=Stop("manifests/")))
    other = world.run("r2", stop=Stop("unlink part-captured", after=True))
    assert other.state == "stopped"
    world.kill(other)
    world.thaw(0)
    assert world.run("r3").error is None
    world.check_all()


def let_the_first_one_come_late(world: World) -> Process:
    """A process that found a manifest of swept files, and is about to take it away."""
    frozen(world, world.run("r1", stop=Stop("manifests/")))
    world.kill(world.run("r2", stop=Stop("orders/r2", after=True)))
    world.thaw(0)
    process = world.run("r3", stop=Stop(".taken"))
    assert process.state == "stopped"
    return process


@pytest.mark.parametrize("by", ["run", "driver"])
def test_a_sleeper_takes_no_later_manifest_away(world: World, by: str) -> None:
    world.offer(0, ["poor", "poor"])
    if by == "run":
        world.freeze(let_the_first_one_come_late(world))
    else:
        frozen(world, world.run("r1", stop=Stop("manifests/")))
        other = world.run("r2", stop=Stop("orders/r2", after=True))
        world.freeze(other)
        world.thaw(0)
        world.thaw(0, stop=Stop(".taken"))
        frozen(world, other)
    assert isinstance(world.run("r4").error, HeldError)
    world.thaw(0)
    held = world.run("r5").error
    assert isinstance(held, HeldError) and held.code == "EARLIER_INCREMENT_HELD"
    world.settle("discard")


def test_the_quarantine_folder_was_deleted_while_a_publish_was_under_way(world: World) -> None:
    """Its records are neither staged nor quarantined: refused, and the named command goes on without them, with the
    rows in the table once, and says which files are gone."""
    world.offer(0, ["good", "malformed"])
    world.kill(world.run("r1", stop=Stop("data/quarantine/orders/_delta_log")))
    assert sum(read_log(world.paths.table).values()) == 1
    shutil.rmtree(world.paths.quarantine)
    refused = world.run("r2").error
    assert isinstance(refused, DisagreementError) and refused.code == "STAGED_FILES_LOST"
    assert refused.fix is not None and "tidegate repair orders" in refused.fix
    assert world.repair().error is None
    assert world.run("r3").error is None
    assert sum(read_log(world.paths.table).values()) == 1
    (kept,) = [path for path in world.paths.set_aside.rglob("*-0.json") if "quarantine_files" in path.read_text()]
    assert json.loads(kept.read_text())["quarantined"] == 1
    world.offer(0, ["malformed"])
    assert world.run("r4").error is None
    assert sum(read_log(world.paths.quarantine).values()) == 1


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_a_sleeper_that_is_stopped_again_with_a_later_manifest_in_its_hands(world: World, fate: str) -> None:
    world.offer(0, ["poor", "poor"])
    process = let_the_first_one_come_late(world)
    world.freeze(process)
    assert isinstance(world.run("r4").error, HeldError)
    world.thaw(0, stop=Stop(".taken", after=True))
    if fate == "killed":
        world.kill(process)
    else:
        frozen(world, process)
    held = world.run("r5").error
    assert isinstance(held, HeldError) and held.code == "EARLIER_INCREMENT_HELD"
    world.settle("release")


@pytest.mark.parametrize("world", ["kafka"], indirect=True)
def test_a_run_that_slept_over_its_question_to_the_brokers(world: World) -> None:
    """It knows of no batch that was staged meanwhile, and sweeps none of them away."""
    ask = FakeBrokers.cluster_id

    def ask_slowly(brokers: FakeBrokers) -> str | None:
        process = current()
        with process.at("ask the brokers") if process is not None else contextlib.nullcontext():
            return ask(brokers)

    world.patch.setattr(FakeBrokers, "cluster_id", ask_slowly)
    world.offer(0, ["poor"])
    frozen(world, world.run("r1", stop=Stop("ask the brokers")))
    assert isinstance(world.run("r2").error, HeldError)
    world.thaw(0)
    held = world.run("r3").error
    assert isinstance(held, HeldError) and held.code == "EARLIER_INCREMENT_HELD"
    world.settle("release")


def test_quarantined_records_that_somebody_removed_before_the_verdict(world: World) -> None:
    """The verdict does not hang on what most of them were quarantined for."""
    world.offer(0, ["good", "malformed"])
    world.kill(world.run("r1", stop=Stop("verdicts")))
    for file in world.paths.quarantine.glob("*.parquet"):
        file.unlink()
    assert world.run("r2").error is None


def test_a_run_that_slept_over_naming_its_query_while_the_checkpoint_was_deleted(world: World) -> None:
    """It names its own query in the place of the one whose records are in the table: these are not read again."""
    world.run(world.new_run_id())
    world.offer(0, ["good"])
    frozen(world, world.run(world.new_run_id(), stop=Stop("birth", nth=3)))
    assert edit(world, "delete", 0)
    assert world.run(world.new_run_id()).error is None
    world.thaw(0)
    world.settle("discard")
