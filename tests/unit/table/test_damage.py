"""What is gone or changed of a table is found, at a bounded cost; what others do to it meanwhile is no damage."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.cut_log import clean_log
from tests.support.keyed import Keyed
from tests.support.many_commits import add_file, commit
from tidegate.core import storage
from tidegate.table.damage import describe_damage, examine_table, find_damage
from tidegate.table.log.compaction import compact_log
from tidegate.table.log.files import LOG_FOLDER, commit_name, compacted_name
from tidegate.table.log.state import list_data_files, read_log


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Five versions of a file each; the first four are in a compaction file."""
    path = tmp_path / "t"
    for number in range(5):
        if number == 4:
            compact_log(path, lambda: None)
        commit(path, number, add=[add_file(path, number)])
    return path


def kinds(table: Path, at_most: int | None = None) -> list[str]:
    return [one.kind for one in find_damage(table, at_most=at_most)]


def test_a_whole_table_has_no_damage(table: Path, tmp_path: Path) -> None:
    found, files = examine_table(table)
    assert (kinds(table), kinds(table, 100), found, len(files)) == ([], [], [], 5)
    assert kinds(tmp_path / "none") == [] and kinds(tmp_path / "none", 10) == []


@pytest.mark.parametrize("number", [0, 4])
def test_a_file_is_found_wherever_the_log_names_it(table: Path, number: int) -> None:
    file = sorted(table.glob("*.parquet"))[number]
    file.write_bytes(file.read_bytes()[:-1])
    assert kinds(table) == kinds(table, 100) == ["size"]
    file.unlink()
    assert kinds(table) == kinds(table, 100) == ["gone"]
    found = find_damage(table)
    assert describe_damage(found) == (
        f"1 file is gone, for example {file.name} ({found[0].file.size_bytes:,} bytes, 1 row); the log counts 1 row in "  # type: ignore[union-attr]
        "these files"
    )


