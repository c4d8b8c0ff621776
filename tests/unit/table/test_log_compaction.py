"""A table with a long log: plain globs see rows alone, every reader the same ones, and opening it stays cheap."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import create_table_with_add_actions

from tests.support.keyed import FakeLease
from tests.support.many_commits import SCHEMA, add_file, commit, describe, described_here
from tests.support.readers import read_agreed
from tests.support.staged import QUERY, make_schema
from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.state.lease import Lease
from tidegate.table.log.compaction import compact_log, is_compaction_due, put_compaction
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_names
from tidegate.table.log.state import DataFile, find_commit, list_data_files, read_log, read_table_state

LEASE = cast(Lease, FakeLease())


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of commits, and no power cut: what is synced is in test_log_durability.py."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def write_log(table: Path, versions: int, compacted: int) -> None:
    """A log of so many versions of a file each, with a compaction file that ends with version ``compacted``. What it
    holds is not to be read, so those commits are names of one and the same file."""

    def actions(number: int) -> list[dict[str, Any]]:
        stats = json.dumps({"numRecords": 1, "minValues": {"id": number}, "maxValues": {"id": number}})
        name = f"part-{QUERY[:8]}-{number:08d}-a-00000.parquet"
        add = {"path": name, "partitionValues": {}, "size": 400, "modificationTime": number, "dataChange": True}
        info = {"timestamp": number, "operation": "WRITE", "tidegate.run_id": f"run-{number}"}
        return [{"commitInfo": info}, {"add": {**add, "stats": stats}}, {"txn": {"appId": QUERY, "version": number}}]

    commit(table, 0)
    log = table / LOG_FOLDER
    held = read_log(table)
    for number in range(1, versions):
        if number <= compacted:
            for action in actions(number):
                held.apply(action)
        if 1 < number <= compacted:
            os.link(log / commit_name(1), log / commit_name(number))
        else:
            (log / commit_name(number)).write_text("\n".join(map(json.dumps, actions(number))))
    held.version = compacted
    put_compaction(table, held)


def test_no_commit_that_a_compaction_file_holds_is_read(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(120):
        commit(table, number, add=[add_file(table, number)])
    assert is_compaction_due(table)
    assert compact_log(table, lambda: None) == 119
    assert not is_compaction_due(table)
    commit(table, 120)
    before = described_here(table)
    for number in range(120):
        (table / LOG_FOLDER / commit_name(number)).write_text("{torn")
    assert described_here(table) == before
    assert commit(table, 121) == 121


def test_of_a_log_of_20000_versions_the_newest_commits_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, read, files = tmp_path / "t", storage.read, []
    write_log(table, 20_000, 19_800)
    monkeypatch.setattr(storage, "read", lambda path: (files.append(path), read(path))[1])
    state = read_table_state(table, (QUERY,))
    assert state is not None
    assert state.txns == {QUERY: 19_999}
    assert 200 <= len(files) <= 201, "the compaction file, and what is newer"
    files.clear()
    assert commit(table, 20_000) == 20_000
    assert find_commit(table, QUERY, 20_000) == 20_000
    assert len(files) <= 202
    assert len(list_data_files(table)) == 19_999


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_here_is_what_deltalake_reads(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = tmp_path / "t"
    held: list[DataFile] = []
    columns = {"id": "long", "k": "string"}
    for number in range(30):
        names = [
            f"k=a%2Fb é {number}/part ü {{x}}~'\"^#?%20-{number}-{part}.parquet" for part in range(chance.randrange(3))
        ]
        new = [DataFile(name, 1, 400, {"k": chance.choice(["a/b", "", None])}, number) for name in names]
        gone = chance.sample(held, chance.randrange(len(held) + 1)) if chance.random() < 0.3 else []
        if number in (10, 20):
            columns[f"n{number}"] = "double"
        options = {"schema_json": make_schema(**columns), "partition_by": ["k"], "add": new, "remove": gone}
        commit(table, number, **options)
        held = [file for file in held if file not in gone] + new
        if chance.random() < 0.2:
            compact_log(table, lambda: None)
        assert described_here(table) == describe(table)
        assert [file.path for file in list_data_files(table)] == sorted(file.path for file in held)


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100], ids=["empty", "half", "zeros"])
def test_a_torn_compaction_file_is_passed_over(tmp_path: Path, content: bytes) -> None:
    table = tmp_path / "t"
    for number in range(3):
        commit(table, number)
    compact_log(table, lambda: None)
    (path,) = [table / LOG_FOLDER / name for name in list_names(table) if "compacted" in name]
    path.write_bytes(content)
    state = read_table_state(table, (QUERY,))
    assert state is not None
    assert (state.version, state.txns) == (2, {QUERY: 2})


def by_deltalake(table: Path, versions: int) -> None:
    """A table as an earlier tidegate made it: deltalake's own commits, a parquet checkpoint at the end."""
    create_table_with_add_actions(str(table), Schema.from_json(SCHEMA), [], name="t")
    for _ in range(versions - 1):
        delta = DeltaTable(str(table))
        delta.create_write_transaction([], "append", delta.schema())
    DeltaTable(str(table)).create_checkpoint()


