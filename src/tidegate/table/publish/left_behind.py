"""Files that another engine left in a table's folder, whose rows are read by plain readers, which do not use the log.

A DELETE, UPDATE or OPTIMIZE of another engine removes files from the log and leaves them in the folder, and some write
checkpoints in parquet. Publishes of tidegate hide the files that they replace; this hides the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.words import count_of
from tidegate.table.log.compaction import list_needless_checkpoints, remove_checkpoints
from tidegate.table.log.files import (
    LOG_FOLDER,
    checkpoints_of,
    commit_name,
    is_inside,
    list_names,
    parse_line,
    path_on_disk,
    split_lines,
    versions_of,
)
from tidegate.table.log.state import list_data_files, read_log
from tidegate.table.publish.replace import hidden_name, plain_name
from tidegate.table.publish.vacuum import VERSIONS_AT_ONCE

_CHANGE_FEED = "_change_data"


@dataclass(frozen=True)
class LeftBehind:
    """What plain readers read and should not, up to version ``looked_up_to``."""

    looked_up_to: int
    files: list[str]
    """Files that the log no longer has, by their path in the table."""
    change_files: int
    """The number of files of the change feed, which its readers need."""
    checkpoints: list[str]
    """Parquet checkpoints without which the log can be read."""
    needed_checkpoints: list[str]
    """Checkpoints that the log needs, because commits before them are missing."""
    is_cut: bool
    """Whether commits of the examined versions are missing."""

    def describe(self) -> list[str]:
        """A line for each finding."""
        lines = []
        if self.files:
            which = f"{count_of(len(self.files), 'file')}, such as {self.files[0]}"
            lines.append(
                "another program, or a publish with `readers: delta`, took rows out of the table, and plain readers "
                f"still see them: {which}"
            )
        if self.checkpoints:
            lines.append(f"plain readers take a checkpoint of the log for rows: {LOG_FOLDER}/{self.checkpoints[-1]}")
        return lines + self.describe_for_good()

    def describe_for_good(self) -> list[str]:
        """A line for each finding that only a person can correct."""
        lines = []
        if self.needed_checkpoints:
            lines.append(
                f"another program removed commits of the log, which now begins with {self.needed_checkpoints[0]}: a "
                f"reader of `**/*.parquet` takes that for rows; restore the commits from a backup, or have such "
                f"readers leave {LOG_FOLDER} out"
            )
        if self.change_files:
            lines.append(
                f"another program wrote {count_of(self.change_files, 'change file')} below {_CHANGE_FEED} for the "
                "table's change feed: a reader of `**/*.parquet` takes them for rows until that program's VACUUM; have "
                "such readers leave the folder out"
            )
        return lines


def find_left_behind(table_path: Path, after: int) -> LeftBehind:
    """Find what versions after ``after`` left in the folder, up to :data:`VERSIONS_AT_ONCE` of them."""
    names = list_names(table_path)
    versions = versions_of(names)
    newest = max(versions, default=-1)
    if after > newest:  # an older copy of the table was restored, or another table
        after = -1
    first = min(versions, default=0)
    up_to = min(newest, max(after, first - 1) + VERSIONS_AT_ONCE)
    removed: set[str] = set()
    is_cut = after + 1 < first
    if is_cut:
        removed |= _read_removed(table_path)
    for version in versions:
        if not after < version <= up_to:
            continue
        try:
            lines = split_lines(storage.read(table_path / LOG_FOLDER / commit_name(version)))
        except FileNotFoundError:  # removed since the folder was listed
            removed |= _read_removed(table_path)
            is_cut = True
            continue
        for line in lines:
            if b'"remove"' in line[:12]:
                with contextlib.suppress(ValueError):  # torn: the next reader that needs the version reports it
                    removed.add(path_on_disk(parse_line(line)["remove"]["path"]))
    found = _there(table_path, removed)
    if found:
        found -= {file.path for file in list_data_files(table_path)}
    needless = list_needless_checkpoints(names)
    needed = [name for name in checkpoints_of(names) if name.endswith(".parquet") and name not in needless]
    # List the folder: checkpoints do not name change files, and the commits that name them may be removed.
    feed = len(storage.list_tree(table_path / _CHANGE_FEED, "*.parquet"))
    return LeftBehind(up_to, sorted(found), feed, needless, needed, is_cut)


def _read_removed(table_path: Path) -> set[str]:
    """The files that deleted commits removed: the checkpoint has them for the engine's retention time. The next reader
    that needs the log reports it if it is unreadable."""
    with contextlib.suppress(DisagreementError):
        return {path_on_disk(remove["path"]) for remove in read_log(table_path).removed.values()}
    return set()


def _there(table_path: Path, paths: set[str]) -> set[str]:
    """The paths that exist in the folder under a name that plain readers see."""
    plain = {path for path in paths if is_inside(path) and plain_name(path) is None}
    return {path for path in plain if path.endswith(".parquet") and storage.exists(table_path / path)}


def hide_left_behind(table_path: Path, left: LeftBehind, check_lease: Callable[[], None]) -> None:
    """Hide the files, as a publish hides what it replaces, and remove the checkpoints. May be repeated.

    Rollbacks find the files by their hidden names; Delta readers of older versions do not.
    """
    plain = [table_path / path for path in left.files]
    if plain:
        check_lease()
        for path, name in zip(plain, left.files, strict=True):
            storage.link(path, table_path / hidden_name(name))
        folders = {path.parent for path in plain}
        storage.sync_folders(folders)
        for path in plain:
            check_lease()
            storage.remove(path)
        storage.sync_folders(folders)  # these versions are not examined again: after a power cut the rows would stay
        _show_counted(table_path, left.files)
    if left.checkpoints:
        check_lease()
        # Listed again: another engine may have removed commits since, so that the log needs its checkpoint.
        remove_checkpoints(table_path, list_needless_checkpoints(list_names(table_path)))


def _show_counted(table_path: Path, hidden: Sequence[str]) -> None:
    """Restore the names of files that another program has added to the table again in the meantime (RESTORE)."""
    counted = {file.path for file in list_data_files(table_path)}
    back = [name for name in hidden if name in counted and not storage.exists(table_path / name)]
    for name in back:
        storage.link(table_path / hidden_name(name), table_path / name)
    storage.sync_folders({(table_path / name).parent for name in back})
