"""What can run in which output mode: each operator tried in each, and compared with the page of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tools.streaming_table import MODES, OPERATORS, PAGE, render, try_all, try_operator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_page_of_operators_and_modes_is_what_happens(spark: SparkSession, tmp_path: Path) -> None:
    """Every combination: built as a run builds it; what is let through is run twice and must not fail."""
    found = try_all(spark, tmp_path)
    failed = {name: modes for name, modes in found.items() if any("FAILS" in why for why in modes.values())}
    assert failed == {}, "let through, and then it failed"
    assert PAGE.read_text(encoding="utf-8") == render(found), "write it again: python -m tools.streaming_table"
    assert len(found) == len(OPERATORS) and all(set(modes) == set(MODES) for modes in found.values())


def test_a_refusal_names_the_line(spark: SparkSession, tmp_path: Path) -> None:
    """Of the call that made the operator, also when the fault shows only in the result; in SQL of the keyword."""
    import pytest

    from tidegate.core.errors import UsageError
    from tidegate.spark.driver.order import IngestOrder
    from tidegate.spark.ingest.query import prepare_query
    from tidegate.spark.ingest.read import SourceReader
    from tidegate.spec.pipeline import load_pipeline
    from tidegate.spec.project import load_project

    sort = next(one for one in OPERATORS if one.name == "sort")
    try_operator(spark, sort, "append", tmp_path / "p")
    job = tmp_path / "p/jobs/tried"

    def refused() -> UsageError:
        project = load_project(tmp_path / "p")
        spec = load_pipeline(project, "tried")
        order = IngestOrder("", "tried", "r", "1")
        reader = SourceReader(spark, project, project.paths("tried"), order, spec)
        with pytest.raises(UsageError) as caught:
            prepare_query(spark, project, spec, order, reader.streams())
        assert caught.value.code == "UNSUPPORTED_OPERATION"
        return caught.value

    (job / "transform.py").write_text(
        "def transform(a):\n    b = a.where('n > 0')\n    c = b.orderBy(\n        'id'\n    )\n"
        "    return c.select('id')\n"
    )
    assert str(refused().where) == f"{job}/transform.py:3"
    (job / "helper.py").write_text("def first(frame):\n    return frame.limit(frame.count())\n")
    (job / "transform.py").write_text("import helper\n\n\ndef transform(a):\n    return helper.first(a)\n")
    assert str(refused().where) == f"{job}/helper.py:2"
    spec = job / "pipeline.yaml"
    spec.write_text(spec.read_text().replace("transform.py", "transform.sql"))
    (job / "transform.sql").write_text("SELECT id\nFROM a\nORDER BY id\n")
    assert str(refused().where) == f"{job}/transform.sql:3"
