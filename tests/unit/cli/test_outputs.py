"""The shipped JSON Schemas of ``--json`` are what the commands print, and are current."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
import typer.main
from typer.testing import CliRunner

from tests.support.held import GOOD, NAME, Held, commands
from tests.support.outputs import check_output
from tests.unit.settled_projects import make_project, make_settled, write_spec
from tidegate.cli import outputs
from tidegate.cli.commands import app
from tidegate.core import outputs as printed_types
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.storage import write_note
from tidegate.runs.decide import decide
from tidegate.runs.preflight import definition
from tidegate.runs.reports.report import RunReport
from tidegate.runs.reports.verdicts import Answer
from tidegate.sources.kafka import brokers
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile
from tidegate.table.quarantine.read import write_quarantine_rows
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON
from tidegate.views.status import KINDS


def ask(root: Path, *command: str) -> str:
    return CliRunner().invoke(app, ["--project", str(root), *command, "--json"]).stdout


def test_the_schemas_are_current_and_sound() -> None:
    assert outputs.list_stale() == [] and outputs.main(["--check"]) == 0, "python -m tidegate.cli.outputs"
    for schema in outputs.build_schemas().values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert set(printed_types.RunReport.__annotations__) == {field.name for field in dataclasses.fields(RunReport)}


def test_every_command_with_json_has_a_schema() -> None:
    leaves = _leaves("", typer.main.get_command(app))
    with_json = {name for name, command in leaves if any("--json" in one.opts for one in command.params)}
    printed = {name.strip() for _, whose in outputs.OUTPUTS.values() for name in whose.partition(";")[0].split(",")}
    assert with_json - printed == {"stream"}, "that one prints reports, one a line"


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for one, inner in getattr(command, "commands", {}).items():
        yield from _leaves(f"{name} {one}".strip(), inner)
    if not hasattr(command, "commands"):
        yield name, command


def test_kinds_are_those_of_the_code() -> None:
    assert get_args(get_type_hints(printed_types.Trouble)["kind"]) == tuple(KINDS)
    assert get_args(get_type_hints(printed_types.Change)["kind"]) == definition.KINDS


def test_what_is_not_in_a_schema_does_not_fit(tmp_path: Path) -> None:
    make_settled(make_project(tmp_path), "flow")
    rows = json.loads(ask(tmp_path, "status"))
    for key, value in (("backlog", "s 1 file"), ("more", 1)):
        with pytest.raises(jsonschema.ValidationError):
            check_output("status", json.dumps([{**rows[0], key: value}]))


def test_a_project_with_sound_and_faulty_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_PATIENCE_SECONDS", 0.2)
    project = make_project(tmp_path, 'version: 1\nkafka: {bootstrap_servers: "127.0.0.1:9"}\n')
    make_settled(project, "sound", waiting=2)
    make_settled(project, "gone")
    write_spec(project, "away", "{type: kafka, topics: [t], format: text}")
    write_spec(project, "faulty", "{tipe: files}")
    (project.paths("gone").table / "_delta_log").rename(tmp_path / "aside")
    rows = {row["pipeline"]: row for row in check_output("status", ask(tmp_path, "status"))}
    codes = {name: [error["code"] for error in row["errors"]] for name, row in rows.items()}
    assert codes == {"sound": [], "gone": ["TABLE_GONE"], "away": ["BROKER_AWAY"], "faulty": ["BAD_SPEC"]}
    assert check_output("plan", ask(tmp_path, "plan", "sound"))["sources"]["s"]["files"] == 2
    assert check_output("plan", ask(tmp_path, "plan", "gone"))["errors"][0]["fix"]
    for name, code in {"sound": 0, "gone": 78, "away": 75, "faulty": 64}.items():
        planned = CliRunner().invoke(app, ["--project", str(tmp_path), "plan", name])
        assert code == (getattr(planned.exception, "exit_code", planned.exit_code)), name
    assert len(check_output("list", ask(tmp_path, "list"))) == 4
    assert check_output("logs", ask(tmp_path, "logs", "sound"))["outcome"] == "published"
    assert check_output("doctor", ask(tmp_path, "doctor"))
    assert check_output("validate", ask(tmp_path, "validate"))[0]["fix"]
    assert check_output("repair", ask(tmp_path, "repair", "gone", "--dry-run"))["code"] == "TABLE_GONE"
    assert check_output("acknowledge", ask(tmp_path, "acknowledge", "sound", "--reason", "seen"))["left"] == 0
    reports = check_output("reports", ask(tmp_path, "run", "gone", "faulty"))
    assert [report["error"]["code"] for report in reports] == ["TABLE_GONE", "BAD_SPEC"]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    value = Held(tmp_path)
    with commands(lambda: value):
        value.hold()
        yield value


def test_a_held_run_and_its_release(held: Held) -> None:
    assert check_output("report", (held.paths.report("R1")).read_text())["outcome"] == "held"
    for command in (["plan", NAME], ["plan", NAME, "--json"]):
        planned = CliRunner().invoke(app, ["--project", str(held.project.root), *command])
        assert planned.exit_code == 65 and "critical" not in planned.stderr
    with pytest.raises(HeldError):
        held.run("R1")
    command = ["--project", str(held.project.root), "release", NAME, "R1", "--reason", "seen"]
    first = CliRunner().invoke(app, command)
    again = CliRunner().invoke(app, command)
    assert (first.exit_code, again.exit_code, first.stdout, first.stderr) == (0, 0, again.stdout, "")
    assert "decided at" in again.stderr and "to release run R1; the decision is kept" in again.stderr
    released = check_output("report", json.dumps(held.decide("release")))
    assert CliRunner().invoke(app, ["--project", str(held.project.root), "plan", NAME]).exit_code == 75
    assert released["decision"]["decision"] == "release"
    check_output("report", json.dumps(held.run("R2", GOOD)))
    with pytest.raises(TidegateError) as refused:
        decide(held.project, NAME, "nosuch", Answer("discard", "x"))
    check_output("error", json.dumps({"error": refused.value.to_dict()}))


def test_quarantined_records(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    path = project.paths("flow").quarantine / "part-x.parquet"
    record = {"pipeline": "flow", "run_id": "R", "source": "s", "raw": "{", "reason": "malformed"}
    record |= {"position": '{"file": "a", "line": 3}', "quarantined_at": datetime(2026, 1, 1, tzinfo=UTC)}
    write_quarantine_rows(path, [record, {**record, "source": None, "position": None, "reason": "late"}])
    commit_files(
        path.parent,
        Commit(schema_json=QUARANTINE_SCHEMA_JSON, add=[DataFile(path.name, 2, path.stat().st_size)], app_id="q"),
    )
    assert len(check_output("quarantine-list", ask(tmp_path, "quarantine", "list", "flow"))) == 2
    assert len(check_output("quarantine-show", ask(tmp_path, "quarantine", "show", "flow"))) == 2
    write_note(project.paths("flow").quarantined, 3, {"version": 3})
    older = CliRunner().invoke(app, ["--project", str(tmp_path), "quarantine", "list", "flow"])
    assert older.exit_code == 0 and "malformed" in older.stdout
    assert older.stderr.startswith("QUARANTINE_BEHIND: quarantine is at version 0; it was at version 3")
    shutil.rmtree(path.parent)
    for command in ("list", "show", "export"):
        refused = CliRunner().invoke(app, ["--project", str(tmp_path), "quarantine", command, "flow"]).exception
        assert getattr(refused, "code", None) == "QUARANTINE_BEHIND"
