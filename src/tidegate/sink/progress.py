"""How far each sink was fed: the last version of the table that it has had, noted once it has had it whole.

The notes of a sink lie in a folder per table (``<state>/sinks/<sink>/<table id>/``), so a table that was replaced
starts over, and within it the highest number counts, so a process that was frozen cannot set a sink back.
A sink goes by what it feeds, not by its place in the list: putting the list in another order changes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidegate import storage
from tidegate.paths import PipelinePaths
from tidegate.table.log.state import TableState

_NO_TABLE = "no-table"
"""In place of a table's id: the sink was there before the table, so it gets the table's first version too."""


def last_fed(paths: PipelinePaths, sink: str, table: TableState) -> int | None:
    """The last version that the sink has had, -1 for none; None when it was never begun with this table."""
    note = storage.read_note(paths.sink(sink) / table.table_id)
    if note is not None:
        return int(note["version"])
    return -1 if _awaits_table(paths, sink) else None


def begin_sink(paths: PipelinePaths, sink: str, table: TableState | None, run_id: str) -> None:
    """See a sink for the first time with this table: it starts with the next version.

    A table that is behind its sink was restored from an older copy: what it lacks is read and published again, as
    versions that the sink must get.
    """
    if table is None:
        if not _awaits_table(paths, sink):
            _write(paths, sink, _NO_TABLE, -1, run_id, tables_before=_tables(paths, sink))
        return
    fed = last_fed(paths, sink, table)
    if fed is not None and fed > table.version:
        storage.remove_tree(paths.sink(sink) / table.table_id)
    if fed is None or fed > table.version:
        note_fed(paths, sink, table.table_id, table.version, run_id)


def note_fed(paths: PipelinePaths, sink: str, table_id: str, version: int, run_id: str) -> None:
    """Note that the sink has had everything up to ``version``."""
    _write(paths, sink, table_id, version, run_id)


def _awaits_table(paths: PipelinePaths, sink: str) -> bool:
    """Whether the sink was begun when there was no table, and has seen none since."""
    note = storage.read_note(paths.sink(sink) / _NO_TABLE)
    return note is not None and set(_tables(paths, sink)) <= set(note["tables_before"])


def _tables(paths: PipelinePaths, sink: str) -> list[str]:
    """The ids of tables that the sink has notes on. They stay: an old table may come back."""
    folders = storage.list_folders(paths.sink(sink))
    return sorted(one.name for one in folders if one.name != _NO_TABLE and storage.read_note(one) is not None)


def _write(paths: PipelinePaths, sink: str, table_id: str, version: int, run_id: str, **more: Any) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    note = {"sink": sink, "version": version, "fed_by": run_id, "at": at, **more}
    storage.write_note(paths.sink(sink) / table_id, version + 1, note)
