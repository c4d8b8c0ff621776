"""Publishing staged batches: what readers see, what the log says, what is refused."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.support.delta import open_table
from tests.support.readers import read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.staged import QUERY, Stager, make_paths, make_schema
from tests.support.storage_calls import KilledHere, kill, split_devices
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TryAgainError, UsageError
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile, digest_files, list_data_files, read_table_state
from tidegate.table.publish import publish as publish_module
from tidegate.table.publish.intent import FileToRemove, PublishIntent, pending_intents, write_intent
from tidegate.table.publish.plan import parse_file_name, plan_publish
from tidegate.table.publish.publish import CommitResult, find_hindrance, finish_intent

NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def stager(tmp_path: Path) -> Stager:
    return Stager(make_paths(tmp_path), {"id": "long", "city": "string"}, [])


@pytest.fixture
def by_day(tmp_path: Path) -> Stager:
    return Stager(make_paths(tmp_path), {"id": "long", "day": "date"}, ["day"])


def plan(stager: Stager, manifests: list[BatchManifest], before: int = -1, **more: object) -> PublishIntent:
    return plan_publish(
        manifests,
        run_id="run",
        partition_by=stager.partition_by,
        app_version_before=before,
        **more,  # type: ignore[arg-type]
    )


def publish(stager: Stager, intent: PublishIntent) -> CommitResult:
    return finish_intent(stager.paths, write_intent(stager.paths, intent), is_current=lambda: True)


def rows(*ids: int, city: str = "Oslo") -> list[dict[str, object]]:
    return [{"id": number, "city": city} for number in ids]


def test_a_first_publish_makes_the_table(stager: Stager) -> None:
    intent = plan(stager, [stager.stage(0, rows(1, 2, 3), files=2)], custom_metadata={"tidegate.rows": '{"read": 3}'})
    result = publish(stager, intent)
    assert result == CommitResult(0, files_added=2, rows_added=3, files_removed=0, rows_removed=0, already=False)
    assert sorted(row["id"] for row in read_agreed(stager.paths.table)) == [1, 2, 3]
    state = read_table_state(stager.paths.table, (QUERY, "other"))
    assert state is not None
    assert (state.version, state.txns, state.partition_columns) == (0, {QUERY: 0}, [])
    assert state.metadata["tidegate.rows"] == '{"read": 3}'
    assert state.metadata["tidegate.run_id"] == "run"
    assert state.metadata["tidegate.pipeline"] == stager.paths.name
    assert pending_intents(stager.paths) == []
    assert not list(stager.paths.staging.rglob("*.parquet"))


def test_batches_of_two_runs_follow_each_other(by_day: Stager) -> None:
    first = [by_day.stage(batch, [{"id": batch, "day": date(2026, 1, 1 + batch)}]) for batch in (0, 1)]
    publish(by_day, plan(by_day, first))
    second = by_day.stage(2, [{"id": 2, "day": date(2026, 1, 1)}, {"id": 3, "day": None}])
    result = publish(by_day, plan(by_day, [*first, second], before=1))
    assert (result.version, result.files_added, result.rows_added) == (1, 2, 2)
    assert sorted((row["id"], row["day"]) for row in read_agreed(by_day.paths.table) if row["id"] < 3) == [
        (0, date(2026, 1, 1)),
        (1, date(2026, 1, 2)),
        (2, date(2026, 1, 1)),
    ]
    assert (by_day.paths.table / "day=2026-01-01").is_dir()
    assert (by_day.paths.table / "day=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert len(list_data_files(by_day.paths.table)) == 4


def test_finishing_again_changes_nothing_and_says_the_same(stager: Stager) -> None:
    intent = plan(stager, [stager.stage(0, rows(1, 2))])
    first = publish(stager, intent)
    later = publish(stager, plan(stager, [stager.stage(1, rows(3))], before=0))
    again = publish(stager, intent)
    assert later.version == 1
    assert dataclasses.replace(again, already=False) == first
    assert again.already
    state = read_table_state(stager.paths.table)
    assert state is not None
    assert state.version == 1
    assert len(read_agreed(stager.paths.table)) == 3


def test_a_discard_moves_the_log_on_and_publishes_nothing(stager: Stager) -> None:
    manifests = [stager.stage(0, rows(1)), stager.stage(1, rows(2))]
    result = publish(stager, plan(stager, manifests, discard=True))
    assert (result.version, result.files_added, result.rows_added) == (0, 0, 0)
    state = read_table_state(stager.paths.table, (QUERY,))
    assert state is not None
    assert state.txns == {QUERY: 1}
    assert read_agreed(stager.paths.table) == []


def test_the_first_intent_of_an_increment_is_the_one_in_force(stager: Stager) -> None:
    intent = plan(stager, [stager.stage(0, rows(1))])
    assert write_intent(stager.paths, intent) == intent
    other = dataclasses.replace(intent, run_id="another", files_to_add=[])
    assert write_intent(stager.paths, other) == intent
    assert pending_intents(stager.paths) == [intent]


def test_a_files_name_tells_its_batch(by_day: Stager) -> None:
    staged = [by_day.stage(batch, [{"id": 1, "day": date(2026, 1, 1)}], files=2) for batch in (0, 7, 10**8)]
    stranger = dataclasses.replace(staged[0], batch_id=1, query_id="00000000-1111-4222-8333-444444444444")
    named = [file.path for intent in (plan(by_day, staged), plan(by_day, [stranger])) for file in intent.files_to_add]
    told = [parse_file_name(os.path.basename(path)) for path in named]
    assert set(told) == {("1f0c7a52", 0), ("1f0c7a52", 7), ("1f0c7a52", 10**8), ("00000000", 1)}
    name = os.path.basename(named[0])
    others = [named[0], f".{name}", f".{name}.replaced", f"{name}.tmp", "part-00000-c000.snappy.parquet", "_delta_log"]
    assert [parse_file_name(other) for other in others] == [None] * len(others)


def test_staged_files_without_rows_are_not_published(stager: Stager) -> None:
    manifest = stager.stage(0, rows(1), files=2)
    assert [file.rows for file in manifest.files] == [1, 0]
    assert publish(stager, plan(stager, [manifest])).files_added == 1


def test_a_lost_lease_stops_before_anything_is_visible(stager: Stager) -> None:
    intent = write_intent(stager.paths, plan(stager, [stager.stage(0, rows(1))]))
    with pytest.raises(TryAgainError, match="LEASE_LOST"):
        finish_intent(stager.paths, intent, is_current=lambda: False)
    assert read_with_duckdb(stager.paths.table) == []
    assert read_with_deltalake(stager.paths.table) == []
    assert pending_intents(stager.paths) == [intent]


def test_a_late_intent_that_overlaps_a_later_publish_is_dropped(stager: Stager) -> None:
    manifests = [stager.stage(0, rows(1)), stager.stage(1, rows(2))]
    late = plan(stager, manifests)
    publish(stager, plan(stager, manifests[:1]))
    result = publish(stager, late)
    assert result.overtaken
    assert result.version is None
    assert pending_intents(stager.paths) == []
    assert [row["id"] for row in read_agreed(stager.paths.table)] == [1]
    publish(stager, plan(stager, manifests, before=0))
    assert sorted(row["id"] for row in read_agreed(stager.paths.table)) == [1, 2]


def test_a_table_that_went_back_in_time_is_a_disagreement(stager: Stager) -> None:
    with pytest.raises(DisagreementError, match="TABLE_BEHIND"):
        publish(stager, plan(stager, [stager.stage(5, rows(1))], before=4))
    assert read_with_duckdb(stager.paths.table) == []


def test_parquet_files_without_a_log_are_not_adopted(stager: Stager) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1))]))
    storage.remove_tree(stager.paths.table / "_delta_log")
    with pytest.raises(DisagreementError, match="TABLE_LOG_MISSING"):
        publish(stager, plan(stager, [stager.stage(1, rows(2))]))
    assert [row["id"] for row in read_with_duckdb(stager.paths.table)] == [1]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def swap(path: Path) -> None:
    """A file that is whole, of as many bytes, and another one."""
    pq.write_table(pa.table({"id": pa.array([7, 8]), "city": ["Rome", "Rome"]}), path)


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [flip, swap, tear])
def test_a_staged_file_that_was_changed_is_not_published(stager: Stager, damage: Callable[[Path], None]) -> None:
    manifest = stager.stage(0, rows(1, 2))
    damage(stager.paths.state / manifest.files[0].path)
    for _ in range(2):
        with pytest.raises(DisagreementError) as caught:
            publish(stager, plan(stager, [manifest]))
        assert caught.value.code == "STAGED_FILE_DAMAGED"
    assert read_with_duckdb(stager.paths.table) == []


@pytest.mark.parametrize("at", range(4))
def test_of_files_that_are_compared_at_once_none_that_was_changed_is_published(
    stager: Stager, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr("tidegate.table.publish.fit._MUCH_BYTES", 0)
    manifests = [stager.stage(batch, rows(batch)) for batch in range(4)]
    staged = stager.paths.state / manifests[at].files[0].path
    whole = staged.read_bytes()
    flip(staged)
    with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
        publish(stager, plan(stager, manifests))
    assert read_with_duckdb(stager.paths.table) == []
    staged.write_bytes(whole)
    assert publish(stager, plan(stager, manifests)).rows_added == 4
    assert len(list_data_files(stager.paths.table)) == len(read_agreed(stager.paths.table)) == 4


def test_a_file_that_was_changed_after_it_was_moved_in_is_not_committed(
    stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = plan(stager, [stager.stage(0, rows(1, 2))])
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.core.storage.remove_copies", kill)
        with pytest.raises(KilledHere):
            publish(stager, intent)
    flip(stager.paths.table / intent.files_to_add[0].path)
    with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
        publish(stager, intent)
    assert read_table_state(stager.paths.table) is None


def test_a_copy_to_another_device_is_of_the_bytes_that_were_judged(
    stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed between the comparison and the copy."""
    intent = plan(stager, [stager.stage(0, rows(1, 2))])
    split_devices(monkeypatch, stager.paths.state)
    real = storage.sync_file

    def flip_first(path: Path) -> None:
        flip(path)
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr("tidegate.core.storage.moving.sync_file", flip_first)
        with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
            publish(stager, intent)
    assert list(stager.paths.table.rglob("*part-*")) == []


