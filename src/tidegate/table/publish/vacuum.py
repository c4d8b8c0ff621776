"""Finding the files that newer versions replaced and no reader needs any more.

Only the log decides what was removed, and when: commit files are never removed, so each is read once. Folders are not
listed, and a file is never chosen by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.table.log.actions import Action
from tidegate.table.log.commit import SET_ASIDE
from tidegate.table.log.files import is_inside, path_on_disk, read_actions
from tidegate.table.log.state import list_data_files
from tidegate.table.publish.replace import hidden_name, plain_name

VERSIONS_AT_ONCE = 1000
"""How many versions one call reads at most; the next call continues."""


def find_replaced(
    table_path: Path, *, after: int, up_to: int, before_ms: int, needed: Collection[str]
) -> tuple[int, list[Path]]:
    """Find existing files that the versions above ``after`` and up to ``up_to`` removed from the table before a time.

    Without these files, older versions of the table can no longer be read. Files that are in the table now are
    excluded. The search ends before a version that removed a file of ``needed`` (paths relative to the table).

    Returns:
        The last version that was examined, which is the next ``after``; and the files.
    """
    done, high = after, _find_time(_read_actions(table_path, after)) if after >= 0 else 0
    gone: set[str] = set()
    unsure: set[str] = set()
    for version in range(after + 1, min(up_to, after + VERSIONS_AT_ONCE) + 1):
        actions = _read_actions(table_path, version)
        removed = {path_on_disk(action["remove"]["path"]) for action in actions if "remove" in action}
        if not any(SET_ASIDE in action.get("commitInfo", {}) for action in actions):
            # Files that another program removed were hidden without a commit.
            removed |= {hidden_name(path) for path in removed if plain_name(path) is None}
        made = _find_time(actions)
        is_ahead = made > before_ms and made > _find_time(_read_actions(table_path, up_to))
        if (made > before_ms and not is_ahead) or not removed.isdisjoint(needed):
            break
        unsure |= removed
        # With a wrong clock, a version seems older than earlier ones or younger than later ones: then the time of a
        # later version counts.
        if not is_ahead and (made >= high or not unsure):
            done, high = version, max(high, made)
            gone |= unsure
            unsure.clear()
    if gone:
        gone -= {file.path for file in list_data_files(table_path)}
    return done, [table_path / path for path in sorted(gone) if is_inside(path) and storage.exists(table_path / path)]


def _read_actions(table_path: Path, version: int) -> list[Action]:
    try:
        return read_actions(table_path, version)
    except (FileNotFoundError, ValueError):  # deleted or torn: it is unknown what it removed
        return []


def _find_time(actions: Sequence[Action]) -> int:
    """The time of a version according to its actions, in milliseconds since 1970 UTC; 0 when they have none."""
    times = [action["remove"].get("deletionTimestamp") for action in actions if "remove" in action]
    times += [action["commitInfo"].get("timestamp") for action in actions if "commitInfo" in action]
    return max((int(time) for time in times if isinstance(time, (int, float))), default=0)
