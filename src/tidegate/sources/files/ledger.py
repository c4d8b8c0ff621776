"""The ledger of a pipeline's file sources: which files were taken, under which link, and the state of each.

One SQLite file, ``state/<name>/ledger.sqlite``. A row is written before the link it names, so every file in the intake
(:mod:`tidegate.sources.files.intake`) is known. The states of a row::

    linked ──mark_staged──> staged (query id, batch id) ──mark_published──> published ──forget_links──> link removed
       ^──────────────────── return_to_linked (repair) ─────────────────────────┘
     relink                                    hand_over (adopt) ──> published, without a link

A file that existed before the source's ``start`` has the state ``before_start``, and never a link.

With ``on_change: reread_tail`` each further piece of a file has its own row. Its path is that of the file, two slashes
and the piece's number: no real path looks like that.

A file that maintenance cleared away keeps its row, and is recognized when it is put back. When another file of the same
name is taken, the old row is retired: two slashes, a tilde and its number are added to its path.

Every call may be repeated, and is one transaction, except :meth:`Ledger.add_links` of very many files. Paths are
relative to the project root when inside it, else absolute, and are stored as bytes, since file names need not be
Unicode.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.sources import errors
from tidegate.sources.files.content import Mark
from tidegate.sources.files.ledger_file import LedgerFile
from tidegate.state.lease import Lease
from tidegate.state.manifest import Piece, TakenFile
from tidegate.state.published import read_published

State = Literal["linked", "staged", "published", "before_start"]
Place = Literal["here", "reported", "cleared", "leaving"]
"""Where the file of a row is: its absence was "reported", maintenance has "cleared" it away, or was killed while doing
so ("leaving")."""
_T = TypeVar("_T")
_Row = tuple[Any, ...]
"""A row as SQLite returns it: of the types that the statement selects."""

_STATES: tuple[State, ...] = ("linked", "staged", "published", "before_start")
_LINKED, _STAGED, _PUBLISHED, _BEFORE_START = range(4)
_HERE, _REPORTED, _CLEARED, _LEAVING = range(4)
_PLACES: tuple[Place, ...] = ("here", "reported", "cleared", "leaving")
_CHUNK = 900
_SECOND_NS = 1_000_000_000
_FILES_PER_TRANSACTION = 50_000
_OF_FILE = "path, size, mtime_ns, begin, until, line_offset, lines, ctime_ns, mark_size, mark"
_COLUMNS = (
    f"{_OF_FILE}, source, link, state, query_id, batch_id, taken_at, vanished, noted_size, noted_mtime_ns, noted_how, "
    "noted_unread, doubt"
)
_PIECE = "//"
_RETIRED = "//~"
_TAKEN = "source, link, taken_at, vanished"
"""The other columns of a file that is taken. A piece has ``vanished`` set, since only whole files are looked for."""
_CLOSE_NOTED = "UPDATE files SET noted_size = NULL, noted_mtime_ns = NULL WHERE source = ? AND path = ?"
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,16}$")


KnownState = tuple[int, int, int | None, bool]
"""(size, mtime_ns, ctime_ns, whether its absence was reported) of a file that was taken."""


class LinkedFile(TypedDict):
    """The file behind a link, as an order names it; for a piece, ``file`` is the path of the whole file."""

    path: str
    size: int
    mtime_ns: int
    file: NotRequired[str]
    piece: NotRequired[Piece]


class LedgerRow(NamedTuple):
    """One file that was taken, or a piece of one.

    ``link`` is relative to the source's intake folder. ``noted`` is the (size, mtime_ns) of the last reported change
    that is not acknowledged. With ``doubt`` its content may have changed since it was read.

    ``begin`` and ``until`` (None: the whole file) are the bytes of the file that were copied into the intake.
    ``line_offset`` added to a line's number in the copy is its number in the file; ``lines`` lines end before
    ``until``.
    """

    path: str
    size: int
    mtime_ns: int
    begin: int
    until: int | None
    line_offset: int
    lines: int | None
    ctime_ns: int | None
    mark: Mark | None
    source: str
    link: str
    state: State
    query_id: str | None
    batch_id: int | None
    taken_at: str
    place: Place
    noted: tuple[int, int] | None
    noted_how: str | None
    noted_unread: int | None
    doubt: bool

    @property
    def piece(self) -> Piece | None:
        """The piece as a manifest has it; None for a whole file."""
        if self.until is None:
            return None
        return {"begin": self.begin, "until": self.until, "line_offset": self.line_offset, "lines": self.lines}

    @property
    def changed_at(self) -> int:
        """The time of the last change, for its order among others: of an object without the digits of its ETag."""
        return self.mtime_ns - self.mtime_ns % _SECOND_NS if storage.names_object(self.path) else self.mtime_ns

    @property
    def linked_file(self) -> LinkedFile:
        """The file behind the link."""
        found: LinkedFile = {"path": self.path, "size": self.size, "mtime_ns": self.mtime_ns}
        if self.piece is not None:
            found["file"], found["piece"] = shown_path(self.path), self.piece
        return found

    @property
    def read_until(self) -> int:
        """The number of bytes that were read, from the beginning of the file."""
        return self.size if self.until is None else self.until


class NewFile(NamedTuple):
    """A file to take, for :meth:`Ledger.add_links`. ``folder`` is "" or the link's ``k=v/...`` folder.

    The other fields are those of a piece that was copied; ``token`` is part of its link's name.
    """

    path: str
    size: int
    mtime_ns: int
    folder: str
    token: str = ""
    begin: int = 0
    until: int | None = None
    line_offset: int = 0
    lines: int | None = None
    ctime_ns: int | None = None
    mark: Mark | None = None


class Start(NamedTuple):
    """The first look at a source: ``start`` of the spec at that time, the time, and the files that count as taken since
    they existed before. ``reported``: a report names them."""

    start: str
    at: str
    files: int
    bytes: int
    reported: int


class Listed(NamedTuple):
    """How far a store was listed. ``mark``: up to this URI, each object was taken, or is not to be read; "" where that
    is true of none. All keys were listed last at ``all_at``, in seconds since the epoch. ``how`` is what decides which
    objects are read: with another value the mark says nothing."""

    mark: str
    all_at: float
    how: str


class FileState(NamedTuple):
    """The state of a file up to which everything was read, or acknowledged as not read. ``mark`` is None when its
    content could not be read."""

    size: int
    mtime_ns: int
    ctime_ns: int | None
    mark: Mark | None


def shown_path(path: str) -> str:
    """The path of the user's file for a row's path."""
    return path if storage.names_object(path) else path.partition(_PIECE)[0]


def is_retired(path: str) -> bool:
    """Return whether another file has taken the name of the file with this row's path."""
    return _RETIRED in path.removeprefix(shown_path(path))


