"""Common parts of both engines: a rule's result, the choice of the engine, the results for an empty increment. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, cast

from tidegate.core import outputs
from tidegate.quality.suite import RuleSpec

EngineName = Literal["pandas", "spark"]

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
    types = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
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
