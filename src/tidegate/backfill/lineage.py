"""What the table's log says of where its rows came from: which batch gave how many rows to which partition.

A published file is named after its batch, and every commit stays in the log. So this holds for tables of any age, and
for files that were compacted or replaced since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tidegate.reports.waiting import WAITED
from tidegate.staging.topics import Positions, positions_from_json
from tidegate.table.log.actions import Action, AddFile, CommitInfo
from tidegate.table.log.files import list_versions, read_actions
from tidegate.table.log.taken import REREAD, ROLLED_BACK_TO, THEN
from tidegate.table.publish.plan import parse_file_name
from tidegate.table.publish.rework import REWORK

Partition = tuple[tuple[str, str | None], ...]
"""(column, value) of each partition column, values as the log has them."""


@dataclass(frozen=True)
class Increment:
    """One publish of a run: the batches of a query from ``first`` to ``last``.

    ``given`` has the rows of each batch by partition; ``rows`` are the counts of the report; ``ends`` is where sources
    of topics stood after it. ``is_left_out``: a person discarded it, it waits alone for a decision, or a rollback took
    its rows out of the table and its records stay taken.
    """

    version: int
    query_id: str
    first: int
    last: int
    is_left_out: bool
    rows: Mapping[str, int]
    ends: Positions
    given: dict[int, dict[Partition, int]] = field(default_factory=dict)

    @property
    def has_filtered(self) -> bool:
        """Whether records of it came to no row, or to several: a changed transform may make rows of them."""
        return self.rows.get("entered", -1) != self.rows.get("transformed", -2)


@dataclass(frozen=True)
class Lineage:
    """The publishes that the table's rows are of, oldest first.

    ``unknown``: versions whose commits are gone. ``foreign``: partitions that got rows from elsewhere (a table that was
    adopted, another program).
    """

    increments: list[Increment]
    unknown: list[int]
    foreign: frozenset[Partition] = frozenset()

    def find(self, query_id: str | None, batch_id: int | None) -> Increment | None:
        """The publish of a batch."""
        if query_id is None or batch_id is None:
            return None
        return next(
            (one for one in self.increments if one.query_id == query_id and one.first <= batch_id <= one.last), None
        )


def read_lineage(table_path: Path, version: int) -> Lineage:
    """The publishes up to ``version``, with those that a rollback left out. Those that a rollback took out of the table
    to have their records read again are not among them: what read them again is."""
    parent: dict[int, int] = {}
    left_out: dict[int, frozenset[int]] = {-1: frozenset()}
    found: dict[int, Increment] = {}
    foreign: dict[int, set[Partition]] = {}
    released: dict[int, list[Increment]] = {}
    unknown = []
    head = -1
    for number in range(version + 1):
        parent[number], left_out[number] = head, left_out[number - 1]
        head = number
        try:
            actions = read_actions(table_path, number)
        except (FileNotFoundError, ValueError):
            unknown.append(number)
            continue
        info: CommitInfo = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
        if ROLLED_BACK_TO in info:
            head = int(info[ROLLED_BACK_TO])
            taken = left_out[number] | found.keys() & set(_line(parent, number))
            again = info.get(THEN) == REREAD
            left_out[number] = left_out[head] if again else taken - set(_line(parent, head))
        elif (increment := _increment(number, info, actions)) is not None:
            found[number] = increment
        elif WAITED in info and info.get("tidegate.outcome") == "published":
            released[number] = [_of_batches(number, span, info, actions) for span in json.loads(info[WAITED])]
        elif REWORK not in info:
            foreign[number] = {
                _partition_of(one["add"]) for one in actions if "add" in one and one["add"].get("dataChange", True)
            }
    line, out = set(_line(parent, head)), left_out[version]
    strange = frozenset().union(*(foreign.get(number, set()) for number in line))
    late = {(one.query_id, one.last): one for number in line for one in released.get(number, ())}
    told = [_with_release(one, late.get((one.query_id, one.last))) for one in found.values()]
    told = [replace(one, is_left_out=True) if one.version in out else one for one in told]
    return Lineage([one for one in told if one.version in line | out], unknown, strange)


def _line(parent: Mapping[int, int], head: int) -> Iterator[int]:
    """The versions that the rows of a version come from, newest first."""
    while head >= 0:
        yield head
        head = parent[head]


def _with_release(increment: Increment, released: Increment | None) -> Increment:
    """An increment that waited alone, as it is since it was released: its rows came with that version."""
    if released is None:
        return increment
    return replace(increment, is_left_out=False, rows=released.rows, given=released.given)


def _of_batches(version: int, span: Sequence[Any], info: CommitInfo, actions: list[Action]) -> Increment:
    query_id, first, last = str(span[0]), int(span[1]), int(span[2])
    increment = Increment(version, query_id, first, last, False, json.loads(info.get("tidegate.rows", "{}")), {})
    _count_given(increment, actions)
    return increment


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
        is_left_out=outcome != "published",
        rows=json.loads(info.get("tidegate.rows", "{}")),
        ends=positions_from_json(json.loads(info.get("tidegate.positions", "{}"))),
    )
    _count_given(increment, actions)
    return increment


def _count_given(increment: Increment, actions: list[Action]) -> None:
    for action in actions:
        if "add" not in action:
            continue
        add = action["add"]
        named = parse_file_name(Path(unquote(add["path"])).name)
        if named is None or named[0] != increment.query_id[:8]:
            continue
        partition = _partition_of(add)
        rows = int(json.loads(add.get("stats") or "{}").get("numRecords", 0))
        of_batch = increment.given.setdefault(named[1], {})
        of_batch[partition] = of_batch.get(partition, 0) + rows


def _partition_of(add: AddFile) -> Partition:
    return tuple(sorted(add.get("partitionValues", {}).items()))


def reworked_files(table_path: Path) -> set[str]:
    """The files that work beside the runs has added to a table, by the names that they had then."""
    found: set[str] = set()
    for version in list_versions(table_path):
        actions = read_actions(table_path, version)
        if any(REWORK in one.get("commitInfo", {}) for one in actions):
            found |= {unquote(one["add"]["path"]) for one in actions if "add" in one}
    return found
