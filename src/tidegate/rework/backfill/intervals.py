"""Divide the days of a backfill into intervals, each of which one driver reads.

A file whose rows are of several days is read for each interval that has one of them. So an interval ends where no
file, or the smallest part of the bytes, is needed on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

from tidegate.rework.backfill.choose import Scope, choose_records, find_needs, folder_values, list_ranges
from tidegate.rework.backfill.span import Interval, join_intervals
from tidegate.rework.backfill.stateful import of_query, pick_by_times
from tidegate.sources.files.batch_plan import BATCH_BYTES
from tidegate.sources.kafka.batch_plan import BATCH_OFFSETS

_BYTES_AT_ONCE = BATCH_BYTES


def choose_days(scope: Scope) -> list[Interval]:
    """Choose the first of the scope's days that are rebuilt together, from records that are read once."""
    days = scope.intervals
    return days[: count_together(weigh_records(scope, days), len(days))] if len(days) > 1 else days


def count_together(sizes: Mapping[frozenset[int], int], days: int) -> int:
    """How many of so many days are in the first interval; ``sizes`` has the bytes that are read for some days, by the
    numbers of exactly these days.

    They are read from as many bytes as a batch has by default. A day joins them also where more than half of its
    records are read for them anyway. Of the possible borders it is the last one that no record crosses; if there is
    none, of those in the second half of the limit the one that the fewest bytes cross.
    """
    begun, ended, needed = [0] * days, [0] * days, [0] * days
    for some, size in sizes.items():
        if some:
            begun[min(some)] += size
            ended[max(some)] += size
        for day in some:
            needed[day] += size
    read, done = list(accumulate(begun)), list(accumulate(ended))
    most = 1
    while most < days and (read[most] <= _BYTES_AT_ONCE or 2 * begun[most] < needed[most]):
        most += 1
    if most == days:
        return most
    borders = range(1, most + 1)
    free = [border for border in borders if read[border - 1] == done[border - 1]]
    late = [border for border in borders if 2 * read[border - 1] > _BYTES_AT_ONCE]
    return max(free or late or [most], key=lambda border: (done[border - 1] - read[border - 1], border))


def weigh_records(scope: Scope, days: Sequence[Interval]) -> dict[frozenset[int], int]:
    """The bytes of the files and offsets that the days are rebuilt from, by the numbers of the days that need them."""
    every = choose_records(scope, join_intervals(days))
    needs = _find_batches(scope, days)
    column = next(iter(days[0].within))
    of_folders = {day.within[column][0]: frozenset([number]) for number, day in enumerate(days)}
    sizes = Counter[frozenset[int]]()
    for row in (row for rows in every.files.values() for row in rows):
        if every.by_folder:
            some = of_folders[folder_values(row.link)[column.lower()]]
        else:
            some = needs[str(row.query_id), int(row.batch_id or 0)]
        sizes[some] += row.size
    read = {(one.query_id, one.last) for one in every.increments}
    for increment, _, ranges in list_ranges(scope):
        if (key := (increment.query_id, increment.last)) in read:
            sizes[needs[key]] += sum(one.count for one in ranges.values()) * BATCH_BYTES // BATCH_OFFSETS
    return sizes


def _find_batches(scope: Scope, days: Sequence[Interval]) -> dict[tuple[str, int], frozenset[int]]:
    """The batches that are read, each with the numbers of the days for which."""
    lineage = scope.lineage
    if scope.closes_at_ms is None:
        needs, _ = find_needs(lineage, days)
        pairs = zip(lineage.increments, needs, strict=True)
        return {(one.query_id, batch): some for one, batches in pairs for batch, some in batches.items()}
    own = of_query(lineage)
    picked = [pick_by_times(lineage, day, margin=True) for day in days]
    if None in picked:  # event times are unknown: each day needs all records
        every = frozenset(range(len(days)))
        return {(one.query_id, batch): every for one in own for batch in one.batch_ids}
    found: dict[tuple[str, int], set[int]] = {}
    for number, of_day in enumerate(picked):
        for one, batches in zip(own, of_day or (), strict=True):
            for batch in batches:
                found.setdefault((one.query_id, batch), set()).add(number)
    return {key: frozenset(some) for key, some in found.items()}
