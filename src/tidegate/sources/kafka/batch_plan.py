"""Plans which offsets each micro-batch reads, and which of them each task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidegate.sources.kafka.offsets import KafkaBirth, KafkaPlan, extend_birth
from tidegate.sources.port import Cut
from tidegate.spec.models import KafkaSource
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import OffsetRange, Offsets, RangePart, TopicPartition

PART_OFFSETS = 100_000
"""Offsets of one task: enough that its start does not matter, few enough that all cores have work."""

BATCH_OFFSETS = 4_000_000
"""Offsets of one batch by default: as many records cost as much as files of ``BATCH_BYTES``."""

PARTS_AT_MOST = 10_000
"""The most parts of a batch, whatever the spec says: each is a line of a file."""


@dataclass(frozen=True)
class Limits:
    """Limits from a source's spec: a batch has up to ``per_batch`` offsets (None: no limit), in at least ``parts``
    parts of at most ``per_part`` offsets."""

    per_batch: int | None
    parts: int
    per_part: int

    @classmethod
    def of(cls, spec: KafkaSource, cut: Cut) -> Limits:
        """Return the limits of ``spec`` that ``cut`` applies, or the default limit."""
        default = BATCH_OFFSETS if cut is Cut.BY_SIZE else None
        per_batch = None if cut is Cut.NOWHERE else spec.options.get("maxOffsetsPerTrigger", default)
        parts, per_part = spec.options.get("minPartitions"), spec.options.get("maxRecordsPerPartition")
        return cls(
            None if per_batch is None else int(per_batch),
            1 if parts is None else int(parts),
            PART_OFFSETS if per_part is None else min(PART_OFFSETS, int(per_part)),
        )


def write_batches(
    files: BatchFiles, birth: KafkaBirth, plan: KafkaPlan, limits: Limits, check: Callable[[], None]
) -> None:
    """Write batch files for all pending offsets, after those that Spark has not planned yet. ``check`` is called before
    each change. Raises ValueError when the plan of Spark cannot be read."""
    there = list(itertools.takewhile(lambda one: _fits(one, limits), files.list_open()))
    last = there[-1].number if there else files.last_planned()
    # Also after a batch in flight, whose records are pending too.
    begins = {**plan.next_offsets, **(there[-1].next_begins if there else files.read_position())}
    number = files.pass_over(last, begins, check) + 1
    files.set_times(check)
    topic_ids = extend_birth(birth, plan).topic_ids
    has_new = any(begins[one] < until for one, until in plan.end.items())
    if not has_new and number > files.last_planned() + 1:
        check()
        files.put(BatchFile(number, begins, begins))  # or a stale process could add one with this number
    while any(begins[one] < until for one, until in plan.end.items()):
        ends = {**begins, **_find_ends(begins, plan.end, limits.per_batch)}
        ranges = {one: OffsetRange(begins[one], until) for one, until in ends.items()}
        check()
        written = files.put(BatchFile(number, begins, ends, divide(ranges.items(), topic_ids, limits)))
        if all(begins.get(one, 0) == at for one, at in written.begins.items()):
            begins = {**begins, **written.next_begins}
        else:
            files.pass_over(number - 1, begins, check)  # a stale process has just written it, from another plan
        number += 1


def _fits(one: BatchFile, limits: Limits) -> bool:
    """Whether a batch file from before is within the present limits. Each partition may have one offset more."""
    return limits.per_batch is None or sum(of.count for of in one.ranges.values()) <= limits.per_batch + len(one.ends)


def divide(
    ranges: Iterable[tuple[TopicPartition, OffsetRange]], topic_ids: Mapping[str, str | None], limits: Limits
) -> list[RangePart]:
    """Split these ranges into parts, those of a partition in order."""
    ranges = [(where, one) for where, one in ranges if one.count > 0]
    total = sum(one.count for _, one in ranges)
    size = max(min(limits.per_part, max(1, total // limits.parts)), total // PARTS_AT_MOST)
    return [
        RangePart(*where, begin, min(begin + size, one.end), topic_ids.get(where.topic))
        for where, one in ranges
        for begin in range(one.begin, one.end, size)
    ]


def _find_ends(begins: Offsets, ends: Offsets, at_most: int | None) -> Offsets:
    """Find the ends of a batch of about ``at_most`` offsets: the same share of each partition's pending offsets, and at
    least one offset."""
    waiting = {one: until - begins[one] for one, until in sorted(ends.items()) if until > begins[one]}
    total = sum(waiting.values())
    if at_most is None or total <= at_most:
        return {one: begins[one] + count for one, count in waiting.items()}
    return {one: begins[one] + max(1, count * at_most // total) for one, count in waiting.items()}
