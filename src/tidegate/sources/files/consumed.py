"""Files of a source that were read and are needed no more: found, then moved into an archive or removed.

The ledger keeps their rows, so a file that is put back is known, and is not read again. That they are away is noted in
the ledger first: a later look at the folder does not take them for lost.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.paths import PipelinePaths
from tidegate.project import Project
from tidegate.sources.files.ledger import Ledger, LedgerRow
from tidegate.sources.files.listing import ARCHIVE_FOLDER, Listing
from tidegate.sources.files.scan import list_files, scan_files
from tidegate.spec.models import FilesSource

_NOTED_AT_ONCE = 500


@dataclass(frozen=True)
class ConsumedFile:
    """A file that was read: ``path`` as the ledger has it, the others as it was found now."""

    path: str
    abs_path: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Consumed:
    """What of a source's files can go; ``base`` is the folder in or below which all of them are."""

    base: str
    files: tuple[ConsumedFile, ...]

    @property
    def bytes(self) -> int:
        """What they take up."""
        return sum(file.size for file in self.files)


def find_consumed(
    project: Project,
    paths: PipelinePaths,
    source_name: str,
    spec: FilesSource,
    ledger: Ledger,
    recent: Mapping[str, int],
) -> Consumed:
    """The files whose records are published (or left out for good) and that are what was read. Nothing is changed.

    ``recent`` {query id: batch}: files of that batch and later ones stay. So do files that links lead to, files of
    which pieces were taken, and those with a change that nobody has acknowledged. Raises what
    :func:`tidegate.sources.files.scan.scan_files` does.
    """
    scan = scan_files(project, paths, source_name, spec, ledger)
    listing = list_files(project, paths, source_name, spec)
    prefix = os.path.abspath(project.root).rstrip("/") + "/"
    by_path = {path.removeprefix(prefix): (path, found) for path, found in listing.files}
    changed = {one["path"] for one in scan.changed}
    same = {path for path, *_ in scan.same}
    files = []
    for path, row in ledger.known(source_name, list(by_path)).items():
        abs_path, found = by_path[path]
        as_read = (found.st_size, found.st_mtime_ns) == (row.size, row.mtime_ns) or path in same
        if as_read and path not in changed and _is_done(row, recent) and _is_own(abs_path, listing):
            files.append(ConsumedFile(path, abs_path, found.st_size, found.st_mtime_ns, found.st_ino))
    return Consumed(listing.base, tuple(sorted(files, key=lambda file: file.path)))


def _is_done(row: LedgerRow, recent: Mapping[str, int]) -> bool:
    if row.state != "published" or row.noted is not None or row.until is not None:
        return False
    return row.query_id is not None and row.batch_id is not None and row.batch_id < recent.get(row.query_id, 2**63)


def _is_own(path: str, listing: Listing) -> bool:
    """Whether a path leads to a file of the source's own folder without any link below that."""
    return os.path.realpath(path) == os.path.realpath(listing.base) + path[len(listing.base) :]


def clear_consumed(
    ledger: Ledger,
    source_name: str,
    consumed: Consumed,
    how: Literal["archive", "delete"],
    check_lease: Callable[[], None],
) -> tuple[Sequence[ConsumedFile], Collection[str]]:
    """Move the files into the archive, or remove them; those that went, and why others did not.

    Each is renamed first and looked at then: one that was replaced at this moment is put back. Killed anywhere, what is
    still there is found again.
    """
    done: list[ConsumedFile] = []
    faults: dict[str, None] = {}
    for begin in range(0, len(consumed.files), _NOTED_AT_ONCE):
        some = consumed.files[begin : begin + _NOTED_AT_ONCE]
        check_lease()
        ledger.note_vanished(source_name, [file.path for file in some])
        for file in some:
            check_lease()
            try:
                target = _archive(consumed.base, file)
                if target is not None and how == "delete":
                    os.unlink(target)
            except OSError as error:
                faults[f"{file.path}: {error.strerror}"] = None
                continue
            if target is not None:
                done.append(file)
    if how == "delete":
        _remove_empty_folders(os.path.join(consumed.base, ARCHIVE_FOLDER))
    return done, list(faults)


def _archive(base: str, file: ConsumedFile) -> str | None:
    """Where the file is now; None when it is gone, or is another one than was looked at, which stays."""
    inside = os.path.relpath(file.abs_path, base)
    wanted = os.path.join(base, ARCHIVE_FOLDER, inside)
    os.makedirs(os.path.dirname(wanted), exist_ok=True)
    target, number = wanted, 0
    while os.path.lexists(target):
        number += 1
        target = f"{wanted}.{number}"
    try:
        os.rename(file.abs_path, target)
    except FileNotFoundError:
        return None
    found = os.lstat(target)
    if stat.S_ISREG(found.st_mode) and (found.st_ino, found.st_size, found.st_mtime_ns) == (
        *(file.inode, file.size, file.mtime_ns),
    ):
        return target
    with contextlib.suppress(FileExistsError):  # else there is a third one by now, and this one stays in the archive
        os.link(target, file.abs_path, follow_symlinks=False)
        os.unlink(target)
    return None


def _remove_empty_folders(top: str) -> None:
    for folder, *_ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
