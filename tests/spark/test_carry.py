"""The record behind a row stays known through transforms that select their own columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tidegate.spark.catalyst.carry import carry_column

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    rows = [(1, "a b", "raw one"), (2, "c", "raw two")]
    frame = spark.createDataFrame(rows, "id INT, words STRING, raw STRING")
    return frame.select("id", "words", F.struct(F.col("raw").alias("raw")).alias("_tidegate"))


def _by_sql(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("orders")
    return frame.sparkSession.sql(
        "SELECT id + 1 AS k, word FROM (SELECT id, explode(split(words, ' ')) AS word FROM orders) WHERE id < 9"
    )


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (lambda df: df.select("id"), ["raw one", "raw two"]),
        (lambda df: df.select(F.upper("words").alias("u")).where("u <> 'C'").select("u"), ["raw one"]),
        (lambda df: df.select(F.explode(F.split("words", " ")).alias("w")), ["raw one", "raw one", "raw two"]),
        (lambda df: df.selectExpr("id * 2 AS id").filter("id > 2"), ["raw two"]),
        (lambda df: df.drop("_tidegate"), ["raw one", "raw two"]),
        (_by_sql, ["raw one", "raw one", "raw two"]),
        (
            lambda df: df.select("id", F.lit(7).alias("_tidegate")).where("_tidegate = 7").select("id"),
            ["raw one", "raw two"],
        ),
    ],
    ids=["select", "select-where-select", "explode", "selectExpr", "drop", "sql", "one of that name in between"],
)
def test_the_column_comes_back(
    orders: DataFrame, transform: Callable[[DataFrame], DataFrame], expected: list[str]
) -> None:
    out = transform(orders)
    assert "_tidegate" not in out.columns
    carried = carry_column(out, "_tidegate")
    assert carried.columns == [*out.columns, "_tidegate"]
    assert sorted(row["_tidegate"]["raw"] for row in carried.collect()) == expected
    assert carried.drop("_tidegate").collect() == out.collect()


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (lambda a, b: a.select("id").union(b.select("id")), ["other", "raw one", "raw two"]),
        (
            lambda a, b: b.selectExpr("words", "id").unionByName(a.select("id", "words")),
            ["other", "raw one", "raw two"],
        ),
        (lambda a, b: a.where("id = 1").union(a), ["raw one", "raw one", "raw two"]),
        (lambda a, b: a.union(b).union(a.where("id = 2")).select("id"), ["other", "raw one", "raw two", "raw two"]),
    ],
    ids=["two", "by name", "itself", "three"],
)
def test_the_column_comes_back_behind_a_union(
    orders: DataFrame, transform: Callable[[DataFrame, DataFrame], DataFrame], expected: list[str]
) -> None:
    others = orders.sparkSession.createDataFrame([(3, "d", "other")], "id INT, words STRING, raw STRING")
    others = others.select("id", "words", F.struct(F.col("raw").alias("raw")).alias("_tidegate"))
    out = transform(orders.drop("_tidegate"), others.drop("_tidegate"))
    carried = carry_column(out, "_tidegate")
    assert carried.columns == [*out.columns, "_tidegate"]
    assert sorted(row["_tidegate"]["raw"] for row in carried.collect()) == expected
    assert carried.drop("_tidegate").collect() == out.collect()


def test_a_union_with_rows_of_unknown_origin_stays_as_it_is(orders: DataFrame) -> None:
    out = orders.select("id").union(orders.groupBy("id").count().select("id"))
    assert carry_column(out, "_tidegate").columns == out.columns


def test_the_column_comes_back_behind_a_join_with_a_table(orders: DataFrame) -> None:
    """A batch that is read again is not streaming: the table is the side without the column."""
    records = orders.withColumnRenamed("id", "key")
    table = orders.sparkSession.createDataFrame([(1, "one"), (2, "two")], "id INT, more STRING")
    for joined in (records.join(table, records.key == table.id), table.join(records, records.key == table.id)):
        rows = carry_column(joined.drop("_tidegate").select("more"), "_tidegate").collect()
        assert sorted((row["more"], row["_tidegate"]["raw"]) for row in rows) == [
            ("one", "raw one"),
            ("two", "raw two"),
        ]
    one, two = records.drop("_tidegate"), orders.drop("_tidegate")
    both = one.join(two, one.key == two.id).select("key")
    assert carry_column(both, "_tidegate").columns == ["key"], "of two records none is the origin"


def test_behind_an_aggregation_the_frame_stays_as_it_is(orders: DataFrame) -> None:
    out = orders.groupBy("id").count()
    assert carry_column(out, "_tidegate").columns == out.columns


def test_kept_by_the_transform_it_is_not_added_twice(orders: DataFrame) -> None:
    out = orders.withColumn("more", F.lit(1))
    assert carry_column(out, "_tidegate").columns == out.columns
