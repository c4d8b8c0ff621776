"""A table that goes back to an earlier version: stopped anywhere, killed or frozen, each record counts once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.model.processes import Stop, stops
from tests.model.world import NAME, Make, Shape, World, newest_version, read_log, read_plain, read_version
from tests.support.outputs import check_output
from tests.support.page_outputs import shown
from tidegate.cli.commands import app
from tidegate.cli.show_repairs import show_repair, show_rollback
from tidegate.core.errors import DisagreementError, HeldError, SourceLostError, TidegateError, UsageError
from tidegate.rework.backfill.lineage import read_lineage
from tidegate.runs.reports.report import load_report
from tidegate.runs.restart.repair import repair_pipeline, reset_pipeline
from tidegate.runs.rollback import look_at_rollback
from tidegate.table.log.state import find_commit, read_commit_metadata
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status

"""Each so many calls the command is stopped; a sweep over seeds stops it at others (tests/model/machine.py)."""
SHAPES = pytest.mark.parametrize("shape", ["kafka", "files"])
THEN = pytest.mark.parametrize("then", ["reread", "leave-out"])


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes pipelines in memory, each with three versions of two, two and one row, and a malformed record in the
    second."""

    def make_world(shape: Shape) -> World:
        world = new_world(shape)
        for number, kinds in enumerate([["good", "good"], ["good", "good", "malformed"], ["good"]]):
            world.offer(number % 2, kinds)
            assert world.run(f"r{number}").error is None
        world.runs = 3
        return world

    return make_world


def rows(world: World) -> int:
    """How many rows the table has, for every reader the same."""
    plain = read_plain(world.paths.table)
    assert plain == read_log(world.paths.table)
    return sum(plain.values())


def undone(process: Any) -> TidegateError:
    """The error of a command that was refused."""
    assert isinstance(process.error, TidegateError), process.error
    return process.error


@SHAPES
@THEN
def test_the_table_has_the_rows_of_the_version_and_the_records_do_what_was_said(
    make: Make, shape: Shape, then: Any
) -> None:
    world = make(shape)
    before, reads = read_version(world.paths.table, 0), world.reads
    process = world.rollback(0, then)
    assert process.error is None
    report = process.value
    assert (report["mode"], report["outcome"]) == ("rollback", "published")
    assert report["table"]["version"] == 4 and report["table"]["rolled_back_to"] == 0
    assert (report["table"]["rows_added"], report["table"]["rows_removed"]) == (0, 3)
    assert sorted(read_plain(world.paths.table)) == sorted(before) and rows(world) == 2
    assert world.reads == reads, "a rollback reads nothing"
    info = read_commit_metadata(world.paths.table, 4)
    assert (info["tidegate.outcome"], info["tidegate.then"]) == ("rolled_back", then)
    if then == "leave-out":
        assert report["table"]["left_out"]["records"] == 4 and report["table"]["left_out"]["rows"] == 3
        world.check_all()
    again = world.run("next")
    assert again.error is None
    assert again.value["rows"]["read"] == (4 if then == "reread" else 0)
    assert rows(world) == (5 if then == "reread" else 2)
    world.check_all()
    world.settle("discard")


@SHAPES
def test_a_backfill_knows_what_was_left_out_and_what_was_read_again(make: Make, shape: Shape) -> None:
    world = make(shape)

    def told() -> list[tuple[int, bool]]:
        lineage = read_lineage(world.paths.table, newest_version(world.paths.table))
        return [(one.version, one.is_excluded) for one in lineage.increments]

    assert told() == [(0, False), (1, False), (2, False)]
    assert world.rollback(0, "leave-out").error is None
    assert told() == [(0, False), (1, True), (2, True)]
    world.offer(0, ["good"])
    assert world.run("later").error is None
    later = newest_version(world.paths.table)
    assert told() == [(0, False), (1, True), (2, True), (later, False)]
    assert world.rollback(1, "leave-out").error is None
    assert told() == [(0, False), (1, False), (2, True), (later, True)]
    assert world.rollback(1, "reread").error is None
    assert told() == [(0, False), (1, False)]
    assert world.run("again").error is None
    assert told() == [(0, False), (1, False), (newest_version(world.paths.table), False)]
    world.check_all()
    world.settle("discard")


