"""Batch files: accepted losses, stale processes and restored copies, over two sources and several batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from deltalake import DeltaTable

from tests.model import fake_spark
from tests.model.processes import Process, Stop
from tests.model.world import Make, World
from tidegate.core.errors import DisagreementError
from tidegate.sources.files import batch_plan
from tidegate.sources.files.ledger import open_ledger
from tidegate.state.batch_files import BatchFiles

TOPIC = (
    "  tt: {type: kafka, topics: [t], format: json, schema: 'id STRING, kind STRING, day STRING', "
    "starting_offsets: earliest"
)
LIST = "rename data/state/orders/checkpoint/sources/orders"
PUT = "link data/state/orders/batches/{}/~"


@pytest.fixture
def keeps_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fake_spark, "STATE", [{"operator": "Aggregate", "keys": [], "values": []}])


def go(world: World, name: str, **how: Any) -> Process:
    """A run that goes well."""
    process = world.run(name, **how)
    assert process.error is None, repr(process.error)
    return process


def stopped(world: World, name: str, at: str, nth: int = 1, *, after: bool = True, **how: Any) -> Process:
    """A run that stops there."""
    process = world.run(name, stop=Stop(at, nth, after=after), **how)
    assert process.state == "stopped", (process.error, process.calls[-5:])
    return process


def offer_topic(world: World, partition: int, kinds: list[str]) -> None:
    """To the topic of a pipeline that reads files as well."""
    shape, world.shape = world.shape, "kafka"
    world.offer(partition, kinds)
    world.shape = shape


def join(world: World, more: str = "") -> None:
    """The topic joins the files."""
    (world.root / "jobs/orders/transform.sql").write_text(
        "SELECT id, kind, day FROM orders UNION ALL SELECT id, kind, day FROM tt"
    )
    change(world, lambda text: f"{text}{TOPIC}{more}}}\ntransform: transform.sql\n")


def change(world: World, edit: Callable[[str], str]) -> None:
    """Edit the spec."""
    path: Path = world.root / "jobs/orders/pipeline.yaml"
    path.write_text(edit(path.read_text()))
    world.__dict__.pop("spec", None)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_loss_in_a_batch_of_two_files(new_world: Make, keeps_state: None, lost: int) -> None:
    """Spark was killed between the list of a file and its plan, and then took two files in one batch."""
    world = new_world("kafka")
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(lost ^ 1, ["good"] * 2)
    if lost == 0:
        world.offer(0, ["good"] * 3)
    world.kill(stopped(world, "q1", f"{LIST}/1"))
    world.offer(lost, ["good"] * 2)
    world.kill(stopped(world, "q2", "rename data/state/orders/checkpoint/offsets/1"))
    world.retain_from(lost, 2 if lost == 0 else 1)
    go(world, "accepted", accept="gone")
    go(world, "q3")
    world.check_all()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("is_idle", [False, True])
def test_a_loss_behind_a_batch_of_files_alone(new_world: Make, keeps_state: None, killed: bool, is_idle: bool) -> None:
    world = new_world("files")
    join(world)
    world.offer(0, ["good"])
    offer_topic(world, 0, ["good"] * 2)
    go(world, "q0")
    world.offer(0, ["good"])
    go(world, "q1")
    offer_topic(world, 0, ["good"] * 3)
    world.retain_from(0, 5 if is_idle else 4)
    if killed:
        world.kill(stopped(world, "q2", "replace data/state/orders/birth.json", after=False, accept="gone"))
    go(world, "q3", accept="gone")
    go(world, "q4")
    offer_topic(world, 0, ["good"])
    go(world, "q5")
    world.check_all()


def test_a_batch_file_that_nobody_has_begun_is_torn(new_world: Make) -> None:
    world = new_world("kafka")
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"])
    world.kill(stopped(world, "q1", PUT.format("orders")))
    [path] = world.paths.batches.rglob("*01.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    go(world, "q2")
    world.check_all()


def test_copied_without_times_and_killed(new_world: Make) -> None:
    """Spark takes files by their times: those are made from the numbers again."""
    world = new_world("kafka", batch_size=1)
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"] * 4)
    world.kill(stopped(world, "q1", LIST, after=False))
    for number, path in enumerate(sorted(world.paths.batches.rglob("*.jsonl"), reverse=True)):
        os.utime(path, ns=(17 * 10**17 + number * 10**6,) * 2)
    world.kill(stopped(world, "q2", "rename data/state/orders/checkpoint/commits/1"))
    world.offer(0, ["good"])
    go(world, "q3")
    world.check_all()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_stale_run_adds_to_the_files_of_its_successor(new_world: Make, is_late: bool) -> None:
    """Of a source that has joined and has no place in the checkpoint yet. Its limit has changed meanwhile."""
    world = new_world("files")
    world.offer(0, ["good"])
    go(world, "q0")
    join(world, ", options: {maxOffsetsPerTrigger: 2}")
    offer_topic(world, 0, ["good"] * 4)
    world.freeze(stopped(world, "q1", PUT.format("tt"), 2, after=False))
    change(world, lambda text: text.replace("maxOffsetsPerTrigger: 2", "maxOffsetsPerTrigger: 1000"))
    if is_late:
        go(world, "q2")
        world.thaw(0)
    else:
        world.freeze(stopped(world, "q2", PUT.format("tt")))
        world.thaw(0)
        assert world.thaw(0).error is None
    go(world, "q3")
    world.check_all()


def test_a_stale_run_adds_behind_an_accepted_loss(new_world: Make, keeps_state: None) -> None:
    world = new_world("kafka", batch_size=1)
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"] * 6)
    world.freeze(stopped(world, "q1", PUT.format("orders"), 2, after=False))
    world.retain_from(0, 7)
    go(world, "q2", accept="gone")
    world.thaw(0)
    world.offer(0, ["good"] * 2)
    go(world, "q3")
    world.check_all()


@pytest.mark.parametrize("away", [1, 2, 3])
def test_a_topic_that_the_spec_leaves_out_for_a_while(new_world: Make, away: int) -> None:
    world = new_world("files")
    join(world)
    world.offer(0, ["good"])
    offer_topic(world, 0, ["good"] * 2)
    go(world, "q0")
    path = world.root / "jobs/orders/pipeline.yaml"
    both = path.read_text()
    change(world, lambda text: text.split("  tt:")[0])
    for number in range(away):
        world.offer(0, ["good"])
        go(world, f"away{number}")
    change(world, lambda text: both)
    offer_topic(world, 0, ["good"])
    world.offer(0, ["good"])
    go(world, "back")
    offer_topic(world, 1, ["good"])
    go(world, "q9")
    world.check_all()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_topic_made_anew_behind_several_batches(new_world: Make, keeps_state: None, is_killed: bool) -> None:
    """The open files, and the batch in flight, name the topic that is gone."""
    world = new_world("kafka", batch_size=1)
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"] * 4)
    world.kill(stopped(world, "q1", "rename data/state/orders/checkpoint/offsets/1"))
    world.kafka.topic_id, world.kafka.begin = "id-2", {0: 0, 1: 0}
    world.kafka.sent = {0: [{"id": f"new-{n}", "kind": "good"} for n in range(6)], 1: []}
    if is_killed:
        world.kill(stopped(world, "q2", "replace data/state/orders/birth.json", after=False, accept="made again"))
    go(world, "q3", accept="made again")
    go(world, "q4")
    rows = DeltaTable(world.paths.table).to_pyarrow_table().to_pylist()
    assert {row["id"] for row in rows} == {"k0-0", *(f"new-{n}" for n in range(6))}


def test_a_planned_batch_that_would_read_records_again_is_refused(new_world: Make) -> None:
    """A stale process that is resumed between the last look at the files and Spark's list can make Spark plan it."""
    world = new_world("kafka", batch_size=1)
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"] * 2)
    world.kill(stopped(world, "q1", "rename data/state/orders/checkpoint/offsets/1"))
    files = BatchFiles(world.paths.checkpoint, "orders")
    planned = files.read(1)
    files.rewrite(replace(planned, begins=dict.fromkeys(planned.begins, 0)))
    refused = world.run("q2").error
    assert isinstance(refused, DisagreementError) and refused.exit_code == 78
    assert "does not begin where the one before it ends" in refused.message


