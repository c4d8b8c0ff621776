"""How far each sink was fed: the last version of the table that it has, noted once it has all of it.

The notes of a sink are in a folder per table (``<state>/sinks/<sink>/<table id>/``). Each contains the number of the
version in the sink (:attr:`tidegate.table.publish.delivery.Delivery.number`). The highest number counts, so a process
that was suspended cannot set a sink back. Where that note is of another table, or the table was restored from an older
copy, the sink has rows that the table may not have: it gets the whole table next, under a higher number.
A sink is identified by what it feeds, not by its place in the list: to reorder the list changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.table.log.commit import AlreadyCommittedError, commit_files, sync_log
from tidegate.table.log.files import LOG_FOLDER, commit_name
from tidegate.table.log.state import OFFSET, TableState, read_table_state

_NO_TABLE = "no-table"
"""Stands for a table's id: the sink was there before the table, so it gets the table's first version too."""
_ATTEMPTS = 5


@dataclass(frozen=True)
class Fed:
    """The versions that a sink has: all up to ``version`` of the table, whose number in the sink is ``had``.

    ``number`` is the highest that it may have seen; it is greater than ``had`` while a version is delivered."""

    version: int
    had: int
    number: int
    gets_whole: bool = False
    """The sink has rows of another table, or of versions that this one no longer has: it gets all rows next."""
    is_foreign: bool = False
    """``number`` belongs to a version that this table does not have."""


def find_fed(paths: PipelinePaths, sink: str, table: TableState) -> Fed | None:
    """How far the sink was fed from this table; None when it was never started."""
    newest = _newest_note(paths, sink)
    if newest is None:
        is_awaited = storage.read_note(paths.sink(sink) / _NO_TABLE) is not None
        return Fed(-1, -1, -1) if is_awaited else None
    table_id, note = newest
    version, number = int(note["version"]), int(note.get("number", note["version"]))
    # Notes of earlier versions of tidegate lack ``had``: their ``number`` is that of the highest of their commits.
    written_for = max(map(int, note.get("commits", {})), default=version)
    had = int(note.get("had", number - written_for + version))
    if table_id != table.table_id or not _is_there(paths, note, table):
        return Fed(-1, had, number, gets_whole=True, is_foreign=True)
    return Fed(version, had, number, gets_whole=bool(note.get("whole")))


def last_fed(paths: PipelinePaths, sink: str, table: TableState) -> int | None:
    """The last version of this table that the sink has, -1 for none; None when it was never started."""
    fed = find_fed(paths, sink, table)
    return None if fed is None else fed.version


def begin_sink(paths: PipelinePaths, sink: str, table: TableState | None, run_id: str) -> None:
    """Start a new sink with the next version, or with the first one of a table that does not exist yet."""
    if table is not None and find_fed(paths, sink, table) is None:
        note_fed(paths, sink, table, table.version, table.offset, run_id)
    elif table is None and _newest_note(paths, sink) is None:
        storage.write_note(paths.sink(sink) / _NO_TABLE, 0, {"sink": sink, "version": -1, "fed_by": run_id})


def note_fed(paths: PipelinePaths, sink: str, table: TableState, version: int, offset: int, run_id: str) -> None:
    """Note that the sink has everything up to ``version``, whose number in the sink is ``version + offset``."""
    commits = {str(version): _digest(paths, version)}
    _write(paths, sink, table, {"version": version, "commits": commits, "fed_by": run_id}, version + offset)


def note_begun(paths: PipelinePaths, sink: str, table: TableState, version: int, offset: int, run_id: str) -> None:
    """Note that the sink is about to see ``version``, so that no other version ever gets its number."""
    fed, newest = find_fed(paths, sink, table), _newest_note(paths, sink)
    if fed is None or fed.number >= version + offset:
        return
    commits = {str(version): _digest(paths, version)}
    note: dict[str, Any] = {"version": fed.version, "had": fed.had, "whole": fed.gets_whole}
    if not fed.gets_whole:
        commits |= newest[1].get("commits", {}) if newest is not None else {}
    _write(paths, sink, table, {**note, "commits": commits, "fed_by": run_id}, version + offset)


def raise_numbers(paths: PipelinePaths, table: TableState) -> TableState:
    """Give the table's next versions higher numbers than sinks have seen of other tables or of versions it has lost.

    Returns the table afterwards. The offset is in the table's log, so it also holds when the state folder is restored
    or created again. Existing versions keep their numbers: a sink may have seen one before a crash."""
    for _ in range(_ATTEMPTS):
        seen = max((_foreign_number(paths, sink, table) for sink in _list_sinks(paths)), default=-1)
        if table.version + table.offset > seen:
            break
        with contextlib.suppress(AlreadyCommittedError):  # another process has raised them
            commit_files(
                paths.table,
                schema_json=table.schema_json,
                partition_by=table.partition_columns,
                add=[],
                remove=[],
                app_id=OFFSET,
                app_version=seen + 1,
                app_version_before=table.offset or -1,
                custom_metadata={"tidegate.spec.pipeline": paths.name},
            )
        found = read_table_state(paths.table)
        sync_log(paths.table, -1 if found is None else found.version)  # before a sink sees one
        assert found is not None, "it has a log"
        table = found
    return table


def _foreign_number(paths: PipelinePaths, sink: str, table: TableState) -> int:
    """The highest number that a sink has seen of a version that this table does not have; -1 for none."""
    fed = find_fed(paths, sink, table)
    return fed.number if fed is not None and fed.is_foreign else -1


def _list_sinks(paths: PipelinePaths) -> list[str]:
    """The sinks that have notes, including those that the spec no longer has."""
    folders = storage.list_folders(paths.sinks)
    notes = [storage.read_note(table) for folder in folders for table in storage.list_folders(folder)]
    return sorted({str(note["sink"]) for note in notes if note is not None})


def _newest_note(paths: PipelinePaths, sink: str) -> tuple[str, dict[str, Any]] | None:
    """The id of the table that the sink was fed from last, and its note; None when it was never fed."""
    found = [(one.name, storage.read_note(one)) for one in storage.list_folders(paths.sink(sink))]
    notes = [(table_id, note) for table_id, note in found if note is not None and table_id != _NO_TABLE]
    # Notes of earlier versions of tidegate have no number: the newest of these counts.
    return max(notes, key=lambda one: (int(one[1].get("number", -1)), str(one[1]["at"])), default=None)


def _is_there(paths: PipelinePaths, note: dict[str, Any], table: TableState) -> bool:
    """Whether the table still has the versions of the note.

    After a restore from an older copy it may have others with the same numbers."""
    commits: dict[str, str | None] = note.get("commits", {})
    if max([int(note["version"]), *map(int, commits)]) > table.version:
        return False
    found = ((known, _digest(paths, int(version))) for version, known in commits.items())
    return all(None in (known, now) or known == now for known, now in found)


def _digest(paths: PipelinePaths, version: int) -> str | None:
    """The digest of a version's commit file; None when it is not there."""
    try:
        return hashlib.sha256(storage.read(paths.table / LOG_FOLDER / commit_name(version))).hexdigest()
    except FileNotFoundError:
        return None


def _write(paths: PipelinePaths, sink: str, table: TableState, note: dict[str, Any], number: int) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    storage.write_note(
        paths.sink(sink) / table.table_id, number + 1, {"sink": sink, **note, "number": number, "at": at}
    )
