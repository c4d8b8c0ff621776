"""The SQL of a quarantine rule selects exactly the rows Great Expectations calls unexpected, on both engines."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.quality.gx_judge import build_expectation, open_gx_context
from tidegate.quality.pandas_engine import prepare_frame, read_table
from tidegate.quality.row_rules import BUILDERS, build_sql
from tidegate.quality.rule_values import find_kwarg_faults
from tidegate.quality.suite import RuleSpec, SuiteSpec, check_columns
from tidegate.spark.ingest.spark_engine import prepare_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "we'ird.co`l $1 ü"
TEXTS = [
    "a", "b", "", " ", "abc", "ABC", "ab\n", "a\nb", "a\rb", "é", "e\u0301", "日本", "🙂", "🙂🙂", "NaN", "nan", "None",
    "null", "o-000000000001", "o-12\n", "it's", 'say "x"', "back\\slash", "$1", "${env:HOME}", "%", "_", "\t", "\u00a0",
    "٣", "ß", "İ", "\u2028", "-", "a-b", "a\x00b",
]  # fmt: skip
WHOLE = [0, 1, -1, 5, 10, 999, 2**31 - 1, -(2**31)]
LONG = [0, 5, 2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 0.1, 5.0, 5.000001, 1e300, float("nan"), float("inf"), float("-inf"), -1.5]
DECIMALS = [Decimal(x) for x in ("0", "0.1", "5", "5.0001", "-0.0001", "1234567890123456.7890", "100.10")]
DATES = [
    date(2024, 1, 1),
    date(2024, 1, 2),
    date(1970, 1, 1),
    date(1600, 2, 29),
    date(9999, 12, 31),
    date(2023, 12, 31),
]
TIMES = [
    datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 12, 30, 15, 123456, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(2300, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime(2023, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]  # fmt: skip
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "i": ("int", pa.int32(), WHOLE),
    "i_full": ("int", pa.int32(), WHOLE),
    "l": ("bigint", pa.int64(), LONG),
    "d": ("double", pa.float64(), DOUBLES),
    "d_calm": ("double", pa.float64(), [value for value in DOUBLES if value == value]),
    "f": ("float", pa.float32(), [0.0, 0.5, 5.0, float("nan"), 1.5]),
    "n": ("decimal(20,4)", pa.decimal128(20, 4), DECIMALS),
    "s": ("string", pa.string(), TEXTS),
    ODD: ("string", pa.string(), TEXTS),
    "b": ("boolean", pa.bool_(), [True, False]),
    "b_full": ("boolean", pa.bool_(), [True, False]),
    "day": ("date", pa.date32(), DATES),
    "at": ("timestamp", pa.timestamp("us", "UTC"), TIMES),
}
COLUMNS |= {f"{name}_2": COLUMNS[name] for name in ("i", "l", "d", "d_calm", "n", "s", "b", "day", "at")}
TYPES = {"id": "bigint"} | {name: kind for name, (kind, _, _) in COLUMNS.items()}
ROWS = 400

_BETWEEN = "expect_column_values_to_be_between"
_IN = "expect_column_values_to_be_in_set"
_NOT_IN = "expect_column_values_to_not_be_in_set"
_REGEX = "expect_column_values_to_match_regex"
_GREATER = "expect_column_pair_values_a_to_be_greater_than_b"
_EQUAL = "expect_column_pair_values_to_be_equal"


def _list_rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for column in COLUMNS:
        yield "expect_column_values_to_not_be_null", {"column": column}
        yield "expect_column_values_to_be_null", {"column": column}
    for column in ("i", "i_full", "l", "d", "d_calm", "f", "n"):
        yield _BETWEEN, {"column": column, "min_value": 0}
        yield _BETWEEN, {"column": column, "min_value": 0, "strict_min": True}
        yield _BETWEEN, {"column": column, "max_value": 5}
        yield _BETWEEN, {"column": column, "max_value": "5", "strict_max": True}
        yield _BETWEEN, {"column": column, "min_value": 0.1, "max_value": 100.1}
        yield _BETWEEN, {"column": column, "min_value": 5, "max_value": 5}
        yield _BETWEEN, {"column": column, "min_value": 0, "max_value": 2**53, "strict_min": True, "strict_max": True}
        yield _BETWEEN, {"column": column, "min_value": "-inf", "strict_min": True}
    for column in ("day", "at"):
        yield _BETWEEN, {"column": column, "min_value": "2024-01-01"}
        yield _BETWEEN, {"column": column, "max_value": "2024-01-01", "strict_max": True}
        yield _BETWEEN, {"column": column, "min_value": "1970-01-01", "max_value": "2024-01-01T12:30:15.123456Z"}
        yield _BETWEEN, {"column": column, "min_value": "2024-01-01T02:00:00+02:00", "strict_min": True}
        yield _BETWEEN, {"column": column, "min_value": date(2023, 12, 31), "max_value": datetime(2024, 1, 1, 0)}
    sets: dict[str, list[list[Any]]] = {
        "s": [
            ["a", "b"],
            ["it's", "back\\slash", 'say "x"', "${env:HOME}", "🙂", "", "e\u0301"],
            ["a\x00b", "\u2028", "NaN"],
        ],
        ODD: [["abc", "日本", "null"]],
        "i": [[0, 5], [999]],
        "i_full": [[0, 5, 7.5]],
        "l": [[5, 2**53 + 1], [2**53, 2**63 - 1, 10**30]],
        "d": [[0, 5], [0.1, -1.5]],
        "d_calm": [[0.1, 5.0], [0]],
        "n": [[0, 5], [0.1, 100.10]],
        "b": [[True]],
        "b_full": [[False]],
        "day": [["2024-01-01", "9999-12-31"]],
        "at": [["2024-01-01T00:00:00Z", "2024-01-01 12:30:15.123456"], ["2024-01-01"]],
    }
    for column, choices in sets.items():
        for values in choices:
            yield _IN, {"column": column, "value_set": values}
            yield _NOT_IN, {"column": column, "value_set": values}
    for column in ("s", ODD):
        for regex in (
            "^o-[0-9]{12}$", "a", "^a.b$", r"\d", r"^\w+$", r"\s", "(?i)^abc$", "(?i)ß|i", "^$", "^.$", "'|\"", r"\\",
            r"\$", "[^a-z]", "b$", "日", r"\bb", "a|", r"^[\w-]{2,3}$", "🙂{2}", "N|n", "\\x00",
        ):  # fmt: skip
            yield _REGEX, {"column": column, "regex": regex}
            yield "expect_column_values_to_not_match_regex", {"column": column, "regex": regex}
        yield "expect_column_value_lengths_to_be_between", {"column": column, "min_value": 1, "max_value": 2}
        yield "expect_column_value_lengths_to_be_between", {"column": column, "min_value": 1, "strict_min": True}
        yield "expect_column_value_lengths_to_be_between", {"column": column, "max_value": 2, "strict_max": True}
        yield "expect_column_value_lengths_to_equal", {"column": column, "value": 2}
        yield "expect_column_value_lengths_to_equal", {"column": column, "value": 0}
    for column in ("i", "l", "d", "d_calm", "n", "s", "b", "day", "at"):
        pair = {"column_A": column, "column_B": f"{column}_2"}
        for ignore in ("both_values_are_missing", "either_value_is_missing"):
            yield _GREATER, {**pair, "ignore_row_if": ignore}
            yield _GREATER, {**pair, "or_equal": True, "ignore_row_if": ignore}
            yield _EQUAL, {**pair, "ignore_row_if": ignore}
        yield _GREATER, {**pair, "ignore_row_if": "neither"}
        yield _EQUAL, pair
    yield _GREATER, {"column_A": "at", "column_B": "day"}
    yield _GREATER, {"column_A": "l", "column_B": "d", "or_equal": True}
    yield _EQUAL, {"column_A": "i", "column_B": "d_calm"}
    yield _EQUAL, {"column_A": "n", "column_B": "i"}


RULES = [RuleSpec(f"r{i}", type_, kwargs, quarantine=True) for i, (type_, kwargs) in enumerate(_list_rules())]


@pytest.fixture(scope="module")
def nasty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parquet file of nasty rows: every value of every column, nulls, and pairs that are often equal."""
    dice = random.Random(7)
    arrays: dict[str, pa.Array] = {"id": pa.array(range(ROWS), pa.int64())}
    for name, (_, kind, values) in COLUMNS.items():
        column: list[Any] = [*values, *(dice.choice(values) for _ in range(ROWS - len(values)))]
        if not name.endswith("_full"):
            column = [None if at >= len(values) and dice.random() < 0.2 else value for at, value in enumerate(column)]
        arrays[name] = pa.array(column, kind)
    path = tmp_path_factory.mktemp("nasty") / "rows.parquet"
    pq.write_table(pa.table(arrays), path)
    return path


