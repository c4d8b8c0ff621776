"""Whether a rule's values can be compared with the Spark type of its column. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tidegate.quality.rule_values import describe_kind, parse_bound

_NUMBERS = ("tinyint", "byte", "smallint", "short", "int", "bigint", "long", "float", "double", "decimal")
_LENGTH_OR_REGEX = (
    "expect_column_value_lengths_to_be_between",
    "expect_column_value_lengths_to_equal",
    "expect_column_values_to_match_regex",
    "expect_column_values_to_not_match_regex",
)
_SETS = ("expect_column_values_to_be_in_set", "expect_column_values_to_not_be_in_set")
_PAIRS = ("expect_column_pair_values_a_to_be_greater_than_b", "expect_column_pair_values_to_be_equal")


def find_family(spark_type: str) -> str:
    """``number``, ``date``, ``timestamp``, ``text``, ``true/false`` or the type itself for the rest."""
    name = spark_type.lower()
    if name.startswith(_NUMBERS) and not name.startswith("interval"):
        return "number"
    if name.startswith(("string", "varchar", "char")):
        return "text"
    if name.startswith("timestamp"):
        return "timestamp"
    return {"date": "date", "boolean": "true/false"}.get(name, name)


def find_type_faults(type_: str, kwargs: Mapping[str, object], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each fault as (what is wrong, what to do), for a rule whose columns all are in ``types`` (name to Spark type)."""
    if type_ in _PAIRS:
        yield from _find_pair_faults(kwargs, types)
    column = kwargs.get("column")
    if not isinstance(column, str) or column not in types:
        return
    family = find_family(types[column])
    of = f"the column {column!r} is of type {types[column]}"
    if type_ in _LENGTH_OR_REGEX and family != "text":
        yield f"{of}, and only texts have a length or match a pattern", "use another rule, or cast it in the transform"
    elif type_ == "expect_column_values_to_be_between":
        yield from _find_bound_faults(kwargs, family, of)
    elif type_ in _SETS:
        yield from _find_set_faults(kwargs, family, of)


def _find_bound_faults(kwargs: Mapping[str, object], family: str, of: str) -> Iterator[tuple[str, str]]:
    for name in ("min_value", "max_value"):
        if kwargs.get(name) is None:
            continue
        kind = describe_kind(parse_bound(kwargs[name]))
        fits = family == "number" if kind == "number" else family in ("date", "timestamp")
        if not fits:
            yield f"{of}, and `{name}` is a {kind}", "compare it with a value of its own type"


def _find_set_faults(kwargs: Mapping[str, Any], family: str, of: str) -> Iterator[tuple[str, str]]:
    for value in kwargs.get("value_set", []):
        kind = describe_kind(value)
        if kind == family or (kind == "time" and family in ("date", "timestamp")):
            continue
        if kind == "text" and family in ("date", "timestamp") and _is_moment(value, family):
            continue
        yield f"{of}, and `value_set` holds the {kind} {value!r}", "list values of the column's own type"
        return


def _find_pair_faults(kwargs: Mapping[str, object], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names = [kwargs.get("column_A"), kwargs.get("column_B")]
    if not all(isinstance(name, str) and name in types for name in names):
        return
    families = [find_family(types[str(name)]) for name in names]
    if families[0] != families[1] and set(families) != {"date", "timestamp"}:
        first, second = (f"{name!r} ({types[str(name)]})" for name in names)
        yield f"the columns {first} and {second} cannot be compared", "cast one of them in the transform"


def _is_moment(value: str, family: str) -> bool:
    try:
        moment = parse_bound(value)
    except ValueError:
        return False
    return not isinstance(moment, float) and (family == "timestamp" or not isinstance(moment, datetime))
