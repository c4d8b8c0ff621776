"""All that the gate holds of a backfill is one plan, with what failed in any of its intervals."""

from __future__ import annotations

from typing import Any

from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.examine import Excluded, Finding
from tidegate.rework.backfill.rebuild import Rebuild, join_held
from tidegate.rework.backfill.side_job import Built
from tidegate.rework.backfill.span import Interval
from tidegate.runs.reports.verdicts import StoredVerdict


def held(day: str, failed: str) -> Rebuild:
    """An interval of one day, in which one of two rules failed."""
    results = [{"rule": rule, "success": rule != failed, "observed_value": day} for rule in ("few", "unique")]
    quality: Any = {"verdict": "failed", "results": results, "warnings": [f"a file of {failed}"]}
    verdict = StoredVerdict("b", [], quality, [failed], [f"{failed}: of {day}"])
    side: Any = None
    finding = Finding(Interval({"day": [day]}), Choice(), Excluded(), [], None)
    return Rebuild(side, finding, Built([], [], [], verdict, side))


def test_a_rule_that_failed_in_one_interval_failed_in_all_of_them() -> None:
    scope: Any = None
    joined = join_held(scope, [held("2026-01-01", "few"), held("2026-01-03", "unique"), held("2026-01-04", "unique")])
    verdict = joined.built.verdict
    assert not joined.passed and joined.finding.interval.label == "day=2026-01-01,2026-01-03..2026-01-04"
    assert [(one["rule"], one["success"], one["observed_value"]) for one in verdict.quality["results"]] == [
        ("few", False, "2026-01-01"),
        ("unique", False, "2026-01-03"),
    ]
    assert verdict.failed_critical == ["few", "unique"]
    assert verdict.quality["warnings"] == ["a file of few", "a file of unique"]
    assert verdict.reasons == ["few: of 2026-01-01", "unique: of 2026-01-03", "unique: of 2026-01-04"]
