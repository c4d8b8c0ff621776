"""``plan`` shows what was changed since the pipeline last read: columns, rules, query, settings."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.outputs import check_output
from tests.support.texts import write_project
from tidegate.cli.commands import app
from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.definition import (
    describe_definition,
    list_changes,
    list_edits,
    list_settings,
    note_definition,
)
from tidegate.spec.as_read import read_spec
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project

NAME = "orders"
_SPEC = """version: 1
name: orders
schedule: "*/10 * * * *"
transform: transform.py
sources:
  orders:
    type: files
    path: in
    format: csv
    schema: id STRING, amount INT
    options: {sep: ";"}
"""
_SUITE = """name: orders
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: id}, severity: critical, meta: {rule: has_id}}
"""


def note(project: Project, paths: PipelinePaths, run_id: str) -> None:
    note_definition(paths, describe_definition(project, load_pipeline(project, NAME), paths), run_id)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    texts = {"jobs/orders/pipeline.yaml": _SPEC, "expectations/orders.yaml": _SUITE}
    texts["jobs/orders/transform.py"] = "def transform(orders):\n    return orders\n"
    (tmp_path / "in").mkdir()
    return write_project(tmp_path, texts)


def change(project: Project, path: str, old: str, new: str) -> None:
    file = project.root / path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_what_was_changed_since_the_last_read(project: Project) -> None:
    paths = project.paths(NAME)

    def ask(*options: str) -> str:
        return CliRunner().invoke(app, ["--project", str(project.root), "plan", NAME, *options]).stdout

    before = check_output("plan", ask("--json"))
    assert (before["changes_since"], before["changes"]) == (None, []), "it has never read"
    note(project, paths, "R1")
    assert check_output("plan", ask("--json"))["changes"] == [] and "changed since" not in ask()

    change(project, "jobs/orders/pipeline.yaml", "amount INT", "amount BIGINT, paid BOOLEAN")
    change(project, "jobs/orders/pipeline.yaml", '"*/10 * * * *"', "null")
    change(project, "jobs/orders/pipeline.yaml", 'sep: ";"', 'sep: ","')
    change(project, "jobs/orders/transform.py", "return orders\n", "return orders.where('amount > 0')\n")
    change(project, "expectations/orders.yaml", "rule: has_id", "rule: id_present")
    found = check_output("plan", ask("--json"))
    assert found["changes_since"] == "R1"
    changes = {(one["kind"], one["name"]): (one["was"], one["now"]) for one in found["changes"]}
    assert changes.pop(("column", "orders.amount")) == ("int", "bigint")
    assert changes.pop(("column", "orders.paid")) == (None, "boolean")
    assert changes.pop(("setting", "schedule")) == ("*/10 * * * *", None)
    assert changes.pop(("setting", "sources.orders.options.sep")) == (";", ",")
    assert changes.pop(("rule", "has_id"))[1] is None and changes.pop(("rule", "id_present"))[0] is None
    assert [*changes] == [("query", "transform.py")]
    shown = ask()
    for line in ("column orders.amount: int -> bigint", "+ column orders.paid", "query transform.py was edited"):
        assert line in shown


def test_edits_are_kept_with_the_run_that_first_read_with_them(project: Project) -> None:
    paths = project.paths(NAME)

    note(project, paths, "R1")
    note(project, paths, "R2")
    assert list_edits(paths) == []
    change(project, "jobs/orders/pipeline.yaml", "amount INT", "amount BIGINT")
    note(project, paths, "R3")
    note(project, paths, "R3")
    change(project, "expectations/orders.yaml", "rule: has_id", "rule: id_present")
    note(project, paths, "R4")
    first, second = list_edits(paths)
    assert (first["run_id"], second["run_id"]) == ("R3", "R4") and first["at"] <= second["at"]
    assert first["changes"] == [{"kind": "column", "name": "orders.amount", "was": "int", "now": "bigint"}]
    assert [(one["kind"], one["name"]) for one in second["changes"]] == [("rule", "has_id"), ("rule", "id_present")]
    for number in range(60):
        was = paths.job / "transform.py"
        was.write_text(was.read_text() + f"# {number}\n")
        note(project, paths, f"N{number}")
    assert [one["run_id"] for one in list_edits(paths)] == [f"N{number}" for number in range(10, 60)]
    for torn in (b"{", b"[]", b'{"run_id": "x", "definition": []}', b'{"run_id": "x", "definition": {}, "edits": [1]}'):
        paths.definition.write_bytes(torn)
        assert list_edits(paths) == []
        note(project, paths, "T")  # no run fails of it


def test_no_secret_is_noted(project: Project) -> None:
    change(project, "jobs/orders/pipeline.yaml", 'options: {sep: ";"}', "options: {}")
    spec = load_pipeline(project, NAME)
    hidden = {"password": "hunter2", "sasl.jaas.config": "hunter3", "plain": "shown"}
    source = spec.sources["orders"].replace(options=hidden)
    hiding = spec.replace(sources={"orders": source})
    note_definition(project.paths(NAME), describe_definition(project, hiding, project.paths(NAME)), "R1")
    text = project.paths(NAME).definition.read_text()
    assert "shown" in text and "hunter" not in text


def test_settings_of_a_received_source_are_those_of_its_files() -> None:
    """What stands for it while a run reads is no setting, or each pipeline of the kind would seem to be edited."""
    keys = {"version": 1, "name": "tick", "sources": {"r": {"type": "rate", "options": {"rowsPerSecond": 5}}}}
    spec = read_spec(PipelineSpec.read(keys), lambda name: Path("spool") / name, {})
    settings = {key: value for key, value in list_settings(spec) if key.startswith("sources.")}
    assert settings.pop("sources.r.path") == "spool/r"
    assert settings == {
        "sources.r.type": "files",
        "sources.r.format": "json",
        "sources.r.start": "all",
        "sources.r.static": "false",
        "sources.r.on_change": "report",
        "sources.r.unknown_fields": "report",
        "sources.r.values": "exact",
        "sources.r.follow_links": "[]",
    }


def test_whom_to_tell_is_no_change(project: Project) -> None:
    note(project, project.paths(NAME), "R1")
    change(project, "jobs/orders/pipeline.yaml", "transform: ", "alerts: {held: false}\ntransform: ")
    assert list_changes(project, load_pipeline(project, NAME), project.paths(NAME)) == ("R1", [])


def test_a_disk_that_takes_or_gives_no_note_changes_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = project.paths(NAME)
    note(project, paths, "R1")
    change(project, "jobs/orders/pipeline.yaml", "amount INT", "amount BIGINT")
    note(project, paths, "R2")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("replace", "read_json"):
        with monkeypatch.context() as patch:
            patch.setattr(storage, call, fail)
            note(project, paths, "R3")  # no run fails of it
    assert [one["run_id"] for one in list_edits(paths)] == ["R2"]
