"""Batch files: what is planned is read once, whoever plans, and no file of another content is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_kafka import write_list, write_offsets
from tests.support.sweep import examples
from tidegate.sources.kafka.batch_plan import Limits, divide, write_batches
from tidegate.sources.kafka.offsets import KafkaBirth, KafkaPlan
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import OffsetRange, Offsets, RangePart, TopicPartition, subtract_ranges

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
BIRTH = KafkaBirth({P0: 0, P1: 0, P2: 0}, {"t": "id"})


def plan_to(ends: Offsets, taken: Offsets) -> KafkaPlan:
    """What a look finds when the partitions end there."""
    owed = {**dict.fromkeys(ends, 0), **taken}
    ranges = {one: OffsetRange(owed[one], until) for one, until in ends.items() if until > owed[one]}
    return KafkaPlan(dict.fromkeys(ends, 0), ends, owed, {"t": "id"}, ranges, frozenset())


def take_all(files: BatchFiles) -> None:
    """Spark plans every file, a batch each."""
    (files.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    for number in range(files.last_planned() + 1, (files.numbers() or [-1])[-1] + 1):
        write_list(files.checkpoint, files.source, [files.path(number)])
        write_offsets(files.checkpoint, number)


def records(parts: list[RangePart]) -> list[tuple[int, int]]:
    """Each record that these parts read."""
    return sorted((one.partition, offset) for one in parts for offset in range(one.begin, one.end))


sizes = st.tuples(*(st.integers(0, 40) for _ in range(3)))


@settings(deadline=None, max_examples=examples(40))
@given(
    looks=st.lists(sizes, min_size=1, max_size=4),
    at_most=st.one_of(st.none(), st.integers(1, 60)),
    parts=st.integers(1, 9),
    per_part=st.integers(1, 30),
    is_taken=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_each_record_is_in_one_part(
    tmp_path_factory: pytest.TempPathFactory,
    looks: list[tuple[int, ...]],
    at_most: int | None,
    parts: int,
    per_part: int,
    is_taken: list[bool],
) -> None:
    """Over several looks, after each of which Spark has planned all that was written, or nothing yet."""
    files = BatchFiles(tmp_path_factory.mktemp("query") / "checkpoint", "s")
    ends = {P0: 0, P1: 0, P2: 0}
    read: list[RangePart] = []
    for grown, taken in zip(looks, is_taken, strict=False):
        ends = {one: until + more for (one, until), more in zip(ends.items(), grown, strict=True)}
        limits = Limits(at_most, parts, per_part)
        write_batches(files, BIRTH, plan_to(ends, files.read_position()), limits, lambda: None)
        if taken:
            take_all(files)
    for number in files.numbers():
        one = files.read(number)
        read += one.parts
        count = sum(part.end - part.begin for part in one.parts)
        assert count <= max(at_most or count, 3) + 3 and count > 0
        assert all(part.end - part.begin <= per_part and part.topic_id == "id" for part in one.parts)
        assert len(one.parts) >= min(parts, count)
    assert records(read) == [(one.partition, offset) for one, until in ends.items() for offset in range(until)]
    if files.numbers():
        assert files.read(files.numbers()[-1]).next_begins == ends


def test_two_that_plan_at_once_agree(tmp_path: Path) -> None:
    """A stale process adds a file that is planned behind those that are there, or finds its number taken."""
    old, new = (BatchFiles(tmp_path / "checkpoint", "s") for _ in range(2))
    stopped = 0

    def other_run() -> None:
        nonlocal stopped
        stopped += 1
        if stopped == 2:  # a new run has the lease and plans further, in larger batches
            write_batches(new, BIRTH, plan_to({P0: 40, P1: 0, P2: 0}, {}), Limits(20, 1, 99), lambda: None)

    write_batches(old, BIRTH, plan_to({P0: 30, P1: 0, P2: 0}, {}), Limits(5, 1, 99), other_run)
    read = [part for number in new.numbers() for part in new.read(number).parts]
    assert records(read) == [(0, offset) for offset in range(40)]


def test_a_stale_process_that_took_the_number_with_another_beginning_is_passed_over(tmp_path: Path) -> None:
    """It put the file between our last look and our own."""
    files = BatchFiles(tmp_path / "checkpoint", "s")
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 2:
            files.put(BatchFile(1, {P0: 3}, {P0: 20}, [RangePart("t", 0, 3, 20)]))

    write_batches(files, BIRTH, plan_to({P0: 20, P1: 0, P2: 0}, {}), Limits(10, 1, 99), check)
    read = [(one.number, one.begins[P0], one.ends[P0]) for one in files.list_open()]
    assert read == [(0, 0, 10), (1, 10, 10), (2, 10, 20)], "the number is used no more"


def test_a_limit_that_has_become_smaller_counts_for_what_nobody_has_begun(tmp_path: Path) -> None:
    files, plan = BatchFiles(tmp_path / "checkpoint", "s"), plan_to({P0: 40, P1: 0, P2: 0}, {})
    write_batches(files, BIRTH, plan, Limits(30, 1, 99), lambda: None)
    write_batches(files, BIRTH, plan, Limits(20, 1, 99), lambda: None)
    assert [(one.begins[P0], one.ends[P0]) for one in files.list_open()] == [(0, 0), (0, 0), (0, 20), (20, 40)]


def test_files_are_passed_over_under_the_lease_alone(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path / "checkpoint", "s")
    write_batches(files, BIRTH, plan_to({P0: 40, P1: 0, P2: 0}, {}), Limits(10, 1, 99), lambda: None)
    left = [1, 1]

    def check() -> None:
        left.pop()

    with pytest.raises(IndexError):
        files.pass_over(0, {P0: 10}, check)
    assert [len(files.read(number).parts) for number in files.numbers()] == [1, 0, 0, 1]


@pytest.mark.parametrize("has_new", [False, True])
def test_a_stale_process_can_add_nothing(tmp_path: Path, has_new: bool) -> None:
    """The number that it would use is taken by whoever plans after it."""
    files, ends = BatchFiles(tmp_path / "checkpoint", "s"), {P0: 10, P1: 0, P2: 0}
    write_batches(files, BIRTH, plan_to(ends, {}), Limits(10, 1, 99), lambda: None)
    stale = BatchFile(1, {P0: 10}, {P0: 20}, [RangePart("t", 0, 10, 20)])
    write_batches(files, BIRTH, plan_to({**ends, P1: 5 * has_new}, {}), Limits(10, 1, 99), lambda: None)
    assert files.put(stale) != stale


def test_a_file_is_found_by_its_number_and_time(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path / "checkpoint", "s")
    batch = BatchFile(7, {P0: 1, P1: 2}, {P0: 5, P1: 2}, [RangePart("t", 0, 1, 5, "id")])
    assert files.put(batch) == batch == files.read(7)
    assert files.put(BatchFile(7, {P0: 1}, {P0: 9})) == batch
    assert files.path(7).stat().st_mtime_ns == (1_000_000_000 + 7) * 10**9
    header, *lines = files.path(7).read_text().splitlines()
    assert json.loads(header)["ends"] == {"t": {"0": 5, "1": 2}} and len(lines) == 1
    assert batch.ranges == {P0: OffsetRange(1, 5), P1: OffsetRange(2, 2)}
    files.path(7).rename(files.path(8))
    with pytest.raises(ValueError, match=r"batches/s/000000000008\.jsonl is torn, edited, or a copy"):
        files.read(8)
    with pytest.raises(ValueError, match=r"batches/s/000000000007\.jsonl is gone"):
        files.read(7)


@pytest.mark.parametrize("harm", ["missing", "moved", "torn"])
def test_files_that_nobody_has_begun_are_planned_again(tmp_path: Path, harm: str) -> None:
    """From the first that does not follow the one before it."""
    files, plan = BatchFiles(tmp_path / "checkpoint", "s"), plan_to({P0: 30, P1: 0, P2: 0}, {})
    write_batches(files, BIRTH, plan, Limits(10, 1, 99), lambda: None)
    assert [one.begins[P0] for one in files.list_open()] == [0, 10, 20]
    if harm == "missing":
        files.path(1).unlink()
    elif harm == "moved":
        files.rewrite(BatchFile(1, {P0: 11}, {P0: 20}))
    else:
        files.path(1).write_text("{")
    assert [one.begins[P0] for one in files.list_open()] == [0]
    write_batches(files, BIRTH, plan, Limits(15, 1, 99), lambda: None)
    read = [(one.begins[P0], one.ends[P0]) for one in files.list_open()]
    assert read == [(0, 10), (10, 10), (10, 10), (10, 25), (25, 30)]


def test_a_batch_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path / "checkpoint", "s")
    for number, begin in enumerate((0, 10, 19)):
        files.put(BatchFile(number, {P0: begin}, {P0: begin + 10}))
    take_all(files)
    files.check_batch(0)
    files.check_batch(1)
    with pytest.raises(ValueError, match=r"000000000002\.jsonl does not begin where the one before it ends"):
        files.check_batch(2)


def test_the_last_hundred_stay(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path / "checkpoint", "s")
    for number in (3, 4, 103, 104):
        files.put(BatchFile(number, {}, {}))
    files.remove_before(104)
    assert files.numbers() == [4, 103, 104]


ranges = st.lists(
    st.dictionaries(
        st.sampled_from([P0, P1]),
        st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda r: OffsetRange(r[0], sum(r))),
    ),
    max_size=6,
)


@given(ranges, ranges)
def test_ranges_without_others(
    taken: list[dict[TopicPartition, OffsetRange]], without: list[dict[TopicPartition, OffsetRange]]
) -> None:
    def offsets(some: list[dict[TopicPartition, OffsetRange]]) -> set[tuple[int, int]]:
        return {(w.partition, at) for one in some for w, r in one.items() for at in range(r.begin, r.end)}

    found = divide(subtract_ranges(taken, without), {}, Limits(None, 1, 5))
    assert records(found) == sorted(offsets(taken) - offsets(without))