def test_the_parquet_checkpoint_of_an_earlier_version_goes_when_every_commit_is_there(tmp_path: Path) -> None:
    table = tmp_path / "t"
    by_deltalake(table, 3)
    assert is_compaction_due(table)
    compact_log(table, lambda: None)
    assert not list(table.rglob("*.parquet"))
    assert not (table / LOG_FOLDER / "_last_checkpoint").exists()
    assert not is_compaction_due(table)
    assert describe(table)[0] == described_here(table)[0] == 2


def test_a_parquet_checkpoint_stays_when_commits_were_cleaned_away(tmp_path: Path) -> None:
    table = tmp_path / "t"
    by_deltalake(table, 3)
    (table / LOG_FOLDER / commit_name(0)).unlink()
    before = describe(table)
    assert described_here(table) == before
    assert not is_compaction_due(table)
    assert commit(table, 0) == 3
    compact_log(table, lambda: None)
    assert len(list(table.rglob("*.parquet"))) == 1
    assert described_here(table)[:2] == describe(table)[:2] == (3, 0)


def test_a_table_with_a_feature_that_is_not_known_here_is_refused_by_name(tmp_path: Path) -> None:
    table = tmp_path / "t"
    commit(table, 0)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["typeWidening"]}
    (table / LOG_FOLDER / commit_name(1)).write_text(json.dumps({"protocol": protocol}))
    state = read_table_state(table)
    assert state is not None and [one.what for one in state.unsupported] == ["the feature typeWidening"]
    with pytest.raises(DisagreementError, match="typeWidening"):
        commit(table, 1)


def test_a_compaction_file_names_what_was_removed_in_the_last_week(tmp_path: Path) -> None:
    table = tmp_path / "t"
    old, young, held = (DataFile(f"{name}.parquet", 1, 400) for name in ("old", "young", "held"))
    commit(table, 0, add=[old, young, held])
    commit(table, 1, remove=[old])
    path = table / LOG_FOLDER / commit_name(1)
    actions = [json.loads(line) for line in path.read_text().split("\n")]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] -= 8 * 86_400_000
    path.write_text("\n".join(map(json.dumps, actions)))
    commit(table, 2, remove=[young])
    compact_log(table, lambda: None)
    (name,) = [name for name in list_names(table) if "compacted" in name]
    assert name == f"{0:020d}.{2:020d}.compacted.json"
    lines = [json.loads(line) for line in (table / LOG_FOLDER / name).read_text().splitlines()]
    told = [(kind, value.get("path")) for line in lines for kind, value in line.items()]
    expected = [("protocol", None), ("metaData", None), ("txn", None)]
    assert told == [*expected, ("add", "held.parquet"), ("remove", "young.parquet")]


def test_a_torn_parquet_checkpoint_stops_nobody_for_long(tmp_path: Path) -> None:
    table = tmp_path / "t"
    by_deltalake(table, 3)
    (checkpoint,) = (table / LOG_FOLDER).glob("*.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    (table / LOG_FOLDER / "_last_checkpoint").write_bytes(b"\0" * 20)
    with pytest.raises(Exception, match=r"(?i)parquet|checkpoint"):
        describe(table)
    assert commit(table, 0) == 3
    compact_log(table, lambda: None)
    assert describe(table) == described_here(table)


def test_a_compaction_of_a_version_that_was_taken_away_is_not_read_for_the_one_that_follows(tmp_path: Path) -> None:
    for number in range(4):
        commit(tmp_path, number, add=[add_file(tmp_path, number)])
    put_compaction(tmp_path, read_log(tmp_path))
    newest = tmp_path / LOG_FOLDER / commit_name(3)
    newest.rename(f"{newest}.torn")
    next(tmp_path.glob("part-*-00000003-*")).unlink()
    again = add_file(tmp_path, 7)
    assert commit(tmp_path, 3, add=[again]) == 3
    assert again.path in [file.path for file in list_data_files(tmp_path)]
    assert sorted(row["id"] for row in read_agreed(tmp_path)) == [0, 1, 2, 7]


def test_a_newest_commit_that_is_torn_under_a_compaction_is_told_with_what_helps(tmp_path: Path) -> None:
    for number in range(4):
        commit(tmp_path, number, add=[add_file(tmp_path, number)])
    put_compaction(tmp_path, read_log(tmp_path))
    newest = tmp_path / LOG_FOLDER / commit_name(3)
    newest.write_bytes(newest.read_bytes()[:90])
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE") as told:
        read_table_state(tmp_path, (QUERY,))
    assert f"to {newest}.torn" in str(told.value.fix)
    newest.rename(f"{newest}.torn")
    state = read_table_state(tmp_path, (QUERY,))
    assert state is not None and state.txns == {QUERY: 2}
