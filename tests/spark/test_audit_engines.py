"""One verdict whichever engine judges: pandas on the files, Spark in the running session."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.core.errors import UsageError
from tidegate.quality.engine import RuleResult
from tidegate.quality.pandas_engine import judge_files
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.spark.ingest.spark_engine import judge_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "a.b `c`"
TYPES = {
    "id": "bigint", "amount": "double", "price": "decimal(20,4)", "name": "string", ODD: "int", "day": "date",
    "at": "timestamp", "ok": "boolean", "tags": "array<string>",
}  # fmt: skip
_CONDITION = {"condition_parser": "great_expectations"}
RULES: list[tuple[str, dict[str, Any]]] = [
    ("expect_column_max_to_be_between", {"column": "at", "max_value": "2024-06-30T00:00:00Z"}),
    ("expect_column_min_to_be_between", {"column": "at", "min_value": "2024-01-01", "strict_min": True}),
    ("expect_column_max_to_be_between", {"column": "day", "max_value": "2024-03-01"}),
    ("expect_column_min_to_be_between", {"column": "day", "min_value": "2024-01-01", "max_value": "2024-01-01"}),
    ("expect_column_sum_to_be_between", {"column": "price", "min_value": 0}),
    ("expect_column_max_to_be_between", {"column": "price", "max_value": 99.99}),
    ("expect_column_mean_to_be_between", {"column": "amount", "min_value": 0, "max_value": 1}),
    ("expect_column_stdev_to_be_between", {"column": "amount", "min_value": 0, "max_value": 1}),
    ("expect_column_sum_to_be_between", {"column": "id", "max_value": 10}),
    ("expect_column_mean_to_be_between", {"column": ODD, "min_value": 0}),
    ("expect_column_values_to_be_between", {"column": ODD, "min_value": 3}),
    ("expect_column_values_to_not_be_null", {"column": ODD, "mostly": 0.5}),
    ("expect_column_values_to_not_be_null", {"column": "tags"}),
    ("expect_column_values_to_be_unique", {"column": "id"}),
    ("expect_column_values_to_be_unique", {"column": "name"}),
    ("expect_compound_columns_to_be_unique", {"column_list": ["id", "name"]}),
    ("expect_column_unique_value_count_to_be_between", {"column": "name", "max_value": 3}),
    ("expect_column_proportion_of_unique_values_to_be_between", {"column": "id", "min_value": 0.99}),
    ("expect_column_proportion_of_non_null_values_to_be_between", {"column": "name", "min_value": 0.99}),
    ("expect_column_distinct_values_to_be_in_set", {"column": "name", "value_set": ["a", "b"]}),
    ("expect_column_distinct_values_to_contain_set", {"column": "name", "value_set": ["a"]}),
    ("expect_column_most_common_value_to_be_in_set", {"column": "ok", "value_set": [True]}),
    ("expect_table_row_count_to_equal", {"value": 200}),
    ("expect_table_row_count_to_be_between", {"min_value": 201}),
    ("expect_table_columns_to_match_set", {"column_set": list(TYPES)}),
    ("expect_table_columns_to_match_ordered_list", {"column_list": list(TYPES)[::-1]}),
    ("expect_column_to_exist", {"column": ODD}),
    ("expect_column_values_to_match_regex", {"column": "name", "regex": "^[ab]$", "mostly": 0.4}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "at", "column_B": "day", "or_equal": True}),
    ("expect_column_values_to_be_in_set", {"column": "price", "value_set": [1, 2], "mostly": 0.01}),
    ("expect_column_values_to_not_be_null",
     {"column": "price", "row_condition": 'col("name") == "a"', **_CONDITION}),
    ("expect_column_values_to_be_between",
     {"column": "amount", "max_value": 5, "row_condition": 'col("a.b `c`") > 3', **_CONDITION}),
    ("expect_column_mean_to_be_between",
     {"column": "id", "max_value": 5, "row_condition": 'col("name").notNull()', **_CONDITION}),
    ("expect_table_row_count_to_be_between",
     {"max_value": 5, "row_condition": 'col("id") < 50', **_CONDITION}),
    ("expect_column_pair_values_to_be_equal",
     {"column_A": "id", "column_B": ODD, "row_condition": 'col("name") == "b"', **_CONDITION}),
]  # fmt: skip


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 rows as they are staged."""
    dice = random.Random(3)
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def some(values: list[Any]) -> list[Any]:
        return [None if dice.random() < 0.1 else value for value in values]

    table = pa.table(
        {
            "id": pa.array([*range(199), 5], pa.int64()),
            "amount": pa.array(some([dice.random() * 10 for _ in range(200)]), pa.float64()),
            "price": pa.array(
                some([Decimal(dice.randrange(999900)).scaleb(-4) for _ in range(200)]), pa.decimal128(20, 4)
            ),
            "name": pa.array(some([dice.choice(["a", "b", "", "é", "🙂"]) for _ in range(200)]), pa.string()),
            ODD: pa.array(some([dice.randrange(10) for _ in range(200)]), pa.int32()),
            "day": pa.array([date(2024, 1, 1) + timedelta(days=n // 3) for n in range(200)], pa.date32()),
            "at": pa.array(
                some([start + timedelta(days=n // 3, seconds=n) for n in range(200)]), pa.timestamp("us", "UTC")
            ),
            "ok": pa.array(some([n % 3 > 0 for n in range(200)]), pa.bool_()),
            "tags": pa.array(some([["x"]] * 200), pa.list_(pa.string())),
        }
    )
    path = tmp_path_factory.mktemp("staged") / "rows.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture(scope="module")
def data(spark: SparkSession, staged: Path) -> DataFrame:
    return spark.read.parquet(str(staged))


def _suite(*rules: tuple[str, dict[str, Any]]) -> SuiteSpec:
    specs = (RuleSpec(f"{number} {type_}", type_, kwargs) for number, (type_, kwargs) in enumerate(rules))
    return SuiteSpec("s", tuple(specs))


def test_both_engines_give_the_same_results(data: DataFrame, staged: Path) -> None:
    assert dict(data.dtypes) == TYPES
    on_pandas = judge_files(_suite(*RULES), [(staged, {})], TYPES)
    on_spark = judge_dataframe(_suite(*RULES), data)
    differences = [
        (one, other)
        for one, other in zip(on_pandas, on_spark, strict=True)
        if _without_noise(one) != _without_noise(other)
    ]
    assert not differences, "\n".join(map(str, differences))
    assert {result.success for result in on_pandas} == {True, False}


def _without_noise(result: RuleResult) -> dict[str, Any]:
    """Sums of floats depend on their order in the last bits."""
    observed = result.observed_value
    return {**result.to_dict(), "observed_value": round(observed, 9) if isinstance(observed, float) else observed}


def test_the_session_is_left_as_it_was(spark: SparkSession, data: DataFrame) -> None:
    before = (spark.sparkContext.applicationId, dict(spark.sparkContext.getConf().getAll()))
    judge_dataframe(_suite(("expect_column_values_to_not_be_null", {"column": "id"})), data)
    assert (spark.sparkContext.applicationId, dict(spark.sparkContext.getConf().getAll())) == before
    assert not data.is_cached
    assert spark.sparkContext._jsc is not None and spark.sparkContext._jsc.getPersistentRDDs().size() == 0


def test_an_empty_increment_is_judged_alike(data: DataFrame) -> None:
    rules = (
        ("expect_column_values_to_not_be_null", {"column": "name"}),
        ("expect_column_mean_to_be_between", {"column": "id", "min_value": 1}),
        ("expect_table_row_count_to_be_between", {"min_value": 1}),
        ("expect_table_column_count_to_equal", {"value": len(TYPES)}),
    )
    empty = data.limit(0)
    assert judge_dataframe(_suite(*rules), empty) == judge_files(_suite(*rules), [], TYPES)


def test_a_rule_that_cannot_be_evaluated_is_an_error(data: DataFrame) -> None:
    with pytest.raises(UsageError, match="could not be evaluated"):
        judge_dataframe(_suite(("expect_column_mean_to_be_between", {"column": "tags", "min_value": 1})), data)
