"""A rule's kwargs as both engines are given them, so that one meaning holds on pandas and on Spark. Pure.

Great Expectations' engines differ in how they compare; the meanings chosen are :mod:`tidegate.quality.row_rules`'.
Here they are brought about by what goes in: bounds and sets in the type of their column, never by what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidegate.quality.column_types import find_family
from tidegate.quality.engine import EngineName
from tidegate.quality.regex_dialects import JAVA_PREFIX, PYTHON_PREFIX
from tidegate.quality.rule_values import as_comparable, describe_kind, parse_bound
from tidegate.quality.suite import RuleSpec

_BOUNDED = (
    "expect_column_values_to_be_between",
    "expect_column_max_to_be_between",
    "expect_column_min_to_be_between",
    "expect_column_mean_to_be_between",
    "expect_column_median_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_stdev_to_be_between",
)


@dataclass(frozen=True)
class EngineRule:
    """A rule and the kwargs that an engine is given for it; columns may be named differently there."""

    rule: RuleSpec
    kwargs: Mapping[str, object]


def prepare_kwargs(rule: RuleSpec, types: Mapping[str, str], engine: EngineName) -> dict[str, Any]:
    """The kwargs of ``rule`` for one engine; ``types`` maps column names to Spark types."""
    kwargs = dict(rule.kwargs)
    column = kwargs.get("column")
    family = find_family(types[column]) if isinstance(column, str) and column in types else ""
    if rule.type in _BOUNDED:
        _prepare_bounds(rule.type, kwargs, family)
    if "value_set" in kwargs and family in ("date", "timestamp"):
        kwargs["value_set"] = [_as_moment(value, family, engine) for value in kwargs["value_set"]]
    if "value_set" in kwargs and engine == "spark":
        kwargs["value_set"] = [_fit_to_spark(value) for value in kwargs["value_set"]]
    if rule.type in ("expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex"):
        kwargs["regex"] = (PYTHON_PREFIX if engine == "pandas" else JAVA_PREFIX) + kwargs["regex"]
    if rule.type == "expect_column_pair_values_a_to_be_greater_than_b":
        # On pandas a missing value is "not greater"; on Spark, as in SQL, it says nothing: that meaning holds.
        kwargs["ignore_row_if"] = "either_value_is_missing"
    return kwargs


def _prepare_bounds(type_: str, kwargs: dict[str, object], family: str) -> None:
    for name in ("min_value", "max_value"):
        if kwargs.get(name) is None:
            continue
        bound = parse_bound(kwargs[name])
        kwargs[name] = as_comparable(bound) if describe_kind(bound) == "time" else bound
    if type_ == "expect_column_values_to_be_between" and family == "number" and kwargs.get("max_value") is None:
        kwargs["max_value"] = float("inf")  # NaN is Spark's greatest number; it lies in no range
        kwargs.pop("strict_max", None)


def _as_moment(value: object, family: str, engine: EngineName) -> object:
    moment = parse_bound(value)
    if isinstance(moment, float):
        return value
    if engine == "pandas":
        return as_comparable(moment)
    if family == "date":
        return moment.date() if isinstance(moment, datetime) else moment
    return as_comparable(moment)


def _fit_to_spark(value: object) -> object:
    """Whole numbers beyond 64 bits as decimals: Spark's literals know no others."""
    return Decimal(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def tidy_observed(value: object) -> object:
    """An observed value as a report may carry it: figures and dates, never texts or lists that come from rows."""
    if isinstance(value, Mapping):
        return {str(key): tidy_observed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        tidied = [tidy_observed(item) for item in value]
        return tidied if all(item is not None for item in tidied) else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat() if moment == moment else None
    if isinstance(value, date):
        return value.isoformat()
    return _tidy_number(value)


def _tidy_number(value: Any) -> object:
    if isinstance(value, str):
        return None
    try:
        if isinstance(value, int) or (hasattr(value, "dtype") and value.dtype.kind in "iu"):
            return int(value)
        number = float(value)
    except (TypeError, ValueError):
        return None
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return number
