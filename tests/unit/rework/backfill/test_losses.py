"""Each day of an interval is judged by what a backfill of that day alone would count, however days are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.quality.verdict import Quarantined, decide_verdict
from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.losses import count_losses
from tidegate.rework.backfill.span import Interval
from tidegate.spec.models import QualitySpec
from tidegate.state.manifest import BatchManifest, SourceRange, StagedFile
from tidegate.state.topics import OffsetRange, TopicPartition

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
LIMIT = Fraction(1, 4)


@dataclass(frozen=True)
class File:
    """A file: how many of its records are malformed, and how many rows of each day are good and rejected."""

    malformed: int
    good: tuple[int, int, int]
    rejected: tuple[int, int, int]

    @property
    def records(self) -> int:
        return self.malformed + sum(self.good) + sum(self.rejected)


def is_held(files: Sequence[File], day: int, needs: Sequence[set[int]]) -> bool:
    """In plain numbers: the share of the malformed records of the day's files, and of its rows that rules reject."""
    read = [file for file, days in zip(files, needs, strict=True) if day in days]
    records, malformed = sum(file.records for file in read), sum(file.malformed for file in read)
    rejected = sum(file.rejected[day] for file in read)
    rows = rejected + sum(file.good[day] for file in read)
    dropped = Fraction(malformed, records) if records else Fraction(0)
    return dropped + (1 - dropped) * (Fraction(rejected, rows) if rows else 0) > LIMIT


def stage(files: Sequence[File], days: Sequence[int], needs: Sequence[set[int]]) -> BatchManifest:
    """What a job counts that rebuilds these days."""
    read = [(number, file) for number, file in enumerate(files) if needs[number] & set(days)]
    taken: list[Any] = [
        {"link": f"f{number}", "records": file.records, "malformed": file.malformed} for number, file in read
    ]
    staged = [StagedFile(f"{day}", sum(file.good[day] for _, file in read), 1, {"day": DAYS[day]}) for day in days]
    rejected = {DAYS[day]: sum(file.rejected[day] for _, file in read) for day in days}
    source = SourceRange(sum(file.records for _, file in read), sum(file.malformed for _, file in read), files=taken)
    counts = (sum(one.rows for one in staged), sum(rejected.values()))
    return BatchManifest(
        *("flow", "r", "q", 0, "a", {"events": source}, sum(counts), counts[1], counts[0], staged, [], 0, "{}"),
        rejected_by_day=rejected,
    )


def choice_of(numbers: Sequence[int]) -> Choice:
    rows: Any = [type("Row", (), {"link": f"f{number}"}) for number in numbers]
    return Choice(files={"events": rows})


COUNTS = st.tuples(*[st.integers(0, 3)] * 3)
FILES = st.lists(st.builds(File, st.integers(0, 4), COUNTS, COUNTS), min_size=1, max_size=4)
GROUPS = st.sampled_from(([[0, 1, 2]], [[0, 1], [2]], [[0], [1, 2]], [[0], [1], [2]], [[0, 2], [1]]))


@given(FILES, GROUPS)
def test_days_that_are_held_in_whichever_way_they_are_grouped(files: list[File], groups: list[list[int]]) -> None:
    needs = [{day for day in range(3) if file.good[day] or file.rejected[day]} for file in files]
    held = []
    for days in groups:
        manifest = stage(files, days, needs)
        every = choice_of([number for number, some in enumerate(needs) if some & set(days)])
        losses: dict[str, Quarantined] = {}
        for day in days:
            alone = choice_of([number for number, some in enumerate(needs) if day in some])
            losses[str(day)] = count_losses([manifest], Interval({"day": [DAYS[day]]}), alone, every, {}, {})
        limits = QualitySpec(max_quarantine_share=float(LIMIT))
        verdict = decide_verdict(None, [], Quarantined(0), limits, by_day=losses)
        alone_held = [day for day in losses if decide_verdict(None, [], losses[day], limits).verdict == "failed"]
        assert (verdict.verdict == "failed") == bool(alone_held)
        assert all(f"({', '.join(alone_held)})" in reason for reason in verdict.failed_critical.values())
        held += alone_held
    assert sorted(held) == [str(day) for day in range(3) if is_held(files, day, needs)]


def test_records_of_topics_belong_to_each_day_that_is_read_from_their_offsets() -> None:
    """Of 12 offsets 6 have a record: those of a day are assumed to be as many in proportion."""
    partition = TopicPartition("t", 0)
    ranges = [{partition: OffsetRange(0, 4)}, {partition: OffsetRange(4, 12)}]
    manifest = stage([], [0], [])
    source = SourceRange(6, 2, offsets={partition: OffsetRange(0, 12)})
    staged = [BatchManifest(**{**vars(manifest), "sources": {"events": source}})]
    every = Choice(ranges={"events": ranges})
    malformed = {("events", partition): [1, 4], ("other", partition): [1]}
    found = []
    for some in (ranges[:1], ranges[1:], ranges):
        day = Interval({"day": [DAYS[0]]})
        losses = count_losses(staged, day, Choice(ranges={"events": some}), every, malformed, {})
        found.append((losses.read, losses.malformed))
    assert found == [(2, 1), (4, 1), (6, 2)]


def test_a_day_of_a_topic_has_as_many_records_as_are_malformed_at_least() -> None:
    """Of one offset in 12 there would be half a record, and it is malformed."""
    partition = TopicPartition("t", 0)
    ranges = [{partition: OffsetRange(0, 1)}, {partition: OffsetRange(1, 12)}]
    source = SourceRange(6, 1, offsets={partition: OffsetRange(0, 12)})
    staged = [BatchManifest(**{**vars(stage([], [0], [])), "sources": {"events": source}})]
    every, alone = Choice(ranges={"events": ranges}), Choice(ranges={"events": ranges[:1]})
    losses = count_losses(staged, Interval({"day": [DAYS[0]]}), alone, every, {("events", partition): [0]}, {})
    assert (losses.read, losses.malformed) == (1, 1)


def test_files_in_quarantine_whole_count_toward_the_days_that_read_them() -> None:
    file = File(0, (1, 0, 0), (0, 0, 0))
    manifest = stage([file, file], [0], [{0}, {0}])
    taken: Any = manifest.sources["events"].files
    for one, rows in zip(taken, (7, 9), strict=True):
        one["whole"] = {"size": 100, "rows": rows}
    losses = count_losses([manifest], Interval({"day": [DAYS[0]]}), choice_of([1]), choice_of([0, 1]), {}, {})
    assert (losses.whole.files, losses.whole.rows) == (1, 9)


def test_records_of_topics_that_stay_in_quarantine_are_of_their_own_day() -> None:
    """The first day has 90 such records, and 10 that are read, 8 of them malformed; the second day has 100 good ones.
    The share of the first day is the same whether it is rebuilt with the second one or alone."""
    partition = TopicPartition("t", 0)
    ranges = [{partition: OffsetRange(0, 100)}, {partition: OffsetRange(100, 200)}]
    malformed, left_out = {("events", partition): list(range(8))}, {("events", partition): list(range(10, 100))}
    first = Choice(ranges={"events": ranges[:1]})
    for every, rows in ((Choice(ranges={"events": ranges}), 110), (first, 10)):
        source = SourceRange(rows, 8, offsets={partition: OffsetRange(0, 200)}, left_out=90)
        staged = [BatchManifest(**{**vars(stage([], [0], [])), "sources": {"events": source}})]
        losses = count_losses(staged, Interval({"day": [DAYS[0]]}), first, every, malformed, left_out)
        assert (losses.read, losses.malformed) == (10, 8)
