"""``tidegate validate`` on custom SQL: its syntax with the line, and the package that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.texts import write_project
from tidegate.core import extras
from tidegate.spec.project import Project
from tidegate.views.validate import validate_project

_SPEC = (
    "version: 1\nname: orders\nschedule: null\nsources:\n  s: {type: files, path: in, format: csv, schema: id INT}\n"
)
_SUITE = """\
name: orders
expectations:
  - type: unexpected_rows_expectation
    kwargs: {unexpected_rows_query: "SELECT * FROM {batch} WHERE id > 1"}
    meta: {rule: a}
  - type: unexpected_rows_expectation
    kwargs: {unexpected_rows_query: "SELECT * FORM {batch}"}
    meta: {rule: b}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return write_project(tmp_path, {"jobs/orders/pipeline.yaml": _SPEC, "expectations/orders.yaml": _SUITE})


def test_a_query_that_is_not_sql(project: Project) -> None:
    [fault] = validate_project(project)
    assert (fault.file, fault.line, fault.code) == ("expectations/orders.yaml", 6, "BAD_SUITE")
    assert "rule 'b': DuckDB cannot parse the query: Parser Error: syntax error at or near" in fault.message


def test_the_package_is_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    [fault] = validate_project(project)
    assert fault.code == "EXTRA_MISSING" and fault.fix == 'pip install "tidegate[sql]"'
