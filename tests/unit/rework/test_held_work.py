"""What waits for a decision, of every kind, and which choices there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.held import BAD, GOOD, NAME, Held, commands
from tidegate.core.errors import HeldError
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.rework.held import find_held_work, find_ruling, list_held_work
from tidegate.runs.reports.report import new_report
from tidegate.table.publish.intent import PublishIntent
from tidegate.views.pages import pipelines
from tidegate.views.pages.ahead import look_at_ahead
from tidegate.views.pages.run import look_at_run


def test_an_increment_that_holds_the_later_ones(tmp_path: Path) -> None:
    held = Held(tmp_path)
    with commands(lambda: held):
        assert list_held_work(held.paths) == [] and find_ruling(held.paths, "R1") is None
        held.hold("R1")
        [found] = list_held_work(held.paths)
        assert (found["run_id"], found["kind"]) == ("R1", "increment") and "good" in found["reasons"][0]
        assert found["choices"] == ["release", "discard", "reread"]
        held.decide("discard", "R1")
    ruling = find_ruling(held.paths, "R1")
    assert list_held_work(held.paths) == [] and ruling is not None and ruling["decision"] == "discard"


def test_an_increment_that_waits_alone(tmp_path: Path) -> None:
    held = Held(tmp_path, on_critical="continue")
    with commands(lambda: held):
        with pytest.raises(HeldError):
            held.run("R1", BAD)
        found = find_held_work(held.paths, "R1")
        assert found is not None and (found["kind"], found["choices"]) == ("waiting", ["release", "discard"])
        held.run("R2", GOOD)
        row = pipelines.look_at(held.project, NAME)
        assert row.state == "held" and "good: 3 rows break it; run R1 waits for a decision since 20" in row.why[0]
        assert look_at_run(held.project, NAME, "R1").undecided == found
        held.decide("release", "R1")
    assert find_held_work(held.paths, "R1") is None
    assert pipelines.look_at(held.project, NAME).state == "up_to_date"


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
def test_work_beside_the_runs(tmp_path: Path, kind: str) -> None:
    held = Held(tmp_path)
    report = new_report("orders", "B1")
    report.mode, report.rebuilt = kind, ["day=2026-01-01", "day=2026-01-02"]
    rules = [("good", "critical", False), ("fine", "warning", False), ("well", "critical", True)]
    report.quality["results"] = [
        {"rule": rule, "type": "", "severity": severity, "success": success, "unexpected_count": 0, "observed_value": 0}
        for rule, severity, success in rules
    ]
    intent = PublishIntent("orders", "B1", "table", "{}", [], "an app", 0, -1, report=dict(report.to_json()))
    keep_held(held.paths.beside("backfills/job/try"), intent, Interval({"day": ["2026-01-02"]}), report)
    found = find_held_work(held.paths, "B1")
    assert found is not None and (found["kind"], found["what"]) == (kind, "day=2026-01-02")
    assert (found["reasons"], found["choices"]) == (["good does not hold"], ["release", "discard"])
    row = pipelines.look_at(held.project, NAME)
    assert (row.state, row.why) == ("held", [f"good does not hold; {kind} B1 waits for a decision"])
    assert look_at_ahead(held.project, NAME).undecided == [found]
