"""Compaction: fewer files with the same rows for every reader, whoever is stopped or asleep wherever."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.held import Leases
from tests.support.kept import Kept
from tests.support.readers import canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import KilledHere, StorageCalls, kill, watch
from tidegate.core import storage
from tidegate.core.errors import DefectError, TidegateError, TryAgainError
from tidegate.rework.maintain import compact, rewrite
from tidegate.rework.maintain.compact import choose_part, find_small
from tidegate.runs.reports.report import load_report
from tidegate.sinks.feed import begin_sink
from tidegate.sinks.rows import read_file
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.delivery import list_deliveries
from tidegate.table.publish.intent import pending_intents

CITIES = ["Oslo", "Rome", None]


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    """Leases without files or threads: the one given last is current."""
    leases = Leases()
    monkeypatch.setattr("tidegate.runs.opening.acquire", leases.acquire)
    return leases


def rows(begin: int, count: int = 4) -> list[dict[str, Any]]:
    return [{"id": n, "city": CITIES[n % 3], "n": n * n} for n in range(begin, begin + count)]


def many(root: Path, runs: int = 5, **how: Any) -> Kept:
    """A table of several runs, two files each per partition."""
    kept = Kept(root, **how)
    for run in range(runs):
        kept.publish(rows(run * 10, 6), files=2)
    return kept


def test_small_files_become_one_with_the_same_rows_for_every_reader(tmp_path: Path) -> None:
    kept = many(tmp_path)
    before = read_agreed(kept.paths.table)
    report = kept.maintain()
    assert (report["mode"], report["outcome"], report["error"]) == ("maintain", "published", None)
    assert len(kept.files) == 1 and len(before) == 30
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    table = report["table"]
    assert (table["files_added"], table["files_removed"], table["rows_added"], table["rows_removed"]) == (1, 10, 0, 0)
    assert report["notes"][0] == "compacted: 10 small files became 1 file, in 1 version"
    assert table["version"] == read_table_state(kept.paths.table).version  # type: ignore[union-attr]
    assert kept.leftovers() == []
    report = kept.maintain("M2")
    assert (report["outcome"], report["notes"], report["table"]) == ("nothing_new", ["nothing to do"], {})


def test_a_retry_is_free_and_says_the_same(tmp_path: Path) -> None:
    kept = many(tmp_path)
    first = kept.maintain()
    version = read_table_state(kept.paths.table)
    kept.publish(rows(100), files=3)
    assert kept.maintain() == first
    assert len(kept.files) == 4
    assert version is not None


def test_rows_stay_in_their_partition(tmp_path: Path) -> None:
    kept = many(tmp_path, partition_by=["city"])
    before = read_agreed(kept.paths.table)
    kept.maintain()
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    assert sorted(file.partition["city"] or "" for file in kept.files) == ["", "Oslo", "Rome"]
    for file in kept.files:
        found = pq.read_table(kept.paths.table / file.path, partitioning=None)
        assert "city" not in found.column_names and len(found) == 10 == file.rows


def test_only_files_below_the_size_are_put_together(tmp_path: Path) -> None:
    kept = many(tmp_path, maintenance={"compact_below": 0})
    assert kept.maintain()["outcome"] == "nothing_new"
    kept.maintenance = {"compact_below": f"{min(file.size_bytes for file in kept.files)} B"}
    assert kept.maintain("M2")["outcome"] == "nothing_new"
    assert len(kept.files) == 10


def test_the_file_is_in_the_order_that_the_spec_says(tmp_path: Path) -> None:
    kept = Kept(tmp_path, table={"cluster_by": ["CITY", "n"]})
    shuffled = rows(0, 60)
    random.Random(3).shuffle(shuffled)
    for begin in range(0, 60, 20):
        kept.publish(shuffled[begin : begin + 20])
    kept.maintain()
    (file,) = kept.files
    found = pq.read_table(kept.paths.table / file.path).to_pylist()
    assert found == sorted(rows(0, 60), key=lambda row: (row["city"] is None, row["city"] or "", row["n"]))
    assert canonical(read_agreed(kept.paths.table)) == canonical(shuffled)


def test_files_that_got_another_column_since_go_together_by_their_columns(tmp_path: Path) -> None:
    kept = many(tmp_path, runs=2)
    kept.columns = {**kept.columns, "more": "double"}
    kept.stager.columns = kept.columns
    for begin in (100, 110):
        kept.publish([{**row, "more": 0.5} for row in rows(begin)])
    kept.columns = {**kept.columns, "last": "boolean"}
    kept.stager.columns = kept.columns
    kept.publish([{**row, "more": None, "last": True} for row in rows(200)])
    before = read_agreed(kept.paths.table)
    report = kept.maintain()
    assert len(kept.files) == 3
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    assert any(note.startswith("left as they are: 3 small files whose columns") for note in report["notes"])
    assert kept.maintain("M2")["outcome"] == "nothing_new"
    assert ("compact", "table") not in kept.foresee()


def test_a_file_whose_footer_says_something_else_than_the_log_stays(tmp_path: Path) -> None:
    kept = many(tmp_path, runs=2)
    victim = kept.files[0]
    path = kept.paths.table / victim.path
    pq.write_table(pq.read_table(path).slice(1), path)
    report = kept.maintain()
    assert victim.path in [file.path for file in kept.files] and len(kept.files) == 2
    assert any(victim.path in note for note in report["notes"])


def test_rows_that_get_lost_while_they_are_written_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = many(tmp_path)
    before = read_agreed(kept.paths.table)
    add, lost = rewrite._Output.add, [1]
    monkeypatch.setattr(rewrite._Output, "add", lambda self, rows: add(self, rows.slice(lost.pop() if lost else 0)))
    with pytest.raises(
        DefectError, match=r"COMPACTION_LOST_ROWS: small files with 30 rows were compacted into .* 29 rows"
    ):
        kept.maintain()
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    assert len(kept.files) == 10 and pending_intents(kept.paths) == []


def test_types_and_values_of_every_kind_come_through(tmp_path: Path) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    kinds = {"id": "long", "i": "integer", "x": "double", "d": "date", "at": "timestamp", "ok": "boolean"}
    kept = Kept(tmp_path, columns={**kinds, "b": "binary", "h": "headers", "m": "decimal(10,2)", "s": "string"})
    values = {
        "i": [None, -(2**31), 7], "x": [float("inf"), -0.0, None], "d": [date(1, 1, 1), None, date(9999, 12, 31)],
        "at": [datetime(2026, 1, 1, 1, 2, 3, 456789, tzinfo=UTC), None, datetime(1900, 1, 1, tzinfo=UTC)],
        "ok": [True, None, False], "b": [b"\x00\xff", b"", None], "m": [Decimal("-1.50"), None, Decimal("12345678.90")],
        "h": [[{"key": "k", "value": b"v"}], [], None], "s": ["ø\n\u2028", "", None],
    }  # fmt: skip
    for run in range(3):
        kept.publish([{"id": 10 * run + n, **{name: some[n] for name, some in values.items()}} for n in range(3)])
    before = read_agreed(kept.paths.table)
    kept.maintain()
    assert len(kept.files) == 1
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    schemas = {pq.read_metadata(path).schema.to_arrow_schema() for path in kept.paths.table.rglob("*.parquet*")}
    assert len(schemas) == 1 or all(one.equals(next(iter(schemas))) for one in schemas)
    (file,) = kept.files
    assert b"ARROW:schema" not in (pq.read_metadata(kept.paths.table / file.path).metadata or {})


def test_what_goes_into_one_version_is_bounded() -> None:
    files = [DataFile(f"p={p}/part-{n}.parquet", 1, 10, {"p": str(p)}, n) for p in range(3) for n in range(4)]
    found = find_small(files, 11)
    assert [len(one) for one in found] == [4, 4, 4]
    assert [sum(file.size_bytes for file in one) for one in choose_part(found)] == [40, 40, 40]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "PART_FILES", 6)
        assert [len(one) for one in choose_part(found)] == [4, 2]
        patch.setattr(compact, "PART_BYTES", 5)
        assert [len(one) for one in choose_part(found)] == [2]
    assert choose_part([]) == [] and find_small(files, 10) == []


def test_files_that_are_hidden_or_elsewhere_are_no_candidates() -> None:
    names = [".part-1.parquet.replaced", "_x.parquet", "/abs.parquet", "s3://b/x.parquet", "../x.parquet", "a", "b"]
    (found,) = find_small([DataFile(name, 1, 1) for name in names], 10)
    assert [file.path for file in found] == ["a", "b"]
    assert find_small([DataFile(name, 1, 1) for name in names], 10, {"a"}) == []


def test_a_table_of_many_parts_is_done_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "PART_FILES", 4)
    kept = many(tmp_path)
    before = read_agreed(kept.paths.table)
    report = kept.maintain()
    assert len(kept.files) == 1
    assert "in 3 versions" in report["notes"][0]  # 4 of 10; 4 of 7, the first result behind the rest; 4 of 4
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)


@pytest.mark.parametrize("cluster_by", [[], ["n"]])
def test_large_files_are_read_row_group_by_row_group_and_full_ones_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster_by: list[str]
) -> None:
    monkeypatch.setattr(rewrite, "_SMALL_BYTES", 1)
    monkeypatch.setattr(rewrite, "HELD_BYTES", 1)
    monkeypatch.setattr(rewrite.Layout, "full_bytes", lambda self, is_sorted: 3_000)
    kept = many(tmp_path, runs=10, table={"cluster_by": cluster_by})
    before = read_agreed(kept.paths.table)
    kept.maintain()
    assert (1 if cluster_by else 2) <= len(kept.files) < 20
    assert canonical(read_agreed(kept.paths.table)) == canonical(before)
    assert kept.maintain("M2")["outcome"] == "nothing_new"


def test_a_full_file_is_never_small() -> None:
    for below in (0, 32 << 20, 1 << 30):
        for is_sorted in (False, True):
            assert rewrite.Layout([], below).full_bytes(is_sorted=is_sorted) > below


def check_readers(kept: Kept, truth: list[dict[str, Any]]) -> None:
    """At any moment: the log has exactly these rows, and a plain reader none of them twice and no other one."""
    assert canonical(read_with_deltalake(kept.paths.table)) == canonical(truth)
    assert not canonical(read_with_duckdb(kept.paths.table)) - canonical(truth)


STEP = 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 9
"""Every how many storage calls a process is stopped; `make sweep` takes each."""


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "behind the call"])
def test_a_kill_at_every_storage_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leases: Leases, after: bool
) -> None:
    monkeypatch.setattr(compact, "PART_FILES", 4)
    original = many(tmp_path / "original", runs=2, partition_by=["city"])
    truth = read_agreed(original.paths.table)
    at, calls = 1 + after * 4, 10**6
    while at <= calls:
        kept = copy_of(original, tmp_path / f"{after}-{at}")
        with monkeypatch.context() as patch:
            counter = StorageCalls(patch, at, kill, after=after)
            with contextlib.suppress(KilledHere):
                kept.maintain()
                calls = counter.count
        check_readers(kept, truth)
        another = at % 2 == 0
        report = kept.maintain("M2" if another else "M1")
        assert canonical(read_agreed(kept.paths.table)) == canonical(truth)
        assert len(kept.files) == 3
        assert kept.leftovers() == []
        if not another:
            table = report["table"]
            told = [table.get(key) for key in ("files_added", "files_removed", "rows_removed")]
            assert report["outcome"] == "published" and told == [3, 12, 0], (at, counter.names[-1])
            assert kept.maintain() == report
        assert kept.maintain("M3")["outcome"] == "nothing_new"
        at += STEP
    assert 60 < calls < 10**6


def copy_of(kept: Kept, root: Path) -> Kept:
    import shutil

    shutil.copytree(kept.root, root)
    how = {"partition_by": kept.partition_by, "mode": kept.mode, "keys": kept.keys, "columns": kept.columns}
    copied = Kept(root, maintenance=kept.maintenance, table=kept.table, sinks=kept.sinks, **how)  # type: ignore[arg-type]
    copied.next_batch = kept.next_batch
    return copied


def test_a_process_that_was_frozen_anywhere_changes_nothing_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leases: Leases
) -> None:
    original = many(tmp_path / "original", runs=2)
    truth = [*read_agreed(original.paths.table), *rows(500)]
    whole = copy_of(original, tmp_path / "whole")
    with monkeypatch.context() as patch:
        counter = StorageCalls(patch, 0, watch)
        whole.maintain()
    for at in range(1, counter.count + 1, STEP):
        kept = copy_of(original, tmp_path / str(at))

        def others(name: str, kept: Kept = kept) -> None:
            """While it is frozen another maintenance runs, and a run publishes."""
            kept.maintain("M2")
            kept.publish(rows(500))

        with monkeypatch.context() as patch:
            StorageCalls(patch, at, others)
            try:
                kept.maintain("M1")
            except TidegateError as error:
                assert error.exit_code == 75, (at, error)
        assert canonical(read_agreed(kept.paths.table)) == canonical(truth), at
        kept.maintain("M3")
        assert canonical(read_agreed(kept.paths.table)) == canonical(truth), at
        assert kept.leftovers() == []
    assert counter.count > 30


def test_readers_during_a_compaction_never_see_a_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "PART_FILES", 4)
    kept = many(tmp_path)
    truth = read_agreed(kept.paths.table)
    looked = []

    def look(path: Path, *more: Any) -> None:
        check_readers(kept, truth)
        looked.append(path)

    for name in ("link", "remove", "place", "put_if_absent"):
        real = getattr(storage, name)

        def and_look(path: Path, *more: Any, real: Any = real, **named: Any) -> Any:
            done = real(path, *more, **named)
            look(path)
            return done

        monkeypatch.setattr(storage, name, and_look)
    kept.maintain()
    assert len(looked) > 30


def test_a_delta_reader_goes_on_with_the_version_that_it_opened(tmp_path: Path) -> None:
    kept = many(tmp_path)
    before = DeltaTable(str(kept.paths.table)).version()
    kept.maintain()
    older = DeltaTable(str(kept.paths.table), version=before + 1)  # it calls the files by their hidden names
    assert older.to_pyarrow_table().num_rows == 30
    kept.age(8)
    assert len(kept.on_disk()) == 11
    report = kept.maintain("M2")
    assert len(kept.on_disk()) == 1 and any(
        "vacuumed: 10 replaced files of the table" in one for one in report["notes"]
    )
    assert len(read_agreed(kept.paths.table)) == 30


def test_a_keyed_table_still_merges_after_a_compaction(tmp_path: Path) -> None:
    kept = Kept(tmp_path, mode="update", keys=["id"])
    for run in range(4):
        kept.publish([{"id": n, "city": "Oslo", "n": run} for n in range(run * 5, run * 5 + 5)])
    kept.maintain()
    assert len(kept.files) == 1
    kept.publish([{"id": 3, "city": "Rome", "n": 99}, {"id": 100, "city": "Rome", "n": 100}])
    found = {row["id"]: row["n"] for row in read_agreed(kept.paths.table)}
    assert found == {**{n: n // 5 for n in range(20)}, 3: 99, 100: 100}


def test_a_held_increment_is_published_after_a_compaction(tmp_path: Path) -> None:
    kept = many(tmp_path, runs=3)
    kept.stage(rows(900))  # staged and not published: as a held increment is
    staged = sorted(path.name for path in kept.paths.staging.rglob("*.parquet"))
    assert kept.maintain()["outcome"] == "published"
    assert sorted(path.name for path in kept.paths.staging.rglob("*.parquet")) == staged and staged
    assert kept.run("later").rows["published"] == 4
    assert len(read_agreed(kept.paths.table)) == 22


def test_a_sink_that_is_behind_gets_what_was_compacted_since(tmp_path: Path) -> None:
    kept = Kept(tmp_path, sinks=[{"type": "console"}], maintenance={"keep_versions": 0})
    begin_sink(kept.paths, "console", None, "before")
    for run in range(3):
        kept.publish(rows(run * 10))
    kept.maintain()
    assert len(kept.files) == 1 and len(kept.on_disk()) == 4
    state = read_table_state(kept.paths.table)
    assert state is not None
    fed = []
    for delivery in list_deliveries(kept.paths.table, -1, state.version):
        fed.append(sorted(row["id"] for file in delivery.files for row in read_rows(kept, file, state.schema_json)))
    assert fed == [
        [0, 1, 2, 3],
        [10, 11, 12, 13],
        [20, 21, 22, 23],
    ]  # once, and nothing of the compaction's own version


def read_rows(kept: Kept, file: DataFile, schema_json: str) -> Iterator[dict[str, Any]]:
    for batch in read_file(kept.paths.table, file, schema_json):
        yield from batch.to_pylist()


def test_nothing_kept_leaves_only_the_files_of_the_table(tmp_path: Path) -> None:
    kept = many(tmp_path, maintenance={"keep_versions": 0})
    kept.maintain()
    assert kept.on_disk() == [file.path for file in list_data_files(kept.paths.table)]
    assert len(read_agreed(kept.paths.table)) == 30


def test_a_second_one_beside_it_is_told_who_holds_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = many(tmp_path)

    def meanwhile(context: Any) -> list[DataFile]:
        with pytest.raises(TryAgainError, match=r"(?s)LEASE_HELD.*M1"):
            kept.maintain("M2")
        return []

    monkeypatch.setattr("tidegate.rework.maintain.command.compact_table", meanwhile)
    kept.maintain("M1")


def test_the_report_of_one_that_failed_says_why(tmp_path: Path) -> None:
    kept = many(tmp_path)
    (kept.paths.table / kept.files[0].path).unlink()
    with pytest.raises(TidegateError, match="TABLE_FILES_GONE"):
        kept.maintain()
    report = load_report(kept.paths, "M1")
    assert report is not None and report.outcome == "failed" and report.error is not None
    assert report.error["code"] == "TABLE_FILES_GONE"


def test_a_table_that_is_not_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert Kept(tmp_path).maintain()["notes"] == ["nothing to do"]


def test_arrow_types_have_no_schema_of_their_own_in_files(tmp_path: Path) -> None:
    target = tmp_path / "x.parquet"
    with rewrite.open_writer(target, pa.schema([("n", pa.int64())])) as writer:
        writer.write_table(pa.table({"n": [1]}))
    assert pq.read_metadata(target).metadata is None
    with rewrite.open_writer(target, pa.schema([("n", pa.int64())], {"org.apache.spark.version": "4.2.0"})) as writer:
        writer.write_table(pa.table({"n": [1]}))
    assert pq.read_metadata(target).metadata == {b"org.apache.spark.version": b"4.2.0"}, "what Spark wrote stays"
