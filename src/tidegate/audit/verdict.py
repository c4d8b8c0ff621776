"""The gate: from the results of the rules to one verdict on the increment. Pure.

- a failed critical rule fails the increment, a failed warning warns, info is only reported;
- a quarantine rule that still finds offending rows among the staged ones has drifted from the stream, which set aside
  what it called offending: that fails the increment whatever the rule's severity;
- more rows set aside than ``quality.max_quarantine_share`` allows is a failed critical of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.audit.engine import RuleResult
from tidegate.audit.suite import SuiteSpec
from tidegate.errors import DefectError
from tidegate.spec.models import QualitySpec

VerdictName = Literal["passed", "warned", "failed", "unchecked"]

SHARE_RULE = "max_quarantine_share"
TIDEGATE_TYPE = "tidegate"


@dataclass(frozen=True)
class FailedCritical:
    """Why the increment may not pass: the rule, and what it found in words without any row's value."""

    rule: str
    reason: str
    unexpected_count: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a verdict file and an error carry it."""
        return {"rule": self.rule, "reason": self.reason, "unexpected_count": self.unexpected_count}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one increment. ``suite`` is the name of the suite, None when there is none."""

    verdict: VerdictName
    suite: str | None
    results: tuple[RuleResult, ...] = ()
    failed_critical: tuple[FailedCritical, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The run report's ``quality`` section, with ``failed_critical`` beside it."""
        return {
            "suite": self.suite,
            "verdict": self.verdict,
            "results": [result.to_dict() for result in self.results],
            "failed_critical": [failed.to_dict() for failed in self.failed_critical],
        }

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> Verdict:
        """The verdict again, from :meth:`to_dict`."""
        return Verdict(
            verdict=value["verdict"],
            suite=value["suite"],
            results=tuple(RuleResult.from_dict(result) for result in value["results"]),
            failed_critical=tuple(FailedCritical(**failed) for failed in value.get("failed_critical", [])),
        )


def decide_verdict(
    suite: SuiteSpec | None,
    results: Sequence[RuleResult],
    rows_total: int,
    quarantined: int,
    quality: QualitySpec,
) -> Verdict:
    """The verdict on an increment.

    ``results`` are the answers of Great Expectations, one per rule of ``suite``, on the staged rows. ``rows_total``
    counts the records the increment was made of, those set aside included; ``quarantined`` the ones set aside, for
    whatever reason. Raises DefectError when a rule has no result or a result no rule.
    """
    rules = suite.rules if suite else ()
    if [result.rule for result in results] != [rule.rule for rule in rules]:
        raise DefectError(
            "RESULTS_DO_NOT_FIT",
            f"{len(results)} results for the {len(rules)} rules of the suite {suite.name if suite else None!r}",
            next_run="judges the same increment again",
        )
    failed = []
    for rule, result in zip(rules, results, strict=True):
        if rule.quarantine and result.unexpected_count:
            failed.append(
                FailedCritical(
                    result.rule,
                    f"drift: {result.unexpected_count} staged rows offend it, though the stream set all it saw aside",
                    result.unexpected_count,
                )
            )
        elif not result.success and result.severity == "critical":
            failed.append(FailedCritical(result.rule, _describe(result), result.unexpected_count))
    share = judge_share(rows_total, quarantined, quality)
    every = (*results, *([share] if share else []))
    if share and not share.success:
        failed.append(FailedCritical(SHARE_RULE, _describe_share(rows_total, quarantined, quality), quarantined))
    if failed:
        verdict: VerdictName = "failed"
    elif suite is None:
        verdict = "unchecked"
    elif any(not result.success and result.severity == "warning" for result in results):
        verdict = "warned"
    else:
        verdict = "passed"
    return Verdict(verdict, suite.name if suite else None, every, tuple(failed))


def judge_share(rows_total: int, quarantined: int, quality: QualitySpec) -> RuleResult | None:
    """The pseudo rule on the share of records set aside; None when the spec sets no limit."""
    limit = quality.max_quarantine_share
    if limit is None:
        return None
    share = quarantined / rows_total if rows_total else 0.0
    return RuleResult(SHARE_RULE, TIDEGATE_TYPE, "critical", share <= limit, quarantined, round(share, 6))


def _describe(result: RuleResult) -> str:
    if result.unexpected_count is not None:
        return f"{result.unexpected_count} rows offend it"
    if isinstance(result.observed_value, (int, float, str)):
        return f"observed {result.observed_value}"
    return "it does not hold for the increment"


def _describe_share(rows_total: int, quarantined: int, quality: QualitySpec) -> str:
    share = quarantined / rows_total if rows_total else 0.0
    return f"{quarantined} of {rows_total} records set aside ({share:.1%}), allowed: {quality.max_quarantine_share:.1%}"
