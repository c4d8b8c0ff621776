"""The audit of staged parquet without a JVM: real files, the real library."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.core.errors import DefectError, UsageError
from tidegate.quality.engine import RuleResult
from tidegate.quality.gx_judge import open_gx_context
from tidegate.quality.pandas_engine import group_rules, judge_files
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.spec.faults import SpecError

TYPES = {"id": "long", "name": "string", "price": "decimal(10,2)", "at": "timestamp", "x": "double", "day": "date"}
SECRET = "canary-7f3a"


def _write(path: Path, **columns: Any) -> Path:
    kinds = {
        "id": pa.int64(), "name": pa.string(), "price": pa.decimal128(10, 2), "at": pa.timestamp("us", "UTC"),
        "x": pa.float64(), "day": pa.date32(),
    }  # fmt: skip
    pq.write_table(pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}), path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[Path, dict[str, str | None]]]:
    """Two files of a table partitioned by day, the second one without the column x (written before it was added)."""
    first = _write(
        tmp_path / "a.parquet",
        id=[1, 2, 3],
        name=["a", None, SECRET],
        price=[Decimal("0.10"), Decimal("5.00"), None],
        at=[datetime(2024, 1, 1, tzinfo=UTC), None, datetime(2024, 6, 1, tzinfo=UTC)],
        x=[1.0, float("nan"), None],
    )
    second = _write(tmp_path / "b.parquet", id=[4, 4], name=["", "b"], price=[Decimal("9.99")] * 2, at=[None, None])
    return [(first, {"day": "2024-01-31"}), (second, {"day": None})]


def _judge(files: Any, *rules: tuple[str, dict[str, Any]], types: dict[str, str] = TYPES) -> list[RuleResult]:
    specs = tuple(RuleSpec(f"r{number}", type_, kwargs) for number, (type_, kwargs) in enumerate(rules))
    results = judge_files(SuiteSpec("s", specs), files, types)
    assert [result.rule for result in results] == [spec.rule for spec in specs]
    return results


def test_rows_of_all_files_are_judged(files: Any) -> None:
    results = _judge(
        files,
        ("expect_column_values_to_not_be_null", {"column": "name"}),
        ("expect_column_values_to_not_be_null", {"column": "x"}),
        ("expect_column_values_to_be_between", {"column": "x", "min_value": 0}),
        ("expect_column_values_to_be_between", {"column": "price", "min_value": 0.1, "max_value": 9}),
        ("expect_column_values_to_be_unique", {"column": "id"}),
        ("expect_column_values_to_be_between", {"column": "at", "max_value": "2024-01-01"}),
        ("expect_column_value_lengths_to_be_between", {"column": "name", "min_value": 1}),
        ("expect_table_row_count_to_equal", {"value": 5}),
        ("expect_column_values_to_not_be_null", {"column": "name", "mostly": 0.5}),
    )
    assert [result.unexpected_count for result in results] == [1, 3, 1, 2, 2, 1, 1, None, 1]
    assert [result.success for result in results] == [False] * 7 + [True, True]
    assert results[7].observed_value == 5


def test_partition_columns_come_from_the_folder_names(files: Any) -> None:
    results = _judge(
        files,
        ("expect_column_values_to_not_be_null", {"column": "day"}),
        ("expect_column_values_to_be_in_set", {"column": "day", "value_set": ["2024-01-31"]}),
        ("expect_column_values_to_be_in_set", {"column": "day", "value_set": ["2024-01-30"]}),
        (
            "expect_column_max_to_be_between",
            {"column": "day", "min_value": "2024-01-01", "max_value": date(2024, 1, 31)},
        ),
    )
    assert [result.unexpected_count for result in results] == [2, 0, 3, None]
    assert results[3].success and results[3].observed_value == "2024-01-31T00:00:00+00:00"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("integer", "7", 7), ("long", "-7", -7), ("string", "ü x", "ü x"), ("boolean", "true", True),
        ("double", "1.5", 1.5), ("decimal(10,2)", "1.50", 1.5),
        ("timestamp", "2024-01-31 01:02:03", "2024-01-31T01:02:03Z"),
        ("timestamp", "2024-01-31T01:02:03.000001Z", "2024-01-31T01:02:03.000001Z"),
    ],
)  # fmt: skip
def test_partition_values_have_the_type_of_the_schema(tmp_path: Path, kind: str, text: str, expected: Any) -> None:
    path = _write(tmp_path / "a.parquet", id=[1, 2])
    rule = ("expect_column_values_to_be_in_set", {"column": "p", "value_set": [expected]})
    result = _judge([(path, {"p": text})], rule, types={"id": "long", "p": kind})[0]
    assert (result.success, result.unexpected_count) == (True, 0)


def test_a_nested_column_may_be_missing_in_older_files(tmp_path: Path) -> None:
    older = _write(tmp_path / "a.parquet", id=[1, 2])
    newer = tmp_path / "b.parquet"
    pq.write_table(pa.table({"id": [3], "tags": pa.array([["x"]], pa.list_(pa.string()))}), newer)
    rule = ("expect_column_values_to_not_be_null", {"column": "tags"})
    assert _judge([(older, {}), (newer, {})], rule, types={"id": "long", "tags": "array"})[0].unexpected_count == 2


def test_figures_are_reported_and_no_row_is(files: Any) -> None:
    results = _judge(
        files,
        ("expect_column_mean_to_be_between", {"column": "id", "min_value": 0}),
        ("expect_column_sum_to_be_between", {"column": "price", "max_value": 1}),
        ("expect_column_values_to_be_in_set", {"column": "name", "value_set": ["zz"]}),
        ("expect_column_distinct_values_to_be_in_set", {"column": "name", "value_set": ["zz"]}),
        ("expect_column_distinct_values_to_contain_set", {"column": "name", "value_set": ["zz"]}),
        ("expect_column_most_common_value_to_be_in_set", {"column": "name", "value_set": ["zz"]}),
        ("expect_column_unique_value_count_to_be_between", {"column": "name", "max_value": 9}),
        ("expect_column_quantile_values_to_be_between",
         {"column": "id", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[3, 3]]}}),
    )  # fmt: skip
    assert results[0].observed_value == pytest.approx(2.8)
    assert results[1].observed_value == pytest.approx(25.08) and not results[1].success
    assert results[6].observed_value == 4
    assert results[7].observed_value == {"quantiles": [0.5], "values": [3]}
    assert SECRET not in repr(results)


def test_schema_rules_see_every_column(files: Any) -> None:
    results = _judge(
        files,
        ("expect_table_columns_to_match_set", {"column_set": list(TYPES)}),
        ("expect_table_columns_to_match_ordered_list", {"column_list": list(TYPES)}),
        ("expect_table_column_count_to_equal", {"value": 6}),
        ("expect_column_to_exist", {"column": "day"}),
        ("expect_column_to_exist", {"column": "nowhere"}),
    )
    assert [result.success for result in results] == [True, True, True, True, False]


def test_an_empty_increment(tmp_path: Path) -> None:
    rules = (
        ("expect_column_values_to_not_be_null", {"column": "name"}),
        ("expect_column_mean_to_be_between", {"column": "id", "min_value": 1}),
        ("expect_table_row_count_to_be_between", {"min_value": 1}),
        ("expect_table_row_count_to_be_between", {"max_value": 1}),
        ("expect_column_to_exist", {"column": "id"}),
    )
    empty = _write(tmp_path / "a.parquet", id=[], name=[])
    for files in ([], [(empty, {"day": "2024-01-31"})]):
        results = _judge(files, *rules)
        assert [result.success for result in results] == [True, True, False, True, True]
        assert [result.unexpected_count for result in results] == [0, None, None, None, None]
        assert results[2].observed_value == 0


def test_a_rule_that_cannot_be_evaluated_is_an_error_and_no_pass(files: Any) -> None:
    with pytest.raises(UsageError, match=r"rule 'r1' .* could not be evaluated") as caught:
        _judge(
            files,
            ("expect_column_values_to_not_be_null", {"column": "name"}),
            ("expect_column_mean_to_be_between", {"column": "name", "min_value": 1}),
        )
    assert caught.value.code == "BAD_SUITE"
    assert SECRET not in str(caught.value)


def test_kwargs_that_only_the_library_can_judge_are_refused_by_rule(files: Any) -> None:
    with pytest.raises(UsageError, match=r"rule 'r0' .* is refused by Great Expectations"):
        _judge(files, ("expect_column_quantile_values_to_be_between", {"column": "id", "quantile_ranges": 5}))


def test_a_column_that_is_not_there_is_refused(files: Any) -> None:
    with pytest.raises(SpecError, match="'nam'"):
        _judge(files, ("expect_column_values_to_not_be_null", {"column": "nam"}))


def test_an_answer_left_out_is_a_defect(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own way of losing rules: its suite drops what it cannot build, here by its own hand."""
    open_gx_context()
    import great_expectations as gx

    whole = gx.ExpectationSuite

    def lose_one(name: str, expectations: list[Any]) -> Any:
        return whole(name=name, expectations=expectations[:-1])

    monkeypatch.setattr(gx, "ExpectationSuite", lose_one)
    with pytest.raises(DefectError, match="kept 0 of 1 rules"):
        _judge(files, ("expect_column_values_to_not_be_null", {"column": "name"}))


