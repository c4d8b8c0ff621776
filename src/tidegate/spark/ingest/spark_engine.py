"""Great Expectations on Spark, in the session that is already running: for increments too large for memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.quality.engine import RuleResult, prepare_kwargs
from tidegate.quality.gx_judge import judge_frame
from tidegate.quality.pandas_engine import find_use, judge_suite, rename_columns
from tidegate.quality.rule_values import BOUND_KEYS, RuleKwargs, find_family
from tidegate.quality.suite import RuleSpec, SuiteSpec, check_columns
from tidegate.spec.ddl import quote_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROW = "__tidegate_row"


def judge_dataframe(suite: SuiteSpec, data: DataFrame) -> list[RuleResult]:
    """One result per rule of ``suite``, in its order, for the rows of a batch DataFrame in a running session.

    Nothing is cached, and no session is started or stopped. Rows are read several times: hand in a frame that is cheap
    to read again (the staged parquet). The same errors as :func:`tidegate.quality.pandas_engine.judge_files`.
    """
    types = dict(data.dtypes)
    check_columns(suite, types)

    def judge_rows(rules: list[RuleSpec]) -> list[RuleResult]:
        frame, prepared = prepare_dataframe(data, rules, types)
        return judge_frame(frame, prepared, "spark")

    return judge_suite(suite, data.columns, is_empty=data.isEmpty(), judge_rows=judge_rows)


def prepare_dataframe(
    data: DataFrame, rules: Sequence[RuleSpec], types: Mapping[str, str]
) -> tuple[DataFrame, list[RuleSpec]]:
    """The columns the rules read, each under a new plain name, and the rules with these names.

    Great Expectations takes ``a.b`` for a field of ``a``; and figures over decimals and timestamps come back in Python
    types that it cannot compare with its bounds: those are read as doubles and as UTC wall-clock times.
    """
    held: dict[tuple[str, str], str] = {}
    columns: list[Column] = []
    prepared = []
    for rule in rules:
        renamed = {}
        for name in rule.columns:
            form = _choose_form(rule, types[name])
            if (name, form) not in held:
                held[name, form] = f"c{len(held)}"
                columns.append(_read_column(F.col(quote_column(name)), types[name], form).alias(held[name, form]))
            renamed[name] = held[name, form]
        prepared.append(replace(rule, kwargs=rename_columns(_prepare_kwargs(rule, types), renamed)))
    return data.select(*(columns or [F.lit(1).alias(_ROW)])), prepared


def _choose_form(rule: RuleSpec, spark_type: str) -> str:
    """``figure`` for the rules that bring a figure to Python, ``value`` for those that compare in Spark."""
    family = find_family(spark_type)
    needs = rule.level == "column" and find_use(rule) == "measure"
    return "figure" if needs and (family in ("date", "timestamp") or spark_type.startswith("decimal")) else "value"


def _read_column(column: Column, spark_type: str, form: str) -> Column:
    if form == "value":
        return column
    return column.cast("double") if spark_type.startswith("decimal") else column.cast("timestamp_ntz")


def _prepare_kwargs(rule: RuleSpec, types: Mapping[str, str]) -> RuleKwargs:
    kwargs = prepare_kwargs(rule, types, "spark")
    column = kwargs.get("column")
    if column is not None and column in types and _choose_form(rule, types[column]) == "figure":
        for name in BOUND_KEYS:
            if isinstance(bound := kwargs.get(name), datetime):
                kwargs[name] = bound.replace(tzinfo=None)
    return kwargs
