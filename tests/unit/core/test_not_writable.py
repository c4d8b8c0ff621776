"""Folders that the user of a run may not write to: named with the command that fixes it; the next run goes on."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.held import GOOD, NAME, Held, commands
from tests.support.no_rights import not_writable
from tidegate.cli.main import main
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.storage import find_unwritable, name_cause
from tidegate.runs import gate_steps
from tidegate.runs.reports.report import load_report
from tidegate.spark.driver.failures import explain
from tidegate.spec.project import load_project
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path)
    with commands(lambda: held):
        yield held


def expected(folder: Path) -> str:
    return (
        f"NOT_PERMITTED: user {pwd.getpwuid(os.geteuid()).pw_name} may not write to {folder}\n"
        f"  where: {folder}\n"
        "  next run: fails again until this is fixed, then completes what was begun, if anything was; nothing is lost\n"
        f"  fix: chmod u+rwx {folder}, then run the same command again"
    )


def foresee(held: Held, folder: Path) -> None:
    """The plan has the error of the run that completes what was begun."""
    with not_writable(folder):
        plan = plan_pipeline(held.project, NAME)
    assert plan["pending"] and plan["summary"] == "the next run would refuse"
    errors = [str(TidegateError.from_dict(one)) for one in plan["errors"] if one["code"] != "BROKER_AWAY"]
    assert errors == [expected(folder)]


def fix_by_hand(error: TidegateError) -> None:
    """Type what the error says."""
    assert error.fix is not None
    subprocess.run(error.fix.partition(", then")[0], shell=True, check=True)


@pytest.mark.parametrize("where", ["table", "state", "quarantine"])
def test_the_command_named_fixes_it_and_the_next_run_goes_on(held: Held, where: str) -> None:
    from tests.unit.staged_increments import stage

    held.run("R0", GOOD)
    stage(held, 3, {"n: not a BIGINT": 1})
    folder = {"table": held.paths.table, "state": held.paths.runs, "quarantine": held.paths.quarantine}[where]
    folder.mkdir(parents=True, exist_ok=True)
    with not_writable(folder), pytest.raises(UsageError) as told:
        held.run("R1")
    assert str(told.value) == expected(folder) and told.value.exit_code == 64
    if where != "state":
        foresee(held, folder)
        for intent in held.paths.intents.glob("*.json"):  # as if the run had been killed just before it was written
            intent.unlink()
        foresee(held, folder)
    report = load_report(held.paths, "R1")
    assert report is None or report.error is None or report.error["code"] == "NOT_PERMITTED"
    folder.chmod(0o555)
    fix_by_hand(told.value)
    assert folder.stat().st_mode & 0o700 == 0o700
    held.run("R2")
    assert held.rows() == [0, 1, 2, 4, 5, 6, 7]


def test_the_lease(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(tmp_path)
    folder = tmp_path / "data"
    shutil.rmtree(folder)
    folder.mkdir()
    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), "run", NAME])
    with not_writable(folder), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 64 and capsys.readouterr().err == expected(folder) + "\n"
    with not_writable(folder):
        foreseen, [row] = plan_pipeline(held.project, NAME), project_status(held.project, NAME)
    for errors in (foreseen["errors"], row["errors"]):
        assert str(TidegateError.from_dict(errors[0])) == expected(folder)
    assert (foreseen["summary"], foreseen["exit_code"]) == ("the next run would refuse", 64)
    assert "NOT_PERMITTED" not in [one["code"] for one in plan_pipeline(held.project, NAME)["errors"]]
    with not_writable(folder), pytest.raises(UsageError, match="NOT_PERMITTED"):
        gate_steps.audit_run(held.project, NAME, "R1")


def make_orders(root: Path) -> None:
    """A pipeline that reads an empty folder."""
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs/orders").mkdir(parents=True)
    (root / "inbox").mkdir()
    (root / "jobs/orders/pipeline.yaml").write_text(
        "version: 1\nname: orders\nschedule: null\n"
        "sources: {s: {type: files, path: inbox, format: csv, schema: id STRING}}\n"
    )


@pytest.mark.parametrize("command", [["plan", "orders"], ["status", "orders"], ["status"]])
def test_what_is_wrong_is_said_once(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State, table and quarantine are created in one folder, and a skipped file is in a note and with its source."""
    make_orders(tmp_path)
    (tmp_path / "inbox/a.csv").write_text("1\n")
    (tmp_path / "inbox/closed.csv").write_text("2\n")
    (tmp_path / "inbox/closed.csv").chmod(0)
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), *command])
    with not_writable(tmp_path / "data"), pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert said.count("NOT_PERMITTED") == said.count("fix: chmod") == 1, said
    assert said.count("closed.csv (no permission to read it)") == 1, said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another user")
