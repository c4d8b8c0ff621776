"""The intake: the pending files, under safe names, ``state/<name>/intake/<source>/[k=v/]<id>.<ext>``.

Spark's workers read this folder and never the user's. They are therefore safe from odd names, time stamps and later
changes, and every file that they read is in the ledger first. An entry is a hard link to the file that was looked at,
so a file that is deleted or replaced before it was read keeps its content. Where hard links are not possible (another
device, another owner, too many links) it is a copy. For a source with ``on_change: reread_tail`` the intake holds
copies of the pending lines. An object of a store is not copied: its link describes it, and only that same object is
read (:mod:`tidegate.sources.readers.links`).

Every function may be repeated after a crash, and by two processes at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.content import (
    Mark,
    NotTaken,
    header_end,
    line_end,
    mark_of,
    opened,
    read_range,
    reopen,
)
from tidegate.sources.files.ledger import (
    Ledger,
    LedgerRow,
    NewFile,
    is_retired,
    piece_number,
    piece_path,
    shown_path,
)
from tidegate.sources.files.listing import TO_READ
from tidegate.sources.files.partition_values import partition_folder
from tidegate.sources.files.pieces import Piece, copy_piece
from tidegate.sources.files.scan import FileEntry, source_roots
from tidegate.sources.readers.links import Pointer, read_pointer
from tidegate.spec.models import FilesSource
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.outputs import NotRead

_NO_HARD_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_GONE = (FileNotFoundError, NotADirectoryError)
_COPIED_BYTES = 1 << 20
_TOKEN = slice(11, 19)
"""Position of the random part in a link's name."""


@dataclass(frozen=True)
class Admitted:
    """``links`` are in the intake now; ``gone`` [{path, why}] vanished or became unreadable since they were listed."""

    links: tuple[str, ...]
    gone: tuple[NotRead, ...]


@dataclass(frozen=True)
class Restored:
    """``links`` were created again. ``lost`` paths were taken, never read, and are gone: report them, then call
    :meth:`Ledger.drop_linked`. ``changed`` paths are read as they are now, not as they were taken."""

    links: tuple[str, ...]
    lost: tuple[str, ...]
    changed: tuple[str, ...]


def admit(
    paths: PipelinePaths,
    source_name: str,
    spec: FilesSource,
    entries: Sequence[FileEntry],
    ledger: Ledger,
) -> Admitted:
    """Take the listed files: ledger rows first, in one transaction, then the links. Creates the folder.

    Pieces are copied durably before they are in the ledger.
    """
    intake = paths.intake(source_name)
    intake.mkdir(parents=True, exist_ok=True)
    if not entries:
        return Admitted((), ())
    gone: list[NotRead] = []
    files: list[NewFile] = []
    for entry in entries:
        folder = partition_folder(entry.partition)
        try:
            files.append(
                NewFile(
                    *(entry.path, entry.size, entry.mtime_ns, folder), ctime_ns=entry.ctime_ns if entry.e_tag else None
                )
                if entry.piece is None
                else _copy_aside(intake, entry, entry.piece, folder, spec)
            )
        except (*_GONE, PermissionError, NotTaken) as error:
            gone.append(_describe_gone(entry.path, error))
    storage.sync_folder(intake)
    _end_before(ledger, source_name, [file.path for file in files if file.until is not None])
    rows = ledger.add_links(source_name, files)
    placed, not_there = _place(intake, rows, {entry.path: entry for entry in entries}, files)
    ledger.note_content(source_name, [(path, *content) for path, content in placed.items() if content is not None])
    ledger.drop_linked(source_name, [row.path for row, _ in not_there])
    gone += [_describe_gone(row.path, error) for row, error in not_there]
    links = [row.link for row in rows if row.path in placed]
    storage.sync_names_above((intake / link for link in links), intake.parents[1])
    return Admitted(tuple(links), tuple(gone))


_Content = tuple[int, Mark]


