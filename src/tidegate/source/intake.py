"""The intake: links with safe names to the files owed to Spark, ``state/<name>/intake/<source>/[k=v/]<id>.<ext>``.

Spark reads this folder and never the user's. Odd names, time stamps and later changes of the folder therefore do not
reach it, and every file it reads has its row in the ledger first. A link is a hard link, so a file that is deleted or
replaced before it was read keeps its content; where that cannot be had (another device, another owner, too many links)
it is a symbolic link to the absolute path, and :func:`restore_links` finds it dangling before Spark would pass over it
in silence.

Every function may be repeated after a crash, and by two processes at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate import storage
from tidegate.project import PipelinePaths, Project
from tidegate.source.ledger import Ledger, NewFile
from tidegate.source.line_numbers import line_number as line_number
from tidegate.source.line_numbers import line_numbers as line_numbers

if TYPE_CHECKING:
    from tidegate.source.files import FileEntry

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_NO_HARD_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_GONE = (FileNotFoundError, NotADirectoryError)
# What Hive escapes in a k=v folder name, and what Spark reads back; bytes that are no Unicode are escaped with them.
_HIVE_SPECIAL = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^\udc80-\udcff]")


@dataclass(frozen=True)
class Admitted:
    """``links`` are in the intake now; ``gone`` [{path, why}] went away, or away from us, since they were listed."""

    links: tuple[str, ...]
    gone: tuple[dict[str, str], ...]


@dataclass(frozen=True)
class Restored:
    """``links`` were made again. ``lost`` paths were taken, never read, and are gone: report them, then
    :meth:`Ledger.drop_linked`. ``changed`` paths are there and are read as they are now, not as they were taken."""

    links: tuple[str, ...]
    lost: tuple[str, ...]
    changed: tuple[str, ...]


def admit(
    project: Project, paths: PipelinePaths, source_name: str, entries: Sequence[FileEntry], ledger: Ledger
) -> Admitted:
    """Take the listed files: ledger rows first, in one transaction, then the links; the folder exists afterwards."""
    intake = paths.intake(source_name)
    intake.mkdir(parents=True, exist_ok=True)
    if not entries:
        return Admitted((), ())
    files = [NewFile(entry.path, entry.size, entry.mtime_ns, partition_folder(entry.partition)) for entry in entries]
    rows = ledger.add_links(source_name, files)
    links: list[str] = []
    gone: list[dict[str, str]] = []
    for row in rows:
        if row.state != "linked":
            continue  # taken by somebody else between listing and here
        try:
            _make_link(source_path(project, row.path), intake / row.link)
        except (*_GONE, PermissionError) as error:
            gone.append({"path": row.path, "why": f"listed, but not there to be read: {error.strerror}"})
        else:
            links.append(row.link)
    ledger.drop_linked(source_name, [one["path"] for one in gone])
    _sync_folders(intake, links)
    return Admitted(tuple(links), tuple(gone))


def restore_links(project: Project, paths: PipelinePaths, source_name: str, ledger: Ledger) -> Restored:
    """Make sure that every file that is owed to Spark has its link; to be called before each ingest.

    Costs next to nothing when nothing is owed. A dangling link of a lost file is removed.
    """
    intake = paths.intake(source_name)
    links: list[str] = []
    lost: list[str] = []
    changed: list[str] = []
    for row in ledger.rows(source_name, state="linked"):
        link = intake / row.link
        there = _stat(link)
        if there is None:
            with contextlib.suppress(*_GONE):
                link.unlink()
            try:
                _make_link(source_path(project, row.path), link)
            except (*_GONE, PermissionError):
                lost.append(row.path)
                continue
            links.append(row.link)
            there = _stat(link)
            if there is None:
                link.unlink(missing_ok=True)
                lost.append(row.path)
                continue
        if there != (row.size, row.mtime_ns):
            changed.append(row.path)
    _sync_folders(intake, links)
    return Restored(tuple(links), tuple(lost), tuple(changed))


def remove_links(paths: PipelinePaths, links: Iterable[tuple[str, str]], ledger: Ledger) -> int:
    """Remove the links of published files, as :meth:`Ledger.mark_published` returns them, and the folders left empty.

    Returns how many were given. The user's files stay as they are.
    """
    links = list(links)
    folders: dict[Path, Path] = {}
    for source_name, link in links:
        intake = paths.intake(source_name)
        with contextlib.suppress(*_GONE):
            (intake / link).unlink()
        folders[(intake / link).parent] = intake
    for folder, intake in folders.items():
        _prune(folder, intake)
    if links:
        ledger.forget_links(link for _, link in links)
    return len(links)


def sweep_intake(paths: PipelinePaths, source_name: str, ledger: Ledger, *, keep_staged: bool = True) -> list[str]:
    """Remove what Spark must not read: links of published or unknown files and, for a new checkpoint
    (``keep_staged=False``), of files staged under the old one. Returns the links removed."""
    intake = paths.intake(source_name)
    found = [
        os.path.relpath(os.path.join(folder, name), intake) for folder, _, names in os.walk(intake) for name in names
    ]
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
    """The absolute path of a file that the ledger knows as ``path``."""
    return os.path.join(os.path.abspath(project.root), path)


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """``k=v/...`` as Spark reads it back; "" without partitions. A value of None or "" is Hive's default partition."""
    return "/".join(f"{escape_hive(key)}={escape_hive(value or DEFAULT_PARTITION)}" for key, value in partition.items())


def escape_hive(text: str) -> str:
    """A partition key or value as part of a folder name."""
    return _HIVE_SPECIAL.sub(lambda match: "".join(f"%{byte:02X}" for byte in os.fsencode(match[0])), text)


def unescape_hive(text: str) -> str:
    """What :func:`escape_hive`, Hive or Spark wrote; a stray ``%`` stays."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def _make_link(source: str, link: Path) -> None:
    target = os.path.realpath(source) if os.path.islink(source) else source
    try:
        _link(target, link)
    except FileNotFoundError:
        if not os.path.exists(target):
            raise
        link.parent.mkdir(parents=True, exist_ok=True)
        _link(target, link)


def _link(target: str, link: Path) -> None:
    with contextlib.suppress(FileExistsError):
        try:
            os.link(target, link)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise storage.disk_full(link) from error
            if error.errno not in _NO_HARD_LINK:
                raise
            if not os.access(target, os.R_OK):
                # A symbolic link would lead Spark to what neither it nor we may read.
                os.stat(target)
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target) from error
            os.symlink(target, link)


def _stat(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _sync_folders(intake: Path, links: Sequence[str]) -> None:
    if links:
        state = intake.parents[1]
        inside = {(intake / link).parent for link in links}
        folders = {above for folder in inside for above in (folder, *folder.parents) if above.is_relative_to(state)}
        for folder in sorted(folders, reverse=True):
            storage.fsync_dir(folder)


def _prune(folder: Path, intake: Path) -> None:
    while folder != intake:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
