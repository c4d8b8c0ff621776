"""Offsets by topic and partition, and their JSON forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.staged import make_paths
from tidegate.state.manifest import BatchManifest, SourceRange, end_positions, manifest_from_json, manifest_to_json
from tidegate.state.published import Published, read_published, write_published
from tidegate.state.topics import (
    OffsetRange,
    Positions,
    TopicPartition,
    join_ranges,
    offsets_from_json,
    offsets_to_json,
    positions_from_json,
    positions_to_json,
    ranges_from_json,
    ranges_to_json,
)

OFFSETS = '{"clicks": {"2": 7, "10": 0}, "a.b": {"0": -2}}'
RANGES = '{"clicks": {"2": [5, 9], "10": [0, 0]}, "a.b": {"0": [3, 4]}}'


def test_json_is_the_same_when_it_is_written_again() -> None:
    assert json.dumps(offsets_to_json(offsets_from_json(json.loads(OFFSETS)))) == OFFSETS
    assert json.dumps(ranges_to_json(ranges_from_json(json.loads(RANGES)))) == RANGES
    assert (offsets_from_json({}), ranges_from_json({})) == ({}, {})


def test_what_was_read() -> None:
    assert offsets_from_json(json.loads(OFFSETS)) == {
        TopicPartition("clicks", 2): 7,
        TopicPartition("clicks", 10): 0,
        TopicPartition("a.b", 0): -2,
    }
    ranges = ranges_from_json(json.loads(RANGES))
    assert ranges[TopicPartition("clicks", 2)] == OffsetRange(5, 9)
    assert [(str(partition), one.count) for partition, one in sorted(ranges.items(), key=lambda pair: pair[0])] == [
        ("topic a.b partition 0", 1),
        ("topic clicks partition 2", 4),
        ("topic clicks partition 10", 0),
    ]


def test_partitions_that_come_between_those_of_another_topic() -> None:
    mixed = {TopicPartition("b", 1): 1, TopicPartition("a", 0): 2, TopicPartition("b", 0): 3}
    assert json.dumps(offsets_to_json(mixed)) == '{"b": {"1": 1, "0": 3}, "a": {"0": 2}}'
    assert json.dumps(offsets_to_json(dict(sorted(mixed.items())))) == '{"a": {"0": 2}, "b": {"0": 3, "1": 1}}'


NO_PARTITIONS: list[Any] = [None, 7, "t", [], ["t"], {"t": 7}, {"t": [7]}, {"t": None}, {1: {}}, {"t": {0: 7}}]
NO_NUMBERS = ["", "a", "-1", "1.0", " 1", "²"]


@pytest.mark.parametrize("value", [*NO_PARTITIONS, *({"t": {number: 7}} for number in NO_NUMBERS)], ids=repr)
def test_no_offsets(value: object) -> None:
    with pytest.raises(ValueError, match=r"is in the place of an object|is not the number of a partition"):
        offsets_from_json(value)


@pytest.mark.parametrize("offset", [None, True, 1.0, "1", [1], [1, 2], {"1": 1}], ids=repr)
def test_no_offset(offset: object) -> None:
    with pytest.raises(ValueError, match="is not an offset"):
        offsets_from_json({"t": {"0": offset}})


@pytest.mark.parametrize("value", [*NO_PARTITIONS, *({"t": {number: [1, 2]}} for number in NO_NUMBERS)], ids=repr)
def test_no_ranges(value: object) -> None:
    with pytest.raises(ValueError, match=r"is in the place of an object|is not the number of a partition"):
        ranges_from_json(value)


@pytest.mark.parametrize("pair", [None, 1, "12", [], [1], [1, 2, 3], [None, 2], [1, True], [1, "2"]], ids=repr)
def test_no_range(pair: object) -> None:
    with pytest.raises(ValueError, match=r"is not a range of offsets|is not an offset"):
        ranges_from_json({"t": {"0": pair}})


def test_what_is_refused_is_named_in_a_few_words() -> None:
    with pytest.raises(ValueError, match=r"^'x{79} is in the place of an object$"):
        offsets_from_json("x" * 1000)


def test_positions_of_sources() -> None:
    text = f'{{"s": {OFFSETS}, "r": {{}}}}'
    positions = positions_from_json(json.loads(text))
    assert positions == {"s": offsets_from_json(json.loads(OFFSETS)), "r": {}}
    assert json.dumps(positions_to_json(positions)) == text
    for value in (None, [], {"s": 7}, {"s": {"t": {"0": None}}}):
        with pytest.raises(ValueError, match=r"is in the place of an object|is not an offset"):
            positions_from_json(value)


def test_batches_joined() -> None:
    first = ranges_from_json({"t": {"1": [0, 2], "0": [5, 9]}})
    second = ranges_from_json({"u": {"0": [0, 1]}, "t": {"0": [9, 12], "2": [4, 4]}})
    joined = join_ranges([first, second])
    assert json.dumps(ranges_to_json(joined)) == '{"t": {"1": [0, 2], "0": [5, 12], "2": [4, 4]}, "u": {"0": [0, 1]}}'
    assert first == ranges_from_json({"t": {"1": [0, 2], "0": [5, 9]}}), "a batch was changed"
    assert join_ranges([]) == {}


def test_batches_joined_where_a_topic_began_anew() -> None:
    old, new = (ranges_from_json({"t": {"0": pair}}) for pair in ([100, 200], [0, 50]))
    assert join_ranges([old, new]) == {("t", 0): OffsetRange(0, 200)}


def manifest_of(ranges: str) -> BatchManifest:
    sources = {"f": SourceRange(1, 0, files=[]), "s": SourceRange(5, 0, offsets=ranges_from_json(json.loads(ranges)))}
    return BatchManifest("clicks", "r1", "q", 7, "a", sources, 6, 0, 6, [], [], 0, "{}")


def test_a_manifest() -> None:
    manifest = manifest_of(RANGES)
    data = manifest_to_json(manifest)
    value = json.loads(data)
    assert json.dumps(value["sources"]["s"]["offsets"]) == RANGES and value["sources"]["f"]["offsets"] is None
    assert manifest_from_json(data) == manifest
    value["sources"]["s"]["offsets"]["clicks"]["2"] = [5]
    with pytest.raises(ValueError, match=r"^not a batch manifest: \[5\] is not a range of offsets$"):
        manifest_from_json(json.dumps(value))


def test_where_sources_stand_after_batches() -> None:
    batches = [manifest_of(RANGES), manifest_of('{"new": {"0": [0, 1]}, "clicks": {"2": [9, 12]}}')]
    ends = '{"s": {"clicks": {"2": 12, "10": 0}, "a.b": {"0": 4}, "new": {"0": 1}}}'
    assert json.dumps(positions_to_json(end_positions(batches))) == ends


@pytest.mark.parametrize("positions", [None, {}, {"s": offsets_from_json(json.loads(OFFSETS))}], ids=repr)
def test_the_note_of_a_publish(tmp_path: Path, positions: Positions | None) -> None:
    paths = make_paths(tmp_path)
    note = Published("table-1", 4, "q", 7, 3, positions)
    write_published(paths, note)
    assert read_published(paths) == note
    (path,) = paths.published.glob("*.json")
    value = json.loads(path.read_bytes())
    assert ("positions" in value) == (positions is not None)
    assert json.dumps(value.get("positions", {})) == ("{}" if not positions else f'{{"s": {OFFSETS}}}')
