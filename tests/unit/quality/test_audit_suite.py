"""Suites: what may stand in the file, and that every fault is named with its line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.quality.gx_types import EXPECTATION_TYPES, UNUSABLE_TYPES
from tidegate.quality.rule_values import find_family
from tidegate.quality.suite import SuiteSpec, check_columns, load_suite, read_suite
from tidegate.spec.faults import SpecError
from tidegate.spec.models import ProjectSpec
from tidegate.spec.project import Project

GOOD = """\
name: orders
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: order_id}
    severity: critical
    meta: {rule: order_id_present, on_failure: quarantine}
  - type: expect_column_values_to_be_between
    kwargs: {column: amount, min_value: 0, max_value: 100}
    severity: warning
  - type: expect_table_row_count_to_be_between
    kwargs: {min_value: 1}
    severity: info
"""


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(text)
    return path


def _read_faults(tmp_path: Path, text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(SpecError) as caught:
        read_suite(_write(tmp_path, text), "orders", "expectations/orders.yaml")
    return [(fault.line, f"{fault.message} | {fault.fix}") for fault in caught.value.faults]


def _read_rule_faults(tmp_path: Path, type_: str, kwargs: str, meta: str = "{}") -> list[str]:
    text = f"name: orders\nexpectations:\n  - type: {type_}\n    kwargs: {kwargs}\n    meta: {meta}\n"
    try:
        read_suite(_write(tmp_path, text), "orders")
    except SpecError as error:
        return [f"{fault.message} | {fault.fix}" for fault in error.faults]
    return []


def test_a_suite_is_read_as_it_stands(tmp_path: Path) -> None:
    suite = read_suite(_write(tmp_path, GOOD), "orders")
    assert [rule.rule for rule in suite.rules] == [
        "order_id_present",
        "column_values_to_be_between(amount)",
        "table_row_count_to_be_between",
    ]
    assert [rule.severity for rule in suite.rules] == ["critical", "warning", "info"]
    assert [rule.quarantine for rule in suite.rules] == [True, False, False]
    assert [rule.line for rule in suite.rules] == [3, 7, 10]
    assert suite.columns == ("order_id", "amount")


@pytest.mark.parametrize(
    ("type_", "kwargs", "checks_rows"),
    [
        ("expect_column_values_to_be_unique", "{column: a}", True),
        ("expect_column_values_to_be_null", "{column: a, mostly: 0.9}", False),
        ("expect_column_value_z_scores_to_be_less_than", "{column: a, threshold: 3, double_sided: true}", False),
        ("expect_column_mean_to_be_between", "{column: a, min_value: 1}", False),
        ("expect_table_row_count_to_be_between", "{min_value: 1}", False),
    ],
)
def test_rules_that_a_few_rows_are_enough_for(tmp_path: Path, type_: str, kwargs: str, checks_rows: bool) -> None:
    assert _suite(tmp_path, type_, kwargs).rules[0].checks_rows == checks_rows


def test_no_file_is_no_suite(tmp_path: Path) -> None:
    project = Project(root=tmp_path, spec=ProjectSpec())
    assert load_suite(project, "orders") is None
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / "orders.yaml").write_text(GOOD)
    suite = load_suite(project, "orders")
    assert suite is not None and suite.file == "expectations/orders.yaml"


def test_every_fault_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    faults = _read_faults(
        tmp_path,
        """\
name: order
expectations:
  - type: expect_column_values_to_be_betwen
    kwargs: {column: amount, min_value: 1}
  - type: expect_column_values_to_not_be_null
    kwargs: {colum: amount}
    severity: criticl
  - type: expect_column_values_to_not_be_null
    kwargs: {column: a}
    meta: {rule: twice}
  - type: expect_column_values_to_be_null
    kwargs: {column: a}
    meta: {rule: twice, on_failures: quarantine}
    severty: info
  - type: expect_column_mean_to_be_between
    kwargs: {column: a, min_value: 1}
    meta: {on_failure: quarantine}
