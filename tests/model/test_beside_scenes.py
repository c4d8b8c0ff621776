"""Maintenance and replays beside all else: what the model has found, as scenes."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.model.processes import Process, Stop
from tests.model.world import Make, World, read_delta, read_log, read_plain
from tidegate.errors import TidegateError
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


def compact_from_outside(table: Path) -> None:
    """What OPTIMIZE of another program does: the files that the log has of each day become one, in one version."""
    files: dict[str, dict[str, Any]] = {}
    newest = max(int(path.stem) for path in (table / "_delta_log").glob("*[0-9].json"))
    for number in range(newest + 1):
        for line in (table / "_delta_log" / f"{number:020d}.json").read_text().split("\n"):
            action = json.loads(line) if line else {}
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1}}]
    for day in sorted({add["partitionValues"]["day"] for add in files.values()}):
        mine = [add for add in files.values() if add["partitionValues"]["day"] == day]
        rows = pa.concat_tables([pq.read_table(table / unquote(add["path"]), partitioning=None) for add in mine])
        name = f"day={day}/part-00000-{uuid.uuid4()}.c000.snappy.parquet"
        pq.write_table(rows, table / name)
        actions += [
            {"remove": {"path": add["path"], "dataChange": False, "deletionTimestamp": 1, "size": add["size"]}}
            for add in mine
        ]
        add = {
            "path": name,
            "partitionValues": {"day": day},
            "dataChange": False,
            "size": (table / name).stat().st_size,
            "modificationTime": 1,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
        actions.append({"add": add})
    text = "\n".join(json.dumps(one) for one in actions)
    (table / "_delta_log" / f"{newest + 1:020d}.json").write_text(text)


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
    assert process.value["code"] == "REPLACED_FILES_GONE" and f"give up {kind} b" in process.value["actions"][0]
    check_readers_of_the_log(world)
    done(world.run("then"))
    done(start())
    check_readers_of_the_log(world)
    assert world.repair().value["code"] is None
