"""Read from the table's log which batch wrote how many rows to which partition.

A published file is named after its batch, and every commit stays in the log. So this works for tables of any age, and
for files that were compacted or replaced since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.runs.reports.verdicts import WAITED
from tidegate.state.topics import Positions, positions_from_json
from tidegate.table.log.files import Action, AddFile, CommitInfo, path_on_disk, read_actions
from tidegate.table.log.snapshot import Partition, partition_of
from tidegate.table.log.state import REREAD, ROLLED_BACK_TO, THEN
from tidegate.table.publish.intent import REPLACES
from tidegate.table.publish.origins import EDITED, READ_AGAIN, REPLAYED, Batch, to_batches
from tidegate.table.publish.plan import REWORK, WITHIN, parse_file_name


@dataclass(frozen=True)
class Increment:
    """One publish of a run: the batches of a query from ``first`` to ``last``.

    ``given`` has the rows of each batch by partition; ``rows`` are the counts of the report; ``ends`` are the end
    offsets of topics. ``is_excluded``: it was discarded, or is deferred until a decision, or a rollback removed its
    rows and its records are not read again."""

    version: int
    query_id: str
    first: int
    last: int
    is_excluded: bool
    rows: Mapping[str, int]
    ends: Positions
    given: dict[int, dict[Partition, int]] = field(default_factory=dict)
    partitioned: Mapping[str, str] = field(default_factory=dict)
    """How a row's partition was found (:attr:`tidegate.state.manifest.BatchManifest.partitioned`)."""
    times: Mapping[int, Mapping[str, list[int]]] = field(default_factory=dict)
    """Smallest and greatest event time by batch and source (:func:`tidegate.state.manifest.event_times`)."""
    is_replaced: bool = False
    """True if a refresh has read its records again since, as batches of a new query, which count instead."""
    at_ms: int = 0
    """The time of its commit."""

    @property
    def batch_ids(self) -> list[int]:
        """Its batches, by number."""
        return list(range(self.first, self.last + 1))

    def batch(self, batch_id: int) -> Batch:
        """One of its batches, as in the names of published files."""
        return self.query_id[:8], batch_id

    @property
    def gives_several(self) -> bool:
        """Return whether one of its records may have given several rows."""
        return "several" in self.partitioned or self.rows.get("transformed", 0) > self.rows.get("entered", 0)

    @property
    def has_quarantined(self) -> bool:
        """Return whether records of it went to quarantine; a refresh may have made rows of them since."""
        return any(self.rows.get(count, 0) for count in ("malformed", "late", "rejected"))

    @property
    def has_filtered(self) -> bool:
        """Return whether some of its records gave no row, or several; a changed transform may make rows of them."""
        if "several" in self.partitioned:
            return True
        return self.rows.get("entered", -1) != self.rows.get("transformed", -2)


@dataclass(frozen=True)
class Replay:
    """A replay of quarantined records of some ``batches``, with the rows they gave by partition. Which batch gave which
    rows is unknown, so if one of the batches is read again, all are."""

    run_id: str
    batches: frozenset[Batch]
    given: dict[Partition, int]
    edited: int
    """How many of the records a person had edited, so that the source has other text."""
    partitioned: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebuilt:
    """A backfill of some partitions, or (``within`` {}) a refresh, that read ``batches`` again; ``partitioned`` is the
    rule by which it partitioned their rows."""

    version: int
    within: Mapping[str, Sequence[str]]
    batches: frozenset[Batch]
    partitioned: Mapping[str, str]

    def holds(self, partition: Partition) -> bool:
        """Return whether it rebuilt this partition."""
        value_of = dict(partition)
        return all(value_of.get(column) in values for column, values in self.within.items())


@dataclass(frozen=True)
class Lineage:
    """The publishes that wrote the table's rows, oldest first.

    ``unknown``: versions whose commits are gone. ``foreign``: partitions with rows from elsewhere (an adopted table,
    another program).
    """

    increments: list[Increment]
    unknown: list[int]
    foreign: frozenset[Partition] = frozenset()
    replays: list[Replay] = field(default_factory=list)
    rebuilt: list[Rebuilt] = field(default_factory=list)
    deleted: Mapping[str, Partition] = field(default_factory=dict)
    """Whole files that another program removed, each with its partition."""

    @property
    def by_batch(self) -> dict[Batch, Increment]:
        """The publish of each batch."""
        found = [one for one in self.increments if not one.is_replaced]
        return {one.batch(number): one for one in found for number in one.batch_ids}


