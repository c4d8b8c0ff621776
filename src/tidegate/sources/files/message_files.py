"""Files of a folder as messages, for event notifications that do not come by a topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.listing import base_of, list_source
from tidegate.sources.files.scan import name_refusals
from tidegate.sources.port import Messages
from tidegate.spec.project import Project

_FILES_AT_MOST = 20_000


def read_message_files(project: Project, paths: PipelinePaths, source_name: str, path: str, since: object) -> Messages:
    """Return what files of the folder ``path`` hold that are new or have grown since a position that an earlier call
    returned; nothing without one. The position is the size of each file that is there.

    Raises SourceLostError SOURCE_MISSING and SOURCE_UNREADABLE.
    """
    top = str(project.place(path)).rstrip("/")
    with name_refusals(paths, f"sources.{source_name}.notifications.path", source_name):
        files = list_source(top, is_recursive=True).files
    if len(files) > _FILES_AT_MOST:
        return Messages(None, missed=f"{path} has over {_FILES_AT_MOST:,} files: remove those that are some days old")
    base = base_of(top)
    sizes = {name.removeprefix(f"{base}/"): found.st_size for name, found in files}
    if not isinstance(since, dict):
        return Messages(sizes)
    fresh = [name for name, size in sorted(sizes.items()) if since.get(name) != size]
    return Messages(sizes, _read(storage.parse_path(base), fresh))


def _read(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The messages of files: each is one, or each of its lines."""
    for name in names:
        try:
            data = storage.read(folder / name)
        except FileNotFoundError:
            continue
        try:
            json.loads(data)
        except (ValueError, RecursionError):
            lines = enumerate(data.splitlines(), start=1)
            yield from ((f"{name} line {number}", line) for number, line in lines if line.strip())
        else:
            yield name, data
