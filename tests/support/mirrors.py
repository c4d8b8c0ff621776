"""Scenes in which rows of a table are replaced in every way there is, for sinks that are to have exactly its rows."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.model.beside import D1, D2, done
from tests.model.processes import Process
from tests.model.world import NAME, World
from tidegate.core.errors import HeldError
from tidegate.rework.replay.choose import Selection
from tidegate.runs.deliver import deliver_run
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.sinks.feed import Feeder, begin_sink, feed_sink, raise_numbers
from tidegate.spec.models import MaintenanceSpec, SinkSpec
from tidegate.table.log.state import list_data_files, read_table_state

NAMES = "id, kind, day"


def read_table(world: World) -> Counter[tuple[Any, ...]]:
    """(id, kind, day) of the table's rows, by its log."""
    found: Counter[tuple[Any, ...]] = Counter()
    for file in list_data_files(world.paths.table) if world.paths.table.exists() else []:
        rows = pq.read_table(world.paths.table / file.path, partitioning=None).to_pylist()
        found.update((row["id"], row["kind"], file.partition["day"]) for row in rows)
    return found


Check = Callable[[str], None]


def replace_rows_in_every_way(world: World, check: Check) -> None:
    """Run, backfill, refresh, roll back, replay, rebuild ... ; ``check`` after each, with what was done."""
    do = partial(_do, world, check)
    world.offer(0, ["good", "good", "malformed"])
    world.offer(1, ["good"])
    do("a run", world.run("r1"))
    world.offer(0, ["good", "good"])
    do("a second run", world.run("r2"))
    do("a backfill of a day", world.backfill("b1", D1, D1))
    do("a backfill of two days", world.backfill("b2", D1, D2))
    do("a refresh", world.refresh("f1"))
    world.offer(1, ["good", "good"])
    do("a run after the refresh", world.run("r3"))
    version = _newest(world)
    world.offer(0, ["good"])
    do("another run", world.run("r4"))
    do("a rollback that leaves out", world.rollback(version, "leave-out"))
    world.offer(0, ["good"])
    do("a run after the rollback", world.run("r5"))
    do("a rollback that reads again", world.rollback(version, "reread"))
    do("the run that reads again", world.run("r6"))
    do("a replay", world.replay("p1", Selection(), mend=True))
    world.offer(0, ["poor", "poor"])
    assert isinstance(world.run("r7").error, HeldError)
    do("a release", world.decide("release", "r7"))
    do("compaction", world.maintain("m1", MaintenanceSpec()))
    expires = MaintenanceSpec.read({"expire": {"partitions": f"{world.age_of_first_day()} seconds"}})
    do("expiry of a day", world.maintain("m2", expires))
    make_table_anew(world, check)


def make_table_anew(world: World, check: Check) -> None:
    """Restore an older copy of the table, reset, delete its folder, rebuild; a run before and after each."""
    do = partial(_do, world, check)
    world.offer(0, ["good"])
    do("a run", world.run("s1"))
    copy = world.root / "copy"
    shutil.copytree(world.paths.table, copy)
    world.offer(1, ["good"])
    do("a run before the restore", world.run("s2"))
    shutil.rmtree(world.paths.table)
    copy.rename(world.paths.table)  # an older copy of the table
    done(world.repair())
    do("the run that reads what the copy lacks", world.run("s3"))
    done(world.reset(from_beginning=True))
    do("the run after a reset", world.run("s4"))
    world.offer(0, ["good"])
    do("a second run after the reset", world.run("s5"))
    shutil.rmtree(world.paths.table)  # by hand
    done(world.repair())
    do("the run after the table was deleted", world.run("s6"))
    repair_pipeline(world.project, NAME, dry_run=False, rebuild=True)
    do("the run after a rebuild", world.run("s7"))


def _do(world: World, check: Check, name: str, process: Process) -> None:
    done(process)
    deliver(world)  # what the next run would feed first
    check(name)


def _newest(world: World) -> int:
    state = read_table_state(world.paths.table)
    assert state is not None
    return state.version


def deliver(world: World) -> None:
    """``tidegate deliver``."""
    run_id = world.new_run_id("d")
    done(
        world._start(f"deliver {run_id}", lambda: deliver_run(world.project, NAME, run_id, submit=world._submit), None)
    )


def write_code(world: World, code: str) -> None:
    """The code of the sinks."""
    (world.root / "jobs" / NAME / "sinks.py").write_text(code)


def as_table(code: str, database: Path) -> str:
    """The example of the docs for a table with the columns of a :class:`World`."""
    return (
        code.replace('FILE = "/exports/prices.db"', f"FILE = {str(database)!r}")
        .replace("price REAL", "kind TEXT")
        .replace("row.price", "row.kind")
    )


def feed(world: World, sink: SinkSpec, make: Callable[[str], Feeder]) -> None:
    """What a run does for one sink; ``make`` is given the table's schema."""
    table = read_table_state(world.paths.table)
    begin_sink(world.paths, sink.name, table, "feeder")
    if table is not None:
        table = raise_numbers(world.paths, table)
        made = partial(make, table.schema_json)
        feed_sink(world.paths, sink, table, made, run_id="feeder", check_lease=lambda: None)
