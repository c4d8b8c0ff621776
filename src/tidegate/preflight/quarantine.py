"""Is quarantine as new as it has been? What an older copy of it lacks is in no table, and nobody would miss it."""

from __future__ import annotations

from tidegate import storage
from tidegate.errors import catalogue
from tidegate.lease import Lease
from tidegate.paths import PipelinePaths
from tidegate.table.log.features import check_features
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import read_log_head


def check_quarantine(paths: PipelinePaths) -> None:
    """Raise DisagreementError QUARANTINE_BEHIND when the quarantine table was deleted, or an older copy restored;
    TABLE_FEATURE when another program made it ask for what is not known here."""
    noted, there = _noted(paths), _newest(paths)
    if there < noted:
        found = "is gone" if there < 0 else f"is at version {there}"
        raise catalogue.QUARANTINE_BEHIND(
            where=f"pipeline {paths.name}, {paths.quarantine}", found=found, noted=noted, name=paths.name
        )
    if there > noted:
        check_features(paths.quarantine, read_log_head(paths.quarantine))


def note_quarantine(paths: PipelinePaths, lease: Lease) -> None:
    """Note how far the quarantine table has come. It may be less than was noted: whoever calls has looked at that."""
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
