"""The conditions of the gate's checks."""

from __future__ import annotations

from tidegate.core.errors import (
    Condition,
    DefectError,
    UsageError,
)

GX_LEFT_OUT_RESULTS = Condition(
    "GX_LEFT_OUT_RESULTS",
    DefectError,
    "Great Expectations {fault}",
    next_run="checks the same increment again",
    fix="look for two rules that differ only in their name",
)

BAD_SUITE = Condition(
    "BAD_SUITE",
    UsageError,
    "rule {rule!r} ({rule_type}) {fault}",
    next_run="fails again until this is fixed; an increment that the rule was to check is kept",
    fix="correct the rule and its kwargs, then run again",
)

DATA_DOCS_NOT_MADE = Condition(
    "DATA_DOCS_NOT_MADE",
    DefectError,
    "Great Expectations wrote no page for this run: {error}",
    next_run="is not affected",
    fix="please report this, with the suite and the run's report",
)
