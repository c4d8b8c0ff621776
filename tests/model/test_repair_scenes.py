"""Repairs behind an accepted loss, beside a sleeper, after a change: what is read next is exactly what is pending."""

from __future__ import annotations

import pytest

from tests.model.processes import Stop
from tests.model.world import NAME, Make, Shape, World, read_log
from tidegate.errors import HeldError, SourceLostError
from tidegate.operate.status import project_status
from tidegate.reports.report import load_report


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes pipelines in memory, each with a published increment (k0-0, k0-1 or f1-0, f1-1)."""

    def make_world(shape: Shape) -> World:
        world = new_world(shape)
        world.offer(0, ["good", "good"])
        world.offer(1, ["good"])
        assert world.run("r1").error is None
        world.runs = 1
        return world

    return make_world


def make_topic_anew(world: World, kinds: list[str]) -> None:
    """The topic is deleted, and created again under its name, with these records and three of partition 1."""
    world.kafka.topic_id, world.kafka.begin = "id-2", {0: 0, 1: 0}
    world.kafka.sent = {0: [{"id": f"new-{n}", "kind": kind} for n, kind in enumerate(kinds)], 1: []}
    world.kafka.sent[1] = [{"id": f"other-{n}", "kind": "poor"} for n in range(3)]


def repair(world: World) -> None:
    """A repair for a change that needs one: the mode that the birth record names is not the spec's."""
    birth = world.paths.pinned().birth
    birth.write_text(birth.read_text().replace('"append"', '"complete"'))
    assert world.repair().error is None


def test_records_of_a_topic_made_anew_are_all_read_after_an_accepted_loss(make: Make) -> None:
    world = make("kafka")
    make_topic_anew(world, ["poor"] * 6)
    assert isinstance(world.run("r2", accept="made again").error, HeldError)
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "good"} for n in range(6, 20)]
    repair(world)
    assert world.run("r3").error is None
    owed = {f"new-{n}" for n in range(20)} | {f"other-{n}" for n in range(3)}
    assert owed <= set(read_log(world.paths.table))


def test_records_are_read_that_took_the_place_of_cut_ones(make: Make) -> None:
    world = make("kafka")
    world.offer(0, ["good", "good"])
    assert world.run("r2").error is None
    world.kafka.sent[0] = [*world.kafka.sent[0][:2], {"id": "new-2", "kind": "poor"}]
    world.run("r3", accept="the broker lost its disk")  # goes on at 3
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "poor"} for n in range(3, 7)]
    assert isinstance(world.run("r4").error, HeldError)
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "good"} for n in range(7, 20)]
    repair(world)
    assert world.run("r5").error is None
    assert {f"new-{n}" for n in range(3, 20)} <= set(read_log(world.paths.table))


def test_what_was_staged_before_the_loss_is_named_when_it_cannot_be_read_again(make: Make) -> None:
    world = make("kafka")
    world.offer(0, ["poor", "poor"])
    world.kill(world.run("r2", stop=Stop("verdicts")))  # staged, not judged
    make_topic_anew(world, ["poor"] * 8)
    assert isinstance(world.run("r3", accept="made again").error, HeldError)
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "good"} for n in range(8, 30)]
    repair(world)
    assert isinstance(world.run("r4").error, SourceLostError)
    assert world.run("r4", accept="two records of the old topic are gone").error is None
    assert {f"new-{n}" for n in range(30)} <= set(read_log(world.paths.table))


def test_a_repair_that_slept_takes_no_note_of_a_later_publish_away(make: Make) -> None:
    for where in ("published/1.json", "published/0.json"):
        world = make("kafka")
        birth = world.paths.pinned().birth
        birth.write_text(birth.read_text().replace('"append"', '"complete"'))
        process = world.repair(stop=Stop(where))
        if process.state != "stopped":
            continue
        world.freeze(process)
        world.offer(1, ["good"])
        assert world.run("r2").error is None
        world.thaw(0)
        world.offer(1, ["good"])
        assert world.run("r3").error is None
        world.settle("discard")


def test_a_retry_keeps_what_the_report_named_once(make: Make) -> None:
    world = make("files")
    (world.root / "data" / "inbox" / "1.csv").unlink()
    world.offer(0, ["good"])
    world.kill(world.run("r2", stop=Stop("offsets/")))
    assert world.run("r2").error is None
    report = load_report(world.paths, "r2")
    assert report is not None and report.sources["orders"]["vanished"] == ["data/inbox/1.csv"]


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_a_repair_that_slept_takes_no_later_verdict_of_the_run_id_away(make: Make, shape: Shape) -> None:
    world = make(shape)
    world.offer(0, ["poor"])
    assert isinstance(world.run("r2").error, HeldError)
    birth = world.paths.pinned().birth
    birth.write_text(birth.read_text().replace('"append"', '"complete"'))
    world.freeze(world.repair(stop=Stop("verdict-r2")))
    assert world.repair().error is None
    assert isinstance(world.run("r2").error, HeldError)
    world.thaw(0)
    world.offer(1, ["good"] * 4)
    assert isinstance(world.run("r3").error, HeldError)
    world.check()


def test_files_that_were_changed_before_they_are_read_again_are_named(make: Make) -> None:
    world = make("files")
    world.offer(0, ["poor", "poor"])
    assert isinstance(world.run("r2").error, HeldError)
    file = world.root / "data" / "inbox" / f"{world.files}.csv"
    file.write_text("f9-9,good\n")
    repair(world)
    assert world.run("r3").error is None
    report = load_report(world.paths, "r3")
    assert report is not None and any(f"read as they are now: data/inbox/{file.name}" in note for note in report.notes)


def test_files_lost_by_a_repair_that_was_killed_are_named_by_a_later_run(make: Make) -> None:
    world = make("files")
    world.offer(0, ["poor"])
    assert isinstance(world.run("r2").error, HeldError)
    file = world.root / "data" / "inbox" / f"{world.files}.csv"
    text = file.read_text()
    file.unlink()
    for link in world.paths.intake("orders").rglob("*.csv"):
        if link.read_text() == text:
            link.unlink()
    birth = world.paths.pinned().birth
    birth.write_text(birth.read_text().replace('"append"', '"complete"'))
    world.kill(world.repair(stop=Stop("birth")))
    for number in range(3, 6):
        world.run(f"r{number}")
        world.repair()
    told = [load_report(world.paths, f"r{number}") for number in range(3, 6)]
    assert any(report is not None and file.name in str(report.sources) for report in told)


def test_a_change_that_was_named_is_not_open_once_the_file_was_read_again(make: Make) -> None:
    world = make("files")
    world.offer(0, ["poor"])
    world.kill(world.run("r2", stop=Stop("verdicts")))
    file = world.root / "data" / "inbox" / f"{world.files}.csv"
    with file.open("a") as handle:
        handle.write(f"f{world.files}-1,poor\n")
    assert isinstance(world.run("r3").error, HeldError)
    (row,) = project_status(world.project, NAME)
    assert row["changed"]
    repair(world)
    world.offer(0, ["good"] * 4)
    assert world.run("r4").error is None
    (row,) = project_status(world.project, NAME)
    assert row["changed"] == []
