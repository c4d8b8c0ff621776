"""A held increment that is read again: stopped anywhere, killed or frozen, each record counts once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.fake_kafka import FakeBrokers
from tests.model.processes import Stop, stops
from tests.model.world import NAME, WHOLE_FILE, Make, Shape, World, read_log, read_plain
from tidegate.core.errors import HeldError, SourceLostError, TidegateError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Decision, Ruling, load_verdict, save_decision, save_verdict
from tidegate.runs.restart.recorded import look_at_reread
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status

"""Each so many calls the command is stopped; a sweep over seeds stops it at others (tests/model/machine.py)."""


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes pipelines in memory, each with a published increment, and one that is held under r2."""

    def make_world(shape: Shape) -> World:
        world = new_world(shape)
        world.offer(0, ["good", "good"])
        assert world.run("r1").error is None
        world.offer(0, ["poor", "malformed"])
        world.offer(1, ["poor"])
        assert isinstance(world.run("r2").error, HeldError)
        return world

    return make_world


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_with_a_corrected_rule_everything_is_published_by_the_same_run(make: Make, shape: Shape) -> None:
    world = make(shape)
    reads = world.reads
    world.offer(1, ["good", "good", "good"])  # what came since tips the scales
    process = world.decide("reread", "r2")
    assert process.error is None and process.value["outcome"] == "published"
    assert process.value["mode"] == "reread" and process.value["decision"]["decision"] == "reread"
    assert (process.value["rows"]["read"], world.reads - reads) == (6, 6)
    assert process.value["rows"]["malformed"] == 1
    world.check_all()
    again = world.decide("reread", "r2")
    assert again.error is None and again.value == process.value, "deciding the same again changes nothing"
    world.settle("discard")


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_what_is_held_again_can_be_decided_again(make: Make, shape: Shape) -> None:
    world = make(shape)
    assert isinstance(world.decide("reread", "r2").error, HeldError)
    assert isinstance(world.run("r3").error, HeldError)
    assert isinstance(world.decide("reread", "r2").error, HeldError)
    assert world.decide("discard", "r2").error is None
    world.settle("release")


@pytest.mark.parametrize("shape", ["kafka", "files"])
@pytest.mark.parametrize("ruling", ["release", "discard"])
@pytest.mark.parametrize("held_again", [False, True])
def test_what_was_released_or_discarded_is_decided_already(
    make: Make, shape: Shape, ruling: str, held_again: bool
) -> None:
    world = make(shape)
    if held_again:
        assert isinstance(world.decide("reread", "r2").error, HeldError)
    assert world.decide(ruling, "r2").error is None
    with pytest.raises(UsageError) as by_dry_run:
        look_at_reread(world.project, NAME, "r2")
    for refused in (world.decide("reread", "r2").error, by_dry_run.value):
        assert isinstance(refused, UsageError) and (refused.code, refused.exit_code) == ("DECIDED_ALREADY", 64)
        assert f"decided to {ruling} it at " in refused.message and refused.message.endswith(
            ", and that decision is final"
        )
        assert refused.where == f"run r2 of pipeline {NAME}"
    world.settle("discard")


