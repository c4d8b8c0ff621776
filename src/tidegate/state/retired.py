"""Which queries are over, as the state folder has it; the tables' logs have it too (:mod:`tidegate.table.log.retire`).

Both are asked: a table can be restored from an older copy or be deleted, and so can the state folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text


def record_retired(paths: PipelinePaths, query_id: str, last_batch: int) -> None:
    """Put on record that no batch of the query after ``last_batch`` counts; a lower number that was there stands."""
    path = paths.retired(query_id)
    known = storage.read_json(path)
    if known is None or int(known["last_batch"]) > last_batch:
        value = {**(known or {}), "query_id": query_id, "last_batch": last_batch, "at": now_text()}
        storage.replace(path, storage.dump_json(value))


def record_taken_back(paths: PipelinePaths, query_id: str, last_batch: int) -> None:
    """Put on record that the batches of a query that is over count no more after ``last_batch``, though the table's log
    has had them: a rollback took them back, and their records are read again. May be repeated."""
    path = paths.retired(query_id)
    known = storage.read_json(path) or {"last_batch": last_batch}
    last = min(last_batch, int(known["last_batch"]))
    if known.get("taken_back_to", last_batch + 1) > last_batch:
        value = {**known, "query_id": query_id, "last_batch": last, "taken_back_to": last_batch, "at": now_text()}
        storage.replace(path, storage.dump_json(value))


def read_taken_back(paths: PipelinePaths) -> dict[str, int]:
    """{query id: the last batch that a rollback left it} of the queries of which it took some back."""
    return {
        str(value["query_id"]): int(value["taken_back_to"]) for value in _read_all(paths) if "taken_back_to" in value
    }


def read_retired(paths: PipelinePaths) -> dict[str, int]:
    """{query id: the last batch that counts} of every query that is over; -1 for none."""
    return {str(value["query_id"]): int(value["last_batch"]) for value in _read_all(paths)}


def _read_all(paths: PipelinePaths) -> Iterator[dict[str, Any]]:
    for path in storage.list_folder(paths.retired("any").parent, "[!.]*.json"):
        with storage.unreadable_is_named(path):
            yield _checked(json.loads(storage.read(path)))


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    str(value["query_id"]), int(value["last_batch"]), int(value.get("taken_back_to", 0))
    return value
