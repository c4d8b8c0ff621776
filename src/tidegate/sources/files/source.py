"""Files as a source: compares the folder with the ledger, and takes files through the intake."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.sources.files.batch_plan import Limits, write_batches
from tidegate.sources.files.content import is_compressed
from tidegate.sources.files.findings import note_first_look, summarise_scan, summarise_start
from tidegate.sources.files.ledger import Ledger, NewFile, open_ledger
from tidegate.sources.files.notifications import ReadMessages
from tidegate.sources.files.scan import FileEntry, FilesScan, scan_files, source_base, source_roots, source_top
from tidegate.sources.port import (
    Age,
    Arrival,
    Chosen,
    Cut,
    HandOver,
    ReadBefore,
    SoFar,
    Source,
    Stream,
    warn_of_duplicates,
)
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.encodings import is_wide
from tidegate.spec.models import LINE_FORMATS, FilesSource
from tidegate.spec.project import Project
from tidegate.state.batch_files import BatchFile
from tidegate.state.topics import FilePart

if TYPE_CHECKING:
    from tidegate.core.outputs import AdoptedSource, TriedLook


@dataclass(frozen=True, kw_only=True)
class FilesArrival(Arrival):
    """Pending files: new ones, and taken ones that are in no batch."""

    scan: FilesScan

    @property
    def partition_columns(self) -> list[str]:
        """Columns whose values are in the ``k=v`` folders of the files."""
        return list(self.scan.partition_columns)


@dataclass(frozen=True)
class FilesHandOver(HandOver):
    """``taken`` are the files that count as read; those of size 0 are gone. ``scan`` is a first look at the source,
    when there is no list."""

    taken: list[NewFile] = field(default_factory=list)
    scan: FilesScan | None = None


class FilesStream(Stream):
    """A folder, or the files that match a pattern. ``ledger`` is open for :meth:`look`, :meth:`settle` and
    :meth:`sample`."""

    start_key: ClassVar[str | None] = "start"

    def __init__(
        self,
        project: Project,
        paths: PipelinePaths,
        name: str,
        spec: FilesSource,
        ledger: Ledger | None,
        read_messages: ReadMessages | None = None,
    ) -> None:
        super().__init__(project, paths, name)
        self.spec, self._ledger, self._read_messages = spec, ledger, read_messages

    def find_age(self, arrival: Arrival) -> Age:
        """By the modification time of the oldest file."""
        new = arrival.scan.new if isinstance(arrival, FilesArrival) else ()
        return Age(min((file.mtime_ns // 1_000_000 for file in new), default=None))

    @property
    def ledger(self) -> Ledger:
        """The pipeline's ledger."""
        assert self._ledger is not None, "a pipeline with files has an open ledger here"
        return self._ledger

    def scan(self) -> FilesScan:
        """Compare the folder with the ledger. Raises SourceLostError."""
        now, read = time.time(), self._read_messages
        return scan_files(self.project, self.paths, self.name, self.spec, self.ledger, now, read)

    def look(self, so_far: SoFar) -> FilesArrival:
        """Find the files that are in no batch. Raises SourceLostError SOURCE_MISSING and SOURCE_UNREADABLE."""
        scan = self.scan()
        waiting = self.ledger.rows(self.name, state="linked")
        files = len(scan.new) + len(waiting)
        size = sum(entry.size for entry in scan.new) + sum(row.size for row in waiting)
        summary = summarise_scan(scan, files, size)
        before_start = summarise_start(self.name, self.spec, scan, self.ledger)
        if before_start is not None:
            summary["before_start"] = before_start
        if self.spec.is_kept or is_to_infer(self.spec):
            summary["schema"] = self.spec.schema
        return FilesArrival(summary, files=files, bytes=size, comes_later=bool(scan.settling), scan=scan)

    def write_batches(self, arrival: Arrival, cut: Cut, check: Callable[[], None]) -> None:
        """Write batch files for all pending links in the intake, the oldest files first."""
        try:
            self._write([row.link for row in self.ledger.waiting(self.name)], cut, check)
        except ValueError as torn:
            raise self.torn_error(torn) from torn

    def write_chosen(self, chosen: Chosen, cut: Cut, check: Callable[[], None]) -> None:
        """Write batch files for the chosen links, in their order."""
        self._write(chosen.links, cut, check)

    def _write(self, waiting: Iterable[str], cut: Cut, check: Callable[[], None]) -> None:
        limits = Limits.of(self.spec, cut)
        write_batches(self.batch_files, self.paths.intake(self.name), waiting, self.spec, limits, check)

    def describe(self) -> str:
        """Its path."""
        return f"{self.name}: {self.spec.path}"

    def may_continue(self, read: ReadBefore) -> bool:
        """Return whether all files are of this source's folder."""
        names = TakenNames(self.project, self.spec)
        return not read.offsets and all(names.knows(file.path) for file in read.files)

    def continue_from(self, read: ReadBefore) -> FilesHandOver:
        """Continue with the other files; the files of ``read`` are recorded as they are now."""
        # Like a first look that passes over all files: it finds the marks that are needed to read appended lines later.
        scan = self._look_afresh("now")
        return plan_taken(self.name, TakenNames(self.project, self.spec), read, scan, self.spec.start)

    def start_from_spec(self) -> FilesHandOver:
        """Start with a first look, now."""
        scan = self._look_afresh(self.spec.start)
        waiting = len(scan.new) + len(scan.settling)
        summary: AdoptedSource = {"files_taken": len(scan.before_start), "files_gone": 0, "files_waiting": waiting}
        return FilesHandOver(
            self.name, summary=summary, notes=[warn_of_duplicates(self.name, self.spec.start)], scan=scan
        )

    def note_hand_over(self, plan: HandOver, query_id: str) -> None:
        """Record it in the ledger."""
        assert isinstance(plan, FilesHandOver), "a plan of this source"
        if plan.scan is None:
            self.ledger.hand_over(self.name, self.spec.start, plan.taken, query_id=query_id)
        else:
            note_first_look(self.ledger, self.name, self.spec, plan.scan)
            self.ledger.note_start_reported([self.name])

    def _look_afresh(self, start: str) -> FilesScan:
        """Scan as in a first look with this ``start``, with an empty ledger."""
        never_run = replace(self.paths, state=self.paths.state / "never")
        with open_ledger(never_run, read_only=True) as nothing:
            spec = self.spec.replace(start=start)
            return scan_files(self.project, self.paths, self.name, spec, nothing, time.time())

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """Copy the newest files, up to ``rows`` lines in total for line formats, and describe the files found."""
        never_run = replace(self.paths, state=folder / "nothing")
        with open_ledger(never_run, read_only=True) as ledger:
            every = self.spec.replace(start="all")
            scan = FilesStream(self.project, never_run, self.name, every, ledger).scan()
        found: TriedLook = {
            "path": self.spec.path,
            "files": len(scan.new),
            "settling": list(scan.settling),
            "skipped": list(scan.skipped),
        }
        left = rows
        for entry in sorted(scan.new, key=lambda one: one.mtime_ns, reverse=True):
            if left <= 0:
                break
            # As in the project, so that a record is named by its own file; one from elsewhere is below the folder too.
            target = folder / entry.path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            left -= _take_lines(entry, target, self.spec, left)
        root = f"{os.path.abspath(self.project.root)}/"
        top, base = (
            str(folder / one.removeprefix(root).lstrip("/"))
            for one in (source_top(self.project, self.spec), source_base(self.project, self.spec))
        )
        if not os.path.exists(base):  # no file was found
            os.makedirs(base)
        return {"path": top, "settle": "0 seconds", "start": "all"}, found


