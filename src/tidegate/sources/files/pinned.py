"""Files as a static source: one version per run, and the same one for a batch that is run again.

Each run reads the files of the moment. They are first copied into the pipeline's state, so that later changes of the
originals affect neither the run nor a batch that was killed and is run again. Each copy has a new folder, which is
valid once a run has recorded it: a process that lost its lease while copying has changed nothing of its successor.
Unchanged files are not copied again. The table of another pipeline is read at its newest version; its files never
change and are linked.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shlex
import shutil
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import STORAGE_FAILED, SourceLostError, TryAgainError, on_failure
from tidegate.core.paths import PipelinePaths
from tidegate.core.storage.faults import ObjectChangedError
from tidegate.sources import errors
from tidegate.sources.files.content import NotTaken, opened, reopen
from tidegate.sources.files.forms import find_fault
from tidegate.sources.files.intake import copy_object
from tidegate.sources.files.ledger import link_suffix
from tidegate.sources.files.listing import find_unreadable
from tidegate.sources.files.partition_values import partition_folder
from tidegate.sources.files.scan import FileEntry, list_files, place_in_partitions
from tidegate.sources.port import Pinned, StaticSource
from tidegate.sources.readers.links import Pointer
from tidegate.spec.models import FilesSource
from tidegate.spec.project import Project
from tidegate.table.log.state import has_log, list_data_files


class StaticFiles(StaticSource):
    """A folder, a pattern, or the table of another pipeline."""

    def __init__(self, project: Project, paths: PipelinePaths, name: str, spec: FilesSource) -> None:
        self._project, self._paths, self._name, self._spec = project, paths, name, spec
        self._folder = storage.normalise(project.place(spec.path))

    def pin(self, known: Pinned | None) -> Pinned:
        """Copy all files, unless ``known`` has copies of the same ones."""
        entries, columns, is_table = self._list()
        if not entries:  # a join would silently drop or blank every row
            raise self._missing(f"{self._paths.spec}: sources.{self._name}.path", "has no file, or only empty ones")
        text = json.dumps([[entry.path, entry.size, entry.mtime_ns] for entry in entries])
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        is_here = known is not None and Path(known.get("folder", "")).parent == self._paths.static(self._name)
        if known is not None and is_here and known["version"] == version:
            return known
        folder = self._paths.static(self._name) / f"{version}.{secrets.token_hex(6)}"
        links = []
        with on_failure(lambda: storage.remove_tree(folder)):
            for number, entry in enumerate(entries):
                inside = partition_folder(entry.partition)
                link = f"{inside}/" * bool(inside) + f"{number:06d}{link_suffix(entry.path)}"
                target = folder / link
                storage.make_folder(target.parent)
                self._take(entry, target, is_table=is_table)
                storage.sync_file(target)
                links.append(link)
            storage.sync_names_above((folder / link for link in links), folder)
        storage.sync_names_above([folder], self._paths.state)
        return {
            "version": version,
            "folder": str(folder),
            "links": links,
            "files": [entry.path for entry in entries],
            "copies": [_stamp_of(folder / link) for link in links],
            "partition_columns": list(columns),
        }

    def forget_others(self, version: Pinned) -> None:
        """Remove the copies of other versions, and incomplete ones."""
        for entry in storage.list_folders(self._paths.static(self._name)):
            if str(entry) != version["folder"]:
                storage.remove_tree(entry)

    def is_whole(self, version: Pinned) -> bool:
        """Return whether the copies are unchanged, by size and time stamp: no process writes to them."""
        folder, copies = Path(version.get("folder", "")), version.get("copies", ())
        try:
            found = [_stamp_of(folder / link) for link in version.get("links", ())]
        except OSError:
            return False
        return found == [list(copy) for copy in copies]

    def _list(self) -> tuple[list[FileEntry], tuple[str, ...], bool]:
        """List the files and the columns in their folders' names, and whether they are those of a table."""
        if self._spec.format != "parquet" or not has_log(self._folder):
            return (*list_static(self._project, self._paths, self._name, self._spec), False)
        entries = []
        for file in list_data_files(self._folder):
            path, values = str(self._folder / file.path), {key: one or None for key, one in file.partition.items()}
            stamps = file.size_bytes, file.modified_at_ms, 0
            entries.append(FileEntry(file.path, path, *stamps, values, roots=("/",)))
        return entries, tuple(entries[0].partition) if entries else (), True

    def _take(self, entry: FileEntry, target: Path, *, is_table: bool) -> None:
        try:
            if storage.names_object(entry.abs_path):
                self._copy_object(entry, target)
                return
            if is_table:
                with contextlib.suppress(OSError):
                    os.link(entry.abs_path, target)
                    return
            with opened(entry.abs_path, entry.roots, entry.judged) as handle, reopen(handle) as reader:
                before = os.fstat(reader)
                shutil.copyfile(f"/proc/self/fd/{reader}", target)
                after = os.fstat(reader)
        except NotTaken as error:
            raise self._changing(entry, "changed") from error
        except FileNotFoundError as error:
            if is_table and self._is_named(entry):
                raise self._missing(entry.abs_path, f"lacks the file {entry.path}, which its log names") from error
            raise self._changing(entry, "was taken away") from error
        except OSError as error:
            if storage.is_disk_full(error):
                raise storage.disk_full(target) from error
            raise
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise self._changing(entry, "changed")
        if not is_table and (why := find_fault(target, self._spec, is_read=True)) is not None:
            raise errors.STATIC_UNREADABLE(
                where=entry.path,
                path=entry.path,
                source_name=self._name,
                why=why,
                fix=errors.CORRECT_FILE,
                pipeline=self._paths.name,
            )

    def _copy_object(self, entry: FileEntry, target: Path) -> None:
        from tidegate.core.storage.user_objects import look_at  # the client of stores, which files do without

        pointer = entry.pointer
        if pointer is None:  # of a table, whose log has no ETags
            found = look_at(entry.abs_path)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "there is no such object", entry.abs_path)
            pointer = Pointer.of(entry.abs_path, found)
        try:
            copy_object(pointer, target)
        except ObjectChangedError as error:
            raise self._changing(entry, "changed") from error

    def _is_named(self, entry: FileEntry) -> bool:
        """Return whether the newest version of the table has the file, which a publish may have replaced since."""
        return any(file.path == entry.path for file in list_data_files(self._folder))

    def _missing(self, where: str, lacks: str) -> SourceLostError:
        name, path = self._paths.name, self._spec.path
        return errors.STATIC_MISSING(where=where, source_name=self._name, pipeline=name, lacks=lacks, path=path)

    def _changing(self, entry: FileEntry, what: str) -> TryAgainError:
        changes = f"the file {entry.path} of the static source {self._name} {what} while it was copied"
        return errors.FILE_CHANGING(changes=changes)


