"""Choose the files and offsets that must be read again to rebuild some partitions.

The table's log (:mod:`tidegate.rework.backfill.lineage`) shows which runs wrote rows to these partitions. Where the
table is partitioned by a column from the source's ``k=v`` folders, the folder names show which files these rows are
from. The other partitions that a run wrote to are known too, so a transform that now moves rows between partitions is
noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidegate.core import storage
from tidegate.core.hive_names import unescape_name
from tidegate.core.outputs import BackfillMargin
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.lineage import Increment, Lineage, Rebuilt, Replay
from tidegate.rework.backfill.span import Interval
from tidegate.rework.backfill.stateful import of_query, pick_by_times
from tidegate.sources.files.ledger import LedgerRow, open_ledger
from tidegate.sources.files.unreadable import is_in_quarantine
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import read_births
from tidegate.state.manifest import BatchKey
from tidegate.state.topics import OffsetRange, OffsetRanges, Offsets, offsets_from_json
from tidegate.table.log.snapshot import Partition
from tidegate.table.log.state import DataFile, TableState
from tidegate.table.publish.origins import Batch

_PLAIN = ("date", "string", "integer", "long", "short", "byte")


@dataclass(frozen=True)
class Scope:
    """The scope of a backfill: the table, its files, the lineage of its rows, and the partitions to rebuild."""

    project: Project
    paths: PipelinePaths
    spec: PipelineSpec
    table: TableState
    files: list[DataFile]
    lineage: Lineage
    intervals: list[Interval]
    closes_at_ms: int | None = None
    """For a stateful query: the watermark that closed the rows in the table."""
    hands_over: bool = False
    """True if the query that rebuilds the table replaces the pipeline's, because its state belongs to the rows."""
    keeps_older: bool = False
    """True if rows whose records the sources no longer hold stay as they are
    (:class:`tidegate.rework.backfill.older.Older`)."""
    made_by: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of the transform and spec, taken before reading (:mod:`tidegate.runs.preflight.definition`)."""


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
    margin: BackfillMargin | None = None
    """For a stateful query: how much is read from other times."""
    may_hold: Callable[[str | None], bool] | None = None
    """For a stateful query: whether a rejected row of an unknown record, by its text, may belong to the interval."""
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
        """Return whether nothing has to be read."""
        return not any(self.files.values()) and not any(self.ranges.values())


def choose(scope: Scope, interval: Interval, *, older: int = 0) -> Choice:
    """Choose what ``interval`` is rebuilt from, without the first ``older`` publishes; the caller removes their replays
    from the lineage. Starts no JVM; reads the ledger and the birth records."""
    lineage, is_whole = scope.lineage, interval.is_whole_table
    choice = Choice()
    needs, choice.replays = find_needs(lineage, [interval])
    picked = [sorted(batches) if place >= older else [] for place, batches in enumerate(needs)]
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
    own = _taken_rows(scope, wanted, is_whole=is_whole)
    folders = _folder_columns(scope.spec, choice, own, interval)
    choice.by_folder = bool(folders)
    if folders:
        choice.outside.clear()  # files of other folders are not read
    values = ((row, folder_values(row.link)) for row in own)
    inside = [row for row, has in values if all(has.get(one.lower()) in interval.within[one] for one in folders)]
    _read_of_sources(choice, scope, own, inside)
    return choice


def join_choices(choices: Sequence[Choice]) -> Choice:
    """What some intervals were rebuilt from, as one."""
    increments = {(one.query_id, one.first): one for choice in choices for one in choice.increments}
    return Choice(increments=list(increments.values()), excluded=sum(choice.excluded for choice in choices))


def choose_records(scope: Scope, interval: Interval) -> Choice:
    """Choose what ``interval`` is rebuilt from, for a query with state or without."""
    return choose(scope, interval) if scope.closes_at_ms is None else _choose_with_state(scope, interval)


def _choose_with_state(scope: Scope, interval: Interval) -> Choice:
    """Choose what ``interval`` of a stateful query is rebuilt from: its own records, and those of other times that its
    windows and joins need."""
    lineage = scope.lineage
    choice = Choice(may_hold=partial(may_hold_row, interval, plain_columns(scope.table)))
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
    own = _taken_rows(scope, wanted, is_whole=False)
    _read_of_sources(choice, scope, own, own)
    choice.margin = _measure(scope, interval, choice, is_known=by_times is not None)
    return choice


def plain_columns(table: TableState) -> frozenset[str]:
    """Partition columns whose values have the same text in a quarantined row and in a folder's name."""
    types = {field["name"]: field["type"] for field in json.loads(table.schema_json)["fields"]}
    return frozenset(column for column in table.partition_columns if types.get(column) in _PLAIN)


