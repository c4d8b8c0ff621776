"""What the table's log says behind the note of the last publish, and state folder or quarantine do not know.

A publish notes the version, so as a rule there is nothing to look at. Where there is, a process was killed
before its note, another program has written, or an older copy of the state folder was restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.waiting import list_waiting
from tidegate.sources.files.ledger import open_ledger
from tidegate.state.manifest import BatchManifest
from tidegate.state.published import Published
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.state import TableState, read_table_state
from tidegate.table.log.taken import GENERATION, REREAD, THEN, walk_back
from tidegate.table.publish.intent import COMPANION, pending_intents
from tidegate.table.publish.rework import REWORK


@dataclass(frozen=True)
class Later:
    """Each in words, or None: what runs have ``read`` that is in no manifest, note or ledger here; a ``rollback`` whose
    records nobody here reads again; a version that ``moved`` records in or out of a quarantine that does not know it.
    """

    read: str | None = None
    back_to: int | None = None
    """With ``read``: the newest version that holds none of that; None for no such version."""
    rollback: str | None = None
    moved: str | None = None


def look_later(
    paths: PipelinePaths,
    table: TableState,
    published: Published | None,
    manifests: Mapping[str, Sequence[BatchManifest]],
    *,
    can_go_back: bool,
) -> Later:
    """Look at the versions behind the note, or at all when there is none. ``can_go_back`` is whether the sources can be
    read again from an earlier version on."""
    noted = -1 if published is None else published.version
    if table.version <= noted or (published is not None and published.table_id != table.table_id):
        return Later()
    read, back_to, rollback, moves = None, None, None, list[tuple[str, int, str]]()
    begun = {one.app_id for one in pending_intents(paths)} | {one.app_id for one in list_waiting(paths)}
    known = set[str]()
    is_below = False
    for number, info in walk_back(paths.table, table.version):
        if is_below:
            back_to, is_below = (None if info is None else number), False
        if number <= noted or info is None:
            break
        increment = increment_of(info)
        if increment is not None and increment[0] not in known | begun:
            if _is_known(paths, *increment, published, manifests):
                known.add(increment[0])  # so are its batches before that
            else:
                read, back_to, is_below = f"batch {increment[1]} of query {increment[0]}", None, can_go_back
        if info.get(THEN) == REREAD and int(info[GENERATION]) >= paths.newest_generation():
            rollback = f"rollback {info['tidegate.run_id']}"
        if COMPANION in info and json.loads(info[COMPANION])[0] not in begun:
            app_id, part = json.loads(info[COMPANION])
            moves.append((app_id, int(part), f"{info.get(REWORK, 'refresh')} {info['tidegate.run_id']}"))
    aside = read_table_state(paths.quarantine, tuple(sorted({one[0] for one in moves}))) if moves else None
    held = {} if aside is None else aside.txns
    moved = next((what for app_id, part, what in moves if held.get(app_id, -1) < part), None)
    return Later(read, back_to, None if storage.exists(paths.rollback) else rollback, moved)


def increment_of(info: CommitInfo) -> tuple[str, int] | None:
    """(query id, last batch) of a run's version; None for one that no run made."""
    if REWORK in info or "tidegate.query_id" not in info or "tidegate.batches" not in info:
        return None
    return str(info["tidegate.query_id"]), int(json.loads(info["tidegate.batches"])[1])


def count_quarantined(info: CommitInfo) -> int:
    """How many records of its increment a run's version has in quarantine."""
    rows = json.loads(info.get("tidegate.rows", "{}"))
    return sum(int(rows.get(kind, 0)) for kind in ("malformed", "late", "rejected"))


def _is_known(
    paths: PipelinePaths,
    query_id: str,
    batch_id: int,
    published: Published | None,
    manifests: Mapping[str, Sequence[BatchManifest]],
) -> bool:
    noted = published.batch_id if published is not None and published.query_id == query_id else -1
    staged = [manifest.batch_id for manifest in manifests.get(query_id, ())]
    return batch_id <= max([noted, *staged]) or is_in_ledger(paths, query_id, batch_id)


def is_in_ledger(paths: PipelinePaths, query_id: str, batch_id: int) -> bool:
    """Whether the ledger has a file of the batch, so that only the note is lost; False when it cannot be read."""
    try:
        with open_ledger(paths, read_only=True) as ledger:
            return ledger.has_batch(query_id, batch_id)
    except DisagreementError:
        return False