def test_of_two_decisions_the_first_is_told_to_the_second_person(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second person was asleep between looking and writing."""
    world = make("files")

    def too_late(paths: PipelinePaths, decision: Decision) -> None:
        save_decision(paths, replace(decision, decision="discard", who="bob@host"))
        save_decision(paths, decision)

    monkeypatch.setattr("tidegate.runs.restart.recorded.save_decision", too_late)
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, UsageError) and refused.code == "DECIDED_ALREADY"
    assert "bob@host already decided to discard it" in refused.message


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_a_dry_run_shows_what_would_be_read_and_decides_nothing(make: Make, shape: Shape) -> None:
    world = make(shape)
    before = sorted(str(path) for path in world.paths.state.rglob("*"))
    shown = look_at_reread(world.project, NAME, "r2")
    assert (shown["rows"], shown["decided"], shown["hindrance"]) == (3, None, None)
    [source] = shown["sources"].values()
    if shape == "files":
        assert [Path(file).name for file in source["files"]] == ["2.csv", "3.csv"]
    else:
        assert source["offsets"] == {"t": {"0": [2, 4], "1": [0, 1]}}
        world.retain_from(0, 3)
        assert look_at_reread(world.project, NAME, "r2")["hindrance"]["code"] == "REREAD_LOST"
    assert sorted(str(path) for path in world.paths.state.rglob("*")) == before
    with pytest.raises(UsageError, match="run r1 of orders holds no increment"):
        look_at_reread(world.project, NAME, "r1")
    world.settle("discard")


@pytest.mark.parametrize("fate", ["killed", "frozen"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_stopped_anywhere(make: Make, shape: Shape, fate: str) -> None:
    stopped = 0
    for stop in stops(13, killed=fate == "killed"):
        world = make(shape)
        process = world.decide("reread", "r2", stop=stop)
        if process.state != "stopped":
            break
        stopped += 1
        world.check()
        if fate == "killed":
            world.kill(process)
        else:
            world.freeze(process)
        world.offer(1, ["good"])
        world.run(world.new_run_id("x"))
        world.settle("discard")
    assert stopped > 5


def test_a_stop_behind_the_decision_is_told_and_the_next_run_goes_on(make: Make) -> None:
    world = make("files")
    world.kill(world.decide("reread", "r2", stop=Stop("set_aside")))
    (row,) = project_status(world.project, NAME)
    assert [(one["decision"], one["run_id"]) for one in row["decided"]] == [("reread", "r2")]
    assert row["errors"] == [] and [one["kind"] for one in row["trouble"]] == ["undone"]
    world.offer(1, ["good", "good", "good"])
    process = world.run("r3")
    assert process.error is None and process.value["rows"]["published"] == 5
    report = load_report(world.paths, "r2")
    assert report is not None and (report.outcome, report.mode) == (None, "reread")
    assert report.decision is not None and report.rows["read"] == 0
    world.settle("discard")


def test_nothing_is_decided_when_the_records_are_gone(make: Make) -> None:
    world = make("kafka")
    world.retain_from(0, 3)
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, SourceLostError) and refused.code == "REREAD_LOST"
    assert world.decide("discard", "r2").error is None
    world.settle("discard")


def test_files_that_were_deleted_are_read_again_from_their_links(make: Make) -> None:
    world = make("files")
    for file in (world.root / "data" / "inbox").iterdir():
        file.unlink()
    world.offer(1, ["good", "good", "good"])
    assert world.decide("reread", "r2").error is None
    world.check_all()


def test_files_of_which_nothing_is_left(make: Make) -> None:
    world = make("files")
    for folder in (world.root / "data" / "inbox", world.paths.intake("orders")):
        for file in folder.rglob("*.csv"):
            file.unlink()
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, SourceLostError) and "2.csv is gone" in refused.message
    assert world.decide("release", "r2").error is None, "what is staged is still there"


def test_only_what_is_held_is_read_again(make: Make) -> None:
    world = make("files")
    for run_id in ("r1", "nosuch"):
        refused = world.decide("reread", run_id).error
        assert isinstance(refused, UsageError) and refused.code == "NOT_HELD"
    world.settle("discard")


# -- beside accepted losses, sleepers and changed files --


def with_nothing_held(make: Make, shape: Shape) -> World:
    world = make(shape)
    assert world.decide("discard", "r2").error is None
    world.runs = 2
    return world


def make_topic_anew(world: World, kinds: list[str]) -> None:
    """The topic is deleted, and created again under its name, with these records and three of partition 1."""
    world.kafka.topic_id, world.kafka.begin = "id-2", {0: 0, 1: 0}
    world.kafka.sent = {0: [{"id": f"new-{n}", "kind": kind} for n, kind in enumerate(kinds)], 1: []}
    world.kafka.sent[1] = [{"id": f"other-{n}", "kind": "poor"} for n in range(3)]


def test_behind_a_loss_by_retention_that_was_accepted(make: Make) -> None:
    world = with_nothing_held(make, "kafka")
    world.offer(0, ["good", "good"])
    world.retain_from(0, len(world.kafka.sent[0]))
    world.offer(0, ["poor", "poor"])
    assert isinstance(world.run("r3", accept="gone").error, HeldError)
    world.offer(0, ["good"] * 4)
    assert world.decide("reread", "r3").error is None
    world.settle("discard")


def test_behind_a_topic_made_anew_that_was_accepted(make: Make) -> None:
    world = with_nothing_held(make, "kafka")
    make_topic_anew(world, ["poor"] * 6)
    assert isinstance(world.run("r3", accept="made again").error, HeldError)
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "good"} for n in range(6, 20)]
    assert world.decide("reread", "r3").error is None
    owed = {f"new-{n}" for n in range(20)} | {f"other-{n}" for n in range(3)}
    assert owed <= set(read_log(world.paths.table))


def test_records_that_took_the_place_of_cut_ones(make: Make) -> None:
    world = with_nothing_held(make, "kafka")  # the table has partition 0 up to 4
    world.kafka.sent[0] = [*world.kafka.sent[0][:2], {"id": "new-2", "kind": "poor"}]
    world.run("r3", accept="the broker lost its disk")  # goes on at 3
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "poor"} for n in range(3, 7)]
    assert isinstance(world.run("r4").error, HeldError)
    world.kafka.sent[0] += [{"id": f"new-{n}", "kind": "good"} for n in range(7, 20)]
    assert world.decide("reread", "r4").error is None
    assert {f"new-{n}" for n in range(3, 20)} <= set(read_log(world.paths.table))


@pytest.mark.parametrize("loss", ["retention", "topic made again"])
def test_what_an_earlier_query_staged_is_not_thrown_away(make: Make, loss: str) -> None:
    world = with_nothing_held(make, "kafka")
    world.offer(0, ["poor", "poor"])
    staged = {f"k0-{n}" for n in (4, 5)}
    world.kill(world.run("r3", stop=Stop("verdicts")))  # staged, not judged
    if loss == "retention":
        world.offer(1, ["good"])
        world.retain_from(1, len(world.kafka.sent[1]))
    else:
        make_topic_anew(world, ["poor"] * 8)
    assert isinstance(world.run("r4", accept="gone").error, HeldError)
    refused = world.decide("reread", "r4").error
    assert isinstance(refused, SourceLostError) and refused.code == "REREAD_LOST"
    assert "a loss was accepted in the middle of it" in refused.message
    assert world.decide("release", "r4").error is None
    assert staged <= set(read_log(world.paths.table))


def test_another_cluster_is_not_taken_for_a_loss(make: Make) -> None:
    world = make("kafka")
    world.patch.setattr(FakeBrokers, "cluster_id", lambda self: "cluster-2")
    world.kafka.begin[0] = 3
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, TidegateError) and refused.code == "KAFKA_CLUSTER_CHANGED"


def test_what_a_report_named_once_stays_in_it(make: Make) -> None:
    world = with_nothing_held(make, "files")
    (world.root / "data" / "inbox" / "1.csv").unlink()
    world.offer(0, ["poor"])
    assert isinstance(world.run("r3").error, HeldError)
    world.offer(0, ["good"] * 4)
    assert world.decide("reread", "r3").error is None
    report = load_report(world.paths, "r3")
    assert report is not None and report.sources["orders"]["vanished"] == ["data/inbox/1.csv"]


def test_files_lost_by_one_that_was_killed_are_named(make: Make) -> None:
    world = make("files")
    world.kill(world.decide("reread", "r2", stop=Stop("decisions/r2.json", after=True)))
    (world.root / "data" / "inbox" / "2.csv").unlink()
    links = [link for link in world.paths.intake("orders").rglob("*.csv") if "f2-" in link.read_text()]
    assert links
    for link in links:
        link.unlink()
    world.kill(world.run("r3", stop=Stop("birth")))
    world.run("r3")
    world.run("r4")
    assert any("2.csv" in report.read_text() for report in world.paths.runs.glob("r*.json"))


def test_plan_tells_what_stands_in_the_way_of_a_recorded_one(make: Make) -> None:
    world = make("files")
    world.kill(world.decide("reread", "r2", stop=Stop("decisions/r2.json", after=True)))
    world.paths.table.rename(world.paths.table.with_name("gone"))
    refused = world.run("r3").error
    assert isinstance(refused, TidegateError) and refused.code == "TABLE_GONE"
    assert [one["code"] for one in plan_pipeline(world.project, NAME)["errors"]] == ["TABLE_GONE"]


@pytest.mark.parametrize("where", ["verdict-r2", "verdicts/r2"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_a_sleeper_takes_no_later_verdict_away(make: Make, shape: Shape, where: str) -> None:
    """The first command sleeps, the person repeats it, and the increment is held again."""
    world = make(shape)
    world.freeze(world.decide("reread", "r2", stop=Stop(where)))
    assert isinstance(world.decide("reread", "r2").error, HeldError)
    world.thaw(0)
    world.offer(1, ["good"] * 4)
    assert isinstance(world.run("r3").error, HeldError)
    world.check()


@pytest.mark.parametrize("fate", ["woke", "woke and was killed"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_a_sleeper_takes_no_later_decision_away(make: Make, shape: Shape, fate: str) -> None:
    """The first command sleeps at its end; it is repeated, the increment is held again, and then it is released."""
    world = make(shape)
    process = world.decide("reread", "r2", stop=Stop("taken"))
    assert process.state == "stopped" and "decisions/.r2.json" in process.calls[-1]
    world.freeze(process)
    assert isinstance(world.decide("reread", "r2").error, HeldError)
    world.kill(world.decide("release", "r2", stop=Stop("decisions/r2.json", after=True)))
    world.thaw(0, stop=Stop("taken", after=True) if fate == "woke and was killed" else None)
    if fate == "woke and was killed":
        world.kill(process)
    assert process.state != "stopped"
    done = world.run("r3")
    assert done.error is None and not list(world.paths.verdicts.glob("*.json"))
    world.offer(1, ["good"] * 4)
    assert world.run("r4").error is None
    world.check()


@pytest.mark.parametrize("where", ["published/1.json", "published/0.json"])
@pytest.mark.parametrize("other", ["run", "reread"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_a_sleeper_takes_no_note_of_a_publish_back(make: Make, shape: Shape, other: str, where: str) -> None:
    world = make(shape)
    world.offer(1, ["good"] * 4)
    process = world.decide("reread", "r2", stop=Stop(where))
    assert process.state == "stopped"
    world.freeze(process)
    done = world.run("r3") if other == "run" else world.decide("reread", "r2")
    assert done.error is None and done.value["outcome"] == "published"
    world.thaw(0)
    world.offer(1, ["good"])
    assert world.run("r4").error is None
    world.settle("discard")


def rewrite_in_place(world: World, change: str) -> None:
    """Change 2.csv, of which f2-0 and f2-1 were read; the intake's link is to the same inode."""
    file = world.root / "data" / "inbox" / "2.csv"
    held = file.read_text()
    lines = held.splitlines(keepends=True)
    text = {
        "rewritten": held.replace("f2-", "f9-"),
        "rewritten, and longer": "f9-0,good\n" * 4,
        "shrunk": lines[0],
        "emptied": "",
    }[change]
    before = file.stat().st_ino
    file.write_text(text)
    assert file.stat().st_ino == before


@pytest.mark.parametrize("change", ["rewritten", "rewritten, and longer", "shrunk", "emptied"])
def test_a_file_that_no_longer_holds_what_was_read_is_not_read_again(make: Make, change: str) -> None:
    world = make("files")
    rewrite_in_place(world, change)
    hindrance = look_at_reread(world.project, NAME, "r2")["hindrance"]
    assert hindrance is not None and hindrance["code"] == "REREAD_LOST"
    reads = world.reads
    refused = world.decide("reread", "r2").error
    assert isinstance(refused, SourceLostError) and (refused.code, refused.exit_code) == ("REREAD_LOST", 66)
    size = (world.root / "data" / "inbox" / "2.csv").stat().st_size
    assert "2.csv " in refused.message and f"bytes then, {size} now" in refused.message
    assert "2 rows of the 3 records" in str(refused.where) and "tidegate release" in str(refused.fix)
    assert world.reads == reads and not list(world.paths.decisions.glob("*.json"))
    assert world.decide("release", "r2").error is None
    assert {"f2-0", "f3-0"} <= set(read_log(world.paths.table)), "what is staged is still there"


@pytest.mark.parametrize("change", ["appended", "touched", "replaced"])
def test_a_file_that_still_holds_what_was_read_is_read_again(make: Make, change: str) -> None:
    world = make("files")
    file = world.root / "data" / "inbox" / "2.csv"
    if change == "appended":
        with file.open("a") as handle:
            handle.write("f2-2,good\n")
        world.offered |= {"f2-2": "good"}
    elif change == "touched":
        os.utime(file, (0, 0))
    else:  # under its name stands another file now, the link has what was read
        other = file.with_name(".other")
        other.write_text("f9-0,good\n")
        other.replace(file)
    world.offer(1, ["good"] * 4)
    assert look_at_reread(world.project, NAME, "r2")["hindrance"] is None
    assert world.decide("reread", "r2").error is None
    assert "f2-0" in read_log(world.paths.table)


def test_a_file_rewritten_between_decision_and_reading_is_named_with_what_became_of_its_records(make: Make) -> None:
    world = make("files")
    world.kill(world.decide("reread", "r2", stop=Stop("decisions/r2.json", after=True)))
    rewrite_in_place(world, "rewritten")
    world.run("r3")
    report = load_report(world.paths, "r2")
    assert report is not None
    [note] = [note for note in report.notes if "2.csv" in note and "neither table nor quarantine" in note]
    assert str(world.paths.set_aside) in note
    assert list(world.paths.set_aside.rglob("*.parquet"))


def test_two_at_once_on_one_increment(make: Make) -> None:
    """A run slept over its audit: two verdicts on the same batches, and each is to be read again."""
    world = make("files")
    verdict = load_verdict(world.paths, "r2")
    assert verdict is not None
    save_verdict(world.paths, replace(verdict, run_id="r1z"))
    for run_id, at in (("r2", "2026-01-01"), ("r1z", "2026-01-02")):
        save_decision(world.paths, Decision(run_id, "reread", "ann", "", at, verdict.batches))
    world.offer(1, ["good"] * 4)
    world.holds.clear()
    assert world.run("r3").error is None
    assert list(world.paths.decisions.glob("*.json")) == []
    world.settle("discard")


@pytest.mark.parametrize("second", ["discard", "release"])
def test_of_two_decisions_the_first_counts(make: Make, second: Ruling) -> None:
    world = make("files")
    verdict = load_verdict(world.paths, "r2")
    assert verdict is not None
    save_verdict(world.paths, replace(verdict, run_id="r1z"))
    save_decision(world.paths, Decision("r1z", "reread", "ann", "", "2026-01-01", verdict.batches))
    save_decision(world.paths, Decision("r2", second, "bob", "", "2026-01-02", verdict.batches))
    world.offer(1, ["good"] * 4)
    world.holds.clear()
    assert world.run("r3").error is None
    assert {"f2-0", "f3-0"} <= set(read_log(world.paths.table))
    world.settle("discard")


def test_a_change_that_was_named_is_not_open_once_the_file_was_read_again(make: Make) -> None:
    world = with_nothing_held(make, "files")
    world.offer(0, ["poor"])
    world.kill(world.run("r3", stop=Stop("verdicts")))
    file = world.root / "data" / "inbox" / f"{world.files}.csv"
    with file.open("a") as handle:
        handle.write(f"f{world.files}-1,poor\n")
    world.offered |= {f"f{world.files}-1": "poor"}
    assert isinstance(world.run("r4").error, HeldError)
    (row,) = project_status(world.project, NAME)
    assert row["changed"]
    world.offer(0, ["good"] * 4)
    assert world.decide("reread", "r4").error is None
    world.check_all()
    (row,) = project_status(world.project, NAME)
    assert row["changed"] == []


# -- a file that is in quarantine whole --


def with_a_whole_file(make: Make) -> World:
    """Increment r3 is held, and one of its files is in quarantine whole."""
    world = with_nothing_held(make, "files")
    world.offer(0, ["poor"])
    world.broken = world.files + 1
    world.offer(1, ["good"] * 6)
    assert isinstance(world.run("r3").error, HeldError)
    world.runs = 3
    assert read_log(world.paths.quarantine)[WHOLE_FILE] == 0, "nobody has decided yet"
    assert len(list(world.paths.unreadable.glob("*.csv"))) == 1
    return world


@pytest.mark.parametrize("is_there", [True, False])
def test_a_whole_file_that_can_be_read_by_now_is_read_again(make: Make, is_there: bool) -> None:
    world = with_a_whole_file(make)
    if not is_there:  # then what is kept of it is read
        (world.root / "data" / "inbox" / f"{world.broken}.csv").unlink()
    world.is_readable = True
    process = world.decide("reread", "r3")
    assert process.error is None and process.value["rows"]["published"] == 7
    assert process.value["rows"]["malformed"] == 0
    assert WHOLE_FILE not in read_plain(world.paths.quarantine) and list(world.paths.unreadable.iterdir()) == []
    world.check_all()
    assert world.paths.state.is_dir() and not list(world.paths.intake("orders").rglob(".*")), "no copy is left"
    world.settle("discard")


def test_a_whole_file_that_still_cannot_be_read_is_quarantined_once(make: Make) -> None:
    world = with_a_whole_file(make)
    world.offer(0, ["good"])
    process = world.decide("reread", "r3")
    assert process.error is None and process.value["rows"]["malformed"] == 1
    assert read_log(world.paths.quarantine)[WHOLE_FILE] == 1
    assert len(list(world.paths.unreadable.glob("*.csv"))) == 1, "kept once"
    world.check_all()
    world.settle("discard")


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_stopped_anywhere_with_a_whole_file(make: Make, fate: str) -> None:
    stopped = 0
    for stop in stops(53, killed=fate == "killed"):
        world = with_a_whole_file(make)
        world.is_readable = True
        process = world.decide("reread", "r3", stop=stop)
        if process.state != "stopped":
            break
        stopped += 1
        (world.kill if fate == "killed" else world.freeze)(process)
        world.run(world.new_run_id("x"))
        world.settle("discard")
    assert stopped > 2


@pytest.mark.parametrize("where", ["transaction ledger", ".copy", "unreadable/"])
def test_stopped_while_a_whole_file_is_put_back(make: Make, where: str) -> None:
    for nth in range(1, 30):
        world = with_a_whole_file(make)
        (world.root / "data" / "inbox" / f"{world.broken}.csv").unlink()
        world.is_readable = True
        process = world.decide("reread", "r3", stop=Stop(where, nth))
        if process.state != "stopped":
            break
        world.kill(process)
        world.decide("reread", "r3")
        world.run(world.new_run_id())
        assert WHOLE_FILE not in read_plain(world.paths.quarantine)
        assert {f"f{world.broken}-{n}" for n in range(6)} <= set(read_log(world.paths.table))
        world.settle("discard")
    assert nth > 1


def test_a_rebuild_names_first_the_files_that_it_will_not_read_as_they_were(make: Make) -> None:
    """What the dry run does not name, a person learns when the table is gone."""
    world = make("files")
    inbox = world.root / "data" / "inbox"

    def look() -> list[str]:
        return repair_pipeline(world.project, NAME, dry_run=True, rebuild=True)["next_run"]

    before = look()
    assert before == ["begins a new checkpoint", "reads 3 files that the table's log does not hold"]
    for folder in (inbox, world.paths.intake("orders")):
        for file in folder.rglob("*1.csv"):
            file.unlink()
    rewrite_in_place(world, "emptied")
    _, read, gone, changed = look()
    assert read == "reads 2 files that the table's log does not hold"
    assert gone.startswith("does not find 1 file of those that were read: ")
    assert gone.endswith("data/inbox/1.csv; 2 rows of the table came of that")
    assert "data/inbox/2.csv" in changed and "bytes then, 0 now" in changed