def test_a_file_of_an_earlier_version_has_no_digest(stager: Stager) -> None:
    manifest = stager.stage(0, rows(1, 2))
    old = dataclasses.replace(manifest, files=[dataclasses.replace(file, sha256="") for file in manifest.files])
    assert publish(stager, plan(stager, [old])).rows_added == 2
    other = stager.stage(1, rows(1, 2))
    for files in ({"rows": 3}, {"size_bytes": 1}):
        wrong = dataclasses.replace(other, files=[dataclasses.replace(other.files[0], sha256="", **files)])
        with pytest.raises(DisagreementError, match="STAGED_FILE_DAMAGED"):
            publish(stager, plan(stager, [wrong], before=0))
        storage.remove_tree(stager.paths.intents)


def test_a_staged_file_that_vanished_is_named(stager: Stager) -> None:
    manifest = stager.stage(0, rows(1))
    (stager.paths.state / manifest.files[0].path).unlink()
    with pytest.raises(DisagreementError, match="STAGED_FILES_LOST"):
        publish(stager, plan(stager, [manifest]))


def test_partition_columns_take_the_rows_spelling(by_day: Stager) -> None:
    manifest = by_day.stage(0, [{"id": 1, "day": date(2026, 1, 1)}])
    intent = plan_publish([manifest], run_id="r", partition_by=["Day"], app_version_before=-1)
    assert intent.partition_by == ["day"]
    publish(by_day, intent)
    assert read_agreed(by_day.paths.table) == [{"id": 1, "day": date(2026, 1, 1)}]


