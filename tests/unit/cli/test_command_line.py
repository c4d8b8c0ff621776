"""The command line itself: version, help, and the commands that look at a project without running anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tidegate import __version__
from tidegate.cli.app import GROUPS, group_names
from tidegate.cli.commands import app, run_command
from tidegate.core.errors import TidegateError, UsageError
from tidegate.runs.reports.report import new_report, save_report
from tidegate.spec.project import load_project
from tidegate.state.lease import acquire
from tidegate.views import doctor as doctor_module

_SPEC = (
    "version: 1\nname: {}\nschedule: null\nsources:\n"
    "  s: {{type: files, path: in/{}, format: csv, schema: id STRING}}\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two sound pipelines with nothing to read, and one whose spec is bad."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    for name in ("first", "second", "broken"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        (tmp_path / "in" / name).mkdir(parents=True)
        text = _SPEC.format(name, name).replace("format", "fromat" if name == "broken" else "format")
        (tmp_path / "jobs" / name / "pipeline.yaml").write_text(text)
    return tmp_path


def ask(root: Path, *command: str) -> Result:
    return CliRunner().invoke(app, ["--project", str(root), *command])


def _commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    return dict(root.commands)


def test_the_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"tidegate {__version__}\n"


def test_help_in_groups_with_nothing_cut_off() -> None:
    for wanted in ("-h", "--help"):
        done = CliRunner().invoke(app, [wanted], terminal_width=80)
        assert done.exit_code == 0 and "..." not in done.stdout.replace("[ARGS]...", "")
    titles = [line[:-1] for line in done.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *GROUPS]
    grouped = group_names(_commands())
    assert [title for title, _ in grouped] == list(GROUPS), "every command has its group"
    assert sorted(name for _, names in grouped for name in names) == sorted(_commands())
    assert "No such command" not in CliRunner().invoke(app, ["run", "-h"]).output


@pytest.mark.parametrize(
    ("command", "fault", "fix"),
    [
        ("backfill", "the argument NAME is missing", "`tidegate backfill -h` shows how it is used"),
        ("adopt x", "the option --table is missing", "`tidegate adopt -h` shows how it is used"),
        ("run x --rnu-id 1", "there is no option --rnu-id", "write --run-id; `tidegate run -h` shows how it is used"),
        ("rnu", "there is no command rnu", "write run; `tidegate -h` shows how it is used"),
        ("quarantine sho", "there is no command sho", "write show; `tidegate quarantine -h` shows how it is used"),
        ("try x --rows many", "--rows takes a whole number", "`tidegate try -h` shows how it is used"),
        ("plan x y z", "too many arguments: y z", "`tidegate plan -h` shows how it is used"),
        ("run x --run-id", "the option --run-id has no value", "`tidegate -h` shows how it is used"),
        ("quarantine show", "the argument NAME is missing", "`tidegate quarantine show -h`"),
    ],
)
def test_wrong_use_is_an_error_like_others(command: str, fault: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tidegate", *command.split()])
    with pytest.raises(UsageError) as refused:
        run_command()
    error = refused.value
    assert (error.code, error.message, error.exit_code) == ("BAD_ARGUMENTS", fault, 64)
    assert error.next_run and str(error.fix).startswith(fix)


def test_every_argument_is_explained() -> None:
    leaves = [one for command in _commands().values() for one in getattr(command, "commands", {"": command}).values()]
    untold = [f"{leaf.name} {one.name}" for leaf in leaves for one in leaf.params if not getattr(one, "help", None)]
    assert untold == []


def test_list_names_a_bad_spec_in_its_own_row(root: Path) -> None:
    rows = {row["pipeline"]: row for row in json.loads(ask(root, "list", "--json").stdout)}
    assert rows["first"]["sources"] == {"s": "files"} and rows["first"]["error"] is None
    assert rows["broken"]["error"]["code"] == "BAD_SPEC" and rows["broken"]["error"]["faults"]
    assert [line.split()[0] for line in ask(root, "list").stdout.splitlines()[1:]] == ["broken", "first", "second"]


def test_a_terminal_that_has_no_umlauts(root: Path) -> None:
    spec = root / "jobs/first/pipeline.yaml"
    spec.write_text(spec.read_text().replace("schedule: null", "schedule: null\ndescription: Aufträge für 5 €"))
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    for command in (("list",), ("list", "--json"), ("status", "jährlich")):
        done = subprocess.run(
            [sys.executable, "-m", "tidegate.cli.main", "--project", str(root), *command],
            env=ascii_only,
            capture_output=True,
            check=False,
        )
        shown, told = done.stdout.decode("ascii"), done.stderr.decode("ascii")
        assert "Traceback" not in told, told
        if command == ("list", "--json"):
            assert "Aufträge für 5 €" in [row["description"] for row in json.loads(shown)]
        elif command == ("list",):
            assert done.returncode == 0 and r"Auftr\xe4ge f\xfcr 5 \u20ac" in shown
        else:
            assert done.returncode == 64 and told.startswith("BAD_NAME: ") and "hrlich" in told


def test_several_pipelines_each_with_its_own_outcome(root: Path) -> None:
    done = ask(root, "run", "first", "broken", "second", "first", "--json")
    assert done.exit_code == 64
    reports = json.loads(done.stdout)
    outcomes = [(report["pipeline"], report["outcome"]) for report in reports]
    assert outcomes == [("first", "nothing_new"), ("broken", "failed"), ("second", "nothing_new")]
    assert reports[1]["error"]["code"] == "BAD_SPEC" and "broken: BAD_SPEC" in done.stderr
    (root / "in" / "first").rmdir()
    done = ask(root, "run", "broken", "first", "second")
    assert done.exit_code == 66, "what the source lost weighs more than a bad spec"
    assert "second  run" in done.stdout
    assert ask(root, "run", "second").exit_code == 0
    refused = ask(root, "run", "first", "second", "--accept-loss", "gone")
    assert isinstance(refused.exception, TidegateError) and refused.exception.code == "BAD_OPTIONS"


def test_logs_of_the_newest_run_and_of_a_named_one(root: Path) -> None:
    refused = ask(root, "logs", "first")
    assert isinstance(refused.exception, TidegateError) and refused.exception.code == "NO_SUCH_RUN"
    paths = load_project(root).paths("first")
    for run_id, at in (("old", "2026-01-01"), ("new/er", "2026-01-02")):
        report = new_report("first", run_id)
        report.started_at, report.outcome = f"{at}T00:00:00+00:00", "failed"
        report.error = TidegateError("DRIVER_DIED", f"{run_id} died").to_dict()
        save_report(paths, report)
    paths.driver_log("new/er").parent.mkdir(parents=True)
    paths.driver_log("new/er").write_text("Exception in thread main\n")
    paths.progress("new/er").write_text('{"event": "staged", "batchId": 0, "rows": 7}\n{"torn')
    value = json.loads(ask(root, "logs", "first", "--json").stdout)
    assert (value["run_id"], value["logs"][0]["text"]) == ("new/er", "Exception in thread main\n")
    assert [event["rows"] for event in value["progress"]] == [7]
    shown = ask(root, "logs", "first").stdout
    assert "batch 0 staged: 7 rows" in shown and "Exception in thread main" in shown and "new/er died" in shown
    assert "no driver log is kept" in ask(root, "logs", "first", "old").stdout
    paths.progress("current").parent.mkdir(parents=True, exist_ok=True)
    paths.progress("current").write_text('{"event": "staged", "batchId": 3, "rows": 8}\n')
    with acquire(paths, run_id="current", command="run", expires_after_seconds=60):
        shown = ask(root, "logs", "first").stdout
        assert shown.startswith("first  run current  unfinished\n") and "batch 3 staged: 8 rows" in shown
    assert ask(root, "logs", "first").stdout.startswith("first  run new/er  failed\n")
    refused = ask(root, "logs", "first", "nosuch")
    assert isinstance(refused.exception, TidegateError) and "'nosuch'" in refused.exception.message


def test_doctor_names_what_is_wrong_with_its_fix(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (root / "jobs" / "broken").iterdir():
        file.unlink()
    before = sorted(root.rglob("*"))
    done = ask(root, "doctor", "--json")
    findings = {one["check"]: one for one in json.loads(done.stdout)}
    assert [one for one in findings.values() if not one["ok"]] == [] and done.exit_code == 0
    assert {"packages", "java", "state", "pipelines"} <= set(findings)
    assert sorted(root.rglob("*")) == before, "it leaves nothing behind"

    java = root / "jdk"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch()
    (java / "release").write_text('JAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(java))
    (root / "data").write_text("in the way")
    (root / "jobs" / "broken" / "pipeline.yaml").write_text("name: x\n")
    monkeypatch.setattr(doctor_module, "version", lambda name: "0.0.1")
    done = ask(root, "doctor", "--json")
    wrong = {one["check"]: one for one in json.loads(done.stdout) if not one["ok"]}
    assert done.exit_code == 1
    assert set(wrong) >= {"packages", "java", "state", "warehouse", "quarantine", "pipelines"}
    assert all(one["fix"] for one in wrong.values())
    assert "Java 11.0.2" in wrong["java"]["found"] and wrong["pipelines"]["fix"] == "tidegate validate"
    shown = ask(root, "doctor").stdout
    assert shown.count("fix: ") == len(wrong) and f"{len(wrong)} of" in shown
    (java / "release").unlink()
    (java / "bin" / "java").write_text("#!/bin/sh\necho another program, version 11\n")
    (java / "bin" / "java").chmod(0o755)
    wrong = {one["check"]: one for one in json.loads(ask(root, "doctor", "--json").stdout) if not one["ok"]}
    assert wrong["java"]["found"] == f"{java}/bin/java is not Java: it prints no version"


def test_doctor_makes_the_notifiers_of_alerts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt one would be found in the night in which it is needed."""
    (root / "plugins").mkdir()
    made = "class Pager:\n    def __init__(self, service):\n        pass\n"
    (root / "plugins" / "pager_of_the_doctor.py").write_text(made)
    with (root / "tidegate.yaml").open("a") as settings:
        settings.write(
            "\nalerts:\n  notify:\n"
            "    - {notifier: pager_of_the_doctor.Pager, arguments: {service: a}}\n"
            "    - {notifier: pager_of_the_doctor.Pager, arguments: {servce: a}}\n"
            "    - {notifier: pager_of_the_doctor.Pagr}\n"
            "    - {notifier: not_there.Pager}\n"
        )
    before, path = sorted(root.rglob("*")), list(sys.path)
    done = ask(root, "doctor", "--json")
    found = [one for one in json.loads(done.stdout) if one["check"] == "alerts"]
    assert [one["ok"] for one in found] == [True, False, False, False] and done.exit_code == 1
    for one, why in zip(found[1:], ("TypeError: ", "AttributeError: ", "ModuleNotFoundError: "), strict=True):
        assert why in one["found"] and "alerts.notify" in one["fix"]
    assert sorted(root.rglob("*")) == before and sys.path == path