def may_hold_row(interval: Interval, plain: frozenset[str], raw: str | None) -> bool:
    """Return whether a rejected row may belong to the interval, by the values of its ``plain`` partition columns."""
    try:
        row = json.loads(raw or "")
    except ValueError:
        return True
    if not isinstance(row, dict):
        return True
    values = {column: row[column] for column in interval.within if column in plain and column in row}
    return all(value is not None and str(value) in interval.within[column] for column, value in values.items())


def _read_of_sources(choice: Choice, scope: Scope, own: Sequence[LedgerRow], rows: Sequence[LedgerRow]) -> None:
    """Add to ``choice`` what is read for its increments: their offsets, and these ``rows`` of their ``own`` files."""
    streams = scope.spec.streams.keys()
    choice.strange = sorted({row.source for row in own} - streams)
    choice.strange += sorted({name for one in choice.increments for name in one.ends} - streams)
    for row in rows:
        choice.files.setdefault(row.source, []).append(row)
    choice.ranges = ranges_of(scope, choice.increments)
    # A query that a refresh started has not read the offsets of excluded increments, though its ranges span them.
    choice.excluded_ranges = ranges_of(scope, [one for one in scope.lineage.increments if one.is_excluded])


def _topics(spec: PipelineSpec) -> list[str]:
    return [name for name, source in spec.streams.items() if not source.takes_files]


def _measure(scope: Scope, interval: Interval, choice: Choice, *, is_known: bool) -> BackfillMargin:
    """What is read that is outside of the interval's own time. ``is_known``: batches were chosen by event time; else
    all batches are read, and those count that wrote no row to the interval."""
    own = of_query(scope.lineage)
    inner = pick_by_times(scope.lineage, interval, margin=False) if is_known else None
    if inner is None:
        has_rows = [
            any(interval.holds(dict(partition)) for given in one.given.values() for partition in given) for one in own
        ]
        inner = [one.batch_ids if is_own else [] for one, is_own in zip(own, has_rows, strict=True)]
    pairs = list(zip(own, inner, strict=True))
    core = {(one.query_id, batch) for one, batches in pairs for batch in batches}
    rows = [row for some in choice.files.values() for row in some]
    rows = [row for row in rows if (str(row.query_id), int(row.batch_id or 0)) not in core]
    offsets = choice.offsets - _count_offsets(ranges_of(scope, [one for one, batches in pairs if batches]))
    return {
        "files": len(rows),
        "bytes": sum(row.size for row in rows),
        "offsets": max(offsets, 0),
        "is_known": is_known,
    }


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
    """True if a rebuild may have written rows to other partitions than the increment did: by another rule, or, as a
    refresh, from records that were in quarantine."""
    rule = rebuilt.partitioned.get("rule")
    differs = rule is None or rule != increment.partitioned.get("rule")
    return differs or (not rebuilt.within and increment.has_quarantined)


def _count_outside(choice: Choice, given: Mapping[Partition, int], interval: Interval) -> None:
    for partition, rows in given.items():
        if not interval.holds(dict(partition)):
            choice.outside[partition] = choice.outside.get(partition, 0) + rows


class _Days:
    """Finds the days, by number, to which partitions belong. Several days are values of one column."""

    def __init__(self, days: Sequence[Interval]) -> None:
        self.days, self.every = days, frozenset(range(len(days)))
        self._column = next(iter(days[0].within), None)
        self._by_value: dict[str | None, list[int]] = {}
        for number, day in enumerate(days):
            for value in day.within.get(self._column or "", ()):
                self._by_value.setdefault(value, []).append(number)

    def find(self, partitions: Iterable[Partition]) -> frozenset[int]:
        """The days with some of these partitions."""
        found = set[int]()
        for partition in map(dict, partitions):
            near = self.every if self._column is None else self._by_value.get(partition.get(self._column), ())
            found.update(number for number in near if self.days[number].holds(partition))
        return frozenset(found)

    def rebuilt_by(self, rebuilt: Rebuilt) -> frozenset[int]:
        """The days of which a rebuild may have written some rows."""
        values = {column: set(some) for column, some in rebuilt.within.items()}
        return frozenset(
            number
            for number, day in enumerate(self.days)
            if all(not values[column].isdisjoint(day.within[column]) for column in values.keys() & day.within.keys())
        )


Needs = list[dict[int, frozenset[int]]]
"""Of each publish of the lineage: its batches that have to be read, each with the numbers of the days for which."""


