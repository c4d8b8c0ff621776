"""Data Docs of a run, made by Great Expectations itself from what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.outputs import check_output
from tests.support.texts import write_project
from tidegate.cli.commands import app
from tidegate.core.errors import DefectError, UsageError
from tidegate.runs.reports.report import new_report, save_report
from tidegate.spec.project import Project
from tidegate.views.logs import make_data_docs

_SPEC = "version: 1\nname: orders\nsources:\n  s: {type: files, path: in, format: json, schema: id BIGINT}\n"
_SUITE = """name: orders
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    meta: {rule: id_present}
  - type: expect_column_values_to_match_regex
    kwargs: {column: "<i>name", regex: "^<b>$"}
    severity: warning
    meta: {rule: named}
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 1}, meta: {rule: some}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return write_project(tmp_path, {"jobs/orders/pipeline.yaml": _SPEC, "expectations/orders.yaml": _SUITE})


def save_run(project: Project, run_id: str, *more: dict[str, Any]) -> None:
    report = new_report("orders", run_id)
    report.outcome = "held"
    report.rows |= {"read": 40, "staged": 40}
    common = {"severity": "critical", "unexpected_count": None, "observed_value": None}
    report.quality = {
        "suite": "orders",
        "verdict": "failed",
        "results": [
            {**common, "rule": "id_present", "type": "expect_column_values_to_not_be_null", "success": False}
            | {"unexpected_count": 3},
            {**common, "rule": "named", "type": "expect_column_values_to_match_regex", "success": True}
            | {"unexpected_count": 0},
            {**common, "rule": "some", "type": "expect_table_row_count_to_be_between", "success": True}
            | {"observed_value": 40},
            *({**common, **one} for one in more),  # type: ignore[typeddict-item]
        ],
    }
    save_report(project.paths("orders"), report)


def test_every_rule_is_on_the_page_and_nothing_of_it_is_code(project: Project, tmp_path: Path) -> None:
    own = {"rule": "max_quarantine_share", "type": "tidegate", "success": False, "observed_value": 0.5}
    sql = {"rule": "sql", "type": "unexpected_rows_expectation", "success": False, "unexpected_count": 41}
    with (project.root / "expectations/orders.yaml").open("a") as suite:
        suite.write("  - {type: unexpected_rows_expectation, kwargs: {unexpected_rows_query: 'SELECT 1 FROM {table}'}")
        suite.write(", meta: {rule: sql}}\n")
    gone = {"rule": "<script>x</script>", "type": "expect_column_values_to_be_unique", "success": True}
    save_run(project, "R/1", own, gone, sql)
    made = make_data_docs(project, "orders", "R/1", tmp_path / "site")
    page = Path(made["page"]).read_text()
    assert Path(made["index"]).is_file() and made["run_id"] == "R/1"
    assert "values must never be null" in page and "3 unexpected values found" in page and "7.5%" in page
    assert "max_quarantine_share (tidegate's own)" in page and "&lt;b&gt;" in page and "&amp;lt;" not in page
    assert "<script>x" not in page and "<i>name" not in page and "no longer in the suite" in page
    assert "50%" in page  # three of six held
    assert ">41<" in page and "SELECT 1 FROM {table}" in page and "102.5%" not in page

    save_run(project, "R2")
    again = make_data_docs(project, "orders", None, tmp_path / "site")
    assert again["run_id"] == "R2" and not Path(made["page"]).exists()
    index = Path(again["index"]).read_text()
    assert "R_1" not in index and "R2" in index


def test_what_cannot_be_shown_is_refused(project: Project, tmp_path: Path) -> None:
    def refuse(run_id: str | None, folder: Path) -> str:
        with pytest.raises(UsageError) as caught:
            make_data_docs(project, "orders", run_id, folder)
        return caught.value.code

    assert refuse(None, tmp_path / "site") == refuse("R9", tmp_path / "site") == "NO_SUCH_RUN"
    save_report(project.paths("orders"), new_report("orders", "R0"))
    assert refuse("R0", tmp_path / "site") == "NO_SUCH_RUN" and refuse(None, tmp_path / "site") == "NO_SUCH_RUN"
    save_run(project, "R1")
    assert refuse("R1", project.jobs) == "DATA_DOCS_FOLDER" and not (project.jobs / "index.html").exists()
    assert not (tmp_path / "site").exists()


def test_the_command_prints_the_page(project: Project, tmp_path: Path) -> None:
    save_run(project, "R1")
    command = ["--project", str(tmp_path), "data-docs", "orders", "--to", str(tmp_path / "site")]
    done = CliRunner().invoke(app, [*command, "R1"])
    assert done.exit_code == 0, done.output
    printed = done.output.strip()
    assert printed.endswith("orders-R1.html") and Path(printed).is_file()
    made = check_output("data-docs", CliRunner().invoke(app, [*command, "--json"]).output)
    assert made["page"] == printed and made["run_id"] == "R1"


def test_a_page_that_the_library_could_not_make_is_an_error(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It logs why, and goes on as if it had made one."""
    from great_expectations.render.view import DefaultJinjaPageView

    def broken(*_: object, **__: object) -> str:
        raise ValueError("no template")

    save_run(project, "r1")
    monkeypatch.setattr(DefaultJinjaPageView, "render", broken)
    with pytest.raises(DefectError) as error:
        make_data_docs(project, "orders", "r1", tmp_path / "docs")
    assert error.value.code == "DATA_DOCS_NOT_MADE" and "no template" in str(error.value)
