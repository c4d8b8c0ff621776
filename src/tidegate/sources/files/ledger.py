"""The ledger of a pipeline's file sources: which files were taken, under which link, and how far each one got.

One SQLite file, ``state/<name>/ledger.sqlite``. A row is written before the link it names, so a file is never in the
intake (:mod:`tidegate.sources.files.intake`) without being known. A row's way::

    linked ──mark_staged──> staged (query id, batch id) ──mark_published──> published ──forget_links──> link removed
       ^─────────────────────── untake (repair) ────────────────────────────────┘
     relink                                    hand_over (adopt) ──> published, without a link

A file that was there before the source's ``start`` gets a row of its own state, and never a link.

Of a file that lines are appended to (``on_change: reread_tail``) each further piece has a row of its own, whose path is
that of the file with the piece's number behind two slashes, which no path of a file has.

A file that maintenance cleared away keeps its row, and one that is put back is known by it. When another file takes the
name, and is taken, the row before it is retired: its path gets its number behind two slashes and a tilde.

Every call may be repeated; all but :meth:`Ledger.add_links` of very many files are one transaction. Paths
are relative to the project root when inside it, else absolute, and are kept as bytes, since a file name need not be
Unicode.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from tidegate.core.errors import catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.sources.files.content import Mark
from tidegate.sources.files.ledger_file import HoldsLease, LedgerFile
from tidegate.state.manifest import Piece, TakenFile
from tidegate.state.published import read_published

State = Literal["linked", "staged", "published", "before_start"]
_T = TypeVar("_T")

_STATES: tuple[State, ...] = ("linked", "staged", "published", "before_start")
_LINKED, _STAGED, _PUBLISHED, _BEFORE_START = range(4)
_HERE, _REPORTED, _CLEARED, _LEAVING = range(4)
_CHUNK = 900
_FILES_PER_TRANSACTION = 50_000
_COLUMNS = (
    "source, path, size, mtime_ns, link, state, query_id, batch_id, taken_at, vanished, noted_size, noted_mtime_ns, "
    "begin, until, line_offset, lines, ctime_ns, mark_size, mark, noted_how, noted_unread, doubt"
)
_PIECE = "//"
_RETIRED = "//~"
_WHOLE = {"begin": 0, "until": None, "line_offset": 0, "lines": None}
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,16}$")


class LinkedFile(TypedDict):
    """The file behind a link, as an order names it; of a piece of a file ``file`` is that file's own path."""

    path: str
    size: int
    mtime_ns: int
    file: NotRequired[str]
    piece: NotRequired[Piece]


class LedgerRow(NamedTuple):
    """One file that was taken, or a piece of one. ``link`` is relative to the source's intake folder; ``noted`` is the
    (size, mtime_ns) of the last change that was reported and not acknowledged, ``vanished`` whether its absence was, or
    is ours: ``is_cleared`` by maintenance, or ``is_leaving``, when that was killed. With ``doubt`` its content may be
    another than was read.

    ``begin`` and ``until`` (None: all there was) are the bytes of the file that were copied into the intake,
    ``line_offset`` what is to be added to a line's number in the copy, ``lines`` how many lines end before ``until``.
    """

    source: str
    path: str
    size: int
    mtime_ns: int
    link: str
    state: State
    query_id: str | None
    batch_id: int | None
    taken_at: str
    vanished: bool
    noted: tuple[int, int] | None
    begin: int = 0
    until: int | None = None
    line_offset: int = 0
    lines: int | None = None
    ctime_ns: int | None = None
    mark: Mark | None = None
    noted_how: str | None = None
    noted_unread: int | None = None
    doubt: bool = False
    is_cleared: bool = False
    is_leaving: bool = False

    @property
    def piece(self) -> Piece | None:
        """What a manifest keeps of a piece; None for all of a file."""
        if self.until is None:
            return None
        return {"begin": self.begin, "until": self.until, "line_offset": self.line_offset, "lines": self.lines}

    @property
    def linked_file(self) -> LinkedFile:
        """What is behind the link."""
        found: LinkedFile = {"path": self.path, "size": self.size, "mtime_ns": self.mtime_ns}
        if self.piece is not None:
            found["file"], found["piece"] = shown_path(self.path), self.piece
        return found

    @property
    def read_until(self) -> int:
        """How many bytes of the file were read, from its beginning."""
        return self.size if self.until is None else self.until


