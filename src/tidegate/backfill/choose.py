"""What has to be read again to rebuild some partitions: the files and offsets of the runs that gave rows to them.

To the partitions of an interval belong the rows that the transform makes of the records that runs have taken. Of which
runs that may be is found in the table's log (:mod:`tidegate.backfill.lineage`), and of which of their files in the
folders, where the table's partition is the source's own ``k=v`` folder. What else a run had given rows to is known, so
that a transform which now moves rows from one partition to another is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate import storage
from tidegate.backfill.lineage import Increment, Lineage, Partition, Replay
from tidegate.backfill.span import Interval
from tidegate.hive_names import unescape_name
from tidegate.paths import PipelinePaths
from tidegate.sources.files.intake import record_path
from tidegate.sources.files.ledger import LedgerRow, open_ledger
from tidegate.spec.models import PipelineSpec
from tidegate.staging.birth import read_births
from tidegate.staging.topics import OffsetRange, OffsetRanges, Offsets, offsets_from_json

_Batch = tuple[str, int]


@dataclass
class Choice:
    """What an interval is rebuilt from.

    ``outside``: how many rows the same records gave to partitions that are not rebuilt. ``by_folder``: whether files
    were chosen by the folder that they are in. ``left_out``: records of increments that a person discarded.
    ``replays``: those that have put through quarantined records of what is read.
    """

    files: dict[str, list[LedgerRow]] = field(default_factory=dict)
    ranges: dict[str, list[OffsetRanges]] = field(default_factory=dict)
    outside: dict[Partition, int] = field(default_factory=dict)
    by_folder: bool = False
    increments: list[Increment] = field(default_factory=list)
    left_out: int = 0
    replays: list[Replay] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How much is read of files."""
        return sum(row.size for rows in self.files.values() for row in rows)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be read."""
        return not any(self.files.values()) and not any(self.ranges.values())


def choose(paths: PipelinePaths, spec: PipelineSpec, lineage: Lineage, interval: Interval) -> Choice:
    """What ``interval`` is rebuilt from. Costs no JVM; reads the ledger, the births and what the log says."""
    is_whole = not interval.within
    taken = _taken_rows(paths, spec, with_unreadable=is_whole)
    folders = _folder_columns(lineage, taken, interval)
    wanted, choice = set[_Batch](), Choice(by_folder=bool(folders))
    picked, choice.replays = _pick(lineage, interval, is_whole=is_whole)
    for increment, batches in zip(lineage.increments, picked, strict=True):
        if not batches:
            continue
        if increment.is_left_out:
            choice.left_out += increment.rows.get("read", 0)
            continue
        choice.increments.append(increment)
        wanted |= {(increment.query_id, batch) for batch in batches}
        for batch in () if folders else batches:
            _count_outside(choice, increment.given.get(batch, {}), interval)
    for replay in () if folders else choice.replays:
        _count_outside(choice, replay.given, interval)
    for row in taken:
        of = (str(row.query_id), int(row.batch_id or 0))
        if of in wanted and _is_in_folder(row, folders, interval):
            choice.files.setdefault(row.source, []).append(row)
    topics = [name for name, source in spec.streams.items() if not source.takes_files]
    if topics:
        choice.ranges = _ranges(paths, lineage, choice.increments, topics)
    return choice


def _count_outside(choice: Choice, given: Mapping[Partition, int], interval: Interval) -> None:
    for partition, rows in given.items():
        if not interval.holds(dict(partition)):
            choice.outside[partition] = choice.outside.get(partition, 0) + rows


def _pick(lineage: Lineage, interval: Interval, *, is_whole: bool) -> tuple[list[list[int]], list[Replay]]:
    """(the batches of each publish that may have records of the interval, the replays of their records). Of which batch
    a replay's rows are nobody knows: with one of its batches come the others."""
    picked = [
        list(range(one.first, one.last + 1)) if is_whole else _batches_for(one, interval) for one in lineage.increments
    ]
    replays, rest = list[Replay](), list(lineage.replays)
    while True:
        met = {
            (one.query_id[:8], batch)
            for one, batches in zip(lineage.increments, picked, strict=True)
            for batch in batches
        }
        found = [
            one for one in rest if one.batches & met or any(interval.holds(dict(partition)) for partition in one.given)
        ]
        if not found:
            return picked, replays
        rest = [one for one in rest if one not in found]
        replays += found
        more = frozenset().union(*(one.batches for one in found))
        for place, increment in enumerate(lineage.increments):
            every = range(increment.first, increment.last + 1)
            own = {batch for batch in every if (increment.query_id[:8], batch) in more}
            if own:
                picked[place] = list(every) if increment.ends else sorted({*picked[place], *own})


