"""Which batches a day of a query with state is rebuilt from, and which queries give the same rows once more."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tidegate.rework.backfill.choose import may_hold_row
from tidegate.rework.backfill.lineage import Increment, Lineage, Rebuilt, Replay
from tidegate.rework.backfill.span import Interval
from tidegate.rework.backfill.stateful import pick_by_times, why_not_exact
from tidegate.state.manifest import SPAN

HOUR = 3_600_000
DAY = 24 * HOUR
SECOND = Interval({"day": ["1970-01-02"]})


def increment(first: int, times: dict[int, dict[str, list[int]]], last: int | None = None, **more: Any) -> Increment:
    rule = {"rule": "r", SPAN: json.dumps(["day", "events", 0, HOUR])}
    values: dict[str, Any] = {"is_excluded": False, "rows": {}, "ends": {}, "partitioned": rule, **more}
    return Increment(first, "query", first, first if last is None else last, times=times, **values)


def picked(*increments: Increment, margin: bool = True, **more: Any) -> list[list[int]] | None:
    return pick_by_times(Lineage(list(increments), [], **more), SECOND, margin=margin)


def test_batches_with_records_of_the_day_and_its_margin() -> None:
    one = increment(0, {0: {"events": [0, DAY - 1]}, 1: {"events": [0, DAY]}, 2: {}}, 2)
    two = increment(3, {3: {"events": [2 * DAY + HOUR - 1, 9 * DAY]}})
    three = increment(4, {4: {"events": [2 * DAY + HOUR, 9 * DAY]}})
    assert picked(one, two, three) == [[1], [3], []]
    assert picked(one, two, three, margin=False) == [[1], [], []]
    assert picked(one, increment(3, {}), three) == [[1], [3], []], "a batch of which nobody knows the times is read"


def test_runs_of_topics_are_read_whole() -> None:
    one = increment(0, {0: {"events": [DAY, DAY]}, 1: {"events": [0, 0]}}, 1)
    assert picked(one) == [[0]]
    assert picked(increment(0, one.times, 1, ends={"events": {("t", 0): 5}})) == [[0, 1]]


def test_everything_is_read_where_one_rule_does_not_hold_for_all() -> None:
    known = increment(0, {0: {"events": [0, 1]}})
    assert picked(known) == [[]]
    assert picked(known, increment(1, {}, partitioned={})) is None
    assert picked(known, increment(1, {}, partitioned={**known.partitioned, "rule": "another"})) is None
    rebuilt = Rebuilt(5, {"day": ["1970-01-02"]}, frozenset(), {"rule": "another"})
    assert picked(known, rebuilt=[rebuilt]) is None
    assert pick_by_times(Lineage([known], []), Interval({"region": ["north"]}), margin=True) is None
    assert pick_by_times(Lineage([known], []), Interval({"day": ["north"]}), margin=True) is None


@pytest.mark.parametrize(
    ("lineage", "rejected", "said"),
    [
        (Lineage([increment(0, {})], []), 0, None),
        (Lineage([increment(0, {})], []), 1, "a rule has rejected"),
        (Lineage([increment(0, {}), increment(1, {}, is_excluded=True)], []), 0, "batches 1 to 1"),
        (Lineage([increment(0, {})], [], replays=[Replay("r", frozenset(), {}, 0)]), 0, "a replay"),
        (Lineage([increment(0, {}), Increment(1, "other", 0, 0, False, {}, {})], []), 0, "more than one query"),
    ],
)
def test_what_runs_have_published_is_what_they_have_read(lineage: Lineage, rejected: int, said: str | None) -> None:
    why = why_not_exact(lineage, rejected)
    assert (why is None) if said is None else (why is not None and said in why)


def test_a_row_in_quarantine_is_of_the_interval_unless_it_says_otherwise() -> None:
    may_hold = partial(may_hold_row, SECOND, frozenset({"day"}))
    texts = ['{"day": "1970-01-02"}', '{"day": "1970-01-03"}', '{"day": null}', '{"n": 1}', "[", "[]", None]
    assert [may_hold(text) for text in texts] == [True, False, False, True, True, True, True]
    assert may_hold_row(SECOND, frozenset(), '{"day": "1970-01-03"}'), "a time that two spell in two ways"
