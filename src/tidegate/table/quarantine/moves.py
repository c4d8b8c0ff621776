"""The records that side jobs moved into quarantine or out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.table.log.actions import Action
from tidegate.table.log.files import path_on_disk
from tidegate.table.publish.origins import Batch, read_commits, read_origins
from tidegate.table.publish.replace import plain_name
from tidegate.table.publish.rework import REWORK

TAKEN_BACK = "taken_back"
"""The outcome of a version that removes the records of batches that are not in the table: they are read again."""
UNDOES = "tidegate.undoes"
"""In a commit to the quarantine table that undoes an earlier commit: its id and part, as a JSON list."""


@dataclass(frozen=True)
class Move:
    """One commit of a side job to the quarantine table, which moved records of ``batches`` into it or out of it.
    ``app_id`` and ``part`` are those of the job (:class:`tidegate.table.publish.rework.Rework`)."""

    kind: str
    run_id: str
    app_id: str
    part: int
    batches: frozenset[Batch]

    def is_of(self, last: Mapping[str, int]) -> bool:
        """Whether any of the batches counts; ``last`` is the last of each query, by its first eight characters."""
        return any(batch <= last.get(query, -1) for query, batch in self.batches)


def list_moves(quarantine: Path, *, after: int = -1) -> list[Move]:
    """The moves of side jobs and repairs in the versions after ``after``, oldest first, without those that were undone.
    Versions whose commits are missing are skipped."""
    found: list[tuple[Move, list[str]]] = []
    undone: set[tuple[str, int]] = set()
    for info, actions in read_commits(quarantine, after=after):
        txn = next((one["txn"] for one in actions if "txn" in one), None)
        kind = info.get(REWORK, "repair" if info.get("tidegate.outcome") == TAKEN_BACK else None)
        if kind is None or txn is None:
            continue
        if UNDOES in info:
            undone.add(tuple(json.loads(info[UNDOES])))
            continue
        run_id = str(info.get("tidegate.run_id", txn["appId"]))
        move = Move(kind, run_id, txn["appId"], int(txn["version"]), frozenset())
        found.append((move, _list_files(actions)))
    found = [(move, files) for move, files in found if (move.app_id, move.part) not in undone]
    origins = read_origins(quarantine, sorted({path for _, paths in found for path in paths}))
    return [
        replace(move, batches=frozenset().union(*(origins.get(path, frozenset()) for path in paths)))
        for move, paths in found
    ]


def _list_files(actions: Iterable[Action]) -> list[str]:
    """The files that a version adds and removes, by their plain names."""
    added = [one["add"]["path"] for one in actions if "add" in one]
    removed = [one["remove"]["path"] for one in actions if "remove" in one]
    found = [path_on_disk(path) for path in (*added, *removed)]
    return [plain_name(path) or path for path in found]
