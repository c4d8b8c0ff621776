"""The ledger of a pipeline's file sources: which files were taken, under which link, and how far each one got.

One SQLite file, ``state/<name>/ledger.sqlite``. A row is written before the link it names, so a file is never in the
intake (:mod:`tidegate.source.intake`) without being known. A row's way::

    linked ──mark_staged──> staged (query id, batch id) ──mark_published──> published ──forget_links──> link removed
       ^─────────────────────── untake (repair) ────────────────────────────────┘

Every call may be repeated; all but :meth:`Ledger.add_links` of very many files are one transaction. Paths
are relative to the project root when inside it, else absolute, and are kept as bytes, since a file name need not be
Unicode.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeVar

from tidegate import storage
from tidegate.errors import DisagreementError
from tidegate.project import PipelinePaths
from tidegate.source.ledger_file import HoldsLease, LedgerFile

State = Literal["linked", "staged", "published"]
_T = TypeVar("_T")

_STATES: tuple[State, ...] = ("linked", "staged", "published")
_LINKED, _STAGED, _PUBLISHED = range(3)
_CHUNK = 900
_FILES_PER_TRANSACTION = 50_000
_COLUMNS = (
    "source, path, size, mtime_ns, link, state, query_id, batch_id, taken_at, vanished, noted_size, noted_mtime_ns"
)
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,16}$")


class LedgerRow(NamedTuple):
    """One file that was taken. ``link`` is relative to the source's intake folder; ``noted`` is the (size, mtime_ns) of
    the last change that was reported, ``vanished`` whether its absence was."""

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


class NewFile(NamedTuple):
    """A file to take: what :meth:`Ledger.add_links` writes down. ``folder`` is "" or the link's ``k=v/...`` folder."""

    path: str
    size: int
    mtime_ns: int
    folder: str


