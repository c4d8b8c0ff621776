"""The values a rule may carry, read the way Great Expectations reads them. Pure: no Great Expectations, no pyspark.

Great Expectations takes bounds as numbers (always as 64-bit floats), dates or timestamps, also when they are written as
strings; everything here follows that, and refuses what it would change in silence: values that cannot be compared with
the Spark type of their column, and regular expressions that mean different things to Python (pandas engine) and to Java
(Spark). Of those, both are brought to one meaning by a flag in front: ``(?a)`` lets Python's ``\\w \\d \\s \\b`` and
``(?i)`` mean ASCII, as Java's do; ``(?d)`` lets Java's ``.``, ``^`` and ``$`` know only ``\\n``, as Python's do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from string import Formatter
from typing import Literal, TypedDict, TypeGuard

from tidegate.quality.gx_types import EXPECTATION_TYPES

Bound = float | date | datetime
"""A bound of ``between``: a float, a date, or an aware UTC timestamp."""

Fault = tuple[str, str]
"""The kwarg at fault, and what is wrong with it."""

CONDITION_FORM = 'col("status") == "paid", col("amount") > 5 or col("status").notNull()'
"""The form of a `row_condition`. It has no `!=`: a missing value passes that on pandas and not on Spark."""
PAIR_IGNORES = ("both_values_are_missing", "either_value_is_missing", "neither")

_ISO_TIME = re.compile(r"^\d{4}-\d{2}-\d{2}([T ].+)?$")
_CONDITION = re.compile(
    r"""^\s*col\("(?P<column>[^"]+)"\)\s*(\.notNull\(\)|(==|<=|>=|<|>)\s*("[^"]*"|-?\d+(\.\d+)?))\s*$"""
)
_PANDAS_CONDITION = re.compile(
    r"""^\s*`?(?P<column>\w+)`?\s*(?P<operator>==|<=|>=|<|>)\s*"""
    r"""('(?P<text>[^'"]*)'|"(?P<other_text>[^'"]*)"|(?P<number>-?\d+(\.\d+)?))\s*$"""
)
_SET_TYPES = frozenset(
    {
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_not_be_in_set",
        "expect_column_distinct_values_to_be_in_set",
        "expect_column_distinct_values_to_contain_set",
        "expect_column_distinct_values_to_equal_set",
        "expect_column_most_common_value_to_be_in_set",
    }
)
_COUNT_RANGE_TYPES = frozenset(
    {
        "expect_column_value_lengths_to_be_between",
        "expect_table_row_count_to_be_between",
        "expect_table_column_count_to_be_between",
        "expect_column_unique_value_count_to_be_between",
    }
)
_VALUE_RANGE_TYPES = frozenset({"expect_column_values_to_be_between"})
_COUNT_TYPES = frozenset(
    {"expect_column_value_lengths_to_equal", "expect_table_row_count_to_equal", "expect_table_column_count_to_equal"}
)
_BOOLS = ("strict_min", "strict_max", "or_equal", "exact_match", "ties_okay", "double_sided", "strictly")


class RuleKwargs(TypedDict, total=False):
    """The arguments of a rule that :func:`find_kwarg_faults` has checked, as far as tidegate itself reads them."""

    column: str
    column_A: str
    column_B: str
    column_list: list[str]
    row_condition: str
    value_set: list[object]
    regex: str
    value: int
    min_value: object
    max_value: object
    strict_min: bool
    strict_max: bool
    or_equal: bool
    ignore_row_if: str
    unexpected_rows_query: str


COLUMN_KEYS: tuple[Literal["column"], Literal["column_A"], Literal["column_B"]] = ("column", "column_A", "column_B")
BOUND_KEYS: tuple[Literal["min_value"], Literal["max_value"]] = ("min_value", "max_value")


def parse_bound(value: object) -> Bound:
    """The bound that Great Expectations makes of ``value``; a timestamp without offset is UTC.

    Raises ValueError when it is none, or when a 64-bit float cannot hold it.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _exact_float(value)
    if isinstance(value, datetime):
        return _as_utc(value)
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        try:
            return _exact_float(float(value))
        except ValueError:
            pass
        if _ISO_TIME.match(value):
            moment = datetime.fromisoformat(value)
            return moment.date() if len(value) == len("2024-01-01") else _as_utc(moment)
    raise ValueError(f"{value!r} is not a number, a date (2024-01-31) or a timestamp (2024-01-31T12:00:00Z)")


def describe_kind(value: object) -> str:
    """The family of a value, in the words errors use: number, time, text, true/false."""
    if isinstance(value, bool):
        return "true/false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (date, datetime)):
        return "time"
    return "text" if isinstance(value, str) else type(value).__name__


def find_kwarg_faults(type_: str, kwargs: Mapping[str, object]) -> Iterator[Fault]:
    """Every fault of the kwargs of a known type: names, what is missing, and values that cannot be meant."""
    known = EXPECTATION_TYPES[type_]
    for name in known.required_kwargs:
        if name not in kwargs:
            yield name, f"{type_} needs `{name}`"
    for name, value in kwargs.items():
        if isinstance(value, Mapping) and "$PARAMETER" in value:
            yield name, f"suite parameters are not supported here; write the value of `{name}` itself"
        elif name in COLUMN_KEYS and not (isinstance(value, str) and value):
            yield name, f"`{name}` must be the name of a column, not {value!r}"
        elif name == "row_condition" and (
            find_condition_column(kwargs) is None or kwargs.get("condition_parser") != "great_expectations"
        ):
            yield (
                name,
                f"`row_condition` has a form that both engines read alike, {CONDITION_FORM}, and needs "
                f"`condition_parser: great_expectations`; write: {_write_condition(str(value))}",
            )
        elif name == "column_list" and not _is_list_of_names(value):
            yield name, "`column_list` must be a list of column names"
        elif name == "mostly" and not _is_share(value):
            yield name, f"`mostly` must be a share between 0 and 1, not {value!r}"
        elif name in _BOOLS and not isinstance(value, bool):
            yield name, f"`{name}` must be true or false, not {value!r}"
    yield from _find_value_faults(type_, kwargs)


def _write_condition(condition: str) -> str:
    """The arguments for a condition, also for one in the form of pandas, as a suite has them."""
    match = _PANDAS_CONDITION.match(condition)
    if match is not None:
        value = match["number"] or '"' + (match["text"] or match["other_text"] or "") + '"'
        condition = 'col("' + match["column"] + '") ' + f"{match['operator']} {value}"
    elif _CONDITION.match(condition) is None:
        condition = 'col("status") == "paid"'
    return f"row_condition: '{condition.strip()}', condition_parser: great_expectations"


def find_condition_column(kwargs: Mapping[str, object]) -> str | None:
    """The column a rule's ``row_condition`` looks at; None without one, or with one that is not of the known form."""
    condition = kwargs.get("row_condition")
    match = _CONDITION.match(condition) if isinstance(condition, str) else None
    return match["column"] if match else None


def rename_condition(condition: str, name: str) -> str:
    """A ``row_condition`` of the known form that looks at the column ``name`` instead."""
    match = _CONDITION.match(condition)
    if match is None:
        return condition
    return condition[: match.start("column")] + name + condition[match.end("column") :]


def _find_value_faults(type_: str, kwargs: Mapping[str, object]) -> Iterator[Fault]:
    if type_ in _SET_TYPES and "value_set" in kwargs:
        yield from _find_set_faults(kwargs["value_set"])
    if type_ in _VALUE_RANGE_TYPES or type_ in _COUNT_RANGE_TYPES:
        yield from _find_range_faults(kwargs, counts=type_ in _COUNT_RANGE_TYPES)
    if type_ in _COUNT_TYPES and "value" in kwargs and not _is_count(kwargs["value"]):
        yield "value", f"`value` must be a whole number, 0 or more, not {kwargs['value']!r}"
    if type_ in ("expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex"):
        yield from _find_regex_faults(type_, kwargs)
    if type_.startswith("expect_column_pair_"):
        yield from _find_pair_faults(type_, kwargs)
    if "unexpected_rows_query" in kwargs:
        yield from _find_query_faults(kwargs["unexpected_rows_query"])


def list_placeholders(query: str) -> set[str]:
    """The names in braces in a query. Raises ValueError for a brace without its other one."""
    return {name for _, name, _, _ in Formatter().parse(query) if name is not None}


def _find_query_faults(query: object) -> Iterator[Fault]:
    name = "unexpected_rows_query"
    if not isinstance(query, str) or not query.strip():
        yield name, f"`{name}` must be a SELECT, not {query!r}"
        return
    braces = "`{{` and `}}` stand for the braces of the query itself"
    try:
        found = list_placeholders(query)
    except ValueError as error:
        yield name, f"`{name}`: {str(error).lower()}; {braces}"
        return
    if unknown := sorted(found - {"batch", "table"}):
        known = "{batch} is the increment, {table} the table after the publish"
        yield name, f"`{name}` has {', '.join(f'{{{one}}}' for one in unknown)}; {known}; {braces}"


def _find_set_faults(values: object) -> Iterator[Fault]:
    if not isinstance(values, list) or not values:
        yield "value_set", "`value_set` must be a list with at least one value"
        return
    if any(value is None for value in values):
        yield "value_set", "`value_set` holds null, but missing values are never looked at; use not_be_null for those"
        return
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        yield "value_set", "`value_set` holds NaN, which equals nothing"
    kinds = sorted({describe_kind(value) for value in values})
    if len(kinds) > 1:
        yield "value_set", f"`value_set` mixes {' and '.join(kinds)}; a column has one type"
    elif kinds[0] not in ("number", "time", "text", "true/false"):
        yield "value_set", f"`value_set` holds a {kinds[0]}; only texts, numbers, dates and true/false can be compared"


def _find_range_faults(kwargs: Mapping[str, object], *, counts: bool) -> Iterator[Fault]:
    given = {name: kwargs[name] for name in BOUND_KEYS if kwargs.get(name) is not None}
    if not given:
        yield "min_value", "`min_value` and `max_value` are both missing"
    bounds: dict[str, Bound] = {}
    for name, value in given.items():
        if counts:
            if not _is_count(value):
                yield name, f"`{name}` must be a whole number, 0 or more, not {value!r}"
            else:
                bounds[name] = float(value)
            continue
        try:
            bounds[name] = parse_bound(value)
        except ValueError as error:
            yield name, f"`{name}`: {error}"
    if len(bounds) == 2:
        low, high = bounds["min_value"], bounds["max_value"]
        if describe_kind(low) != describe_kind(high):
            yield "max_value", f"`min_value` is a {describe_kind(low)} and `max_value` a {describe_kind(high)}"
        elif _is_greater(low, high):
            yield "max_value", f"`min_value` {low} is greater than `max_value` {high}: no value can pass"


def _find_regex_faults(type_: str, kwargs: Mapping[str, object]) -> Iterator[Fault]:
    if "regex" not in kwargs:
        if "regex" not in EXPECTATION_TYPES[type_].required_kwargs:
            yield "regex", f"{type_} needs `regex`"
        return
    regex = kwargs["regex"]
    if not isinstance(regex, str):
        yield "regex", f"`regex` must be a text, not {regex!r}; put it in quotes"
        return
    try:
        re.compile(regex)
    except re.error as error:
        yield "regex", f"`regex` {regex!r} is not a regular expression: {error}"
        return
    difference = find_dialect_difference(regex)
    if difference:
        yield "regex", f"`regex` {regex!r}: {difference}"


def _find_pair_faults(type_: str, kwargs: Mapping[str, object]) -> Iterator[Fault]:
    ignore = kwargs.get("ignore_row_if", PAIR_IGNORES[0])
    if ignore not in PAIR_IGNORES:
        yield "ignore_row_if", f"`ignore_row_if` must be one of {', '.join(PAIR_IGNORES)}, not {ignore!r}"
    elif ignore == "neither" and type_ == "expect_column_pair_values_to_be_equal":
        yield (
            "ignore_row_if",
            "`neither`: two missing values are equal to Great Expectations on Spark and unequal on pandas",
        )


def as_moment(value: date) -> datetime:
    """A date or timestamp of a bound as a timestamp: a date counts as its midnight, UTC."""
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)


def _is_greater(one: Bound, other: Bound) -> bool:
    """Compare two bounds of one family."""
    if isinstance(one, date) and isinstance(other, date):
        return as_moment(one) > as_moment(other)
    return isinstance(one, float) and isinstance(other, float) and one > other


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _exact_float(value: float) -> float:
    try:
        as_float = float(value)
    except OverflowError:
        raise ValueError(f"{value} is too large for a 64-bit float") from None
    if math.isnan(as_float):
        raise ValueError("NaN is not a bound")
    if isinstance(value, int) and int(as_float) != value:
        raise ValueError(f"{value} cannot be held exactly by a 64-bit float, which Great Expectations makes of it")
    return as_float


def _as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) and name for name in value)


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
        yield from _find_pair_type_faults(kwargs, types)
    column = kwargs.get("column")
    if not isinstance(column, str) or column not in types:
        return
    family = find_family(types[column])
    of = f"the column {column!r} is of type {types[column]}"
    if type_ in _LENGTH_OR_REGEX and family != "text":
        yield f"{of}, and only texts have a length or match a pattern", "use another rule, or cast it in the transform"
    elif type_ == "expect_column_values_to_be_between":
        yield from _find_bound_type_faults(kwargs, family, of)
    elif type_ in _SETS:
        yield from _find_set_type_faults(kwargs, family, of)


