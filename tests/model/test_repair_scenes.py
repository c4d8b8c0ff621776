"""Repairs behind an accepted loss, beside a sleeper, after a change: what is read next is exactly what is pending."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model import fake_spark
from tests.model.beside import D1, KEPT, code_of, compact_from_outside, done, find_malformed, refresh
from tests.model.processes import Process, Stop, stops
from tests.model.world import NAME, Make, Shape, World, read_log, read_plain
from tidegate.core.errors import HeldError, SourceLostError
from tidegate.rework.replay.choose import Selection
from tidegate.runs.recovery.lost_rows import list_lost_rows
from tidegate.runs.reports.report import load_report
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.spec.models import MaintenanceSpec
from tidegate.views.status import project_status

_EVERY = 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 3
"""Every so many storage calls; in a sweep every one."""


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


# -- an older copy of the table, where work beside the runs has moved records between it and quarantine --


def copy_table(world: World) -> Path:
    return Path(shutil.copytree(world.paths.table, world.root / "copy"))


def put_back(world: World, copy: Path) -> None:
    shutil.rmtree(world.paths.table)
    shutil.copytree(copy, world.paths.table)


def check_each_once(world: World) -> None:
    found = read_log(world.paths.table) + read_log(world.paths.quarantine)
    assert found == Counter(list(world.offered)), {
        "lost": sorted(set(world.offered) - set(found)),
        "twice": sorted(one for one, count in found.items() if count > 1),
    }


WORKS = {"replay": "p", "refresh": "fresh", "backfill": "b"}


def move_records(world: World, how: str, patch: pytest.MonkeyPatch) -> None:
    """Of (f1-0, good) and (f2-0, malformed) one moves between table and quarantine."""
    if how == "replay":
        done(world.replay("p", Selection(), mend=True))
    elif how == "refresh":
        find_malformed(patch, good=("f2-0",))
        done(refresh(world, "fresh"))
    else:
        find_malformed(patch, "f1-0")
        done(world.backfill("b", D1, D1))
    check_each_once(world)


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after a run"])
@pytest.mark.parametrize("how", ["replay", "refresh", "backfill"])
def test_a_copy_of_the_table_from_before_records_moved_is_repaired_with_a_refresh(
    new_world: Make, patch: pytest.MonkeyPatch, how: str, goes_on: bool
) -> None:
    """With it they would be in neither place, or in both. All ways on that the error names are exact."""
    world = new_world("files")
    world.offer(0, ["good"])
    world.offer(0, ["malformed"])
    done(world.run("r1"))
    copy = copy_table(world)
    move_records(world, how, patch)
    if goes_on:
        world.offer(0, ["good"])
        done(world.run("r2"))
    newest = Path(shutil.copytree(world.paths.table, world.root / "newest"))
    put_back(world, copy)
    assert code_of(world.run("r3")) == "TABLE_BEHIND"
    put_back(world, newest)
    done(world.run("r4"))
    check_each_once(world)
    put_back(world, copy)
    assert code_of(world.run("r5")) == "TABLE_BEHIND"
    lacks = f"note what quarantine lacks: what {how} {WORKS[how]} moved"
    shown = repair_pipeline(world.project, NAME, dry_run=True)
    assert lacks in shown["actions"] and f"then `tidegate refresh {NAME}`" in shown["choices"][-1]
    process = world.repair()
    assert done(process)["choices"][0].startswith(f"`tidegate refresh {NAME}`")
    assert [one.path for one in list_lost_rows(world.paths)][-1] == f"what {how} {WORKS[how]} moved"
    done(world.refresh("fresh again"))
    assert not list_lost_rows(world.paths)
    done(world.run("r6"))
    check_each_once(world)


@pytest.mark.parametrize("how", ["replay", "refresh", "backfill"])
def test_a_table_that_was_deleted_after_records_moved_is_read_again(
    new_world: Make, patch: pytest.MonkeyPatch, how: str
) -> None:
    """What a replay or a backfill has put into quarantine is read again too, though no batch named its files."""
    world = new_world("files")
    world.offer(0, ["good"])
    world.offer(0, ["malformed"])
    done(world.run("r1"))
    if how == "replay":  # it is put back into quarantine
        done(world.replay("p", Selection()))
    else:
        move_records(world, how, patch)
    shutil.rmtree(world.paths.table)
    assert code_of(world.run("r2")) == "TABLE_GONE"
    done(world.repair())
    done(world.run("r3"))
    check_each_once(world)


def test_a_copy_from_before_maintenance_is_refused_and_can_be_kept(new_world: Make) -> None:
    world = new_world("files")
    for number in range(3):
        world.offer(0, ["good"])
        done(world.run(f"r{number}"))
    copy = copy_table(world)
    done(world.maintain("m", MaintenanceSpec(keep_versions="7 days", compact_below="32 MiB", source="keep")))
    put_back(world, copy)
    assert code_of(world.run("r3")) == "TABLE_BEHIND"
    done(world.repair())
    done(world.run("r4"))
    check_each_once(world)


@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_a_copy_from_before_a_refresh_that_began_a_query_is_not_repaired(
    new_world: Make, patch: pytest.MonkeyPatch, shape: Shape
) -> None:
    """Nor once the pipeline keeps no state any more."""
    patch.setattr(fake_spark, "STATE", [KEPT])
    world = new_world(shape)
    world.offer(0, ["good"])
    done(world.run("r0"))
    world.offer(0, ["good", "malformed"])
    done(world.run("r1"))
    copy = copy_table(world)
    world.mended |= {one for one, kind in world.offered.items() if kind == "malformed"}
    done(world.refresh("fresh"))
    check_each_once(world)
    put_back(world, copy)
    assert code_of(world.run("r2")) == "TABLE_BEHIND"
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr("tidegate.runs.restart.repair.query_keeps_state", lambda *_: False)
        assert code_of(world.repair()) == "NOT_IN_TABLE"
    done(world.reset(from_beginning=True))
    done(world.run("r3"))
    check_each_once(world)


# -- the first half of a swap is done, and the second cannot be --


HALF_DONE = {
    "replay": Stop("rename data/warehouse/orders/day"),
    "refresh": Stop("link data/warehouse/orders/_delta_log"),
}


@pytest.fixture
def begin(new_world: Make) -> Iterator[Callable[[str], World]]:
    """Makes pipelines with a record in the table and one in quarantine, which fits the schema once work begins."""
    patches = pytest.MonkeyPatch()

    def make_world(kind: str) -> World:
        patches.undo()
        world = new_world("files")
        world.offer(0, ["good"])
        world.offer(0, ["malformed"])
        done(world.run("r1"))
        if kind == "refresh":
            find_malformed(patches, good=("f2-0",))
        return world

    yield make_world
    patches.undo()


def start(world: World, kind: str, stop: Stop | None = None) -> Process:
    return world.replay("w", Selection(), mend=True, stop=stop) if kind == "replay" else refresh(world, "w", stop)


def leave_half_done(world: World, kind: str) -> str:
    """Its record has left quarantine, is in no table, and cannot come there; the code of the refusal."""
    world.kill(start(world, kind, HALF_DONE[kind]))
    assert not read_log(world.paths.quarantine)
    if kind == "refresh":
        compact_from_outside(world.paths.table)
        return "REPLACED_FILES_GONE"
    for file in (world.paths.state / "replays").rglob("rows/**/*.parquet"):
        file.write_bytes(file.read_bytes()[:-3] + b"xxx")
    return "STAGED_FILE_DAMAGED"


Begin = Callable[[str], World]


@pytest.mark.parametrize("kind", ["replay", "refresh"])
def test_a_half_done_swap_that_cannot_be_finished_is_given_up(begin: Begin, kind: str) -> None:
    """Started again under the same run id, it is done whole."""
    world = begin(kind)
    code = leave_half_done(world, kind)
    assert code_of(world.run("r2")) == code
    process = world.repair()
    done(process)
    assert process.value["code"] == code and f"abandon {kind} w" in process.value["actions"][0]
    assert read_log(world.paths.quarantine) == read_plain(world.paths.quarantine) == Counter(["f2-0"])
    check_each_once(world)
    done(world.run("r3"))
    check_each_once(world)
    done(start(world, kind))
    assert not read_log(world.paths.quarantine) and not read_plain(world.paths.quarantine)
    check_each_once(world)


@pytest.mark.parametrize("kind", ["replay", "refresh"])
def test_a_half_done_swap_is_given_up_before_a_new_checkpoint_begins(begin: Begin, kind: str) -> None:
    world = begin(kind)
    leave_half_done(world, kind)
    done(world.reset())
    done(world.run("r2"))
    check_each_once(world)
    assert world.repair().value["code"] is None


@pytest.mark.parametrize("kind", ["replay", "refresh"])
def test_a_table_that_is_gone_when_a_swap_is_half_done(begin: Begin, kind: str) -> None:
    """No new table begins with the rows of this work alone."""
    world = begin(kind)
    world.kill(start(world, kind, HALF_DONE[kind]))
    shutil.rmtree(world.paths.table)
    assert code_of(world.run("r2")) == "TABLE_GONE"
    done(world.repair())
    done(world.run("r3"))
    check_each_once(world)


@pytest.mark.parametrize("kind", ["replay", "refresh"])
def test_a_repair_that_is_killed_while_it_gives_up_is_completed(begin: Begin, kind: str) -> None:
    world = begin(kind)
    leave_half_done(world, kind)
    stopped = 0
    for stop in stops(3, killed=True):
        world = begin(kind)
        leave_half_done(world, kind)
        process = world.repair(stop=stop)
        if process.state != "stopped":
            break
        stopped += 1
        world.kill(process)
        if world.run("r2").error is not None:
            done(world.repair())
            done(world.run("r3"))
        check_each_once(world)
        assert world.repair().value["code"] is None
        done(start(world, kind))
        check_each_once(world)
    assert stopped > 3


@pytest.mark.parametrize("kind", ["replay", "refresh"])
def test_work_that_slept_until_it_was_given_up_changes_nothing(begin: Begin, kind: str) -> None:
    calls = start(begin(kind), kind).calls
    first = next(n for n, call in enumerate(calls) if call.startswith("link data/state/orders/intents"))
    slept = 0
    for step in range(first + 1, len(calls), _EVERY):
        world = begin(kind)
        process = start(world, kind, Stop(nth=step))
        if process.state != "stopped" or not list(world.paths.intents.glob("*.json")):
            continue
        slept += 1
        world.freeze(process)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                "tidegate.runs.restart.repair._finish_begun", lambda *_: None
            )  # as if it could not be finished
            done(world.reset())
        world.thaw(0)
        done(world.run("r2"))
        check_each_once(world)
    assert slept > 3


def test_a_refresh_that_begins_a_query_is_given_up_too(new_world: Make, patch: pytest.MonkeyPatch) -> None:
    """The query that was to be replaced lives on, with its state."""
    patch.setattr(fake_spark, "STATE", [KEPT])
    world = new_world("files")
    world.offer(0, ["good", "malformed"])
    done(world.run("r0"))
    world.offer(0, ["good"])
    done(world.run("r1"))
    world.mended |= {one for one, kind in world.offered.items() if kind == "malformed"}
    world.kill(world.refresh("fresh", stop=Stop("link data/warehouse/orders/_delta_log")))
    compact_from_outside(world.paths.table)
    assert code_of(world.run("r2")) == "REPLACED_FILES_GONE"
    process = world.repair()
    done(process)
    assert "abandon refresh fresh" in process.value["actions"][0]
    check_each_once(world)
    world.offer(0, ["good"])
    done(world.run("r3"))
    check_each_once(world)
    assert world.repair().value["code"] is None


# -- quarantine --


@pytest.mark.parametrize("way_on", ["restore", "go on", "rebuild"])
@pytest.mark.parametrize("how", ["deleted", "older"])
def test_a_quarantine_that_was_deleted_or_restored_is_missed(new_world: Make, how: str, way_on: str) -> None:
    world = new_world("files")
    world.offer(0, ["good", "malformed"])
    done(world.run("r0"))
    older = shutil.copytree(world.paths.quarantine, world.root / "older")
    world.offer(0, ["good", "malformed"])
    done(world.run("r1"))
    newest = shutil.copytree(world.paths.quarantine, world.root / "newest")
    shutil.rmtree(world.paths.quarantine)
    if how == "older":
        shutil.copytree(older, world.paths.quarantine)
    world.offer(0, ["good", "malformed"])
    assert code_of(world.run("r2")) == code_of(world.replay("p", Selection())) == "QUARANTINE_BEHIND"
    lacking = {"f2-1"} | ({"f1-1"} if how == "deleted" else set())
    if way_on == "restore":
        shutil.rmtree(world.paths.quarantine, ignore_errors=True)
        shutil.copytree(newest, world.paths.quarantine)
    elif way_on == "rebuild":
        done(world.reset(from_beginning=True))
    else:
        process = world.repair()
        done(process)
        assert process.value["code"] == "QUARANTINE_BEHIND"
        lost = ["records of run r1", "records of run r0"] if how == "deleted" else ["records of run r1"]
        assert process.value["actions"] == [f"note what quarantine lacks: {', '.join(lost)}"]
        assert {one.path: one.rows for one in list_lost_rows(world.paths)} == dict.fromkeys(lost, 1)
        (row,) = project_status(world.project, NAME)
        (told,) = [one["message"] for one in row["trouble"] if one["kind"] == "lost"]
        assert "restored from an older copy and lacks" in told and all(one in told for one in lost)
    done(world.run("r3"))
    found = read_log(world.paths.table) + read_log(world.paths.quarantine)
    assert found == Counter([one for one in world.offered if way_on != "go on" or one not in lacking])
    if way_on == "go on":
        done(world.refresh("again"))
        check_each_once(world)
        assert not list_lost_rows(world.paths)
    assert world.repair().value["code"] is None
    done(world.run("r4"))
