"""Feed one sink: each pending version in order, noted once the sink has all of it.

Only the table's log and the sink's notes decide what is pending, so it does not matter which run published a version,
or how often a process died in between: a version may be delivered twice, and none is skipped. A sink that was fed from
another table gets the whole table as one version. A fault stops only that sink; the run reports it at its end.

The notes of a sink are in a folder per table (``<state>/sinks/<sink>/<table id>/``). Each contains the number of the
version in the sink (:attr:`tidegate.table.publish.delivery.Delivery.number`). The highest number counts, so a process
that was suspended cannot set a sink back. Where that note is of another table, or the table was restored from an older
copy, the sink has rows that the table may not have: it gets the whole table next, under a higher number.
A sink is identified by what it feeds, not by its place in the list: to reorder the list changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypedDict, cast

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.spec.models import SinkSpec
from tidegate.table.log.commit import AlreadyCommittedError, Commit, commit_files, sync_log
from tidegate.table.log.files import LOG_FOLDER, commit_name
from tidegate.table.log.state import OFFSET, TableState, read_table_state
from tidegate.table.publish.delivery import Delivery, deliver_whole, list_deliveries

_AT_MOST = 600
_NO_TABLE = "no-table"
"""Replaces a table's id: the sink was there before the table, so it gets the table's first version too."""
_ATTEMPTS = 5


class SinkFault(Exception):
    """What went wrong with one sink: what happened, where (a user's file and line, a topic), and what fixes it."""

    def __init__(self, message: str, *, where: str | None = None, fix: str = "correct the cause") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def to_dict(self) -> dict[str, object]:
        """The fault as a driver returns it."""
        return {"message": self.message, "where": self.where, "fix": self.fix}

    @staticmethod
    def from_dict(value: Mapping[str, str]) -> SinkFault:
        """The fault that :meth:`to_dict` returned."""
        return SinkFault(value["message"], where=value["where"], fix=value["fix"])


def explain_fault(error: BaseException, job_folder: Path) -> SinkFault:
    """Turn any exception into a fault: its text, and the line of the user's code that raised it, if any."""
    if isinstance(error, SinkFault):
        return error
    text = " ".join(line.strip() for line in str(error).split("\n\tat ")[0].splitlines() if line.strip())
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    line = _user_line(error, job_folder)
    fix = "correct the sink's code" if line else "look at the message"
    return SinkFault(message[:_AT_MOST], where=line, fix=fix)


def _user_line(error: BaseException, job_folder: Path) -> str | None:
    """``file:line`` of the last frame that lies in the pipeline's folder."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(job_folder):
        return f"{error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(job_folder):
            return f"{frame.filename}:{frame.lineno}"
    return None


class _Note(TypedDict, total=False):
    """What a sink has, as it is noted."""

    sink: str
    version: int
    had: int
    whole: bool
    commits: dict[str, str | None]
    fed_by: str
    number: int
    at: str


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
    version, number = int(note["version"]), int(note["number"])
    had = int(note.get("had", number))  # a note about a whole version has none
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
    note: _Note = {"version": fed.version, "had": fed.had, "whole": fed.gets_whole}
    if not fed.gets_whole:
        commits |= newest[1].get("commits", {}) if newest is not None else {}
    _write(paths, sink, table, {**note, "commits": commits, "fed_by": run_id}, version + offset)


def raise_numbers(paths: PipelinePaths, table: TableState) -> TableState:
    """Give the table's next versions higher numbers than sinks have seen of other tables or of versions it has lost.

    Returns the table afterwards. The offset is in the table's log, so it also holds when the state folder is restored
    or created again. Existing versions keep their numbers: a sink may have seen one before a crash."""
    for _ in range(_ATTEMPTS):
        found = [find_fed(paths, sink, table) for sink in _list_sinks(paths)]
        seen = max((fed.number for fed in found if fed is not None and fed.is_foreign), default=-1)
        if table.version + table.offset > seen:
            break
        with contextlib.suppress(AlreadyCommittedError):  # another process has raised them
            pipeline = {"tidegate.pipeline": paths.name}
            commit_files(paths.table, Commit(OFFSET, seen + 1, table.offset or -1, custom_metadata=pipeline))
        state = read_table_state(paths.table)
        assert state is not None, "it has a log"
        table = state
        sync_log(paths.table, table.version)  # before a sink sees one
    return table


def _list_sinks(paths: PipelinePaths) -> list[str]:
    """The sinks that have notes, including those that the spec no longer has."""
    folders = storage.list_folders(paths.sinks)
    notes = [storage.read_note(table) for folder in folders for table in storage.list_folders(folder)]
    return sorted({str(note["sink"]) for note in notes if note is not None})


def _newest_note(paths: PipelinePaths, sink: str) -> tuple[str, _Note] | None:
    """The id of the table that the sink was fed from last, and its note; None when it was never fed."""
    found = [(one.name, storage.read_note(one)) for one in storage.list_folders(paths.sink(sink))]
    notes = [(table_id, cast(_Note, note)) for table_id, note in found if note is not None and table_id != _NO_TABLE]
    return max(notes, key=lambda one: int(one[1]["number"]), default=None)


def _is_there(paths: PipelinePaths, note: _Note, table: TableState) -> bool:
    """Return whether the table still has the versions of the note.

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


def _write(paths: PipelinePaths, sink: str, table: TableState, note: _Note, number: int) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    storage.write_note(
        paths.sink(sink) / table.table_id, number + 1, {"sink": sink, **note, "number": number, "at": at}
    )


class Feeder(Protocol):
    """Sends all rows of one version to a sink, and returns when the sink has stored them durably."""

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Feed one version.

        Call ``check_lease`` before each part that the sink can see separately (a file's rows, a transaction): it raises
        when another process has taken over. After any exception the version is delivered again."""

    def close(self) -> None:
        """Release what was opened."""


def list_pending_versions(paths: PipelinePaths, sink: SinkSpec, table: TableState) -> list[Delivery]:
    """List the versions that a sink does not have yet, oldest first; none for a sink that was never started.

    Those before one that replaced all rows and columns are left out: a sink's code knows the columns of one of them.
    Raises SinkFault when the log no longer has these versions.
    """
    fed = find_fed(paths, sink.name, table)
    if fed is None:
        return []
    if fed.gets_whole:
        return [replace(deliver_whole(paths.table, table.version), offset=table.offset)]
    try:
        pending = list(list_deliveries(paths.table, fed.version, table.version, fed.had - fed.version))
        first = max((place for place, delivery in enumerate(pending) if delivery.replaces_columns), default=0)
        return pending[first:]
    except DisagreementError as gone:
        of_table = "" if fed.had == fed.version else f" (version {fed.version} of the table)"
        raise SinkFault(
            f"it was fed up to version {fed.had}{of_table}, and {gone.message}",
            where=gone.where,
            fix=f"restore the commit file; or feed the sink from the table itself, then remove "
            f"{paths.sink(sink.name)}: it then starts with the next version",
        ) from gone


def feed_sink(
    paths: PipelinePaths,
    sink: SinkSpec,
    table: TableState,
    make_feeder: Callable[[], Feeder],
    *,
    run_id: str,
    check_lease: Callable[[], None],
) -> None:
    """Feed all pending versions to the sink.

    ``check_lease`` raises when another process has taken over; it is called before each version and before each note.
    Raises SinkFault, naming the version, when the sink or the user's code failed.
    """
    pending = list_pending_versions(paths, sink, table)
    feeder: Feeder | None = None
    number = -1
    try:
        for delivery in pending:
            number = delivery.number
            feeder = feeder or make_feeder()
            check_lease()
            note_begun(paths, sink.name, table, delivery.version, delivery.offset, run_id)
            feeder(delivery, check_lease)
            check_lease()
            note_fed(paths, sink.name, table, delivery.version, delivery.offset, run_id)
    except TidegateError:
        raise  # the lease is lost, the disk is full, the run was stopped: not the sink's fault
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        fault = explain_fault(error, paths.job)
        raise SinkFault(f"version {number}: {fault.message}", where=fault.where, fix=fault.fix) from error
    finally:
        if feeder is not None:
            feeder.close()
    fed = find_fed(paths, sink.name, table)
    if fed is not None and fed.version < table.version:  # versions after the last one with rows have nothing to deliver
        check_lease()
        note_fed(paths, sink.name, table, table.version, table.offset, run_id)