@SHAPES
def test_back_to_a_version_that_went_back_itself(make: Make, shape: Shape) -> None:
    """Its rows are those of the version it went back to: what it left out stays left out, in a refresh too."""
    world = make(shape)
    assert world.rollback(0, "leave-out").error is None
    back = newest_version(world.paths.table)
    world.offer(0, ["good"])
    assert world.run("later").error is None
    assert world.rollback(back, "leave-out").error is None
    newest = newest_version(world.paths.table)
    increments = read_lineage(world.paths.table, newest).increments
    assert [one.is_excluded for one in increments] == [False, True, True, True]
    world.check_all()
    assert world.refresh("fresh").error is None
    assert rows(world) == 2
    world.check_all()


@SHAPES
@THEN
def test_a_retry_and_the_same_again_change_nothing(make: Make, shape: Shape, then: Any) -> None:
    world = make(shape)
    first = world.rollback(1, then, "back")
    version = newest_version(world.paths.table)
    assert world.rollback(1, then, "back").value == first.value
    other = world.rollback(1, then, "other")
    assert other.value["outcome"] == "nothing_new" and "nothing to roll back" in other.value["notes"][0]
    assert newest_version(world.paths.table) == version
    world.settle("discard")


@SHAPES
def test_without_a_choice_both_are_shown_and_nothing_changes(make: Make, shape: Shape) -> None:
    world = make(shape)
    refused = undone(world.rollback(0, None))
    assert (refused.code, refused.exit_code) == ("ROLLBACK_CHOICE", 64)
    assert "the 4 records of 2 versions" in refused.message
    assert "--then reread: the next run reads" in refused.message and "--then leave-out:" in refused.message
    assert newest_version(world.paths.table) == 2 and not world.paths.rollback.exists()
    assert world.rollback(2, None).value["outcome"] == "nothing_new"
    world.settle("discard")


@SHAPES
def test_a_dry_run_shows_what_would_change(make: Make, shape: Shape) -> None:
    world = make(shape)
    before = sorted(str(path) for path in world.paths.state.rglob("*"))
    shown = look_at_rollback(world.project, NAME, 0)
    assert (shown["files_back"], shown["rows_leave"], shown["records"]) == (0, 3, 4)
    assert [(one["version"], one["kind"], one["records"]) for one in shown["versions"]] == [
        (2, "run", 1),
        (1, "run", 3),
    ]
    assert [one["hindrance"] for one in shown["choices"]] == [None, None]
    told = " ".join(shown["choices"][0]["does"])
    assert ("back to the intake: 2 files" if shape == "files" else "starts at") in told
    assert "1 record of theirs in quarantine" in told
    assert sorted(str(path) for path in world.paths.state.rglob("*")) == before
    world.settle("discard")


@SHAPES
def test_what_another_program_changed_in_between_is_listed(make: Make, shape: Shape) -> None:
    world = make(shape)
    world.disturb("delete", 0)
    world.disturb("property", 0)
    world.disturb("append", 0)
    world.disturb("compact", 0)
    shown = look_at_rollback(world.project, NAME, 0)
    told = [f"version {number} is of another program ({name})" for number, name in ((5, "WRITE"), (3, "DELETE"))]
    wanted = [f"{one}: what it changed is undone as well" for one in told]
    assert shown["notes"] == wanted
    assert [one["version"] for one in shown["versions"]] == [2, 1]
    assert shown["hindrance"] is None
    done = world.rollback(0, "leave-out")
    assert done.error is None and [one for one in done.value["notes"] if "another program (" in one] == wanted