def _find_bound_type_faults(kwargs: Mapping[str, object], family: str, of: str) -> Iterator[tuple[str, str]]:
    for name in BOUND_KEYS:
        if kwargs.get(name) is None:
            continue
        kind = describe_kind(parse_bound(kwargs[name]))
        fits = family == "number" if kind == "number" else family in ("date", "timestamp")
        if not fits:
            yield f"{of}, and `{name}` is a {kind}", "compare it with a value of its own type"


def _find_set_type_faults(kwargs: Mapping[str, object], family: str, of: str) -> Iterator[tuple[str, str]]:
    values = kwargs.get("value_set")
    for value in values if isinstance(values, list) else ():
        kind = describe_kind(value)
        if kind == family or (kind == "time" and family in ("date", "timestamp")):
            continue
        if kind == "text" and family in ("date", "timestamp") and _is_moment(value, family):
            continue
        yield f"{of}, and `value_set` holds the {kind} {value!r}", "list values of the column's own type"
        return


def _find_pair_type_faults(kwargs: Mapping[str, object], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names = [kwargs.get("column_A"), kwargs.get("column_B")]
    if not all(isinstance(name, str) and name in types for name in names):
        return
    families = [find_family(types[str(name)]) for name in names]
    if families[0] != families[1] and set(families) != {"date", "timestamp"}:
        first, second = (f"{name!r} ({types[str(name)]})" for name in names)
        yield f"the columns {first} and {second} cannot be compared", "cast one of them in the transform"


def _is_moment(value: object, family: str) -> bool:
    try:
        moment = parse_bound(value)
    except ValueError:
        return False
    return not isinstance(moment, float) and (family == "timestamp" or not isinstance(moment, datetime))


PYTHON_PREFIX = "(?a)"
JAVA_PREFIX = "(?d)"

_GROUPS = {
    "(?P": "named groups are written in two ways; a plain group ( ) does",
    "(?(": "conditional groups exist in Python only",
    "(?L": "the flag L exists in Python only",
    "(?u": "the flag u means two things; the pattern is read as ASCII classes over Unicode text",
    "(?a": "the flag a exists in Python only, and is set anyway",
    "(?x": "the flag x treats blanks in classes in two ways; write the pattern without blanks",
}


def find_dialect_difference(pattern: str) -> str | None:
    """Why ``pattern`` (valid in Python) could match other texts in Java, or None when it is the same in both."""
    position, in_class, class_start = 0, False, 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest[0] == "\\":
            reason = _find_escape_difference(rest)
            if reason:
                return reason
            position += 2
            continue
        if in_class:
            reason = _find_class_difference(rest)
            if reason:
                return reason
            if rest[0] == "]" and position > class_start:
                in_class = False
        elif rest[0] == "[":
            in_class = True
            position += 2 if rest.startswith("[^") else 1
            class_start = position
            if pattern[position : position + 1] == "]":
                return r"`]` first in a class: write `\]`"
            continue
        else:
            reason = _find_group_difference(rest)
            if reason:
                return reason
        position += 1
    return None


def _find_class_difference(rest: str) -> str | None:
    if rest[0] == "[":
        return r"`[` inside a class opens a class in Java; write `\[`"
    if rest.startswith("&&"):
        return r"`&&` inside a class is an intersection in Java; write `\&\&`"
    return None


def _find_group_difference(rest: str) -> str | None:
    for start, reason in _GROUPS.items():
        if rest.startswith(start):
            return reason
    if rest[0] == "{" and not _is_repeat(rest):
        return r"`{` that is not a repeat is an error in Java; write `\{`"
    return None


def _find_escape_difference(rest: str) -> str | None:
    letter = rest[1:2]
    if letter == "Z":
        return r"`\Z` is before a final line break in Java and the very end in Python; write `$`"
    if letter == "N":
        return r"`\N` means a named character in Python and something else in Java"
    if letter == "0" or (letter.isdigit() and rest[2:3].isdigit()):
        return rf"`{rest[:3]}` is read as an octal number or a back reference; write \x with two digits"
    return None


def _is_repeat(rest: str) -> bool:
    body, closed, _ = rest[1:].partition("}")
    low, _, high = body.partition(",")
    return bool(closed) and low.isdigit() and (high == "" or high.isdigit())