@pytest.fixture(scope="module")
def nasty_data(spark: SparkSession, nasty_file: Path) -> DataFrame:
    return spark.read.parquet(str(nasty_file)).coalesce(1)


@pytest.fixture(scope="module")
def offending_ids(nasty_data: DataFrame) -> list[set[int]]:
    """By rule the ids that its SQL quarantines; the expression is never NULL."""
    from pyspark.sql import functions as F

    expressions = [F.expr(build_sql(rule)).alias(f"r{index}") for index, rule in enumerate(RULES)]
    rows = nasty_data.select("id", *expressions).collect()
    assert all(value is not None for row in rows for value in row[1:])
    return [{row["id"] for row in rows if row[index + 1]} for index in range(len(RULES))]


def test_the_rules_are_ones_a_suite_may_hold() -> None:
    assert {rule.type for rule in RULES} == set(BUILDERS)
    for rule in RULES:
        if rule.kwargs.get("ignore_row_if") == "neither" and rule.type == _EQUAL:
            continue
        assert list(find_kwarg_faults(rule.type, rule.kwargs)) == [], rule
    check_columns(SuiteSpec("nasty", tuple(RULES)), TYPES)


def test_pandas_engine_calls_the_same_rows_unexpected(nasty_file: Path, offending_ids: list[set[int]]) -> None:
    presence = RuleSpec("id", "expect_column_values_to_not_be_null", {"column": "id"})
    table = read_table([(nasty_file, {})], TYPES, list(TYPES))
    frame, rules = prepare_frame(table, [*RULES, presence], TYPES)
    _compare(_ask(frame, rules, "pandas"), offending_ids)