KEPT: list[Any] = [{"operator": "Aggregate", "keys": [], "values": []}]


@pytest.mark.parametrize(
    ("state", "transform", "edit", "batches"),
    [
        ([], "", ("", ""), (2, 3)),
        (KEPT, "", ("", ""), (2, 1)),
        ([], "-- no watermark", ("", ""), (1, 3)),
        ([], "", ("table: {", "trigger: once\ntable: {"), (1, 1)),
        ([], "", ("table: {", "output_mode: update\ntable: {keys: [id, day], "), (1, 1)),
    ],
    ids=["appends", "state", "watermark in the transform", "once", "keys"],
)
def test_what_is_cut_by_size(
    new_world: Make,
    patch: pytest.MonkeyPatch,
    state: list[Any],
    transform: str,
    edit: tuple[str, str],
    batches: tuple[int, int],
) -> None:
    """Whether a query keeps state is known from the second run on."""
    patch.setattr(fake_spark, "STATE", state)
    patch.setattr(batch_plan, "BATCH_BYTES", 1)
    world = new_world("files")
    (world.root / "jobs/orders/transform.sql").write_text(f"SELECT * FROM orders {transform}")
    change(world, lambda text: f"{text.replace(*edit)}transform: transform.sql\n")
    files = BatchFiles(world.paths.checkpoint, "orders")
    for run, (offers, count) in enumerate(zip((2, 3), batches, strict=True)):
        for _ in range(offers):
            world.offer(0, ["good"])
        before = len(files.numbers())
        go(world, f"q{run}")
        assert len(BatchFiles(world.paths.pinned().checkpoint, "orders").numbers()) == before + count
    world.check_all()


