"""A version leaves the log only as it was read: what was committed at its place since stays.

A stale process is suspended where it looks at its lease, while another one does the same and commits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faulty_store import FaultyStore, use_store
from tests.support.keyed import Keyed
from tests.support.readers import read_agreed
from tests.support.staged import QUERY, make_schema
from tidegate.core import storage
from tidegate.table.log.commit import Commit, commit_files, drop_late_commits
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.publish import heal_log

SCHEMA = make_schema(id="long")


@pytest.fixture(params=["disk", "store"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "store":
        return use_store(monkeypatch, FaultyStore()) / "warehouse" / "orders"
    return tmp_path / "warehouse" / "orders"


def commit(table: Path, batch: int, *, query: str = QUERY, file: str | None = None) -> None:
    add = [] if file is None else [DataFile(file, 1, 0)]
    commit_files(table, Commit(query, batch, batch - 1, schema_json=SCHEMA, add=add))


def last_batch(table: Path, query: str = QUERY) -> int | None:
    state = read_table_state(table, (query,))
    return None if state is None else state.txns.get(query)


@pytest.mark.parametrize("is_stale", [False, True], ids=["alone", "stale"])
def test_a_torn_version_that_was_made_again_stays(table: Path, is_stale: bool) -> None:
    commit(table, 0)
    newest = table / LOG_FOLDER / commit_name(1)
    storage.put_if_absent(newest, b'{"add')
    intent = PublishIntent("orders", "r", "table", SCHEMA, [], QUERY, 1, 0)

    def heal_and_commit() -> None:
        assert heal_log(table, [intent], lambda: None) == 1
        assert list_versions(table) == [0]
        commit(table, 1)

    assert heal_log(table, [intent], heal_and_commit if is_stale else lambda: None) == 1
    assert last_batch(table) == (1 if is_stale else 0)
    torn = storage.list_folder(newest.parent, ".*.torn")
    assert {storage.read(path) for path in torn} == {b'{"add'}


@pytest.mark.parametrize("is_stale", [False, True], ids=["alone", "stale"])
def test_what_follows_a_late_commit_that_was_dropped_stays(table: Path, tmp_path: Path, is_stale: bool) -> None:
    commit(table, 0, query="ended", file="moved-away.parquet")
    late = storage.read(table / LOG_FOLDER / commit_name(0))

    def drop_and_commit() -> None:
        drop_late_commits(table, ["ended"], tmp_path / "other", lambda: None)
        assert list_versions(table) == []
        commit(table, 0)

    check = drop_and_commit if is_stale else lambda: None
    drop_late_commits(table, ["ended"], tmp_path / "aside", check)
    assert last_batch(table) == (0 if is_stale else None)
    assert last_batch(table, "ended") is None
    assert storage.read(tmp_path / "aside" / commit_name(0)) == late


def test_a_commit_that_a_killed_process_had_in_its_hands_is_put_back(tmp_path: Path) -> None:
    """It was about to take another one away, and had not looked yet at what it had."""
    keyed = Keyed(tmp_path, mode="append", keys=[])
    for number in range(2):
        keyed.stage([{"id": number, "city": "Oslo", "n": 0}])
        keyed.run()
    newest = keyed.paths.table / LOG_FOLDER / commit_name(1)
    newest.rename(newest.with_name(f".{newest.name}.{'0' * 16}.{'0' * 12}.taken"))
    keyed.run("next")
    assert sorted(row["id"] for row in read_agreed(keyed.paths.table)) == [0, 1]
