"""What one version of a table brought: the rows that whoever follows the table has not seen yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate import storage
from tidegate.errors import catalogue
from tidegate.table.log.actions import CommitInfo
from tidegate.table.log.files import LOG_FOLDER, commit_name, read_actions
from tidegate.table.log.snapshot import data_file
from tidegate.table.log.state import DataFile
from tidegate.table.publish.plan import DELIVERED
from tidegate.table.publish.replace import hidden_name


@dataclass(frozen=True)
class Delivery:
    """The new rows of one published version. ``files`` are in a fixed order, so that row numbers are too."""

    version: int
    run_id: str
    """The run that published it."""
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """How many rows that are."""
        return sum(file.rows for file in self.files)


def list_deliveries(table_path: Path, after: int, up_to: int) -> Iterator[Delivery]:
    """The versions above ``after`` that brought rows, in order. Raises DisagreementError VERSION_GONE."""
    for version in range(after + 1, up_to + 1):
        delivery = delivered_rows(table_path, version)
        if delivery is not None:
            yield delivery


def delivered_rows(table_path: Path, version: int) -> Delivery | None:
    """What ``version`` brought; None when it published nothing (new columns, a discarded increment, housekeeping).

    Raises DisagreementError VERSION_GONE when the log no longer has the version's commit.
    """
    path = table_path / LOG_FOLDER / commit_name(version)
    try:
        actions = read_actions(table_path, version)
    except FileNotFoundError:
        raise catalogue.VERSION_GONE(where=str(path), version=version) from None
    info: CommitInfo = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
    if info.get("tidegate.outcome") != "published":
        return None
    added = [one["add"] for one in actions if "add" in one and one["add"]["dataChange"]]
    files = [data_file(one) for one in added]
    if DELIVERED in info:  # its other files have rows that were in the table before
        named = set(json.loads(info[DELIVERED]))
        files = [file for file in files if file.path in named]
    files = [file for file in files if file.rows]
    if not files:
        return None
    found = tuple(_in_place(table_path, file) for file in sorted(files, key=lambda file: file.path))
    return Delivery(version, str(info.get("tidegate.run_id")), found)


def _in_place(table_path: Path, file: DataFile) -> DataFile:
    """The file as it is called now: a later version may have replaced it, and it stays until every sink has had it."""
    hidden = hidden_name(file.path)
    if not storage.exists(table_path / file.path) and storage.exists(table_path / hidden):
        return replace(file, path=hidden)
    return file
