"""What a pipeline's tables need from time to time: a compact log, and room on the disk."""

from __future__ import annotations

import time
from pathlib import Path

from tidegate import storage
from tidegate.lease import Lease
from tidegate.paths import PipelinePaths
from tidegate.sink.progress import last_fed
from tidegate.spec.models import PipelineSpec
from tidegate.table.log.compaction import compact_log, is_compaction_due
from tidegate.table.log.state import TableState, read_table_state
from tidegate.table.publish.intent import pending_intents
from tidegate.table.publish.vacuum import remove_replaced

_NOTE_EVERY = 100
"""Versions: reading so many commits again costs less than noting each, which has to reach the disk."""


def tend_tables(paths: PipelinePaths, spec: PipelineSpec, lease: Lease, table: TableState | None) -> None:
    """Compact each table's log when that is due, and remove files that were replaced long enough ago.

    Bounded work, after each publish; ``table`` is the pipeline's table as it is now.
    """
    for target, path in (("table", paths.table), ("quarantine", paths.quarantine)):
        if is_compaction_due(path):
            compact_log(path, lease.check)
        state = table if target == "table" else read_table_state(path)
        if state is not None:
            up_to = _fed_up_to(paths, spec, state) if target == "table" else state.version
            _make_room(paths, path, paths.removed(target), state.table_id, up_to, spec.maintenance.keep_versions, lease)


def _make_room(
    paths: PipelinePaths, table_path: Path, note: Path, table_id: str, up_to: int, keep_seconds: float, lease: Lease
) -> None:
    before = _read_note(note, table_id)
    if before > up_to:  # an older copy of the table was put back, and its versions' numbers are given again
        before = -1
    begun = [intent for intent in pending_intents(paths) if intent.table_path(paths) == table_path]
    needed = {file.path for intent in begun for file in intent.files_to_add}
    needed |= {file.path for intent in begun for file in intent.files_to_remove}
    done, removed = remove_replaced(
        table_path,
        after=before,
        up_to=up_to,
        before_ms=int((time.time() - keep_seconds) * 1000),
        needed=needed,
        check_lease=lease.check,
    )
    if removed or done - before >= _NOTE_EVERY:
        storage.replace(note, storage.dump_json({"table_id": table_id, "version": done}))


def _read_note(path: Path, table_id: str) -> int:
    """The version up to which all replaced files were removed; -1 for a table that is new here."""
    note = storage.read_json(path)
    return int(note["version"]) if note is not None and note["table_id"] == table_id else -1


def _fed_up_to(paths: PipelinePaths, spec: PipelineSpec, table: TableState) -> int:
    """The version that every sink has had: what later ones brought is still to be read."""
    fed = [last_fed(paths, sink.name, table) for sink in spec.sinks]
    return min([table.version, *(version for version in fed if version is not None)])
