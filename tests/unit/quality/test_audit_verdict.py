"""The gate's policy."""

from __future__ import annotations

import pytest

from tidegate.core.errors import DefectError
from tidegate.quality.engine import RuleResult, choose_engine, judge_nothing, read_column_types
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.quality.verdict import Quarantined, Verdict, decide_verdict, judge_share
from tidegate.spec.models import QualitySpec

NOT_NULL = "expect_column_values_to_not_be_null"


def _decide(*rules: tuple[str, bool, bool, int], quarantined: int = 0, share: float | None = None) -> Verdict:
    specs, results = [], []
    for number, (severity, quarantine, success, count) in enumerate(rules):
        specs.append(RuleSpec(f"r{number}", NOT_NULL, {"column": "a"}, severity, quarantine))  # type: ignore[arg-type]
        results.append(RuleResult(f"r{number}", NOT_NULL, severity, success, count))
    suite = SuiteSpec("orders", tuple(specs)) if specs else None
    counts = Quarantined(100, malformed=quarantined, transformed=100 - quarantined)
    return decide_verdict(suite, results, counts, QualitySpec(max_quarantine_share=share))


@pytest.mark.parametrize(("severity", "verdict"), [("critical", "failed"), ("warning", "warned"), ("info", "passed")])
def test_severity_decides(severity: str, verdict: str) -> None:
    decided = _decide(("critical", False, True, 0), (severity, False, False, 3))
    assert decided.verdict == verdict
    assert [*decided.failed_critical] == (["r1"] if verdict == "failed" else [])


def test_mostly_passes_with_offending_rows() -> None:
    assert _decide(("critical", False, True, 3)).verdict == "passed"


@pytest.mark.parametrize(
    ("quarantined", "share", "said"),
    [
        # a record is a row: exactly the quarantined records over the read ones, whatever the reason
        (Quarantined(10, 1, 1, 8, 1), 0.3, "3 of 10 records quarantined (30.0%)"),
        (Quarantined(10, late=4, transformed=6), 0.4, "4 of 10 records late (40.0%)"),
        # an aggregation makes few rows of many records: all of them rejected is everything
        (Quarantined(1000, transformed=3, rejected=3), 1.0, "3 of 3 rows quarantined (100.0%)"),
        (Quarantined(1000, 100, transformed=10, rejected=5), 0.55, "100 of 1,000 records and 5 of 10 rows quarantined"),
        # an explode makes many rows of one record: a tenth of them is a tenth, not all there was
        (Quarantined(10, transformed=1000, rejected=100), 0.1, "100 of 1,000 rows quarantined (10.0%)"),
        (Quarantined(10, 5, transformed=500, rejected=500), 1.0, "5 of 10 records and 500 of 500 rows quarantined"),
        # rows of windows that earlier runs have read, and records whose windows are still open
        (Quarantined(0, transformed=4, rejected=1), 0.25, "1 of 4 rows quarantined"),
        (Quarantined(8, 2), 0.25, "2 of 8 records malformed"),
        (Quarantined(0), 0.0, "0 of 0 records quarantined (0.0%)"),
    ],
)
def test_what_counts_as_quarantined(quarantined: Quarantined, share: float, said: str) -> None:
    """Promise: malformed, late, rejected, of what was read; also where a record is not a row."""
    assert float(quarantined.share) == share and said in quarantined.describe()
    assert (judge := judge_share(quarantined, QualitySpec(max_quarantine_share=share))) is not None and judge.success
    assert judge.unexpected_count == quarantined.malformed + quarantined.late + quarantined.rejected
    if share:
        below = judge_share(quarantined, QualitySpec(max_quarantine_share=share - 1e-9))
        assert below is not None and not below.success


def test_no_suite_is_unchecked() -> None:
    assert _decide().verdict == "unchecked"
    assert _decide().suite is None


@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
@pytest.mark.parametrize("success", [True, False])
def test_an_offence_among_staged_rows_is_drift(severity: str, success: bool) -> None:
    decided = _decide((severity, True, success, 2), quarantined=5)
    assert decided.verdict == "failed"
    assert "drift: 2 staged rows" in decided.failed_critical["r0"]


def test_the_share_is_a_critical_of_its_own() -> None:
    assert _decide(("critical", True, True, 0), quarantined=10, share=0.1).verdict == "passed"
    decided = _decide(("critical", True, True, 0), quarantined=11, share=0.1)
    assert decided.verdict == "failed"
    assert decided.failed_critical == {"max_quarantine_share": "11 of 100 records malformed (11.0%), allowed: 10.0%"}
    assert decided.results[-1] == RuleResult("max_quarantine_share", "tidegate", "critical", False, 11, 0.11)
    assert _decide(quarantined=11, share=0.1).verdict == "failed"
    assert _decide(quarantined=1, share=0.0).verdict == "failed"


def test_no_records_have_no_share() -> None:
    assert decide_verdict(None, [], Quarantined(0), QualitySpec(max_quarantine_share=0.0)).verdict == "unchecked"


def test_a_missing_result_is_a_defect() -> None:
    suite = SuiteSpec("s", (RuleSpec("r", NOT_NULL, {"column": "a"}),))
    with pytest.raises(DefectError):
        decide_verdict(suite, [], Quarantined(1), QualitySpec())
    with pytest.raises(DefectError):
        decide_verdict(None, [RuleResult("r", NOT_NULL, "info", True)], Quarantined(1), QualitySpec())


def test_large_increments_go_to_spark() -> None:
    assert choose_engine(1_000, 100_000, 8) == "pandas"
    assert choose_engine(1_000_000, 30_000_000, 8) == "pandas"
    assert choose_engine(10_000_000, 300_000_000, 8) == "spark"
    assert choose_engine(50_000_000, 1_000, 2) == "spark"


def test_an_empty_increment_passes_rows_and_columns_but_not_tables() -> None:
    assert judge_nothing(RuleSpec("r", NOT_NULL, {"column": "a"})) == RuleResult("r", NOT_NULL, "critical", True, 0)
    mean = RuleSpec("m", "expect_column_mean_to_be_between", {"column": "a", "min_value": 1}, "warning")
    assert judge_nothing(mean) == RuleResult("m", mean.type, "warning", True)
    assert judge_nothing(RuleSpec("t", "expect_table_row_count_to_be_between", {"min_value": 1})) is None


def test_types_of_a_schema_string() -> None:
    schema = '{"type":"struct","fields":[{"name":"a","type":"long"},{"name":"b","type":{"type":"array"}}]}'
    assert read_column_types(schema) == {"a": "long", "b": "array"}
