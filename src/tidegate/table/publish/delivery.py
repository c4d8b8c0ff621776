"""The changes of one version of a table, as sinks get them: its new rows, and which earlier rows they replace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.table import errors
from tidegate.table.log.commit import REPLACES_COLUMNS
from tidegate.table.log.files import LOG_FOLDER, Action, CommitInfo, commit_name, list_versions, read_actions
from tidegate.table.log.snapshot import data_file, partition_of
from tidegate.table.log.state import OFFSET, DataFile, read_commit_metadata, read_log_at
from tidegate.table.publish.plan import DELIVERED, KEYS
from tidegate.table.publish.replace import hidden_name

Partition = dict[str, str | None]
"""The values of some partition columns in Delta's string form; {} for the whole table."""
_PUBLISHED = "published"
_CHANGING = (_PUBLISHED, "rolled_back", "maintained")
"""The outcomes of commits that change rows of the table."""


@dataclass(frozen=True)
class Delivery:
    """The new rows of one published version. ``files`` are in a fixed order, so that row numbers are too."""

    version: int
    run_id: str
    """The run that published it; empty for a whole table if no commit names a run."""
    files: tuple[DataFile, ...]
    partitions: tuple[Partition, ...] = ()
    """All earlier rows of these partitions are replaced, also if the version has no rows in one."""
    keys: tuple[str, ...] = ()
    """Each row replaces the one with the same values in these columns."""
    replaces_columns: bool = False
    """All earlier rows had other columns."""
    offset: int = field(default=0, compare=False)

    @property
    def number(self) -> int:
        """The number that sinks record for the version; it never decreases, even for another table in its place."""
        return self.version + self.offset

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)


def list_deliveries(table_path: Path, after: int, up_to: int, offset: int = 0) -> Iterator[Delivery]:
    """The versions above ``after`` that changed rows, in order. Raises DisagreementError TABLE_LOG_CUT.

    ``offset`` is that of version ``after``. A new offset applies from the commit that sets it, so the number of a
    version does not depend on when it is delivered.
    """
    for version in range(after + 1, up_to + 1):
        info, actions = _read_commit(table_path, version)
        offset = next((one["txn"]["version"] for one in actions if one.get("txn", {}).get("appId") == OFFSET), offset)
        delivery = _make_delivery(table_path, version, info, actions)
        if delivery is not None:
            yield replace(delivery, offset=offset)


def deliver_whole(table_path: Path, version: int) -> Delivery:
    """All rows of the table at a version, which replace all earlier rows, under the last run that changed it."""
    files = read_log_at(table_path, version).files()
    return Delivery(version, _find_last_run(table_path, version), _in_place(table_path, files), partitions=({},))


def _find_last_run(table_path: Path, version: int) -> str:
    """The id of the run that last changed the table at ``version``; empty if no existing commit has one."""
    for one in reversed(list_versions(table_path)):
        # Commits that only add columns or set the offset have no run id.
        run_id = read_commit_metadata(table_path, one).get("tidegate.run_id") if one <= version else None
        if run_id is not None:
            return str(run_id)
    return ""


def delivered_rows(table_path: Path, version: int) -> Delivery | None:
    """The rows that ``version`` published; None for none (new columns, a discarded increment, maintenance).

    Raises DisagreementError TABLE_LOG_CUT when the log no longer has the version's commit.
    """
    info, actions = _read_commit(table_path, version)
    if info.get("tidegate.outcome") != _PUBLISHED:
        return None
    files = _list_new(info, actions)
    return Delivery(version, str(info.get("tidegate.run_id")), _in_place(table_path, files)) if files else None


def _make_delivery(table_path: Path, version: int, info: CommitInfo, actions: Sequence[Action]) -> Delivery | None:
    """The changes of ``version``; None when it changed no rows.

    If it removed files, they are the partitions of these files, with all rows that they have afterwards: so any kind of
    work can be delivered, any number of times.
    """
    if info.get("tidegate.outcome") not in _CHANGING:
        return None
    files, keys, partitions = _list_new(info, actions), tuple(json.loads(info.get(KEYS, "[]"))), list[Partition]()
    removed = [one["remove"] for one in actions if "remove" in one and one["remove"]["dataChange"]]
    if removed and not keys:
        places = {partition_of(one.get("partitionValues") or {}) for one in removed}
        try:
            whole = read_log_at(table_path, version).files()
        except (OSError, ValueError) as error:
            if storage.is_failure(error):
                raise
            raise _version_gone(table_path, version) from None
        added = {file.path for file in files}
        files = [file for file in whole if partition_of(file.partition) in places or file.path in added]
        partitions = [dict(place) for place in sorted(places, key=repr)] if len(files) < len(whole) else [{}]
    if not files and not partitions:
        return None
    run_id = str(info.get("tidegate.run_id"))
    in_place = _in_place(table_path, files)
    return Delivery(version, run_id, in_place, tuple(partitions), keys, replaces_columns=REPLACES_COLUMNS in info)


def _read_commit(table_path: Path, version: int) -> tuple[CommitInfo, list[Action]]:
    try:
        actions = read_actions(table_path, version)
    except FileNotFoundError:
        raise _version_gone(table_path, version) from None
    return next((one["commitInfo"] for one in actions if "commitInfo" in one), {}), actions


def _version_gone(table_path: Path, version: int) -> Exception:
    where = str(table_path / LOG_FOLDER / commit_name(version))
    versions, what = f"version {version}", "the rows that it changed"
    return errors.TABLE_LOG_CUT(where=where, versions=versions, what=what, name=table_path.name)


def _list_new(info: CommitInfo, actions: Sequence[Action]) -> list[DataFile]:
    """The files with rows that were not in the table before."""
    files = [data_file(one["add"]) for one in actions if "add" in one and one["add"]["dataChange"]]
    if DELIVERED in info:  # its other files have rows that were in the table before
        named = set(json.loads(info[DELIVERED]))
        files = [file for file in files if file.path in named]
    return [file for file in files if file.rows]


def _in_place(table_path: Path, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The files under their current names, in order: a file that a later version replaced is hidden, but kept until
    every sink has it."""
    found = []
    for file in sorted(files, key=lambda file: file.path):
        hidden = hidden_name(file.path)
        is_hidden = not storage.exists(table_path / file.path) and storage.exists(table_path / hidden)
        found.append(replace(file, path=hidden) if is_hidden else file)
    return tuple(found)
