"""Common parts of both engines: the choice of the engine, a rule's kwargs and its result.

Great Expectations' engines differ in how they compare; the meanings chosen are :mod:`tidegate.quality.row_rules`'.
They are brought about by what goes in: bounds and sets in the type of their column, never by what comes out. The
results of the ingest driver's Spark for a large increment are stored before its JVM ends, for the audit step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, SupportsFloat, SupportsInt, cast

from tidegate.core import outputs, storage
from tidegate.core.paths import PipelinePaths
from tidegate.quality.rule_values import (
    BOUND_KEYS,
    JAVA_PREFIX,
    PYTHON_PREFIX,
    RuleKwargs,
    as_moment,
    find_family,
    parse_bound,
)
from tidegate.quality.suite import RuleSpec
from tidegate.state.manifest import BatchKey, keys_from_json
from tidegate.table.schema import fields_of

EngineName = Literal["pandas", "spark"]

StagedInput = tuple[Path, Mapping[str, str | None]]
"""A parquet file, and the values of the partition columns that are not in it."""

_QUOTED = re.compile(r"""'.*'|".*"|`.*`""", re.DOTALL)
_NUMBER = re.compile(r"(?<!\w)[-+]?\d(?:[\d.,:eE+-]*\d)?")

PANDAS_MEMORY_BYTES = 900 * 1024 * 1024
"""Memory of the pandas engine for one increment, above the libraries themselves; it judges when the driver's JVM
has ended. Measured: with ``clicks`` of 2 M rows, which is under this limit, the run's peak was 1,106 MiB with pandas as
judge and 1,247 MiB with Spark as judge."""

_MEMORY_PER_FILE_BYTE = 13
_MEMORY_PER_ROW_BYTES = 200
_MEMORY_PER_VALUE_BYTES = 24


@dataclass(frozen=True)
class RuleResult:
    """The verdict of Great Expectations on one rule, without any row's value.

    ``unexpected_count`` is the number of offending rows, None for rules that have none. ``observed_value`` is the
    figure that an aggregate rule saw: a number, an ISO date, a mapping of such, or None. ``quarantined`` is the number
    of rows that the stream has put into quarantine for it, before these were judged; None for a rule that puts none.
    """

    rule: str
    type: str
    severity: str
    success: bool
    unexpected_count: int | None = None
    observed_value: object = None
    quarantined: int | None = None

    def to_dict(self) -> outputs.RuleResult:
        """The result as the run report carries it."""
        value = asdict(self)
        if self.quarantined is None:
            del value["quarantined"]
        return cast(outputs.RuleResult, value)

    @staticmethod
    def from_dict(value: outputs.RuleResult) -> RuleResult:
        """The result again, from :meth:`to_dict`."""
        return RuleResult(**value)


def choose_engine(rows: int, size_bytes: int, columns: int) -> EngineName:
    """The engine for an increment of ``rows`` rows in ``size_bytes`` of parquet, of which the suite reads ``columns``.

    pandas is three times cheaper, but holds the columns of a rule in memory: it is chosen while the estimate is under
    :data:`PANDAS_MEMORY_BYTES`. The estimate is the larger of the file-size rule and one by rows, because parquet packs
    repeated values to nearly nothing and pandas unpacks them (1 M rows, 8 columns, 32 MB: 280 MB measured).
    """
    by_rows = rows * (_MEMORY_PER_ROW_BYTES + columns * _MEMORY_PER_VALUE_BYTES)
    estimate = max(size_bytes * _MEMORY_PER_FILE_BYTE, by_rows)
    return "pandas" if estimate <= PANDAS_MEMORY_BYTES else "spark"


def read_column_types(schema_json: str) -> dict[str, str]:
    """Name to type of every top-level column of a Spark (or Delta) schema string; nested ones as ``map``..."""
    types = {field["name"]: field["type"] for field in fields_of(schema_json)}
    return {name: kind if isinstance(kind, str) else str(kind["type"]) for name, kind in types.items()}


def judge_nothing(rule: RuleSpec) -> RuleResult | None:
    """The result of a rule on an increment without rows, or None when Great Expectations must be asked.

    Rows and columns: nothing offends, so the rule passes with a count of 0 and no figure. Tables: the rule concerns
    the increment itself (how many rows, which columns), so an empty one is judged like any other: a row count of at
    least 1 fails on it.
    """
    if rule.level == "table":
        return None
    return RuleResult(rule.rule, rule.type, rule.severity, True, 0 if rule.level == "row" else None)


_BOUNDED = (
    "expect_column_values_to_be_between",
    "expect_column_max_to_be_between",
    "expect_column_min_to_be_between",
    "expect_column_mean_to_be_between",
    "expect_column_median_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_stdev_to_be_between",
)


def prepare_kwargs(rule: RuleSpec, types: Mapping[str, str], engine: EngineName) -> RuleKwargs:
    """The kwargs of ``rule`` for one engine; ``types`` maps column names to Spark types."""
    kwargs = rule.kwargs.copy()
    column = kwargs.get("column")
    family = find_family(types[column]) if column is not None and column in types else ""
    if rule.type in _BOUNDED:
        _prepare_bounds(rule.type, kwargs, family)
    if "value_set" in kwargs and family in ("date", "timestamp"):
        kwargs["value_set"] = [_in_type_of_column(value, family, engine) for value in kwargs["value_set"]]
    if "value_set" in kwargs and engine == "spark":
        kwargs["value_set"] = [_fit_to_spark(value) for value in kwargs["value_set"]]
    if rule.type in ("expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex"):
        kwargs["regex"] = (PYTHON_PREFIX if engine == "pandas" else JAVA_PREFIX) + kwargs["regex"]
    if rule.type == "expect_column_pair_values_a_to_be_greater_than_b":
        # On pandas a missing value is "not greater"; on Spark, as in SQL, it says nothing: that meaning holds.
        kwargs["ignore_row_if"] = "either_value_is_missing"
    return kwargs


def _prepare_bounds(type_: str, kwargs: RuleKwargs, family: str) -> None:
    for name in BOUND_KEYS:
        if kwargs.get(name) is None:
            continue
        bound = parse_bound(kwargs[name])
        kwargs[name] = bound if isinstance(bound, float) else as_moment(bound)
    if type_ == "expect_column_values_to_be_between" and family == "number" and kwargs.get("max_value") is None:
        kwargs["max_value"] = float("inf")  # NaN is Spark's greatest number; it is in no range
        kwargs.pop("strict_max", None)


def _in_type_of_column(value: object, family: str, engine: EngineName) -> object:
    moment = parse_bound(value)
    if isinstance(moment, float):
        return value
    if engine == "spark" and family == "date":
        return moment.date() if isinstance(moment, datetime) else moment
    return as_moment(moment)


def _fit_to_spark(value: object) -> object:
    """Whole numbers beyond 64 bits as decimals: Spark's literals know no others."""
    return Decimal(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def hide_values(message: str) -> str:
    """A library's message without its quoted texts and its numbers: they may be a row's values."""
    return _NUMBER.sub("...", _QUOTED.sub("'...'", message))


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


def _tidy_number(value: object) -> int | float | None:
    if not isinstance(value, SupportsFloat):
        return None  # a text
    kind = getattr(getattr(value, "dtype", None), "kind", "")  # of a numpy number
    try:
        if isinstance(value, SupportsInt) and (isinstance(value, int) or kind in ("i", "u")):
            return int(value)
        number = float(value)
    except (TypeError, ValueError):
        return None
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return number


@dataclass(frozen=True)
class Question:
    """The batches that were judged, and the suite: results are valid for these alone."""

    batches: Sequence[BatchKey]
    folds: Sequence[str] | None
    """Tokens of what remains of the batches; [] in append mode. None in a file that does not say."""
    suite: str
    """Digest of the suite."""
    within: Mapping[str, Sequence[str]] | None = None
    """{partition column: values} of the rows that were judged; None for all rows."""


def write_driver_results(
    paths: PipelinePaths, run_id: str, answers: Sequence[tuple[Question, Sequence[RuleResult]]]
) -> None:
    """Note the results of Spark."""
    value = [{**asdict(asked), "results": [result.to_dict() for result in results]} for asked, results in answers]
    storage.replace(paths.driver_results(run_id), storage.dump_json(value))


def read_driver_results(paths: PipelinePaths, run_id: str, asked: Question) -> list[RuleResult] | None:
    """The results of Spark on exactly this question; None when there are none. Raises UnreadableStateError."""
    path = paths.driver_results(run_id)
    value = storage.read_json(path)
    if value is None:
        return None
    with storage.unreadable_is_named(path):
        for one in value if isinstance(value, list) else [value]:  # an earlier version wrote a single one
            batches = keys_from_json(one["batches"])
            if Question(batches, one.get("folds"), one.get("suite"), one.get("within")) == asked:
                return [RuleResult.from_dict(result) for result in one["results"]]
    return None
