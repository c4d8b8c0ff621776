"""Which batches the records in quarantine came from, and what work beside the runs has moved there or out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.table.log.actions import Action, CommitInfo
from tidegate.table.log.files import list_versions, path_on_disk, read_actions
from tidegate.table.publish.plan import parse_file_name
from tidegate.table.publish.replace import plain_name
from tidegate.table.publish.rework import REWORK

Batch = tuple[str, int]
"""(first eight characters of the query id, batch id), as the names of published files tell it."""

ORIGINS = "tidegate.origins"
"""In a commit of the quarantine table that no batch made: JSON [[[file, ...], [batch, ...]], ...], the batches that the
records in its files came from."""
UNDOES = "tidegate.undoes"
"""In a commit of the quarantine table that undoes an earlier one: the id and the part of that, as a JSON list."""


@dataclass(frozen=True)
class Move:
    """One commit of work beside the runs to the quarantine table: it moved records of ``batches`` there, or out of it.
    ``app_id`` and ``part`` are those of the work (:class:`tidegate.table.publish.rework.Rework`)."""

    kind: str
    run_id: str
    app_id: str
    part: int
    batches: frozenset[Batch]


def _read_commits(quarantine: Path) -> Iterator[tuple[CommitInfo, list[Action]]]:
    """What each version's commit says, oldest first; those whose commits are gone, or torn, are passed over."""
    for number in list_versions(quarantine):
        try:
            actions = read_actions(quarantine, number)
        except (FileNotFoundError, ValueError):
            continue
        yield next((one["commitInfo"] for one in actions if "commitInfo" in one), {}), actions


def read_origins(quarantine: Path, files: Sequence[str]) -> dict[str, frozenset[Batch]]:
    """The batches whose records are in each of ``files`` of the quarantine table: by a file's name, or for one that a
    replay or a backfill made by what its commit says."""
    named = {path: parse_file_name(Path(path).name) for path in files}
    found = {path: frozenset([batch]) for path, batch in named.items() if batch is not None}
    exact: dict[str, frozenset[Batch]] = {}
    for info, _ in _read_commits(quarantine):
        for paths, batches in json.loads(info.get(ORIGINS, "[]")):
            of_work = {
                parse_file_name(Path(path).name) for path in paths
            }  # a file may get another name, of the same work
            found |= {
                path: to_batches(batches) for path, work in named.items() if path in paths or work in of_work - {None}
            }
            exact |= {path: to_batches(batches) for path in paths if path in named}
    return found | exact


def tell_origins(files: Iterable[tuple[Sequence[str], Iterable[Batch]]]) -> str:
    """:data:`ORIGINS` of (files, the batches whose records they have)."""
    return json.dumps([[list(paths), sorted(set(batches))] for paths, batches in files])


def list_moves(quarantine: Path) -> list[Move]:
    """What work beside the runs has moved, oldest first, but for what was undone. Versions whose commits are gone are
    passed over."""
    found: list[tuple[Move, list[str]]] = []
    undone: set[tuple[str, int]] = set()
    for info, actions in _read_commits(quarantine):
        txn = next((one["txn"] for one in actions if "txn" in one), None)
        if REWORK not in info or txn is None:
            continue
        if UNDOES in info:
            undone.add(tuple(json.loads(info[UNDOES])))
            continue
        move = Move(str(info[REWORK]), str(info.get("tidegate.run_id")), txn["appId"], int(txn["version"]), frozenset())
        found.append((move, _list_files(actions)))
    found = [(move, files) for move, files in found if (move.app_id, move.part) not in undone]
    origins = read_origins(quarantine, sorted({path for _, paths in found for path in paths}))
    return [
        replace(move, batches=frozenset().union(*(origins.get(path, frozenset()) for path in paths)))
        for move, paths in found
    ]


def _list_files(actions: Iterable[Action]) -> list[str]:
    """The files that a version adds and removes, by the names under which plain readers saw them."""
    added = [one["add"]["path"] for one in actions if "add" in one]
    removed = [one["remove"]["path"] for one in actions if "remove" in one]
    found = [path_on_disk(path) for path in (*added, *removed)]
    return [plain_name(path) or path for path in found]


def to_batches(value: Sequence[tuple[str, int]]) -> frozenset[Batch]:
    """The batches of a JSON list."""
    return frozenset((str(query), int(batch)) for query, batch in value)