def lose(world: World, file: int) -> None:
    """A file vanishes, and its link with it, before it was read."""
    (world.root / f"data/inbox/{file}.csv").unlink()
    [link] = [one for one in world.paths.intake("orders").rglob("*.csv") if one.read_text().startswith(f"f{file}-")]
    link.unlink()
    world.offered.pop(f"f{file}-0")


@pytest.mark.parametrize("is_late", [False, True])
def test_a_stale_run_adds_nothing_behind_a_file_that_is_gone(new_world: Make, is_late: bool) -> None:
    """It would put a link under the next number that its successor has in another file."""
    world = new_world("files", batch_size=1)
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"])
    world.offer(0, ["good"])
    world.freeze(stopped(world, "q1", PUT.format("orders"), 2, after=False))
    lose(world, 2)
    world.batch_size = 1000
    world.offer(0, ["good"])
    at = "rename data/state/orders/checkpoint/sources/orders/1" if is_late else PUT.format("orders")
    world.freeze(stopped(world, "q2", at))
    world.thaw(0)
    assert world.thaw(0).error is None
    go(world, "q3")
    world.check_all()


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_stale_run_takes_parts_out_of_a_file_of_its_successor(
    new_world: Make, keeps_state: None, is_committed: bool
) -> None:
    world = new_world("files")
    world.offer(0, ["good"])
    go(world, "q0")
    world.offer(0, ["good"])
    world.offer(0, ["good"])
    world.kill(stopped(world, "killed", PUT.format("orders")))
    lose(world, 2)
    world.freeze(stopped(world, "q1", "replace data/state/orders/batches/orders/", after=False))
    if is_committed:
        go(world, "q2")
        world.thaw(0)
    else:
        world.freeze(stopped(world, "q2", "rename data/state/orders/checkpoint/offsets/1"))
        world.thaw(0)
        assert world.thaw(0).error is None
    world.offer(0, ["good"])
    go(world, "q3")
    world.check_all()


@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_a_project_below_a_folder_that_is_called_intake(
    tmp_path: Path, patch: pytest.MonkeyPatch, shape: Literal["files", "kafka"]
) -> None:
    (tmp_path / "intake/orders").mkdir(parents=True)
    world = World(tmp_path / "intake/orders/project", shape, patch, batch_size=1)
    try:
        for run in range(2):
            world.offer(0, ["good"] * 2)
            world.offer(1, ["good"])
            go(world, f"q{run}")
        world.check_all()
    finally:
        world.end()


def test_a_refresh_reads_files_in_the_order_of_the_runs(new_world: Make, keeps_state: None) -> None:
    """What is late, and which of several rows is kept, may depend on it."""
    world = new_world("files", batch_size=1)
    now = time.time_ns()
    for file in range(1, 5):
        world.offer(0, ["good"])
        os.utime(world.root / f"data/inbox/{file}.csv", ns=(now - file * 3600 * 10**9,) * 2)

    def read_order() -> list[str]:
        files = BatchFiles(world.paths.pinned().checkpoint, "orders")
        with open_ledger(world.paths, read_only=True) as ledger:
            links = [link for number in files.numbers() for link in files.read(number).links]
            rows = {row.link: row.path for row in ledger.rows("orders", links=links)}
        return [rows[link] for link in links]

    go(world, "q0")
    assert read_order() == [f"data/inbox/{file}.csv" for file in (4, 3, 2, 1)]
    done = world.refresh("refresh")
    assert done.error is None, repr(done.error)
    assert read_order() == [f"data/inbox/{file}.csv" for file in (4, 3, 2, 1)]