@SHAPES
def test_versions_that_are_not_there(make: Make, shape: Shape) -> None:
    world = make(shape)
    for version in (-1, 3, 99):
        refused = undone(world.rollback(version, "reread"))
        assert (refused.code, refused.exit_code) == ("NO_SUCH_VERSION", 64)
    world.settle("discard")


@SHAPES
def test_what_waits_for_a_decision_is_decided_first(make: Make, shape: Shape) -> None:
    world = make(shape)
    world.offer(0, ["poor"])
    assert isinstance(world.run("held").error, HeldError)
    refused = undone(world.rollback(0, "reread"))
    assert (refused.code, refused.exit_code) == ("ROLLBACK_HELD", 65) and "discard orders held" in str(refused.fix)
    assert look_at_rollback(world.project, NAME, 0)["hindrance"]["code"] == "ROLLBACK_HELD"
    assert world.decide("discard", "held").error is None
    assert world.rollback(0, "reread").error is None
    assert isinstance(world.run("again").error, HeldError) or rows(world) == 6
    world.settle("discard")


@SHAPES
def test_discarded_increments_in_between_are_judged_again(make: Make, shape: Shape) -> None:
    world = make(shape)
    world.offer(0, ["poor"])
    assert isinstance(world.run("held").error, HeldError)
    assert world.decide("discard", "held").error is None
    assert "1 discarded increment among them" in " ".join(
        look_at_rollback(world.project, NAME, 1)["choices"][0]["does"]
    )
    assert world.rollback(1, "reread").error is None
    process = world.run("again")
    assert process.error is None and process.value["rows"]["read"] == 2, "the good one and the one that was discarded"
    assert rows(world) == 6
    world.settle("discard")


@SHAPES
def test_what_the_source_no_longer_has_is_named_and_can_be_left_out(make: Make, shape: Shape) -> None:
    world = make(shape)
    if shape == "kafka":
        world.retain_from(1, 2)
    else:
        (world.root / "data" / "inbox" / "2.csv").unlink()
    refused = undone(world.rollback(0, "reread"))
    assert isinstance(refused, SourceLostError) and refused.code == "REREAD_LOST"
    assert newest_version(world.paths.table) == 2
    assert world.rollback(0, "leave-out").error is None
    world.check_all()
    world.settle("discard")


@SHAPES
def test_a_rollback_of_a_rollback(make: Make, shape: Shape) -> None:
    """What was left out comes back with its version; what is read again never comes back a second way."""
    world = make(shape)
    assert world.rollback(0, "leave-out").error is None
    world.offer(0, ["good"])
    assert world.run("between").error is None and rows(world) == 3
    assert world.rollback(2, "reread").error is None  # forward again; what came between is read again
    assert rows(world) == 5
    world.check()
    assert world.run("after").value["rows"]["read"] == 1 and rows(world) == 6
    world.check_all()
    taken_back = world.rollback(1, "reread")
    assert taken_back.error is None
    for version in range(2, taken_back.value["table"]["version"]):
        refused = undone(world.rollback(version, "leave-out"))
        assert refused.code == "NO_SUCH_VERSION" and refused.exit_code == 64
    world.settle("discard")
    assert rows(world) == 6


@SHAPES
def test_twice_before_any_run(make: Make, shape: Shape) -> None:
    world = make(shape)
    assert world.rollback(1, "reread").error is None
    assert world.rollback(0, "reread").error is None
    process = world.run("next")
    assert process.value["rows"]["read"] == 4 and rows(world) == 5
    world.check_all()
    world.settle("discard")


@SHAPES
def test_what_was_left_out_can_be_read_again_later(make: Make, shape: Shape) -> None:
    world = make(shape)
    assert world.rollback(0, "leave-out").error is None
    assert world.rollback(0, "reread").error is None
    assert world.run("next").value["rows"]["read"] == 4 and rows(world) == 5
    world.check_all()
    world.settle("discard")