def _stamp_of(path: Path) -> list[int]:
    stat = storage.stat(path)
    return [stat.size_bytes, stat.modified_ns]


def list_static(
    project: Project, paths: PipelinePaths, source_name: str, spec: FilesSource
) -> tuple[list[FileEntry], tuple[str, ...]]:
    """List all files of a static source by path, and the columns of the schema whose values are in their folders.

    Raises what :func:`tidegate.sources.files.scan.scan_files` does, SourceLostError STATIC_MIXED, UsageError
    STATIC_UNREADABLE for a file or folder that cannot be read until a person changes something, and TryAgainError
    STORAGE_FAILED where a retry may read it.
    """
    listing = list_files(project, paths, source_name, spec)
    prefix = os.path.abspath(project.root).rstrip("/") + "/"
    # By the rule for links, files behind one that leads outside are not in the source.
    unread = [one for one in listing.skipped if one.fix and not one.is_outside]
    if not spec.is_on_store:
        unread += [one for path, _ in listing.files if (one := find_unreadable(path, path)) is not None]
    if unread:
        where, path = f"{paths.spec}: sources.{source_name}.path", unread[0].path.removeprefix(prefix)
        if all(one.retry for one in unread):
            raise STORAGE_FAILED(where=where, path=path, reason=unread[0].why, quoted_path=shlex.quote(path))
        raise errors.STATIC_UNREADABLE(
            where=where,
            path=path,
            source_name=source_name,
            why=unread[0].why,
            fix=unread[0].fix,
            pipeline=paths.name,
        )
    entries = sorted(
        FileEntry(
            *(path.removeprefix(prefix), path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, {}),
            roots=listing.roots,
        ).of(found)
        for path, found in listing.files
        if found.st_size
    )
    placed, columns, misplaced = place_in_partitions(None, spec, listing, entries)
    if misplaced:
        raise errors.STATIC_MIXED(
            where=f"{paths.spec}: sources.{source_name}.path",
            source_name=source_name,
            path=misplaced[0]["path"],
            why=misplaced[0]["why"],
        )
    return placed, columns
