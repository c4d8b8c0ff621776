"""Offsets of topics, by topic and partition, their JSON forms, and the parts of a source that tasks read.

In JSON a partition is a text below its topic: {topic: {"0": offset}}, and {topic: {"0": [from, until]}} for ranges. The
order of topics and partitions is kept both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

OffsetsJson = dict[str, dict[str, int]]
"""{topic: {partition: offset}}: Spark's own form, too."""
RangesJson = dict[str, dict[str, list[int]]]
"""{topic: {partition: [from, until]}}, until exclusive."""

_Value = TypeVar("_Value")
_Written = TypeVar("_Written")


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorted by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``begin`` up to ``end``, exclusive."""

    begin: int
    end: int

    @property
    def count(self) -> int:
        """The number of offsets; transaction markers and compacted records count too."""
        return self.end - self.begin


Offsets = dict[TopicPartition, int]
"""The next offset of each partition."""
OffsetRanges = dict[TopicPartition, OffsetRange]
Positions = dict[str, Offsets]
"""The positions of each source of topics."""


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    """{topic: {partition: offset}}."""
    return _to_json(offsets, lambda offset: offset)


def offsets_from_json(value: object) -> Offsets:
    """Read the result of :func:`offsets_to_json`. Raises ValueError for anything else."""
    return _from_json(value, _parse_offset)


def ranges_to_json(ranges: Mapping[TopicPartition, OffsetRange]) -> RangesJson:
    """{topic: {partition: [from, until]}}."""
    return _to_json(ranges, lambda one: [one.begin, one.end])


def ranges_from_json(value: object) -> OffsetRanges:
    """Read the result of :func:`ranges_to_json`. Raises ValueError for anything else."""
    return _from_json(value, _parse_range)


def positions_to_json(positions: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, OffsetsJson]:
    """{source: {topic: {partition: offset}}}."""
    return {name: offsets_to_json(offsets) for name, offsets in positions.items()}


def positions_from_json(value: object) -> Positions:
    """Read the result of :func:`positions_to_json`. Raises ValueError for anything else."""
    return {name: offsets_from_json(offsets) for name, offsets in _items(value)}


def join_ranges(batches: Iterable[Mapping[TopicPartition, OffsetRange]]) -> OffsetRanges:
    """One range of each partition, which holds those of all ``batches``."""
    joined: OffsetRanges = {}
    for ranges in batches:
        for partition, one in ranges.items():
            known = joined.get(partition, one)
            joined[partition] = OffsetRange(min(known.begin, one.begin), max(known.end, one.end))
    return joined


def subtract_ranges(
    batches: Iterable[Mapping[TopicPartition, OffsetRange]], without: Iterable[Mapping[TopicPartition, OffsetRange]]
) -> list[tuple[TopicPartition, OffsetRange]]:
    """The offsets of ``batches`` that are in none of ``without``, each once, as ranges in order."""
    taken: dict[TopicPartition, list[tuple[int, int]]] = {}
    for ranges in batches:
        for partition, one in ranges.items():
            taken.setdefault(partition, []).append((one.begin, one.end))
    excluded: dict[TopicPartition, list[tuple[int, int]]] = {}
    for ranges in without:
        for partition, one in ranges.items():
            excluded.setdefault(partition, []).append((one.begin, one.end))
    found = []
    for partition, pieces in sorted(taken.items()):
        behind = 0
        for begin, end in sorted(pieces):
            begin = max(begin, behind)
            for hole_begin, hole_end in sorted(excluded.get(partition, ())):
                if hole_end <= begin or hole_begin >= end:
                    continue
                if begin < hole_begin:
                    found.append((partition, OffsetRange(begin, hole_begin)))
                begin = hole_end
            if begin < end:
                found.append((partition, OffsetRange(begin, end)))
            behind = max(behind, end)
    return found


def _to_json(
    values: Mapping[TopicPartition, _Value], write: Callable[[_Value], _Written]
) -> dict[str, dict[str, _Written]]:
    found: dict[str, dict[str, _Written]] = {}
    for (topic, number), value in values.items():
        found.setdefault(topic, {})[str(number)] = write(value)
    return found


def _from_json(value: object, parse: Callable[[object], _Value]) -> dict[TopicPartition, _Value]:
    found: dict[TopicPartition, _Value] = {}
    for topic, numbers in _items(value):
        for number, one in _items(numbers):
            if not (number.isascii() and number.isdigit()):
                raise ValueError(f"{number[:80]!r} of topic {topic[:80]} is not the number of a partition")
            found[TopicPartition(topic, int(number))] = parse(one)
    return found


def _items(value: object) -> Iterable[tuple[str, object]]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{value!r:.80} is in the place of an object")
    return value.items()


def _parse_offset(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.80} is not an offset")
    return value


def _parse_range(value: object) -> OffsetRange:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r:.80} is not a range of offsets")
    return OffsetRange(*map(_parse_offset, value))


@dataclass(frozen=True, slots=True)
class FilePart:
    """The bytes [begin, end) of the file behind ``link``, a path relative to the intake of its source; ``end`` None is
    the end of the file."""

    link: str
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class RangePart:
    """Offsets of one topic partition, ``end`` exclusive; the topic is the one with this id."""

    topic: str
    partition: int
    begin: int
    end: int
    topic_id: str | None = None


Part = FilePart | RangePart


def list_links(parts: Iterable[Part]) -> list[str]:
    """The links of the files that the parts are of, each once, in order."""
    return list(dict.fromkeys(part.link for part in parts if isinstance(part, FilePart)))