@SHAPES
@THEN
def test_status_plan_and_repair_work_afterwards(make: Make, shape: Shape, then: Any) -> None:
    world = make(shape)
    assert world.rollback(0, then).error is None
    if shape == "files":
        (row,) = project_status(world.project, NAME)
        assert row["errors"] == [] and row["trouble"] == []
    assert plan_pipeline(world.project, NAME)["has_new"] == (then == "reread")
    assert repair_pipeline(world.project, NAME, dry_run=True)["code"] is None
    shutil.rmtree(world.paths.pinned().checkpoint, ignore_errors=True)
    repaired = world.repair()
    assert repaired.error is None and repaired.value["code"] is None
    assert bool(repaired.value["next_run"]) == (then == "leave-out")
    assert world.run("next").value["rows"]["read"] == (4 if then == "reread" else 0)
    world.check_all()
    world.settle("discard")


@SHAPES
@pytest.mark.parametrize("where", ["set_aside", "retired", "birth", "ledger"])
def test_a_repair_between_the_two_halves_reads_the_same(make: Make, shape: Shape, where: str) -> None:
    """The version is there and the new query is not: the log says what counts."""
    world = make(shape)
    process = world.rollback(0, "reread", stop=Stop(where))
    if process.state != "stopped":
        pytest.skip(f"it has no call on {where}")
    world.kill(process)
    assert find_commit(world.paths.table, "nobody", 0) is None
    for folder in world.paths.pinned().checkpoint.glob("offsets/*"):
        folder.unlink()
    assert world.repair().error is None
    world.settle("discard")
    assert rows(world) == 5


@SHAPES
@THEN
def test_an_older_copy_of_the_table_is_noticed(make: Make, shape: Shape, then: Any) -> None:
    world = make(shape)
    older = world.root / "older"
    shutil.copytree(world.paths.table, older)
    assert world.rollback(0, then).error is None
    shutil.rmtree(world.paths.table)
    shutil.copytree(older, world.paths.table)
    refused = undone(world.run(world.new_run_id()))
    assert isinstance(refused, DisagreementError) and refused.code == "TABLE_BEHIND"
    shown = repair_pipeline(world.project, NAME, dry_run=True)
    goes_back = any(one.startswith("take the table back to version 0") for one in shown["actions"])
    assert goes_back == ("the table goes back to version 0" in shown["choices"][1]) == (then == "reread")
    assert world.repair().error is None
    world.left_out.clear()  # the copy has them
    world.settle("discard")
    assert rows(world) == 5


def sweep(make: Make, shape: Shape, then: Any, fate: str, go_on: Callable[[World], None]) -> int:
    """Stop the rollback at every so many calls; how often it was."""
    stopped = 0
    for stop in stops(3 if fate == "killed" else 5, killed=fate == "killed"):
        world = make(shape)
        world.offer(1, ["good"])
        process = world.rollback(0, then, "back", stop=stop)
        if process.state != "stopped":
            break
        stopped += 1
        world.check()
        if fate == "killed":
            world.kill(process)
        else:
            world.freeze(process)
        go_on(world)
        world.settle("discard")
        report = load_report(world.paths, "back")
        rolled_back = report is not None and report.outcome == "published"
        left = {3, 2} if fate == "frozen" else {3}  # 2: it slept before it had the lease, and the record was there then
        assert rows(world) in (left if rolled_back and then == "leave-out" else {6})
    return stopped


@SHAPES
@THEN
@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_stopped_anywhere_and_the_next_run_goes_on(make: Make, shape: Shape, then: Any, fate: str) -> None:
    def run(world: World) -> None:
        world.run(world.new_run_id("x"))
        world.check()

    assert sweep(make, shape, then, fate, run) > 8


@SHAPES
@THEN
def test_stopped_anywhere_and_the_same_command_again_completes_it(make: Make, shape: Shape, then: Any) -> None:
    def again(world: World) -> None:
        process = world.rollback(0, then, "back")
        assert process.error is None and process.value["outcome"] == "published", process.error
        assert rows(world) == 2
        assert not world.paths.rollback.exists()

    assert sweep(make, shape, then, "killed", again) > 8