def test_a_new_column_is_added_and_older_rows_have_null(stager: Stager) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1))]))
    wider = Stager(stager.paths, {**stager.columns, "country": "string"}, [])
    publish(wider, plan(wider, [wider.stage(1, [{"id": 2, "city": "Bonn", "country": "DE"}])], before=0))
    found = sorted(read_agreed(stager.paths.table), key=lambda row: int(row["id"]))
    assert found == [{"id": 1, "city": "Oslo", "country": None}, {"id": 2, "city": "Bonn", "country": "DE"}]
    state = read_table_state(stager.paths.table)
    assert state is not None
    assert state.schema_json.index('"country"') > state.schema_json.index('"city"')


def test_leftovers_of_the_narrower_schema_are_published_with_the_wider(stager: Stager) -> None:
    wider = Stager(stager.paths, {"id": "long", "country": "string", "city": "string"}, [])
    manifests = [stager.stage(0, rows(1)), wider.stage(1, [{"id": 2, "city": "Bonn", "country": "DE"}])]
    publish(stager, plan(stager, manifests))
    assert len(read_agreed(stager.paths.table)) == 2


def test_another_change_of_schema_is_refused_before_a_file_moves(stager: Stager) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1))]))
    other = Stager(stager.paths, {"id": "string"}, [])
    with pytest.raises(UsageError, match="SCHEMA_CHANGE"):
        publish(other, plan(other, [other.stage(1, [{"id": "x"}])], before=0))
    assert [row["id"] for row in read_agreed(stager.paths.table)] == [1]


