"""Finds what is new in a file source, without a JVM and without changing anything.

A file is identified by its path and is read once, whatever its time stamps. Regular files in the folder, in its ``k=v``
sub-folders, or matching the glob are taken. Everything else is in ``skipped`` with the reason, on every scan.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tidegate.core import storage
from tidegate.core.errors import SourceLostError, UsageError
from tidegate.core.garbage import collect_rarely
from tidegate.core.hive_names import read_folder
from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors
from tidegate.sources.files.content import NotTaken, ends_in_line_break, is_line_format, mark_of, opened, reopen
from tidegate.sources.files.ledger import (
    FileState,
    KnownState,
    Ledger,
    LedgerRow,
    Listed,
    NewFile,
    Start,
    piece_number,
    piece_path,
    shown_path,
)
from tidegate.sources.files.listed_part import ListedPart, choose_part
from tidegate.sources.files.listing import (
    TO_READ,
    Listing,
    Skipped,
    base_of,
    describe_failure,
    find_listed_table,
    find_own_table,
    find_roots,
    find_table_above,
    find_unreadable,
    list_source,
    pattern_of,
)
from tidegate.sources.files.notifications import ReadMessages
from tidegate.sources.files.partition_values import fits_value
from tidegate.sources.files.pieces import GREW, Changed, Piece, compare, first_piece, known_state, next_piece
from tidegate.sources.readers.links import Pointer
from tidegate.spec.ddl import is_infer, parse_ddl
from tidegate.spec.models import FilesSource
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.outputs import NotRead, Rewritten
    from tidegate.sources.files.listing import FileStat

POLICIES = {"report": "not read again", "fail": "stops the run", "reread_tail": "not read again"}
"""What happens to a file that changed after it was read, by ``on_change``; ``reread_tail`` reads appended lines."""

OPEN_LINE_SECONDS = 10.0
"""How long a file whose last line has no line break is still settling, unless ``settle`` says otherwise."""


class FileEntry(NamedTuple):
    """A file to take. ``path`` is its path in the ledger and the reports; ``partition`` has the values of the schema's
    columns in its ``k=v`` folders, in the same order for all entries, None for Hive's default partition.

    ``device`` and ``inode`` identify the file that was looked at; ``roots`` are folders that may contain it. With
    ``piece`` only these bytes are taken, and ``size`` is theirs.
    """

    path: str
    abs_path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    partition: dict[str, str | None]
    device: int = 0
    inode: int = 0
    roots: tuple[str, ...] = ()
    piece: Piece | None = None
    e_tag: str = ""
    """Of an object, whose URI is its path."""

    def of(self, found: FileStat) -> FileEntry:
        """With what identifies the file or the object that was looked at."""
        if isinstance(found, os.stat_result):
            return self._replace(device=found.st_dev, inode=found.st_ino)
        return self._replace(e_tag=found.e_tag)

    @property
    def pointer(self) -> Pointer | None:
        """To the object that was looked at; None for a file."""
        return Pointer(self.abs_path, self.e_tag, self.size, self.mtime_ns) if self.e_tag else None

    def open(self) -> BinaryIO:
        """Open the file as it is now, or the object that was looked at. Raises OSError."""
        return self.pointer.open() if self.pointer is not None else open(self.abs_path, "rb")

    @property
    def judged(self) -> tuple[int, int] | None:
        """(device, inode) of the file that was looked at, if it was."""
        return (self.device, self.inode) if self.inode else None


@dataclass(frozen=True)
class FilesScan:
    """A source compared with its ledger. Paths are relative to the project root where they are inside it.

    ``skipped`` [{path, why}] and ``settling`` [{path, age_seconds, why}] are in every scan. ``changed`` [{path, was,
    now (size and mtime_ns), how, unread_bytes, policy}] and ``vanished`` [path] are files that were taken before, so
    none of their records is pending; they are in each scan until ``note_scan`` records them. ``same`` are files
    with a new time stamp and unchanged content: (row's path, mtime_ns, ctime_ns, whether all of it was compared).

    In the first look at a source ``began`` is None, and ``before_start`` are files that existed before its ``start``:
    they count as taken once ``note_first_look`` has recorded them.
    """

    new: tuple[FileEntry, ...]
    settling: tuple[NotRead, ...]
    skipped: tuple[NotRead, ...]
    changed: tuple[Rewritten, ...]
    vanished: tuple[str, ...]
    partition_columns: tuple[str, ...]
    """Columns of the schema whose values are in the ``k=v`` folders of the entries."""
    same: tuple[tuple[str, int, int, bool], ...] = ()
    before_start: tuple[NewFile, ...] = ()
    began: Start | None = None
    listed: Listed | None = None
    """How far a store was listed, where that differs from what is noted."""
    late: tuple[str, ...] = ()
    """New files whose names sort before those of the last list of a part: only a list of all keys has them."""
    notes: tuple[str, ...] = ()
    """What is to be said of notifications."""


EMPTY_SCAN = FilesScan((), (), (), (), (), (), began=Start("all", "", 0, 0, reported=1))
"""The scan of a folder that does not exist yet, where that is not an error."""


@collect_rarely()
def scan_files(
    project: Project,
    paths: PipelinePaths,
    source_name: str,
    spec: FilesSource,
    ledger: Ledger,
    now: float | None = None,
    read_messages: ReadMessages | None = None,
) -> FilesScan:
    """Compare the folder with the ledger at ``now`` (seconds since the epoch). Reads names and stats, and a few bytes
    of files that were just written or have changed. Without ``read_messages`` a source with notifications is listed.

    Raises SourceLostError SOURCE_MISSING when the folder does not exist (an empty one is fine), SOURCE_UNREADABLE when
    it, or in a first look that passes over files a folder in it, may not be listed; UsageError SOURCE_IS_TABLE.
    """
    now = time.time() if now is None else now
    began = ledger.start_of(source_name)
    part = ListedPart() if began is None else choose_part(source_name, spec, ledger, now, read_messages)
    try:
        listing = list_files(project, paths, source_name, spec, part.after, part.named)
    except SourceLostError:
        check_no_table(project, paths, source_name, spec)
        raise
    # In a store this costs a request for each folder above.
    looks_above = began is None or not spec.is_on_store
    _refuse(_find_made_table(project, spec, listing, looks_above=looks_above), paths, source_name)
    starts_ns = start_ns(spec.start) if began is None else None
    if starts_ns is not None and listing.unlisted:
        before = f", where files from before its start ({spec.start}) may be"
        raise _unreadable(paths, f"sources.{source_name}.start", source_name, listing.unlisted[0], before)
    prefix = os.path.abspath(project.root).rstrip("/") + "/"
    by_path = {path.removeprefix(prefix): (path, found) for path, found in listing.files}
    known = ledger.known_states(source_name, list(by_path))
    look = _Look(spec, listing.roots, now)
    look.at_skipped(source_name, ledger, listing.skipped, prefix)
    differing = look.compare_states(by_path, known, starts_ns)
    for path, row in ledger.last_rows(source_name, differing).items():
        look.at_known(row, ledger.acknowledged(row), *by_path[path])
    fresh = sorted(look.fresh)
    if fresh or began is None:  # reads the specs of all pipelines: not in each scan that finds nothing
        _refuse(_find_own_table(project, spec, listing), paths, source_name)
    pinned = _outstanding_columns(source_name, ledger)
    columns = pinned or ()
    if pinned or any("=" in entry.path for entry in fresh):
        fresh, columns, misplaced = place_in_partitions(pinned, spec, listing, fresh)
        look.skipped += misplaced
    return FilesScan(
        new=tuple(fresh),
        settling=tuple(look.settling),
        skipped=tuple(look.skipped),
        changed=tuple(look.changed),
        vanished=_vanished(source_name, ledger, known, listing, prefix) if part.is_all else (),
        partition_columns=columns,
        same=tuple(look.same),
        before_start=tuple(look.earlier),
        began=began,
        listed=part.find_listed(known, look.list_pending(fresh), now),
        late=tuple(one.path for one in fresh if part.has_missed(one.path, now - one.mtime_ns / 1e9)),
        notes=() if part.news is None else part.news.notes,
    )


def check_no_table(project: Project, paths: PipelinePaths, source_name: str, spec: FilesSource) -> None:
    """Raise UsageError SOURCE_IS_TABLE when a streaming source would read files of a table. It need not exist.

    Raises StoreError where the store of the source cannot be asked.
    """
    listing = None
    try:
        listing = list_files(project, paths, source_name, spec)
    except storage.StoreError:
        raise
    except (SourceLostError, UsageError, OSError):
        pass
    table = _find_made_table(project, spec, listing) or _find_own_table(project, spec, listing)
    _refuse(table, paths, source_name)


def _find_made_table(
    project: Project, spec: FilesSource, listing: Listing | None, *, looks_above: bool = True
) -> str | None:
    """Describe the table whose files would be read, by the logs above the source and in the folders listed."""
    table = find_table_above(source_roots(project, spec)[0]) if looks_above else None
    if table is not None:
        return f"there is a table in {table}"
    return None if listing is None else find_listed_table(listing)


def _find_own_table(project: Project, spec: FilesSource, listing: Listing | None) -> str | None:
    """Describe the table of this project whose files would be read; it may not exist yet."""
    top, _ = _top_and_links(project, spec)
    links = sorted(listing.links.values()) if listing is not None else []
    return find_own_table(project, base_of(top), pattern_of(top), links, spec.is_recursive)


def _refuse(table: str | None, paths: PipelinePaths, source_name: str) -> None:
    if table is not None:
        raise errors.SOURCE_IS_TABLE(
            where=f"{paths.spec}: sources.{source_name}.path", source=source_name, pipeline=paths.name, table=table
        )


def start_ns(start: str) -> float | None:
    """The time in nanoseconds since the epoch before which a first look passes over files; None: it takes all files."""
    if start == "all":
        return None
    if start == "now":
        return math.inf
    return (datetime.fromisoformat(start) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000


class _Look:
    """Classifies the files of one scan."""

    def __init__(self, spec: FilesSource, roots: tuple[str, ...], now: float) -> None:
        self.spec, self.roots, self.now = spec, roots, now
        # An object appears whole, and has no line that is half written.
        self.wait = (0 if spec.is_on_store else OPEN_LINE_SECONDS) if spec.settle is None else spec.settle
        self.fresh: list[FileEntry] = []
        self.settling: list[NotRead] = []
        self.skipped: list[NotRead] = []
        self.changed: list[Rewritten] = []
        self.same: list[tuple[str, int, int, bool]] = []
        self.earlier: list[NewFile] = []

    def compare_states(
        self,
        by_path: Mapping[str, tuple[str, FileStat]],
        known: Mapping[str, KnownState],
        starts_ns: float | None,
    ) -> list[str]:
        """Classify the files that were not taken yet. Returns those with another state than when they were taken."""
        differing: list[str] = []
        for path, (abs_path, found) in by_path.items():
            state = known.get(path)
            if state is None and starts_ns is not None and found.st_size and found.st_mtime_ns < starts_ns:
                self.at_earlier(path, abs_path, found)
            elif state is None:
                self.at_new(path, abs_path, found)
            elif (found.st_size, found.st_mtime_ns) != state[:2] or state[2] not in (None, found.st_ctime_ns):
                differing.append(path)
        return differing

    def list_pending(self, fresh: Sequence[FileEntry]) -> set[str]:
        """The paths of what is taken now, and of what is to be read later."""
        unread = {one["path"] for one in (*self.settling, *self.skipped) if "fix" in one or "age_seconds" in one}
        return unread.union(one.path for one in fresh)

    def at_skipped(self, source_name: str, ledger: Ledger, skipped: Sequence[Skipped], prefix: str) -> None:
        """Note what the listing skipped. A file that was read, and is gone or unchanged since, needs no ``fix``."""
        rows = ledger.last_rows(source_name, [one.path.removeprefix(prefix) for one in skipped if one.fix])
        for one in dict.fromkeys(skipped):
            path = one.path.removeprefix(prefix)
            row = rows.get(path)
            if row is not None and _was_read(row, ledger.acknowledged(row), one.path):
                self.skip(path, one.why)
            else:
                self.skip(path, one.why, one.fix, retry=one.retry)

    def skip(self, path: str, why: str, fix: str = "", *, retry: bool = False) -> None:
        """Note a file that is not read, with what a person can do to have it read, and whether a retry may read it."""
        one: NotRead = {"path": path, "why": why}
        if fix:
            one["fix"] = fix
        if retry:
            one["retry"] = True
        self.skipped.append(one)

    def at_earlier(self, path: str, abs_path: str, found: FileStat) -> None:
        """Note a file that existed before the source's start: nothing of it is read."""
        whole = NewFile(path, found.st_size, found.st_mtime_ns, "", ctime_ns=found.st_ctime_ns)
        if not self._takes_pieces(path):
            self.earlier.append(whole)
            return
        # Lines that are appended later are read, so the mark of its beginning is needed. An incomplete line counts as
        # not yet written.
        try:
            with opened(abs_path, self.roots) as handle, reopen(handle) as reader:
                piece = first_piece(reader, found.st_size, self.spec, is_still=not self._may_be_open(found))
                if piece is None:
                    self._settle(path, found, _OPEN_LINE)
                    return
                mark = mark_of(reader, piece.until)
        except (NotTaken, OSError):
            self.earlier.append(whole)
        else:
            self.earlier.append(whole._replace(size=piece.until, until=piece.until, mark=mark))

    def at_new(self, path: str, abs_path: str, found: FileStat) -> None:
        """Take a new file, or note why not."""
        if not found.st_size:
            self.skip(path, "empty: taken as soon as there is something in it")
        elif self._is_settling(found):
            self._settle(path, found, "")
        elif not isinstance(found, os.stat_result):
            self._take(path, abs_path, found, None)
        elif (unread := find_unreadable(path, abs_path)) is not None:
            self.skip(path, unread.why, unread.fix, retry=unread.retry)
        elif not is_line_format(self.spec, path) or not (self._takes_pieces(path) or self._may_be_open(found)):
            self._take(path, abs_path, found, None)
        else:
            try:
                with opened(abs_path, self.roots) as handle, reopen(handle) as reader:
                    self._at_lines(path, abs_path, found, reader)
            except NotTaken as error:
                self.skip(path, str(error))
            except OSError as error:
                one = describe_failure(path, "cannot be read", error, TO_READ)
                self.skip(path, one.why, one.fix, retry=one.retry)

    def _at_lines(self, path: str, abs_path: str, found: os.stat_result, reader: int) -> None:
        if self._takes_pieces(path):
            piece = first_piece(reader, found.st_size, self.spec, is_still=not self._may_be_open(found))
            if piece is not None:
                self._take(path, abs_path, found, piece)
            if piece is None or piece.until < found.st_size:
                self._settle(path, found, _OPEN_LINE)
        elif ends_in_line_break(reader, found.st_size, self.spec):
            self._take(path, abs_path, found, None)
        else:
            self._settle(path, found, _OPEN_LINE)

    def at_known(self, row: LedgerRow, acknowledged: FileState | None, abs_path: str, found: FileStat) -> None:
        """Compare a file that was taken before, ``row`` last, and whose state has changed."""
        known = known_state(row, acknowledged)
        # Before it is staged, its content counts as it is when it is read.
        if row.state == "linked" or (known.size, known.mtime_ns, known.ctime_ns) == (
            *(found.st_size, found.st_mtime_ns),
            None if known.ctime_ns is None else found.st_ctime_ns,
        ):
            return
        path = shown_path(row.path)
        is_noted = row.noted == (found.st_size, found.st_mtime_ns)
        if is_noted and not self._takes_pieces(path):
            return
        piece: Piece | Changed | None
        is_whole = known.mark is not None and known.mark.is_whole and known.mark.size == known.size
        try:  # there is no file to open where it is an object
            with opened(abs_path, self.roots) as handle, reopen(handle) as reader:
                change = piece = compare(reader, found, known)
                if change is not None and change.how == GREW and known.mark is not None and self._takes_pieces(path):
                    still = not self._may_be_open(found)
                    piece = next_piece(reader, found.st_size, self.spec, row, acknowledged, is_still=still)
        except (NotTaken, OSError):
            change = piece = compare(None, found, known)
            is_whole = False
        if row.place == "cleared" and self._at_cleared(row, change, path, abs_path, found):
            return
        if change is None:
            self.same.append((row.path, found.st_mtime_ns, found.st_ctime_ns, is_whole))
        elif isinstance(piece, Changed):
            if not is_noted:
                self._change(path, known.size, known.mtime_ns, found, piece)
        elif self._is_settling(found):
            self._settle(path, found, "")
        else:
            if piece is not None:
                self._take(piece_path(path, piece_number(row.path) + 1), abs_path, found, piece)
            if piece is None or piece.until < found.st_size:
                self._settle(path, found, _OPEN_LINE)

    def _at_cleared(self, row: LedgerRow, change: Changed | None, path: str, abs_path: str, found: FileStat) -> bool:
        """Handle a file with the name of one that maintenance cleared away: a new file, unless that one was put back.
        Returns False for a file that was put back, even with appended lines."""
        if change is None:
            if found.st_mtime_ns == row.mtime_ns:
                return False
            self.skip(path, _SAME_AGAIN)
        elif change.how == GREW and row.mark is not None and row.mark.size == row.read_until:
            return False
        else:
            self.at_new(path, abs_path, found)
        return True

    def _takes_pieces(self, path: str) -> bool:
        return self.spec.on_change == "reread_tail" and is_line_format(self.spec, path)

    def _is_settling(self, found: FileStat) -> bool:
        return bool(self.spec.settle) and self._may_be_open(found)

    def _may_be_open(self, found: FileStat) -> bool:
        return self.wait > 0 and _age_seconds(found, self.now) < self.wait

    def _take(self, path: str, abs_path: str, found: FileStat, piece: Piece | None) -> None:
        size = found.st_size if piece is None else piece.until - piece.begin
        entry = FileEntry(path, abs_path, size, found.st_mtime_ns, found.st_ctime_ns, {}, roots=self.roots, piece=piece)
        self.fresh.append(entry.of(found))

    def _settle(self, path: str, found: FileStat, what: str) -> None:
        age = round(_age_seconds(found, self.now), 3)
        why = f"{what}changed {age:.1f} seconds ago, taken when unchanged for {self.wait:g} seconds"
        self.settling.append({"path": path, "age_seconds": age, "why": why})

    def _change(self, path: str, size: int, mtime_ns: int, found: FileStat, changed: Changed) -> None:
        self.changed.append(
            {
                "path": path,
                "was": {"size": size, "mtime_ns": mtime_ns},
                "now": {"size": found.st_size, "mtime_ns": found.st_mtime_ns},
                "how": changed.how,
                "unread_bytes": changed.unread_bytes,
                "policy": POLICIES[self.spec.on_change],
            }
        )


def _was_read(row: LedgerRow, acknowledged: FileState | None, abs_path: str) -> bool:
    """Return whether a file that was taken has no other content now, by its state; a link is followed, not opened."""
    if row.place == "cleared":
        return False
    try:
        found = os.stat(abs_path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (
        row.noted == (found.st_size, found.st_mtime_ns) or compare(None, found, known_state(row, acknowledged)) is None
    )


_TO_MOVE = "move it to folders with the partition columns of the others and values of their types, or out of the source"
_SAME_AGAIN = (
    "has the content of a file of this name that was read and then cleared away by maintenance: not read again; "
    "rename it to have it read"
)
_OPEN_LINE = "its last line has no line break, and may be half written: "


def source_roots(project: Project, spec: FilesSource) -> tuple[str, ...]:
    """The real paths of the folders that may contain files of a source, also behind links."""
    return find_roots(*_top_and_links(project, spec))


def source_base(project: Project, spec: FilesSource) -> str:
    """The folder of a source, or of its pattern before the first wildcard; absolute, links are not resolved."""
    return base_of(source_top(project, spec))


def source_top(project: Project, spec: FilesSource) -> str:
    """The path of a source, or its pattern; absolute, links are not resolved."""
    return _top_and_links(project, spec)[0]


def _top_and_links(project: Project, spec: FilesSource) -> tuple[str, list[str]]:
    if spec.is_on_store:
        return spec.path.rstrip("/"), []
    root = os.path.abspath(project.root)
    # normpath keeps two leading slashes.
    given = (spec.path, *spec.follow_links)
    top, *links = ("/" + os.path.normpath(os.path.join(root, path)).lstrip("/") for path in given)
    return top, links


def list_files(
    project: Project,
    paths: PipelinePaths,
    source_name: str,
    spec: FilesSource,
    after: str = "",
    named: frozenset[str] | None = None,
) -> Listing:
    """List the folder of a source; of a store, what sorts after ``after`` or is one of ``named``. Raises what
    :func:`scan_files` does."""
    with name_refusals(paths, f"sources.{source_name}.path", source_name):
        return list_source(
            *_top_and_links(project, spec),
            name_filter=spec.options.get("pathGlobFilter"),
            is_recursive=spec.is_recursive,
            after=after,
            named=named,
        )


@contextlib.contextmanager
def name_refusals(paths: PipelinePaths, key: str, source_name: str) -> Iterator[None]:
    """Name a folder that is missing or may not be listed; ``key`` of the spec says which one that is.

    Raises SourceLostError SOURCE_MISSING and SOURCE_UNREADABLE.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.SOURCE_MISSING(
            where=f"{paths.spec}: {key}", source_name=source_name, pipeline=paths.name, filename=error.filename
        ) from error
    except PermissionError as error:
        raise _unreadable(paths, key, source_name, error.filename) from error


def _unreadable(paths: PipelinePaths, key: str, source_name: str, folder: str, more: str = "") -> SourceLostError:
    return errors.SOURCE_UNREADABLE(
        where=f"{paths.spec}: {key}", source_name=source_name, pipeline=paths.name, filename=folder, more=more
    )


def _age_seconds(found: FileStat, now: float) -> float:
    """Seconds since the last change. The mtime can be set at will, the ctime cannot; a future mtime is ignored. The
    time of an object is the store's."""
    if not isinstance(found, os.stat_result):
        return now - found.st_mtime
    changed_at = found.st_ctime
    if found.st_mtime <= now:
        changed_at = max(changed_at, found.st_mtime)
    return now - changed_at


def _vanished(
    source_name: str,
    ledger: Ledger,
    known: Mapping[str, KnownState],
    listing: Listing,
    prefix: str,
) -> tuple[str, ...]:
    here = sum(1 for *_, vanished in known.values() if not vanished)
    if ledger.count_present(source_name) <= here:
        return ()
    missing = {path for path in map(shown_path, ledger.present_paths(source_name)) if path not in known}
    # Files below an unlisted folder, and files that are skipped now, have not vanished.
    blind = tuple(folder.removeprefix(prefix) + "/" for folder in listing.unlisted)
    skipped = {one.path.removeprefix(prefix) for one in listing.skipped}
    return tuple(sorted(path for path in missing if path not in skipped and not (blind and path.startswith(blind))))


def place_in_partitions(
    pinned: tuple[str, ...] | None, spec: FilesSource, listing: Listing, entries: Sequence[FileEntry]
) -> tuple[list[FileEntry], tuple[str, ...], list[NotRead]]:
    """Set the partition values of the entries. All files of a source must have the same columns in folder names, since
    the others are read from the files."""
    columns, kinds = _schema_columns(spec), _column_types(spec) or {}
    by_folder: dict[str, dict[str, str | None]] = {}
    for entry in entries:
        folder = os.path.dirname(entry.abs_path)
        if folder not in by_folder:
            by_folder[folder] = partition_of(folder[len(listing.base) :], columns)
    if pinned is None:
        pinned = max((tuple(partition) for partition in by_folder.values()), key=len, default=())
    placed: list[FileEntry] = []
    misplaced: list[NotRead] = []
    for entry in entries:
        partition = by_folder[os.path.dirname(entry.abs_path)]
        if set(partition) != set(pinned):
            why = f"its folders give the columns ({', '.join(partition)}), those of the source ({', '.join(pinned)})"
            misplaced.append({"path": entry.path, "why": why, "fix": _TO_MOVE})
        elif wrong := [one for one, value in partition.items() if not fits_value(value, kinds.get(one, ""))]:
            why = ", ".join(f"{one}={partition[one]}, and {one} is {kinds[one].upper()}" for one in wrong)
            misplaced.append({"path": entry.path, "why": f"its folder says {why}", "fix": _TO_MOVE})
        else:
            placed.append(entry._replace(partition={column: partition[column] for column in pinned}))
    return placed, pinned, misplaced


def partition_of(folders: str, columns: Mapping[str, str] | None) -> dict[str, str | None]:
    """Read values of ``k=v`` folders, for the ``columns`` {lower-case name: name} or for all; None for Hive's
    default."""
    partition: dict[str, str | None] = {}
    for key, value in filter(None, map(read_folder, folders.split("/"))):
        column = key if columns is None else columns.get(key.lower())
        if column is not None:
            partition[column] = value
    return partition


def _schema_columns(spec: FilesSource) -> dict[str, str] | None:
    """{lower-case name: name} of the declared columns; None when none are declared and every k=v folder is a column."""
    kinds = _column_types(spec)
    return None if kinds is None else {name.lower(): name for name in kinds}


def _column_types(spec: FilesSource) -> dict[str, str] | None:
    if spec.schema is None or is_infer(spec.schema):
        return None
    return {name: kind for name, kind, _ in parse_ddl(spec.schema)}


def _outstanding_columns(source_name: str, ledger: Ledger) -> tuple[str, ...] | None:
    """The partition columns of the links in the intake, which new links have to match; None without links."""
    link = ledger.any_link(source_name)
    if link is None:
        return None
    return tuple(partition_of(os.path.dirname(link), None))
