"""A command that is given once more, or with other arguments under the same run id."""

from __future__ import annotations

import errno
import json

import pytest
from typer.testing import CliRunner

from tests.model.beside import D1, D2, done
from tests.model.processes import Process, Stop
from tests.model.world import NAME, Make, World, newest_version, read_log
from tests.support.outputs import check_output
from tidegate.cli.commands import app
from tidegate.core.errors import SourceLostError, TryAgainError, UsageError
from tidegate.rework.backfill.command import backfill_table
from tidegate.rework.backfill.span import Wanted
from tidegate.rework.replay.choose import Selection
from tidegate.runs.reports.report import load_report
from tidegate.runs.rollback import look_at_rollback
from tidegate.table.quarantine.filters import QuarantineFilter


@pytest.fixture
def world(new_world: Make) -> World:
    """Three versions with two, two and one row; a malformed record is in quarantine."""
    world = new_world("files")
    for number, kinds in enumerate([["good", "good"], ["good", "good", "malformed"], ["good"]]):
        world.offer(number % 2, kinds)
        done(world.run(f"r{number}"))
    world.runs, world.day_by_day = 3, True
    return world


def refused(process: Process) -> UsageError:
    assert isinstance(process.error, UsageError), process.error
    assert process.error.code == "OTHER_ARGUMENTS"
    return process.error


def test_a_backfill_of_other_days_under_the_same_run_id(world: World) -> None:
    report = done(world.backfill("b", D1, D1))
    assert report["asked"] == f"--from {D1} --to {D1}"
    error = refused(world.backfill("b", D2, D2))
    assert error.exit_code == 64
    given = [f"--from {day} --to {day}" for day in (D1, D2)]
    assert error.message == f"run id b was first given for {given[0]}, and is now given for {given[1]}"
    assert done(world.backfill("b", D1, D1)) == report
    world.settle("discard")


@pytest.mark.parametrize("at", ["unlink data/state/orders/intents/table", "link data/state/orders/intents"])
def test_a_backfill_that_was_killed_goes_on_with_what_it_was_given_for(world: World, at: str) -> None:
    world.kill(world.backfill("b", D1, D2, stop=Stop(at, after=True)))
    refused(world.backfill("b", D1, D1))
    left = load_report(world.paths, "b")
    assert left is None or (left.error, left.rebuilt) == (None, [f"day={D1}"]), "it is not over, and has not failed"
    assert done(world.backfill("b", D1, D2))["rebuilt"] == [f"day={D1}", f"day={D2}"]
    world.settle("discard")