def test_spark_engine_calls_the_same_rows_unexpected(nasty_data: DataFrame, offending_ids: list[set[int]]) -> None:
    """One rule of each type and every fifth one; in a sweep all of them."""
    step = 5 if os.environ.get("TIDEGATE_SWEEP", "0") == "0" else 1
    one_of_each = {rule.type: number for number, rule in enumerate(RULES)}
    chosen = sorted({*one_of_each.values(), *range(0, len(RULES), step)})
    asked = [RULES[number] for number in chosen]
    presence = RuleSpec("id", "expect_column_values_to_not_be_null", {"column": "id"})
    frame, rules = prepare_dataframe(nasty_data, [*asked, presence], TYPES)
    frame.cache()
    try:
        _compare(_ask(frame, rules, "spark"), [offending_ids[number] for number in chosen])
    finally:
        frame.unpersist()


def _ask(frame: Any, rules: Any, engine: str) -> list[tuple[RuleSpec, int, set[int] | None]]:
    import great_expectations as gx

    *asked, presence = rules
    id_column = presence.kwargs["column"]
    sources = open_gx_context().data_sources
    source = sources.add_pandas("parity_p") if engine == "pandas" else sources.add_spark("parity_s", persist=False)
    definition = source.add_dataframe_asset("a").add_batch_definition_whole_dataframe("w")
    suite = gx.ExpectationSuite(name="p", expectations=[build_expectation(r, i) for i, r in enumerate(asked)])
    report = definition.get_batch({"dataframe": frame}).validate(
        suite, result_format={"result_format": "COMPLETE", "unexpected_index_column_names": [id_column]}
    )
    answers: dict[int, Any] = {a.expectation_config.meta["tidegate_rule_index"]: a for a in report.results}
    found = []
    for index, rule in enumerate(asked):
        answer = answers[index]
        assert "unexpected_count" in answer.result, (rule, answer.exception_info)
        listed = answer.result.get("unexpected_index_list")
        ids = {row[id_column] for row in listed} if listed else None  # none on Spark when NaN alone offends
        found.append((rule, answer.result["unexpected_count"], ids))
    sources.delete("parity_p" if engine == "pandas" else "parity_s")
    return found


def _compare(found: list[tuple[RuleSpec, int, set[int] | None]], offending_ids: list[set[int]]) -> None:
    differences = []
    for (rule, count, ids), expected in zip(found, offending_ids, strict=True):
        other = sorted(ids ^ expected)[:8] if ids is not None else []
        if count != len(expected) or other:  # the ids too: two faults could cancel out in the counts
            differences.append((rule.type, dict(rule.kwargs), count, len(expected), other))
    assert not differences, "\n".join(map(str, differences))


def test_every_rule_offends_some_rows_and_spares_some(offending_ids: list[set[int]]) -> None:
    """The parity above compares something: few rules offend none or all of the nasty rows."""
    trivial = [rule for rule, ids in zip(RULES, offending_ids, strict=True) if len(ids) in (0, ROWS)]
    assert len(trivial) < len(RULES) / 8


def test_time_moves_do_not_matter(spark: SparkSession) -> None:
    """Bounds are UTC whatever the driver's own time zone is."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rule = RuleSpec("r", _BETWEEN, {"column": "at", "min_value": "2024-01-01"})
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    for offset, offends in ((-1, True), (0, False)):
        text = (moment + timedelta(microseconds=offset)).isoformat()
        row = spark.sql(f"SELECT TIMESTAMP '{text}' AS at").selectExpr(build_sql(rule)).first()
        assert row is not None and row[0] is offends
