"""``run`` and ``plan`` look at the transform's file before anything is read: a misspelt name costs no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.texts import write_project
from tidegate.core.errors import TidegateError
from tidegate.runs.reports.report import load_report
from tidegate.runs.steps import run_pipeline
from tidegate.sources.files.ledger import open_ledger
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.faults import SpecError
from tidegate.spec.project import Project
from tidegate.views.outlook import plan_pipeline

NAME = "orders"


def no_spark(plan: SubmitPlan) -> int:
    raise AssertionError("Spark was started")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A pipeline with a transform that is still to be written, and a new file in its inbox."""
    spec = f"version: 1\nname: {NAME}\nschedule: null\ntransform: transform.py\nsources:\n"
    spec += "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING, settle: 0 seconds}\n"
    return write_project(tmp_path, {f"jobs/{NAME}/pipeline.yaml": spec, "data/inbox/a.csv": "id\na\n"})


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (None, "jobs/orders/transform.py", "the file is not there"),
        ("def transform(order):\n    return order\n", "jobs/orders/transform.py:1", "'order' names no source"),
        ("def transform(orders:\n", "jobs/orders/transform.py:1", "not Python"),
    ],
)
def test_an_unusable_transform_is_named_before_anything_is_read(
    project: Project, text: str | None, where: str, said: str
) -> None:
    paths = project.paths(NAME)
    if text is not None:
        (paths.job / "transform.py").write_text(text)
    planned = plan_pipeline(project, NAME)
    assert planned["summary"] == "the next run would refuse"
    with pytest.raises(SpecError) as refused:
        run_pipeline(project, NAME, "first", submit=no_spark)
    assert (refused.value.code, refused.value.exit_code) == ("BAD_TRANSFORM", 64)
    for told in (str(refused.value), str(planned["errors"])):
        assert where in told and said in told and "tidegate validate orders" in told
    with open_ledger(paths, read_only=True) as ledger:
        assert ledger.rows() == [], "nothing was taken"
    report = load_report(paths, "first")
    assert report is not None and report.error is not None and report.error["code"] == "BAD_TRANSFORM"


def test_a_corrected_transform_is_read_with_what_waited(project: Project) -> None:
    (project.paths(NAME).job / "transform.py").write_text("def transform(order):\n    return order\n")
    with pytest.raises(SpecError):
        run_pipeline(project, NAME, "first", submit=no_spark)
    (project.paths(NAME).job / "transform.py").write_text("def transform(orders):\n    return orders\n")
    planned = plan_pipeline(project, NAME)
    assert (planned["summary"], planned["sources"]["orders"]["files"]) == ("there is something to do", 1)


def test_an_idle_run_does_not_ask(project: Project) -> None:
    (project.root / "data" / "inbox" / "a.csv").unlink()
    assert plan_pipeline(project, NAME)["summary"] == "nothing new"
    assert run_pipeline(project, NAME, "idle", submit=no_spark)["outcome"] == "nothing_new"


def test_faults_of_all_files_are_reported_at_once(project: Project) -> None:
    job = project.paths(NAME).job
    spec = (job / "pipeline.yaml").read_text().replace("transform: transform.py\n", "")
    sinks = (
        "sinks:\n- {type: foreach_batch, function: 'sinks.py:write'}\n- {type: foreach, writer: 'sinks.py:Writer'}\n"
    )
    (job / "pipeline.yaml").write_text(spec + sinks)
    (job / "sinks.py").write_text("def write(df):\n    pass\n")
    suite = project.suite_path(NAME)
    suite.parent.mkdir()
    rule = "  - type: expect_column_values_to_not_be_null\n    kwargs: {column: idd}\n"
    suite.write_text(f"name: {NAME}\nexpectations:\n{rule}")
    [planned] = plan_pipeline(project, NAME)["errors"]
    with pytest.raises(SpecError) as refused:
        run_pipeline(project, NAME, "first", submit=no_spark)
    assert str(refused.value) == str(TidegateError.from_dict(planned))
    assert [(fault.where, fault.message) for fault in refused.value.faults] == [
        ("expectations/orders.yaml:3", "rule 'column_values_to_not_be_null(idd)' reads the column 'idd', which the "
         "pipeline's rows do not have"),
        ("jobs/orders/sinks.py", "the file defines no class named Writer"),
        ("jobs/orders/sinks.py:1", "write takes 1 arguments"),
    ]  # fmt: skip
    (job / "sinks.py").write_text(
        "def write(df, batch_id):\n    pass\nclass Writer:\n    def process(self, row): ...\n"
    )
    with pytest.raises(SpecError, match=r"1 fault in expectations/orders.yaml"):
        run_pipeline(project, NAME, "second", submit=no_spark)
