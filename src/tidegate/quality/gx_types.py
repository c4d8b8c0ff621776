"""The expectation types of Great Expectations 1.24.1, with level and kwargs, as a table that needs no import of it.

Importing Great Expectations costs seconds, and loading a suite must not. ``tests/unit/quality/test_audit_gx_types.py``
reads the same facts from the installed library and fails when this table is out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["row", "column", "table"]


@dataclass(frozen=True)
class ExpectationType:
    """One expectation type: what it judges, and the kwargs it must and may have (blank-separated names)."""

    level: Level
    required: str
    optional: str = ""

    @property
    def required_kwargs(self) -> tuple[str, ...]:
        """Kwargs that must be given."""
        return tuple(self.required.split())

    @property
    def kwargs(self) -> tuple[str, ...]:
        """Every kwarg the type knows."""
        return (*self.required.split(), *self.optional.split())


_WHERE = "row_condition condition_parser"
_ROW = f"mostly {_WHERE}"
_RANGE = "min_value max_value strict_min strict_max"

EXPECTATION_TYPES: dict[str, ExpectationType] = {
    "expect_column_distinct_values_to_be_in_set": ExpectationType("column", "column value_set", _WHERE),
    "expect_column_distinct_values_to_contain_set": ExpectationType("column", "column value_set", _WHERE),
    "expect_column_distinct_values_to_equal_set": ExpectationType("column", "column value_set", _WHERE),
    "expect_column_kl_divergence_to_be_less_than": ExpectationType(
        "column",
        "column",
        f"{_WHERE} partition_object threshold internal_weight_holdout tail_weight_holdout bucketize_data min_value "
        "max_value",
    ),
    "expect_column_max_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_mean_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_median_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_min_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_most_common_value_to_be_in_set": ExpectationType(
        "column", "column value_set", f"{_WHERE} ties_okay"
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": ExpectationType(
        "row", "column_A column_B", f"{_ROW} or_equal ignore_row_if"
    ),
    "expect_column_pair_values_to_be_equal": ExpectationType("row", "column_A column_B", f"{_ROW} ignore_row_if"),
    "expect_column_pair_values_to_be_in_set": ExpectationType(
        "row", "column_A column_B value_pairs_set", f"{_ROW} ignore_row_if"
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": ExpectationType(
        "column", "column", f"{_WHERE} {_RANGE}"
    ),
    "expect_column_proportion_of_unique_values_to_be_between": ExpectationType(
        "column", "column", f"{_WHERE} {_RANGE}"
    ),
    "expect_column_quantile_values_to_be_between": ExpectationType(
        "column", "column quantile_ranges", f"{_WHERE} allow_relative_error"
    ),
    "expect_column_stdev_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_sum_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_to_exist": ExpectationType("table", "column", "column_index"),
    "expect_column_type_to_be": ExpectationType("table", "column type_"),
    "expect_column_unique_value_count_to_be_between": ExpectationType("column", "column", f"{_WHERE} {_RANGE}"),
    "expect_column_value_lengths_to_be_between": ExpectationType("row", "column", f"{_ROW} {_RANGE}"),
    "expect_column_value_lengths_to_equal": ExpectationType("row", "column value", _ROW),
    "expect_column_value_z_scores_to_be_less_than": ExpectationType("row", "column threshold double_sided", _ROW),
    "expect_column_values_to_be_between": ExpectationType("row", "column", f"{_ROW} {_RANGE}"),
    "expect_column_values_to_be_dateutil_parseable": ExpectationType("row", "column", _ROW),
    "expect_column_values_to_be_decreasing": ExpectationType("row", "column", f"{_ROW} strictly"),
    "expect_column_values_to_be_in_set": ExpectationType("row", "column value_set", _ROW),
    "expect_column_values_to_be_in_type_list": ExpectationType("row", "column", f"{_ROW} type_list"),
    "expect_column_values_to_be_increasing": ExpectationType("row", "column", f"{_ROW} strictly"),
    "expect_column_values_to_be_json_parseable": ExpectationType("row", "column", _ROW),
    "expect_column_values_to_be_null": ExpectationType("row", "column", _ROW),
    "expect_column_values_to_be_of_type": ExpectationType("row", "column type_", _ROW),
    "expect_column_values_to_be_unique": ExpectationType("row", "column", _ROW),
    "expect_column_values_to_match_json_schema": ExpectationType("row", "column json_schema", _ROW),
    "expect_column_values_to_match_like_pattern": ExpectationType("row", "column like_pattern", f"{_ROW} escape"),
    "expect_column_values_to_match_like_pattern_list": ExpectationType(
        "row", "column like_pattern_list", f"{_ROW} match_on escape"
    ),
    "expect_column_values_to_match_regex": ExpectationType("row", "column", f"{_ROW} regex"),
    "expect_column_values_to_match_regex_list": ExpectationType("row", "column regex_list", f"{_ROW} match_on"),
    "expect_column_values_to_match_strftime_format": ExpectationType("row", "column strftime_format", _ROW),
    "expect_column_values_to_not_be_in_set": ExpectationType("row", "column value_set", _ROW),
    "expect_column_values_to_not_be_null": ExpectationType("row", "column", _ROW),
    "expect_column_values_to_not_be_outliers": ExpectationType("row", "column", f"{_ROW} method multiplier"),
    "expect_column_values_to_not_match_like_pattern": ExpectationType("row", "column like_pattern", f"{_ROW} escape"),
    "expect_column_values_to_not_match_like_pattern_list": ExpectationType(
        "row", "column like_pattern_list", f"{_ROW} escape"
    ),
    "expect_column_values_to_not_match_regex": ExpectationType("row", "column regex", _ROW),
    "expect_column_values_to_not_match_regex_list": ExpectationType("row", "column regex_list", _ROW),
    "expect_compound_columns_to_be_unique": ExpectationType("row", "column_list", f"{_ROW} ignore_row_if"),
    "expect_multicolumn_sum_to_equal": ExpectationType("row", "column_list sum_total", f"{_ROW} ignore_row_if"),
    "expect_multicolumn_values_to_be_equal": ExpectationType("row", "column_list", f"{_ROW} ignore_row_if"),
    "expect_query_results_to_match_comparison": ExpectationType(
        "table", "base_query comparison_data_source_name comparison_query", "mostly"
    ),
    "expect_select_column_values_to_be_unique_within_record": ExpectationType(
        "row", "column_list", f"{_ROW} ignore_row_if"
    ),
    "expect_table_column_count_to_be_between": ExpectationType("table", "", "min_value max_value"),
    "expect_table_column_count_to_equal": ExpectationType("table", "value"),
    "expect_table_columns_to_match_ordered_list": ExpectationType("table", "", "column_list"),
    "expect_table_columns_to_match_set": ExpectationType("table", "", "column_set exact_match"),
    "expect_table_row_count_to_be_between": ExpectationType("table", "", f"{_RANGE} {_WHERE}"),
    "expect_table_row_count_to_equal": ExpectationType("table", "value", _WHERE),
    "expect_table_row_count_to_equal_other_table": ExpectationType("table", "other_table_name", _WHERE),
    "unexpected_rows_expectation": ExpectationType("table", "unexpected_rows_query"),
}

QUARANTINE_TYPES: frozenset[str] = frozenset(
    {
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_be_null",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_be_between",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_not_match_regex",
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
    }
)
"""Types that can be judged row by row while the rows stream past: the ones ``on_failure: quarantine`` is allowed on."""

QUERY_TYPE = "unexpected_rows_expectation"
"""The type of custom SQL."""

DISTRIBUTION_TYPES = ("expect_column_value_z_scores_to_be_less_than", "expect_column_values_to_not_be_outliers")
"""Types that count rows, but judge each of them by a figure of the whole increment."""

_NEEDS_DATABASE = "it runs in databases only"
_AS_REGEX = "write the pattern as a regular expression, for expect_column_values_to_{}"
_IS_SCHEMA = "type names differ between engines"
_BY_THE_SCHEMA = "remove it: `schema` of the source, and casts in the transform, fix the column's type"
BY_A_COLUMN = (
    "let the transform compute the condition as a boolean column, and check it with "
    "expect_column_values_to_be_in_set and `value_set: [true]`"
)
_BY_A_JOIN = f"read the other data by a source with `static: true`, {BY_A_COLUMN}"

UNUSABLE_TYPES: dict[str, tuple[str, str]] = {
    "expect_column_values_to_match_like_pattern": (_NEEDS_DATABASE, _AS_REGEX.format("match_regex")),
    "expect_column_values_to_match_like_pattern_list": (_NEEDS_DATABASE, _AS_REGEX.format("match_regex_list")),
    "expect_column_values_to_not_match_like_pattern": (_NEEDS_DATABASE, _AS_REGEX.format("not_match_regex")),
    "expect_column_values_to_not_match_like_pattern_list": (_NEEDS_DATABASE, _AS_REGEX.format("not_match_regex_list")),
    "expect_column_values_to_be_of_type": (_IS_SCHEMA, _BY_THE_SCHEMA),
    "expect_column_values_to_be_in_type_list": (_IS_SCHEMA, _BY_THE_SCHEMA),
    "expect_column_type_to_be": (_IS_SCHEMA, _BY_THE_SCHEMA),
    "expect_query_results_to_match_comparison": (
        "it needs a second data source, and an increment has none",
        _BY_A_JOIN,
    ),
    "expect_table_row_count_to_equal_other_table": ("it needs a second table, and an increment has none", _BY_A_JOIN),
}
"""Types that Great Expectations knows but that cannot judge an increment the same way on both engines: why, and what to
use instead."""
