"""Finds files of a source that were read and are no longer needed, and archives or removes them.

The ledger keeps their rows: a file that is put back is not read again, while another file of the same name is a new
file. A process may be killed between any two steps; the next run or maintenance then calls :func:`finish_clearing`::

    noted as leaving ──> moved to a hidden name, after its link ──> looked at: what was read? ──> noted as cleared
                              put back  <─────────────────────────  no                        ──> removed, or archived
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.sources.files.content import NotTaken, mark_of, opened, reopen
from tidegate.sources.files.intake import source_path
from tidegate.sources.files.ledger import Ledger, LedgerRow, is_retired, shown_path
from tidegate.sources.files.listing import ARCHIVE_FOLDER, Listing
from tidegate.sources.files.scan import list_files, source_base
from tidegate.sources.files.source import FilesStream
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.manifest import BatchKey

_NOTED_AT_ONCE = 500
_MOVING = ".moving"
"""In the archive folder: files that are being moved, each under its link."""


@dataclass(frozen=True)
class ConsumedFile:
    """A file that was read: ``path`` and ``link`` from the ledger, the other values from the file as it is now."""

    path: str
    abs_path: str
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    link: str


@dataclass(frozen=True)
class Consumed:
    """Files of a source that can be archived or removed; all are below the folder ``base``. ``doubtful`` are paths of
    files that may have been replaced since they were read."""

    base: str
    files: tuple[ConsumedFile, ...]
    doubtful: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(file.size for file in self.files)


def find_consumed(stream: FilesStream, recent: Mapping[str, int], needed: Collection[BatchKey] = ()) -> Consumed:
    """Find the files whose records are published or discarded and that did not change since. Changes nothing.

    ``recent`` {query id: batch}: files of that batch and later ones stay, as do those of the batches ``needed``. Files
    behind links, files that were read in pieces, and files with a change that is not acknowledged stay too. Raises what
    :func:`tidegate.sources.files.scan.scan_files` does.
    """
    scan = stream.scan()
    listing = list_files(stream.project, stream.paths, stream.name, stream.spec)
    prefix = os.path.abspath(stream.project.root).rstrip("/") + "/"
    by_path = {
        path.removeprefix(prefix): (path, found) for path, found in listing.files if isinstance(found, os.stat_result)
    }
    others = {one["path"] for one in scan.changed} | {one.path for one in scan.new}
    same = {path for path, *_ in scan.same}
    files, doubtful = [], []
    for path, row in stream.ledger.known(stream.name, list(by_path)).items():
        abs_path, found = by_path[path]
        as_read = (found.st_size, found.st_mtime_ns) == (row.size, row.mtime_ns) or path in same
        if not as_read or path in others or not _is_done(row, recent, needed) or not _is_own(abs_path, listing):
            continue
        if not _is_certain(row, abs_path, found, listing):
            doubtful.append(path)
            continue
        stamps = (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)
        files.append(ConsumedFile(path, abs_path, *stamps, row.link))
    return Consumed(listing.base, tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(doubtful)))


def _is_done(row: LedgerRow, recent: Mapping[str, int], needed: Collection[BatchKey]) -> bool:
    if row.state != "published" or row.noted is not None or row.until is not None:
        return False
    if row.query_id is None or row.batch_id is None or BatchKey(row.query_id, row.batch_id) in needed:
        return False
    return row.batch_id < recent.get(row.query_id, 2**63)


def _is_own(path: str, listing: Listing) -> bool:
    """Return whether a path leads to a file in the source's folder without a link below that folder."""
    return os.path.realpath(path) == os.path.realpath(listing.base) + path[len(listing.base) :]


def _is_certain(row: LedgerRow, path: str, found: os.stat_result, listing: Listing) -> bool:
    """Return whether a file is certainly the one that was read.

    Its size and mtime do not prove that, since they can be set at will; its ctime does, and so does a mark of the whole
    content.
    """
    stamps = (row.size, row.mtime_ns, row.ctime_ns)
    if not row.doubt and stamps == (found.st_size, found.st_mtime_ns, found.st_ctime_ns):
        return True
    if row.mark is None or not row.mark.is_whole or row.mark.size != found.st_size:
        return False
    with contextlib.suppress(NotTaken, OSError):
        with opened(path, listing.roots, (found.st_dev, found.st_ino)) as handle, reopen(handle) as reader:
            return mark_of(reader, found.st_size) == row.mark
    return False


_How = Literal["archive", "delete"]