def _is_piece(path: str) -> bool:
    """Return whether a row's path is not that of a whole file."""
    return shown_path(path) != path


def piece_path(path: str, number: int) -> str:
    """The row's path of the ``number``-th piece after the first of the file ``path``."""
    return f"{path}{_PIECE}{number:08d}"


def piece_number(path: str) -> int:
    """The number of the piece with this row's path; 0 for the first piece and for a whole file."""
    return int(path.removeprefix(shown_path(path)).removeprefix(_PIECE) or 0)


def open_ledger(
    paths: PipelinePaths, *, read_only: bool = False, create: bool = False, lease: Lease | None = None
) -> Ledger:
    """Open the ledger of a pipeline; create it when the pipeline has never run. ``read_only`` (plan, status) creates no
    file.

    A writer holds the ``lease``, whose token is noted in the ledger. Once another token is noted there, each change
    fails with TryAgainError LEASE_LOST and is undone.

    Raises DisagreementError LEDGER_INCOMPLETE when files were taken and there is no ledger, or an older copy than the
    last publish saw (``create``, for repair only, accepts both), LEDGER_UNREADABLE when it is damaged or of another
    version.
    """
    path = paths.ledger
    noted = read_published(paths)
    least = 0 if create or noted is None else noted.ledger_last_id
    try:
        exists = path.stat().st_size > 0
    except FileNotFoundError:
        exists = False
    if not exists and not create and (least or (paths.checkpoint / "metadata").exists()):
        raise _incomplete(paths, "is gone")
    if not exists and read_only:
        return Ledger(paths, ":memory:", writes=False)
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(paths, str(path), writes=not read_only, lease=lease)
    if (last := ledger.last_id()) < least:
        ledger.close()
        raise _incomplete(paths, f"ends at number {last}; the last publish saw {least}, so an older copy was restored")
    return ledger