def test_columns_are_replaced_with_all_rows_or_not_at_all(stager: Stager, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1))]))
    table, files = stager.paths.table, list_data_files(stager.paths.table)
    other = Stager(stager.paths, {"name": "string"}, [])
    intent = dataclasses.replace(
        plan(other, [other.stage(1, [{"name": "x"}])], before=0),
        files_to_remove=[FileToRemove(file.path, file.rows, file.size_bytes, file.partition) for file in files],
        table_files=digest_files(files),
        replaces_schema=True,
    )
    real = publish_module.set_aside

    def insert(*arguments: Any) -> list[DataFile]:
        hidden = real(*arguments)
        name = table / "theirs.parquet"
        pq.write_table(pa.table({"id": [9], "city": ["Rome"]}), name)
        commit_files(table, Commit("theirs", add=[DataFile(name.name, 1, name.stat().st_size)]))
        return hidden

    with monkeypatch.context() as patch:
        patch.setattr(publish_module, "set_aside", insert)
        with pytest.raises(DisagreementError, match="COLUMNS_IN_USE"):
            publish(other, intent)
    assert sorted(row["id"] for row in read_agreed(table)) == [1, 9]
    (pending,) = pending_intents(stager.paths)
    hindrance = find_hindrance(stager.paths, pending)  # for `tidegate repair`, which abandons it
    assert hindrance is not None and hindrance.code == "COLUMNS_IN_USE"
    storage.remove(table / "theirs.parquet")
    commit_files(table, Commit("gone", remove=[one for one in list_data_files(table) if one.path == "theirs.parquet"]))
    publish(other, pending)
    assert read_agreed(table) == [{"name": "x"}]


def test_another_partitioning_is_refused_before_a_file_moves(by_day: Stager) -> None:
    publish(by_day, plan(by_day, [by_day.stage(0, [{"id": 1, "day": date(2026, 1, 1)}])]))
    flat = Stager(by_day.paths, by_day.columns, [])
    with pytest.raises(UsageError, match="PARTITION_BY"):
        publish(flat, plan(flat, [flat.stage(1, [{"id": 2, "day": date(2026, 1, 1)}])], before=0))
    assert len(read_agreed(by_day.paths.table)) == 1