def clear_consumed(
    ledger: Ledger, source_name: str, consumed: Consumed, how: _How, check_lease: Callable[[], None]
) -> tuple[Sequence[ConsumedFile], Collection[str]]:
    """Archive or remove the files. Returns the files that were moved, and why others were not.

    Each file is first moved to a hidden name and then checked: one that was replaced meanwhile is put back.
    """
    done: list[ConsumedFile] = []
    faults: dict[str, None] = {}
    for begin in range(0, len(consumed.files), _NOTED_AT_ONCE):
        some = consumed.files[begin : begin + _NOTED_AT_ONCE]
        check_lease()
        ledger.note_place(source_name, [file.path for file in some], "leaving")
        moved = []
        for file in some:
            check_lease()
            try:
                if _move(consumed.base, file):
                    moved.append(file)
            except OSError as error:
                faults[f"{file.path}: {error.strerror}"] = None
        ledger.note_place(source_name, [file.path for file in moved], "cleared")
        ledger.note_place(source_name, set(ledger.leaving(source_name)) & {file.path for file in some}, "here")
        for file in moved:
            check_lease()
            try:
                _end(consumed.base, file.abs_path, file.link, how)
                done.append(file)
            except OSError as error:
                faults[f"{file.path}: {error.strerror}"] = None
    _remove_empty_folders(os.path.join(consumed.base, ARCHIVE_FOLDER))
    return done, list(faults)


def finish_clearing(project: Project, ledger: Ledger, spec: PipelineSpec, check_lease: Callable[[], None]) -> list[str]:
    """Finish a clean-up that was killed: files that were read are archived or removed, others are put back. Returns
    notes; costs next to nothing when there is nothing to do."""
    how: _How = "delete" if spec.maintenance.source == "delete" else "archive"
    sources = spec.file_streams.items()
    return [note for name, one in sources for note in _finish(project, ledger, name, one, how, check_lease)]


def _finish(
    project: Project, ledger: Ledger, source_name: str, spec: FilesSource, how: _How, check_lease: Callable[[], None]
) -> list[str]:
    base = source_base(project, spec)
    leaving = set(ledger.leaving(source_name))
    moving = os.path.join(base, ARCHIVE_FOLDER, _MOVING)
    if not leaving and not os.path.isdir(moving):
        return []
    check_lease()
    notes: list[str] = []
    there = {os.path.relpath(path, moving): path for path in _list_paths(moving)}
    rows = ledger.rows(source_name, links=list(there))
    cleared = {row.link: row for row in rows if row.place == "cleared" or is_retired(row.path)}
    for row in rows:
        found = os.lstat(there[row.link])
        if row.place == "leaving" and (found.st_size, found.st_mtime_ns) == (row.size, row.mtime_ns):
            cleared[row.link] = row
        elif row.link not in cleared and not _put_back(there[row.link], original := source_path(project, row.path)):
            kept = _archive(base, original, row.link)
            notes.append(f"{row.path} was replaced twice during a clean-up: {kept}, one of the two, was not read")
    ledger.note_place(source_name, leaving & {row.path for row in cleared.values()}, "cleared")
    ledger.note_place(source_name, leaving - {row.path for row in cleared.values()}, "here")
    for row in cleared.values():
        check_lease()
        _end(base, source_path(project, shown_path(row.path)), row.link, how)
    _remove_empty_folders(os.path.join(base, ARCHIVE_FOLDER))
    return notes


def _list_paths(top: str) -> Iterator[str]:
    for folder, _, names in os.walk(top):
        yield from (os.path.join(folder, name) for name in names)


def _way(base: str, link: str) -> str:
    return os.path.join(base, ARCHIVE_FOLDER, _MOVING, link)


def _move(base: str, file: ConsumedFile) -> bool:
    """Move a file to its hidden name. Returns False when it is gone, or is no longer the file that was found. Raises
    OSError when a replaced file cannot be given its name back."""
    way = _way(base, file.link)
    os.makedirs(os.path.dirname(way), exist_ok=True)
    as_found = (file.inode, file.size, file.mtime_ns)
    try:
        found = os.lstat(file.abs_path)
        if (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) != (*as_found, file.ctime_ns):
            return False
        os.rename(file.abs_path, way)
    except FileNotFoundError:
        return False
    found = os.lstat(way)
    if (found.st_ino, found.st_size, found.st_mtime_ns) == as_found:
        return True
    if not _put_back(way, file.abs_path):  # a third file has the name by now
        kept = _archive(base, file.abs_path, file.link)
        why = f"it was replaced twice during the clean-up: {kept}, one of the two, was not read"
        raise FileExistsError(errno.EEXIST, why)
    return False


def _put_back(way: str, original: str) -> bool:
    """Give a file its name back. Returns False when another file has it."""
    try:
        os.link(way, original, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(os.lstat(way), os.lstat(original)):
            return False
    except OSError:  # a file system without hard links
        if os.path.lexists(original):
            return False
        os.rename(way, original)
        return True
    os.unlink(way)
    return True


def _end(base: str, original: str, link: str, how: _How) -> None:
    if how == "delete":
        os.unlink(_way(base, link))
    else:
        _archive(base, original, link)


def _archive(base: str, original: str, link: str) -> str:
    """Move a file into the archive, under its own name or one with a number. Returns the path."""
    wanted = os.path.join(base, ARCHIVE_FOLDER, os.path.relpath(original, base))
    os.makedirs(os.path.dirname(wanted), exist_ok=True)
    target, number = wanted, 0
    while os.path.lexists(target):
        number += 1
        target = f"{wanted}.{number}"
    os.rename(_way(base, link), target)
    return target


def _remove_empty_folders(top: str) -> None:
    for folder, *_ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
