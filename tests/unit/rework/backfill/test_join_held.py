"""All that the gate holds of a backfill is one plan, with what failed in any of its intervals."""

from __future__ import annotations

from typing import Any

from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.examine import Finding
from tidegate.rework.backfill.excluded import Excluded
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
    choice, some = Choice(excluded=1), list[Any]([day])
    finding = Finding(Interval({"day": [day]}), choice, Excluded({"rule": 2}), some, None)
    return Rebuild(side, finding, Built(some, some, some, verdict, side, whole_files=some))


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


def test_files_and_counts_of_all_intervals_are_in_the_plan() -> None:
    scope: Any = None
    days = ["2026-01-01", "2026-01-03"]
    joined = join_held(scope, [held(day, "few") for day in days])
    finding, built = joined.finding, joined.built
    assert finding.replaced == built.manifests == built.files == built.quarantine == built.whole_files == days
    assert (finding.choice.excluded, finding.excluded.total) == (2, 4)
