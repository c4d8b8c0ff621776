"""Rows that a repair took out of a log with damaged files, until they are rebuilt or a person acknowledges them.

The note is a file of the state folder, so no clean-up of the log removes it, and a pipeline without lost rows costs a
look for one file. An entry counts if the log has the transaction of its repair: not after a repair that was killed
before its commit, and not in a table that was restored from a backup or built anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tidegate import storage
from tidegate.errors import DisagreementError
from tidegate.lease import Lease
from tidegate.outputs import LostFile
from tidegate.paths import PipelinePaths
from tidegate.process.machine import name_person, now_text
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.log.taken import ROLLED_BACK_TO
from tidegate.table.publish.intent import PublishIntent, Target
from tidegate.table.publish.plan import DELIVERED, KEYS
from tidegate.table.publish.rework import KEEPS_OLDER, REWORK, WITHIN


@dataclass(frozen=True)
class LostRows:
    """The rows of one file. ``version`` is the version of the table before the repair."""

    target: Target
    path: str
    rows: int
    partition: Mapping[str, str | None]
    run_id: str
    version: int
    acknowledged: Mapping[str, str] | None = None
    """Who acknowledged them, when and why; None while they are open."""

    def to_json(self) -> LostFile:
        """As ``status`` shows it."""
        return {
            "of": self.target,
            "path": self.path,
            "rows": self.rows,
            "partition": dict(self.partition),
            "run_id": self.run_id,
        }


def note_lost_rows(
    paths: PipelinePaths, lease: Lease, target: Target, files: Sequence[DataFile], *, run_id: str, version: int
) -> None:
    """Add the rows of ``files``. Call it before the commit of ``run_id`` that takes them out of the log."""
    paths_now = {(target, file.path) for file in files}
    kept = [one for one in _read(paths) if (one.target, one.path) not in paths_now]
    lost = [LostRows(target, one.path, one.rows, one.partition, run_id, version) for one in files]
    _write(paths, lease, [*kept, *lost])


def list_lost_rows(paths: PipelinePaths) -> list[LostRows]:
    """The rows that are neither rebuilt nor acknowledged."""
    found = [one for one in _read(paths) if one.acknowledged is None]
    for target, path in (("table", paths.table), ("quarantine", paths.quarantine)):
        run_ids = tuple(sorted({one.run_id for one in found if one.target == target}))
        try:
            state = read_table_state(path, run_ids) if run_ids else None
        except DisagreementError:
            continue  # it cannot be known, so they stay
        known = {} if state is None else state.txns
        found = [one for one in found if one.target != target or one.run_id in known]
    return found


def forget_rebuilt_rows(paths: PipelinePaths, lease: Lease, intent: PublishIntent) -> None:
    """Remove what a publish has rebuilt. It may be repeated."""
    if intent.target != "table":
        return
    lost = _read(paths)
    left = [one for one in lost if one.acknowledged is not None or not _is_rebuilt(one, intent)]
    if len(left) < len(lost):
        _write(paths, lease, left)


def _is_rebuilt(lost: LostRows, intent: PublishIntent) -> bool:
    """Whether the publish wrote all rows of the lost file again."""
    info, is_of_table = intent.custom_metadata, lost.target == "table"
    if intent.hand_over is not None:
        return True
    if WITHIN in info:
        within = json.loads(info[WITHIN])
        if not within:
            return KEEPS_OLDER not in info
        return is_of_table and all(lost.partition.get(column) in values for column, values in within.items())
    if ROLLED_BACK_TO in info:
        return is_of_table and int(info[ROLLED_BACK_TO]) <= lost.version
    # A run in complete mode writes the whole table.
    return is_of_table and REWORK not in info and DELIVERED in info and KEYS not in info


def acknowledge_lost_rows(paths: PipelinePaths, lease: Lease, chosen: Collection[LostRows], *, reason: str) -> None:
    """Record that a person accepts the loss of these rows."""
    if chosen:
        told = {"who": name_person(), "at": now_text(), "reason": reason}
        names = {(one.target, one.path) for one in chosen}
        noted = _read(paths)
        accepted = [replace(one, acknowledged=told) for one in noted if (one.target, one.path) in names]
        rest = [one for one in noted if (one.target, one.path) not in names]
        _write(paths, lease, [*rest, *accepted])


def _read(paths: PipelinePaths) -> list[LostRows]:
    value = storage.read_json(paths.lost_rows)
    with storage.unreadable_is_named(paths.lost_rows):
        return [LostRows(**one) for one in value or ()]


def _write(paths: PipelinePaths, lease: Lease, lost: Sequence[LostRows]) -> None:
    lease.check()
    storage.replace(paths.lost_rows, storage.dump_json([asdict(one) for one in lost], indent=None))
