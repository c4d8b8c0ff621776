"""Are table and quarantine as they were noted: all files there, quarantine as new as it has been, and no newer than the
table?"""

from __future__ import annotations

import json
from dataclasses import replace

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.state.lease import Lease
from tidegate.state.published import read_published, write_published
from tidegate.table.damage import Damage, describe_damage, find_damage
from tidegate.table.log.commit import retired_mark
from tidegate.table.log.features import check_features
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import read_commit_metadata, read_log_head, read_table_state, read_txns, settled_batches
from tidegate.table.publish.intent import pending_intents
from tidegate.table.publish.origins import list_moves


def check_quarantine(paths: PipelinePaths) -> None:
    """Raise DisagreementError QUARANTINE_BEHIND when the quarantine table was deleted, or an older copy restored;
    TABLE_FEATURE when another program made it ask for what is not known here."""
    noted, there = _noted(paths), _newest(paths)
    if there < noted:
        found = "is gone" if there < 0 else f"is at version {there}"
        raise errors.QUARANTINE_BEHIND(
            where=f"pipeline {paths.name}, {paths.quarantine}",
            found=f"{found}; it was at version {noted}",
            name=paths.name,
        )
    if there > noted:
        check_features(paths.quarantine, read_log_head(paths.quarantine))


def check_ahead(paths: PipelinePaths, facts: Facts) -> None:
    """Raise DisagreementError QUARANTINE_AHEAD when quarantine holds what the table's log does not: older copies of the
    table and of the state folder were restored. Of all but what is begun the table has its part first.

    Only versions behind the note are looked at, as a rule none.
    """
    noted, there = _noted(paths), _newest(paths)
    if there <= noted or facts.table is None or not facts.has_state:
        return
    txns = read_txns(paths.table)
    settled = settled_batches(paths.table, [app_id for app_id in txns if "#" not in app_id])
    last = {query[:8]: batch for query, batch in settled.items()}
    begun = {one.companion.app_id for one in pending_intents(paths) if one.companion is not None}
    found = None
    for info in (read_commit_metadata(paths.quarantine, version) for version in range(noted + 1, there + 1)):
        query, ended = str(info.get("tidegate.query_id")), info.get("tidegate.retired")
        if "tidegate.batches" in info and int(json.loads(info["tidegate.batches"])[1]) > txns.get(query, -1):
            found = found or f"records of run {info.get('tidegate.run_id')}"
        if ended is not None and retired_mark(ended) not in txns:
            found = found or f"the end of query {ended}"
    for move in list_moves(paths.quarantine, after=noted):
        if move.part > txns.get(move.app_id, -1) and move.app_id not in begun and move.is_of(last):
            found = found or f"what {move.kind} {move.run_id} moved"
    if found is not None:
        raise errors.QUARANTINE_AHEAD(
            where=f"pipeline {paths.name}, {paths.quarantine}",
            there=there,
            found=found,
            version=facts.table.version,
            name=paths.name,
        )


def note_quarantine(paths: PipelinePaths, lease: Lease) -> None:
    """Note how far the quarantine table has come. It may be less than was noted: the caller has checked that."""
    noted, there = _noted(paths), _newest(paths)
    if there == noted:
        return
    lease.check()
    if there < 0:
        storage.remove_tree(paths.quarantined)
    else:
        storage.write_note(paths.quarantined, there, {"version": there}, only=there < noted)


def _noted(paths: PipelinePaths) -> int:
    note = storage.read_note(paths.quarantined)
    return -1 if note is None else int(note["version"])


def _newest(paths: PipelinePaths) -> int:
    return max(list_versions(paths.quarantine), default=-1)


AT_A_GLANCE = 200
"""How many of the newest files of a table a run looks at, and a look at many pipelines: a tick of a table of any size
costs the same."""
_FOR_A_REQUEST_EACH = 2
"""As many where each look is a request to an object store."""
OF_ONE = 20_000
"""How many a look at one pipeline takes."""


def check_damage(paths: PipelinePaths, *, at_most: int | None = AT_A_GLANCE) -> None:
    """Raise DisagreementError TABLE_DAMAGED when files or versions of table or quarantine are gone, or have another
    size; ``at_most`` newest files of each are looked at, None: all."""
    for path in (paths.table, paths.quarantine):
        few = at_most == AT_A_GLANCE and not storage.looks_are_cheap(path)
        found = find_damage(path, at_most=_FOR_A_REQUEST_EACH if few else at_most)
        if found:
            raise damage_error(paths, path == paths.table, found)


def damage_error(paths: PipelinePaths, is_table: bool, found: list[Damage]) -> DisagreementError:
    """The error for what was found in table or quarantine."""
    where = f"pipeline {paths.name}, {paths.table if is_table else paths.quarantine}"
    what = "the table" if is_table else "quarantine"
    return errors.TABLE_DAMAGED(where=where, what=what, found=describe_damage(found), name=paths.name)


def note_version(paths: PipelinePaths, lease: Lease, *, goes_back: bool = False) -> None:
    """Note the table's version, so that an older copy of the table is recognized. After a rollback whose records are
    read again (``goes_back``), the sources are no longer at the positions of the last publish."""
    before, table = read_published(paths), read_table_state(paths.table)
    if before is None or table is None or before.table_id != table.table_id or before.version >= table.version:
        return
    lease.check()
    positions = None if goes_back else before.positions
    write_published(paths, replace(before, version=table.version, positions=positions))
