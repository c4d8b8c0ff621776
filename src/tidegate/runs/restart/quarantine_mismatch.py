"""Records of quarantine that do not match the table, when an older copy of one of them was restored, and their repair.

The table is the authority. Records of runs that it does not hold are read again, so they leave quarantine
(:func:`tidegate.runs.restart.repair_plan.quarantine_to_take_back`). Where a side job (a replay, a backfill, a refresh)
has moved records between the two and only one of them knows, the records of these batches may be in both, or in
neither: they leave quarantine too, on record, and a refresh, which reads all that the table's log counts, brings each
to one place.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs.preflight.later import count_quarantined, increment_of
from tidegate.runs.recovery.abandoned import list_unfinished_work
from tidegate.runs.recovery.lost_rows import note_lost_rows
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.reports.waiting import WAITED, list_waiting
from tidegate.state.lease import Lease
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.commit import commit_files
from tidegate.table.log.state import DataFile, list_data_files, read_table_state, read_txns
from tidegate.table.log.taken import walk_back
from tidegate.table.publish.intent import COMPANION, REPLACES
from tidegate.table.publish.origins import READ_AGAIN, REPLAYED, Batch, read_origins, to_batches
from tidegate.table.publish.rework import KEEPS_OLDER, REWORK, WITHIN
from tidegate.table.quarantine.moves import Move, list_moves
from tidegate.table.quarantine.schema import QUARANTINE_SCHEMA_JSON

Work = tuple[str, str]
"""Kind and run id of a side job."""


@dataclass(frozen=True)
class QuarantineMismatch:
    """``files`` leave quarantine; ``lacking`` is what it lacks, {what: how many records, 0 where nobody knows}."""

    files: list[DataFile]
    lacking: dict[str, int]

    def describe(self) -> list[str]:
        """What the repair does about it."""
        steps = []
        if self.files:
            records = count_of(sum(file.rows for file in self.files), "record")
            steps.append(f"take {records} out of quarantine that may be in the table, on record, and back them up")
        if self.lacking:
            steps.append(f"note what quarantine lacks: {', '.join(self.lacking)}")
        return steps


@dataclass
class _InTable:
    """What the versions of the table's log that count say, for quarantine to have its part of."""

    works: set[Work] = field(default_factory=set)
    moves: list[Move] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    """How many records each run has quarantined that quarantine's log does not count."""
    rebuilt: dict[Work, frozenset[Batch]] = field(default_factory=dict)
    """What rebuilt the whole table, with its batches: what came before is settled."""


def compare_with_table(paths: PipelinePaths, last: Mapping[str, int], version: int | None = None) -> QuarantineMismatch:
    """Compare quarantine with the table; ``last`` is the last batch that counts of each query, by its first eight
    characters, and ``version`` the one that the table goes back to."""
    in_table, in_quarantine = (read_txns(path) for path in (paths.table, paths.quarantine))
    in_log = _read_table(paths.table, in_quarantine, last, version)
    undone = {
        one.companion.app_id for one in list_unfinished_work(paths) if one.companion is not None
    }  # by the repair, first
    alone, rebuilt = list[Move](), frozenset[Batch]()
    for move in reversed(list_moves(paths.quarantine)):
        work = (move.kind, move.run_id)
        is_known = work in in_log.works and in_table.get(move.app_id, move.part) >= move.part
        if not (is_known or move.app_id in undone or move.batches <= rebuilt) and move.is_of(last):
            alone.append(move)
        rebuilt |= in_log.rebuilt.get(work, frozenset())
    unfinished = {one.app_id for one in list_waiting(paths)}  # quarantine follows
    alone += [
        move
        for move in in_log.moves
        if in_quarantine.get(move.app_id, -1) < move.part and move.app_id not in unfinished
    ]
    files = list_data_files(paths.quarantine) if alone and in_quarantine else []
    origins = read_origins(paths.quarantine, [file.path for file in files])
    batches = frozenset[Batch]().union(*(move.batches for move in alone))
    counted = {batch for batch in batches if batch[1] <= last.get(batch[0], -1)}
    files = [file for file in files if origins.get(file.path, counted) & counted]
    lacking = {f"records of run {run_id}": count for run_id, count in in_log.runs.items()}
    return QuarantineMismatch(files, lacking | {f"what {move.kind} {move.run_id} moved": 0 for move in alone})