def _incomplete(paths: PipelinePaths, state: str) -> DisagreementError:
    path = paths.ledger
    return errors.LEDGER_INCOMPLETE(where=str(path), pipeline=paths.name, state=state, path=path.name)


class Ledger(LedgerFile):
    """An open ledger, see :func:`open_ledger`. Not thread-safe. As a context manager it closes itself."""

    # -- queries --

    def _select(self, sql: str, *values: object) -> list[_Row]:
        with self._named_errors():
            return self._db.execute(sql, values).fetchall()

    def _select_some(self, sql: str, values: Sequence[object], wanted: Sequence[object]) -> Iterator[_Row]:
        """Yield the rows of ``sql``, where ``IN ()`` is completed with the ``wanted`` values."""
        for some in _chunks(wanted):
            yield from self._select(sql.replace("IN ()", f"IN ({_marks(some)})"), *values, *some)

    def known(self, source: str, paths: Sequence[str]) -> dict[str, LedgerRow]:
        """Return the rows of those ``paths`` that were taken before."""
        sql = f"SELECT {_COLUMNS} FROM files WHERE source = ? AND path IN ()"
        rows = map(_row, self._select_some(sql, [source], [os.fsencode(path) for path in paths]))
        return {row.path: row for row in rows}

    def known_states(self, source: str, paths: Sequence[str]) -> dict[str, KnownState]:
        """Return the states of those ``paths`` that were taken before.

        An idle tick needs these of each file in the folder.
        """
        sql = "SELECT path, size, mtime_ns, ctime_ns, vanished FROM files WHERE source = ? AND path IN ()"
        names = {os.fsencode(path): path for path in paths}
        found = self._select_some(sql, [source], [*names])
        return {names[path]: (size, mtime_ns, ctime_ns, place) for path, size, mtime_ns, ctime_ns, place in found}

    def last_rows(self, source: str, paths: Sequence[str]) -> dict[str, LedgerRow]:
        """Return the newest row of each of those ``paths``: its last piece, or the file itself."""
        rows = self.known(source, paths)
        sql = f"SELECT {_COLUMNS} FROM files WHERE source = ? AND path > ? AND path < ? ORDER BY path DESC LIMIT 1"
        for path in rows:
            if storage.names_object(path):
                continue  # has no pieces, and another object may have a name like that of one
            above = os.fsencode(path)
            # Paths of pieces are between these two; retired paths are after them.
            for found in self._select(sql, source, above + b"//", above + b"//:"):
                rows[path] = _row(found)
        return rows

    def start_of(self, source: str) -> Start | None:
        """Return the start of a source; None before the first look at it."""
        for found in self._select("SELECT start, at, files, bytes, told FROM starts WHERE source = ?", source):
            return Start(*found)
        # `start: all` passes over nothing and has no row: taken files show that the source was looked at.
        has_read = self._select("SELECT 1 FROM files WHERE source = ? LIMIT 1", source)
        return Start("all", "", 0, 0, reported=1) if has_read else None

    def listed(self, source: str) -> Listed | None:
        """Return how far a source was listed; None when that was never noted."""
        if not self._select("SELECT 1 FROM sqlite_master WHERE name = 'listed'"):
            return None
        for mark, *others in self._select("SELECT mark, all_at, how FROM listed WHERE source = ?", source):
            return Listed(os.fsdecode(mark), *others)
        return None

    def noted_rows(self) -> list[LedgerRow]:
        """Return files that changed after they were read, as the last run saw them, and are not acknowledged."""
        sql = f"SELECT {_COLUMNS} FROM files WHERE noted_size IS NOT NULL ORDER BY source, path"
        return list(map(_row, self._select(sql)))

    def acknowledged(self, row: LedgerRow) -> FileState | None:
        """Return the last acknowledged change of this row's file, if no further piece of it was taken since."""
        sql = (
            "SELECT size, mtime_ns, ctime_ns, mark_size, mark FROM acknowledged WHERE source = ? AND path = ? "
            "ORDER BY id DESC LIMIT 1"
        )
        for size, mtime_ns, ctime_ns, mark_size, mark in self._select(sql, row.source, os.fsencode(row.path)):
            return FileState(size, mtime_ns, ctime_ns, None if mark is None else Mark(mark_size, mark))
        return None

    def rows(
        self, source: str | None = None, *, state: State | None = None, links: Sequence[str] | None = None
    ) -> list[LedgerRow]:
        """Return rows in the order they were taken, of one source, in one state, or of some links."""
        conditions, values = ["1"], list[object]()
        if source is not None:
            conditions, values = [*conditions, "source = ?"], [*values, source]
        if state is not None:
            # The literal lets SQLite use the partial index.
            conditions.append(f"state = {_STATES.index(state)}")
        sql = f"SELECT {_COLUMNS} FROM files WHERE {' AND '.join(conditions)}"
        if links is None:
            return list(map(_row, self._select(f"{sql} ORDER BY id", *values)))
        return list(map(_row, self._select_some(f"{sql} AND link IN () ORDER BY id", values, links)))

    def batches_of(self, source: str, links: Sequence[str]) -> dict[str, tuple[str | None, int | None]]:
        """Return the query and the batch of those ``links`` that the ledger knows; None for files in no staged
        batch."""
        sql = "SELECT link, query_id, batch_id FROM files WHERE source = ? AND link IN ()"
        return {link: (query, batch) for link, query, batch in self._select_some(sql, [source], links)}

    def waiting(self, source: str) -> list[LedgerRow]:
        """Return the rows that no batch has staged yet, in the order of batches: the oldest files first."""
        return sorted(self.rows(source, state="linked"), key=lambda row: row.changed_at)

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return whether any file was taken in that batch. Searches the newest files first."""
        sql = "SELECT 1 FROM files WHERE query_id = ? AND batch_id = ? ORDER BY id DESC LIMIT 1"
        return bool(self._select(sql, query_id, batch_id))

    def last_id(self) -> int:
        """The number of the file that was taken last, 0 before the first. It never decreases."""
        found = self._select("SELECT seq FROM sqlite_sequence WHERE name = 'files'")
        return int(found[0][0]) if found else 0

    def count_present(self, source: str) -> int:
        """Count the files that were taken and not reported as vanished."""
        [[count]] = self._select("SELECT count(*) FROM files WHERE source = ? AND vanished = 0", source)
        return int(count)

    def query_ids(self) -> list[str]:
        """Return the ids of all queries that took files."""
        found = self._select("SELECT DISTINCT query_id FROM files WHERE query_id IS NOT NULL")
        return [query for (query,) in found]

    def any_link(self, source: str) -> str | None:
        """Return a link that is in the intake now, or None."""
        found = self._select("SELECT link FROM files WHERE has_link = 1 AND source = ? LIMIT 1", source)
        return found[0][0] if found else None

    def before_start(self, source: str, at_most: int) -> list[str]:
        """Return the paths of up to ``at_most`` files that existed before a source's start."""
        return self._paths(f"source = ? AND state = {_BEFORE_START} ORDER BY path LIMIT ?", source, at_most)

    def present_paths(self, source: str) -> list[str]:
        """Return the paths that were taken and not reported as vanished."""
        return self._paths("source = ? AND vanished = 0", source)

    def leaving(self, source: str) -> list[str]:
        """Return the paths that a clean-up was about to clear away when it was killed."""
        return self._paths(f"vanished = {_LEAVING} AND source = ?", source)

    def _paths(self, where: str, *values: object) -> list[str]:
        return [os.fsdecode(path) for (path,) in self._select(f"SELECT path FROM files WHERE {where}", *values)]

    def removable_links(self) -> list[tuple[str, str]]:
        """Return the (source, link) pairs of published files whose link is not removed yet."""
        found = self._select(f"SELECT source, link FROM files WHERE has_link = 1 AND state = {_PUBLISHED}")
        return [(source, link) for source, link in found]

    # -- changes of state --

    def _change(self, sql: str, values: Iterable[Sequence[object]]) -> None:
        """Apply ``sql`` to all values, in one transaction."""
        with self._writing():
            self._db.executemany(sql, values)

    def add_links(self, source: str, files: Iterable[NewFile]) -> list[LedgerRow]:
        """Take ``files``: each gets a row and a link name that was never used before.

        A file that was taken before keeps its row, unless maintenance cleared it away: this is then another file of the
        same name. Returns the rows, in the order of ``files``.
        """
        files = list(files)
        taken_at = now_text()
        # In parts, so that no transaction is so long that another process could take this one for suspended.
        for start in range(0, len(files), _FILES_PER_TRANSACTION):
            with self._writing():
                last = self.last_id()
                self._retire(source, [os.fsencode(one.path) for one in files[start : start + _FILES_PER_TRANSACTION]])
                some = enumerate(files[start : start + _FILES_PER_TRANSACTION], start=last + 1)
                self._db.executemany(
                    f"INSERT OR IGNORE {_into(_TAKEN)}",
                    (
                        (*_of_file(file), source, _link_name(file, number), taken_at, _is_piece(file.path))
                        for number, file in some
                    ),
                )
        rows = self.known(source, [file.path for file in files])
        return [rows[file.path] for file in files]

    def _retire(self, source: str, paths: Sequence[bytes]) -> None:
        """Retire the rows of cleared files among ``paths``, so that other files can have these names."""
        for some in _chunks(paths):
            sql = (
                f"SELECT id, path FROM files WHERE source = ? AND state = {_PUBLISHED} AND vanished = {_CLEARED} "
                f"AND path IN ({_marks(some)})"
            )
            for number, path in self._db.execute(sql, (source, *some)).fetchall():
                retired = path + f"{_RETIRED}{number}".encode()
                for table in ("files", "acknowledged"):
                    sql = f"UPDATE {table} SET path = ? WHERE source = ? AND path = ?"
                    self._db.execute(sql, (retired, source, path))

    def take_again(self, rows: Iterable[LedgerRow]) -> None:
        """Take files or pieces again that a run has read, in the ledger of a side job.

        :func:`tidegate.sources.files.intake.restore_links` creates their links.
        """
        self._change(
            f"INSERT OR IGNORE {_into(_TAKEN)}",
            ((*_of_file(row), row.source, row.link, row.taken_at, _is_piece(row.path)) for row in rows),
        )

    def note_start(self, source: str, start: str, files: Sequence[NewFile]) -> None:
        """Record the first look at a source: ``files`` existed before its ``start`` and count as taken.

        One transaction for any number of files: otherwise a second look could take files that came in between for older
        than the start. Later calls change nothing.
        """
        at = now_text()
        with self._writing():
            if self._db.execute("SELECT 1 FROM starts WHERE source = ?", (source,)).fetchone() is not None:
                return
            last = self.last_id()
            self._db.executemany(
                f"INSERT {_into(f'{_TAKEN}, has_link, state')}",
                (
                    # If one of these vanishes, nothing is lost.
                    (*_of_file(file), source, f"{number:010d}-before-start", at, _REPORTED, 0, _BEFORE_START)
                    for number, file in enumerate(files, start=last + 1)
                ),
            )
            self._db.execute(
                "INSERT INTO starts (source, start, at, files, bytes, told) VALUES (?, ?, ?, ?, ?, ?)",
                (source, start, at, len(files), sum(file.size for file in files), not files),
            )

    def hand_over(self, source: str, start: str, files: Sequence[NewFile], *, query_id: str) -> None:
        """Take over what another job has read of a source: ``files`` are in the table, as batch 0 of ``query_id``.

        Files of size 0 are gone. One transaction; may be repeated with more files. It replaces the first look: files
        that exist and are not among ``files`` are new.
        """
        at = now_text()
        with self._writing():
            last = self.last_id()
            self._db.executemany(
                f"INSERT OR IGNORE {_into(f'{_TAKEN}, has_link, state, query_id, batch_id')}",
                (
                    (
                        *(*_of_file(file), source, _link_name(file, number), at, file.size == 0),
                        *(0, _PUBLISHED, query_id, 0),
                    )
                    for number, file in enumerate(files, start=last + 1)
                ),
            )
            self._db.execute(
                "INSERT OR IGNORE INTO starts (source, start, at, files, bytes, told) VALUES (?, ?, ?, 0, 0, 1)",
                (source, start, at),
            )

    def note_start_reported(self, sources: Iterable[str]) -> None:
        """Note that a report names the files from before the start of these sources."""
        self._change("UPDATE starts SET told = 1 WHERE source = ?", ((source,) for source in sources))

    def note_listed(self, source: str, listed: Listed) -> None:
        """Note how far a source was listed."""
        with self._writing():
            # Not in the schema: older ledgers have no such table, and most sources need none.
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS listed "
                "(source TEXT PRIMARY KEY, mark BLOB NOT NULL, all_at REAL NOT NULL, how TEXT NOT NULL)"
            )
            values = (source, os.fsencode(listed.mark), listed.all_at, listed.how)
            self._db.execute("INSERT OR REPLACE INTO listed (source, mark, all_at, how) VALUES (?, ?, ?, ?)", values)

    def note_content(self, source: str, files: Iterable[tuple[str, int, Mark | None]]) -> None:
        """Note the content of linked files: (path, ctime_ns after linking, mark)."""
        self._change(
            f"UPDATE files SET ctime_ns = ?, mark_size = ?, mark = ? WHERE source = ? AND path = ? "
            f"AND state = {_LINKED} AND until IS NULL",
            ((ctime_ns, *(mark or (None, None)), source, os.fsencode(path)) for path, ctime_ns, mark in files),
        )

    def note_same(self, source: str, files: Iterable[tuple[str, int, int, bool]]) -> None:
        """Note files with unchanged content: (row's path, mtime_ns, ctime_ns) as they are now, and whether all of the
        content was compared. A file that was cleared away exists again."""
        self._change(
            "UPDATE files SET mtime_ns = ?, ctime_ns = ?, doubt = doubt OR NOT ?, "
            f"vanished = CASE WHEN vanished = {_CLEARED} THEN {_HERE} ELSE vanished END "
            "WHERE source = ? AND path = ?",
            ((mtime_ns, ctime_ns, sure, source, os.fsencode(path)) for path, mtime_ns, ctime_ns, sure in files),
        )

    def end_whole(self, source: str, paths: Iterable[str]) -> None:
        """End the rows of these files, since further pieces follow: a reread must not read more than they have."""
        self._change(
            f"UPDATE files SET until = size WHERE source = ? AND path = ? AND until IS NULL AND state > {_LINKED}",
            ((source, os.fsencode(path)) for path in paths),
        )

    def drop_linked(self, source: str, paths: Sequence[str]) -> None:
        """Forget files that were taken, never read, and are gone. One that comes back is a new file."""
        self._change(
            f"DELETE FROM files WHERE source = ? AND path = ? AND state = {_LINKED}",
            ((source, os.fsencode(path)) for path in paths),
        )

    def mark_staged(self, source: str, query_id: str, batch_id: int, files: Sequence[TakenFile]) -> None:
        """Mark the files of one staged batch, as its manifest lists them.

        Idempotent, and adds missing rows, so the state can be restored from the manifests. Rows of other batches do not
        change.
        """
        taken_at = now_text()
        mine = (query_id, batch_id)
        with self._writing():
            sql = f"SELECT path FROM files WHERE state = {_STAGED} AND query_id = ? AND batch_id = ? AND source = ?"
            if {path for (path,) in self._db.execute(sql, (*mine, source))} == {os.fsencode(f["path"]) for f in files}:
                return  # each step of a run calls this again
            self._db.executemany(
                f"INSERT OR IGNORE {_into(_TAKEN)}",
                ((*_of_file(_as_new(f)), source, f["link"], taken_at, _is_piece(f["path"])) for f in files),
            )
            self._db.executemany(
                # A change between linking and reading was read: the ctime from before is then useless.
                f"UPDATE files SET state = {_STAGED}, query_id = ?1, batch_id = ?2, "
                "ctime_ns = CASE WHEN size = ?3 AND mtime_ns = ?4 OR until IS NOT NULL THEN ctime_ns END, "
                f"size = ?3, mtime_ns = ?4 WHERE source = ?5 AND path = ?6 AND state = {_LINKED}",
                ((*mine, f["size"], f["mtime_ns"], source, os.fsencode(f["path"])) for f in files),
            )

    def mark_published(self, query_id: str, up_to_batch_id: int) -> None:
        """Mark batches up to ``up_to_batch_id`` (inclusive) as published: they are in the table, or were discarded."""
        with self._writing():
            self._db.execute(
                f"UPDATE files SET state = {_PUBLISHED} WHERE state = {_STAGED} AND query_id = ? AND batch_id <= ?",
                (query_id, up_to_batch_id),
            )

    def move_to_batch(self, source: str, query_id: str, batch_id: int, links: Sequence[str]) -> None:
        """Assign these published links to ``batch_id`` of another query, which has read and published them again."""
        sql = f"UPDATE files SET query_id = ?, batch_id = ? WHERE source = ? AND link = ? AND state = {_PUBLISHED}"
        self._change(sql, ((query_id, batch_id, source, link) for link in links))

    def forget_links(self, links: Iterable[str]) -> None:
        """Note that these links of published files are removed."""
        sql = f"UPDATE files SET has_link = 0 WHERE link = ? AND state = {_PUBLISHED}"
        self._change(sql, ((link,) for link in links))

    def return_to_linked(self, last_published: Mapping[str, int]) -> None:
        """For repair: return files of batches that are not in the table to the state linked, to be read again.

        ``last_published`` is {query id: its last batch in the table's log, -1 for none}. Files of other queries, which
        came later, do not change. :func:`tidegate.sources.files.intake.restore_links` creates the links again.
        """
        with self._writing():
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS settled (query_id TEXT PRIMARY KEY, batch_id INTEGER)")
            self._db.execute("DELETE FROM settled")
            self._db.executemany("INSERT INTO settled VALUES (?, ?)", last_published.items())
            found = self._db.execute(
                "SELECT id, path FROM files JOIN settled USING (query_id) "
                f"WHERE state > {_LINKED} AND files.batch_id > settled.batch_id "
                "ORDER BY id"
            ).fetchall()
            self._db.executemany(
                f"UPDATE files SET state = {_LINKED}, query_id = NULL, batch_id = NULL, has_link = 1, "
                # A change of a whole file is read now, or found again; a piece keeps its end.
                "noted_size = CASE WHEN until IS NOT NULL THEN noted_size END, "
                "noted_mtime_ns = CASE WHEN until IS NOT NULL THEN noted_mtime_ns END, "
                "vanished = ? WHERE id = ?",  # a piece does not vanish
                [(_is_piece(os.fsdecode(path)), number) for number, path in found],
            )

    def relink(self, source: str, links: Iterable[tuple[str, str, str]]) -> None:
        """Give pending files another link: (row's path, old link, new link)."""
        self._change(
            f"UPDATE files SET link = ?3 WHERE source = ?4 AND path = ?1 AND link = ?2 AND state = {_LINKED}",
            ((os.fsencode(path), before, after, source) for path, before, after in links),
        )

    # -- reported changes --

    def note_changed(self, source: str, changes: Iterable[tuple[str, int, int, str, int]]) -> None:
        """Note changes that the report names: (row's path, size, mtime_ns, how, unread bytes). Only a further change is
        reported again; each is open until it is acknowledged."""
        self._change(
            "UPDATE files SET noted_size = ?, noted_mtime_ns = ?, noted_how = ?, noted_unread = ? "
            "WHERE source = ? AND path = ?",
            ((size, mtime_ns, how, unread, source, os.fsencode(path)) for path, size, mtime_ns, how, unread in changes),
        )

    def acknowledge(
        self, source: str, changes: Iterable[tuple[str, FileState, str, int]], *, who: str, reason: str
    ) -> None:
        """Acknowledge these changes (row's path, state of the file, how, unread bytes): they are no longer open."""
        at = now_text()
        with self._writing():
            for path, now, how, unread in changes:
                key = os.fsencode(path)
                self._db.execute(
                    "INSERT INTO acknowledged (source, path, size, mtime_ns, ctime_ns, mark_size, mark, how, unread, "
                    f"at, who, reason) VALUES ({_marks(range(12))})",
                    (source, key, *now[:3], *(now.mark or (None, None)), how, unread, at, who, reason),
                )
                self._db.execute(_CLOSE_NOTED, (source, key))

    def close_noted(self, source: str, paths: Iterable[str]) -> None:
        """Close the reported changes of these files: they are read by now, or undone."""
        self._change(_CLOSE_NOTED, ((source, os.fsencode(path)) for path in paths))

    def note_place(self, source: str, paths: Iterable[str], place: Place) -> None:
        """Note where these files are. Once "reported", an absence is not reported again; once a file is "cleared", a
        file with its name is another one."""
        sql = "UPDATE files SET vanished = ? WHERE source = ? AND path = ?"
        self._change(sql, ((_PLACES.index(place), source, os.fsencode(path)) for path in paths))


