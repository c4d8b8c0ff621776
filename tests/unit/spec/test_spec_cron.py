"""Schedules: what is told here agrees with croniter, which Airflow uses."""

from __future__ import annotations

import pytest
from croniter import croniter

from tidegate.spec.cron import describe_unusable_schedule

GOOD = [
    "*/10 * * * *",
    "0 0 1 1 0",
    "5,10 1-5 */2 * 1-5",
    "0 4 29 2 *",
    "59 23 31 12 7",
    "0 0 * JAN MON-FRI",
    "0 0 L * *",
]
BAD = [
    ("", "it has 0 fields, cron has 5"),
    ("* * * *", "it has 4 fields, cron has 5"),
    ("0 * * * * *", "it has 6 fields, cron has 5"),
    ("60 * * * *", "'60': the minute is 0 to 59"),
    ("* 24 * * *", "'24': the hour is 0 to 23"),
    ("* * 0 * *", "'0': the day of the month is 1 to 31"),
    ("* * * 13 *", "'13': the month is 1 to 12"),
    ("* * * * 8", "'8': the day of the week is 0 to 7"),
    ("5-1 * * * *", "'5-1' ends before it begins"),
    ("*/0 * * * *", "'*/0' has a step of 0; it must be at least 1"),
    ("1,,2 * * * *", "'' is not a valid minute"),
    ("* * 31 2 *", "there is no day 31 in month 2"),
    ("* * * FOO *", "croniter, which Airflow uses, does not understand it"),
    ("-1 * * * *", "'-1' is not a valid minute"),
]


@pytest.mark.parametrize("text", GOOD)
def test_good_schedules(text):
    assert describe_unusable_schedule(text) is None
    assert croniter.is_valid(text)


@pytest.mark.parametrize("text", ["@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"])
def test_presets(text):
    assert describe_unusable_schedule(text) is None


@pytest.mark.parametrize("text", ["@once", "@continuous", "@nonsense"])
def test_what_is_no_schedule(text):
    assert "of the presets only @hourly" in (describe_unusable_schedule(text) or "")


@pytest.mark.parametrize(("text", "reason"), BAD)
def test_bad_schedules(text, reason):
    assert describe_unusable_schedule(text) == reason
