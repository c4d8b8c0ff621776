"""Quarantine rules as Spark SQL, so that the stream can quarantine offending rows in the same pass. Pure.

Every expression is TRUE exactly for the rows that Great Expectations would call unexpected, FALSE for all others, never
NULL. Where its two engines differ, one meaning holds here and in both engines of :mod:`tidegate.quality`:

- a missing value offends only ``not_be_null`` (and ``pair_values_to_be_equal`` when one of the two is missing);
- NaN is a value, not a missing one, and is in no range; in pairs it is the greatest number and equal to itself;
- bounds are 64-bit floats, dates, or UTC timestamps; regular expressions see :mod:`tidegate.quality.rule_values`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from tidegate.quality.rule_values import JAVA_PREFIX, PAIR_IGNORES, RuleKwargs, parse_bound
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.spec.ddl import quote_column

_LARGEST_BIGINT = 2**63 - 1


@dataclass(frozen=True)
class RowRule:
    """One quarantine rule: ``sql`` is a Spark SQL boolean expression, TRUE for offending rows."""

    rule: str
    sql: str


def row_rules(suite: SuiteSpec | None) -> list[RowRule]:
    """The quarantine rules of a suite, in its order; none for no suite."""
    if suite is None:
        return []
    return [RowRule(rule.rule, build_sql(rule)) for rule in suite.quarantine_rules]


def build_sql(rule: RuleSpec) -> str:
    """The expression for one rule of a type that can be judged row by row."""
    return BUILDERS[rule.type](rule.kwargs)


def quote_literal(value: object) -> str:
    """A Spark SQL literal. Everything but plain ASCII is escaped, and so is ``$``: Spark fills in ``${...}`` in SQL."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value) if abs(value) <= _LARGEST_BIGINT else f"CAST('{value}' AS DECIMAL(38, 0))"
    if isinstance(value, float):
        return f"CAST('{_spell_float(value)}' AS DOUBLE)"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return "'" + "".join(_escape(character) for character in str(value)) + "'"


def _escape(character: str) -> str:
    if character.isascii() and character.isprintable() and character not in "'\"\\$`":
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


def _spell_float(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _not_null(kwargs: RuleKwargs) -> str:
    return f"({quote_column(kwargs['column'])} IS NULL)"


def _null(kwargs: RuleKwargs) -> str:
    return f"({quote_column(kwargs['column'])} IS NOT NULL)"


def _in_set(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    return f"({column} IS NOT NULL AND NOT ({column} IN ({_list_literals(kwargs)})))"


def _not_in_set(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    return f"({column} IS NOT NULL AND {column} IN ({_list_literals(kwargs)}))"


def _list_literals(kwargs: RuleKwargs) -> str:
    return ", ".join(quote_literal(value) for value in kwargs["value_set"])


def _between(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    given = kwargs.get("min_value"), kwargs.get("max_value")
    low, high = (None if value is None else parse_bound(value) for value in given)
    is_below = kwargs.get("strict_max", False)
    if high is None and isinstance(low, float):
        high, is_below = float("inf"), False  # so that NaN, Spark's greatest number, offends
    return f"({column} IS NOT NULL AND NOT ({_range(column, low, high, kwargs.get('strict_min', False), is_below)}))"


def _range(subject: str, low: object, high: object, is_above: bool, is_below: bool) -> str:
    parts = []
    if low is not None:
        parts.append(f"{subject} {'>' if is_above else '>='} {quote_literal(low)}")
    if high is not None:
        parts.append(f"{subject} {'<' if is_below else '<='} {quote_literal(high)}")
    return " AND ".join(parts)


def _lengths_between(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    strict = kwargs.get("strict_min", False), kwargs.get("strict_max", False)
    limits = _range(f"length({column})", kwargs.get("min_value"), kwargs.get("max_value"), *strict)
    return f"({column} IS NOT NULL AND NOT ({limits}))"


def _lengths_equal(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    return f"({column} IS NOT NULL AND length({column}) <> {quote_literal(kwargs['value'])})"


def _match_regex(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    return f"({column} IS NOT NULL AND NOT rlike({column}, {quote_literal(JAVA_PREFIX + kwargs['regex'])}))"


def _not_match_regex(kwargs: RuleKwargs) -> str:
    column = quote_column(kwargs["column"])
    return f"({column} IS NOT NULL AND rlike({column}, {quote_literal(JAVA_PREFIX + kwargs['regex'])}))"


def _pair_greater(kwargs: RuleKwargs) -> str:
    a, b = quote_column(kwargs["column_A"]), quote_column(kwargs["column_B"])
    operator = ">=" if kwargs.get("or_equal") else ">"
    return f"({a} IS NOT NULL AND {b} IS NOT NULL AND NOT ({a} {operator} {b}))"


def _pair_equal(kwargs: RuleKwargs) -> str:
    a, b = quote_column(kwargs["column_A"]), quote_column(kwargs["column_B"])
    if kwargs.get("ignore_row_if", PAIR_IGNORES[0]) == "either_value_is_missing":
        return f"({a} IS NOT NULL AND {b} IS NOT NULL AND NOT ({a} <=> {b}))"
    return f"(NOT ({a} <=> {b}))"


BUILDERS: dict[str, Callable[[RuleKwargs], str]] = {
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_values_to_be_null": _null,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_match_regex": _match_regex,
    "expect_column_values_to_not_match_regex": _not_match_regex,
    "expect_column_value_lengths_to_be_between": _lengths_between,
    "expect_column_value_lengths_to_equal": _lengths_equal,
    "expect_column_pair_values_a_to_be_greater_than_b": _pair_greater,
    "expect_column_pair_values_to_be_equal": _pair_equal,
}
