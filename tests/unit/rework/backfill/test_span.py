"""Which days a range of time stamps asks for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidegate.core.errors import UsageError
from tidegate.rework.backfill.span import Interval, Wanted, find_span, join_intervals

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "day", "type": "date", "nullable": True, "metadata": {}}]})


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        ("2026-01-01T06:00", "2026-01-02T00:00", "--from 2026-01-01 --to 2026-01-01"),
        ("2026-01-01T06:00", "2026-01-03T00:00", "--from 2026-01-01 --to 2026-01-02"),
        ("2026-01-01T00:00", "2026-01-02T06:00", "--from 2026-01-01 --to 2026-01-02"),
        ("2026-01-01T06:00", "2026-01-01T18:00", "--from 2026-01-01 --to 2026-01-01"),
    ],
)
def test_parts_of_days_are_answered_with_the_whole_days_that_they_are_of(start: str, end: str, days: str) -> None:
    """The end of a range of time stamps is not part of it; the last of two days is."""
    with pytest.raises(UsageError) as caught:
        find_span(Wanted(start, end), "orders", schema_json=SCHEMA, partition_by=["day"], files=[])
    assert caught.value.code == "BACKFILL_ARGUMENTS"
    assert f"`{days}`" in caught.value.message


@pytest.mark.parametrize("day", ["20260101", "2026-W01-1", "2026-001", "01.01.2026", "20260101000000"])
def test_a_day_in_another_form_is_refused_and_not_taken_for_a_moment(day: str) -> None:
    """As a time stamp it would be the beginning of the day, and an end that is not part of the range."""
    for start, end in ((day, "2026-01-03"), ("2026-01-01", day), (day, day)):
        with pytest.raises(UsageError) as caught:
            find_span(Wanted(start, end), "orders", schema_json=SCHEMA, partition_by=["day"], files=[])
        assert caught.value.code == "BACKFILL_ARGUMENTS"


def test_a_day_and_a_moment_may_be_mixed() -> None:
    wanted = Wanted("2026-01-01", "2026-01-03T00:00")
    span = find_span(wanted, "orders", schema_json=SCHEMA, partition_by=["day"], files=[])
    assert [one.label for one in span] == ["day=2026-01-01", "day=2026-01-02"]


@pytest.mark.parametrize("wanted", [Wanted("2026-01-01", "2026-01-01"), Wanted(partitions=("day=2026-01-01",))])
def test_a_misspelt_zone_is_refused_also_where_nothing_needs_it(wanted: Wanted) -> None:
    with pytest.raises(UsageError) as caught:
        misspelt = replace(wanted, zone="Europe/Berlni")
        find_span(misspelt, "orders", schema_json=SCHEMA, partition_by=["day"], files=[])
    assert caught.value.code == "BACKFILL_ARGUMENTS"


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("day", "--partition day has no value: write --partition day=VALUE"),
        ("datum", "--partition datum has no value: write --partition day=VALUE"),
        ("datum=1", "'datum=1' is not a partition of the table, which is partitioned by day"),
    ],
)
def test_a_partition_without_a_value_or_of_another_column(partition: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_span(Wanted(partitions=(partition,)), "orders", schema_json=SCHEMA, partition_by=["day"], files=[])
    assert message in caught.value.message


def test_joined_days_are_named_by_the_first_and_the_last_of_consecutive_ones() -> None:
    days = [Interval({"day": [f"2026-{day}"]}) for day in ("01-31", "02-01", "02-02", "02-04")]
    joined = join_intervals([join_intervals(days[:2]), *days[2:]])
    assert joined.label == "day=2026-01-31..2026-02-02,2026-02-04" and joined.days == tuple(days)
    assert joined.holds({"day": "2026-02-04"}) and not joined.holds({"day": "2026-02-03"})
    assert join_intervals(days[:1]) == days[0] and days[0].days == (days[0],)
    assert Interval({"region": ["north", "south"], "day": ["9999-12-31"]}).label == "region=north,south day=9999-12-31"
