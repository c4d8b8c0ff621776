"""The report in an asset event: whole where it is small, never too large for Airflow's database."""

from __future__ import annotations

import json
from typing import Any

from tidegate.core.outputs import RunReport
from tidegate.runs.reports.report import new_report
from tidegate.views.signals.asset_event import BYTES_AT_MOST, shrink_report


def make(**more: Any) -> RunReport:
    report = new_report("orders", "R1")
    for key, value in more.items():
        setattr(report, key, value)
    return report.to_json()


def size(value: object) -> int:
    return len(json.dumps(value).encode())


def test_a_usual_report_is_whole() -> None:
    report = make(sources={"a": {"rows": 3, "offsets": {"t": {"0": [1, 4]}}}}, notes=["one"])
    assert shrink_report(report) == report


def test_lists_of_names_are_cut_and_counted() -> None:
    skipped = [{"path": f"in/{number}", "why": "empty"} for number in range(50)]
    value = shrink_report(make(sources={"a": {"rows": 3, "skipped": skipped}}))
    assert len(value["sources"]["a"]["skipped"]) == 20 and value["cut"] == {"sources.a.skipped": 50}


def test_rules_are_whole_as_long_as_there_is_room() -> None:
    def results(count: int) -> dict[str, Any]:
        rule = {"type": "t" * 40, "severity": "critical", "unexpected_count": 1, "observed_value": None}
        found = [{"rule": f"rule {number}", "success": number % 10 > 0, **rule} for number in range(count)]
        return {"suite": "orders", "verdict": "failed", "results": found}

    assert len(shrink_report(make(quality=results(50)))["quality"]["results"]) == 50
    many = shrink_report(make(quality=results(1000)))
    assert len(many["quality"]["results"]) == 20 and many["cut"] == {"quality.results": 1000}
    assert not any(one["success"] for one in many["quality"]["results"])


def test_whatever_is_long_it_fits_and_the_figures_stay() -> None:
    long = "x" * BYTES_AT_MOST
    rows = {**new_report("a", "b").rows, "published": 7}
    for more in (
        {"notes": [long]},
        {"error": {"code": "X", "message": long}},
        {"sources": {f"s{number}": {"lost": ["y" * 2000] * 20} for number in range(9)}},
        {"state": {"open_windows": [[long, None]]}},
    ):
        report = make(rows=rows, **more)
        value = shrink_report(report)
        assert size(value) <= BYTES_AT_MOST and value["rows"]["published"] == 7 and value["cut"]
        assert set(value) == {*report, "cut"}
