"""What Spark's optimizer makes of a schema with many columns, under the settings of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.quality.row_rules import RowRule
from tidegate.spark.driver.jvm import driver_conf
from tidegate.spark.ingest import plan
from tidegate.spark.ingest.look import malformed_records
from tidegate.spark.reading.frames import read_files
from tidegate.spec.models import FilesSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = 9
"""Few enough that 2^n facts about the rows are found by counting, and not by waiting for them."""


@pytest.fixture
def as_in_a_run(spark: SparkSession) -> Iterator[SparkSession]:
    key = "spark.sql.constraintPropagation.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, driver_conf(0, 0, 1)[key])
    yield spark
    spark.conf.set(key, str(before))


def _rules(number: int) -> list[RowRule]:
    return [RowRule(f"rule_{n}", f"`d{n % _COLUMNS}` < {n}") for n in range(number)]


def _parsed(spark: SparkSession, folder: Path) -> DataFrame:
    names = [f"d{number}" for number in range(_COLUMNS)]
    (folder / "one.json").write_text(json.dumps(dict.fromkeys(names, 1.5)) + "\n")
    schema = ", ".join(f"{name} DOUBLE" for name in names)
    spec = FilesSource(type="files", path="in", format="json", schema=schema)
    return read_files(spark, folder, ["one.json"], spec)


def _below(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(number) for number in range(children.size())]


def _count_facts(node: Any) -> int:
    """How many facts Spark's optimizer derives about the rows of a plan, node by node."""
    return int(node.validConstraints().size()) + sum(_count_facts(child) for child in _below(node))


def _depth(expression: Any) -> int:
    return 1 + max((_depth(child) for child in _below(expression)), default=0)


def test_what_spark_derives_grows_with_the_columns_and_not_with_their_subsets(
    as_in_a_run: SparkSession, tmp_path: Path
) -> None:
    parsed = _parsed(as_in_a_run, tmp_path)
    good = plan.good_records(plan.observe_source(parsed, "s"), "s", with_provenance=True)
    rows = plan.staged_rows(plan.observe_rules(plan.flag_rules(plan.observe_entered(good, "s"), _rules(8)), _rules(8)))
    for frame in (rows, malformed_records({"s": parsed})):
        assert _count_facts(frame._jdf.queryExecution().optimizedPlan()) < 2**_COLUMNS


def test_many_rules_are_no_deep_expression(spark: SparkSession, tmp_path: Path) -> None:
    flagged = plan.flag_rules(_parsed(spark, tmp_path), _rules(200))
    top = flagged._jdf.queryExecution().analyzed()
    assert _depth(top.projectList().last()) < 20
