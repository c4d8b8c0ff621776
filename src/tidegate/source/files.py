"""What is new in a file source, found out without a JVM and without touching anything.

A file is known by its path and is read once, whatever its time stamps. Taken are regular files in the folder, in its
``k=v`` sub-folders, or matching the glob. Everything else is named in ``skipped`` with the reason, on every scan:
nothing is passed over in silence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tidegate.errors import SourceLostError, UsageError
from tidegate.project import PipelinePaths, Project
from tidegate.source.intake import DEFAULT_PARTITION, unescape_hive
from tidegate.source.ledger import Ledger, LedgerRow
from tidegate.source.listing import Listing, list_source
from tidegate.source.partition_values import fits_value
from tidegate.spec.models import FilesSource

POLICY_CHANGED = "not read again"


class FileEntry(NamedTuple):
    """A file to take. ``path`` as the ledger and the reports name it; ``partition`` holds the values of the schema's
    columns that stand in its ``k=v`` folders, in one order for all entries, None for Hive's default partition."""

    path: str
    abs_path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    partition: dict[str, str | None]


@dataclass(frozen=True)
class FilesScan:
    """What a source has, compared with its ledger. Paths are relative to the project root where they are inside it.

    ``skipped`` [{path, why}] and ``settling`` [{path, age_seconds}] are named on every scan. ``changed``
    [{path, was, now, policy}] (size and mtime_ns) and ``vanished`` [path] are named until :func:`note_scan` has put
    them on record; both were taken before, so no record of them is owed.
    """

    new: tuple[FileEntry, ...]
    settling: tuple[dict[str, Any], ...]
    skipped: tuple[dict[str, str], ...]
    changed: tuple[dict[str, Any], ...]
    vanished: tuple[str, ...]
    partition_columns: tuple[str, ...]
    """Columns of the schema whose value stands in the ``k=v`` folders of the entries."""

    @property
    def bytes(self) -> int:
        """Size of the new files, as they are on disk."""
        return sum(entry.size for entry in self.new)

    @property
    def oldest(self) -> datetime | None:
        """When the new file that waits longest arrived or was last changed, by its ctime, which cannot be set."""
        if not self.new:
            return None
        return datetime.fromtimestamp(min(entry.ctime_ns for entry in self.new) / 1e9, UTC)


EMPTY_SCAN = FilesScan((), (), (), (), (), ())
"""A folder that is not there yet, and need not be."""


def scan_files(
    project: Project,
    paths: PipelinePaths,
    source_name: str,
    spec: FilesSource,
    ledger: Ledger,
    now: float | None = None,
) -> FilesScan:
    """Compare the folder with the ledger at ``now`` (seconds since the epoch). Reads names and stats only.

    Raises SourceLostError SOURCE_MISSING when the folder is not there (an empty one is well), SOURCE_UNREADABLE when it
    may not be listed; UsageError SOURCE_NOT_LOCAL for a URI.
    """
    now = time.time() if now is None else now
    root = os.path.abspath(project.root)
    listing = _list(project, paths, source_name, spec)
    prefix = root.rstrip("/") + "/"
    by_path = {path[len(prefix) :] if path.startswith(prefix) else path: (path, found) for path, found in listing.files}
    known = ledger.known_states(source_name, list(by_path))
    skipped = [{"path": path.removeprefix(prefix), "why": why} for path, why in listing.skipped]
    settling: list[dict[str, Any]] = []
    differing: list[str] = []
    fresh: list[FileEntry] = []
    for path, (abs_path, found) in by_path.items():
        state = known.get(path)
        if state is not None:
            if (found.st_size, found.st_mtime_ns) != state[:2]:
                differing.append(path)
            continue
        if not found.st_size:
            skipped.append({"path": path, "why": "empty: taken as soon as there is something in it"})
        elif spec.settle and (age := _age_seconds(found, now)) < spec.settle:
            settling.append({"path": path, "age_seconds": round(age, 3)})
        elif not os.access(abs_path, os.R_OK):
            skipped.append({"path": path, "why": "no permission to read it"})
        else:
            size, mtime_ns, ctime_ns = found.st_size, found.st_mtime_ns, found.st_ctime_ns
            fresh.append(FileEntry(path, abs_path, size, mtime_ns, ctime_ns, {}))
    changed = [_change(row, by_path[path][1]) for path, row in ledger.known(source_name, differing).items()]
    fresh.sort()
    pinned = _outstanding_columns(source_name, ledger)
    columns = pinned or ()
    if pinned or any("=" in entry.path for entry in fresh):
        fresh, columns, misplaced = _place_in_partitions(pinned, spec, listing, fresh)
        skipped += misplaced
    return FilesScan(
        new=tuple(fresh),
        settling=tuple(settling),
        skipped=tuple(skipped),
        changed=tuple(change for change in changed if change is not None),
        vanished=_vanished(source_name, ledger, known, listing, prefix),
        partition_columns=columns,
    )