def open_ledger(
    paths: PipelinePaths, *, read_only: bool = False, create: bool = False, lease: HoldsLease | None = None
) -> Ledger:
    """The ledger of a pipeline; made when the pipeline has never run. ``read_only`` (plan, status) makes no file.

    Who writes holds the ``lease``: its token is noted in the ledger, and once somebody has noted another one, each
    change fails with TryAgainError LEASE_LOST and is undone.

    Raises DisagreementError LEDGER_MISSING when files were taken and there is no ledger, LEDGER_BEHIND when it is an
    older copy than the last publish saw (``create`` makes or takes one all the same: repair only), LEDGER_UNREADABLE
    when it is damaged or of another version.
    """
    path = paths.ledger
    noted = storage.read_note(paths.published) or {}
    least = 0 if create else int(noted.get("ledger_last_id") or 0)
    try:
        exists = path.stat().st_size > 0
    except FileNotFoundError:
        exists = False
    if not exists and not create and (least or (paths.checkpoint / "metadata").exists()):
        raise DisagreementError(
            "LEDGER_MISSING",
            f"pipeline {paths.name} has read files, but the record of the files it has taken is gone; "
            "taking them again would double their rows",
            where=str(path),
            next_run="refuses to start, and changes nothing",
            fix=f"restore {path.name} from a backup, or: tidegate repair {paths.name}",
        )
    if not exists and read_only:
        return Ledger(paths, ":memory:", writes=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(paths, str(path), writes=not read_only, lease=lease)
    if (last := ledger.last_id()) < least:
        ledger.close()
        raise DisagreementError(
            "LEDGER_BEHIND",
            f"the record of the files that pipeline {paths.name} has taken ends at number {last}; the last publish saw "
            f"{least}: an older copy was restored, and taking the files it lacks again would double their rows",
            where=str(path),
            next_run="refuses to start, and changes nothing",
            fix=f"restore {path.name} from the same time as the table, or: tidegate repair {paths.name}",
        )
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

    def known_states(self, source: str, paths: Sequence[str]) -> dict[str, tuple[int, int, bool]]:
        """(size, mtime_ns, whether its absence was reported) of those ``paths`` that were taken before: what an idle
        tick asks of each file in the folder."""
        states: dict[str, tuple[int, int, bool]] = {}
        with self._named_errors():
            for some in _chunks([os.fsencode(path) for path in paths]):
                sql = f"SELECT path, size, mtime_ns, vanished FROM files WHERE source = ? AND path IN ({_marks(some)})"
                for path, size, mtime_ns, vanished in self._db.execute(sql, (source, *some)):
                    states[os.fsdecode(path)] = (size, mtime_ns, vanished)
        return states

    def rows(
        self, source: str | None = None, *, state: State | None = None, links: Sequence[str] | None = None
    ) -> list[LedgerRow]:
        """Rows in the order they were taken, of one source, in one state, or of some links."""
        conditions, values = ["1"], list[Any]()
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

    def counts(self, source: str | None = None) -> dict[State, int]:
        """How many files are linked, staged and published."""
        where, values = ("WHERE source = ?", [source]) if source is not None else ("", [])
        with self._named_errors():
            found = dict(
                self._db.execute(f"SELECT state, count(*) FROM files {where} GROUP BY state", values).fetchall()
            )
        return {name: int(found.get(number, 0)) for number, name in enumerate(_STATES)}

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
        """Take ``files``: a row and a link name, never used before, for each; one that was taken before keeps its row.

        Returns the rows, in the order of ``files``.
        """
        files = list(files)
        taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        sql = "INSERT OR IGNORE INTO files (source, path, size, mtime_ns, link, taken_at) VALUES (?, ?, ?, ?, ?, ?)"
        # In pieces, so that no transaction lasts so long that another process could take this one for frozen.
        for start in range(0, len(files), _FILES_PER_TRANSACTION):
            with self._writing():
                query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'files'"
                (last,) = self._db.execute(query).fetchone()
                some = enumerate(files[start : start + _FILES_PER_TRANSACTION], start=last + 1)
                self._db.executemany(
                    sql,
                    (
                        (source, os.fsencode(file.path), file.size, file.mtime_ns, _link_name(file, number), taken_at)
                        for number, file in some
                    ),
                )
        rows = self.known(source, [file.path for file in files])
        return [rows[file.path] for file in files]

    def drop_linked(self, source: str, paths: Sequence[str]) -> None:
        """Forget files that were taken, never read, and are gone; should one come back, it is a new file."""
        with self._writing():
            self._db.executemany(
                f"DELETE FROM files WHERE source = ? AND path = ? AND state = {_LINKED}",
                ((source, os.fsencode(path)) for path in paths),
            )

    def mark_staged(
        self, source: str, query_id: str, batch_id: int, files: Iterable[Mapping[str, Any]]
    ) -> list[LedgerRow]:
        """The files of one staged batch, as its manifest lists them: {"path", "size", "mtime_ns", "link"}, with
        size and time as they were when read.

        Idempotent, and adds rows that are not there, so the marks can be made again from the manifests. A row that
        belongs to another batch stays as it is; those rows are returned: such a file was read twice.
        """
        files = list(files)
        taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        mine = (query_id, batch_id)
        with self._writing():
            self._db.executemany(
                "INSERT OR IGNORE INTO files (source, path, size, mtime_ns, link, taken_at) VALUES (?, ?, ?, ?, ?, ?)",
                ((source, os.fsencode(f["path"]), f["size"], f["mtime_ns"], f["link"], taken_at) for f in files),
            )
            self._db.executemany(
                f"UPDATE files SET state = {_STAGED}, query_id = ?, batch_id = ?, size = ?, mtime_ns = ? "
                f"WHERE source = ? AND path = ? AND state = {_LINKED}",
                ((*mine, f["size"], f["mtime_ns"], source, os.fsencode(f["path"])) for f in files),
            )
        rows = self.known(source, [f["path"] for f in files])
        return [row for row in rows.values() if (row.query_id, row.batch_id) != mine]

    def mark_published(self, query_id: str, up_to_batch_id: int) -> list[tuple[str, str]]:
        """Batches up to ``up_to_batch_id`` (inclusive) are in the table, or were discarded.

        Returns the (source, link) pairs to remove, those of earlier calls that were not removed included.
        """
        with self._writing():
            self._db.execute(
                f"UPDATE files SET state = {_PUBLISHED} WHERE state = {_STAGED} AND query_id = ? AND batch_id <= ?",
                (query_id, up_to_batch_id),
            )
        return self.removable_links()

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

    def untake(self, last_published: Mapping[str, int]) -> list[LedgerRow]:
        """For repair: files of batches that the table does not have go back to linked, to be read again.

        ``last_published`` is {query id: its last batch in the table's log, -1 for none} of each query to look at: files
        of any other one, which came later, stay as they are. Returns the rows that went back; their links are made
        again by :func:`tidegate.source.intake.restore_links`.
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
                f"UPDATE files SET state = {_LINKED}, query_id = NULL, batch_id = NULL, has_link = 1, vanished = 0 "
                "WHERE id = ?",
                ids,
            )
            found = [self._db.execute(f"SELECT {_COLUMNS} FROM files WHERE id = ?", one).fetchone() for one in ids]
        return [_row(row) for row in found]

    # -- what was reported --

    def note_changed(self, source: str, changes: Iterable[tuple[str, int, int]]) -> None:
        """The report names these (path, size, mtime_ns): the same change is not reported again, a further one is."""
        with self._writing():
            self._db.executemany(
                "UPDATE files SET noted_size = ?, noted_mtime_ns = ? WHERE source = ? AND path = ?",
                ((size, mtime_ns, source, os.fsencode(path)) for path, size, mtime_ns in changes),
            )

    def note_vanished(self, source: str, paths: Iterable[str]) -> None:
        """The report names these paths as gone: they are not reported again."""
        with self._writing():
            sql = "UPDATE files SET vanished = 1 WHERE source = ? AND path = ?"
            self._db.executemany(sql, ((source, os.fsencode(path)) for path in paths))


def _row(values: tuple[Any, ...]) -> LedgerRow:
    source, path, size, mtime_ns, link, state, query_id, batch_id, taken_at, vanished, noted_size, noted_mtime_ns = (
        values
    )
    noted = None if noted_size is None else (noted_size, noted_mtime_ns)
    return LedgerRow(
        source,
        os.fsdecode(path),
        size,
        mtime_ns,
        link,
        _STATES[state],
        query_id,
        batch_id,
        taken_at,
        bool(vanished),
        noted,
    )


def _link_name(file: NewFile, sequence: int) -> str:
    # The random part keeps a name unused for ever, also when a ledger was lost: Spark never reads a name twice.
    name = f"{sequence:010d}-{secrets.token_hex(4)}{link_suffix(file.path)}"
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


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
