"""The table that an adoption finds, and the listing that both kinds of tables share."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.words import list_first
from tidegate.rework import errors
from tidegate.rework.adopt.sink_log import ADOPTED_SINK_LOG, SinkLog
from tidegate.runs.preflight.old_job import SINK_LOG
from tidegate.table.log.files import LOG_FOLDER
from tidegate.table.log.state import DataFile

_NAMED_AT_MOST = 20
_OF_LOGS = (LOG_FOLDER, SINK_LOG, ADOPTED_SINK_LOG)


@dataclass(frozen=True)
class FoundTable:
    """An existing table. Paths are relative to its folder; those of ``files`` are the paths after ``renames``."""

    kind: Literal["parquet", "delta"]
    schema_json: str
    partition_by: list[str]
    files: list[DataFile]
    hide: list[str] = field(default_factory=list)
    """Files that plain readers see although they do not count."""
    renames: list[tuple[str, str]] = field(default_factory=list)
    """Folders, deepest first, with their new names."""
    sink_log: SinkLog | None = None
    hide_in_log: list[str] = field(default_factory=list)
    """Files that plain readers would take for rows, and that the Delta log does not need."""
    txns: Mapping[str, int] = field(default_factory=dict)
    """The last version of each application in the Delta log."""
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The total size of the files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Listing:
    """The files below a table's folder. ``seen``: parquet files that some plain readers see; ``plain``: those of them
    that all plain readers see; ``foreign``: other files that plain Spark would read."""

    seen: list[str]
    plain: list[str]
    foreign: list[str]


def list_table(table_path: Path) -> Listing:
    """List the folder of a table without logs. Raises UsageError ADOPT_NOT_A_TABLE when there is no such folder."""
    try:
        is_there = bool(storage.list_names(table_path))
    except NotADirectoryError:
        is_there = False
    if not is_there:
        why = "there is no such folder, or nothing in it"
        raise errors.ADOPT_NOT_A_TABLE(where=str(table_path), table=table_path, why=why)
    prefix = len(str(table_path)) + 1
    names = (str(path)[prefix:] for path in storage.list_tree(table_path))
    inside = [name for name in names if not name.startswith(tuple(f"{log}/" for log in _OF_LOGS))]
    seen = [name for name in inside if name.endswith(".parquet")]
    shown = [name for name in inside if not any(part[0] in "_." for part in name.split("/"))]
    plain = [name for name in shown if name.endswith(".parquet")]
    return Listing(seen, plain, [name for name in shown if not name.endswith(".parquet")])


def own_names(table_path: Path) -> list[str]:
    """The paths of the table's folder: as given, and with symbolic links resolved."""
    return list(dict.fromkeys([os.path.abspath(table_path), storage.real_path(table_path)]))


def refuse_foreign(table_path: Path, listing: Listing) -> None:
    """Raise DisagreementError for files that plain Spark would try to read as rows."""
    if listing.foreign:
        faults = [
            f"{name}: it is not a .parquet file, and readers of the folder take it for one" for name in listing.foreign
        ]
        raise do_not_fit(table_path, faults)


def do_not_fit(table_path: Path, faults: Sequence[str]) -> DisagreementError:
    """The error for files that cannot be one table; each fault is one sentence."""
    shown = list_first(faults, _NAMED_AT_MOST, "; ")
    return errors.ADOPT_FILES_DO_NOT_FIT(where=str(table_path), faults=shown)


def folders_of(names: Collection[str]) -> set[str]:
    """The folders of these files."""
    return {name.rpartition("/")[0] for name in names}