def _row(values: _Row) -> LedgerRow:
    path, size, mtime_ns, begin, until, line_offset, lines, ctime_ns, mark_size, mark = values[:10]
    source, link, state, query_id, batch_id, taken_at, place = values[10:17]
    noted_size, noted_mtime_ns, noted_how, noted_unread, doubt = values[17:]
    return LedgerRow(
        *(os.fsdecode(path), size, mtime_ns, begin, until, line_offset, lines, ctime_ns),
        None if mark is None else Mark(mark_size, mark),
        *(source, link, _STATES[state], query_id, batch_id, taken_at, _PLACES[place]),
        None if noted_size is None else (noted_size, noted_mtime_ns),
        *(noted_how, noted_unread, bool(doubt)),
    )


def _into(columns: str) -> str:
    """The end of an INSERT of files: values as :func:`_of_file` returns them, then those of ``columns``."""
    names = f"{_OF_FILE}, {columns}"
    return f"INTO files ({names}) VALUES ({_marks(names.split(','))})"


def _of_file(file: NewFile | LedgerRow) -> tuple[object, ...]:
    stamps = (os.fsencode(file.path), file.size, file.mtime_ns)
    return (*stamps, file.begin, file.until, file.line_offset, file.lines, file.ctime_ns, *(file.mark or (None, None)))


def _as_new(file: TakenFile) -> NewFile:
    whole, piece = NewFile(file["path"], file["size"], file["mtime_ns"], ""), file.get("piece")
    return whole if piece is None else whole._replace(**piece)


def _link_name(file: NewFile, sequence: int) -> str:
    # The random part makes the name unique, even when a ledger was lost: Spark never reads a name twice.
    name = f"{sequence:010d}-{file.token or secrets.token_hex(4)}{link_suffix(shown_path(file.path))}"
    return f"{file.folder}/{name}" if file.folder else name


def link_suffix(path: str) -> str:
    """The last suffix of a file, for the name of its link; "" when it has no plain one.

    Hadoop finds the compression by it, in lower case only. The rest of a user's name may hold characters of Spark's
    patterns.
    """
    suffix = _SUFFIX.search(os.path.basename(path))
    return suffix[0].lower() if suffix else ""


def _chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
