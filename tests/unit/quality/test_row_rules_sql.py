"""The SQL of quarantine rules: quoting that nothing can break out of. What it means is tested against Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from tidegate.quality.row_rules import quote_literal, row_rules
from tidegate.quality.rule_values import find_dialect_difference
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.spec.ddl import quote_column


def test_only_quarantine_rules_are_given_in_order() -> None:
    rules = (
        RuleSpec("a", "expect_column_values_to_not_be_null", {"column": "x"}, quarantine=True),
        RuleSpec("b", "expect_column_values_to_not_be_null", {"column": "y"}),
        RuleSpec("c", "expect_column_pair_values_to_be_equal", {"column_A": "x", "column_B": "y"}, quarantine=True),
    )
    found = row_rules(SuiteSpec("s", rules))
    assert [rule.rule for rule in found] == ["a", "c"]
    assert found[0].sql == "(`x` IS NULL)"
    assert row_rules(None) == []


@pytest.mark.parametrize("name", ["a.b", "a b", "`", "x` OR TRUE --", "select", "ü"])
def test_a_column_name_stays_a_name(name: str) -> None:
    quoted = quote_column(name)
    assert quoted.startswith("`") and quoted.endswith("`")
    assert "`" not in quoted[1:-1].replace("``", "")


@pytest.mark.parametrize("value", ["'", "\\", "\\'", "a' OR '1'='1", "${env:HOME}", "\x00", "\n", "🙂", '"', "`"])
def test_a_text_stays_a_text(value: str) -> None:
    quoted = quote_literal(value)
    body = quoted[1:-1]
    assert quoted[0] == quoted[-1] == "'" and "'" not in body and "$" not in body and body.isascii()
    assert body.encode("ascii").decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16") == value


def test_literals_carry_their_type() -> None:
    assert quote_literal(True) == "TRUE"
    assert quote_literal(5) == "5"
    assert quote_literal(10**30) == "CAST('1000000000000000000000000000000' AS DECIMAL(38, 0))"
    assert quote_literal(0.1) == "CAST('0.1' AS DOUBLE)"
    assert quote_literal(float("-inf")) == "CAST('-Infinity' AS DOUBLE)"
    assert quote_literal(date(2024, 1, 31)) == "DATE '2024-01-31'"
    assert quote_literal(datetime(2024, 1, 31, 1, 2, tzinfo=UTC)) == "TIMESTAMP '2024-01-31 01:02:00+00:00'"


@pytest.mark.parametrize(
    "pattern",
    ["^a{2,3}$", r"\d+\s", "[a-z]", r"[\[\]]", "[^-]", "(a|b)?", r"\$\{x\}", "(?i)x", "(?:a)", "(?=a)b", r"\bx"],
)
def test_patterns_that_mean_the_same_are_taken(pattern: str) -> None:
    assert find_dialect_difference(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [r"a\Z", "(?P<n>a)", "[a[b]", "[a&&b]", "a{", "a{,3}", r"\01", "[]a]", "(?x) a", r"\N{DIGIT ONE}", "(a)(?(1)b)"],
)
def test_patterns_that_mean_two_things_are_refused(pattern: str) -> None:
    assert find_dialect_difference(pattern)