@pytest.mark.parametrize(("command", "first"), [("run", "lease"), ("run", "ledger"), ("repair", "lease")])
def test_a_state_folder_of_another_user_is_named_whole(
    tmp_path: Path, command: str, first: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the lease folder over alone is refused by the next file."""
    make_orders(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), "run", "orders"])
    with pytest.raises(SystemExit):
        main()
    state = tmp_path / "data/state/orders"
    foreign = [state / "lease"] if first == "lease" else [*state.glob("ledger*"), state]
    for path in foreign:
        os.chown(path, 12345, -1)
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), command, "orders"])
    (tmp_path / "aside").mkdir()
    with not_writable(tmp_path / "aside"), pytest.raises(SystemExit) as ended:
        main()
    told, user = capsys.readouterr().err, pwd.getpwuid(0).pw_name
    assert ended.value.code == 64 and told.startswith(f"NOT_PERMITTED: user {user} may not write to {state}"), told
    assert f", which belongs to 12345; all of {state} must belong to {user}\n" in told
    assert f"  fix: sudo chown -R {user} {state}, then run the same command again\n" in told
    for path in foreign:
        os.chown(path, 0, -1)


def test_a_file_of_a_person_is_a_fault_of_that_file(tmp_path: Path) -> None:
    closed = tmp_path / "tidegate.yaml"
    closed.touch(0o000)
    with not_writable(tmp_path), pytest.raises(UsageError) as told:
        load_project(tmp_path, {})
    assert str(told.value) == (
        "BAD_PROJECT: tidegate.yaml cannot be read: Permission denied\n"
        f"  where: {closed}\n"
        "  next run: fails again until this is fixed; nothing was read or written\n"
        f"  fix: make it a file that this user may read: ls -l {closed}"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another user")
def test_the_right_to_a_folder_that_is_not_ours_is_asked_for_that_folder_alone(tmp_path: Path) -> None:
    """Its owner, and what is below it, stay as they are."""
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with not_writable(folder):
        met = name_cause(PermissionError(errno.EACCES, "Permission denied", str(folder / "x")), tmp_path)
        foreseen = find_unwritable(folder, tmp_path / "state")
    for error in (met, foreseen):
        assert error is not None
        assert error.message.endswith(f"may not write to {folder}, which belongs to 12345")
        assert error.fix == f"sudo setfacl -m u:{pwd.getpwuid(0).pw_name}:rwx {folder}, then run the same command again"


def test_any_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Held(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), "repair", NAME])
    folder = tmp_path / "data"
    shutil.rmtree(folder)
    folder.mkdir()
    with not_writable(folder), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 64 and capsys.readouterr().err == expected(folder) + "\n"


def test_what_the_ingest_driver_meets(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with not_writable(state):
        try:
            (state / "staging").mkdir()
        except PermissionError as error:
            told = explain(error, NAME, tmp_path / "jobs", state)
    assert str(told) == expected(state)


def test_a_file_where_a_folder_should_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Held(tmp_path)
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").write_text("")
    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), "run", NAME])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert (
        ended.value.code == 64
        and told.startswith(f"PATH_UNUSABLE: cannot use {tmp_path}/data")
        and "Traceback" not in told
    )


@pytest.mark.parametrize("place", ["data/warehouse", "data/warehouse/orders", "data/quarantine"])
def test_plan_and_run_say_the_same_of_a_file_where_a_folder_should_be(held: Held, place: str) -> None:
    from tests.unit.staged_increments import stage

    stage(held, 3, {"n: not a BIGINT": 1})
    path = held.root / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    foreseen = plan_pipeline(held.project, NAME)["errors"][0]
    with pytest.raises(UsageError) as refused:
        held.run("R1")
    assert [refused.value.code, foreseen["code"]] == ["PATH_UNUSABLE"] * 2
    assert foreseen["message"] == f"cannot use {path}: Not a directory"
    path.unlink()
    held.run("R2")
    assert held.rows() == [0, 1, 2]


def test_other_errors_are_not_named() -> None:
    assert name_cause(FileNotFoundError(2, "no such file", "x"), "x") is None
    assert name_cause(ValueError(), "x") is None


def test_a_call_that_names_what_is_not_there(tmp_path: Path) -> None:
    error = name_cause(PermissionError(1, "Operation not permitted", str(tmp_path / "none/x")), tmp_path)
    assert error is not None and error.where == str(tmp_path)


def test_a_file_that_may_not_be_read_and_a_file_system_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.touch(0o000)
    with not_writable(tmp_path):
        unreadable = name_cause(PermissionError(errno.EACCES, "Permission denied", str(closed)), tmp_path)
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
        read_only = name_cause(OSError(errno.EROFS, "Read-only file system", str(tmp_path)), tmp_path)
    assert unreadable is not None and unreadable.code == "NOT_PERMITTED"
    assert unreadable.message.endswith(f" may not read {closed}")
    assert read_only is not None and read_only.code == "NOT_PERMITTED"
    assert read_only.message.endswith(f" may not write to {tmp_path}: its file system is read-only")
