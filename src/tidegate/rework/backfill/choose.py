"""Choose the files and offsets that must be read again to rebuild some partitions.

The table's log (:mod:`tidegate.rework.backfill.lineage`) shows which runs wrote rows to these partitions. Where the
table is partitioned by a column from the source's ``k=v`` folders, the folder names show which files these rows are
from. The other partitions that a run wrote to are known too, so a transform that now moves rows between partitions is
noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.core import storage
from tidegate.core.hive_names import unescape_name
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.lineage import Increment, Lineage, Rebuilt, Replay
from tidegate.rework.backfill.span import Interval
from tidegate.rework.backfill.stateful import of_query, pick_by_times
from tidegate.sources.files.ledger import LedgerRow, open_ledger
from tidegate.sources.files.unreadable import is_in_quarantine
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, PipelineSpec
from tidegate.state.birth import read_births
from tidegate.state.manifest import BatchKey
from tidegate.state.topics import OffsetRange, OffsetRanges, Offsets, offsets_from_json
from tidegate.table.publish.origins import Batch, Partition


@dataclass(frozen=True)
class Margin:
    """How much is read that is outside of the interval's own time. ``is_known``: whether batches were chosen by event
    time; else all batches are read, and those count that wrote no row to the interval."""

    files: int
    bytes: int
    offsets: int
    is_known: bool


@dataclass(frozen=True)
class Rows:
    """Decides whether a rejected row in quarantine may belong to the interval. ``plain``: partition columns whose
    values have one text form everywhere."""

    interval: Interval
    plain: frozenset[str]

    def may_hold(self, raw: str | None) -> bool:
        """Whether the row may belong to the interval."""
        try:
            row = json.loads(raw or "")
        except ValueError:
            return True
        if not isinstance(row, dict):
            return True
        values = {column: row[column] for column in self.interval.within if column in self.plain and column in row}
        return all(value is not None and str(value) in self.interval.within[column] for column, value in values.items())


@dataclass
class Choice:
    """The records that an interval is rebuilt from.

    ``outside``: how many rows of the same records are in partitions that are not rebuilt. ``by_folder``: whether files
    were chosen by their folder. ``excluded``: how many records of discarded increments are not read. ``replays``: the
    replays of quarantined records of the batches that are read.
    """

    files: dict[str, list[LedgerRow]] = field(default_factory=dict)
    ranges: dict[str, list[OffsetRanges]] = field(default_factory=dict)
    outside: dict[Partition, int] = field(default_factory=dict)
    by_folder: bool = False
    increments: list[Increment] = field(default_factory=list)
    excluded: int = 0
    rules: set[str] = field(default_factory=set)
    """The rules by which the partitions of these records' rows in the table were found; "" for an unknown one."""
    strange: list[str] = field(default_factory=list)
    """Sources of these records that are not in the spec."""
    replays: list[Replay] = field(default_factory=list)
    margin: Margin | None = None
    """For a stateful query: how much is read from other times."""
    own_rows: Rows | None = None
    """For a stateful query: decides which rejected rows of unknown records belong to the interval."""
    excluded_ranges: dict[str, list[OffsetRanges]] = field(default_factory=dict)
    """The offsets of excluded increments, by source."""

    @property
    def batches(self) -> set[Batch]:
        """The batches of the runs whose records are read, each run as a whole."""
        return {one.batch(number) for one in self.increments for number in one.batch_ids}

    @property
    def bytes(self) -> int:
        """The total size of the files that are read."""
        return sum(row.size for rows in self.files.values() for row in rows)

    @property
    def offsets(self) -> int:
        """How many offsets are read."""
        return _count_offsets(self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be read."""
        return not any(self.files.values()) and not any(self.ranges.values())


def choose(paths: PipelinePaths, spec: PipelineSpec, lineage: Lineage, interval: Interval, *, older: int = 0) -> Choice:
    """Choose what ``interval`` is rebuilt from, without the first ``older`` publishes; the caller removes their replays
    from ``lineage``. Starts no JVM; reads the ledger and the birth records."""
    is_whole = interval.is_whole_table
    taken = _taken_rows(paths, spec, is_whole=is_whole)
    choice = Choice()
    picked, choice.replays = _pick(lineage, interval, is_whole=is_whole)
    picked = [batches if place >= older else [] for place, batches in enumerate(picked)]
    wanted: set[BatchKey] = set()
    for increment, batches in zip(lineage.increments, picked, strict=True):
        if not batches or increment.is_replaced:
            continue
        if increment.is_excluded:
            choice.excluded += increment.rows.get("read", 0)
            continue
        choice.increments.append(increment)
        wanted |= {BatchKey(increment.query_id, batch) for batch in batches}
        for batch in batches:
            _count_given(choice, lineage, increment, batch, interval)
    for replay in choice.replays:
        choice.rules.add(replay.partitioned.get("rule", ""))
        _count_outside(choice, replay.given, interval)
    own = [row for row in taken if (str(row.query_id), int(row.batch_id or 0)) in wanted]
    folders = _folder_columns(spec, choice, own, interval)
    choice.by_folder = bool(folders)
    if folders:
        choice.outside.clear()  # files of other folders are not read
    _read_of_sources(choice, paths, spec, lineage, own, [row for row in own if _is_in_folder(row, folders, interval)])
    return choice


def _read_of_sources(
    choice: Choice,
    paths: PipelinePaths,
    spec: PipelineSpec,
    lineage: Lineage,
    own: Sequence[LedgerRow],
    rows: Sequence[LedgerRow],
) -> None:
    """Add to ``choice`` what is read for its increments: their offsets, and these ``rows`` of their ``own`` files."""
    choice.strange = sorted({row.source for row in own} - spec.streams.keys())
    choice.strange += sorted({name for one in choice.increments for name in one.ends} - spec.streams.keys())
    for row in rows:
        choice.files.setdefault(row.source, []).append(row)
    if topics := _topics(spec):
        choice.ranges = ranges_of(paths, lineage, choice.increments, topics)
        choice.excluded_ranges = _excluded_ranges(paths, lineage, topics)


def _topics(spec: PipelineSpec) -> list[str]:
    return [name for name, source in spec.streams.items() if not source.takes_files]


def choose_with_state(
    paths: PipelinePaths, spec: PipelineSpec, lineage: Lineage, interval: Interval, plain: frozenset[str]
) -> Choice:
    """Choose what ``interval`` of a stateful query is rebuilt from: its own records, and those of other times that its
    windows and joins need. ``plain`` as in :class:`Rows`."""
    choice = Choice(own_rows=Rows(interval, plain))
    by_times = pick_by_times(lineage, interval, margin=True)
    every = [one.batch_ids for one in of_query(lineage)]
    picked = every if by_times is None else by_times
    wanted: set[BatchKey] = set()
    for increment, batches, whole in zip(of_query(lineage), picked, every, strict=True):
        if batches:
            choice.increments.append(increment)
            wanted |= {BatchKey(increment.query_id, batch) for batch in batches}
        for batch in whole:  # a row is written by the batch that closes it, not by one of its records
            _count_given(choice, lineage, increment, batch, interval)
    if by_times is not None:  # a job by another rule would need records of other times
        choice.rules |= {one.partitioned.get("rule", "") for one in of_query(lineage)}
    taken = _taken_rows(paths, spec, is_whole=False)
    own = [row for row in taken if (str(row.query_id), int(row.batch_id or 0)) in wanted]
    _read_of_sources(choice, paths, spec, lineage, own, own)
    choice.margin = _measure(paths, lineage, interval, choice, _topics(spec), is_known=by_times is not None)
    return choice


def _measure(
    paths: PipelinePaths,
    lineage: Lineage,
    interval: Interval,
    choice: Choice,
    topics: Sequence[str],
    *,
    is_known: bool,
) -> Margin:
    inner = pick_by_times(lineage, interval, margin=False) if is_known else None
    if inner is None:
        has_rows = [
            any(interval.holds(dict(partition)) for given in one.given.values() for partition in given)
            for one in of_query(lineage)
        ]
        every = [one.batch_ids for one in of_query(lineage)]
        inner = [batches if is_own else [] for batches, is_own in zip(every, has_rows, strict=True)]
    pairs = list(zip(of_query(lineage), inner, strict=True))
    core = {(one.query_id, batch) for one, batches in pairs for batch in batches}
    rows = [row for some in choice.files.values() for row in some]
    rows = [row for row in rows if (str(row.query_id), int(row.batch_id or 0)) not in core]
    ranges = ranges_of(paths, lineage, [one for one, batches in pairs if batches], topics) if topics else {}
    offsets = _count_offsets(choice.ranges) - _count_offsets(ranges)
    return Margin(len(rows), sum(row.size for row in rows), max(offsets, 0), is_known)


def _count_offsets(ranges: Mapping[str, Sequence[OffsetRanges]]) -> int:
    return sum(one.count for some in ranges.values() for found in some for one in found.values())


def _count_given(choice: Choice, lineage: Lineage, increment: Increment, batch: int, interval: Interval) -> None:
    """Count the rows of a batch in other partitions, and note the partitioning rule: that of its run, or of the latest
    rebuild of the partition."""
    key = increment.batch(batch)
    later = [one for one in lineage.rebuilt if key in one.batches]
    given = increment.given.get(batch, {})
    _count_outside(choice, given, interval)
    for partition in given:
        last = next((one for one in reversed(later) if one.holds(partition)), None)
        choice.rules.add((increment if last is None else last).partitioned.get("rule", ""))
    for one in later:
        if _may_move_rows(one, increment):  # rows of the batch may be in any partition that it rebuilt
            choice.rules.add(one.partitioned.get("rule", ""))
            others = (set(one.within.get(column, ())) - set(values) for column, values in interval.within.items())
            if interval.within and (not one.within or any(others)):
                choice.outside.setdefault((("rebuilt by", str(one.version)),), 0)


def _may_move_rows(rebuilt: Rebuilt, increment: Increment) -> bool:
    """Whether a rebuild may have written rows to other partitions than the increment did: by another rule, or, as a
    refresh, from records that were in quarantine."""
    rule = rebuilt.partitioned.get("rule")
    differs = rule is None or rule != increment.partitioned.get("rule")
    return differs or (not rebuilt.within and increment.has_quarantined)


def _count_outside(choice: Choice, given: Mapping[Partition, int], interval: Interval) -> None:
    for partition, rows in given.items():
        if not interval.holds(dict(partition)):
            choice.outside[partition] = choice.outside.get(partition, 0) + rows


def _pick(lineage: Lineage, interval: Interval, *, is_whole: bool) -> tuple[list[list[int]], list[Replay]]:
    """Return the batches of each publish that may have records of the interval, and the replays of their records.

    Which batch of a replay gave which of its rows is unknown: where one of its batches is read, all are."""
    picked = [one.batch_ids if is_whole else _batches_for(one, lineage, interval) for one in lineage.increments]
    replays, rest = list[Replay](), list(lineage.replays)
    while True:
        met = {one.batch(batch) for one, batches in zip(lineage.increments, picked, strict=True) for batch in batches}
        found = [
            one for one in rest if one.batches & met or any(interval.holds(dict(partition)) for partition in one.given)
        ]
        if not found:
            return picked, replays
        rest = [one for one in rest if one not in found]
        replays += found
        more = frozenset().union(*(one.batches for one in found))
        for place, increment in enumerate(lineage.increments):
            own = {batch for batch in increment.batch_ids if increment.batch(batch) in more}
            if own:
                picked[place] = increment.batch_ids if increment.ends else sorted({*picked[place], *own})


def _batches_for(increment: Increment, lineage: Lineage, interval: Interval) -> list[int]:
    """The batches that may have records of the interval: those that wrote rows to it, and those that were read again
    since by another rule. All batches where some records gave no row (a changed transform may make rows of them), or
    where the run reads topics (its report has one range)."""
    every = increment.batch_ids
    if increment.has_filtered or increment.is_excluded:
        return every
    chosen = {
        batch for batch, given in increment.given.items() if any(interval.holds(dict(partition)) for partition in given)
    }
    for rebuilt in lineage.rebuilt:
        if _may_move_rows(rebuilt, increment) and _overlaps(rebuilt, interval):
            chosen |= {batch for batch in every if increment.batch(batch) in rebuilt.batches}
    return every if chosen and increment.ends else sorted(chosen)


def _overlaps(rebuilt: Rebuilt, interval: Interval) -> bool:
    both = rebuilt.within.keys() & interval.within.keys()
    return all(set(rebuilt.within[column]) & set(interval.within[column]) for column in both)


def _taken_rows(paths: PipelinePaths, spec: PipelineSpec, *, is_whole: bool) -> list[LedgerRow]:
    """Files that are in the table, also of sources that are no longer in the spec. Files of which no row could be read
    stay in quarantine, unless the whole table is rebuilt."""
    if not storage.exists(paths.ledger):
        return []
    with open_ledger(paths, read_only=True) as ledger:
        rows = ledger.rows(state="published")
    return [
        row
        for row in rows
        if is_whole or not (_gives_no_row(spec, row) and is_in_quarantine(paths.unreadable, row.link))
    ]


def _gives_no_row(spec: PipelineSpec, row: LedgerRow) -> bool:
    """Whether a file of this source gave no row at all when the whole file is in quarantine."""
    source = spec.file_streams.get(row.source)
    return source is not None and source.format in SELF_DESCRIBING_FORMATS


def _folder_columns(spec: PipelineSpec, choice: Choice, rows: Sequence[LedgerRow], interval: Interval) -> set[str]:
    """The columns of the interval by which files can be chosen: every run took the column from the source, all later
    rebuilds used one partitioning rule, and every file has the column in its folders."""
    found = set[str]()
    if len(spec.streams) == 1 and not choice.replays and len(choice.rules) == 1 and "" not in choice.rules:
        source = next(iter(spec.streams))
        for column in interval.within:
            is_own = all(one.partitioned.get(column) == f"{source}.{column}" for one in choice.increments)
            if is_own and all(column.lower() in folder_values(row.link) for row in rows):
                found.add(column)
    return found


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


def _excluded_ranges(paths: PipelinePaths, lineage: Lineage, topics: Sequence[str]) -> dict[str, list[OffsetRanges]]:
    """The offsets of excluded increments: a query that a refresh started has not read them, though its ranges span
    them."""
    return ranges_of(paths, lineage, [one for one in lineage.increments if one.is_excluded], topics)


def ranges_of(
    paths: PipelinePaths, lineage: Lineage, increments: Sequence[Increment], topics: Sequence[str]
) -> dict[str, list[OffsetRanges]]:
    """The offsets that each run took: from the end of the run before it, or from the start in the birth record."""
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
