"""A sink by the examples of the docs has exactly the table's rows, however these were replaced; its numbers rise."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.model.beside import D1, done
from tests.model.processes import Stop, stops
from tests.model.world import Make, World
from tests.support.keyed import Keyed
from tests.support.mirrors import NAMES, as_table, deliver, read_table, replace_rows_in_every_way, write_code
from tests.support.page_code import SINKS, read_code
from tests.support.readers import read_agreed
from tidegate.runs.deliver import deliver_run, feed_sinks
from tidegate.runs.opening import recover_run
from tidegate.runs.restart.recorded import record_rollback
from tidegate.runs.restart.versions import look_back
from tidegate.table.log.state import read_table_state

_EVERY = 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 9
"""Every so many storage calls; in a sweep every one."""
_SINK = "sinks:\n  - {type: foreach, writer: 'sinks.py:Writer'}\n"
_AHEAD = "class Writer:\n    def process(self, row): ...\n"


class Fed:
    """A pipeline that feeds the database of the docs' example, which lies outside of it."""

    def __init__(self, new_world: Make, folder: Path, more: str = "") -> None:
        self.database = folder / "prices.db"
        self.world: World = new_world("files", sinks=_SINK + more)
        write_code(self.world, as_table(read_code(SINKS, "class Writer"), self.database))

    def rows(self) -> Counter[tuple[Any, ...]]:
        with sqlite3.connect(self.database) as database:
            return Counter(database.execute(f"SELECT {NAMES} FROM prices").fetchall())

    def numbers(self) -> list[int]:
        """The versions that it has seen, in order."""
        with sqlite3.connect(self.database) as database:
            return [number for (number,) in database.execute("SELECT version FROM fed ORDER BY rowid")]

    def check(self, what: str) -> None:
        assert self.rows() == read_table(self.world), f"after {what}"
        numbers = self.numbers()
        assert numbers == sorted(numbers), f"after {what}"


@pytest.fixture
def fed(new_world: Make, tmp_path: Path) -> Fed:
    return Fed(new_world, tmp_path)


def test_a_database_that_a_writer_feeds(fed: Fed) -> None:
    replace_rows_in_every_way(fed.world, fed.check)


@pytest.mark.parametrize("lost", ["its notes", "state and table"])
def test_an_empty_sink_gets_the_whole_table_with_a_refresh(fed: Fed, lost: str, tmp_path: Path) -> None:
    """The way on that the docs give for both cases."""
    world = fed.world
    world.offer(0, ["good"])
    done(world.run("r1"))
    data = world.root / "data"
    copy = shutil.copytree(data, tmp_path / "copy", symlinks=True)
    world.offer(1, ["good"])
    done(world.run("r2"))
    if lost == "its notes":
        shutil.rmtree(world.paths.sinks)
        deliver(world)  # from here on it gets each version
    else:
        shutil.rmtree(data)
        shutil.copytree(copy, data, symlinks=True)
    fed.database.unlink()
    done(world.refresh("f1"))
    deliver(world)
    assert read_table(world)
    fed.check("a refresh")


def rebuild_day(world: World) -> None:
    world.offer(0, ["good", "good"])
    done(world.run("r2"))
    world.spec.sinks.clear()  # it is fed later
    done(world.backfill("b1", D1, D1))


def make_anew(world: World) -> None:
    done(world.reset(from_beginning=True))
    world.spec.sinks.clear()
    done(world.run("r2"))


@pytest.mark.parametrize("replace", [rebuild_day, make_anew])
def test_killed_anywhere_while_it_is_fed(new_world: Make, tmp_path: Path, replace: Callable[[World], None]) -> None:
    for stop in stops(9, killed=True):
        folder = tmp_path / str(stop.nth)
        folder.mkdir()
        fed = Fed(new_world, folder)
        world, sinks = fed.world, list(fed.world.spec.sinks)
        world.offer(0, ["good"])
        world.offer(1, ["good", "good"])
        done(world.run("r1"))
        replace(world)
        world.spec.sinks.extend(sinks)
        process = world._start(
            "deliver d1",
            lambda: deliver_run(world.project, world.spec.name, "d1", submit=world._submit),  # noqa: B023
            stop,
        )
        if process.state != "stopped":
            break
        world.kill(process)
        deliver(world)
        fed.check(f"a kill {stop}")
    assert stop.nth > 1


