"""Compares a file that is to be read a second time with what was read of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.content import NotTaken, mark_of, opened, reopen
from tidegate.sources.files.intake import source_path
from tidegate.sources.files.ledger import FileState, LedgerRow, shown_path
from tidegate.sources.files.pieces import GREW, REWRITTEN, Changed, compare
from tidegate.sources.files.scan import source_roots
from tidegate.sources.files.unreadable import has_rows, kept_file, unreadable_record
from tidegate.spec.models import FilesSource
from tidegate.spec.project import Project

IS_GONE = "is gone"


def find_differences(
    project: Project, paths: PipelinePaths, sources: Mapping[str, FilesSource], rows: Iterable[LedgerRow]
) -> list[str]:
    """Describe the files of ``rows`` that no longer hold what was read of them: path, and how it differs."""
    return [text for _, text in find_differing(project, paths, sources, rows)]


def find_differing(
    project: Project, paths: PipelinePaths, sources: Mapping[str, FilesSource], rows: Iterable[LedgerRow]
) -> list[tuple[LedgerRow, str]]:
    """Like :func:`find_differences`, each text with its row."""
    roots = {name: source_roots(project, source) for name, source in sources.items()}
    wanted = [row for row in rows if row.source in sources]
    of_objects = _compare_objects([row for row in wanted if _is_object(paths, row)])
    found = []
    for row in wanted:
        if row in of_objects:
            why = of_objects[row]
        else:
            why = _find_difference(project, paths, row, sources[row.source], roots[row.source])
        if why is not None:
            found.append((row, f"{shown_path(row.path)} {why}"))
    return found


def _is_object(paths: PipelinePaths, row: LedgerRow) -> bool:
    """Return whether the object itself is what would be read again: no copy was kept, and no stand-in was made."""
    if not storage.names_object(row.path) or kept_file(paths.unreadable, row.link) is not None:
        return False
    return not (paths.intake(row.source) / row.link).is_file()


def _compare_objects(rows: Sequence[LedgerRow]) -> dict[LedgerRow, str | None]:
    """Describe how the objects of ``rows`` differ from what was read; None for those that are the same."""
    if not rows:
        return {}
    from tidegate.core.storage.user_objects import look_at_all  # the client of stores, which files do without

    there = look_at_all(row.path for row in rows if row.state != "linked")
    found: dict[LedgerRow, str | None] = {}
    for row in rows:
        found[row] = None
        if row.state == "linked":
            continue  # pending: no batch has read it yet
        now = there[row.path]
        if now is None:
            found[row] = IS_GONE
        elif (changed := compare(None, now, FileState(row.size, row.mtime_ns, row.ctime_ns, None))) is not None:
            found[row] = _describe(changed, row, now.st_size)
    return found


def _find_difference(
    project: Project, paths: PipelinePaths, row: LedgerRow, source: FilesSource, roots: Sequence[str]
) -> str | None:
    """Describe how the link, or else the file, differs from what was read. Of a quarantined file the kept copy counts.
    None when all of it is there, with or without appended lines."""
    link = paths.intake(row.source) / row.link
    is_whole = unreadable_record(paths.unreadable, row.link) is not None
    kept = kept_file(paths.unreadable, row.link)
    has_link = link.is_file()
    if has_link and (row.until is not None or (is_whole and (kept is None or not has_rows(link, source)))):
        return None  # a copy, or nothing was read of the file
    if kept is not None:
        link, has_link = kept, True
    path = str(link) if has_link else source_path(project, row.path)
    try:
        with storage.path_is_named(Path(path)), contextlib.ExitStack() as stack:
            if has_link:
                reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, reader)
            else:
                handle = stack.enter_context(opened(path, roots))
                reader = stack.enter_context(reopen(handle))
            return _describe_difference(reader, row)
    except (FileNotFoundError, NotADirectoryError):
        return IS_GONE
    except OSError as error:
        if storage.name_failure(error, Path(path)) is not None:
            raise
        return f"cannot be read: {error.strerror}"
    except NotTaken as error:
        return f"cannot be read: {error}"


def _describe_difference(reader: int, row: LedgerRow) -> str | None:
    there, mark = os.fstat(reader), row.mark
    if mark is not None and mark.size > row.read_until:
        mark = None  # the file was truncated between linking and reading
    if row.state == "linked" and row.until is None:
        return None  # pending: no batch has read it yet
    if row.until is not None:
        is_same = there.st_size >= row.until and (mark is None or mark_of(reader, mark.size) == mark)
        changed = None if is_same else Changed(REWRITTEN, 0)
    else:
        changed = compare(reader, there, FileState(row.size, row.mtime_ns, None, mark))
        if changed is not None and changed.how == GREW and mark is not None and mark.size == row.size:
            return None  # lines were appended to what was read
    if changed is None:
        return None
    return _describe(changed, row, there.st_size)


def _describe(changed: Changed, row: LedgerRow, size: int) -> str:
    return f"{changed.how} after it was read: {count_of(row.read_until, 'byte')} then, {size:,} now"