def _place(
    intake: Path, rows: Sequence[LedgerRow], entries: Mapping[str, FileEntry], files: Sequence[NewFile]
) -> tuple[dict[str, _Content | None], list[tuple[LedgerRow, Exception]]]:
    """Put the files of the ledger's rows into the intake. Returns {row's path: (ctime_ns, mark) of what was linked},
    and the rows whose file cannot be read, with the error."""
    mine = {file.path: file for file in files}
    placed: dict[str, _Content | None] = {}
    not_there: list[tuple[LedgerRow, Exception]] = []
    for row in rows:
        file, entry = mine[row.path], entries[row.path]
        if row.state != "linked":
            continue  # taken by another process since the listing
        if row.until is not None:
            if (row.begin, row.until) == (file.begin, file.until):
                _bring_in(intake, row.link, file.token)
                placed[row.path] = None
            continue
        try:
            if entry.pointer is not None:
                entry.pointer.link(intake / row.link)
                placed[row.path] = None
                continue
            with opened(entry.abs_path, entry.roots, entry.judged) as handle:
                found = os.fstat(handle)
                if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
                    raise NotTaken("changed since it was listed")
                placed[row.path] = _link(handle, intake / row.link)
        except (*_GONE, PermissionError, NotTaken) as error:
            not_there.append((row, error))
    return placed, not_there


def _describe_gone(path: str, error: Exception) -> NotRead:
    """Describe a file that was listed, and cannot be read now."""
    if not isinstance(error, OSError):
        return {"path": shown_path(path), "why": f"{error}: the next run looks again"}
    gone: NotRead = {"path": shown_path(path), "why": f"listed, but not there to be read: {error.strerror}"}
    if isinstance(error, PermissionError):
        gone["fix"] = TO_READ
    return gone


def _end_before(ledger: Ledger, source_name: str, pieces: Sequence[str]) -> None:
    """End the rows before these pieces, and close the changes that were reported for them: they are read now."""
    if not pieces:
        return
    numbers = [(shown_path(path), piece_number(path)) for path in pieces]
    ledger.end_whole(source_name, [path for path, number in numbers if number == 1])
    before = [path if number == 1 else piece_path(path, number - 1) for path, number in numbers if number]
    ledger.close_noted(source_name, before)


def restore_links(
    project: Project, paths: PipelinePaths, source_name: str, spec: FilesSource, ledger: Ledger
) -> Restored:
    """Make sure that every pending file is in the intake; to be called before each ingest.

    Costs next to nothing when nothing is pending.
    """
    intake = paths.intake(source_name)
    links: list[str] = []
    lost: list[str] = []
    changed: list[str] = []
    roots: tuple[str, ...] | None = None
    for row in ledger.rows(source_name, state="linked"):
        link = intake / row.link
        there = _stat(link)
        if there is None:
            roots = source_roots(project, spec) if roots is None else roots
            with contextlib.suppress(*_GONE):
                link.unlink()  # a symbolic link that tidegate did not make
            try:
                _restore(project, intake, row, spec, roots)
            except (*_GONE, PermissionError, NotTaken):
                lost.append(row.path)
                continue
            links.append(row.link)
            there = _stat(link)
        is_other = row.until is None and there != (row.size, row.mtime_ns)
        if is_other and not storage.exists(record_path(paths.unreadable, row.link)):  # not a stand-in
            changed.append(row.path)
    storage.sync_names_above((intake / link for link in links), intake.parents[1])
    return Restored(tuple(links), tuple(lost), tuple(changed))


def record_path(folder: Path, link: str) -> Path:
    """The record in ``folder`` of a file that was quarantined as a whole: its link leads to a stand-in from then on."""
    return folder / f"{flat_name(link)}.json"


def flat_name(link: str) -> str:
    """The link's own name, which is unique, without its k=v folders."""
    return link.rsplit("/", 1)[-1]


def _restore(project: Project, intake: Path, row: LedgerRow, spec: FilesSource, roots: Sequence[str]) -> None:
    if _bring_in(intake, row.link, row.link.rsplit("/", 1)[-1][_TOKEN]):
        return
    if storage.names_object(row.path):
        _point_to_present(row.path, intake / row.link)
        return
    with opened(source_path(project, row.path), roots) as handle:
        if row.until is None:
            _link(handle, intake / row.link)
            return
        with reopen(handle) as reader:
            header = (header_end(reader, row.begin, spec) or 0) if row.begin else 0
        token = secrets.token_hex(4)
        # Raises NotTaken when its beginning has changed.
        copy_piece(handle, Piece(row.begin, row.until, header, before=row.mark), _aside(intake, token), line_end(spec))
    _bring_in(intake, row.link, token)