@pytest.mark.parametrize("at", ["unlink data/state/orders/intents/table", "link data/state/orders/intents"])
def test_a_backfill_does_not_go_on_with_an_edited_pipeline(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Its first day is in the table, or is put there by what was begun: the second one would be of another version."""
    world.kill(world.backfill("b", D1, D2, stop=Stop(at, after=True)))
    before = world._spec_now
    with monkeypatch.context() as edited:
        edited.setattr(world, "_spec_now", lambda: before().replace(on_row_error="quarantine"))
        error = world.backfill("b", D1, D2).error
        assert isinstance(error, UsageError) and (error.code, error.exit_code) == ("BACKFILL_NOT_RESUMABLE", 64)
        assert (
            error.message
            == f"run id b has rebuilt day={D1}, and cannot be resumed: edited since then: setting on_row_error"
        )
        left = load_report(world.paths, "b")
        assert left is not None and left.rebuilt == [f"day={D1}"]
        assert done(world.backfill("c", D1, D2))["rebuilt"] == [f"day={D1}", f"day={D2}"]
    told = done(world.backfill("b", D1, D2))
    assert (told["outcome"], told["rebuilt"]) == ("published", [f"day={D1}", f"day={D2}"])
    world.settle("discard")


@pytest.mark.parametrize("command", ["backfill", "refresh"])
def test_a_job_that_has_ended_is_not_repeated_with_an_edited_pipeline(
    world: World, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The same command shows the same figures, and says that the edit has no effect."""
    report = done(world.backfill("b", D1, D1) if command == "backfill" else world.refresh("b"))
    version, drivers, before = newest_version(world.paths.table), world.drivers, world._spec_now
    days = ["--from", D1, "--to", D1] if command == "backfill" else []
    monkeypatch.setattr(world, "_spec_now", lambda: before().replace(on_row_error="quarantine"))
    note = (
        f"run id b ended at {report['ended_at']} (published), and was not repeated: edits made since then have no "
        "effect. To do it again with the current files, use another run id (--run-id), or none"
    )
    for option in ([], ["--json"]):
        again = CliRunner().invoke(
            app, ["--project", str(world.root), command, NAME, *days, "--run-id", "b", *option], catch_exceptions=False
        )
        assert (again.exit_code, again.stderr) == (0, f"note: {note}\n") and note in again.stdout
    assert check_output("report", again.stdout) == {**report, "notes": [*report["notes"], note]}
    kept = load_report(world.paths, "b")
    assert kept is not None and note not in kept.notes
    assert (newest_version(world.paths.table), world.drivers) == (version, drivers)
    world.settle("discard")


def test_a_backfill_does_not_go_on_where_its_first_day_was_rolled_back(world: World) -> None:
    before = newest_version(world.paths.table)
    world.kill(world.backfill("b", D1, D2, stop=Stop("unlink data/state/orders/intents/table", after=True)))
    done(world.rollback(before, None))
    error = world.backfill("b", D1, D2).error
    assert isinstance(error, UsageError) and error.code == "BACKFILL_NOT_RESUMABLE"
    assert error.message.startswith(
        f"run id b has rebuilt day={D1}, and cannot be resumed: the table no longer has them"
    )
    assert done(world.backfill("c", D1, D2))["rebuilt"] == [f"day={D1}", f"day={D2}"]
    world.settle("discard")


def test_a_backfill_that_has_swapped_nothing_begins_with_the_edited_pipeline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kill(world.backfill("b", D1, D2, stop=Stop("link data/state/orders/intents")))
    before = world._spec_now
    monkeypatch.setattr(world, "_spec_now", lambda: before().replace(on_row_error="quarantine"))
    assert done(world.backfill("b", D1, D2))["rebuilt"] == [f"day={D1}", f"day={D2}"]


def test_a_backfill_that_failed_at_its_first_day_may_be_asked_for_less(world: World) -> None:
    (world.root / "data" / "inbox" / "1.csv").unlink()
    gone = world.backfill("b", D1, D2)
    assert isinstance(gone.error, SourceLostError)
    assert getattr(world.backfill("b", D1, D1).error, "code", None) != "OTHER_ARGUMENTS"
    world.settle("discard")


def test_a_refresh_with_another_option_under_the_same_run_id(world: World) -> None:
    report = done(world.refresh("b"))
    assert report["asked"] == "no options"
    error = refused(world.refresh("b", keeps_older=True))
    assert error.message == "run id b was first given for no options, and is now given for --keep-older"
    assert done(world.refresh("b")) == report


def test_a_report_of_an_earlier_version_does_not_tell(world: World) -> None:
    report = done(world.backfill("b", D1, D1))
    path = world.paths.report("b")
    value = json.loads(path.read_text())
    del value["asked"]
    path.write_text(json.dumps(value))
    assert done(world.backfill("b", D2, D2)) == {**report, "asked": None}
    world.settle("discard")


def test_partitions_and_zones_count(world: World) -> None:
    def backfill(*partitions: str, zone: str | None = None) -> Process:
        wanted = Wanted(partitions=partitions, zone=zone)
        return world._start(
            "backfill b", lambda: backfill_table(world.project, NAME, "b", wanted, submit=world._submit), None
        )

    report = done(backfill(f"day={D2}", f"day={D1}"))
    assert report["asked"] == f"--partition day={D1} --partition day={D2}"
    assert done(backfill(f"day={D1}", f"day={D2}")) == report, "in another order it is the same"
    refused(backfill(f"day={D1}"))
    refused(backfill(f"day={D1}", f"day={D2}", zone="Europe/Oslo"))
    world.settle("discard")


def test_a_replay_of_other_records_under_the_same_run_id(world: World) -> None:
    report = done(world.replay("again", Selection(QuarantineFilter(reason="malformed")), mend=True))
    assert (report["outcome"], report["asked"]) == ("published", "--reason malformed")
    assert "is now given for no options" in refused(world.replay("again", Selection())).message
    refused(world.replay("again", Selection(QuarantineFilter(reason="malformed", run_id="r1"))))
    assert done(world.replay("again", Selection(QuarantineFilter(reason="malformed")))) == report
    world.settle("discard")


def test_a_replay_of_other_edits_under_the_same_run_id(world: World) -> None:
    ((id_, text),) = world.in_quarantine().items()
    edited = f"{text.partition(',')[0]},good"
    report = done(world.replay("again", Selection(edits={id_: edited})))
    assert report["asked"].startswith("--file with 1 record (sha256 ")
    refused(world.replay("again", Selection(edits={id_: f"{edited} "})))
    assert done(world.replay("again", Selection(edits={id_: edited}))) == report
    world.settle("discard")


def test_a_rollback_with_another_choice_under_the_same_run_id(world: World) -> None:
    world.kill(world.rollback(0, "reread", "back", stop=Stop("intents")))
    error = refused(world.rollback(0, "leave-out", "back"))
    assert "--to-version 0 --then reread, and is now given for --to-version 0 --then leave-out" in error.message
    assert world.paths.rollback.exists(), "it is not carried out by a command that wanted something else"
    refused(world.rollback(1, "reread", "back"))
    assert done(world.rollback(0, "reread", "back"))["outcome"] == "published"
    refused(world.rollback(0, "leave-out", "back"))
    done(world.run("next"))
    assert sum(read_log(world.paths.table).values()) == 5
    world.settle("discard")


def test_what_a_rollback_gave_back_is_not_left_out_by_a_second_one(world: World) -> None:
    """The next run would read it, whatever the second one says."""
    by = done(world.rollback(1, "reread", "again"))["table"]["version"]
    version = newest_version(world.paths.table)
    for _ in range(2):
        error = world.rollback(1, "leave-out").error
        assert isinstance(error, UsageError) and error.code == "ROLLBACK_GIVEN_BACK"
        assert "1 record of 1 version cannot be excluded" in error.message
        assert f"(version {by}, run again)" in error.message
    (choice,) = look_at_rollback(world.project, NAME, 1)["choices"]
    assert choice["then"] == "leave-out" and choice["hindrance"] is not None
    assert choice["hindrance"]["code"] == "ROLLBACK_GIVEN_BACK"
    assert done(world.rollback(1, "reread"))["outcome"] == "nothing_new"
    assert done(world.rollback(1, None))["outcome"] == "nothing_new"
    assert newest_version(world.paths.table) == version
    done(world.run("next"))
    assert done(world.rollback(1, "leave-out"))["table"]["left_out"]["records"] == 1
    assert done(world.run("later"))["rows"]["read"] == 0
    assert sum(read_log(world.paths.table).values()) == 4
    world.settle("discard")


def test_what_two_rollbacks_gave_back_is_counted_once(world: World) -> None:
    done(world.rollback(1, "reread"))
    error = world.rollback(0, "leave-out").error
    assert isinstance(error, UsageError) and error.code == "ROLLBACK_GIVEN_BACK"
    done(world.rollback(0, "reread"))
    error = world.rollback(0, "leave-out").error
    assert isinstance(error, UsageError) and "4 records of 2 versions cannot be excluded" in error.message
    done(world.run("next"))
    done(world.rollback(0, "reread"))
    error = world.rollback(0, "leave-out").error
    assert isinstance(error, UsageError) and "4 records of 1 version cannot be excluded" in error.message
    done(world.run("after"))
    assert sum(read_log(world.paths.table).values()) == 5
    world.check_all()
    world.settle("discard")


def test_wrong_use_of_work_beside_the_runs_is_no_failure_of_the_pipeline(world: World) -> None:
    for process in (
        world.backfill("b", "2026-02-01", "2026-02-01"),
        world.replay("again", Selection(edits={"0" * 16: "x"})),
        world.rollback(99, "reread", "back"),
    ):
        assert isinstance(process.error, UsageError), process.error
    assert [load_report(world.paths, run_id) for run_id in ("b", "again", "back")] == [None] * 3
    assert done(world.backfill("b", D1, D1))["rebuilt"] == [f"day={D1}"], "the run id is still free"
    world.settle("discard")


def test_a_backfill_that_fails_does_not_speak_of_runs(world: World) -> None:
    def fill(plan: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/d/x")

    wanted = Wanted(D1, D1)
    process = world._start("b", lambda: backfill_table(world.project, NAME, "b", wanted, submit=fill), None)
    assert isinstance(process.error, TryAgainError) and process.error.code == "DISK_FULL"
    assert process.error.fix == "free space (df -h /d), then run the same command again with --run-id b"
    assert "the same command starts the failed part again" in str(process.error.next_run)
    report = load_report(world.paths, "b")
    assert report is not None and report.error == process.error.to_dict()
    assert done(world.backfill("b", D1, D1))["outcome"] == "published"
    world.settle("discard")
