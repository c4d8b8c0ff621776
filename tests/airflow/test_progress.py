"""Marker lines of the driver, as a person reads them in the task log."""

from __future__ import annotations

import json

import pytest

from tidegate.runs.reports.report import new_report
from tidegate.spark.driver.progress import describe_event, describe_report, parse_marker


def test_progress_is_readable() -> None:
    event = {"event": "progress", "batch_id": 3, "rows": 12000, "rows_per_second": 4100.53, "left": None}
    parsed = parse_marker("TIDEGATE " + json.dumps(event))
    assert parsed == event
    assert describe_event(event) == "progress: batch 3 | 12,000 rows | 4,100.5 rows per second"


def test_an_error_names_its_code() -> None:
    assert (
        describe_event({"event": "error", "code": "BROKER_AWAY", "message": "no answer"})
        == "error: BROKER_AWAY: no answer"
    )


def test_control_characters_reach_no_log() -> None:
    evil = "\x1b[2J\u202e"
    shown = "\\u001b[2J\\u202e"
    assert describe_event({"event": "error", "code": "X", "message": evil}) == f"error: X: {shown}"
    assert describe_event({"event": "progress", "note": evil}) == f"progress: note: {shown}"
    report = new_report("orders", "r1").to_json()
    assert describe_report({**report, "notes": [evil]}).endswith(f"note: {shown}")


@pytest.mark.parametrize(
    "line", ["", "TIDEGATE", "TIDEGATE {", "TIDEGATE []", 'TIDEGATE {"a": 1}', 'x TIDEGATE {"event": "p"}']
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert parse_marker(line) is None


def test_a_report_in_one_line() -> None:
    empty = new_report("orders", "r1").to_json()
    report = {
        **empty,
        "outcome": "published",
        "rows": {"read": 1200, "published": 1100},
        "quality": {"verdict": "passed"},
        "table": {"version": 4},
    }
    expected = "orders run r1: published | rows: read 1,200, published 1,100 | verdict: passed | table version 4"
    assert describe_report(report) == expected
    staged = {**report, "outcome": None, "rows": {"staged": 5, "published": 0}}
    assert describe_report(staged).startswith("orders run r1: audited, not published yet | rows: staged 5")
    unjudged = {**staged, "quality": empty["quality"]}
    assert describe_report(unjudged).startswith("orders run r1: staged, not audited yet | rows: staged 5")
    begun = {**report, "outcome": None}
    assert describe_report(begun).startswith("orders run r1: published in part | rows: read 1,200")
    nothing = describe_report({**empty, "outcome": "nothing_new"})
    assert nothing.startswith("orders run r1: nothing_new | rows: read 0, malformed 0") and "table" not in nothing