def read_lineage(table_path: Path, version: int) -> Lineage:
    """Read the publishes up to ``version``, also those that a rollback excluded. Where a rollback removed a publish so
    that its records are read again, the publish that read them again replaces it."""
    parent: dict[int, int] = {}
    excluded: dict[int, frozenset[int]] = {-1: frozenset()}
    found: dict[int, Increment] = {}
    foreign, deleted = dict[int, set[Partition]](), dict[int, dict[str, Partition]]()
    places: dict[str, Partition] = {}
    released: dict[int, list[Increment]] = {}
    replays: dict[int, Replay] = {}
    rebuilt: dict[int, Rebuilt] = {}
    begun: list[int] = []
    unknown = []
    head = -1
    for number in range(version + 1):
        parent[number], excluded[number] = head, excluded[number - 1]
        head = number
        try:
            actions = read_actions(table_path, number)
        except (FileNotFoundError, ValueError):
            unknown.append(number)
            continue
        info: CommitInfo = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
        places |= {path_on_disk(one["add"]["path"]): _place(one["add"]) for one in actions if "add" in one}
        if ROLLED_BACK_TO in info:
            taken = excluded[number] | found.keys() & set(_line(parent, number))
            head = parent[number] = int(info[ROLLED_BACK_TO])
            again = info.get(THEN) == REREAD
            excluded[number] = excluded[head] if again else taken - set(_line(parent, head))
        elif (increment := _increment(number, info, actions)) is not None:
            found[number] = increment
            if REPLACES in info:
                begun.append(number)
        elif WAITED in info and info.get("tidegate.outcome") == "published":
            released[number] = [_of_batches(number, span, info, actions) for span in json.loads(info[WAITED])]
        elif REPLAYED in info:
            replays[number] = _replay(info, actions)
        elif READ_AGAIN in info:
            within, batches = json.loads(info[WITHIN]), to_batches(json.loads(info[READ_AGAIN]))
            rebuilt[number] = Rebuilt(number, within, batches, _rule_of(info))
        elif REWORK not in info:
            foreign[number], deleted[number] = _changes_of(actions, places)
    line, out = set(_line(parent, head)), excluded[version]
    since = max((number for number in begun if number in line), default=-1)
    new = {number for number in line if number >= since}
    outside = frozenset().union(*(foreign.get(number, set()) for number in new))
    late = {(one.query_id, one.last): one for number in line for one in released.get(number, ())}
    known = [_with_release(one, late.get((one.query_id, one.last))) for one in found.values()]
    known = [replace(one, is_excluded=True) if one.version in out else one for one in known]
    kept = [one for one in known if one.version in line | out]
    kept = [replace(one, is_replaced=one.version < since and not one.is_excluded) for one in kept]
    replayed = [one for number, one in replays.items() if number in new]
    gone = {path: partition for number in new for path, partition in deleted.get(number, {}).items()}
    return Lineage(kept, unknown, outside, replayed, [one for number, one in rebuilt.items() if number in new], gone)


def _changes_of(actions: list[Action], places: Mapping[str, Partition]) -> tuple[set[Partition], dict[str, Partition]]:
    """Return the partitions to which another program's version adds rows, and the files it removes with their
    partitions."""
    added = [one["add"] for one in actions if "add" in one and one["add"].get("dataChange", True)]
    removed = [one["remove"] for one in actions if "remove" in one and one["remove"].get("dataChange", True)]
    gone = {path_on_disk(one["path"]) for one in removed}
    return {_place(add) for add in added}, {path: places[path] for path in gone & places.keys()}


def _rule_of(info: CommitInfo) -> dict[str, str]:
    return dict(json.loads(info.get("tidegate.partitioned", "{}")))


def _line(parent: Mapping[int, int], head: int) -> Iterator[int]:
    """The versions that the rows of a version come from, newest first."""
    while head >= 0:
        yield head
        head = parent[head]


def _with_release(increment: Increment, released: Increment | None) -> Increment:
    """A deferred increment as it is after its release: its rows were written by that version."""
    if released is None:
        return increment
    rule = released.partitioned
    return replace(increment, is_excluded=False, rows=released.rows, given=released.given, partitioned=rule)


def _of_batches(version: int, span: tuple[str, int, int], info: CommitInfo, actions: list[Action]) -> Increment:
    query_id, first, last = span
    rows, rule = json.loads(info.get("tidegate.rows", "{}")), _rule_of(info)
    increment = Increment(version, query_id, first, last, False, rows, {}, partitioned=rule)
    _count_given(increment, actions)
    return increment


def _replay(info: CommitInfo, actions: list[Action]) -> Replay:
    given: dict[Partition, int] = {}
    for action in actions:
        if "add" in action:
            partition = _place(action["add"])
            given[partition] = given.get(partition, 0) + _rows_of(action["add"])
    batches = to_batches(json.loads(info[REPLAYED]))
    return Replay(str(info.get("tidegate.run_id")), batches, given, int(info.get(EDITED, 0)), _rule_of(info))


def _increment(version: int, info: CommitInfo, actions: list[Action]) -> Increment | None:
    outcome, query_id = info.get("tidegate.outcome"), info.get("tidegate.query_id")
    if query_id is None or REWORK in info or outcome not in ("published", "discarded", "waiting"):
        return None
    first, last = json.loads(info["tidegate.batches"])
    increment = Increment(
        version=version,
        query_id=str(query_id),
        first=min(int(first), int(info.get("tidegate.app_version_before", first - 1)) + 1),
        last=int(last),
        is_excluded=outcome != "published",
        rows=json.loads(info.get("tidegate.rows", "{}")),
        ends=positions_from_json(json.loads(info.get("tidegate.positions", "{}"))),
        partitioned=_rule_of(info),
        times={int(batch): one for batch, one in json.loads(info.get("tidegate.event_times", "{}")).items()},
        at_ms=int(info.get("timestamp", 0)),
    )
    _count_given(increment, actions)
    return increment


def _count_given(increment: Increment, actions: list[Action]) -> None:
    for action in actions:
        if "add" not in action:
            continue
        add = action["add"]
        named = parse_file_name(Path(path_on_disk(add["path"])).name)
        if named is None or named[0] != increment.query_id[:8]:
            continue
        partition = _place(add)
        of_batch = increment.given.setdefault(named[1], {})
        of_batch[partition] = of_batch.get(partition, 0) + _rows_of(add)


def _place(add: AddFile) -> Partition:
    return partition_of(add.get("partitionValues") or {})


def _rows_of(add: AddFile) -> int:
    return int(json.loads(add.get("stats") or "{}").get("numRecords", 0))


def describe_partition(partition: Sequence[tuple[str, str | None]]) -> str:
    """A partition in readable form."""
    return "/".join(f"{column}={value}" for column, value in partition)
