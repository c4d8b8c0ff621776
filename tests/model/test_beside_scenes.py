"""Maintenance and replays beside all else: what the model has found, as scenes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.beside import compact_from_outside, done
from tests.model.processes import Process, Stop
from tests.model.world import Make, World, read_delta, read_log, read_plain
from tidegate.core.errors import TidegateError
from tidegate.rework.replay.choose import Selection
from tidegate.spec.models import MaintenanceSpec


@pytest.fixture
def kafka(new_world: Make) -> World:
    """Two records of a topic are in the table, one is in quarantine."""
    world = new_world("kafka")
    world.offer(0, ["good", "malformed", "good"])
    done(world.run(world.new_run_id()))
    return world


@pytest.mark.parametrize("source", ["archive", "delete"])
def test_a_project_whose_maintenance_clears_sources_has_a_pipeline_of_a_topic(kafka: World, source: str) -> None:
    """There is no ledger where no source has files, and nothing to clear."""
    done(kafka.maintain("m", MaintenanceSpec.read({"source": source})))
    kafka.settle("discard")


def test_a_replay_is_in_the_table_once_whatever_comes_after(kafka: World) -> None:
    done(kafka.replay("again", Selection(), mend=True))
    assert sum(read_log(kafka.paths.table).values()) == 3 and not read_plain(kafka.paths.quarantine)
    done(kafka.maintain("m", MaintenanceSpec(keep_versions=0)))
    done(kafka.replay("again", Selection()))
    assert kafka.replay("more", Selection()).value["outcome"] == "nothing_new"
    kafka.settle("discard")


def check_readers_of_the_log(world: World) -> None:
    """What the other program has replaced, readers without a log go on to see."""
    rows = read_log(world.paths.table)
    assert rows == read_delta(world.paths.table)
    assert rows == Counter(list(world.offered)), [one for one, count in rows.items() if count > 1]


IN_BETWEEN = Stop("rename data/warehouse/orders/day=2026-01-01/part")
"""The files that it replaces are out of sight, and the first of those that come is about to be moved in."""


def begin_days(make: Make) -> World:
    """A table with several files of each day."""
    world = make("files")
    for number in range(3):
        world.offer(0, ["good"] * 4)
        done(world.run(f"r{number}"))
    return world


@pytest.mark.parametrize("kind", ["backfill", "maintain"])
def test_another_program_compacts_between_the_two_versions_of_a_publish(new_world: Make, kind: str) -> None:
    """The version that would follow names files that the log no longer has: it is not made."""
    world = begin_days(new_world)
    if kind == "backfill":
        process = world.backfill("b", "2026-01-01", "2026-01-01", stop=IN_BETWEEN)
    else:
        settings = MaintenanceSpec(keep_versions="7 days", compact_below="32 MiB", source="keep")
        process = world.maintain("m", settings, stop=IN_BETWEEN)
    assert process.state == "stopped"
    compact_from_outside(world.paths.table)
    process.thaw()
    assert isinstance(process.error, TidegateError) and process.error.code == "REPLACED_FILES_GONE"
    check_readers_of_the_log(world)


@pytest.mark.parametrize("kind", ["backfill", "maintain"])
def test_what_was_killed_there_is_given_up_by_a_repair_and_can_be_started_again(new_world: Make, kind: str) -> None:
    world = begin_days(new_world)
    settings = MaintenanceSpec(keep_versions="7 days", compact_below="32 MiB", source="keep")

    def start(stop: Stop | None = None) -> Process:
        if kind == "backfill":
            return world.backfill("b", "2026-01-01", "2026-01-01", stop=stop)
        return world.maintain("b", settings, stop=stop)

    world.kill(start(IN_BETWEEN))
    compact_from_outside(world.paths.table)
    process = world.run("after")
    assert isinstance(process.error, TidegateError) and process.error.code == "REPLACED_FILES_GONE"
    process = world.repair()
    done(process)
    assert process.value["code"] == "REPLACED_FILES_GONE" and f"abandon {kind} b" in process.value["actions"][0]
    check_readers_of_the_log(world)
    done(world.run("then"))
    done(start())
    check_readers_of_the_log(world)
    assert world.repair().value["code"] is None


@pytest.mark.parametrize("moved", [1, 2], ids=["before its first file", "before its second"])
@pytest.mark.parametrize("kind", ["backfill", "maintain"])
def test_what_slept_in_front_of_a_move_finds_nothing_to_move_once_it_is_given_up(
    new_world: Make, kind: str, moved: int
) -> None:
    """It looked at its lease before it fell asleep, and nothing stands between that and the move."""
    world = begin_days(new_world)
    stop = Stop("rename data/warehouse/orders/day=2026-01-0", moved)
    if kind == "backfill":
        process = world.backfill("b", "2026-01-01", "2026-01-02", stop=stop)
    else:
        settings = MaintenanceSpec(keep_versions="7 days", compact_below="32 MiB", source="keep")
        process = world.maintain("b", settings, stop=stop)
    world.freeze(process)
    compact_from_outside(world.paths.table)
    process = world.repair()
    done(process)
    assert "abandon" in process.value["actions"][0]
    before = read_plain(world.paths.table)
    world.thaw(0)
    assert read_plain(world.paths.table) == before, "a reader without a log sees what was undone"
    check_readers_of_the_log(world)
    done(world.run("then"))
