"""Great Expectations on pandas: an increment's staged parquet, judged in this process without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.audit.engine import RuleResult, judge_nothing, list_read_columns
from tidegate.audit.engine_values import EngineRule
from tidegate.audit.frame import StagedInput, prepare_frame, read_table
from tidegate.audit.suite import RuleSpec, SuiteSpec, check_columns

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
    column of the increment to its Spark type, in order (:func:`tidegate.audit.engine.read_column_types`). Only the
    columns that rules name are read. Raises UsageError when a rule cannot be evaluated, DefectError when Great
    Expectations leaves an answer out.
    """
    check_columns(suite, types)
    table = read_table(files, types, list_read_columns(suite, list(types)))
    results = {id(rule): judge_nothing(rule) if table.num_rows == 0 else None for rule in suite.rules}
    asked = [rule for rule in suite.rules if results[id(rule)] is None]
    on_schema = [rule for rule in asked if rule.type in SCHEMA_RULES]
    on_rows = [rule for rule in asked if rule.type not in SCHEMA_RULES]
    found = dict(zip(map(id, on_schema), judge_schema(on_schema, list(types)), strict=True))
    if on_rows:
        prepared = prepare_frame(table, on_rows, types)
        del table
        found |= dict(zip(map(id, on_rows), _judge_frame(prepared.frame, prepared.rules), strict=True))
    return [results[id(rule)] or found[id(rule)] for rule in suite.rules]


def judge_schema(rules: Sequence[RuleSpec], columns: Sequence[str]) -> list[RuleResult]:
    """Results of :data:`SCHEMA_RULES` for an increment with these columns, in this order."""
    if not rules:
        return []
    import pandas as pd

    return _judge_frame(pd.DataFrame({name: [] for name in columns}), [EngineRule(rule, rule.kwargs) for rule in rules])


def _judge_frame(frame: object, rules: Sequence[EngineRule]) -> list[RuleResult]:
    from tidegate.audit.gx_judge import judge_batch, open_gx_context

    source = open_gx_context().data_sources.add_or_update_pandas("tidegate_pandas")
    definition = source.add_dataframe_asset("increment").add_batch_definition_whole_dataframe("whole")
    try:
        return judge_batch(definition.get_batch({"dataframe": frame}), rules)
    finally:
        open_gx_context().data_sources.delete("tidegate_pandas")
