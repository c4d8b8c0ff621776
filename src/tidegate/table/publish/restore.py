"""Which files restore an earlier version of a table. A replaced file is kept until the table is vacuumed, under a
hidden name or, if all readers use the log, under its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.table.log.files import read_actions
from tidegate.table.log.snapshot import DataFile
from tidegate.table.log.state import list_data_files, read_log_at
from tidegate.table.publish.replace import hidden_name, plain_name


@dataclass(frozen=True)
class Restore:
    """The changes that give the table the rows of an earlier version: files to add (with the paths where they are
    kept), files to remove, and files that are missing."""

    back: list[DataFile]
    leave: list[DataFile]
    gone: list[str]


def plan_restore(table_path: Path, version: int) -> Restore:
    """Plan how the table gets the rows of ``version``. Raises FileNotFoundError or ValueError when its log no longer
    has the version."""
    then, now = read_log_at(table_path, version).files(), list_data_files(table_path)
    names = {_name(file.path) for file in now}
    kept = {_name(file.path) for file in then}
    back, gone = [], []
    for file in then:
        if _name(file.path) not in names:
            place = _find(table_path, file.path)
            if place is not None:
                back.append(replace(file, path=place))
            else:
                gone.append(file.path)
    return Restore(back, [file for file in now if _name(file.path) not in kept], gone)


def nearest_restorable(table_path: Path, version: int, newest: int) -> int:
    """The first version after ``version`` whose files all exist; in the end the newest."""
    now = {_name(file.path) for file in list_data_files(table_path)}
    known: dict[str, bool] = {}

    def is_there(path: str) -> bool:
        if path not in known:
            known[path] = _name(path) in now or _find(table_path, path) is not None
        return known[path]

    first = _first_readable(table_path, version, newest)
    if first == newest:
        return newest
    snapshot = read_log_at(table_path, first)
    for number in range(first, newest):
        if number > first:
            for action in read_actions(table_path, number):
                snapshot.apply(action)
        if number > version and all(is_there(file.path) for file in snapshot.files()):
            return number
    return newest


def _first_readable(table_path: Path, version: int, newest: int) -> int:
    """The first version from ``version`` on that can be read from the log."""
    for number in range(version, newest):
        try:
            read_log_at(table_path, number)
        except (OSError, ValueError) as error:
            if storage.is_failure(error):
                raise
            continue
        return number
    return newest


def _name(path: str) -> str:
    """The plain name of a file, whichever name it has in the log."""
    return plain_name(path) or path


def _find(table_path: Path, path: str) -> str | None:
    """The path of a file that is no longer in the table; None when it was deleted."""
    name = _name(path)
    # The hidden name once more: another run may hide the file between the first two looks.
    places = (hidden_name(name), name, hidden_name(name))
    return next((one for one in places if storage.exists(table_path / one)), None)
