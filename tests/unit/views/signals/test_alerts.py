"""When an alert is due, and what it says. A run is compared with the one before it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.page_outputs import shown
from tidegate.core.outputs import Error, RunReport
from tidegate.runs import errors as runs_errors
from tidegate.runs.reports.report import new_report
from tidegate.spec.models import AlertsSpec
from tidegate.views.signals.alerts import Alert, find_alerts, find_behind, find_failure

NAME = "orders"
TOLD = AlertsSpec.read({"notify": [{"notifier": "pager.Pager"}], "quarantine_share": 0.1})
HELD = runs_errors.INCREMENT_HELD(
    where="run R1", reasons="good: 3 rows", pipeline=NAME, run_id="R1", causes=""
).to_dict()
BLOCKED = {**HELD, "code": "EARLIER_INCREMENT_HELD"}


def make(run_id: str, outcome: str | None, hour: int = 0, **more: Any) -> RunReport:
    report = new_report(NAME, run_id)
    report.outcome, report.started_at = outcome, f"2026-01-01T{hour:02}:00:00.000+00:00"
    report.ended_at = None if outcome is None else f"2026-01-01T{hour:02}:10:00.000+00:00"
    for key, value in more.items():
        setattr(report, key, value)
    return report.to_json()


def test_what_an_alert_says() -> None:
    (alert,) = find_alerts(TOLD, make("R1", "held", error=HELD), [])
    assert alert.kind == "held" and alert.title == "orders is held: its run R1 waits for a decision"
    assert [line.partition(":")[0] for line in alert.text.splitlines()[1:]] == ["what", "where", "next", "fix"]
    assert "good: 3 rows" in alert.what and "tidegate release orders R1" in alert.command
    hostile = Alert("held", NAME, "R1", "<script>", "", "", "", "")
    assert "<script>" not in hostile.html and "&lt;script&gt;" in hostile.html
    hostile = Alert("held", NAME, "R1", "\x1b[2J", "\u202e", "", "", "rm \x9b")
    assert (hostile.title, hostile.what, hostile.command) == ("\\u001b[2J", "\\u202e", "rm \\u009b")


def test_the_page_shows_an_alert() -> None:
    run_id = "scheduled__2026-03-01T10:00:00+00:00"
    error = runs_errors.INCREMENT_HELD(
        where=f"run {run_id} of pipeline orders; the table is untouched",
        reasons="id_present: 3 rows of 100 break it",
        pipeline=NAME,
        run_id=run_id,
        causes="",
    )
    (alert,) = find_alerts(TOLD, make(run_id, "held", error=error.to_dict()), [])
    page = f"https://airflow.example.org/dags/orders/runs/{run_id}/plugin/tidegate-run"
    assert replace(alert, page=page).text == shown("an alert")


def test_of_a_run_that_went_well_nothing_is_due() -> None:
    assert find_alerts(TOLD, make("R1", "published"), []) == []


def test_who_is_kept_waiting_is_told_once() -> None:
    blocked = make("R2", "held", 1, error=BLOCKED)
    (alert,) = find_alerts(TOLD, blocked, [make("R1", "held", error=HELD)])
    assert alert.title == "orders is still held: run R2 could not begin"
    assert find_alerts(TOLD, make("R3", "held", 2, error=BLOCKED), [blocked]) == []


def test_a_backfill_that_is_held_is_named_as_that() -> None:
    (alert,) = find_alerts(TOLD, make("B1", "held", mode="backfill", error=HELD), [])
    assert "a backfill B1 waits for a decision" in alert.title


def test_much_in_quarantine_is_told_when_it_begins() -> None:
    few, many = (make("R", "published", rows=make_rows(count)) for count in (10, 11))
    assert find_alerts(TOLD, few, []) == []
    (alert,) = find_alerts(TOLD, many, [few])
    assert "11 of 100 records" in alert.what and alert.command == "tidegate quarantine list orders --run-id R"
    assert find_alerts(TOLD, many, [many]) == []
    assert find_alerts(TOLD, make("R", "held", rows=make_rows(50)), []) == []  # it is held, and told as that
    assert len(find_alerts(TOLD, many, [make("M", "published", mode="maintain"), few])) == 1
    adopted = make("A", "published", rows=make_rows(50), published_by="R")  # R has its records among its own
    assert find_alerts(TOLD, adopted, []) == [] and len(find_alerts(TOLD, many, [adopted, few])) == 1


def make_rows(malformed: int) -> dict[str, int]:
    rows = new_report(NAME, "R").rows
    good = 100 - malformed
    return {**rows, "read": 100, "malformed": malformed, "entered": good, "transformed": good, "published": good}


def make_error(code: str = "BROKER_AWAY") -> Error:
    return {"code": code, "message": "away", "where": None, "next_run": None, "fix": None, "exit_code": 75}


def test_failing_is_told_until_it_fails_of_something_else() -> None:
    before = [make("R1", "failed", error=make_error())]
    assert find_failure(NAME, "R2", make_error(), "ingest", "incremental", before) is None
    other = find_failure(NAME, "R2", make_error("SOURCE_MISSING"), "ingest", "incremental", before)
    assert other is not None and other.title == "orders is failing: SOURCE_MISSING"
    assert find_failure(NAME, "R2", make_error(), "ingest", "incremental", [make("R1", "published"), *before])
    assert find_failure(NAME, "M2", make_error(), "orders", "maintain", before), "another kind of work"
    killed = find_failure(NAME, "R2", None, "ingest", "incremental", before)
    assert killed is not None and "ended from outside" in killed.what and killed.command == "tidegate logs orders R2"


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([make("R2", None, 9), make("R1", "published", 8)], "no run has succeeded since 2026-01-01T08:10"),
        ([make("R1", "published", 8)], "has ingested nothing yet"),
        ([], "no run has succeeded yet"),
        (
            [make("R2", "failed", 9, error=make_error()), make("R1", "published", 8)],
            "run R2, queued at least 2 hours ago, failed: BROKER_AWAY: away",
        ),
        ([make("R2", None, 9), make("R3", "published", 11)], None),  # another one has ended well since
        ([make("R2", None, 9), make("R0", "failed", 8, error=make_error())], None),  # that one has told
        (
            [make("R2", None, 9), make("R0", "failed", 8, mode="maintain", error=make_error())],
            "R2, queued at least 2 hours ago, is still running",
        ),
        ([make("R2", None, 9, mode="refresh"), make("R1", "published", 8)], None),  # it takes nothing in
    ],
)
def test_behind(runs: list[RunReport], told: str | None) -> None:
    alert = find_behind(NAME, "R2", 7200.0, runs, NOON)
    assert (alert is None) if told is None else (alert is not None and told in alert.text), alert
