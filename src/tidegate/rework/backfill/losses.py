"""Count what each day of an interval has lost to quarantine, as a backfill of that day alone would.

Such a backfill reads the day's files and offsets as a whole. So a malformed record, whose day is unknown, counts toward
each day that is rebuilt from its file. A row that a rule rejects counts toward its own day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.quality.verdict import Quarantined, WholeFiles
from tidegate.rework.backfill.choose import Choice, Scope, choose_records
from tidegate.rework.backfill.span import Interval
from tidegate.state.manifest import BatchManifest, TakenFile, files_within
from tidegate.state.topics import OffsetRanges, TopicPartition
from tidegate.table.quarantine.read import read_pieces

Place = tuple[str, TopicPartition, int]
"""The source, partition and offset of a record of a topic."""


def count_by_day(
    scope: Scope, interval: Interval, every: Choice, state: Path, staged: Sequence[BatchManifest]
) -> dict[str, Quarantined]:
    """What is in quarantine of each day of an interval, by what was ``staged`` for it from ``every`` record. {} where
    nothing is, where the interval is one day, or a batch has more files than Spark can count one by one."""
    files = _files(staged)
    if not any(one.malformed + one.rejected for one in staged) or not all("records" in file for file in files):
        return {}
    malformed = _list_malformed(state, staged) if every.offsets else []
    return {
        day.label: count_losses(staged, day, choose_records(scope, day), every, malformed) for day in interval.joined
    }


def count_losses(
    staged: Sequence[BatchManifest], day: Interval, alone: Choice, every: Choice, malformed: Sequence[Place]
) -> Quarantined:
    """What is in quarantine of a day, of what was staged for the interval.

    Args:
        staged: The batches of the job.
        day: The day.
        alone: What a backfill of this day alone would read.
        every: What was read.
        malformed: The malformed records of topics.
    """
    links = {row.link for rows in alone.files.values() for row in rows}
    files = [file for file in _files(staged) if file["link"] in links]
    read = sum(file["records"] for file in files)
    wrong = sum(file["malformed"] for file in files)
    for source, ranges in alone.ranges.items():
        bad = sum(_holds(ranges, partition, offset) for name, partition, offset in malformed if name == source)
        rows = sum(one.sources[source].rows for one in staged)
        # Offsets without a record, such as transaction markers, are assumed to be everywhere alike.
        read += max(bad, rows * _count(ranges) // max(_count(every.ranges[source]), 1))
        wrong += bad
    values = {value for some in day.within.values() for value in some}
    rejected = sum(count for one in staged for value, count in one.rejected_by_day.items() if value in values)
    rows = sum(file.rows for one in staged for file in files_within(one.files, day.within))
    whole = WholeFiles.of(file["whole"] for file in files if "whole" in file)
    return Quarantined(read, wrong, transformed=rows + rejected, rejected=rejected, whole=whole)


def _list_malformed(state: Path, staged: Sequence[BatchManifest]) -> list[Place]:
    """The malformed records of topics among those that a job has staged for quarantine, below the folder ``state``."""
    found = []
    for file in (file for one in staged for file in one.quarantine_files):
        pieces = read_pieces(storage.address(state / file.path), ["source", "position", "reason"])
        for record in (one for piece in pieces for one in piece.to_pylist()):
            at: Mapping[str, object] = json.loads(record["position"] or "{}")
            if record["reason"] == "malformed" and "offset" in at:
                partition = TopicPartition(str(at["topic"]), int(str(at["partition"])))
                found.append((record["source"], partition, int(str(at["offset"]))))
    return found


def _files(staged: Sequence[BatchManifest]) -> list[TakenFile]:
    return [file for one in staged for source in one.sources.values() for file in source.files or ()]


def _count(ranges: Sequence[OffsetRanges]) -> int:
    return sum(one.count for some in ranges for one in some.values())


def _holds(ranges: Sequence[OffsetRanges], partition: TopicPartition, offset: int) -> bool:
    return any(one[partition].begin <= offset < one[partition].end for one in ranges if partition in one)
