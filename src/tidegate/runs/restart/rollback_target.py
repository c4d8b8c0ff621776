"""The version to which a repair takes the table back, where an older copy of the state folder, of the table or of
quarantine was restored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tidegate.core.errors import SourceLostError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.later import Later, count_quarantined, increment_of
from tidegate.runs.reports.waiting import WAITED, load_waiting
from tidegate.runs.restart.versions import Look, look_back
from tidegate.state.published import Published
from tidegate.state.retired import read_taken_back
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.state import list_data_files, read_txns
from tidegate.table.log.taken import walk_back
from tidegate.table.publish.intent import COMPANION
from tidegate.table.publish.origins import FOREIGN, read_origins


def find_rollback_target(paths: PipelinePaths, facts: Facts) -> Look | None:
    """The rollback that removes from the table what the others do not count: records that runs have read since
    the copy of the state folder was made, or that a rollback took out of the table of which an older copy is there, or
    that quarantine lacks and no refresh can read. None without such a thing, or when the version cannot be read."""
    if facts.table is None:
        return None
    newest, taken_back, can_rebuild = facts.table.version, read_taken_back(paths), _can_rebuild(paths)
    in_quarantine, decided = read_txns(paths.quarantine), set[str]()
    version, is_below = newest if facts.later.back_to is None else facts.later.back_to, False
    for number, info in walk_back(paths.table, version):
        version, is_below = (number if is_below else version), False
        increment = None if info is None else increment_of(info)
        if info is None:
            continue
        run_id, is_undecided = str(info.get("tidegate.run_id")), False
        if WAITED in info:
            decided.add(run_id)
        if info.get("tidegate.outcome") == "waiting":
            is_undecided = run_id not in decided and load_waiting(paths, run_id) is None
        is_taken_back = increment is not None and increment[1] > taken_back.get(increment[0], increment[1])
        if (
            is_undecided
            or is_taken_back
            or (_is_lacking(facts, info, in_quarantine) and not (can_rebuild and _is_rebuilt(info)))
        ):
            version, is_below, decided = -1, True, set()
    try:
        return None if version in (-1, newest) else look_back(paths, with_current_note(facts), version)
    except (UsageError, SourceLostError):
        return None


def _can_rebuild(paths: PipelinePaths) -> bool:
    """Whether a refresh can: all rows are of records that runs have read."""
    origins = read_origins(paths.table, [file.path for file in list_data_files(paths.table)])
    return not any(FOREIGN in batches for batches in origins.values())


def _is_rebuilt(info: CommitInfo) -> bool:
    """Whether a refresh reads the records of a version again: not those of a discarded increment."""
    return info.get("tidegate.outcome") != "discarded"


def _is_lacking(facts: Facts, info: CommitInfo, in_quarantine: Mapping[str, int]) -> bool:
    """Whether quarantine, whose log has the numbers ``in_quarantine``, lacks its part of a version."""
    if COMPANION in info:
        app_id, part = json.loads(info[COMPANION])
        return in_quarantine.get(app_id, -1) < int(part)
    increment = increment_of(info)
    if increment is None or not count_quarantined(info) or info.get("tidegate.outcome") == "waiting":
        return False
    query, batch = increment
    is_staged = any(manifest.batch_id == batch for manifest in facts.manifests.get(query, ()))
    return not is_staged and in_quarantine.get(query, -1) < batch


def with_current_note(facts: Facts) -> Facts:
    """The facts with a note that matches the table; the caller knows that the stored one does not."""
    assert facts.table is not None
    return replace(facts, published=Published(facts.table.table_id, facts.table.version, None, -1), later=Later())
