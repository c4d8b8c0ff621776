"""A new query begins exactly where the table's log ends, also when another engine has cleaned the log up."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.model.processes import Process, Stop
from tests.model.readers import read_log
from tests.model.world import NAME, Make, Shape, World
from tests.support.cut_log import clean_below_newest, clean_log
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, HeldError
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import list_waiting_undecided
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.table.log.files import list_versions

_EVERY = 1 if os.environ.get("TIDEGATE_SWEEP") == "all" else 23
SHAPES: list[Shape] = ["kafka", "files"]


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes pipelines in memory with two published increments, whose commits are no longer in the table's log."""

    def make_world(shape: Shape) -> World:
        world = new_world(shape)
        for run_id in ("r1", "r2"):
            world.offer(0, ["good", "good"])
            world.offer(1, ["good"])
            assert world.run(run_id).error is None
        world.runs = 2
        clean_log(world.paths.table)
        assert min(list_versions(world.paths.table)) > 1
        return world

    return make_world


def read_ids(world: World) -> Counter[str]:
    """Ids of the table's rows, as a Delta reader has them."""
    return Counter(DeltaTable(str(world.paths.table)).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def lose_checkpoint(world: World) -> None:
    shutil.rmtree(world.paths.pinned().checkpoint)
    world.disagrees = True


@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_checkpoint_begins_where_the_last_publish_ended(make: Make, shape: Shape) -> None:
    world = make(shape)
    before = read_ids(world)
    lose_checkpoint(world)
    assert world.run("r3").value["outcome"] == "nothing_new"
    assert Counter(read_ids(world)) == Counter(before)
    world.offer(0, ["good"])
    assert world.run("r4").error is None
    assert len(read_ids(world)) == read_ids(world).total() == 7


@pytest.mark.parametrize("shape", SHAPES)
def test_a_held_increment_alone_is_read_again(make: Make, shape: Shape) -> None:
    world = make(shape)
    world.offer(0, ["poor", "poor"])
    assert isinstance(world.run("r3").error, HeldError)
    reads = world.reads
    assert isinstance(world.decide("reread", "r3").error, HeldError)
    assert world.reads - reads == 2
    assert world.decide("release", "r3").error is None
    assert len(read_ids(world)) == read_ids(world).total() == 8


@pytest.mark.parametrize("command", ["repair", "reset"])
def test_without_the_note_of_the_last_publish_nothing_begins(make: Make, command: str) -> None:
    world = make("kafka")
    if command == "repair":
        lose_checkpoint(world)
    before, births = read_ids(world), world.paths.newest_generation()
    shutil.rmtree(world.paths.published)
    error = world.repair().error if command == "repair" else world.reset().error
    assert isinstance(error, DisagreementError)
    assert (error.code, error.exit_code) == ("TABLE_LOG_CUT", 78)
    assert "lacks versions 0 to 1" in str(error.message)
    assert world.paths.newest_generation() == births
    assert read_ids(world) == before


def test_a_note_from_before_another_query_is_not_taken(make: Make) -> None:
    """The state folder's note is an older copy: its query has come as far, and another one has written since."""
    world = make("kafka")
    note = max(world.paths.published.iterdir(), key=lambda path: path.name)
    old, name = note.read_bytes(), note.name
    assert world.reset().error is None
    world.offer(0, ["good"])
    assert world.run("r3").error is None
    clean_log(world.paths.table)
    for path in world.paths.published.iterdir():
        path.unlink()
    (world.paths.published / name).write_bytes(old)
    lose_checkpoint(world)
    error = world.repair().error
    assert isinstance(error, DisagreementError) and error.code == "TABLE_LOG_CUT"


def test_a_rollback_does_not_guess_what_to_read_again(make: Make) -> None:
    world = make("kafka")
    world.offer(0, ["good"])
    assert world.run("r3").error is None
    before = read_ids(world)
    version = min(list_versions(world.paths.table))
    error = world.rollback(version, "reread").error
    assert isinstance(error, DisagreementError) and error.code == "TABLE_LOG_CUT"
    assert read_ids(world) == before
    assert world.rollback(version, "leave-out").error is None
    assert read_ids(world).total() == 6


@pytest.mark.parametrize("is_cut", [False, True], ids=["its commit is there", "its commit is gone"])
def test_a_rollback_that_leaves_out_reads_nothing_again(make: Make, is_cut: bool) -> None:
    world = make("kafka")
    world.offer(0, ["good"])
    assert world.run("r3").error is None
    assert world.rollback(min(list_versions(world.paths.table)), "leave-out").error is None
    clean_log(world.paths.table) if is_cut else clean_below_newest(world.paths.table)
    lose_checkpoint(world)
    assert world.repair().error is None
    assert world.run("r4").error is None
    assert read_ids(world).total() == 6
    world.offer(0, ["good"])
    assert world.run("r5").error is None
    assert len(read_ids(world)) == read_ids(world).total() == 7


def test_a_stopped_rollback_is_refused_or_reads_each_record_once(make: Make) -> None:
    """The log is cleaned up between a rollback's commit and the query that reads again."""
    refused, commit = 0, Stop("link data/warehouse/orders/_delta_log", after=True)
    for calls_later in itertools.count(0, 1 if _EVERY == 1 else 4):
        world = make("kafka")
        for run_id in ("r3", "r4"):
            world.offer(0, ["good"])
            assert world.run(run_id).error is None
            read_log(world.paths.table)  # the world asks later what each version had
        before = len(list_versions(world.paths.table))
        process = world.rollback(max(list_versions(world.paths.table)) - 1, "reread", stop=commit)
        assert len(list_versions(world.paths.table)) == before + 1
        if calls_later:
            process.thaw(Stop(nth=calls_later, after=True, counts_syncs=False))
        if process.state == "ended":
            break
        process.kill()
        clean_log(world.paths.table)
        error = world.run("r5").error
        if error is None:
            assert world.run("r6").error is None
            assert len(read_ids(world)) == read_ids(world).total() == 8, f"stopped {calls_later} calls after the commit"
        else:
            assert isinstance(error, DisagreementError), f"stopped {calls_later} calls after the commit"
            assert error.code in ("TABLE_LOG_CUT", "NOT_IN_TABLE"), f"stopped {calls_later} calls after the commit"
            refused += 1
    assert refused > 3


@pytest.mark.parametrize("decision", ["release", "discard"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_increment_that_waits_alone_is_not_taken_for_published(new_world: Make, shape: Shape, decision: str) -> None:
    """Stopped behind the commit that passes it; the commit is cleaned away before the next run. And the same behind
    the commit of the decision."""
    world = new_world(shape, on_critical="continue")
    world.offer(0, ["good"])
    assert world.run("r1").error is None
    world.offer(0, ["poor", "poor"])
    stop_behind_commit(world, lambda stop: world.run("r2", stop=stop))
    world.offer(0, ["good"])
    assert world.run("r3").error is None
    assert read_ids(world).total() == 2
    assert [one.run_id for one in list_waiting_undecided(world.paths)] == ["r2"]
    report = load_report(world.paths, "r2")
    assert report is not None and report.outcome == "held"
    stop_behind_commit(world, lambda stop: world.decide(decision, "r2", stop=stop))
    assert world.run("r4").error is None
    ids = read_ids(world)
    assert len(ids) == ids.total() == (4 if decision == "release" else 2)
    assert list_waiting_undecided(world.paths) == []
    report = load_report(world.paths, "r2")
    assert report is not None and report.outcome == ("published" if decision == "release" else "discarded")


@pytest.mark.parametrize("is_cut", [False, True], ids=["killed", "killed and power cut"])
@pytest.mark.parametrize("on_critical", ["hold", "continue"])
@pytest.mark.parametrize("decision", ["release", "discard"])
def test_a_decision_that_is_stopped_has_one_outcome(
    new_world: Make, decision: str, on_critical: str, is_cut: bool
) -> None:
    """Killed at any call; then another engine cleans up the log, and perhaps the power is cut."""
    every = _EVERY if is_cut else (_EVERY + 1) // 2
    for point in range(1 + every // 2, 400, every):
        world = new_world("kafka", on_critical=on_critical)
        world.offer(0, ["good"])
        assert world.run("r1").error is None
        world.offer(0, ["poor", "poor", "malformed"])
        assert isinstance(world.run("r2").error, HeldError)
        world.disk.sync_all()
        process = world.decide(decision, "r2", stop=Stop(nth=point, after=True, counts_syncs=is_cut))
        if process.state != "stopped":
            return
        world.kill(process)
        clean_log(world.paths.table)
        storage.sync_folders([world.paths.table, *filter(Path.is_dir, world.paths.table.rglob("*"))])
        storage.sync_files(filter(Path.is_file, world.paths.table.rglob("*")))
        if is_cut:
            world.cut_power("names")
        runs = [world.run(f"a{number}").error for number in range(2)]
        if list_waiting_undecided(world.paths) or runs[-1] is not None:  # it was stopped before it was on record
            assert world.decide(decision, "r2").error is None, f"stopped after call {point}"
            assert world.run("b").error is None, f"stopped after call {point}"
        ids, report = read_ids(world), load_report(world.paths, "r2")
        assert len(ids) == ids.total() == (3 if decision == "release" else 1), f"stopped after call {point}"
        assert list_waiting_undecided(world.paths) == [], f"stopped after call {point}"
        outcome = "published" if decision == "release" else "discarded"
        assert report is not None and report.outcome == outcome, f"stopped after call {point}"


def stop_behind_commit(world: World, start: Callable[[Stop], Process]) -> None:
    """Kill a process right after it has linked its commit, and clean the commit away."""
    before = max(list_versions(world.paths.table))
    process = start(Stop("warehouse/orders/_delta_log", 2, after=True))
    world.kill(process)
    assert max(list_versions(world.paths.table)) == before + 1, process.calls[-1]
    clean_log(world.paths.table)


def test_a_table_that_is_made_anew_needs_no_log(make: Make) -> None:
    world = make("kafka")
    shutil.rmtree(world.paths.published)
    repair_pipeline(world.project, NAME, dry_run=False, rebuild=True)
    assert world.run("r3").error is None
    assert len(read_ids(world)) == 6