class StoredTexts(Source):
    """Files of stored texts, in the intake of a side job; no run has such a source."""

    def write_chosen(self, chosen: Chosen, cut: Cut, check: Callable[[], None]) -> None:
        """Write all files to batch file 0."""
        check()
        self.batch_files.put(BatchFile(0, parts=[FilePart(link) for link in chosen.links]))


def _take_lines(entry: FileEntry, target: Path, source: FilesSource, wanted: int) -> int:
    """Copy the file, or its first lines. Returns how many rows that counts for."""
    whole = source.format not in LINE_FORMATS or is_compressed(entry.path)
    whole = whole or target.exists()  # another source reads the same file, in its own way
    whole = whole or is_wide(str(source.options.get("encoding", "")))
    if whole or any(key.lower() in ("multiline", "linesep", "wholetext") for key in source.options):
        with entry.open() as reader, open(target, "wb") as writer:
            shutil.copyfileobj(reader, writer)
        return wanted
    has_header = source.format == "csv" and str(source.options.get("header", "")).lower() == "true"
    with entry.open() as reader, open(target, "wb") as writer:
        lines = 0
        for line in islice(reader, wanted + has_header):
            writer.write(line)
            lines += 1
    return lines - has_header


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
        """Return whether a file is one of the source's."""
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
    names = sorted(set(paths))
    return f"{count_of(len(names), 'file')} ({list_first(names)})"