def _read_table(
    table_path: Path, in_quarantine: Mapping[str, int], last: Mapping[str, int], version: int | None
) -> _InTable:
    in_log, rebuilt = _InTable(), frozenset[Batch]()
    for _, info in walk_back(table_path, version):
        if info is None:
            break
        work = (info.get(REWORK, "refresh"), str(info.get("tidegate.run_id")))
        if REWORK in info or REPLACES in info:
            in_log.works.add(work)
        move = _read_move(work, info, last)
        if move is not None and not move.batches <= rebuilt:
            in_log.moves.append(move)
        if _is_whole(info) and (move is None or in_quarantine.get(move.app_id, -1) >= move.part):
            in_log.rebuilt[work] = _batches_of(info, last)
            rebuilt |= in_log.rebuilt[work]
        increment = increment_of(info)
        if increment is not None and info.get("tidegate.outcome") != "waiting":
            query, batch = increment
            records = count_quarantined(info)
            if records and in_quarantine.get(query, -1) < batch and (query[:8], batch) not in rebuilt:
                in_log.runs[str(info.get("tidegate.run_id"))] = records
    return in_log


def _read_move(work: Work, info: CommitInfo, last: Mapping[str, int]) -> Move | None:
    """The version of quarantine that came with one of the table."""
    if COMPANION not in info:
        return None
    app_id, part = json.loads(info[COMPANION])
    return Move(*work, app_id, int(part), _batches_of(info, last))


def _batches_of(info: CommitInfo, last: Mapping[str, int]) -> frozenset[Batch]:
    """The batches whose records a version moved; of one that began a query all that there were."""
    batches = info.get(READ_AGAIN) or info.get(REPLAYED)
    if batches is not None:
        return to_batches(json.loads(batches))
    if WAITED in info:
        spans = json.loads(info[WAITED])
        return frozenset((query[:8], batch) for query, first, until in spans for batch in range(first, until + 1))
    return frozenset((query, batch) for query, until in last.items() for batch in range(until + 1))


def _is_whole(info: CommitInfo) -> bool:
    return REPLACES in info or (json.loads(info.get(WITHIN, "0")) == {} and KEEPS_OLDER not in info)


def take_out(paths: PipelinePaths, lease: Lease, mismatch: QuarantineMismatch, backup: Path) -> None:
    """Back up what does not fit, and take it out of the log, in one version which says that something is lacking."""
    if not (mismatch.files or mismatch.lacking):
        return
    run_id, state = new_run_id("repair"), read_table_state(paths.quarantine)
    lost = [DataFile(what, count, 0, {}) for what, count in mismatch.lacking.items()]
    version = -1 if state is None else state.version
    note_lost_rows(paths, lease, "quarantine", [*mismatch.files, *lost], run_id=run_id, version=version)
    for file in mismatch.files:
        move_to_backup(paths.quarantine / file.path, backup / "quarantine" / file.path, lease)
    lease.check()
    remove_files(paths, mismatch.files, run_id, "taken_out")


def remove_files(paths: PipelinePaths, files: Sequence[DataFile], run_id: str, outcome: str) -> None:
    """Take files out of quarantine's log, in a version of the repair ``run_id``; an empty list records it alone."""
    commit_files(
        paths.quarantine,
        schema_json=QUARANTINE_SCHEMA_JSON,
        partition_by=[],
        add=[],
        remove=list(files),
        app_id=run_id,
        app_version=0,
        app_version_before=-1,
        custom_metadata={"tidegate.spec.pipeline": paths.name, "tidegate.run_id": run_id, "tidegate.outcome": outcome},
    )


def move_to_backup(source: Path, target: Path, lease: Lease) -> None:
    """Move a file or a folder, if it is still there."""
    lease.check()
    with contextlib.suppress(FileNotFoundError):  # a repair that was killed has moved it, or another process: see lease
        storage.move(source, target)
