"""The SQLite file of a ledger: schema, transactions, and errors.

The rollback journal is truncated, not deleted: with ``synchronous=FULL`` a commit is then durable without an fsync of
the folder, and the journal is the only other file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, on_failure
from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors
from tidegate.state import errors as state_errors
from tidegate.state.lease import Lease

_APPLICATION_ID = 0x74696465
_SCHEMA_VERSION = 4
_BUSY_SECONDS = 20.0
_OF_STORAGE = tuple(
    f"SQLITE_{name}" for name in ("IOERR", "CANTOPEN", "READONLY", "PERM", "AUTH", "PROTOCOL", "NOLFS", "NOMEM")
)
"""Result codes of SQLite for faults of the file system or the machine, not of the content of the file."""
# state: 0 linked, 1 staged, 2 published, 3 existed before the source's start, and never read. vanished: 0 present,
# 1 absence reported, 2 cleared away by maintain, 3 about to be. begin, until: the copied bytes of the original;
# line_offset, lines: how many lines are before the first one in the copy, and before ``until``. mark: a digest of the
# first mark_size bytes. noted_*: a reported change that is not acknowledged. doubt: the content may have changed since
# it was read, as only its ends were compared. starts: the first look at each source, and the files that existed before
# its start; told: whether a report names them.
_SCHEMA = f"""
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    link TEXT NOT NULL UNIQUE, has_link INTEGER NOT NULL DEFAULT 1,
    state INTEGER NOT NULL DEFAULT 0, query_id TEXT, batch_id INTEGER, taken_at TEXT NOT NULL,
    vanished INTEGER NOT NULL DEFAULT 0, noted_size INTEGER, noted_mtime_ns INTEGER,
    begin INTEGER NOT NULL DEFAULT 0, until INTEGER, line_offset INTEGER NOT NULL DEFAULT 0, lines INTEGER,
    ctime_ns INTEGER, mark_size INTEGER, mark BLOB, noted_how TEXT, noted_unread INTEGER,
    doubt INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, path)
);
CREATE INDEX files_owed ON files (state, query_id, batch_id) WHERE state < 2;
CREATE INDEX files_with_link ON files (source, state) WHERE has_link = 1;
CREATE INDEX files_present ON files (source) WHERE vanished = 0;
CREATE INDEX files_noted ON files (source) WHERE noted_size IS NOT NULL;
CREATE INDEX files_leaving ON files (source) WHERE vanished = 3;
CREATE TABLE acknowledged (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER,
    mark_size INTEGER, mark BLOB, how TEXT, unread INTEGER, at TEXT NOT NULL, who TEXT NOT NULL, reason TEXT NOT NULL
);
CREATE INDEX acknowledged_of ON acknowledged (source, path);
CREATE TABLE starts (
    source TEXT PRIMARY KEY, start TEXT NOT NULL, at TEXT NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
    told INTEGER NOT NULL DEFAULT 0
);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION}
"""


class LedgerFile:
    """An open SQLite file with the ledger's schema. As a context manager it closes itself."""

    def __init__(self, paths: PipelinePaths, file: str, *, writes: bool = True, lease: Lease | None = None) -> None:
        self.paths = paths
        self._writes = writes
        self._lease = lease
        self._file = file
        with self._named_errors():
            try:
                self._connect()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or not self._replace_locked_file():
                    raise
                self._connect()
        if lease is not None and writes:
            self._raise_fence(lease)

    def _raise_fence(self, lease: Lease) -> None:
        """Note the token of the lease in the ledger.

        The lease is checked while no other process can write: one that lost it has either committed its transaction
        before this one, or will find a token that is not its own.
        """
        with on_failure(self.close), self._writing(fenced=False):
            lease.check()
            if self.paths.mirror is not None:
                return  # the copy has one holder
            self._db.execute("CREATE TABLE IF NOT EXISTS fence (token TEXT NOT NULL)")
            if self._fence() != lease.token:
                self._db.execute("DELETE FROM fence")
                self._db.execute("INSERT INTO fence VALUES (?)", (lease.token,))

    def _fence(self) -> str | None:
        row = self._db.execute("SELECT token FROM fence").fetchone()
        return None if row is None else str(row[0])

    def _check_fence(self, lease: Lease) -> None:
        if self.paths.mirror is not None:
            lease.check_copy()
            return
        found = self._fence()
        if found != lease.token:
            holder = f"its ledger is written under token {found}: another run has taken over"
            raise state_errors.LEASE_LOST(where=str(self.paths.ledger), pipeline=self.paths.name, holder=holder)

    def _connect(self) -> None:
        self._db = sqlite3.connect(self._file, timeout=_BUSY_SECONDS, isolation_level=None)
        with on_failure(self._db.close):
            self._prepare(is_new=self._file == ":memory:")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when closed before."""
        self._db.close()

    def _prepare(self, *, is_new: bool) -> None:
        (application_id,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if (application_id, version) == (0, 0):
            self._db.execute("BEGIN IMMEDIATE")
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables == 0:
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
            self._db.execute("COMMIT")
            (application_id,) = self._db.execute("PRAGMA application_id").fetchone()
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if (application_id, version) != (_APPLICATION_ID, _SCHEMA_VERSION):
            raise self._unreadable(
                f"it is not a ledger of version {_SCHEMA_VERSION} (application {application_id:#x}, version {version})"
            )
        self._db.execute("PRAGMA synchronous = FULL")
        if not is_new:
            self._db.execute("PRAGMA journal_mode = TRUNCATE")

    @contextlib.contextmanager
    def _writing(self, *, fenced: bool = True) -> Iterator[None]:
        with self._named_errors():
            try:
                self._db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or not self._replace_locked_file():
                    raise
                self._db.close()
                self._connect()
                self._db.execute("BEGIN IMMEDIATE")
            with on_failure(self._roll_back):
                if fenced and self._lease is not None:
                    self._check_fence(self._lease)
                yield
                self._db.execute("COMMIT")

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("ROLLBACK")

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith("SQLITE_FULL"):
                raise storage.disk_full(self.paths.ledger) from error
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise errors.LEDGER_BUSY(where=str(self.paths.ledger), pipeline=self.paths.name) from error
            if name.startswith(_OF_STORAGE):
                kept = [self.paths.ledger, self.paths.ledger.parent]
                if not all(os.access(one, os.R_OK | os.W_OK, effective_ids=True) for one in kept if one.exists()):
                    raise storage.not_permitted(kept, self.paths.state) from error
                raise errors.LEDGER_UNAVAILABLE(
                    where=str(self.paths.ledger),
                    pipeline=self.paths.name,
                    error=f"{error} ({name})",
                    quoted_parent=shlex.quote(str(self.paths.ledger.parent)),
                ) from error
            if isinstance(error, sqlite3.ProgrammingError):
                raise
            raise self._unreadable(str(error)) from error

    def _replace_locked_file(self) -> bool:
        """Replace the file by a copy when its lock was held too long without a change. False when another process
        works.

        Writers hold the lease, so the holder of such a lock is a former holder, suspended in a transaction. The copy
        rolls that transaction back from its journal. When the process resumes, it writes to a file without a name, and
        SQLite refuses its next transaction because the file was moved.
        """
        if not self._writes:
            return False
        ledger, journal = self.paths.ledger, self.paths.ledger.with_name(self.paths.ledger.name + "-journal")
        copy = ledger.with_name(f".{ledger.name}.{secrets.token_hex(6)}.tmp")
        copied_journal = copy.with_name(copy.name + "-journal")
        before = [_stamp(ledger), _stamp(journal)]
        try:
            if before[1] is not None:
                shutil.copyfile(journal, copied_journal)
            shutil.copyfile(ledger, copy)
            if [_stamp(ledger), _stamp(journal)] != before:
                return False
            recovered = sqlite3.connect(copy, isolation_level=None)
            try:
                recovered.execute("BEGIN IMMEDIATE")
                recovered.execute("COMMIT")
            finally:
                recovered.close()
            storage.sync_file(copy)
            # A crash between these two leaves the old journal next to the copy: a second rollback changes nothing.
            os.replace(copy, ledger)
            journal.unlink(missing_ok=True)
            storage.sync_folder(ledger.parent)
        finally:
            for leftover in (copy, copied_journal):
                leftover.unlink(missing_ok=True)
        return True

    def _unreadable(self, why: str) -> DisagreementError:
        return errors.LEDGER_UNREADABLE(
            where=str(self.paths.ledger),
            pipeline=self.paths.name,
            why=why,
            quoted_ledger=shlex.quote(str(self.paths.ledger)),
        )


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