def list_static(
    project: Project, paths: PipelinePaths, source_name: str, spec: FilesSource
) -> tuple[list[FileEntry], tuple[str, ...]]:
    """All files of a static source by path, and the columns of the schema whose values stand in their folders.

    Raises what :func:`scan_files` does, and SourceLostError STATIC_EMPTY when there is no file with anything in it: a
    join with nothing would drop or blank every row in silence.
    """
    listing = _list(project, paths, source_name, spec)
    prefix = os.path.abspath(project.root).rstrip("/") + "/"
    entries = sorted(
        FileEntry(path.removeprefix(prefix), path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, {})
        for path, found in listing.files
        if found.st_size
    )
    if not entries:
        raise static_is_empty(paths, source_name, spec)
    placed, columns, misplaced = _place_in_partitions(None, spec, listing, entries)
    if misplaced:
        raise SourceLostError(
            "STATIC_MIXED",
            f"static source {source_name}: {misplaced[0]['path']}: {misplaced[0]['why']}",
            where=f"{paths.spec}: sources.{source_name}.path",
            next_run="looks again; nothing was read",
            fix="keep all its files in folders of the same columns",
        )
    return placed, columns


def static_is_empty(paths: PipelinePaths, source_name: str, spec: FilesSource) -> SourceLostError:
    """The error for a static source without any record."""
    return SourceLostError(
        "STATIC_EMPTY",
        f"the static source {source_name} of pipeline {paths.name} has no file with anything in it",
        where=f"{paths.spec}: sources.{source_name}.path",
        next_run="looks again; nothing was read",
        fix=f"put its files into {spec.path}, or correct the path",
    )


def note_scan(ledger: Ledger, source_name: str, scan: FilesScan) -> None:
    """Put the changes and absences of ``scan`` on record; to be called once a report names them."""
    if scan.changed:
        changes = [(one["path"], one["now"]["size"], one["now"]["mtime_ns"]) for one in scan.changed]
        ledger.note_changed(source_name, changes)
    if scan.vanished:
        ledger.note_vanished(source_name, scan.vanished)


