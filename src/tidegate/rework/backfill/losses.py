"""Count what each day of an interval has lost to quarantine, as a backfill of that day alone would.

Such a backfill reads the day's files and offsets as a whole. So a malformed record, whose day is unknown, counts toward
each day that is rebuilt from its file. A row that a rule rejects counts toward its own day.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.quality.verdict import Quarantined, WholeFiles
from tidegate.rework.backfill.choose import Choice, Scope, choose_records
from tidegate.rework.backfill.span import Interval
from tidegate.state.manifest import BatchManifest, TakenFile, files_within
from tidegate.state.topics import OffsetRanges, TopicPartition
from tidegate.table.quarantine.read import read_pieces

LEFT_OUT = "left_out.parquet"
"""Below the state folder of a job: the records that stay in quarantine, and are not read again."""
Places = Mapping[tuple[str, TopicPartition], Sequence[int]]
"""The offsets of some records of topics, in order, by source and partition."""


def count_by_day(
    scope: Scope, interval: Interval, every: Choice, state: Path, staged: Sequence[BatchManifest]
) -> dict[str, Quarantined]:
    """What is in quarantine of each day of an interval, by what was ``staged`` for it from ``every`` record. {} where
    nothing is, where the interval is one day, or a batch has more files than Spark can count one by one."""
    files = _files(staged)
    if not interval.joined or not any(one.malformed + one.rejected for one in staged):
        return {}
    if not all("records" in file for file in files):
        return {}
    of_topics = [state / file.path for one in staged for file in one.quarantine_files] if every.offsets else []
    malformed = _read_places(of_topics, reason="malformed")
    left_out = _read_places([state / LEFT_OUT] if every.offsets and storage.exists(state / LEFT_OUT) else [])
    return {
        day.label: count_losses(staged, day, choose_records(scope, day), every, malformed, left_out)
        for day in interval.joined
    }


def count_losses(
    staged: Sequence[BatchManifest],
    day: Interval,
    alone: Choice,
    every: Choice,
    malformed: Places,
    left_out: Places,
) -> Quarantined:
    """What is in quarantine of a day, of what was staged for the interval.

    Args:
        staged: The batches of the job.
        day: The day.
        alone: What a backfill of this day alone would read.
        every: What was read.
        malformed: The malformed records of topics.
        left_out: Their records that stay in quarantine, and were not read.
    """
    links = {row.link for rows in alone.files.values() for row in rows}
    files = [file for file in _files(staged) if file["link"] in links]
    read = sum(file["records"] for file in files)
    wrong = sum(file["malformed"] for file in files)
    for source, ranges in alone.ranges.items():
        bad = _count_places(malformed, source, ranges)
        rows = sum(one.sources[source].rows for one in staged)
        own = _count(ranges) - _count_places(left_out, source, ranges)
        of_all = _count(every.ranges[source]) - _count_places(left_out, source, every.ranges[source])
        # Offsets without a record, such as transaction markers, are assumed to be everywhere alike.
        read += max(bad, rows * own // max(of_all, 1))
        wrong += bad
    values = {value for some in day.within.values() for value in some}
    rejected = sum(count for one in staged for value, count in one.rejected_by_day.items() if value in values)
    rows = sum(file.rows for one in staged for file in files_within(one.files, day.within))
    whole = WholeFiles.of(file["whole"] for file in files if "whole" in file)
    return Quarantined(read, wrong, transformed=rows + rejected, rejected=rejected, whole=whole)


def _read_places(files: Sequence[Path], reason: str = "") -> Places:
    """The positions of the records of topics that files list, those quarantined for a ``reason``: in memory eight bytes
    for each."""
    places: dict[tuple[str, TopicPartition], array[int]] = {}
    columns = ["source", "position", *(["reason"] if reason else [])]
    pieces = (piece for file in files for piece in read_pieces(file, columns))
    for record in (one for piece in pieces for one in piece.to_pylist()):
        position = record["position"] or ""
        at: Mapping[str, object] = json.loads(position) if position.startswith("{") else {}
        if "offset" in at and (not reason or record["reason"] == reason):
            partition = TopicPartition(str(at["topic"]), int(str(at["partition"])))
            places.setdefault((record["source"], partition), array("q")).append(int(str(at["offset"])))
    return {key: array("q", sorted(offsets)) for key, offsets in places.items()}


def _count_places(places: Places, source: str, ranges: Iterable[OffsetRanges]) -> int:
    """How many of the places are in ``ranges``, which do not overlap."""
    count = 0
    for partition, one in (pair for some in ranges for pair in some.items()):
        offsets = places.get((source, partition), ())
        count += bisect_left(offsets, one.end) - bisect_left(offsets, one.begin)
    return count


def _files(staged: Sequence[BatchManifest]) -> list[TakenFile]:
    return [file for one in staged for source in one.sources.values() for file in source.files or ()]


def _count(ranges: Sequence[OffsetRanges]) -> int:
    return sum(one.count for some in ranges for one in some.values())
