"""Increments too large for pandas: the driver judges the rows that become visible, and the audit takes its word."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.keyed import Keyed
from tests.support.readers import canonical
from tidegate.core import storage
from tidegate.quality.engine import RuleResult
from tidegate.quality.gx_types import QUERY_TYPE
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.runs.gate import increment
from tidegate.runs.opening import recover_run
from tidegate.spark.driver.order import Bounds, IngestOrder
from tidegate.spark.driver.progress import describe_event, parse_marker
from tidegate.spark.ingest import judge, pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SUITE = SuiteSpec(
    "orders",
    (
        RuleSpec("sql", QUERY_TYPE, {"unexpected_rows_query": "SELECT * FROM {table} WHERE n = 1"}, severity="warning"),
        RuleSpec("r", "expect_column_values_to_not_be_null", {"column": "id"}),
    ),
)


def test_a_large_increment_is_judged_folded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pace, "_PAUSE_SECONDS", 0.05)
    keyed = Keyed(tmp_path, partition_by=["city"])
    first = [{"id": number, "city": city, "n": 0} for number, city in enumerate(["Oslo", "01", None, "a/b %"])]
    second = [{"id": 1, "city": "01", "n": 1}, {"id": 3, "city": "Oslo", "n": 1}]
    keyed.stage([*first, {"id": 9, "city": "Oslo", "n": 0}], second)
    judged: list[dict[str, Any]] = []

    def judge_dataframe(suite: SuiteSpec, frame: DataFrame) -> list[RuleResult]:
        assert [rule.rule for rule in suite.rules] == ["r"]  # DuckDB runs custom SQL, in the audit
        judged.extend(frame.toArrow().to_pylist())
        spark.sparkContext.parallelize(range(6), 6).foreach(lambda _: time.sleep(0.5))
        return [RuleResult("r", "t", "critical", True)]

    monkeypatch.setattr("tidegate.spark.ingest.spark_engine.judge_dataframe", judge_dataframe)
    monkeypatch.setattr(judge, "choose_engine", lambda *_: "spark")
    monkeypatch.setattr(judge, "check_token", lambda *_: None)
    order = IngestOrder(str(tmp_path), "orders", "run", 1, {}, {}, {}, None, None, {})
    judge.judge_if_large(spark, keyed.paths, order, SUITE, keyed.spec)
    shown = [describe_event(event) for line in capsys.readouterr().out.splitlines() if (event := parse_marker(line))]
    assert shown[0] == "audit: 5 rows | 1 rule | note: in Spark, for their number"
    assert any(line.startswith("audit: tasks: ") and line.endswith(" of 6") for line in shown)
    expected = [*(row for row in first if row["id"] not in (1, 3)), *second, {"id": 9, "city": "Oslo", "n": 0}]
    assert canonical(judged) == canonical(expected)

    context = keyed.context("run")
    facts = recover_run(context)
    folded = increment.fold_unpublished(keyed.paths, facts.unpublished, keyed.spec)
    results = increment._judge(context, SUITE, facts.unpublished, folded)
    others = increment._find_others(context, facts.unpublished, folded, None)
    visible = increment._list_visible(facts.unpublished, folded)
    results += increment._judge_queries(
        context, replace(SUITE, rules=SUITE.queries), visible, facts.unpublished[-1].schema_json, others
    )
    assert [(one.rule, one.unexpected_count) for one in results] == [("r", None), ("sql", 2)]
    assert storage.read_json(keyed.paths.driver_results("run"))[0]["folds"]
    assert keyed.run("run").rows["superseded"] == 2


def test_each_large_day_of_a_backfill_is_judged_by_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit takes the driver's results for the day that they are of, and judges the small one itself."""
    keyed = Keyed(tmp_path, partition_by=["city"])
    keyed.stage([{"id": number, "city": city, "n": 0} for number, city in enumerate(["Oslo", "Oslo", "Bonn", "Rome"])])
    spec = keyed.spec.replace(output_mode="append")
    days = {city: {"city": [city]} for city in ("Oslo", "Bonn")}

    def judge_dataframe(_suite: object, frame: DataFrame) -> list[RuleResult]:
        return [RuleResult("r", "t", "critical", True, observed_value=f"Spark: {frame.count()} rows")]

    def judge_files(_suite: object, files: list[Any], _types: object) -> list[RuleResult]:
        return [RuleResult("r", "t", "critical", True, observed_value=f"pandas: {len(files)} file")]

    monkeypatch.setattr("tidegate.spark.ingest.spark_engine.judge_dataframe", judge_dataframe)
    monkeypatch.setattr("tidegate.quality.pandas_engine.judge_files", judge_files)
    monkeypatch.setattr(judge, "choose_engine", lambda rows, *_: "spark" if rows > 1 else "pandas")
    monkeypatch.setattr(judge, "check_token", lambda *_: None)
    bounds = Bounds({"city": ["Oslo", "Bonn"]}, days=list(days.values()))
    order = IngestOrder(str(tmp_path), "orders", "run", "1", bounds=bounds)
    judge.judge_if_large(spark, keyed.paths, order, SUITE, spec)
    context = keyed.context("run")
    staged = recover_run(context).unpublished
    found = {
        city: increment._judge_day(context, SUITE, staged, within, None)[0].observed_value
        for city, within in days.items()
    }
    assert found == {"Oslo": "Spark: 2 rows", "Bonn": "pandas: 1 file"}
