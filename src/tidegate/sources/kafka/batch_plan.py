"""Plans which offsets each micro-batch reads, and which of them each task."""

from __future__ import annotations

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
    """Write batch files for all pending offsets. See :meth:`BatchFiles.write`."""
    # Also after a batch in flight, whose records are pending too.
    begins = {**plan.next_offsets, **files.read_position()}
    files.write(_PendingOffsets(begins, plan.end, extend_birth(birth, plan).topic_ids, limits), check)


class _PendingOffsets:
    """The offsets from ``position`` to the ``end`` of each partition."""

    def __init__(self, position: Offsets, end: Offsets, topic_ids: Mapping[str, str | None], limits: Limits) -> None:
        self.position = position
        self._end, self._topic_ids, self._limits = end, topic_ids, limits

    def fits(self, one: BatchFile) -> bool:
        """Return whether it is within the present limits. Each partition may have one offset more."""
        per_batch = self._limits.per_batch
        return per_batch is None or sum(of.count for of in one.ranges.values()) <= per_batch + len(one.ends)

    def holds(self, one: BatchFile) -> bool:
        return all(self.position.get(where, 0) == at for where, at in one.begins.items())

    def take(self, one: BatchFile) -> None:
        self.position = {**self.position, **one.next_begins}

    def next_batch(self, number: int) -> BatchFile | None:
        more = _find_ends(self.position, self._end, self._limits.per_batch)
        ends = {**self.position, **more}
        ranges = {one: OffsetRange(self.position[one], until) for one, until in ends.items()}
        parts = divide(ranges.items(), self._topic_ids, self._limits)
        return BatchFile(number, self.position, ends, parts) if more else None


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
