"""Great Expectations on pandas: an increment's staged parquet, judged in this process without a JVM.

Great Expectations on pandas is quick only on numpy numbers and aware timestamps, and wrong on some others; so a column
is held in one of these forms, and in two under two names where its rules need two:

- ``arrow``: as it is in the file; for presence, and for sets of texts. NaN is a value here, not a missing one;
- ``plain``: numpy numbers, aware UTC timestamps (dates count as their midnight); for ranges, figures and sets;
- ``object``: Python values; for texts that are looked into, for pairs, and for numbers too long for a float;
- ``rank``: whole numbers in the order of the floats they replace, NaN last as in Spark; for pairs with a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.quality.engine import RuleResult, StagedInput, judge_nothing, prepare_kwargs
from tidegate.quality.gx_judge import judge_frame
from tidegate.quality.rule_values import (
    COLUMN_KEYS,
    RuleKwargs,
    find_condition_column,
    find_family,
    rename_condition,
)
from tidegate.quality.suite import RuleSpec, SuiteSpec, check_columns

if TYPE_CHECKING:
    import pandas
    import pyarrow

SCHEMA_RULES = frozenset(
    {
        "expect_column_to_exist",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
    }
)
"""Rules on the names of the columns alone: they are judged on the schema, not on rows."""


def judge_files(suite: SuiteSpec, files: Sequence[StagedInput], types: Mapping[str, str]) -> list[RuleResult]:
    """One result per rule of ``suite``, in its order, for the rows of ``files``.

    ``files`` pairs each parquet file with the values of the partition columns that are not in it; ``types`` maps every
    column of the increment to its Spark type, in order (:func:`tidegate.quality.engine.read_column_types`). Only the
    columns that rules name are read. Raises UsageError when a rule cannot be evaluated, DefectError when Great
    Expectations leaves an answer out.
    """
    check_columns(suite, types)

    def judge_rows(rules: list[RuleSpec]) -> list[RuleResult]:
        found: dict[int, RuleResult] = {}
        for group in group_rules(rules):
            columns = {column for rule in group for column in rule.columns}
            table = read_table(files, types, [name for name in types if name in columns])
            frame, prepared = prepare_frame(table, group, types)
            del table
            found |= dict(zip(map(id, group), judge_frame(frame, prepared, "pandas"), strict=True))
        return [found[id(rule)] for rule in rules]

    return judge_suite(suite, list(types), is_empty=count_rows(files) == 0, judge_rows=judge_rows)


def judge_suite(
    suite: SuiteSpec,
    columns: Sequence[str],
    *,
    is_empty: bool,
    judge_rows: Callable[[list[RuleSpec]], list[RuleResult]],
) -> list[RuleResult]:
    """One result per rule of ``suite``, in its order, for an increment with these columns.

    Rules on the schema, and what is known of an increment without rows, are judged here, by either engine; the other
    rules by ``judge_rows``.
    """
    results = {id(rule): judge_nothing(rule) if is_empty else None for rule in suite.rules}
    asked = [rule for rule in suite.rules if results[id(rule)] is None]
    on_schema = [rule for rule in asked if rule.type in SCHEMA_RULES]
    on_rows = [rule for rule in asked if rule.type not in SCHEMA_RULES]
    found: dict[int, RuleResult] = {}
    if on_schema:
        schema = pd.DataFrame({name: [] for name in columns})
        found |= dict(zip(map(id, on_schema), judge_frame(schema, on_schema, "pandas"), strict=True))
    if on_rows:
        found |= dict(zip(map(id, on_rows), judge_rows(on_rows), strict=True))
    return [results[id(rule)] or found[id(rule)] for rule in suite.rules]


def group_rules(rules: Sequence[RuleSpec]) -> list[list[RuleSpec]]:
    """Rules that share columns together, the others apart.

    Great Expectations copies the rows of the whole frame for every rule, so a frame holds one group's columns only; and
    never more than one group is in memory.
    """
    groups: list[tuple[set[str], list[RuleSpec]]] = []
    for rule in rules:
        columns = set(rule.columns)
        touching = [group for group in groups if group[0] & columns or not (group[0] or columns)]
        merged = (
            columns.union(*(group[0] for group in touching)),
            [r for group in touching for r in group[1]] + [rule],
        )
        groups = [group for group in groups if group not in touching] + [merged]
    return [group[1] for group in groups]


Form = Literal["arrow", "plain", "object", "rank"]
Use = Literal["presence", "set", "measure", "look", "pair"]

_PRESENCE = (
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_be_null",
    "expect_column_proportion_of_non_null_values_to_be_between",
)
_MEASURES = ("between", "increasing", "decreasing", "z_scores", "outliers", "quantile", "kl_divergence", "sum")
_LARGEST_EXACT = 2**53


def find_use(rule: RuleSpec) -> Use:
    """The use of columns by a rule."""
    if rule.type in _PRESENCE:
        return "presence"
    if rule.type.startswith("expect_column_pair_"):
        return "pair"
    if rule.type.startswith("expect_column_value_lengths") or any(
        word in rule.type for word in ("regex", "strftime", "dateutil", "json")
    ):
        return "look"
    if "unique" in rule.type:
        return "set"
    return "measure" if any(word in rule.type for word in _MEASURES) else "set"


def count_rows(files: Sequence[StagedInput]) -> int:
    """Rows of all files, from their footers."""
    return sum(int(pq.read_metadata(storage.open_input(path)).num_rows) for path, _ in files)


def read_table(files: Sequence[StagedInput], types: Mapping[str, str], columns: Sequence[str]) -> pyarrow.Table:
    """``columns`` of all files as one Arrow table, partition columns added in the type that ``types`` gives them.

    Rows are kept even when ``columns`` is empty.
    """
    parts = []
    for path, partition in files:
        here = [name for name in columns if name not in partition]
        with pq.ParquetFile(storage.open_input(path)) as file:
            stored = set(file.schema_arrow.names)
            part = file.read(columns=[name for name in here if name in stored], use_threads=False)
            rows = file.metadata.num_rows
        arrays = {name: part.column(name) for name in part.column_names}
        for name in columns:
            if name in partition:
                arrays[name] = pa.chunked_array([_repeat(partition[name], types[name], rows)])
            elif name not in stored:
                arrays[name] = pa.chunked_array([pa.nulls(rows, find_arrow_type(types[name]))])
        ordered = {_ROW: pa.chunked_array([pa.nulls(rows, pa.int8())])} | {name: arrays[name] for name in columns}
        parts.append(pa.table(ordered))
    if not parts:
        return pa.table({_ROW: pa.nulls(0, pa.int8())} | {n: pa.nulls(0, find_arrow_type(types[n])) for n in columns})
    return pa.concat_tables(parts, promote_options="permissive")


_ROW = "\x00row"


def prepare_frame(
    table: pyarrow.Table, rules: Sequence[RuleSpec], types: Mapping[str, str]
) -> tuple[pandas.DataFrame, list[RuleSpec]]:
    """The frame for ``rules`` (row and column level, and row counts), from a table of :func:`read_table`, and the rules
    with the names that their columns have in it."""
    held: dict[tuple[str, Form], str] = {}
    series: dict[str, object] = {}
    prepared: dict[int, RuleSpec] = {}
    for rule in sorted(rules, key=lambda rule: find_use(rule) == "presence"):
        kwargs = prepare_kwargs(rule, types, "pandas")
        renamed = {}
        pair_form = _choose_pair_form(table, rule, types)
        for name in rule.columns:
            column = table.column(name)
            known = [form for (column_name, form) in held if column_name == name]
            form = (pair_form if name in _list_judged(rule) else None) or choose_form(
                column, types[name], _find_column_use(rule, name, types), known, rule
            )
            if (name, form) not in held:
                held[name, form] = f"c{len(held)}"
                series[held[name, form]] = convert_column(column, types[name], form)
            renamed[name] = held[name, form]
        prepared[id(rule)] = replace(rule, kwargs=rename_columns(kwargs, renamed))
    if not series:
        series = {_ROW: table.column(_ROW).to_pandas()}
    frame = pd.DataFrame(series, copy=False)
    return frame, [prepared[id(rule)] for rule in rules]


def rename_columns(kwargs: RuleKwargs, names: Mapping[str, str]) -> RuleKwargs:
    """Kwargs with the columns they name replaced by ``names``."""
    result = kwargs.copy()
    for key in COLUMN_KEYS:
        if key in result:
            result[key] = names.get(result[key], result[key])
    if "column_list" in result:
        result["column_list"] = [names.get(name, name) for name in result["column_list"]]
    condition = find_condition_column(kwargs)
    if condition is not None:
        result["row_condition"] = rename_condition(result["row_condition"], names.get(condition, condition))
    return result


def _choose_pair_form(table: pyarrow.Table, rule: RuleSpec, types: Mapping[str, str]) -> Form | None:
    """The form both columns of a pair need: Spark compares a float with any number as floats, and has NaN last."""
    pair = [rule.kwargs.get("column_A", ""), rule.kwargs.get("column_B", "")]
    if find_use(rule) != "pair" or any(find_family(types[name]) != "number" for name in pair):
        return None
    floats = [name for name in pair if types[name].lower().startswith(("float", "double"))]
    if any(pc.any(pc.is_nan(table.column(name))).as_py() for name in floats):
        return "rank"
    return "plain" if floats else None


def _find_column_use(rule: RuleSpec, name: str, types: Mapping[str, str]) -> Use:
    """The use of one column by the rule: that of its condition is only compared."""
    if name == find_condition_column(rule.kwargs) and name not in _list_judged(rule):
        return "set" if find_family(types[name]) == "text" else "measure"
    return find_use(rule)


def _list_judged(rule: RuleSpec) -> list[object]:
    named: list[object] = [rule.kwargs.get(key) for key in COLUMN_KEYS]
    return named + list(rule.kwargs.get("column_list", []))


def choose_form(column: pyarrow.ChunkedArray, spark_type: str, use: Use, held: Sequence[Form], rule: RuleSpec) -> Form:
    """The cheapest form in which Great Expectations judges such a column rightly."""
    family = find_family(spark_type)
    if use == "presence":
        return held[0] if held else "arrow"
    if family == "text":
        return "object" if use in ("look", "pair") else "arrow"
    if family in ("date", "timestamp"):
        return "plain"
    if family == "true/false":
        return "object" if column.null_count else "plain"
    if family != "number":
        return "object" if use in ("pair", "look") else "arrow"
    kind = spark_type.lower()
    if kind.startswith(("float", "double")):
        return "arrow" if pc.any(pc.is_nan(column)).as_py() else "plain"
    if use == "measure":
        return "plain"
    if kind.startswith("decimal"):
        values = rule.kwargs.get("value_set", [])
        return "plain" if any(isinstance(value, float) for value in values) else "object"
    if not column.null_count:
        return "plain"
    limits = pc.min_max(column).as_py()
    small = limits["min"] is None or -_LARGEST_EXACT < limits["min"] <= limits["max"] < _LARGEST_EXACT
    return "plain" if small else "object"


def convert_column(column: pyarrow.ChunkedArray, spark_type: str, form: Form) -> pandas.Series:
    """The column as a pandas Series in ``form``."""
    if form == "arrow":
        if pa.types.is_floating(column.type):
            column = pc.add(column.cast(pa.float64()), 0.0)  # -0.0 becomes 0.0, which Arrow's sets distinguish
        return pd.Series(pd.arrays.ArrowExtensionArray(column))
    if form == "object":
        return pd.Series(column.to_pylist(), dtype=object)
    if form == "rank":
        return _rank_floats(column)
    family = find_family(spark_type)
    if family in ("date", "timestamp"):
        moments = column.cast(pa.timestamp("us", "UTC"), safe=False)
        return moments.to_pandas()
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64()).to_pandas()
    return _as_floats(column).to_pandas()


def _as_floats(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Numbers as 64-bit floats, rounded as Spark does: Arrow's own way from decimals is off by one bit at times."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    return column if pa.types.is_boolean(column.type) else column.cast(pa.float64(), safe=False)


def _rank_floats(column: pyarrow.ChunkedArray) -> pandas.Series:
    floats = _as_floats(column).to_numpy(zero_copy_only=False) + 0.0
    bits = floats.view(np.int64)
    ranks = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    ranks = np.where(np.isnan(floats), np.int64(2**63 - 1), ranks)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    return pd.Series([int(rank) if there else None for rank, there in zip(ranks, present, strict=True)], dtype=object)


def find_arrow_type(spark_type: str) -> pyarrow.DataType:
    """The Arrow type of a Spark (or Delta) type name; ``null``, which fits with any type, for nested ones."""
    name = spark_type.lower()
    if name.startswith("decimal"):
        precision, _, scale = name.removeprefix("decimal").strip("()").partition(",")
        return pa.decimal128(int(precision or 10), int(scale or 0))
    known = {
        "byte": pa.int8(), "tinyint": pa.int8(), "short": pa.int16(), "smallint": pa.int16(), "int": pa.int32(),
        "integer": pa.int32(), "long": pa.int64(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
        "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return known.get(name, pa.string() if find_family(name) == "text" else pa.null())


def _repeat(value: str | None, spark_type: str, rows: int) -> object:
    kind = find_arrow_type(spark_type)
    if value is None:
        return pa.nulls(rows, kind)
    text = pa.scalar(value)
    if pa.types.is_timestamp(kind):
        text = pa.scalar(value.removesuffix("Z"))
        return pa.repeat(text.cast(pa.timestamp("us")).cast(kind), rows)
    return pa.repeat(text.cast(kind), rows)
