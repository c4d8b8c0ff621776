"""The rules of a suite in words."""

from __future__ import annotations

import json
import re

from tidegate.core.errors import TidegateError
from tidegate.quality.suite import RuleSpec, load_suite
from tidegate.spec.project import Project


def list_expected(project: Project, name: str) -> dict[str, RuleSpec]:
    """The rules of the current suite by name; none where it cannot be read, which is reported elsewhere."""
    try:
        suite = load_suite(project, name)
    except (TidegateError, OSError):
        return {}
    return {} if suite is None else {rule.rule: rule for rule in suite.rules}


def describe_expected(rule: RuleSpec) -> str:
    """Describe a rule in a line: ``amount: not below 0``."""
    kwargs = {key: value for key, value in rule.kwargs.items() if key not in ("column", "column_A", "column_B")}
    kind = rule.type.removeprefix("expect_").removeprefix("column_values_to_").replace("_", " ")
    low, high, among = kwargs.pop("min_value", None), kwargs.pop("max_value", None), kwargs.pop("value_set", None)
    words = [re.sub(r"(^| )(to )?be( between| in set)?( |$)", " ", kind).strip()]
    if low is not None or high is not None:
        words.append(f"{show_value(low)} to {show_value(high)}" if None not in (low, high) else _one_bound(low, high))
    if isinstance(among, list):
        words.append(f"one of {show_value(', '.join(map(str, among)))}")
    parts = [" ".join(word for word in words if word)]
    parts += [f"{key.replace('_', ' ')} {show_value(value)}" for key, value in kwargs.items()]
    return ", ".join(part for part in parts if part)


def show_value(value: object) -> str:
    """Show a value of a rule, or an observed value, cut where it is long."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return text if len(text) <= 200 else text[:197] + "..."
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _one_bound(low: object, high: object) -> str:
    return f"at least {show_value(low)}" if high is None else f"at most {show_value(high)}"
