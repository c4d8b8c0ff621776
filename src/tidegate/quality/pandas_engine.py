"""Great Expectations on pandas: an increment's staged parquet, judged in this process without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tidegate.quality.engine import RuleResult, judge_nothing
from tidegate.quality.engine_values import EngineRule
from tidegate.quality.frame import StagedInput, count_rows, prepare_frame, read_table
from tidegate.quality.gx_judge import judge_frame
from tidegate.quality.suite import RuleSpec, SuiteSpec, check_columns

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
    rows = count_rows(files)
    results = {id(rule): judge_nothing(rule) if rows == 0 else None for rule in suite.rules}
    asked = [rule for rule in suite.rules if results[id(rule)] is None]
    on_schema = [rule for rule in asked if rule.type in SCHEMA_RULES]
    on_rows = [rule for rule in asked if rule.type not in SCHEMA_RULES]
    found = dict(zip(map(id, on_schema), judge_schema(on_schema, list(types)), strict=True))
    for group in group_rules(on_rows):
        columns = {column for rule in group for column in rule.columns}
        table = read_table(files, types, [name for name in types if name in columns])
        prepared = prepare_frame(table, group, types)
        del table
        found |= dict(zip(map(id, group), _judge_frame(prepared.frame, prepared.rules), strict=True))
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


def judge_schema(rules: Sequence[RuleSpec], columns: Sequence[str]) -> list[RuleResult]:
    """Results of :data:`SCHEMA_RULES` for an increment with these columns, in this order."""
    if not rules:
        return []
    return _judge_frame(pd.DataFrame({name: [] for name in columns}), [EngineRule(rule, rule.kwargs) for rule in rules])


def _judge_frame(frame: object, rules: Sequence[EngineRule]) -> list[RuleResult]:
    return judge_frame(frame, rules, "pandas")