def _list(project: Project, paths: PipelinePaths, source_name: str, spec: FilesSource) -> Listing:
    where = f"{paths.spec}: sources.{source_name}.path"
    path = spec.path.removeprefix("file://")
    if "://" in path:
        raise UsageError(
            "SOURCE_NOT_LOCAL",
            f"source {source_name} of pipeline {paths.name} is at {path}; files are read from local or mounted folders",
            where=where,
            next_run="refuses to start until the path is changed",
            fix="mount the store as a folder, or copy its files into one, and give that folder as path",
        )
    top = os.path.normpath(os.path.join(os.path.abspath(project.root), path))
    try:
        return list_source(
            top,
            name_filter=spec.options.get("pathGlobFilter"),
            is_recursive=str(spec.options.get("recursiveFileLookup", "false")).lower() == "true",
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceLostError(
            "SOURCE_MISSING",
            f"source {source_name} of pipeline {paths.name} has no folder {error.filename}",
            where=where,
            next_run="looks again; files that were not taken yet are read once the folder is back",
            fix=f"mkdir -p {error.filename}, mount what belongs there, or correct the path",
        ) from error
    except PermissionError as error:
        raise SourceLostError(
            "SOURCE_UNREADABLE",
            f"source {source_name} of pipeline {paths.name}: no permission to list {error.filename}",
            where=where,
            next_run="looks again",
            fix=f"give the user of this process read and search permission on {error.filename}",
        ) from error


def _age_seconds(found: os.stat_result, now: float) -> float:
    """Seconds since the last change. The mtime can be set at will, the ctime cannot; a future mtime says nothing."""
    changed_at = found.st_ctime
    if found.st_mtime <= now:
        changed_at = max(changed_at, found.st_mtime)
    return now - changed_at


def _change(row: LedgerRow, found: os.stat_result) -> dict[str, Any] | None:
    # Until it is staged, what is read is settled when it is read, and put down then.
    if row.state == "linked" or row.noted == (found.st_size, found.st_mtime_ns):
        return None
    was = {"size": row.size, "mtime_ns": row.mtime_ns}
    now = {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
    return {"path": row.path, "was": was, "now": now, "policy": POLICY_CHANGED}


def _vanished(
    source_name: str, ledger: Ledger, known: Mapping[str, tuple[int, int, bool]], listing: Listing, prefix: str
) -> tuple[str, ...]:
    here = sum(1 for _, _, vanished in known.values() if not vanished)
    if ledger.count_present(source_name) <= here:
        return ()
    missing = [path for path in ledger.present_paths(source_name) if path not in known]
    # What stands behind a folder that could not be listed, or is skipped now but still there, has not vanished.
    blind = tuple(folder.removeprefix(prefix) + "/" for folder in listing.unlisted)
    skipped = {path.removeprefix(prefix) for path, _ in listing.skipped}
    return tuple(sorted(path for path in missing if path not in skipped and not (blind and path.startswith(blind))))


def _place_in_partitions(
    pinned: tuple[str, ...] | None, spec: FilesSource, listing: Listing, entries: Sequence[FileEntry]
) -> tuple[list[FileEntry], tuple[str, ...], list[dict[str, str]]]:
    """The entries with their partition values. All files of a source must agree on which columns stand in folders,
    since Spark reads the others from inside the files."""
    columns, kinds = _schema_columns(spec), _column_types(spec) or {}
    by_folder: dict[str, dict[str, str | None]] = {}
    for entry in entries:
        folder = os.path.dirname(entry.abs_path)
        if folder not in by_folder:
            by_folder[folder] = partition_of(folder[len(listing.base) :], columns)
    if pinned is None:
        pinned = max((tuple(partition) for partition in by_folder.values()), key=len, default=())
    placed: list[FileEntry] = []
    misplaced: list[dict[str, str]] = []
    for entry in entries:
        partition = by_folder[os.path.dirname(entry.abs_path)]
        if set(partition) != set(pinned):
            why = f"its folders give the columns ({', '.join(partition)}), those of the source ({', '.join(pinned)})"
            misplaced.append({"path": entry.path, "why": why})
        elif wrong := [one for one, value in partition.items() if not fits_value(value, kinds.get(one, ""))]:
            told = ", ".join(f"{one}={partition[one]}, and {one} is {kinds[one].upper()}" for one in wrong)
            misplaced.append({"path": entry.path, "why": f"its folder says {told}"})
        else:
            placed.append(entry._replace(partition={column: partition[column] for column in pinned}))
    return placed, pinned, misplaced


def partition_of(folders: str, columns: Mapping[str, str] | None) -> dict[str, str | None]:
    """The values in ``k=v`` folders, of the ``columns`` {lower-case name: name} or of all; None for Hive's default."""
    partition: dict[str, str | None] = {}
    for part in folders.split("/"):
        key, equals, value = part.partition("=")
        if not equals or not key:
            continue
        key = unescape_hive(key)
        column = key if columns is None else columns.get(key.lower())
        if column is not None:
            partition[column] = None if value == DEFAULT_PARTITION else unescape_hive(value)
    return partition


def _schema_columns(spec: FilesSource) -> dict[str, str] | None:
    """{lower-case name: name} of the declared columns; None when nothing is declared and every k=v folder counts."""
    kinds = _column_types(spec)
    return None if kinds is None else {name.lower(): name for name in kinds}


def _column_types(spec: FilesSource) -> dict[str, str] | None:
    from tidegate.spec.ddl import is_infer, parse_ddl

    if spec.schema_ is None or is_infer(spec.schema_):
        return None
    return {name: kind for name, kind, _ in parse_ddl(spec.schema_)}


def _outstanding_columns(source_name: str, ledger: Ledger) -> tuple[str, ...] | None:
    """The partition columns of the links that are in the intake now, which new ones have to match; None: no links."""
    link = ledger.any_link(source_name)
    if link is None:
        return None
    return tuple(partition_of(os.path.dirname(link), None))