def find_needs(lineage: Lineage, intervals: Sequence[Interval]) -> tuple[Needs, list[Replay]]:
    """Find the batches that may have records of some days (or of the one interval), and the replays of their records.

    Which batch of a replay gave which of its rows is unknown: where one of its batches is read, all are."""
    days = _Days(intervals)
    rebuilt = [(one, days.rebuilt_by(one)) for one in lineage.rebuilt]
    needs = [_needs_of(one, rebuilt, days) for one in lineage.increments]
    places = {one.batch(batch): place for place, one in enumerate(lineage.increments) for batch in one.batch_ids}
    replayed = [days.find(one.given) for one in lineage.replays]
    changed = True
    while changed:
        changed = False
        for number, replay in enumerate(lineage.replays):
            batches = [(places[key], key[1]) for key in replay.batches if key in places]
            among = replayed[number].union(*(needs[place].get(batch, ()) for place, batch in batches))
            replayed[number] = among
            for place, batch in batches:
                if not among <= needs[place].get(batch, frozenset()):
                    changed = True
                    increment = lineage.increments[place]
                    for one in increment.batch_ids if increment.ends else [batch]:
                        needs[place][one] = needs[place].get(one, frozenset()) | among
    return needs, [one for one, among in zip(lineage.replays, replayed, strict=True) if among]


def _needs_of(
    increment: Increment, rebuilt: Sequence[tuple[Rebuilt, frozenset[int]]], days: _Days
) -> dict[int, frozenset[int]]:
    """The batches that may have records of some days: those that wrote rows to them, and those that were read again
    since by another rule. All batches where some records gave no row (a changed transform may make rows of them), or
    where the run reads topics (its report has one range)."""
    if increment.has_filtered or increment.is_excluded or days.days[0].is_whole_table:
        return dict.fromkeys(increment.batch_ids, days.every)
    found = {batch: days.find(given) for batch, given in increment.given.items()}
    for one, among in rebuilt:
        if among and _may_move_rows(one, increment):
            again = [batch for batch in increment.batch_ids if increment.batch(batch) in one.batches]
            found |= {batch: found.get(batch, frozenset()) | among for batch in again}
    if increment.ends:
        found = dict.fromkeys(increment.batch_ids, frozenset[int]().union(*found.values()))
    return {batch: among for batch, among in found.items() if among}


def _taken_rows(scope: Scope, wanted: Collection[BatchKey], *, is_whole: bool) -> list[LedgerRow]:
    """The files of some batches, also of sources that are no longer in the spec. A file of which no row could be read
    stays in quarantine, unless the whole table is rebuilt."""
    if not storage.exists(scope.paths.ledger):
        return []
    with open_ledger(scope.paths, read_only=True) as ledger:
        rows = ledger.rows(state="published")
    rows = [row for row in rows if (str(row.query_id), int(row.batch_id or 0)) in wanted]
    if is_whole:
        return rows
    whole = {name for name, one in scope.spec.file_streams.items() if one.format in SELF_DESCRIBING_FORMATS}
    return [row for row in rows if not (row.source in whole and is_in_quarantine(scope.paths.unreadable, row.link))]


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


def ranges_of(scope: Scope, increments: Sequence[Increment]) -> dict[str, list[OffsetRanges]]:
    """The offsets of each topic source that some runs took."""
    wanted = {(one.query_id, one.last) for one in increments}
    found: dict[str, list[OffsetRanges]] = {name: [] for name in _topics(scope.spec)}
    for increment, name, ranges in list_ranges(scope):
        if (increment.query_id, increment.last) in wanted:
            found[name].append(ranges)
    return found


def list_ranges(scope: Scope) -> Iterator[tuple[Increment, str, OffsetRanges]]:
    """The offsets of each topic source that each run took: from the end of the run before it, or from the start in the
    birth record."""
    topics = set(_topics(scope.spec))
    if not topics:
        return
    born: dict[str, dict[str, Offsets]] = {
        str(birth.query_id): {
            name: offsets_from_json(start["offsets"]) for name, start in birth.sources.items() if "offsets" in start
        }
        for birth in read_births(scope.paths)
    }
    at: dict[str, dict[str, Offsets]] = {}
    for one in scope.lineage.increments:
        before = at.setdefault(one.query_id, dict(born.get(one.query_id, {})))
        for name, ends in one.ends.items():
            begins = before.get(name, {})
            ranges = {
                partition: OffsetRange(begins.get(partition, 0), end)
                for partition, end in ends.items()
                if end > begins.get(partition, 0)
            }
            if name in topics and ranges:
                yield one, name, ranges
            before[name] = {**begins, **ends}