def test_a_full_disk_leaves_the_intent_and_the_next_run_finishes(
    stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = plan(stager, [stager.stage(0, rows(1, 2), files=2)])
    real_rename, calls = os.rename, []

    def rename(source: object, target: object) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real_rename(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(TryAgainError, match="DISK_FULL"):
        publish(stager, intent)
    monkeypatch.undo()
    (pending,) = pending_intents(stager.paths)
    assert finish_intent(stager.paths, pending, is_current=lambda: True).rows_added == 2
    assert sorted(row["id"] for row in read_agreed(stager.paths.table)) == [1, 2]


def test_warehouse_on_another_device_is_copied_and_late_copies_are_gone(
    stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_rename = os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(source).is_relative_to(stager.paths.state):
            raise OSError(18, "Invalid cross-device link")
        real_rename(source, target)

    monkeypatch.setattr(os, "rename", rename)
    intent = plan(stager, [stager.stage(0, rows(1, 2), files=2)])
    sleeper = stager.paths.table / f".{intent.files_to_add[0].path}.00.incoming"
    sleeper.parent.mkdir(parents=True)
    sleeper.write_bytes(b"a copy another process has not renamed yet")
    publish(stager, intent)
    assert sorted(row["id"] for row in read_agreed(stager.paths.table)) == [1, 2]
    assert not sleeper.exists()
    assert not list(stager.paths.staging.rglob("*.parquet"))


def test_replaced_files_leave_every_reader(stager: Stager) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1, 2))]))
    (old,) = list_data_files(stager.paths.table)
    gone = FileToRemove(old.path, old.rows, old.size_bytes, old.partition)
    intent = dataclasses.replace(plan(stager, [stager.stage(1, rows(3))], before=0), files_to_remove=[gone])
    result = publish(stager, intent)
    assert (result.files_removed, result.rows_removed, result.rows_added) == (1, 2, 1)
    assert [row["id"] for row in read_agreed(stager.paths.table)] == [3]


def test_a_publish_is_durable_before_the_intent_is_forgotten(stager: Stager, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync, real_unlink = os.fsync, Path.unlink

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real_fsync(fd)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.parent == stager.paths.intents and not self.name.startswith("."):
            synced.append("forgotten")
        real_unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "unlink", unlink)
    publish(stager, plan(stager, [stager.stage(0, rows(1))]))
    before = synced[: synced.index("forgotten")]
    table = stager.paths.table
    assert str(table) in before
    # The version's bytes are synced before they have its name, the name with the folder after that.
    assert any(path.startswith(str(table / "_delta_log" / f".{0:020d}.json.")) for path in before)
    assert str(table / "_delta_log") in before
    assert before.index(str(table)) < before.index(str(table / "_delta_log"))
    assert any(name.endswith("c000.snappy.parquet") for name in before)


def test_filters_lose_no_row_whatever_the_log_says_of_the_columns(tmp_path: Path) -> None:
    columns = {"id": "long", "day": "date", "name": "string", "at": "timestamp", "price": "double", "kind": "string"}
    stager = Stager(make_paths(tmp_path), columns, ["kind"])
    first = {"id": 5, "day": date(2026, 1, 2), "name": "b" * 100, "at": NOON, "price": math.nan, "kind": "x"}
    second = {"id": -3, "day": None, "name": None, "at": None, "price": 1.5, "kind": "x"}
    publish(stager, plan(stager, [stager.stage(0, [first]), stager.stage(1, [second])]))
    assert publish(stager, plan(stager, [stager.stage(2, [first, second])], before=1)).rows_added == 2
    dataset = open_table(stager.paths.table).to_pyarrow_dataset()
    for name, value in {**first, "price": 1.5}.items():
        expected = 4 if name == "kind" else 2
        assert dataset.to_table(filter=ds.field(name) == value).num_rows == expected, name
        assert dataset.to_table(filter=ds.field(name) >= value).num_rows >= expected, name
    for name in ("day", "name", "at"):
        assert dataset.to_table(filter=ds.field(name).is_null()).num_rows == 2, name
    actions = open_table(stager.paths.table).get_add_actions(flatten=True)
    assert sorted(actions["num_records"].to_pylist()) == [1, 1, 2]
    assert sorted(actions["null_count.day"].to_pylist()) == [0, 1, 1]


def test_the_table_can_be_renamed_whole(stager: Stager, tmp_path: Path) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1, 2))]))
    moved = tmp_path / "elsewhere [x]" / "renamed é"
    moved.parent.mkdir()
    stager.paths.table.rename(moved)
    assert len(read_agreed(moved)) == 2


def test_make_schema_is_what_the_table_has(stager: Stager) -> None:
    publish(stager, plan(stager, [stager.stage(0, rows(1))]))
    state = read_table_state(stager.paths.table)
    assert state is not None
    assert state.schema_json.replace(" ", "") == make_schema(**stager.columns).replace(" ", "")
