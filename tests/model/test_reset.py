"""A checkpoint that is started anew: where it stopped, or from the beginning; each record counts once."""

from __future__ import annotations

import shutil

import pytest

from tests.model.processes import stops
from tests.model.world import NAME, Make, Shape, World, newest_version, read_log, read_plain
from tidegate.core.errors import HeldError, UsageError
from tidegate.rework.replay.choose import Selection
from tidegate.runs.restart.repair import repair_pipeline, reset_pipeline

SHAPES = pytest.mark.parametrize("shape", ["kafka", "files"])
HOW = pytest.mark.parametrize("from_beginning", [False, True])


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes pipelines in memory, each with two versions, a malformed record, and a record that waits."""

    def make_world(shape: Shape) -> World:
        world = new_world(shape)
        world.offer(0, ["good", "good", "malformed"])
        assert world.run("r1").error is None
        world.offer(1, ["good"])
        assert world.run("r2").error is None
        world.offer(1, ["good"])
        world.runs = 2
        return world

    return make_world


@SHAPES
@HOW
def test_a_new_query_starts_where_the_old_one_stopped_or_from_the_beginning(
    make: Make, shape: Shape, from_beginning: bool
) -> None:
    world = make(shape)
    checkpoint, table = world.paths.pinned().checkpoint, world.paths.table
    before = world.paths.newest_generation()
    assert world.reset(from_beginning=from_beginning).error is None
    assert world.paths.newest_generation() == before + 1
    assert checkpoint.exists(), "the old checkpoint stays where it is, unused"
    kept = list(table.parent.glob(f".{NAME}.*"))
    assert bool(kept) == from_beginning
    assert sum(read_log(kept[0] if from_beginning else table).values()) == 3
    process = world.run("next")
    assert process.error is None and process.value["rows"]["read"] == (5 if from_beginning else 1)
    assert sum(read_plain(table).values()) == 4
    world.check_all()
    world.settle("discard")


@SHAPES
@HOW
def test_without_the_name_once_more_the_plan_is_shown(make: Make, shape: Shape, from_beginning: bool) -> None:
    world = make(shape)
    before = sorted(str(path) for path in (world.root / "data").rglob("*"))
    shown = reset_pipeline(world.project, NAME, from_beginning=from_beginning, dry_run=True, confirm=None)
    for confirm in (None, "another"):
        with pytest.raises(UsageError) as refused:
            reset_pipeline(world.project, NAME, from_beginning=from_beginning, dry_run=False, confirm=confirm)
        assert (refused.value.code, refused.value.exit_code) == ("RESET_UNCONFIRMED", 64)
        assert (
            "; ".join([*shown["actions"], *(f"the next run {one}" for one in shown["next_run"])])
            in refused.value.message
        )
        assert f"--confirm {NAME}" in str(refused.value.fix)
    assert sorted(str(path) for path in (world.root / "data").rglob("*")) == before
    told = "; ".join([*shown["actions"], *(f"the next run {one}" for one in shown["next_run"])])
    assert ("back up table and quarantine" in told) == from_beginning
    option = " --from-beginning" if from_beginning else ""
    assert f"`tidegate reset {NAME}{option} --confirm {NAME}`: a new" in shown["choices"][1]
    assert ("keep the table as it is, at version 1" in told) != from_beginning
    if shape == "kafka":
        assert f'starts source orders at {{"t": {{"0": {0 if from_beginning else 3}' in told
    elif from_beginning:
        assert "reads 2 files" in told
    world.settle("discard")


@SHAPES
def test_what_is_held_is_judged_again(make: Make, shape: Shape) -> None:
    world = make(shape)
    world.offer(0, ["poor", "poor"])
    assert isinstance(world.run("held").error, HeldError)
    shown = reset_pipeline(world.project, NAME, from_beginning=False, dry_run=True, confirm=None)
    assert "reads again and judges again what is held under run held" in shown["next_run"]
    assert world.reset().error is None
    assert isinstance(world.run("again").error, HeldError)
    world.settle("discard")


@SHAPES
def test_what_a_source_lost_is_in_the_plan(make: Make, shape: Shape) -> None:
    world = make(shape)
    if shape == "kafka":
        world.retain_from(0, 2)
    else:
        (world.root / "data" / "inbox" / "1.csv").unlink()
    shown = reset_pipeline(world.project, NAME, from_beginning=True, dry_run=True, confirm=None)
    told = "; ".join([*shown["actions"], *(f"the next run {one}" for one in shown["next_run"])])
    assert (
        "does not find again: source orders: topic t partition 0 offsets 0 to 1 (2): taken by retention"
        if shape == "kafka"
        else "does not find 1 file of those that were read: data/inbox/1.csv; 2 rows of"
    ) in told
    world.settle("discard")


@pytest.mark.parametrize("how", ["rebuild", "reset", "repair"])
def test_what_waits_alone_and_is_read_again_is_in_the_plan(new_world: Make, how: str) -> None:
    world = new_world("files", on_critical="continue")
    for run_id, kinds in ("r1", ["good"]), ("r2", ["poor", "poor"]), ("r3", ["good"]):
        if run_id == "r2":
            copy = shutil.copytree(world.paths.table, world.root / "copy")
        world.offer(0, kinds)
        world.run(run_id)
    assert world.waiting == ["r2"]
    kept = reset_pipeline(world.project, NAME, from_beginning=False, dry_run=True, confirm=None)
    assert not [one for one in kept["next_run"] if "deferred" in one], "it goes on to wait"
    if how == "repair":
        shutil.rmtree(world.paths.table)
        shutil.copytree(copy, world.paths.table)
    world.disagrees = how != "reset"
    if how == "reset":
        shown = reset_pipeline(world.project, NAME, from_beginning=True, dry_run=True, confirm=None)
        assert world.reset(from_beginning=True).error is None
    else:
        shown = repair_pipeline(world.project, NAME, dry_run=True, rebuild=how == "rebuild")
        repair_pipeline(world.project, NAME, dry_run=False, rebuild=how == "rebuild")
    (told,) = [one for one in shown["next_run"] if "deferred" in one]
    assert told.startswith("reads run r2 (2 records, deferred) again together with the others")
    process = world.run("r4")
    if how == "repair":
        assert isinstance(process.error, HeldError), "2 of 3 records are poor"
    else:
        assert process.value["rows"]["published"] == 4


def test_before_the_first_run_there_is_nothing_to_reset(make: Make) -> None:
    world = make("files")
    for folder in (world.paths.table, world.paths.state, world.paths.quarantine):
        shutil.rmtree(folder)
    value = reset_pipeline(world.project, NAME, from_beginning=False, dry_run=False, confirm=None)
    assert (value["code"], value["actions"]) == (None, [])
    assert not world.paths.state.exists()


@SHAPES
@HOW
def test_killed_anywhere_the_same_command_again_completes_it(make: Make, shape: Shape, from_beginning: bool) -> None:
    stopped = 0
    for stop in stops(3, killed=True):
        world = make(shape)
        process = world.reset(from_beginning=from_beginning, stop=stop)
        if process.state != "stopped":
            break
        stopped += 1
        world.kill(process)
        assert world.reset(from_beginning=from_beginning).error is None
        world.settle("discard")
        assert sum(read_plain(world.paths.table).values()) == 4
    assert stopped > 5


@SHAPES
def test_the_plan_says_which_decisions_are_undone(make: Make, shape: Shape) -> None:
    world = make(shape)

    def told(from_beginning: bool = True) -> list[str]:
        plan = reset_pipeline(world.project, NAME, from_beginning=from_beginning, dry_run=True, confirm=None)
        repair = repair_pipeline(world.project, NAME, dry_run=True, rebuild=from_beginning)
        found, again = (
            [line for line in one["actions"] if "discarded" in line or "rollback" in line or "edited" in line]
            for one in (plan, repair)
        )
        assert found == again
        return found

    assert told() == []
    ((id_, text),) = world.in_quarantine().items()
    edited = f"{text.partition(',')[0]},good"
    assert world.replay("edited", Selection(edits={id_: edited})).error is None
    assert told() == ["read as the source has it what was edited and replayed: 1 record"]
    world.offer(0, ["poor", "poor"])
    assert isinstance(world.run("held").error, HeldError)
    assert world.decide("discard", "held").error is None
    assert "read again, and judge again, 1 discarded increment (3 records)" in told()
    world.offer(0, ["good", "good"])
    assert world.run("wrong").error is None
    version = world.rollback(newest_version(world.paths.table) - 1, "leave-out").value["table"]["version"]
    assert "read again, and judge again, 2 records that a rollback excluded (2 rows)" in told() and len(told()) == 3
    assert told(from_beginning=False) == []
    assert world.rollback(version - 1, "leave-out").error is None, "forward again: nothing is left out"
    assert len(told()) == 2
    world.settle("discard")
    done = world._start("rebuild", lambda: repair_pipeline(world.project, NAME, dry_run=False, rebuild=True), None)
    assert done.error is None and "1 discarded increment (3 records)" in " ".join(done.value["actions"])
