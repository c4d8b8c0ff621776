"""What other engines do to the log of our table, and what the table asks of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.many_commits import commit
from tidegate.table.log.commit import CONFIGURATION
from tidegate.table.log.files import LOG_FOLDER, list_names, list_versions
from tidegate.table.log.state import read_log


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def configuration(table: Path) -> Mapping[str, str]:
    return DeltaTable(str(table)).metadata().configuration


def append(table: Path) -> None:
    write_deltalake(str(table), pa.table({"id": pa.array([-1], pa.int64())}), mode="append")


def old(table: Path) -> None:
    """Make everything in the log look as if it were made years ago."""
    for path in (table / LOG_FOLDER).iterdir():
        os.utime(path, (1e9, 1e9))


def hundred_versions(table: Path) -> None:
    """deltalake makes a checkpoint at the last of these, and another one cleans up behind it."""
    for number in range(99):
        commit(table, number)
    old(table)
    append(table)
    old(table)
    append(table)


def test_other_engines_leave_the_log_as_it_is(tmp_path: Path) -> None:
    hundred_versions(tmp_path)
    delta = DeltaTable(str(tmp_path))
    delta.cleanup_metadata()
    assert list_versions(tmp_path) == list(range(101))
    assert not [name for name in list_names(tmp_path) if name.endswith(".parquet")]
    delta.create_checkpoint()  # asked for by a person: the commits stay all the same
    old(tmp_path)
    DeltaTable(str(tmp_path)).cleanup_metadata()
    assert list_versions(tmp_path) == list(range(101))


def test_without_these_settings_they_would_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.table.log.commit.CONFIGURATION", {})
    hundred_versions(tmp_path)
    assert [name for name in list_names(tmp_path) if name.endswith(".parquet")]
    DeltaTable(str(tmp_path)).cleanup_metadata()
    assert list_versions(tmp_path)[0] > 0


def test_a_table_from_before_gets_the_settings_with_its_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.table.log.commit.CONFIGURATION", {})
        commit(tmp_path, 0)
    table_id = read_log(tmp_path).metadata["id"]
    DeltaTable(str(tmp_path)).alter.set_table_properties(
        {"delta.checkpointInterval": "10", "delta.dataSkippingNumIndexedCols": "5"}
    )
    commit(tmp_path, 1)
    assert configuration(tmp_path) == {**CONFIGURATION, "delta.dataSkippingNumIndexedCols": "5"}
    assert read_log(tmp_path).metadata["id"] == table_id
