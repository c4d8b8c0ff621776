"""Removing the files that newer versions replaced, once no reader can need them.

What goes is what the log says was removed, and when: commit files are never removed, so each is read once. Folders are
not listed, and a name that looks like a replaced file's means nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from tidegate import storage
from tidegate.table.log.files import path_on_disk, read_actions
from tidegate.table.log.state import list_data_files

VERSIONS_AT_ONCE = 1000
"""How many versions one call goes through at most; the next one goes on."""


def find_replaced(
    table_path: Path, *, after: int, up_to: int, before_ms: int, needed: Collection[str]
) -> tuple[int, list[Path]]:
    """The files that versions above ``after`` and up to ``up_to`` took out of the table before a moment, and that are
    still there.

    Without them the older versions of the table that had them cannot be read any more. Files that are in the table now
    and those in ``needed`` (paths relative to the table) are left out. Gives the version up to which this is all, the
    next ``after``, and the files.
    """
    done = after
    gone: set[str] = set()
    for version in range(after + 1, min(up_to, after + VERSIONS_AT_ONCE) + 1):
        try:
            removed = [action["remove"] for action in read_actions(table_path, version) if "remove" in action]
        except (FileNotFoundError, ValueError):  # cleaned away or torn: nobody can say what it removed
            removed = []
        if any(int(one.get("deletionTimestamp") or 0) > before_ms for one in removed):
            break
        gone |= {path_on_disk(one["path"]) for one in removed}
        done = version
    gone -= set(needed)
    if gone:
        gone -= {file.path for file in list_data_files(table_path)}
    return done, [table_path / path for path in sorted(gone) if _is_inside(path) and storage.exists(table_path / path)]


def _is_inside(path: str) -> bool:
    """Whether a path of the log lies in the table's folder: other programs may have logged files of elsewhere."""
    parts = PurePosixPath(path).parts
    return bool(parts) and ".." not in parts and not path.startswith("/") and "://" not in path
