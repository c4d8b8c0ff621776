"""Which days a run of an Airflow backfill rebuilds, and what a trigger form may ask for."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tidegate.airflow.form import read_form
from tidegate.airflow.requested_work import days_of, is_backfill
from tidegate.core.errors import UsageError


def find_target_run(begin: str, end: str | None = None, run_type: str = "backfill") -> SimpleNamespace:
    at = datetime.fromisoformat(begin).replace(tzinfo=UTC)
    until = at if end is None else datetime.fromisoformat(end).replace(tzinfo=UTC)
    return SimpleNamespace(run_type=run_type, logical_date=at, data_interval_start=at, data_interval_end=until)


@pytest.mark.parametrize(
    ("schedule", "begin", "days"),
    [
        ("0 0 * * *", "2026-01-02T00:00", ("2026-01-02", "2026-01-02")),
        ("0 6 * * *", "2026-01-02T06:00", ("2026-01-03", "2026-01-03")),
        ("*/10 * * * *", "2026-01-02T00:00", ("2026-01-02", "2026-01-02")),
        ("*/10 * * * *", "2026-01-02T00:10", None),
        ("*/10 * * * *", "2026-01-01T23:50", None),
        ("0 0 * * 1", "2026-01-05T00:00", ("2026-01-05", "2026-01-11")),
        ("@monthly", "2026-02-01T00:00", ("2026-02-01", "2026-02-28")),
    ],
)
def test_a_run_rebuilds_the_days_that_begin_before_the_next_tick(
    schedule: str, begin: str, days: tuple[str, str] | None
) -> None:
    assert days_of(find_target_run(begin), schedule) == days


def test_every_day_is_rebuilt_by_one_run() -> None:
    """Whatever the schedule: the runs of a month, one after another, have each day once."""
    from croniter import croniter

    for schedule in ("*/10 * * * *", "7 5,17 * * *", "0 0 * * *", "30 2 */3 * *"):
        ticks = croniter(schedule, datetime(2026, 1, 1, tzinfo=UTC))
        found: list[str] = []
        at = ticks.get_next(datetime)
        while at < datetime(2026, 2, 1, tzinfo=UTC):
            days = days_of(find_target_run(at.isoformat()[:19]), schedule)
            if days is not None:
                first, last = (datetime.fromisoformat(day) for day in days)
                found += (
                    [f"{first.date().replace(day=n)}" for n in range(first.day, last.day + 1)]
                    if (first.month == last.month)
                    else [days[0]]
                )
            at = ticks.get_next(datetime)
        assert len(found) == len(set(found))
        assert set(found) >= {f"2026-01-{day:02d}" for day in range(5, 31)}


def test_an_interval_that_airflow_gives_counts() -> None:
    run = find_target_run("2026-01-01T00:00", "2026-01-04T00:00")
    assert days_of(run, "0 0 * * *") == ("2026-01-01", "2026-01-03")


def test_only_runs_of_a_backfill_rebuild_their_interval() -> None:
    assert is_backfill(find_target_run("2026-01-01T00:00"))
    for kind in ("scheduled", "manual", "asset_triggered"):
        assert not is_backfill(find_target_run("2026-01-01T00:00", run_type=kind))


def test_the_form_takes_two_days() -> None:
    given = {"backfill_from": "2026-01-01", "backfill_to": "2026-01-31"}
    assert read_form({"accept_loss": None, **given}, given).backfill == ("2026-01-01", "2026-01-31")


@pytest.mark.parametrize(
    "given",
    [
        {"backfill_from": "2026-01-01"},
        {"backfill_to": "2026-01-01"},
        {"backfill_from": "2026-01-01", "backfill_to": "$(date)"},
        {"backfill_from": "2026-01-01\n", "backfill_to": "2026-01-01"},
        {"backfill_from": 20260101, "backfill_to": "2026-01-01"},
        {"backfill_from": "2026-01-01", "backfill_to": "2026-01-01", "accept_loss": "gone"},
    ],
)
def test_other_answers_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        read_form({"accept_loss": None, **given}, given)
    assert refused.value.code == "TRIGGER_FORM_REFUSED"


@pytest.mark.parametrize(
    "params", [{"backfill_from": "2026-01-01", "backfill_to": "2026-01-30"}, {"accept_loss": "known"}]
)
def test_a_run_of_airflows_own_backfill_takes_no_days_of_the_form(params: dict[str, object]) -> None:
    """Its dialog shows the form's fields beside the date range: each of thirty runs would rebuild all thirty days."""
    assert read_form({}, {}, of_backfill=True).backfill is None
    with pytest.raises(UsageError, match="is for a single run; a run of Airflow's own Backfill rebuilds the days"):
        read_form(params, params, of_backfill=True)