def _point_to_present(uri: str, link: Path) -> None:
    """Make a link lead to an object as it is now. Raises FileNotFoundError when there is none, or only an empty one."""
    from tidegate.core.storage.user_objects import look_at  # the client of stores, which files do without

    found = look_at(uri)
    if found is None or not found.st_size:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", uri)
    Pointer.of(uri, found).link(link)


def renew_links(links: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Make those links that lead to objects lead to them as they are now; returns the links of the replaced ones, and
    the URIs of those that are gone, whose links are removed."""
    pointers = {link: pointer for link in links if (pointer := read_pointer(link)) is not None}
    if not pointers:
        return [], []
    from tidegate.core.storage.user_objects import look_at_all

    there = look_at_all(pointer.uri for pointer in pointers.values())
    replaced, gone = [], []
    for link, pointer in pointers.items():
        found = there[pointer.uri]
        if found is None or not found.st_size:
            link.unlink(missing_ok=True)
            gone.append(pointer.uri)
        elif found.e_tag != pointer.e_tag:
            Pointer.of(pointer.uri, found).replace(link)
            replaced.append(link)
    return replaced, gone


def relink(paths: PipelinePaths, source_name: str, rows: Mapping[LedgerRow, Path], ledger: Ledger) -> None:
    """Give each of these pending rows a new link, to the file given for it instead of the content of its old link.

    The link has a new name, since a stale process may still write to the old one. To be followed by
    :func:`restore_links`.
    """
    intake = paths.intake(source_name)
    intake.mkdir(parents=True, exist_ok=True)
    moved = []
    for row, file in rows.items():
        folder, slash, name = row.link.rpartition("/")
        token = secrets.token_hex(4)
        hidden = Path(_aside(intake, token))  # not used until its name is in the ledger
        link_or_copy(file, hidden)
        moved.append((row.path, row.link, f"{folder}{slash}{name[: _TOKEN.start]}{token}{name[_TOKEN.stop :]}"))
    if moved:
        storage.sync_folder(intake)
        ledger.relink(source_name, moved)


def link_or_copy(file: Path, target: Path) -> None:
    """Create a hard link to ``file``, or a copy where that is not possible, as of an object."""
    if (pointer := read_pointer(file)) is not None:
        copy_object(pointer, target)
        return
    handle = os.open(file, os.O_PATH | os.O_CLOEXEC)
    try:
        _link(handle, target)
    finally:
        os.close(handle)


def link_file(entry: FileEntry, target: Path) -> None:
    """Link to a listed file, to look at it. Raises NotTaken or OSError when it was replaced."""
    if entry.pointer is not None:
        entry.pointer.link(target)
        return
    with opened(entry.abs_path, entry.roots, entry.judged) as handle:
        _link(handle, target)


def remove_links(paths: PipelinePaths, links: Iterable[tuple[str, str]], ledger: Ledger) -> int:
    """Remove the links of published files, as :meth:`Ledger.removable_links` returns them, and folders that are then
    empty.

    Returns the number of links. Does not change the user's files.
    """
    links = list(links)
    folders: dict[Path, Path] = {}
    by_source: dict[str, list[str]] = {}
    for source_name, link in links:
        by_source.setdefault(source_name, []).append(link)
    for source_name, some in by_source.items():
        intake = paths.intake(source_name)
        rows = {row.link: row for row in ledger.rows(source_name, links=some)}
        same = [one for link in some if (one := _remove_link(intake / link, rows.get(link))) is not None]
        if same:
            ledger.note_same(source_name, same)
        folders |= {(intake / link).parent: intake for link in some}
    for folder, intake in folders.items():
        _prune(folder, intake)
    if links:
        ledger.forget_links(link for _, link in links)
    return len(links)


def sweep_intake(paths: PipelinePaths, source_name: str, ledger: Ledger, *, keep_staged: bool = True) -> list[str]:
    """Remove what Spark must not read: links of published or unknown files and, for a new checkpoint
    (``keep_staged=False``), of files staged under the old one. Returns the links removed."""
    intake = paths.intake(source_name)
    walk = os.walk(intake, onerror=storage.raise_unless_gone)
    found = [os.path.relpath(os.path.join(folder, name), intake) for folder, _, names in walk for name in names]
    kept = {"linked", "staged"} if keep_staged else {"linked"}
    states = {row.link: row.state for row in ledger.rows(source_name, links=found)}
    swept = [link for link in found if states.get(link) not in kept]
    for link in swept:
        with contextlib.suppress(*_GONE):
            (intake / link).unlink()
        _prune((intake / link).parent, intake)
    ledger.forget_links(link for link in swept if states.get(link) == "published")
    return swept


def source_path(project: Project, path: str) -> str:
    """The absolute path of the file of a row, or the URI of its object. When another file has taken its name, this is
    the row's own path, where no file is."""
    if storage.names_object(path):
        return path
    return os.path.join(os.path.abspath(project.root), path if is_retired(path) else shown_path(path))


def _remove_link(link: Path, row: LedgerRow | None) -> tuple[str, int, int, bool] | None:
    """Remove a link. Returns what the ledger is to note of its file when only this removal has changed the ctime."""
    try:
        handle = os.open(link, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except _GONE:
        return None
    try:
        before = os.fstat(handle)
        with contextlib.suppress(*_GONE):
            link.unlink()
        if row is None or before.st_nlink == 1 or before.st_ctime_ns != row.ctime_ns:
            return None
        return row.path, row.mtime_ns, os.fstat(handle).st_ctime_ns, True
    finally:
        os.close(handle)


def _copy_aside(intake: Path, entry: FileEntry, piece: Piece, folder: str, spec: FilesSource) -> NewFile:
    """Copy a piece to a hidden name, whose token becomes part of the link's name."""
    token = secrets.token_hex(4)
    with opened(entry.abs_path, entry.roots) as handle:
        lines, mark = copy_piece(handle, piece, _aside(intake, token), line_end(spec))
    of_piece = (token, piece.begin, piece.until, piece.line_offset, lines, entry.ctime_ns, mark)
    return NewFile(entry.path, entry.size, entry.mtime_ns, folder, *of_piece)


def _aside(intake: Path, token: str) -> str:
    return str(intake / f".{token}.copy")


def _bring_in(intake: Path, link: str, token: str) -> bool:
    """Rename a copy to its link. Returns whether the link exists."""
    path = intake / link
    for is_again in (False, True):
        try:
            os.rename(_aside(intake, token), path)
            return True
        except FileNotFoundError:
            if is_again or path.parent.is_dir():
                return path.exists()
            path.parent.mkdir(parents=True)
    return False


def _link(handle: int, link: Path) -> _Content:
    """Create a hard link to the file of an O_PATH handle, or a copy. Returns its ctime after that, and its mark."""
    link.parent.mkdir(parents=True, exist_ok=True)
    with reopen(handle) as reader:  # a file that may not be read is not linked either
        try:
            # By its handle, since another file may have taken its name; src_dir_fd is not used, but makes Python follow
            # the link in /proc.
            os.link(f"/proc/self/fd/{handle}", link, src_dir_fd=handle, follow_symlinks=True)
        except FileExistsError:
            pass
        except OSError as error:
            if storage.is_disk_full(error):
                raise storage.disk_full(link) from error
            if error.errno not in _NO_HARD_LINK:
                raise
            _copy(reader, link)
        found = os.fstat(reader)
        return found.st_ctime_ns, mark_of(reader, found.st_size)


def _copy(reader: int, link: Path) -> None:
    before = os.fstat(reader)
    part = link.with_name(f".{link.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(part, "xb") as out:
            for chunk in read_range(reader, 0, before.st_size):
                out.write(chunk)
            out.flush()
            os.utime(out.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(out.fileno())
        after = os.fstat(reader)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise NotTaken("changed while it was copied")
        os.rename(part, link)
    except OSError as error:
        if storage.is_disk_full(error):
            raise storage.disk_full(link) from error
        raise
    finally:
        part.unlink(missing_ok=True)


def copy_object(pointer: Pointer, target: Path) -> None:
    """Copy an object, with its time."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with storage.path_is_named(target), pointer.open() as reader, open(part, "xb") as out:
            shutil.copyfileobj(reader, out, _COPIED_BYTES)
            out.flush()
            os.utime(out.fileno(), ns=(pointer.st_mtime_ns, pointer.st_mtime_ns))
        os.rename(part, target)
    finally:
        part.unlink(missing_ok=True)


def _stat(path: Path) -> tuple[int, int] | None:
    if (pointer := read_pointer(path)) is not None:
        return pointer.st_size, pointer.st_mtime_ns
    try:
        found = os.lstat(path)
    except _GONE:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _prune(folder: Path, intake: Path) -> None:
    while folder != intake:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