def _batches_for(increment: Increment, interval: Interval) -> list[int]:
    """The batches that may have records of the interval: those that gave it rows; where records came to no row, all,
    for a changed transform may make rows of them. Of a run that reads topics all: its report has one range."""
    every = list(range(increment.first, increment.last + 1))
    if increment.has_filtered or increment.is_left_out:
        return every
    giving = [
        batch for batch, given in increment.given.items() if any(interval.holds(dict(partition)) for partition in given)
    ]
    return every if giving and increment.ends else sorted(giving)


def _taken_rows(paths: PipelinePaths, spec: PipelineSpec, *, with_unreadable: bool) -> list[LedgerRow]:
    """Files that are in the table by now, with or without those that are in quarantine as wholes."""
    if not spec.file_streams:
        return []
    with open_ledger(paths, read_only=True) as ledger:
        rows = ledger.rows(state="published")
    rows = [row for row in rows if row.source in spec.streams]
    if with_unreadable:
        return rows
    return [row for row in rows if not storage.exists(record_path(paths.unreadable, row.link))]


def _folder_columns(lineage: Lineage, rows: Sequence[LedgerRow], interval: Interval) -> set[str]:
    """The columns of the interval that are folders of the source too, with the same values: every batch has given rows
    to partitions of the folders alone that it read."""
    read: dict[_Batch, dict[str, set[str]]] = {}
    for row in rows:
        of_batch = read.setdefault((str(row.query_id), int(row.batch_id or 0)), {})
        folders = folder_values(row.link)
        for column in interval.within:
            of_batch.setdefault(column, set()).add(folders.get(column.lower(), ""))
    same = set(interval.within)
    for increment in lineage.increments:
        for batch, given in increment.given.items():
            for column in list(same):
                in_table = {dict(partition).get(column) or "" for partition in given}
                if not in_table <= read.get((increment.query_id, batch), {}).get(column, set()) - {""}:
                    same.discard(column)
    for replay in lineage.replays:
        for column in list(same):
            in_table = {dict(partition).get(column) or "" for partition in replay.given}
            of_batches = (
                folders.get(column, set())
                for (query, batch), folders in read.items()
                if (query[:8], batch) in replay.batches
            )
            if not in_table <= set().union(*of_batches) - {""}:
                same.discard(column)
    return same if read else set()


def folder_values(link: str) -> dict[str, str]:
    """{column in lower case: value} of the ``k=v`` folders of a link."""
    found = {}
    for part in link.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            found[unescape_name(name).lower()] = unescape_name(value)
    return found


def _is_in_folder(row: LedgerRow, folders: Iterable[str], interval: Interval) -> bool:
    values = folder_values(row.link)
    return all(values.get(column.lower()) in interval.within[column] for column in folders)


def _ranges(
    paths: PipelinePaths, lineage: Lineage, increments: Sequence[Increment], topics: Sequence[str]
) -> dict[str, list[OffsetRanges]]:
    """The offsets that each of the runs took: from where the one before it ended, or where its query was born."""
    born: dict[str, dict[str, Offsets]] = {
        str(birth.query_id): {
            name: offsets_from_json(start["offsets"]) for name, start in birth.sources.items() if "offsets" in start
        }
        for birth in read_births(paths)
    }
    found: dict[str, list[OffsetRanges]] = {name: [] for name in topics}
    at: dict[str, dict[str, Offsets]] = {}
    wanted = {(one.query_id, one.last) for one in increments}
    for one in lineage.increments:
        before = at.setdefault(one.query_id, dict(born.get(one.query_id, {})))
        for name, ends in one.ends.items():
            begins = before.get(name, {})
            if name in found and (one.query_id, one.last) in wanted:
                ranges = {
                    partition: OffsetRange(begins.get(partition, 0), end)
                    for partition, end in ends.items()
                    if end > begins.get(partition, 0)
                }
                found[name] += [ranges] if ranges else []
            before[name] = {**begins, **ends}
    return found
