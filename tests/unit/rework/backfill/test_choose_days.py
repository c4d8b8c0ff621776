"""Which days one driver of a backfill reads: as much as a batch has by default, up to the best border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.rework.backfill import intervals
from tidegate.rework.backfill.choose import Choice, Scope
from tidegate.rework.backfill.intervals import choose_days, count_together, weigh_records
from tidegate.rework.backfill.lineage import Increment, Lineage, Rebuilt
from tidegate.rework.backfill.span import Interval
from tidegate.sources.files.batch_plan import BATCH_BYTES
from tidegate.sources.kafka.batch_plan import BATCH_OFFSETS
from tidegate.state.topics import OffsetRange, TopicPartition
from tidegate.table.log.snapshot import partition_of

LIMIT, DAYS = 4, 4


def count_plainly(sizes: Mapping[frozenset[int], int], days: int) -> int:
    """The same from the definition: each border is looked at by itself."""

    def read(some: Sequence[int]) -> int:
        return sum(size for needed_by, size in sizes.items() if needed_by & set(some))

    def crossing(border: int) -> int:
        return read(range(border)) + read(range(border, days)) - read(range(days))

    most = 1
    for day in range(1, days):
        new = read(range(day + 1)) - read(range(day))
        if read(range(day + 1)) > LIMIT and 2 * new >= read([day]):
            break
        most = day + 1
    if most == days:
        return days
    free = [border for border in range(1, most + 1) if not crossing(border)]
    if free:
        return free[-1]
    late = [border for border in range(1, most + 1) if read(range(border)) > LIMIT / 2] or [most]
    return min(reversed(late), key=crossing)


def test_the_first_interval_of_all_ways_to_need_three_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_BYTES_AT_ONCE", LIMIT)
    ways = [frozenset(days) for count in range(DAYS + 1) for days in combinations(range(DAYS), count)]
    seen = set[int]()
    for first, second, third in combinations(ways, 3):
        for sizes in product((1, 2, 5), repeat=3):
            needs = dict(zip((first, second, third), sizes, strict=True))
            together = count_together(needs, DAYS)
            assert together == count_plainly(needs, DAYS), needs
            seen.add(together)
    assert seen == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("needs", "together"),
    [
        ({(0,): 1, (1,): 1, (1, 2): 1, (2,): 1, (3,): 4}, 3),  # a border that no file crosses is within the limit
        ({(0,): 1, (1, 2): 2, (2, 3): 3}, 1),  # also in the first half of it
        ({(0, 1): 1, (1,): 2, (1, 2): 1, (2, 3): 2}, 2),  # else the one with the fewest bytes on both sides
        ({(0, 1): 1, (1, 2): 3, (2, 3): 4}, 2),  # but not in the first half
        ({(0, 1, 2, 3): 9}, 4),  # all records are needed by each day
        ({(0,): 5, (1,): 1, (2,): 1, (3,): 1}, 1),  # one day is more than the limit
    ],
)
def test_the_border_of_the_first_interval(
    monkeypatch: pytest.MonkeyPatch, needs: dict[tuple[int, ...], int], together: int
) -> None:
    monkeypatch.setattr(intervals, "_BYTES_AT_ONCE", LIMIT)
    assert count_together({frozenset(days): size for days, size in needs.items()}, DAYS) == together


def make_scope(days: int) -> Scope:
    """Each run wrote rows to its day and the next one; an earlier backfill of another rule has rebuilt all days."""
    labels = [f"{2000 + day // 300}-{day % 300:03}" for day in range(days)]
    rows = {"entered": 2, "transformed": 2}
    increments = [
        Increment(day, "query", day, day, False, rows, {}, {day: {partition_of({"day": one}): 1 for one in of}})
        for day in range(days)
        if (of := labels[day : day + 2])
    ]
    rebuilt = [Rebuilt(days, {"day": labels}, frozenset(one.batch(one.first) for one in increments[:3]), {"rule": "b"})]
    paths: Any = SimpleNamespace(ledger=Path("none"))
    spec: Any = SimpleNamespace(streams={}, file_streams={})
    some: Any = None
    wanted = [Interval({"day": [label]}) for label in labels]
    return Scope(some, paths, spec, some, [], Lineage(increments, [], rebuilt=rebuilt), wanted)


def count_calls(monkeypatch: pytest.MonkeyPatch, scope: Scope) -> int:
    calls = 0
    holds = Interval.holds

    def count(self: Interval, partition: dict[str, str | None]) -> bool:
        nonlocal calls
        calls += 1
        return holds(self, partition)

    with monkeypatch.context() as patch:
        patch.setattr(Interval, "holds", count)
        assert choose_days(scope) == scope.intervals
    return calls


def test_the_work_grows_with_the_number_of_days(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (count_calls(monkeypatch, make_scope(days)) for days in (100, 400))
    assert 0 < many < 5 * few
    read = 0
    choose = intervals.choose_records

    def count(*given: Any) -> Any:
        nonlocal read
        read += 1
        return choose(*given)

    monkeypatch.setattr(intervals, "choose_records", count)
    weigh_records((scope := make_scope(400)), scope.intervals)
    assert read == 1, "the ledger is read once"


@pytest.mark.parametrize(
    ("by_folder", "weighed"),
    [(False, {frozenset({3, 4}): 7, frozenset({4}): 10 * BATCH_BYTES // BATCH_OFFSETS}), (True, {frozenset({1}): 7})],
)
def test_the_bytes_of_a_record_count_for_the_days_that_need_it(
    monkeypatch: pytest.MonkeyPatch, by_folder: bool, weighed: dict[frozenset[int], int]
) -> None:
    """Of a file those of its batch, or of its folder; of offsets, those of a batch in proportion."""
    scope = make_scope(5)
    row: Any = SimpleNamespace(query_id="query", batch_id=3, size=7, link="day=2000-001/a")
    read = [] if by_folder else scope.lineage.increments[-1:]
    ranges = {TopicPartition("t", 0): OffsetRange(10, 20)}
    every = Choice(files={"s": [row]}, increments=read, by_folder=by_folder)
    monkeypatch.setattr(intervals, "choose_records", lambda *given: every)
    monkeypatch.setattr(intervals, "list_ranges", lambda scope: [(scope.lineage.increments[-1], "t", ranges)])
    assert weigh_records(scope, scope.intervals) == weighed