class NewFile(NamedTuple):
    """A file to take: what :meth:`Ledger.add_links` writes down. ``folder`` is "" or the link's ``k=v/...`` folder.

    The others are of a piece that was copied: ``token`` is part of its link's name.
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
    """How a source began: ``start`` as the spec said it then, when that was, and what was there and counts as taken."""

    start: str
    at: str
    files: int
    bytes: int
    told: int


class Acknowledged(NamedTuple):
    """A change that a person has acknowledged: the file's state then; ``mark`` is None where it could not be read."""

    size: int
    mtime_ns: int
    ctime_ns: int | None
    mark: Mark | None


def shown_path(path: str) -> str:
    """The user's file behind a row's path."""
    return path.partition(_PIECE)[0]


def is_retired(path: str) -> bool:
    """Whether the row of this path is of a file whose name another file has by now."""
    return _RETIRED in path


def piece_path(path: str, number: int) -> str:
    """The row's path of the ``number``-th piece that was taken of file ``path`` after the first."""
    return f"{path}{_PIECE}{number:08d}"


def piece_number(path: str) -> int:
    """Which piece a row's path speaks of; 0 for the first, or for all of a file."""
    return int(path.partition(_PIECE)[2] or 0)


def open_ledger(
    paths: PipelinePaths, *, read_only: bool = False, create: bool = False, lease: HoldsLease | None = None
) -> Ledger:
    """The ledger of a pipeline; made when the pipeline has never run. ``read_only`` (plan, status) makes no file.

    Who writes holds the ``lease``: its token is noted in the ledger, and once somebody has noted another one, each
    change fails with TryAgainError LEASE_LOST and is undone.

    Raises DisagreementError LEDGER_MISSING when files were taken and there is no ledger, LEDGER_BEHIND when it is an
    older copy than the last publish saw (``create`` makes or takes one anyway: repair only), LEDGER_UNREADABLE
    when it is damaged or of another version.
    """
    path = paths.ledger
    noted = read_published(paths)
    least = 0 if create or noted is None else noted.ledger_last_id
    try:
        exists = path.stat().st_size > 0
    except FileNotFoundError:
        exists = False
    if not exists and not create and (least or (paths.checkpoint / "metadata").exists()):
        raise catalogue.LEDGER_MISSING(where=str(path), pipeline=paths.name, path=path.name)
    if not exists and read_only:
        return Ledger(paths, ":memory:", writes=False)
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(paths, str(path), writes=not read_only, lease=lease)
    if (last := ledger.last_id()) < least:
        ledger.close()
        raise catalogue.LEDGER_BEHIND(where=str(path), pipeline=paths.name, last=last, least=least, path=path.name)
    return ledger


