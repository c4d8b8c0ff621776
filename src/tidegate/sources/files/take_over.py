"""Converts the list of files that another job has read to the paths and the present state that the ledger needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.core.words import count_of
from tidegate.sources.files.ledger import NewFile
from tidegate.sources.files.scan import FilesScan, source_base, source_roots
from tidegate.sources.port import HandOver, ReadBefore
from tidegate.spec.models import FilesSource
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.outputs import AdoptedSource

_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class FilesHandOver(HandOver):
    """``taken`` are the files that count as read; those of size 0 are gone. ``scan`` is a first look at the source,
    when there is no list."""

    taken: list[NewFile] = field(default_factory=list)
    scan: FilesScan | None = None


class TakenNames:
    """Finds the ledger's path of a file that Spark knew by its full path, perhaps through another link."""

    def __init__(self, project: Project, source: FilesSource) -> None:
        self.root = os.path.abspath(project.root).rstrip("/") + "/"
        self.top = source_base(project, source).rstrip("/") + "/"
        folders = [os.path.realpath(self.top), *source_roots(project, source)]
        self.real = tuple(folder.rstrip("/") + "/" for folder in folders)

    def of_ledger(self, path: str) -> str:
        """Relative to the project where it is inside it, else absolute."""
        if not path.startswith(self.top):
            real = os.path.realpath(path)
            top = next((top for top in self.real if real.startswith(top)), None)
            path = path if top is None else self.top + real.removeprefix(top)
        return path.removeprefix(self.root)

    def knows(self, path: str) -> bool:
        """Whether a file is one of the source's."""
        return path.startswith(self.top) or os.path.realpath(path).startswith(self.real)


def plan_taken(name: str, names: TakenNames, read: ReadBefore, scan: FilesScan, start: str) -> FilesHandOver:
    """Plan which files of source ``name`` count as read. ``scan`` is a first look that passes over all files; listed
    files that the other job had not read are new, whatever ``start`` is."""
    here = {one.path: one for one in scan.before_start}
    taken: dict[str, NewFile] = {}
    gone, changed = [], []
    for file in read.files:
        path = names.of_ledger(file.path)
        found = here.get(path) or _stat(path, file.path)
        if found is None:
            gone.append(path)
            found = NewFile(path, 0, 0, "")
        elif file.time_ms and found.mtime_ns // 1_000_000 != file.time_ms:
            changed.append(path)
        taken[path] = found
    waiting = [path for path in here if path not in taken]
    summary: AdoptedSource = {
        "files_taken": len(taken),
        "files_gone": len(set(gone)),
        "files_waiting": len(waiting) + len(scan.settling),
    }
    notes = []
    if gone:
        are = "is" if len(gone) == 1 else "are"
        notes.append(f"source {name}: {_name(gone)} {are} gone since the old job read them")
    if changed:
        notes.append(
            f"source {name}: {_name(changed)} changed after the old job listed them: taken as read, as they are"
        )
    if waiting:
        notes.append(f"source {name}: the next run reads {_name(waiting)}, which the old job had not taken")
    if start != "all":
        notes.append(f"source {name}: start: {start} excludes nothing, since the checkpoint says what was read")
    return FilesHandOver(name, summary=summary, notes=notes, taken=list(taken.values()))


def _stat(path: str, as_read: str) -> NewFile | None:
    """Stat a file that exists, but that the source does not list."""
    try:
        found = os.stat(as_read)
    except OSError:
        return None
    return NewFile(path, found.st_size, found.st_mtime_ns, "", ctime_ns=found.st_ctime_ns)


def _name(paths: Sequence[str]) -> str:
    shown = ", ".join(sorted(set(paths))[:_NAMED_AT_MOST])
    number = len(set(paths))
    return f"{count_of(number, 'file')} ({shown}{', ...' if number > _NAMED_AT_MOST else ''})"