def test_a_stop_behind_the_note_is_told(make: Make) -> None:
    world = make("files")
    world.kill(world.rollback(0, "reread", stop=Stop("intents")))
    (row,) = project_status(world.project, NAME)
    assert row["errors"] == []
    assert any("roll the table back to version 0" in note for note in plan_pipeline(world.project, NAME)["notes"])
    process = world.run("next")
    assert any("rolled back to version 0 first" in note for note in process.value["notes"])
    world.settle("discard")
    assert rows(world) == 5


def test_a_pipeline_without_a_table(make: Make, tmp_path: Path) -> None:
    world = make("files")
    shutil.rmtree(world.paths.table)
    shutil.rmtree(world.paths.state)
    with pytest.raises(UsageError, match="it has none yet"):
        look_at_rollback(world.project, NAME, 0)


def test_the_command_line(make: Make) -> None:
    world = make("files")

    def tidegate(*command: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["--project", str(world.root), *command])
        error = done.exception
        return (error.exit_code if isinstance(error, TidegateError) else done.exit_code), done.stdout

    code, text = tidegate("rollback", NAME, "--to-version", "0", "--dry-run", "--json")
    assert code == 0 and check_output("rollback", text)["records"] == 4
    assert tidegate("rollback", NAME, "--to-version", "0")[0] == 64
    code, text = tidegate("rollback", NAME, "--to-version", "0", "--then", "leave-out", "--run-id", "b", "--json")
    assert code == 0 and check_output("report", text)["table"]["left_out"]["records"] == 4
    code, text = tidegate("rollback", NAME, "--to-version", "0", "--then", "leave-out", "--run-id", "b")
    assert code == 0 and "rolled back to version 0: -3 rows in 3 files" in text and "rows:" not in text
    (world.root / "data" / "inbox" / "2.csv").unlink()
    code, text = tidegate("rollback", NAME, "--to-version", "0", "--then", "reread", "--dry-run")
    assert code == 66 and "cannot be done: REREAD_LOST" in text
    assert tidegate("reset", NAME)[0] == 64
    code, text = tidegate("reset", NAME, "--dry-run", "--json")
    assert code == 0 and check_output("repair", text)["code"] == "RESET"
    assert tidegate("reset", NAME, "--confirm", NAME)[0] == 0


def test_what_the_page_shows(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    world = make("files")
    show_rollback(look_at_rollback(world.project, NAME, 0))
    assert capsys.readouterr().out.rstrip("\n") == shown("rollback")
    reset = reset_pipeline(world.project, NAME, from_beginning=False, dry_run=True, confirm=None)
    show_repair(reset)
    assert capsys.readouterr().out.rstrip("\n") == shown("reset")


@SHAPES
@pytest.mark.parametrize("work", ["backfill", "refresh"])
def test_what_is_said_to_do_beside_an_increment_that_waits_alone_can_be_done(
    make: Make, shape: Shape, work: str
) -> None:
    world = make(shape)
    world.on_critical = "continue"
    quality = world.spec.quality.replace(on_critical="continue")
    world.__dict__["spec"] = world.spec.replace(quality=quality)
    world.offer(0, ["poor"])
    assert isinstance(world.run("waits").error, HeldError)
    world.offer(1, ["good"])
    assert world.run("later").error is None
    refused = undone(world.rollback(0, "reread"))
    assert refused.code == "ROLLBACK_HELD" and f"tidegate {work} {NAME}" in str(refused.fix)
    done = world.refresh("w") if work == "refresh" else world.backfill("w", "2026-01-01", "2026-01-02")
    assert done.error is None and done.value["outcome"] == "published"
    assert world.waiting == ["waits"] and rows(world) == 6
    world.settle("discard")