class Ledger(LedgerFile):
    """An open ledger; made by :func:`open_ledger`. Not for use in several threads. A context manager closes it."""

    # -- what is known --

    def known(self, source: str, paths: Sequence[str]) -> dict[str, LedgerRow]:
        """The rows of those ``paths`` that were taken before."""
        rows: dict[str, LedgerRow] = {}
        with self._named_errors():
            for some in _chunks([os.fsencode(path) for path in paths]):
                sql = f"SELECT {_COLUMNS} FROM files WHERE source = ? AND path IN ({_marks(some)})"
                for row in map(_row, self._db.execute(sql, (source, *some))):
                    rows[row.path] = row
        return rows

    def known_states(self, source: str, paths: Sequence[str]) -> dict[str, tuple[int, int, int | None, bool]]:
        """(size, mtime_ns, ctime_ns, whether its absence was reported) of those ``paths`` that were taken before: what
        an idle tick asks of each file in the folder."""
        states: dict[str, tuple[int, int, int | None, bool]] = {}
        with self._named_errors():
            for some in _chunks([os.fsencode(path) for path in paths]):
                sql = (
                    "SELECT path, size, mtime_ns, ctime_ns, vanished FROM files "
                    f"WHERE source = ? AND path IN ({_marks(some)})"
                )
                for path, size, mtime_ns, ctime_ns, vanished in self._db.execute(sql, (source, *some)):
                    states[os.fsdecode(path)] = (size, mtime_ns, ctime_ns, vanished)
        return states

    def last_rows(self, source: str, paths: Sequence[str]) -> dict[str, LedgerRow]:
        """The newest row of each of those ``paths``: its last piece, or the file itself."""
        rows = self.known(source, paths)
        with self._named_errors():
            sql = f"SELECT {_COLUMNS} FROM files WHERE source = ? AND path > ? AND path < ? ORDER BY path DESC LIMIT 1"
            for path in rows:
                above = os.fsencode(path)
                # All that have a number behind two slashes lie between; what is retired lies behind.
                found = self._db.execute(sql, (source, above + b"//", above + b"//:")).fetchone()
                if found is not None:
                    rows[path] = _row(found)
        return rows

    def start_of(self, source: str) -> Start | None:
        """How a source began; None before its first look."""
        with self._named_errors():
            sql = "SELECT start, at, files, bytes, told FROM starts WHERE source = ?"
            if (found := self._db.execute(sql, (source,)).fetchone()) is not None:
                return Start(*found)
            # Of `start: all`, which leaves nothing out, the files themselves tell.
            has_read = self._db.execute("SELECT 1 FROM files WHERE source = ? LIMIT 1", (source,)).fetchone()
        return None if has_read is None else Start("all", "", 0, 0, told=1)

    def before_start(self, source: str, at_most: int) -> list[str]:
        """Paths, ``at_most`` so many, of the files that were there before a source's start."""
        with self._named_errors():
            sql = f"SELECT path FROM files WHERE source = ? AND state = {_BEFORE_START} ORDER BY path LIMIT ?"
            return [os.fsdecode(path) for (path,) in self._db.execute(sql, (source, at_most))]

    def noted_rows(self) -> list[LedgerRow]:
        """Files that changed after they were read, as the last run saw them, until they are acknowledged."""
        with self._named_errors():
            sql = f"SELECT {_COLUMNS} FROM files WHERE noted_size IS NOT NULL ORDER BY source, path"
            return list(map(_row, self._db.execute(sql)))

    def acknowledged(self, row: LedgerRow) -> Acknowledged | None:
        """The last change of this row's file that was acknowledged, if no further piece of it was taken since."""
        with self._named_errors():
            sql = (
                "SELECT size, mtime_ns, ctime_ns, mark_size, mark FROM acknowledged WHERE source = ? AND path = ? "
                "ORDER BY id DESC LIMIT 1"
            )
            found = self._db.execute(sql, (row.source, os.fsencode(row.path))).fetchone()
        if found is None:
            return None
        size, mtime_ns, ctime_ns, mark_size, mark = found
        return Acknowledged(size, mtime_ns, ctime_ns, None if mark is None else Mark(mark_size, mark))

    def rows(
        self, source: str | None = None, *, state: State | None = None, links: Sequence[str] | None = None
    ) -> list[LedgerRow]:
        """Rows in the order they were taken, of one source, in one state, or of some links."""
        conditions, values = ["1"], list[object]()
        if source is not None:
            conditions, values = [*conditions, "source = ?"], [*values, source]
        if state is not None:
            # The literal lets SQLite use the partial index.
            conditions.append(f"state = {_STATES.index(state)}")
        where = " AND ".join(conditions)
        with self._named_errors():
            if links is None:
                return list(
                    map(_row, self._db.execute(f"SELECT {_COLUMNS} FROM files WHERE {where} ORDER BY id", values))
                )
            found: list[LedgerRow] = []
            for some in _chunks(links):
                sql = f"SELECT {_COLUMNS} FROM files WHERE {where} AND link IN ({_marks(some)}) ORDER BY id"
                found += map(_row, self._db.execute(sql, (*values, *some)))
            return found

    def batches_of(self, source: str, links: Sequence[str]) -> dict[str, tuple[str | None, int | None]]:
        """The query and the batch of those ``links`` that the ledger knows, None of what no batch has staged yet."""
        batches: dict[str, tuple[str | None, int | None]] = {}
        with self._named_errors():
            for some in _chunks(links):
                sql = f"SELECT link, query_id, batch_id FROM files WHERE source = ? AND link IN ({_marks(some)})"
                batches |= {link: (query, batch) for link, query, batch in self._db.execute(sql, (source, *some))}
        return batches

    def waiting(self, source: str) -> list[LedgerRow]:
        """Rows of what no batch has staged yet, in the order in which batches take them: the oldest files first."""
        return sorted(self.rows(source, state="linked"), key=lambda row: row.mtime_ns)

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Whether any file was taken in that batch. Looks at the newest files first."""
        with self._named_errors():
            sql = "SELECT 1 FROM files WHERE query_id = ? AND batch_id = ? ORDER BY id DESC LIMIT 1"
            return self._db.execute(sql, (query_id, batch_id)).fetchone() is not None

    def last_id(self) -> int:
        """The number of the file taken last; it never goes down. 0 before the first."""
        with self._named_errors():
            row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'files'").fetchone()
        return int(row[0]) if row else 0

    def count_present(self, source: str) -> int:
        """How many files were taken and not reported as vanished."""
        with self._named_errors():
            sql = "SELECT count(*) FROM files WHERE source = ? AND vanished = 0"
            return int(self._db.execute(sql, (source,)).fetchone()[0])

    def query_ids(self) -> list[str]:
        """Every query that took files."""
        with self._named_errors():
            return [str(query) for (query,) in self._db.execute("SELECT DISTINCT query_id FROM files") if query]

    def present_paths(self, source: str) -> list[str]:
        """The paths that were taken and not reported as vanished."""
        with self._named_errors():
            sql = "SELECT path FROM files WHERE source = ? AND vanished = 0"
            return [os.fsdecode(path) for (path,) in self._db.execute(sql, (source,))]

    def any_link(self, source: str) -> str | None:
        """A link that is in the intake now, or None."""
        with self._named_errors():
            sql = "SELECT link FROM files WHERE has_link = 1 AND source = ? LIMIT 1"
            row = self._db.execute(sql, (source,)).fetchone()
        return row[0] if row else None

    # -- the way of a file --

    def add_links(self, source: str, files: Iterable[NewFile]) -> list[LedgerRow]:
        """Take ``files``: a row and a link name, never used before, for each; one that was taken before keeps its row,
        unless maintenance has cleared that file away: this is another one under its name.

        Returns the rows, in the order of ``files``.
        """
        files = list(files)
        taken_at = now_text()
        # A piece does not vanish: the file does.
        sql = (
            "INSERT OR IGNORE INTO files (source, path, size, mtime_ns, link, taken_at, vanished, begin, until, "
            f"line_offset, lines, ctime_ns, mark_size, mark) VALUES ({_marks(range(14))})"
        )
        # In parts, so that no transaction lasts so long that another process could take this one for frozen.
        for start in range(0, len(files), _FILES_PER_TRANSACTION):
            with self._writing():
                last = self.last_id()
                self._retire(source, [os.fsencode(one.path) for one in files[start : start + _FILES_PER_TRANSACTION]])
                some = enumerate(files[start : start + _FILES_PER_TRANSACTION], start=last + 1)
                self._db.executemany(
                    sql,
                    (
                        (
                            *(source, os.fsencode(file.path), file.size, file.mtime_ns, _link_name(file, number)),
                            *(taken_at, _PIECE in file.path, file.begin, file.until, file.line_offset, file.lines),
                            *(file.ctime_ns, *(file.mark or (None, None))),
                        )
                        for number, file in some
                    ),
                )
        rows = self.known(source, [file.path for file in files])
        return [rows[file.path] for file in files]

    def _retire(self, source: str, paths: Sequence[bytes]) -> None:
        """The rows of cleared files among ``paths`` leave these names to others."""
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
        """In the ledger of a job beside the runs: files, or pieces, that a run has read are to be read once more, each
        under a link of its own. :func:`tidegate.sources.files.intake.restore_links` makes the links."""
        sql = (
            "INSERT OR IGNORE INTO files (source, path, size, mtime_ns, link, taken_at, vanished, begin, until, "
            f"line_offset, lines, ctime_ns, mark_size, mark) VALUES ({_marks(range(14))})"
        )
        with self._writing():
            self._db.executemany(
                sql,
                (
                    (
                        *(row.source, os.fsencode(row.path), row.size, row.mtime_ns, row.link, row.taken_at),
                        *(_PIECE in row.path, row.begin, row.until, row.line_offset, row.lines, row.ctime_ns),
                        *(row.mark or (None, None)),
                    )
                    for row in rows
                ),
            )

    def note_start(self, source: str, start: str, files: Sequence[NewFile]) -> None:
        """The first look at a source: ``files`` were there before its ``start`` and count as taken.

        One transaction, whatever their number: in parts, a second look would take what came in between for older than
        the start. The first look stands.
        """
        at = now_text()
        with self._writing():
            if self._db.execute("SELECT 1 FROM starts WHERE source = ?", (source,)).fetchone() is not None:
                return
            last = self.last_id()
            self._db.executemany(
                # If one of these vanishes, nothing is lost: nobody waits for it.
                "INSERT INTO files (source, path, size, mtime_ns, link, has_link, state, taken_at, vanished, until, "
                f"ctime_ns, mark_size, mark) VALUES (?, ?, ?, ?, ?, 0, {_BEFORE_START}, ?, 1, ?, ?, ?, ?)",
                (
                    (
                        *(source, os.fsencode(file.path), file.size, file.mtime_ns, f"{number:010d}-before-start", at),
                        *(file.until, file.ctime_ns, *(file.mark or (None, None))),
                    )
                    for number, file in enumerate(files, start=last + 1)
                ),
            )
            self._db.execute(
                "INSERT INTO starts (source, start, at, files, bytes, told) VALUES (?, ?, ?, ?, ?, ?)",
                (source, start, at, len(files), sum(file.size for file in files), not files),
            )

    def hand_over(self, source: str, start: str, files: Sequence[NewFile], *, query_id: str) -> None:
        """Take over what another job has read of a source: ``files`` were read and are in the table, as batch 0 of
        ``query_id``. Those of size 0 are gone. One transaction; may be repeated with more files.

        It takes the place of a first look: what is there and not among ``files`` is new.
        """
        at = now_text()
        with self._writing():
            last = self.last_id()
            self._db.executemany(
                "INSERT OR IGNORE INTO files (source, path, size, mtime_ns, link, has_link, state, query_id, batch_id, "
                f"taken_at, vanished, until, ctime_ns, mark_size, mark) "
                f"VALUES (?, ?, ?, ?, ?, 0, {_PUBLISHED}, ?, 0, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        *(source, os.fsencode(file.path), file.size, file.mtime_ns, _link_name(file, number)),
                        *(query_id, at, file.size == 0, file.until, file.ctime_ns, *(file.mark or (None, None))),
                    )
                    for number, file in enumerate(files, start=last + 1)
                ),
            )
            self._db.execute(
                "INSERT OR IGNORE INTO starts (source, start, at, files, bytes, told) VALUES (?, ?, ?, 0, 0, 1)",
                (source, start, at),
            )

    def note_start_told(self, sources: Iterable[str]) -> None:
        """A report names what was there before the start of these sources."""
        with self._writing():
            self._db.executemany("UPDATE starts SET told = 1 WHERE source = ?", ((source,) for source in sources))

    def note_content(self, source: str, files: Iterable[tuple[str, int, Mark | None]]) -> None:
        """What was linked: (path, ctime_ns once it was, mark)."""
        with self._writing():
            self._db.executemany(
                f"UPDATE files SET ctime_ns = ?, mark_size = ?, mark = ? WHERE source = ? AND path = ? "
                f"AND state = {_LINKED} AND until IS NULL",
                ((ctime_ns, *(mark or (None, None)), source, os.fsencode(path)) for path, ctime_ns, mark in files),
            )

    def note_same(self, source: str, files: Iterable[tuple[str, int, int, bool]]) -> None:
        """Files whose content is what was read: (row's path, mtime_ns, ctime_ns) as they are now, and whether all of it
        was compared. One that was cleared away is there again."""
        with self._writing():
            self._db.executemany(
                "UPDATE files SET mtime_ns = ?, ctime_ns = ?, doubt = doubt OR NOT ?, "
                f"vanished = CASE WHEN vanished = {_CLEARED} THEN {_HERE} ELSE vanished END "
                "WHERE source = ? AND path = ?",
                ((mtime_ns, ctime_ns, sure, source, os.fsencode(path)) for path, mtime_ns, ctime_ns, sure in files),
            )

    def end_whole(self, source: str, paths: Iterable[str]) -> None:
        """Further pieces follow what was read of these files: should it be read again, then no more than that."""
        with self._writing():
            self._db.executemany(
                f"UPDATE files SET until = size WHERE source = ? AND path = ? AND until IS NULL AND state > {_LINKED}",
                ((source, os.fsencode(path)) for path in paths),
            )

    def drop_linked(self, source: str, paths: Sequence[str]) -> None:
        """Forget files that were taken, never read, and are gone; should one come back, it is a new file."""
        with self._writing():
            self._db.executemany(
                f"DELETE FROM files WHERE source = ? AND path = ? AND state = {_LINKED}",
                ((source, os.fsencode(path)) for path in paths),
            )

    def mark_staged(self, source: str, query_id: str, batch_id: int, files: Sequence[TakenFile]) -> None:
        """The files of one staged batch, as its manifest lists them.

        Idempotent, and adds rows that are not there, so the marks can be made again from the manifests. A row that
        belongs to another batch stays as it is.
        """
        taken_at = now_text()
        mine = (query_id, batch_id)
        with self._writing():
            sql = f"SELECT path FROM files WHERE state = {_STAGED} AND query_id = ? AND batch_id = ? AND source = ?"
            if {path for (path,) in self._db.execute(sql, (*mine, source))} == {os.fsencode(f["path"]) for f in files}:
                return  # each step of a run says it again
            self._db.executemany(
                "INSERT OR IGNORE INTO files (source, path, size, mtime_ns, link, taken_at, vanished, begin, until, "
                f"line_offset, lines) VALUES ({_marks(range(11))})",
                (
                    (
                        *(source, os.fsencode(f["path"]), f["size"], f["mtime_ns"], f["link"], taken_at),
                        *(_PIECE in f["path"], *(f.get("piece") or _WHOLE).values()),
                    )
                    for f in files
                ),
            )
            self._db.executemany(
                # A change between linking and reading was read: the ctime from before says nothing then.
                f"UPDATE files SET state = {_STAGED}, query_id = ?1, batch_id = ?2, "
                "ctime_ns = CASE WHEN size = ?3 AND mtime_ns = ?4 OR until IS NOT NULL THEN ctime_ns END, "
                f"size = ?3, mtime_ns = ?4 WHERE source = ?5 AND path = ?6 AND state = {_LINKED}",
                ((*mine, f["size"], f["mtime_ns"], source, os.fsencode(f["path"])) for f in files),
            )

    def mark_published(self, query_id: str, up_to_batch_id: int) -> None:
        """Batches up to ``up_to_batch_id`` (inclusive) are in the table, or were discarded."""
        with self._writing():
            self._db.execute(
                f"UPDATE files SET state = {_PUBLISHED} WHERE state = {_STAGED} AND query_id = ? AND batch_id <= ?",
                (query_id, up_to_batch_id),
            )

    def hand_on(self, source: str, query_id: str, batch_id: int, links: Sequence[str]) -> None:
        """What these published links gave is in the table as ``batch_id`` of another query by now, which has read them
        again."""
        with self._writing():
            sql = f"UPDATE files SET query_id = ?, batch_id = ? WHERE source = ? AND link = ? AND state = {_PUBLISHED}"
            self._db.executemany(sql, ((query_id, batch_id, source, link) for link in links))

    def removable_links(self) -> list[tuple[str, str]]:
        """The (source, link) pairs of published files whose link was not removed yet."""
        with self._named_errors():
            sql = f"SELECT source, link FROM files WHERE has_link = 1 AND state = {_PUBLISHED}"
            return list(self._db.execute(sql))

    def forget_links(self, links: Iterable[str]) -> None:
        """These links of published files are removed."""
        with self._writing():
            sql = f"UPDATE files SET has_link = 0 WHERE link = ? AND state = {_PUBLISHED}"
            self._db.executemany(sql, ((link,) for link in links))

    def untake(self, last_published: Mapping[str, int]) -> None:
        """For repair: files of batches that the table does not have go back to linked, to be read again.

        ``last_published`` is {query id: its last batch in the table's log, -1 for none} of each query to look at: files
        of any other one, which came later, stay as they are. Their links are made again by
        :func:`tidegate.sources.files.intake.restore_links`.
        """
        with self._writing():
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS settled (query_id TEXT PRIMARY KEY, batch_id INTEGER)")
            self._db.execute("DELETE FROM settled")
            self._db.executemany("INSERT INTO settled VALUES (?, ?)", last_published.items())
            ids = self._db.execute(
                "SELECT id FROM files JOIN settled USING (query_id) "
                f"WHERE state > {_LINKED} AND files.batch_id > settled.batch_id "
                "ORDER BY id"
            ).fetchall()
            self._db.executemany(
                f"UPDATE files SET state = {_LINKED}, query_id = NULL, batch_id = NULL, has_link = 1, "
                # Of a whole file what was changed is read now, or found again; a piece ends where it did.
                "noted_size = CASE WHEN until IS NOT NULL THEN noted_size END, "
                "noted_mtime_ns = CASE WHEN until IS NOT NULL THEN noted_mtime_ns END, "
                f"vanished = instr(path, CAST('{_PIECE}' AS BLOB)) > 0 WHERE id = ?",  # a piece does not vanish
                ids,
            )

    def relink(self, source: str, links: Iterable[tuple[str, str, str]]) -> None:
        """Files that wait to be read get another link: (row's path, link so far, link from now on)."""
        with self._writing():
            self._db.executemany(
                f"UPDATE files SET link = ?3 WHERE source = ?4 AND path = ?1 AND link = ?2 AND state = {_LINKED}",
                ((os.fsencode(path), before, after, source) for path, before, after in links),
            )

    # -- what was reported --

    def note_changed(self, source: str, changes: Iterable[tuple[str, int, int, str, int]]) -> None:
        """The report names these (row's path, size, mtime_ns, how, unread bytes): the same change is not reported
        again, a further one is; each is open until it is acknowledged."""
        with self._writing():
            self._db.executemany(
                "UPDATE files SET noted_size = ?, noted_mtime_ns = ?, noted_how = ?, noted_unread = ? "
                "WHERE source = ? AND path = ?",
                (
                    (size, mtime_ns, how, unread, source, os.fsencode(path))
                    for path, size, mtime_ns, how, unread in changes
                ),
            )

    def acknowledge(
        self, source: str, changes: Iterable[tuple[str, Acknowledged, str, int]], *, who: str, reason: str
    ) -> None:
        """A person knows of these (row's path, state of the file, how, unread bytes): they are no longer open."""
        at = now_text()
        with self._writing():
            for path, now, how, unread in changes:
                key = os.fsencode(path)
                self._db.execute(
                    "INSERT INTO acknowledged (source, path, size, mtime_ns, ctime_ns, mark_size, mark, how, unread, "
                    f"at, who, reason) VALUES ({_marks(range(12))})",
                    (source, key, *now[:3], *(now.mark or (None, None)), how, unread, at, who, reason),
                )
                self._db.execute(
                    "UPDATE files SET noted_size = NULL, noted_mtime_ns = NULL WHERE source = ? AND path = ?",
                    (source, key),
                )

    def close_noted(self, source: str, paths: Iterable[str]) -> None:
        """What these files were reported for is read by now, or undone."""
        with self._writing():
            self._db.executemany(
                "UPDATE files SET noted_size = NULL, noted_mtime_ns = NULL WHERE source = ? AND path = ?",
                ((source, os.fsencode(path)) for path in paths),
            )

    def note_vanished(self, source: str, paths: Iterable[str]) -> None:
        """The report names these paths as gone: they are not reported again."""
        self._note_place(source, paths, _REPORTED)

    def note_leaving(self, source: str, paths: Iterable[str]) -> None:
        """These files are about to be cleared away."""
        self._note_place(source, paths, _LEAVING)

    def note_cleared(self, source: str, paths: Iterable[str]) -> None:
        """These files were cleared away: what has their names from now on is another file."""
        self._note_place(source, paths, _CLEARED)

    def note_here(self, source: str, paths: Iterable[str]) -> None:
        """These files were not cleared away after all."""
        self._note_place(source, paths, _HERE)

    def leaving(self, source: str) -> list[str]:
        """The paths that a clean-up was about to clear away when it was killed."""
        with self._named_errors():
            sql = f"SELECT path FROM files WHERE vanished = {_LEAVING} AND source = ?"
            return [os.fsdecode(path) for (path,) in self._db.execute(sql, (source,))]

    def _note_place(self, source: str, paths: Iterable[str], place: int) -> None:
        with self._writing():
            sql = "UPDATE files SET vanished = ? WHERE source = ? AND path = ?"
            self._db.executemany(sql, ((place, source, os.fsencode(path)) for path in paths))


def _row(values: tuple[Any, ...]) -> LedgerRow:
    source, path, size, mtime_ns, link, state, query_id, batch_id, taken_at, vanished = values[:10]
    noted_size, noted_mtime_ns, begin, until, line_offset, lines, ctime_ns, mark_size, mark, how, unread = values[10:21]
    return LedgerRow(
        source=source,
        path=os.fsdecode(path),
        size=size,
        mtime_ns=mtime_ns,
        link=link,
        state=_STATES[state],
        query_id=query_id,
        batch_id=batch_id,
        taken_at=taken_at,
        vanished=bool(vanished),
        noted=None if noted_size is None else (noted_size, noted_mtime_ns),
        begin=begin,
        until=until,
        line_offset=line_offset,
        lines=lines,
        ctime_ns=ctime_ns,
        mark=None if mark is None else Mark(mark_size, mark),
        noted_how=how,
        noted_unread=unread,
        doubt=bool(values[21]),
        is_cleared=vanished == _CLEARED,
        is_leaving=vanished == _LEAVING,
    )


def _link_name(file: NewFile, sequence: int) -> str:
    # The random part makes a name that is never used again, also when a ledger was lost: Spark never reads a name
    # twice.
    name = f"{sequence:010d}-{file.token or secrets.token_hex(4)}{link_suffix(shown_path(file.path))}"
    return f"{file.folder}/{name}" if file.folder else name


def link_suffix(path: str) -> str:
    """The last suffix of a file, for the name that Spark reads it under; "" when it has none that is plain.

    It tells Hadoop the compression, which it compares in lower case only. The rest of a user's name may hold what Spark
    takes for a pattern.
    """
    suffix = _SUFFIX.search(os.path.basename(path))
    return suffix[0].lower() if suffix else ""


def _chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