""",
    )
    text = "\n".join(f"{line}: {message}" for line, message in faults)
    for expected in (
        "1: the suite is named 'order'",
        "3: Great Expectations knows no 'expect_column_values_to_be_betwen' | write expect_column_values_to_be_between",
        "6: expect_column_values_to_not_be_null has no 'colum' | write column",
        "6: expect_column_values_to_not_be_null needs `column`",
        "7: 'criticl' is not a severity | write critical",
        "13: two rules are named 'twice', the first in line 8",
        "13: unknown key 'on_failures' | write on_failure",
        "14: unknown key 'severty' | write severity",
        "17: expect_column_mean_to_be_between judges a whole column",
    ):
        assert expected in text, text
    assert len(faults) == 9


@pytest.mark.parametrize("expectations", ["", "expectations: []", "expectations: {}", "expectations: null"])
def test_an_empty_suite_is_refused(tmp_path: Path, expectations: str) -> None:
    faults = _read_faults(tmp_path, f"name: orders\n{expectations}\n")
    assert any("empty suite would pass everything" in message for _, message in faults)


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ("{column: a, mostly: 0.9}", "`mostly` has no meaning with on_failure: quarantine"),
        ('{column: a, row_condition: "col(\\"b\\") > 1"}', "`row_condition` has no meaning"),
        ("{column: 'a${env:HOME}'}", "filled in by Spark SQL"),
    ],
)
def test_quarantine_takes_plain_rules_only(tmp_path: Path, kwargs: str, complaint: str) -> None:
    type_ = "expect_column_values_to_not_be_null"
    faults = _read_rule_faults(tmp_path, type_, kwargs, "{on_failure: quarantine}")
    assert any(complaint in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("type_", "meta", "complaint"),
    [
        ("expect_column_values_to_be_unique", "{on_failure: quarantine}", "not one by one"),
        ("expect_column_values_to_be_null", "{on_failure: drop}", "'drop' is not known | write `quarantine`"),
        ("expect_column_values_to_be_null", "{rule: late}", "a reason of tidegate itself"),
        ("expect_column_values_to_be_null", '{rule: " "}', "is not a name for a rule"),
        ("expect_column_values_to_be_of_type", "{}", "cannot judge an increment: type names differ"),
        ("unexpected_rows_expectation", "{on_failure: quarantine}", "runs when all rows are staged, so no row"),
        (
            "unexpected_rows_expectation",
            "{on_failure: quarantine}",
            "a boolean column, and check it with expect_column_",
        ),
    ],
)
def test_rules_that_cannot_be_kept_are_refused(tmp_path: Path, type_: str, meta: str, complaint: str) -> None:
    faults = _read_rule_faults(tmp_path, type_, "{column: a}", meta)
    assert any(complaint in fault for fault in faults), faults


@pytest.mark.parametrize("type_", UNUSABLE_TYPES)
def test_a_type_that_cannot_be_used_is_refused_with_what_to_use_instead(tmp_path: Path, type_: str) -> None:
    [fault] = [one for one in _read_rule_faults(tmp_path, type_, "{column: a}", "{}") if "cannot judge" in one]
    fix = fault.rpartition(" | ")[2]
    named = set(re.findall(r"\bexpect_\w+", fix))
    assert named <= set(EXPECTATION_TYPES) - set(UNUSABLE_TYPES)
    assert named or "`schema`" in fix, fault


@pytest.mark.parametrize(
    ("type_", "kwargs", "complaint"),
    [
        ("expect_column_values_to_be_between", "{column: a}", "both missing"),
        ("expect_column_values_to_be_between", "{column: a, min_value: b}", "'b' is not a number, a date"),
        ("expect_column_values_to_be_between", "{column: a, min_value: 2, max_value: 1}", "no value can pass"),
        ("expect_column_values_to_be_between", "{column: a, min_value: 2, max_value: 2024-01-01}", "is a number and"),
        ("expect_column_values_to_be_between", "{column: a, min_value: 9007199254740993}", "held exactly"),
        ("expect_column_values_to_be_between", "{column: a, min_value: true}", "is not a number"),
        ("expect_column_values_to_be_between", "{column: a, min_value: 1, strict_min: 1}", "must be true or false"),
        ("expect_column_values_to_be_between", "{column: a, min_value: {$PARAMETER: x}}", "suite parameters"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: []}", "at least one value"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: [a, null]}", "holds null"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: [a, 1]}", "mixes number and text"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: abc}", "must be a list"),
        ("expect_column_values_to_match_regex", "{column: a}", "needs `regex`"),
        ("expect_column_values_to_match_regex", "{column: a, regex: '['}", "is not a regular expression"),
        ("expect_column_values_to_match_regex", "{column: a, regex: '(?P<x>a)'}", "named groups"),
        ("expect_column_value_lengths_to_equal", "{column: a, value: 1.5}", "whole number"),
        ("expect_column_value_lengths_to_be_between", "{column: a, min_value: -1}", "whole number"),
        ("expect_column_values_to_not_be_null", "{column: a, mostly: 2}", "between 0 and 1"),
        ("expect_column_values_to_not_be_null", "{column: 5}", "name of a column"),
        ("unexpected_rows_expectation", "{}", "needs `unexpected_rows_query`"),
        ("unexpected_rows_expectation", "{unexpected_rows_query: 5}", "must be a SELECT, not 5"),
        (
            "unexpected_rows_expectation",
            "{unexpected_rows_query: 'SELECT {a: 1} FROM {batch} JOIN {batch!r}'}",
            "has {a}; {batch} is the increment, {table} the table after the publish; `{{` and `}}` stand for",
        ),
        ("unexpected_rows_expectation", "{unexpected_rows_query: 'SELECT } FROM {batch}'}", "single '}' encountered"),
        (
            "expect_column_values_to_be_null",
            """{column: a, row_condition: 'col("b") != 1'}""",
            "both engines read alike",
        ),
        ("expect_column_values_to_be_null", "{column: a, row_condition: 'a > 1'}", "both engines read alike"),
        (
            "expect_column_values_to_be_null",
            """{column: a, condition_parser: pandas, row_condition: "waehrung == 'EUR'"}""",
            """; write: row_condition: 'col("waehrung") == "EUR"', condition_parser: great_expectations""",
        ),
        (
            "expect_column_values_to_be_null",
            """{column: a, row_condition: 'col("b") > 1'}""",
            """; write: row_condition: 'col("b") > 1', condition_parser: great_expectations""",
        ),
        ("expect_column_pair_values_to_be_equal", "{column_A: a, column_B: b, ignore_row_if: x}", "must be one of"),
        ("expect_column_pair_values_to_be_equal", "{column_A: a, column_B: b, ignore_row_if: neither}", "unequal"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(tmp_path: Path, type_: str, kwargs: str, complaint: str) -> None:
    faults = _read_rule_faults(tmp_path, type_, kwargs)
    assert any(complaint in fault for fault in faults), faults


def _suite(tmp_path: Path, type_: str, kwargs: str) -> SuiteSpec:
    return read_suite(
        _write(tmp_path, f"name: orders\nexpectations:\n  - {{type: {type_}, kwargs: {kwargs}}}\n"), "orders"
    )


def test_columns_of_a_suite_must_exist(tmp_path: Path) -> None:
    suite = read_suite(_write(tmp_path, GOOD), "orders")
    check_columns(suite, ["amount", "order_id"])
    with pytest.raises(SpecError, match="reads the column 'order_id'") as caught:
        check_columns(suite, ["amount", "order_ids"])
    assert "write order_ids" in str(caught.value)
    assert caught.value.fix == "correct it, then: tidegate validate orders --spark"
    check_columns(_suite(tmp_path, "expect_column_to_exist", "{column: x}"), ["a"])


@pytest.mark.parametrize(
    ("type_", "kwargs", "good", "bad"),
    [
        ("expect_column_values_to_match_regex", "{column: a, regex: x}", "string", "bigint"),
        ("expect_column_value_lengths_to_equal", "{column: a, value: 1}", "varchar(3)", "date"),
        ("expect_column_values_to_be_between", "{column: a, min_value: 1}", "decimal(10,2)", "string"),
        ("expect_column_values_to_be_between", "{column: a, min_value: 2024-01-01}", "timestamp", "long"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: [1]}", "int", "string"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: ['2024-01-01']}", "date", "double"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: [x]}", "string", "timestamp"),
        ("expect_column_values_to_be_in_set", "{column: a, value_set: [true]}", "boolean", "int"),
        ("expect_column_pair_values_to_be_equal", "{column_A: a, column_B: b}", "int", "string"),
    ],
)
def test_values_must_suit_the_type_of_their_column(
    tmp_path: Path, type_: str, kwargs: str, good: str, bad: str
) -> None:
    suite = _suite(tmp_path, type_, kwargs)
    check_columns(suite, {"a": good, "b": "double"})
    with pytest.raises(SpecError):
        check_columns(suite, {"a": bad, "b": "double"})


def test_families_of_both_spellings() -> None:
    assert {find_family(name) for name in ("int", "integer", "long", "bigint", "short", "byte", "decimal(3,1)")} == {
        "number"
    }
    assert find_family("timestamp_ntz") == "timestamp" and find_family("interval day") == "interval day"


def test_loading_a_suite_imports_nothing_heavy(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    script = tmp_path / "load.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom tidegate.quality.suite import read_suite\n"
        "from tidegate.quality.row_rules import row_rules\nimport tidegate.quality.engine, tidegate.quality.verdict\n"
        f"assert len(row_rules(read_suite(Path({str(path)!r}), 'orders'))) == 1\n"
        "heavy = {'great_expectations', 'pandas', 'pyarrow', 'pyspark', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\nprint('light')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "light\n", done.stderr
