"""A query without state whose checkpoint was deleted, edited or exchanged: the next run begins a new one, and each
record is read once."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.model import fake_spark
from tests.model.edits import EDITS, edit
from tests.model.processes import Process, Stop, stops
from tests.model.world import Make, Shape, World
from tidegate.core.errors import DisagreementError, HeldError
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.views.outlook import plan_pipeline

_EVERY = 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 9
"""Every so many storage calls; in a sweep every one."""
SHAPES = pytest.mark.parametrize("shape", ["files", "kafka"])
MANIFEST = "link data/state/orders/manifests"


def published(new_world: Make, shape: Shape) -> World:
    """Two increments in the table, of two batches each, and two records more."""
    world = new_world(shape, batch_size=1)
    for number in range(3):
        world.offer(0, ["good", "malformed"])
        world.offer(1, ["good"])
        if number < 2:
            assert world.run(f"q{number}").error is None
    return world


def go(world: World, name: str, stop: Stop | None = None) -> Process:
    process = world.run(name, stop=stop)
    assert process.error is None, repr(process.error)
    return process


def notes_of(process: Process) -> list[str]:
    return [note for note in process.value["notes"] if "a new checkpoint" in note]


@SHAPES
@pytest.mark.parametrize("planned", ["nothing", "a batch", "a staged batch"])
@pytest.mark.parametrize("what", EDITS)
def test_the_next_run_begins_a_new_one(new_world: Make, shape: Shape, planned: str, what: str) -> None:
    if what == "move_end" and planned == "a batch":
        pytest.skip("it has valid digests, which no edit by hand has, and nothing to be compared with")
    world = published(new_world, shape)
    if planned != "nothing":
        world.kill(world.run("killed", stop=Stop(MANIFEST if planned == "a batch" else "commits/")))
    changed = [edit(world, what, seed) for seed in range(3)]
    assert repair_pipeline(world.project, "orders", dry_run=True)["code"] is None
    is_unusable = any("a new checkpoint" in note for note in plan_pipeline(world.project, "orders")["notes"])
    first = go(world, "next")
    # What is torn behind the last batch is taken away before, and a commit that is gone, Spark gives again.
    assert is_unusable or not notes_of(first)
    if any(changed) and (planned == "nothing" or what in ("delete", "rename_query")) and what != "forget_commit":
        assert notes_of(first)
    go(world, "last")
    world.check_all()
    world.offer(0, ["good"])
    assert not notes_of(go(world, "later"))
    world.settle("discard")


@SHAPES
def test_killed_while_it_begins_a_new_one(new_world: Make, shape: Shape) -> None:
    for stop in stops(11, killed=True):
        world = published(new_world, shape)
        edit(world, "delete", 0)
        process = world.run("killed", stop=stop)
        if process.state != "stopped":
            assert stop.nth > 5
            return
        world.kill(process)
        try:
            world.settle("discard")
        except AssertionError as error:
            raise AssertionError(f"killed {stop}: {process.calls[-1]}: {error}") from error


@SHAPES
@pytest.mark.parametrize("where", ["queries/000001/why", "queries/000001/~birth", "retired", "birth", "ledger"])
def test_a_stale_driver_stages_its_batch_meanwhile(new_world: Make, shape: Shape, where: str) -> None:
    """The batch counts, and is not read again; or it does not count, and is."""
    world = published(new_world, shape)
    world.freeze(_stopped(world, "stale", Stop(MANIFEST)))
    edit(world, "delete", 0)
    process = world.run("next", stop=Stop(where))
    if process.state == "stopped":
        world.freeze(process)
    world.thaw(0)
    world.check()
    world.settle("discard")


def _stopped(world: World, name: str, stop: Stop) -> Process:
    process = world.run(name, stop=stop)
    assert process.state == "stopped", (process.error, process.calls[-5:])
    return process


@SHAPES
@pytest.mark.parametrize("decision", ["release", "discard", "reread"])
def test_what_is_held_stays_held(new_world: Make, shape: Shape, decision: str) -> None:
    world = published(new_world, shape)
    go(world, "q2")
    world.offer(0, ["poor"])
    assert isinstance(world.run("held").error, HeldError)
    edit(world, "delete", 0)
    reads = world.reads
    assert isinstance(world.run("later").error, HeldError) and world.reads == reads
    world.decide(decision, "held")
    world.settle("discard")


@SHAPES
@pytest.mark.parametrize("is_known", [False, True])
def test_staging_is_gone_as_well(new_world: Make, shape: Shape, is_known: bool) -> None:
    """Where the ledger has files in a batch that nobody has, a person decides; offsets are read again."""
    world = published(new_world, shape)
    process = world.run("killed", stop=Stop("verdicts" if is_known else "commits/"))
    world.kill(process)
    for folder in (world.paths.checkpoint, world.paths.manifests, world.paths.staging):
        shutil.rmtree(folder)
    error = world.run("next").error
    assert isinstance(error, DisagreementError) == (is_known and shape == "files"), repr(error)
    world.disagrees = error is not None
    world.settle("discard")


@SHAPES
@pytest.mark.parametrize("what", ["delete", "rename_query", "older_copy"])
def test_a_query_with_state_needs_its_checkpoint(
    new_world: Make, monkeypatch: pytest.MonkeyPatch, shape: Shape, what: str
) -> None:
    monkeypatch.setattr(fake_spark, "STATE", [{"operator": "Aggregate", "keys": [], "values": []}])
    world = published(new_world, shape)
    edit(world, what, 1)
    assert isinstance(world.run("next").error, DisagreementError)
    assert repair_pipeline(world.project, "orders", dry_run=True)["code"] is not None


TOPIC = """\
  clicks: {type: kafka, topics: [t], format: json, schema: 'id STRING, kind STRING, day STRING', \
starting_offsets: earliest}
transform: t.sql
"""


@pytest.fixture
def mixed(new_world: Make) -> World:
    """A pipeline of files and a topic, before its first run."""
    world = new_world("files", sinks=TOPIC)
    (world.root / "jobs/orders/t.sql").write_text("SELECT * FROM orders UNION ALL SELECT * FROM clicks\n")
    return world


def read_without_the_topic(world: World, sent: int) -> None:
    """A run with the topic, then the spec has left it out."""
    send(world, sent)
    world.offer(0, ["good"])
    go(world, "q0")
    leave_out(world)


def come_back(world: World) -> None:
    """The topic is in the spec again, with more records."""
    leave_out(world)
    send(world, 3)
    go(world, "back")
    world.settle("discard")


def send(world: World, count: int, prefix: str = "k") -> None:
    """Records of the topic."""
    first = len(world.kafka.sent[0])
    rows = [{"id": f"{prefix}0-{first + number}", "kind": "good"} for number in range(count)]
    world.kafka.sent[0] += rows
    world.offered |= {row["id"]: "good" for row in rows}


def leave_out(world: World) -> None:
    """The spec has the topic no more, or again."""
    path = world.root / "jobs/orders/pipeline.yaml"
    text = path.read_text()
    path.write_text(text.replace(TOPIC, "") if TOPIC in text else text + TOPIC)
    world.__dict__.pop("spec")


def make_topic_anew(world: World) -> None:
    """The topic is deleted and created again, and its loss accepted by a run that reads only files."""
    world.kafka.topic_id, world.kafka.sent, world.kafka.begin = "id-2", {0: [], 1: []}, {0: 0, 1: 0}
    world.offer(0, ["good"])
    assert world.run("accepts", accept="yes").error is None
    send(world, 5, "new")


@pytest.mark.parametrize("command", ["run", "reset", "repair"])
def test_a_query_that_has_had_nothing_of_a_topic_yet(mixed: World, command: str) -> None:
    """What the query before it has read of a topic of the same name tells nothing."""
    send(mixed, 3)
    mixed.offer(0, ["good"])
    go(mixed, "q0")
    make_topic_anew(mixed)
    if command == "reset":
        assert mixed.reset().error is None
    elif command == "repair":
        (mixed.paths.pinned().birth).write_text(mixed.paths.pinned().birth.read_text().replace('"append"', '"update"'))
        mixed.disagrees = True
        assert mixed.repair().error is None
    else:
        edit(mixed, "delete", 0)
    assert go(mixed, "next").value["sources"]["clicks"]["offsets"]["t"]["0"] == [0, 5]
    mixed.check()


@pytest.mark.parametrize("sent", [0, 2])
def test_a_topic_that_the_spec_has_left_out(mixed: World, sent: int) -> None:
    read_without_the_topic(mixed, sent)
    edit(mixed, "delete", 0)
    assert go(mixed, "idle").value["outcome"] == "nothing_new"
    mixed.offer(0, ["good"])
    go(mixed, "q1")
    come_back(mixed)


def test_batch_files_of_a_topic_that_the_spec_has_left_out(mixed: World) -> None:
    read_without_the_topic(mixed, 2)
    mixed.offer(0, ["good"])
    go(mixed, "q1")
    shutil.rmtree(mixed.paths.batches / "clicks")
    mixed.offer(0, ["good"])
    go(mixed, "q2")
    come_back(mixed)


@SHAPES
@pytest.mark.parametrize("what", ["older_copy", "delete"])
def test_changed_while_a_run_is_at_work(new_world: Make, shape: Shape, what: str) -> None:
    """What its driver has staged of it does not count unless it follows what was read before."""
    for at in range(1, 1000, _EVERY):
        world = published(new_world, shape)
        process = world.run("busy", stop=Stop("checkpoint", nth=at))
        if process.state != "stopped":
            assert at > 1
            return
        world.freeze(process)
        edit(world, what, 1)
        try:
            world.thaw(0)
            world.check()
            world.settle("discard")
        except AssertionError as error:
            raise AssertionError(f"changed at call {at}: {process.calls[-1]}: {error}") from error


@SHAPES
def test_what_the_query_before_has_staged_is_gone(new_world: Make, shape: Shape) -> None:
    world = published(new_world, shape)
    world.kill(_stopped(world, "killed", Stop("verdicts")))
    edit(world, "delete", 0)
    world.offer(0, ["good"])
    world.kill(_stopped(world, "next", Stop("offsets/")))
    for folder in (world.paths.manifests, world.paths.staging):
        shutil.rmtree(folder, ignore_errors=True)
    error = world.run("refused").error
    assert isinstance(error, DisagreementError) and error.code == "STAGING_GONE", repr(error)
    world.settle("discard")


def refused_as_birth_gone(world: World) -> None:
    """The checkpoint and every birth record are gone, and the next run says so."""
    edit(world, "delete", 0)
    world.paths.birth.unlink()
    error = world.run("refused").error
    assert isinstance(error, DisagreementError) and error.code == "CHECKPOINT_DIVERGED", repr(error)


@SHAPES
@pytest.mark.parametrize("is_published", [True, False])
def test_checkpoint_and_birth_record_are_gone(new_world: Make, shape: Shape, is_published: bool) -> None:
    """Nothing says any more whether the query keeps state, or where topics begin."""
    if is_published:
        world = published(new_world, shape)
    else:
        world = new_world(shape=shape, batch_size=1)
        world.offer(0, ["good", "good"])
        world.kill(_stopped(world, "killed", Stop("verdicts")))
    refused_as_birth_gone(world)
    world.settle("discard")


def test_the_same_of_a_topic_that_the_spec_has_left_out(mixed: World) -> None:
    read_without_the_topic(mixed, 2)
    mixed.offer(0, ["good"])
    go(mixed, "q1")
    refused_as_birth_gone(mixed)
    repair_pipeline(mixed.project, "orders", dry_run=False)
    go(mixed, "q2")
    come_back(mixed)