def test_new_from_a_file_has_no_example_with_and_without_bare(root: Path) -> None:
    (root / "in" / "a.csv").write_text("id,name\n1,x\n")
    told = []
    for name, more in (("plain", []), ("sparse", ["--bare"])):
        done = ask(root, "new", name, "--from", str(root / "in" / "a.csv"), *more)
        assert done.exit_code == 0 and "columns: id BIGINT, name STRING" in done.stdout
        told.append((root / "jobs" / name / "pipeline.yaml").read_text().replace(name, "x"))
    assert told[0] == told[1]


def test_new_outside_a_project_names_init_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    done = ask(tmp_path, "new", "orders", "--from", str(tmp_path / "a.csv"))
    assert isinstance(done.exception, TidegateError) and done.exception.code == "NO_PROJECT"
    assert str(done.exception.fix).startswith("create a project first: tidegate init DIR;")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("new", "third", "--format", "yaml"),
            "BAD_OPTIONS: these options cannot be used: --format: 'yaml' is not a format",
        ),
        (
            ("new", "third", "--from", "kafka:t", "--format", "csv"),
            "BAD_OPTIONS: these options cannot be used: --format csv: the columns of a topic",
        ),
        (("stream", "first", "--continuous", "1 second"), "BAD_OPTIONS: these options cannot be used: --continuous"),
        (("stream", "first", "--every", "often"), "BAD_OPTIONS: these options cannot be used: --every: "),
    ],
)
def test_an_option_that_is_refused(root: Path, command: tuple[str, ...], said: str) -> None:
    refused = ask(root, *command).exception
    assert isinstance(refused, TidegateError) and refused.exit_code == 64
    assert str(refused).startswith(said)
