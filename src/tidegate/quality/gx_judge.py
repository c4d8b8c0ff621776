"""Great Expectations, asked once per batch and not trusted to have answered.

Its silent failures are errors here: a rule it drops, a result that is missing, an exception it counts as a failed rule.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

from tidegate.quality import errors
from tidegate.quality.engine import EngineName, RuleResult
from tidegate.quality.engine_values import EngineRule, tidy_observed
from tidegate.quality.gx_import import import_gx

_RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": 0}
_INDEX = "tidegate_rule_index"
_QUOTED = re.compile(r"""'.*'|".*"|`.*`""")
_LISTS_OF_ROW_VALUES = (
    "expect_column_distinct_values_to_be_in_set",
    "expect_column_distinct_values_to_contain_set",
    "expect_column_distinct_values_to_equal_set",
    "expect_column_most_common_value_to_be_in_set",
)


@functools.cache
def open_gx_context() -> Any:
    """The one ephemeral context of this process: no files, no analytics, no progress bars."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    gx = import_gx()
    for name in ("great_expectations", "great_expectations.expectations", "great_expectations.validator"):
        logging.getLogger(name).setLevel(logging.WARNING)
    context = gx.get_context(mode="ephemeral")
    _skip_fingerprints()
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    return context


@functools.cache
def open_gx_frames(engine: EngineName) -> Any:
    """Great Expectations' batch definition for frames of one engine, made once: each time it costs a YAML document."""
    sources = open_gx_context().data_sources
    source = (
        sources.add_pandas("tidegate_pandas")
        if engine == "pandas"
        else sources.add_spark("tidegate_spark", persist=False)  # the default caches, and never lets go
    )
    return source.add_dataframe_asset("increment").add_batch_definition_whole_dataframe("whole")


def judge_frame(frame: object, rules: Sequence[EngineRule], engine: EngineName) -> list[RuleResult]:
    """:func:`judge_batch` for a pandas or Spark DataFrame."""
    return judge_batch(open_gx_frames(engine).get_batch({"dataframe": frame}), rules)


def _skip_fingerprints() -> None:
    """Skip the hash over every value of a frame: it labels a batch, is never read, and costs more than the rules."""
    from great_expectations.execution_engine import pandas_execution_engine

    if hasattr(pandas_execution_engine, "HASH_THRESHOLD"):
        pandas_execution_engine.HASH_THRESHOLD = 0


def judge_batch(batch: Any, rules: Sequence[EngineRule]) -> list[RuleResult]:
    """Ask Great Expectations about ``batch`` (its own Batch object): one result per rule, in the order of ``rules``.

    Raises UsageError when a rule cannot be built or evaluated, naming it, and DefectError when an answer is missing.
    """
    gx = import_gx()
    expectations = [build_expectation(rule, index) for index, rule in enumerate(rules)]
    suite = gx.ExpectationSuite(name="increment", expectations=expectations)
    if len(suite.expectations) != len(rules):
        raise errors.GX_DROPPED_RULES(kept=len(suite.expectations), rules=len(rules))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = batch.validate(suite, result_format=_RESULT_FORMAT)
    answers = {answer.expectation_config.meta.get(_INDEX): answer for answer in report.results}
    if len(report.results) != len(rules) or set(answers) != set(range(len(rules))):
        raise errors.GX_LEFT_OUT_RESULTS(results=len(report.results), rules=len(rules))
    return [_read_answer(rule, answers[index]) for index, rule in enumerate(rules)]


def build_expectation(engine_rule: EngineRule, index: int) -> object:
    """Great Expectations' own object for a rule. Raises UsageError with its complaint when the kwargs do not suit."""
    import_gx()
    from great_expectations.expectations.registry import get_expectation_impl

    rule = engine_rule.rule
    try:
        implementation = get_expectation_impl(rule.type)
        return implementation(**engine_rule.kwargs, severity=rule.severity, meta={_INDEX: index})
    except Exception as error:  # noqa: BLE001 - GX and what it imports raise any class for kwargs that do not suit
        raise errors.BAD_SUITE(
            where=f"line {rule.line} of the suite" if rule.line else None,
            rule=rule.rule,
            rule_type=rule.type,
            error=" ".join(str(error).split()),
        ) from None


def _read_answer(engine_rule: EngineRule, answer: Any) -> RuleResult:
    rule = engine_rule.rule
    info = answer.exception_info or {}
    if info.get("raised_exception") or (info and "raised_exception" not in info):
        raise errors.RULE_NOT_EVALUATED(
            where=f"line {rule.line} of the suite" if rule.line else None,
            rule=rule.rule,
            rule_type=rule.type,
            info=_find_complaint(info),
        )
    figures = answer.result or {}
    count = figures.get("unexpected_count") if rule.level == "row" else None
    if rule.level == "row" and count is None:
        raise errors.GX_LEFT_OUT_COUNT(rule=rule.rule)
    observed = None if rule.type in _LISTS_OF_ROW_VALUES or rule.level == "row" else figures.get("observed_value")
    return RuleResult(
        rule=rule.rule,
        type=rule.type,
        severity=rule.severity,
        success=bool(answer.success),
        unexpected_count=None if count is None else int(count),
        observed_value=_tidy_names(rule.type, observed),
    )


def _tidy_names(type_: str, observed: object) -> object:
    """Column names, which are not values of a row, are kept as they are; anything else as figures."""
    if type_.startswith("expect_table_columns_") and isinstance(observed, (list, set, tuple)):
        return [str(name) for name in observed]
    return tidy_observed(observed)


def _find_complaint(info: dict[str, Any]) -> str:
    """The first exception's message, on one line, without quoted texts: they may be a row's values."""
    details = info if "raised_exception" in info else next(iter(info.values()))
    message = details.get("exception_message") if isinstance(details, dict) else details.exception_message
    return _QUOTED.sub("'...'", " ".join(str(message).split()))[:300]
