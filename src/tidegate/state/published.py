"""The note of the last publish (table, version, batches, ledger), and the retired queries.

What the next run finds is compared with the note: a table, a ledger or a checkpoint that was restored is behind.
Retired queries are in the tables' logs too (:mod:`tidegate.table.log.commit`), and both are asked: a table can be
restored from an older copy or be deleted, and so can the state folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NotRequired, TypedDict

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.state.topics import Positions, positions_from_json, positions_to_json


@dataclass(frozen=True)
class Published:
    """The table's log at ``version`` held batches of ``query_id`` up to ``batch_id``; None and -1 after a repair."""

    table_id: str
    version: int
    query_id: str | None
    batch_id: int
    ledger_last_id: int = 0
    """The number of the file taken last."""
    positions: Positions | None = None
    """The positions of the Kafka sources at ``version``; None where they are not known."""
    keeps_state: bool = False
    """Whether the query keeps state: its birth record says so first, and may be lost with its checkpoint."""


def read_published(paths: PipelinePaths) -> Published | None:
    """The note; None before the first publish. Raises UnreadableStateError."""
    value = storage.read_note(paths.published)
    if value is None:
        return None
    with storage.unreadable_is_named(paths.published):
        positions = value.get("positions")
        return Published(
            table_id=str(value.get("table_id")),
            version=int(value.get("version", -1)),
            query_id=value.get("query_id"),
            batch_id=int(value.get("batch_id", -1)),
            ledger_last_id=int(value.get("ledger_last_id") or 0),
            positions=None if positions is None else positions_from_json(positions),
            keeps_state=bool(value.get("keeps_state")),
        )


def write_published(paths: PipelinePaths, note: Published, *, only: bool = False) -> None:
    """Write the note; ``only``: notes of higher versions go, see :func:`tidegate.core.storage.write_note`."""
    value = asdict(note)
    if note.positions is None:
        del value["positions"]
    else:
        value["positions"] = positions_to_json(note.positions)
    storage.write_note(paths.published, note.version, value, only=only)


class _Retired(TypedDict):
    query_id: str
    last_batch: int
    taken_back_to: NotRequired[int]


def record_retired(paths: PipelinePaths, query_id: str, last_batch: int) -> None:
    """Record that no batch of the query after ``last_batch`` counts; a lower number that is recorded already stays."""
    path = paths.retired(query_id)
    known = storage.read_json(path)
    if known is None or int(known["last_batch"]) > last_batch:
        value = {**(known or {}), "query_id": query_id, "last_batch": last_batch, "at": now_text()}
        storage.replace(path, storage.dump_json(value))


def record_taken_back(paths: PipelinePaths, query_id: str, last_batch: int) -> None:
    """Record that the batches of a retired query after ``last_batch`` no longer count, though the table's log has had
    them: a rollback took them back, and their records are read again. May be repeated."""
    path = paths.retired(query_id)
    known = storage.read_json(path) or {"last_batch": last_batch}
    last = min(last_batch, int(known["last_batch"]))
    if known.get("taken_back_to", last_batch + 1) > last_batch:
        value = {**known, "query_id": query_id, "last_batch": last, "taken_back_to": last_batch, "at": now_text()}
        storage.replace(path, storage.dump_json(value))


def read_taken_back(paths: PipelinePaths) -> dict[str, int]:
    """{query id: the last batch that still counts} of the queries of which a rollback took batches back."""
    return {one["query_id"]: one["taken_back_to"] for one in _read_all(paths) if "taken_back_to" in one}


def read_retired(paths: PipelinePaths) -> dict[str, int]:
    """{query id: the last batch that counts} of every retired query; -1 for none."""
    return {retired["query_id"]: retired["last_batch"] for retired in _read_all(paths)}


def _read_all(paths: PipelinePaths) -> Iterator[_Retired]:
    for path in storage.list_folder(paths.retired("any").parent, "[!.]*.json"):
        with storage.unreadable_is_named(path):
            value = json.loads(storage.read(path))
            retired: _Retired = {"query_id": str(value["query_id"]), "last_batch": int(value["last_batch"])}
            if "taken_back_to" in value:
                retired["taken_back_to"] = int(value["taken_back_to"])
            yield retired