def test_rules_are_grouped_by_the_columns_they_share() -> None:
    def rule(*columns: str) -> RuleSpec:
        kwargs = {"column_list": list(columns)} if columns else {"value": 1}
        return RuleSpec(",".join(columns), "expect_compound_columns_to_be_unique", kwargs)

    groups = group_rules([rule("a"), rule("b"), rule(), rule("c"), rule("a", "c"), rule(), rule("b")])
    assert sorted(sorted(r.rule for r in group) for group in groups) == [["", ""], ["a", "a,c", "c"], ["b", "b"]]


def test_charts_and_statistics_are_there_when_asked_for(files: Any) -> None:
    """They are put off at import; a rule that needs them still gets them."""
    result = _judge(
        files, ("expect_column_values_to_not_be_outliers", {"column": "id", "method": "iqr", "multiplier": 9})
    )
    assert result[0].success
    from scipy import stats

    assert stats.norm.cdf(0) == 0.5


def test_nothing_is_left_in_the_temporary_folder_or_the_log(files: Any, tmp_path: Path) -> None:
    import subprocess
    import sys

    script = tmp_path / "audit.py"
    script.write_text(
        "import logging\nlogging.basicConfig(level=logging.INFO)\n"  # as in a task of Airflow
        "from tidegate.quality.gx_judge import open_gx_frames\nopen_gx_frames('pandas')\n"
    )
    left = tmp_path / "left"
    left.mkdir()
    environment = {"TMPDIR": str(left), "HOME": str(left)}
    done = subprocess.run([sys.executable, str(script)], env=environment, check=True, capture_output=True, text=True)
    assert "INFO" not in done.stderr
    assert list(left.iterdir()) == []
    assert tempfile.gettempdir() != str(left)


def test_a_result_left_out_is_a_defect(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library answers, and one of its results is missing, or a count in it."""
    open_gx_context()
    from great_expectations.datasource.fluent.interfaces import Batch

    whole = Batch.validate
    rule = ("expect_column_values_to_not_be_null", {"column": "name"})

    def lose_one(self: Batch, *arguments: Any, **options: Any) -> Any:
        report: Any = whole(self, *arguments, **options)
        del report.results[-1]
        return report

    with monkeypatch.context() as patch, pytest.raises(DefectError, match="gave 0 results for 1 rules"):
        patch.setattr(Batch, "validate", lose_one)
        _judge(files, rule)
    monkeypatch.setattr("tidegate.quality.gx_judge._RESULT_FORMAT", {"result_format": "BOOLEAN_ONLY"})
    with pytest.raises(DefectError, match="no count of offending rows for rule 'r0'"):
        _judge(files, rule)
