"""Data sets are named by the rules of OpenLineage, and figures are those of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.core.outputs import RunReport
from tidegate.runs.reports.report import new_report
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.signals.lineage import Lineage, name_broker, name_folder, of_delivery, of_publish

_SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: "in/*/new-*.json", format: json, schema: "id BIGINT, at TIMESTAMP"}
  many: {type: kafka, topics: [a, b], format: text}
  made: {type: rate}
transform: transform.py
sinks: [{type: kafka, topic: out}, {type: console}]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "jobs" / "orders").mkdir(parents=True)
    (tmp_path / "tidegate.yaml").write_text("version: 1\nkafka: {bootstrap_servers: 'k'}\n")
    (tmp_path / "jobs" / "orders" / "pipeline.yaml").write_text(_SPEC)
    return load_project(tmp_path)


def make(**more: Any) -> RunReport:
    report = new_report("orders", "R1")
    report.outcome, report.table = "published", {"version": 3, "files_added": 2, "rows_added": 7}
    report.sources = {"orders": {"rows": 9, "files": 2, "bytes": 300}, "many": {"rows": 4, "offsets": {"c": {}}}}
    for key, value in more.items():
        setattr(report, key, value)
    return report.to_json()


@pytest.mark.parametrize(
    ("servers", "named"),
    [
        ("localhost:9092", "kafka://localhost:9092"),
        ("a:9093, b:9092", "kafka://a:9093"),
        ("a", "kafka://a:9092"),
        ("SASL_SSL://a:9093", "kafka://a:9093"),
    ],
)
def test_brokers(servers: str, named: str) -> None:
    assert name_broker(servers) == named


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("in", ("file", "/p/in")),
        ("in/", ("file", "/p/in")),
        ("in/*/x.json", ("file", "/p/in")),
        ("/abs/day=[0-9]*/", ("file", "/abs")),
        ("file:///a/b", ("file", "/a/b")),
        ("s3://lake/in/", ("s3://lake", "in")),
        ("s3://lake/in/day=*/x.json", ("s3://lake", "in")),
        ("s3://lake/*", ("s3://lake", "/")),
    ],
)
def test_folders(path: str, named: tuple[str, str]) -> None:
    assert name_folder(Project(Path("/p"), None), path) == named  # type: ignore[arg-type]


def test_every_source_with_a_name_is_an_input(project: Project) -> None:
    found = of_publish(project, load_pipeline(project, "orders"), make())
    assert [(one.namespace, one.name, one.rows) for one in found.inputs] == [
        ("file", str(project.root / "in"), 9),
        ("kafka://k:9092", "a", None),
        ("kafka://k:9092", "b", None),
        ("kafka://k:9092", "c", None),
    ]
    files = found.inputs[0]
    assert (files.files, files.bytes, dict(files.columns)) == (2, 300, {"id": "bigint", "at": "timestamp"})
    (table,) = found.outputs
    assert (table.name, table.rows, table.files, table.version, table.change) == (
        str(project.own_table("orders")),
        7,
        2,
        3,
        None,
    )
    (again,) = of_publish(project, load_pipeline(project, "orders"), make(mode="refresh")).outputs
    assert again.change == "OVERWRITE"


def test_a_run_without_rows_in_the_table_has_none(project: Project) -> None:
    spec = load_pipeline(project, "orders")
    for outcome in ("nothing_new", "held", "discarded", "failed", None):
        assert of_publish(project, spec, make(outcome=outcome)) == Lineage()


def test_topics_that_were_fed(project: Project) -> None:
    spec = load_pipeline(project, "orders")
    sink = {"type": "kafka", "name": "kafka:out", "version": 3, "behind": 0, "error": None}
    found = of_delivery(project, spec, make(sinks=[sink]))
    assert [one.version for one in found.inputs] == [3]
    assert [(one.namespace, one.name) for one in found.outputs] == [("kafka://k:9092", "out")]
    assert of_delivery(project, spec, make(sinks=[{**sink, "error": "away"}])) == Lineage()
