"""A refresh that changes the columns of the table: old rows with old columns, or new ones with new columns, wherever it
is killed or frozen. No version has files of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.model import fake_spark
from tests.model.beside import KEPT, code_of, decide, done, points_of_finishing, refresh, refuse_all, run_live
from tests.model.processes import Stop
from tests.model.world import NAME, Make, World
from tests.support.staged import make_schema
from tests.support.sweep import choose
from tidegate.core.errors import HeldError
from tidegate.runs.rollback import look_at_rollback
from tidegate.table.log.snapshot import read_snapshot
from tidegate.table.log.state import read_log
from tidegate.table.publish.delivery import list_deliveries
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status

OLD, NEW = {"id", "kind", "day", "size"}, {"id", "kind", "day", "weight"}


@pytest.fixture(params=[False, True], ids=["rows", "rows and state"])
def world_of(request: pytest.FixtureRequest, new_world: Make) -> Iterator[Any]:
    """Makes worlds of a pipeline with two runs and records that no run has read yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", [KEPT] if request.param else [])

        def make() -> World:
            world = new_world("files")
            world.batch_size = 2
            with columns("size", "integer", pa.int32()):
                world.offer(0, ["good", "good", "malformed"])
                done(world.run(world.new_run_id()))
                world.offer(0, ["good"] * 3)
                done(world.run(world.new_run_id()))
            world.offer(1, ["good"])
            return world

        yield make


@contextmanager
def columns(name: str, kind: str, arrow: pa.DataType) -> Iterator[None]:
    """The transform makes this column, besides those of the model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "SCHEMA_JSON", make_schema(id="string", kind="string", day="date", **{name: kind}))
        patch.setattr(fake_spark, "_ARROW", pa.schema([("id", pa.string()), ("kind", pa.string()), (name, arrow)]))
        yield


def changed() -> AbstractContextManager[None]:
    """The transform has renamed and retyped a column."""
    return columns("weight", "long", pa.int64())


def check_columns(world: World) -> set[str]:
    """Each version has the columns of its files; returns those of the newest one."""
    world.check()
    newest = read_log(world.paths.table)
    for version in range(newest.version + 1):
        columns = {field["name"] for field in read_columns(world, version)}
        for file in read_snapshot(world.paths.table, version).files():
            path = world.paths.table / file.path
            if path.exists():  # else it has its hidden name by now
                assert {*pq.read_schema(path).names, "day"} == columns, (version, file.path)
    return {field["name"] for field in read_columns(world, newest.version)}


def read_columns(world: World, version: int) -> list[dict[str, str]]:
    return list(json.loads(read_snapshot(world.paths.table, version).schema_json)["fields"])


def test_killed_while_it_is_finished(world_of: Any) -> None:
    with changed():
        points = points_of_finishing(refresh(world_of()), killed=True)
    for point in choose(points, 5):
        world = world_of()
        with changed():
            world.kill(refresh(world, stop=Stop(nth=point)))
            assert check_columns(world) in (OLD, NEW)
            report = done(refresh(world))
            assert report["outcome"] == "published"
            said = report["table"]["columns"]
            assert ({*said["before"]}, {*said["after"]}) == (OLD, NEW)
            assert check_columns(world) == NEW
            run_live(world)
            assert check_columns(world) == NEW
            newest = read_log(world.paths.table).version
            (one,) = [one for one in list_deliveries(world.paths.table, -1, newest) if one.replaces_columns]
            assert one.partitions == ({},)  # a sink gets all rows, instead of all others


def test_frozen_while_it_is_finished(world_of: Any) -> None:
    with changed():
        points = points_of_finishing(refresh(world_of()))
    for point in choose(points, 4):
        world = world_of()
        with changed():
            world.freeze(refresh(world, stop=Stop(nth=point)))
            done(refresh(world, "other"))
            assert check_columns(world) == NEW
            world.thaw(0)
            run_live(world)
            assert check_columns(world) == NEW


def test_staged_rows_are_published_first(world_of: Any) -> None:
    """The driver of the model lets rows with the new columns through, which a real one refuses."""
    world = world_of()
    with changed():
        assert code_of(world.run(world.new_run_id())) == "SCHEMA_CHANGE"
        assert code_of(refresh(world)) == "REFRESH_PENDING"
        assert check_columns(world) == OLD


def test_a_held_one_is_not_released_over_an_increment_with_the_old_columns(world_of: Any) -> None:
    world = world_of()
    with pytest.MonkeyPatch.context() as patch:
        refuse_all(patch)
        with changed():
            held = refresh(world).error
            refused = "runs that have something to read are refused (SCHEMA_CHANGE) until it is released, or "
            assert isinstance(held, HeldError) and refused in str(held.next_run)
            ahead, [row] = plan_pipeline(world.project, NAME), project_status(world.project, NAME)
            said = [note for note in [*ahead["notes"], *row["notes"]] if note.startswith("held: refresh")]
            said += [one["message"] for one in row["trouble"] if one["kind"] == "held"]
            assert [one.partition("; ")[2][: len(refused)] for one in said] == [refused] * 3
        with columns("size", "integer", pa.int32()):
            assert isinstance(world.run(world.new_run_id()).error, HeldError)
    assert code_of(decide(world, "release")) == "BACKFILL_OUTDATED"
    assert check_columns(world) == OLD


def test_only_the_version_before_it_can_still_be_opened(new_world: Make) -> None:
    """As docs/how-to/schema-changes.md says: with ``readers: both`` the replaced files have hidden names from then
    on, and older versions of the log name the plain ones."""
    world = new_world("files")
    with columns("size", "integer", pa.int32()):
        for _ in range(2):
            world.offer(0, ["good"])
            done(world.run(world.new_run_id()))
    with changed():
        version = done(refresh(world))["table"]["version"]
    opened = {}
    for number in range(version + 1):
        with suppress(FileNotFoundError):
            opened[number] = {*DeltaTable(world.paths.table, version=number).to_pyarrow_table().column_names}
    assert opened == {version - 1: OLD, version: NEW}


def test_a_rollback_over_it_names_the_columns(new_world: Make) -> None:
    """In the dry run and in the report: the spec and the transform have to be changed back as well."""
    world = new_world("files")
    with columns("size", "integer", pa.int32()):
        world.offer(0, ["good"] * 2)
        done(world.run(world.new_run_id()))
    before = read_log(world.paths.table).version
    with changed():
        assert done(refresh(world))["outcome"] == "published"
    said = "columns: weight BIGINT leaves; size INT is new; change schema and transform back first, or the next run is "
    look = look_at_rollback(world.project, NAME, before)
    assert look["hindrance"] is None and [note[: len(said)] for note in look["notes"]].count(said) == 1, look["notes"]
    report = done(world.rollback(before, None))
    assert [note[: len(said)] for note in report["notes"]].count(said) == 1
    assert check_columns(world) == OLD
    newer = look_at_rollback(world.project, NAME, before)["notes"]
    assert not any("columns: " in note for note in newer), "nothing changes any more"