def test_a_version_that_comes_again_has_the_same_number_in_a_restored_table(new_world: Make, tmp_path: Path) -> None:
    """Killed at each call on its notes (in a sweep: at any call) while it gets two versions; then an older copy of the
    table with the first of them is restored, and another sink is ahead. Then the sink's notes from before the crash
    are restored, too."""
    at, repeated = 1, 0
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        fed = Fed(new_world, folder, "  - {type: foreach, writer: 'ahead.py:Writer'}\n")
        world, (sink, ahead) = fed.world, fed.world.spec.sinks
        (world.paths.job / "ahead.py").write_text(_AHEAD)
        world.offer(0, ["good"])
        done(world.run("r1"))
        world.spec.sinks[:] = [ahead]
        world.offer(0, ["good", "good"])
        done(world.run("r2"))
        shutil.copytree(world.paths.table, folder / "table")
        world.offer(1, ["good"])
        done(world.run("r3"))
        deliver(world)
        world.spec.sinks[:] = [sink]
        notes = world.paths.sink(sink.name)
        shutil.copytree(notes, folder / "notes")
        process = world._start(
            "deliver d1",
            lambda: deliver_run(world.project, world.spec.name, "d1", submit=world._submit),  # noqa: B023
            Stop("" if _EVERY == 1 else "/sinks/", nth=at, after=at % 2 == 0),
        )
        if process.state != "stopped":
            break
        world.kill(process)
        before = fed.numbers()
        shutil.rmtree(world.paths.table)
        shutil.copytree(folder / "table", world.paths.table)
        done(world.repair())
        world.spec.sinks[:] = [sink, ahead]
        deliver(world)
        fed.check(f"a kill at call {at}")
        repeated += before[-1] in fed.numbers()[len(before) :]
        shutil.rmtree(notes)
        shutil.copytree(folder / "notes", notes)
        deliver(world)
        fed.check(f"a kill at call {at}, with older notes")
        done(world.run("s1"))
        deliver(world)
        fed.check(f"a kill at call {at} and a run")
        at += 1
    assert repeated


def test_numbers_rise_over_a_state_folder_that_is_restored_or_gone(fed: Fed, tmp_path: Path) -> None:
    world = fed.world
    world.offer(0, ["good"])
    done(world.run("r1"))
    for run_id in ("r2", "r3"):
        done(world.reset(from_beginning=True))
        done(world.run(run_id))
        fed.check(run_id)
    shutil.copytree(world.paths.sinks, tmp_path / "sinks")
    world.offer(0, ["good"])
    done(world.run("r4"))
    shutil.rmtree(world.paths.sinks)
    shutil.copytree(tmp_path / "sinks", world.paths.sinks)
    world.offer(1, ["good"])
    done(world.run("r5"))
    fed.check("older notes")
    shutil.rmtree(world.paths.sinks)
    highest = max(fed.numbers())
    done(world.run("r6"))
    world.offer(1, ["good"])
    done(world.run("r7"))
    fed.check("no notes")
    assert max(fed.numbers()) > highest


def test_a_process_that_was_replaced_brings_nothing_old_back(fed: Fed) -> None:
    world = fed.world
    world.offer(0, ["good"])
    done(world.run("r1"))
    code = (world.paths.job / "sinks.py").read_text()
    made: dict[str, Any] = {}
    exec(code, made)
    late = made["Writer"]()
    world.offer(1, ["good"])
    done(world.run("r2"))
    assert late.open(0, 0) is False
    late.close(None)
    fed.check("a late process")


def test_a_table_in_update_mode(tmp_path: Path) -> None:
    """Keys are replaced by runs, and partitions by a rollback."""
    keyed = Keyed(tmp_path, sinks=[{"type": "foreach", "writer": "sinks.py:Writer"}])
    database = tmp_path / "prices.db"
    code = read_code(SINKS, "class Writer").replace("id TEXT, price REAL, day TEXT", "id TEXT PRIMARY KEY, city, n")
    code = code.replace("INSERT INTO prices", "INSERT OR REPLACE INTO prices").replace(
        "row.price, day", "row.city, row.n"
    )
    code = code.replace("day = None if row.day is None else str(row.day)", "pass")
    keyed.paths.job.mkdir(parents=True, exist_ok=True)
    (keyed.paths.job / "sinks.py").write_text(code.replace("/exports/prices.db", str(database)))

    def check() -> None:
        feed_sinks(keyed.context("feeder"), lambda plan: 0)
        with sqlite3.connect(database) as connection:
            found = connection.execute("SELECT CAST(id AS INTEGER), city, n FROM prices ORDER BY 1").fetchall()
        rows = sorted((row["id"], row["city"], row["n"]) for row in read_agreed(keyed.paths.table))
        assert found == rows

    feed_sinks(keyed.context("feeder"), lambda plan: 0)  # as the first ingest does
    versions = []
    for n, cities in enumerate([{1: "Oslo", 2: "Rom"}, {2: "Bonn", 3: "Riga"}, {1: "Lima"}]):
        keyed.stage([{"id": key, "city": city, "n": n} for key, city in cities.items()])
        keyed.run()
        state = read_table_state(keyed.paths.table)
        assert state is not None
        versions.append(state.version)
        check()
    context = keyed.context("back")
    record_rollback(context, look_back(keyed.paths, recover_run(context), versions[0]), "leave-out")
    keyed.run("back")
    check()
