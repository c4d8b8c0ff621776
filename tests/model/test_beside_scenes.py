"""Maintenance and replays beside all else: what the model has found, as scenes."""

from __future__ import annotations

import pytest

from tests.model.processes import Process
from tests.model.world import Make, World, read_log, read_plain
from tidegate.replay.choose import Selection
from tidegate.spec.models import MaintenanceSpec


@pytest.fixture
def kafka(new_world: Make) -> World:
    """Two records of a topic are in the table, one is in quarantine."""
    world = new_world("kafka")
    world.offer(0, ["good", "malformed", "good"])
    done(world.run(world.new_run_id()))
    return world


def done(process: Process) -> None:
    assert process.error is None, repr(process.error)


@pytest.mark.parametrize("source", ["archive", "delete"])
def test_a_project_whose_maintenance_clears_sources_has_a_pipeline_of_a_topic(kafka: World, source: str) -> None:
    """There is no ledger where no source has files, and nothing to clear."""
    done(kafka.maintain("m", MaintenanceSpec.model_validate({"source": source})))
    kafka.settle("discard")


def test_a_replay_is_in_the_table_once_whatever_comes_after(kafka: World) -> None:
    done(kafka.replay("again", Selection(), mend=True))
    assert sum(read_log(kafka.paths.table).values()) == 3 and not read_plain(kafka.paths.quarantine)
    done(kafka.maintain("m", MaintenanceSpec(keep_versions=0)))
    done(kafka.replay("again", Selection()))
    assert kafka.replay("more", Selection()).value["outcome"] == "nothing_new"
    kafka.settle("discard")
