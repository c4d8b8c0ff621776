"""Which queries are over, as the state folder has it; the tables' logs have it too (:mod:`tidegate.table.log.retire`).

Both are asked: a table can be restored from an older copy or be deleted, and so can the state folder.
"""

from __future__ import annotations

import json

from tidegate import storage
from tidegate.paths import PipelinePaths
from tidegate.process.machine import now_text


def record_retired(paths: PipelinePaths, query_id: str, last_batch: int) -> None:
    """Put on record that no batch of the query after ``last_batch`` counts; a lower number that was there stands."""
    path = paths.retired(query_id)
    known = storage.read_json(path)
    if known is None or int(known["last_batch"]) > last_batch:
        at = now_text()
        storage.replace(path, storage.dump_json({"query_id": query_id, "last_batch": last_batch, "at": at}))


def read_retired(paths: PipelinePaths) -> dict[str, int]:
    """{query id: the last batch that counts} of every query that is over; -1 for none."""
    folder = paths.retired("any").parent
    found = {}
    for path in storage.list_folder(folder, "[!.]*.json"):
        with storage.unreadable_is_named(path):
            value = json.loads(storage.read(path))
            found[str(value["query_id"])] = int(value["last_batch"])
    return found
