"""The SQLite file of a ledger: schema, transactions, and its faults as errors with a name.

The rollback journal is truncated, not deleted: with ``synchronous=FULL`` a commit is then durable without a folder's
fsync, and there is never more than one file beside the ledger.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Self

from tidegate import storage
from tidegate.errors import DisagreementError, TryAgainError
from tidegate.project import PipelinePaths

_APPLICATION_ID = 0x74696465
_SCHEMA_VERSION = 1
# state: 0 linked, 1 staged, 2 published.
_SCHEMA = f"""
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    link TEXT NOT NULL UNIQUE, has_link INTEGER NOT NULL DEFAULT 1,
    state INTEGER NOT NULL DEFAULT 0, query_id TEXT, batch_id INTEGER, taken_at TEXT NOT NULL,
    vanished INTEGER NOT NULL DEFAULT 0, noted_size INTEGER, noted_mtime_ns INTEGER,
    UNIQUE (source, path)
);
CREATE INDEX files_owed ON files (state, query_id, batch_id) WHERE state < 2;
CREATE INDEX files_with_link ON files (source, state) WHERE has_link = 1;
CREATE INDEX files_present ON files (source) WHERE vanished = 0;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
"""


class LedgerFile:
    """An open SQLite file of the ledger's schema. A context manager closes it."""

    def __init__(self, paths: PipelinePaths, file: str) -> None:
        self.paths = paths
        with self._named_errors():
            self._db = sqlite3.connect(file, timeout=20.0, isolation_level=None)
            try:
                self._prepare(is_new=file == ":memory:")
            except BaseException:
                self._db.close()
                raise

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
                f"it is no ledger of version {_SCHEMA_VERSION} (application {application_id:#x}, version {version})"
            )
        self._db.execute("PRAGMA synchronous = FULL")
        if not is_new:
            self._db.execute("PRAGMA journal_mode = TRUNCATE")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._named_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith("SQLITE_FULL"):
                raise storage.disk_full(self.paths.ledger) from error
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise TryAgainError(
                    "LEDGER_BUSY",
                    f"another process kept the ledger of pipeline {self.paths.name} locked for 20 s",
                    where=str(self.paths.ledger),
                    next_run="starts where this one stopped; nothing is lost",
                    fix=f"tidegate status {self.paths.name}, then run again",
                ) from error
            if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
                raise TryAgainError(
                    "LEDGER_UNAVAILABLE",
                    f"the ledger of pipeline {self.paths.name} cannot be opened or written: {error}",
                    where=str(self.paths.ledger),
                    next_run="starts where this one stopped; nothing is lost",
                    fix=f"check owner, permissions and disk (ls -l {self.paths.ledger.parent}), then run again",
                ) from error
            if isinstance(error, sqlite3.ProgrammingError):
                raise
            raise self._unreadable(str(error)) from error

    def _unreadable(self, why: str) -> DisagreementError:
        return DisagreementError(
            "LEDGER_UNREADABLE",
            f"the record of the files that pipeline {self.paths.name} has taken cannot be read: {why}",
            where=str(self.paths.ledger),
            next_run="refuses to start, and changes nothing",
            fix=f"tidegate repair {self.paths.name}",
        )
