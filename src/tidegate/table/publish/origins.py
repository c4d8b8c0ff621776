"""The batches from which the rows of a file came, by the commits, and the records that side jobs have moved."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.table.log.commit import SET_ASIDE
from tidegate.table.log.files import Action, AddFile, CommitInfo, RemoveFile, list_versions, path_on_disk, read_actions
from tidegate.table.log.snapshot import Partition, partition_of
from tidegate.table.log.state import ROLLED_BACK_TO
from tidegate.table.publish.intent import REPLACES
from tidegate.table.publish.plan import RELEASE, REWORK, parse_file_name
from tidegate.table.publish.replace import plain_name

Batch = tuple[str, int]
"""(first eight characters of the query id, batch id), as in the names of published files."""

ORIGINS = "tidegate.origins"
"""In a commit to the quarantine table without a batch: JSON [[[file, ...], [batch, ...]], ...], the batches from which
the records of its files came."""
REPLAYED = "tidegate.replayed"
"""In a replay's commit: JSON list of the batches whose quarantined records it replayed."""
EDITED = "tidegate.edited"
"""In a replay's commit: how many of the records a person had edited."""
READ_AGAIN = "tidegate.read_again"
"""In a commit of a backfill or a refresh: the batches that it read."""
FOREIGN: Batch = ("", -1)
"""Instead of a batch: rows that no run of the pipeline has read, or whose batch is unknown."""
_NOWHERE = frozenset([FOREIGN])
TAKEN_BACK = "taken_back"
"""The outcome of a version that removes the records of batches that are not in the table: they are read again."""
UNDOES = "tidegate.undoes"
"""In a commit to the quarantine table that undoes an earlier commit: its id and part, as a JSON list."""


def read_origins(table_path: Path, files: Iterable[str]) -> dict[str, frozenset[Batch]]:
    """{file: the batches whose records it has} of a table or of quarantine, with :data:`FOREIGN` for rows from
    elsewhere. If a commit is missing, the name of the file counts."""
    known: dict[str, frozenset[Batch]] = {}
    alike: dict[tuple[Partition, int], frozenset[Batch]] = {}
    for info, actions in read_commits(table_path):
        adds = [one["add"] for one in actions if "add" in one]
        removed = [one["remove"] for one in actions if "remove" in one]
        recorded = dict[str, frozenset[Batch]]()
        for paths, batches in json.loads(info.get(ORIGINS, "[]")):
            recorded |= dict.fromkeys(paths, to_batches(batches))
        if SET_ASIDE in info:  # each file has another name
            renamed = zip(adds, removed, strict=True)
            recorded = {_path_of(new): known.get(_path_of(old), _NOWHERE) for new, old in renamed}
        for add in adds:
            path = _path_of(add)
            if ROLLED_BACK_TO in info:  # a copy of one of these, which are alike
                known[path] = alike.get(_size_in_partition(add), _NOWHERE)
            elif path in recorded:
                known[path] = recorded[path]
            else:
                known[path] = _origin(info, add, removed, known)
            alike[_size_in_partition(add)] = alike.get(_size_in_partition(add), frozenset()) | known[path]
    named = {path: parse_file_name(Path(path).name) for path in files}
    by_name = {path: frozenset([batch]) for path, batch in named.items() if batch is not None}
    return by_name | {path: known[path] for path in named if path in known}


def read_commits(table_path: Path, *, after: int = -1) -> Iterator[tuple[CommitInfo, list[Action]]]:
    """(metadata, actions) of the commits after version ``after``, oldest first; missing and torn ones are skipped."""
    for number in (number for number in list_versions(table_path) if number > after):
        try:
            actions = read_actions(table_path, number)
        except (FileNotFoundError, ValueError):
            continue
        yield next((one["commitInfo"] for one in actions if "commitInfo" in one), {}), actions


def _origin(
    info: CommitInfo, add: AddFile, removed: Sequence[RemoveFile], known: Mapping[str, frozenset[Batch]]
) -> frozenset[Batch]:
    """The batches of a file that a commit added: those that the commit or the file's name has. Unless they were read
    again, also those of the files that the commit removed from its partition, because rows may be carried over."""
    for key in (READ_AGAIN, REPLAYED):
        if key in info:
            return to_batches(json.loads(info[key]))
    named = parse_file_name(Path(_path_of(add)).name) if info.get(REWORK, RELEASE) == RELEASE else None
    own = frozenset() if named is None else frozenset([named])
    if REPLACES in info and own:
        return own
    is_ours = REWORK in info or named is not None
    near = [one for one in removed if not is_ours or _place(one) == _place(add)]
    carried = frozenset[Batch]().union(*(known.get(_path_of(one), _NOWHERE) for one in near))
    is_new = not is_ours and add.get("dataChange", True)
    return own | carried | (_NOWHERE if is_new or not (own or carried) else frozenset())


def _path_of(file: AddFile | RemoveFile) -> str:
    return path_on_disk(file["path"])


def _place(file: AddFile | RemoveFile) -> Partition:
    return partition_of(file.get("partitionValues") or {})


def _size_in_partition(add: AddFile) -> tuple[Partition, int]:
    return _place(add), add["size"]


def dump_origins(files: Iterable[tuple[Sequence[str], Iterable[Batch]]]) -> str:
    """Format :data:`ORIGINS` from (files, the batches whose records they have)."""
    return json.dumps([[list(paths), sorted(set(batches))] for paths, batches in files])


def to_batches(value: Sequence[tuple[str, int]]) -> frozenset[Batch]:
    """Parse a JSON list of batches."""
    return frozenset((str(query), int(batch)) for query, batch in value)


@dataclass(frozen=True)
class Move:
    """One commit of a side job to the quarantine table, which moved records of ``batches`` into it or out of it.
    ``app_id`` and ``part`` are those of the job (:class:`tidegate.table.publish.plan.Rework`)."""

    kind: str
    run_id: str
    app_id: str
    part: int
    batches: frozenset[Batch]

    def is_of(self, last: Mapping[str, int]) -> bool:
        """True if any of the batches counts; ``last`` is the last of each query, by its first eight characters."""
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
