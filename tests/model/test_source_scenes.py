"""Clean-up of a source beside what runs, decisions and other pipelines need of its files."""

from __future__ import annotations

import os
from typing import Literal

import pytest

from tests.model.world import Make, World
from tidegate.core.errors import HeldError
from tidegate.spec.models import MaintenanceSpec
from tidegate.views.outlook import plan_pipeline


@pytest.fixture(params=["hold"])
def world(new_world: Make, request: pytest.FixtureRequest) -> World:
    """A pipeline that reads files."""
    return new_world("files", on_critical=request.param)


def settings(how: Literal["archive", "delete"]) -> MaintenanceSpec:
    return MaintenanceSpec(source=how, keep_versions=0)


def clean(world: World, how: Literal["archive", "delete"] = "delete") -> list[str]:
    """Maintenance; the notes of its report."""
    process = world.maintain(world.new_run_id("m"), settings(how))
    assert process.error is None
    return list(process.value["notes"])


def inbox(world: World) -> list[str]:
    return sorted(path.name for path in (world.root / "data/inbox").glob("*.csv"))


@pytest.mark.parametrize("world", ["continue"], indirect=True)
def test_waiting_source(world: World) -> None:
    """What a deferred increment was read from stays until it is decided on."""
    world.offer(0, ["poor"])
    held = world.run("r1")
    assert held.error is None or isinstance(held.error, HeldError)
    world.offer(0, ["good"])
    world.run("r2")
    assert len(inbox(world)) == 2
    clean(world)
    assert inbox(world) == ["1.csv"]
    world.settle("release")
    clean(world)
    assert inbox(world) == []


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_name_used_again(world: World, how: Literal["archive", "delete"]) -> None:
    """Each file under the name of one that was cleared away is read, once."""
    for _ in range(3):
        world.offer(0, ["good", "malformed"])
        (name,) = inbox(world)
        os.rename(world.root / "data/inbox" / name, world.root / "data/inbox/export.csv")
        assert world.run(world.new_run_id()).error is None
        world.check()
        clean(world, how)
        assert inbox(world) == []
        assert world.run(world.new_run_id()).error is None
        world.check()
    world.settle("release")


def test_rewritten_source(world: World) -> None:
    """Rewritten in its middle, with size and time stamp as they were: it stays, and is named."""
    world.offer(0, ["good"] * 4000)
    (name,) = inbox(world)
    path = world.root / "data/inbox" / name
    assert path.stat().st_size > 40_000 and world.run("r1").error is None
    stamp = path.stat()
    with open(path, "r+b") as handle:
        handle.seek(stamp.st_size // 2)
        handle.write(b"#")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert world.run("r2").error is None
    assert any("may have changed since they were read" in note and name in note for note in clean(world))
    assert inbox(world) == [name]


def test_source_read_by_link(world: World) -> None:
    """Another pipeline that has not read a file yet finds it by its link."""
    other = world.root / "jobs/other"
    other.mkdir(parents=True)
    (world.root / "data/inbox2").mkdir()
    (other / "pipeline.yaml").write_text(
        "version: 1\nname: other\nschedule: null\nsources:\n  s: {type: files, path: data/inbox2, format: csv, "
        "schema: 'id STRING, kind STRING, day STRING', follow_links: [data/inbox]}\n"
    )
    world.offer(0, ["good"])
    (name,) = inbox(world)
    (world.root / "data/inbox2" / name).symlink_to(f"../inbox/{name}")
    assert world.run("r1").error is None
    assert any("pipeline other reads the same folder" in note for note in clean(world))
    assert inbox(world) == [name]
    assert plan_pipeline(world.project, "other")["sources"]["s"]["files"] == 1