def test_the_newest_files_are_looked_at_first_and_no_more_than_asked(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    stat = storage.stat

    def note(path: Path) -> storage.Stat:
        if path.suffix == ".parquet":
            looked.append(path.name.split("-")[2])
        return stat(path)

    monkeypatch.setattr(storage, "stat", note)
    assert kinds(table, 2) == []
    assert looked == ["00000004"] or (looked[0] == "00000004" and len(looked) == 2)


def test_a_long_log_is_not_read_for_a_glance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files the table has: what is read of its log is bounded."""
    table = tmp_path / "t"
    files = [add_file(table, 0)]
    names = [table / f"part-1f0c7a52-{number:08d}-a-00000.parquet" for number in range(1, 2000)]
    for name in names:
        os.link(table / files[0].path, name)
    commit(table, 0, add=[*files, *(replace(files[0], path=name.name) for name in names)])
    commit(table, 1)
    compact_log(table, lambda: None)
    commit(table, 2)
    read: list[int] = []
    one = storage.read

    def note(path: Path) -> bytes:
        data = one(path)
        read.append(len(data))
        return data

    monkeypatch.setattr(storage, "read", note)
    assert kinds(table, 200) == []
    assert len(read) == 1 and sum(read) < 1000
    read.clear()
    assert kinds(table) == [] and sum(read) > 300_000


@pytest.mark.parametrize("left", [0, -9])
def test_a_torn_compaction_file_is_no_damage(table: Path, left: int) -> None:
    """The log can be read without it."""
    path = table / LOG_FOLDER / compacted_name(3)
    path.write_bytes(path.read_bytes()[:left])
    assert kinds(table) == kinds(table, 100) == []


def test_a_version_that_is_gone_below_a_compaction_file(table: Path) -> None:
    """This log can be read here, and by no other Delta reader."""
    (table / LOG_FOLDER / commit_name(2)).unlink()
    assert kinds(table) == kinds(table, 100) == ["commit_gone"]
    (found,), files = examine_table(table)
    assert (found.path, len(files)) == (f"{LOG_FOLDER}/{commit_name(2)}", 5)


def test_a_torn_version_below_a_compaction_file(table: Path) -> None:
    path = table / LOG_FOLDER / commit_name(2)
    path.write_bytes(path.read_bytes()[:-5])
    (found,), _ = examine_table(table)
    assert (found.kind, found.path) == ("commit_torn", f"{LOG_FOLDER}/{commit_name(2)}")


def test_what_another_engine_cleaned_up_is_no_damage(table: Path) -> None:
    clean_log(table)
    assert not (table / LOG_FOLDER / commit_name(2)).exists()
    assert kinds(table) == kinds(table, 100) == []
    assert examine_table(table)[0] == []


@pytest.fixture(params=["all there", "cleaned up", "only the checkpoint"])
def checkpointed(table: Path, request: pytest.FixtureRequest) -> Path:
    """A log with a checkpoint of another engine; by parameter, what is left of the commits."""
    if request.param == "all there":
        DeltaTable(str(table)).create_checkpoint()
    else:
        clean_log(table)
    if request.param == "only the checkpoint":
        for name in (table / LOG_FOLDER).glob("*.json"):
            name.unlink()
    return table


@pytest.mark.parametrize("number", [0, 4])
def test_a_file_that_a_checkpoint_names_is_looked_at(checkpointed: Path, number: int) -> None:
    assert kinds(checkpointed) == kinds(checkpointed, 100) == []
    file = sorted(checkpointed.glob("*.parquet"))[number]
    file.write_bytes(file.read_bytes()[:-1])
    assert kinds(checkpointed) == kinds(checkpointed, 100) == ["size"]
    file.unlink()
    assert kinds(checkpointed) == kinds(checkpointed, 100) == ["gone"]


def test_files_removed_since_a_checkpoint_are_not_looked_at(table: Path) -> None:
    clean_log(table)
    old = read_log(table).files()[0]
    commit(table, 5, add=[add_file(table, 5)], remove=[old])
    (table / old.path).unlink()
    assert kinds(table) == kinds(table, 100) == []
    newest = next(iter(table.glob("*00000005*.parquet")))
    newest.unlink()
    assert kinds(table) == kinds(table, 100) == ["gone"]


def test_a_large_checkpoint_is_not_read_for_a_glance(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_log(table)
    next(iter(sorted(table.glob("*.parquet")))).unlink()
    monkeypatch.setattr("tidegate.table.damage._BYTES_PER_FILE", 10)
    assert kinds(table, 100) == []
    assert kinds(table) == ["gone"]


def test_a_glance_at_a_whole_log_reads_no_checkpoint(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(str(table)).create_checkpoint()
    monkeypatch.setattr(pq, "read_table", lambda *given, **more: pytest.fail("the checkpoint was read"))
    assert kinds(table, 100) == []


def test_files_of_another_engine_are_read_whole(table: Path) -> None:
    write_deltalake(str(table), pa.table({"id": pa.array([7, 8], pa.int64())}), mode="append")
    found, files = examine_table(table)
    assert found == [] and sum(file.rows for file in files) == 7
    file = table / next(one.path for one in list_data_files(table) if one.rows == 2)
    pq.write_table(pa.table({"id": pa.array([7], pa.int64())}), file)
    (found_now,), _ = examine_table(table)
    assert found_now.kind in ("rows", "size")


def test_a_file_that_no_version_counts(table: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), table / "another.parquet")
    (found,), _ = examine_table(table)
    assert (found.kind, found.path) == ("not_in_log", "another.parquet")
    assert kinds(table) == []


def test_a_version_that_came_meanwhile_is_no_damage(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish that replaces a file takes its name away behind its commit."""
    old = read_log(table).files()[0]
    stat, done = storage.stat, []

    def replace_it(path: Path) -> storage.Stat:
        if path.name == old.path and not done:
            done.append(True)
            commit(table, 5, add=[add_file(table, 5)], remove=[old])
            path.unlink()
        return stat(path)

    monkeypatch.setattr(storage, "stat", replace_it)
    assert kinds(table) == [] and done


def test_the_log_has_the_digest_of_what_a_run_published(tmp_path: Path) -> None:
    """Also once a publish has called the file by another name."""
    keyed = Keyed(tmp_path)
    keyed.stage([{"id": n, "city": "x", "n": n} for n in range(3)])
    keyed.run()
    (file,) = list_data_files(keyed.paths.table)
    assert file.sha256 == storage.digest(keyed.paths.table / file.path)
    keyed.stage([{"id": 1, "city": "y", "n": 9}])
    keyed.run()
    assert all(one.sha256 == storage.digest(keyed.paths.table / one.path) for one in list_data_files(keyed.paths.table))
    adds = [add for add in read_log(keyed.paths.table).removed if add.endswith(".replaced")]
    assert len(adds) == 1
    path = keyed.paths.table / list_data_files(keyed.paths.table)[0].path
    data = bytearray(path.read_bytes())
    data[4] ^= 1
    path.write_bytes(data)
    (found,), _ = examine_table(keyed.paths.table)
    assert found.kind == "digest"
