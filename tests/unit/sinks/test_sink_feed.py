"""Feeding a sink from the table's log: in order, at least once, never past a version; killed anywhere and overtaken."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.sink_bench import SINK, WRITER, Bench
from tests.support.staged import Stager, make_schema
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core.errors import DisagreementError, TryAgainError, UsageError
from tidegate.sinks.feed import SinkFault, begin_sink, feed_sink, last_fed, list_pending_versions
from tidegate.sinks.rows import ConsoleFeeder
from tidegate.sinks.user_code import describe_effects
from tidegate.spec.models import ConsoleSink, ForeachSink, KafkaSink, PipelineSpec
from tidegate.state.lease import acquire
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import list_data_files
from tidegate.table.publish.delivery import Delivery, delivered_rows
from tidegate.table.schema import fields_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_version_in_order_and_each_once(bench: Bench) -> None:
    bench.feed()  # before there is a table: the sink gets the first version too
    bench.publish()
    bench.feed()
    bench.publish()
    bench.publish(outcome="discarded")
    bench.publish()
    bench.feed()
    bench.feed()
    bench.check()
    assert bench.repeated() == set()
    table = bench.table()
    assert table is not None and last_fed(bench.paths, SINK.name, table) == 3


def test_a_sink_added_later_starts_with_the_next_version(bench: Bench) -> None:
    bench.publish()
    bench.feed()
    assert bench.fed() == []
    bench.offered.clear()
    bench.publish()
    bench.feed()
    bench.check()


def test_a_writer_that_fails_halfway_gets_the_whole_version_again(bench: Bench) -> None:
    bench.begin()
    bench.publish()
    bench.publish()
    (bench.paths.job / "fail").write_text("1")
    with pytest.raises(SinkFault) as failed:
        bench.feed()
    assert failed.value.message == "version 0: ValueError: no more than 1"
    assert failed.value.where == f"{bench.paths.job}/sinks.py:14"
    assert (bench.paths.job / "closed").read_text() == "ValueError('no more than 1')"
    table = bench.table()
    assert table is not None and [one.version for one in list_pending_versions(bench.paths, SINK, table)] == [0, 1]
    (bench.paths.job / "fail").unlink()
    bench.feed()
    bench.check()
    assert bench.repeated() == {0}


def test_open_may_leave_rows_out_but_must_say_so(bench: Bench) -> None:
    bench.begin()
    bench.publish()
    path = bench.paths.job / "sinks.py"
    path.write_text(WRITER.replace("        return True\n", ""))
    with pytest.raises(SinkFault, match="open\\(\\) returned None"):
        bench.feed()
    path.write_text(WRITER.replace("return True", "return False"))
    bench.feed()
    assert bench.fed() == [] and (bench.paths.job / "closed").read_text() == "None"


def test_code_that_ends_the_process_does_not(bench: Bench) -> None:
    bench.begin()
    bench.publish()
    (bench.paths.job / "sinks.py").write_text("import sys\n\nsys.exit(3)\n")
    with pytest.raises(SinkFault, match="SystemExit: 3") as failed:
        bench.feed()
    assert failed.value.where == f"{bench.paths.job}/sinks.py:3"


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
def test_killed_at_each_storage_call_repeats_the_last_version_at_most(tmp_path: Path, after: bool) -> None:
    for at in range(1, 1000):
        bench = Bench(tmp_path / str(at))
        bench.begin()
        for _ in range(3):
            bench.publish(2)
        with pytest.MonkeyPatch.context() as patch:
            calls = StorageCalls(patch, at, kill, after=after)
            try:
                bench.feed()
                ended = True
            except KilledHere:
                ended = False
        for _ in range(3):
            bench.feed()
        bench.check()
        assert len(bench.repeated()) <= 1, f"killed at call {at}: {calls.names[at - 1]}"
        if ended:
            assert bench.repeated() == set() and at == 10
            return
    raise AssertionError("the sweep ended before the feeding did")


@pytest.mark.parametrize("times", [3])
def test_killed_again_and_again(bench: Bench, times: int) -> None:
    """Each try dies at its first rename: versions come more than once, none is passed over."""
    bench.begin()
    for _ in range(3):
        bench.publish(2)
    for _ in range(times):
        with pytest.MonkeyPatch.context() as patch:
            StorageCalls(patch, 1, kill)
            with pytest.raises(KilledHere):
                bench.feed()
    bench.feed()
    assert {key: version for key, version, _ in bench.fed()} == bench.offered


def test_a_run_that_lost_its_lease_feeds_no_further_version(bench: Bench) -> None:
    bench.begin()
    for _ in range(3):
        bench.publish()
    first = acquire(bench.paths, run_id="first", command="run", expires_after_seconds=60)
    fed: list[int] = []

    class Slow:
        """Is overtaken while it feeds the second version."""

        def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
            fed.append(delivery.version)
            if delivery.version == 1:
                first.park(0.0)
                acquire(bench.paths, run_id="second", command="run", expires_after_seconds=60)
                bench.feed()

        def close(self) -> None: ...

    with pytest.raises(TryAgainError) as lost:
        bench.feed(first.check, Slow)
    assert lost.value.code == "LEASE_LOST"
    assert fed == [0, 1]
    table = bench.table()
    assert table is not None and last_fed(bench.paths, SINK.name, table) == 2
    assert {version for _, version, _ in bench.fed()} == {1, 2}


def test_a_writer_that_is_overtaken_in_a_version_gets_no_further_file(bench: Bench) -> None:
    bench.begin()
    bench.publish()
    asked = iter(range(1, 100))

    def check() -> None:
        if next(asked) == 3:  # the version, its first file, its second
            raise TryAgainError("LEASE_LOST", "overtaken")

    with pytest.raises(TryAgainError):
        bench.feed(check)
    assert [key for key, _, _ in bench.fed()] == [0, 2]
    bench.feed()
    assert {key for key, _, _ in bench.fed()} == set(bench.offered)


def test_a_late_note_of_a_frozen_process_sets_nothing_back(bench: Bench) -> None:
    from tidegate.sinks.feed import note_fed

    bench.begin()
    for _ in range(3):
        bench.publish()
    bench.feed()
    table = bench.table()
    assert table is not None
    note_fed(bench.paths, SINK.name, table, 0, 0, "zombie")
    assert last_fed(bench.paths, SINK.name, table) == 2


def test_a_table_in_place_of_another_comes_whole_under_higher_numbers(tmp_path: Path) -> None:
    bench, other = Bench(tmp_path / "a"), Bench(tmp_path / "b")
    bench.begin()
    bench.publish()
    bench.publish()
    bench.feed()
    other.publish()
    bench.paths.table.rename(tmp_path / "away")
    other.paths.table.rename(bench.paths.table)
    bench.feed()
    table = bench.table()
    assert table is not None and last_fed(bench.paths, SINK.name, table) == table.version
    shutil.rmtree(bench.paths.table)
    (tmp_path / "away").rename(bench.paths.table)  # and back
    bench.feed()
    bench.feed()
    rows = Counter(version for _, version, _ in bench.fed())
    assert list(rows.values()) == [4, 4, 4, 8] and list(rows) == sorted(rows) and len(rows) == 4
    assert {run_id for _, _, run_id in bench.fed()} == {"run-0", "run-1"}


def test_a_table_that_is_built_again_goes_on_with_higher_numbers(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.begin()
    bench.publish()
    bench.publish()
    bench.feed()
    bench.paths.table.rename(tmp_path / "away")
    bench.feed()  # the run that finds no table
    bench.batches = 0
    bench.stager = Stager(bench.paths, {"id": "long", "day": "date"}, ["day"])
    bench.publish()
    bench.feed()
    assert [version for _, version, _ in bench.fed()] == [0] * 4 + [1] * 4 + [3] * 4
    bench.publish()
    bench.feed()
    assert bench.fed()[-1][1] == 4


def test_a_version_that_the_log_no_longer_tells_of(bench: Bench) -> None:
    bench.begin()
    bench.publish()
    bench.publish()
    gone = bench.paths.table / "_delta_log" / f"{0:020d}.json"
    table = bench.table()
    assert table is not None
    text = gone.read_text()
    gone.unlink()
    with pytest.raises(SinkFault) as failed:
        list_pending_versions(bench.paths, SINK, table)
    assert "lacks version 0" in failed.value.message and failed.value.where == str(gone)
    gone.write_text(text)
    delivery = delivered_rows(bench.paths.table, 0)
    assert delivery is not None
    file = bench.paths.table / delivery.files[0].path
    aside = file.rename(file.with_suffix(".aside"))
    with pytest.raises(SinkFault, match=r"version 0: its file .* is no longer in the table"):
        bench.feed()
    aside.rename(file)
    bench.feed()
    assert {key for key, _, _ in bench.fed()} == set(bench.offered)


def test_only_files_with_new_rows_are_delivered_where_the_commit_names_them(bench: Bench) -> None:
    bench.publish()
    path = bench.paths.table / "_delta_log" / f"{0:020d}.json"
    whole = delivered_rows(bench.paths.table, 0)
    assert whole is not None and whole.rows == 4 and whole.run_id == "run-0" and len(whole.files) == 2
    mark = {"tidegate.delivered_files": json.dumps([whole.files[1].path])}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    marked = [{"commitInfo": one["commitInfo"] | mark} if "commitInfo" in one else one for one in lines]
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in marked))
    part = delivered_rows(bench.paths.table, 0)
    assert part is not None and part.files == whole.files[1:]


def test_the_console_gets_twenty_rows_on_stderr(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ConsoleSink(type="console")
    begin_sink(bench.paths, sink.name, None, "begin")
    bench.publish(30)
    table = bench.table()
    assert table is not None
    make = partial(ConsoleFeeder, bench.paths, table.schema_json)
    feed_sink(bench.paths, sink, table, make, run_id="r", check_lease=lambda: None)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "orders, version 0, run run-0"
    assert lines[1:5] == ["+---+----------+", "| id|       day|", "+---+----------+", "|  0|2026-01-01|"]
    assert len([line for line in lines if "2026-" in line]) == 20 and lines[-1] == "only showing 20 of 30 rows"


def test_what_user_code_prints_is_not_the_result(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.begin()
    bench.publish(1)
    path = bench.paths.job / "sinks.py"
    path.write_text(WRITER.replace("self.done = 0", "self.done = 0; print('opened')"))
    bench.feed()
    said = capsys.readouterr()
    assert said.out == "" and "opened" in said.err


def test_rows_from_before_a_column_was_added_have_it_empty(bench: Bench) -> None:
    bench.begin()
    bench.publish(2)
    bench.stager = Stager(bench.paths, {"id": "long", "day": "date", "note": "string"}, ["day"])
    bench.publish(2, note="x")
    writer = WRITER.replace("row.id,", "row.id if row.note == ('x' if row.id >= 100 else None) else -1,")
    (bench.paths.job / "sinks.py").write_text(writer)
    bench.feed()
    bench.check()


def test_a_table_restored_from_an_older_copy_comes_whole(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.publish()
    shutil.copytree(bench.paths.table, tmp_path / "copy")
    bench.publish()
    bench.publish()
    bench.feed()
    shutil.rmtree(bench.paths.table)
    (tmp_path / "copy").rename(bench.paths.table)
    bench.feed()  # the run that finds it, before it publishes anything
    bench.batches = 1
    bench.publish()
    bench.feed()
    assert [version for _, version, _ in bench.fed()] == [0] * 4 + [1] * 4 + [2] * 4 + [4] * 4 + [5] * 4


def test_a_sink_that_is_behind_another_gets_the_numbers_that_its_versions_had(bench: Bench, tmp_path: Path) -> None:
    """Also when it fails: what it has had is said by the number that it saw."""
    bench.begin()
    bench.publish()
    bench.feed()
    bench.publish()
    shutil.copytree(bench.paths.table, tmp_path / "copy")
    bench.publish()
    table = bench.table()
    assert table is not None
    begin_sink(bench.paths, "ahead", table, "r")  # has had all of it
    shutil.rmtree(bench.paths.table)
    (tmp_path / "copy").rename(bench.paths.table)
    (bench.paths.job / "fail").write_text("1")
    for _ in range(2):
        with pytest.raises(SinkFault, match="version 1: ValueError"):
            bench.feed()
    assert bench.had() == 0
    (bench.paths.job / "fail").unlink()
    bench.feed()
    assert bench.had() == 2 + 3  # what the raise itself changed is nothing
    (bench.paths.job / "fail").write_text("1")
    bench.batches = 2
    bench.publish()
    with pytest.raises(SinkFault, match="version 6: ValueError"):
        bench.feed()
    assert bench.had() == 5
    (bench.paths.job / "fail").unlink()
    bench.feed()
    assert list(dict.fromkeys(version for _, version, _ in bench.fed())) == [0, 1, 6] and bench.had() == 6


def test_a_sink_that_fails_at_the_whole_table_has_had_what_it_had(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.publish()
    bench.publish()
    bench.feed()
    bench.paths.table.rename(tmp_path / "away")
    bench.batches = 0
    bench.publish()
    (bench.paths.job / "fail").write_text("1")
    with pytest.raises(SinkFault, match="version 3: ValueError"):
        bench.feed()
    assert bench.had() == 1
    (bench.paths.job / "fail").unlink()
    bench.feed()
    assert bench.had() == 3 and bench.fed()[-1] == (3, 3, "run-0")


def test_a_whole_table_of_which_no_commit_names_a_run_comes_without_one(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.publish()
    bench.publish()
    bench.feed()
    bench.paths.table.rename(tmp_path / "away")
    bench.batches = 0
    bench.publish()
    DeltaTable(str(bench.paths.table)).create_checkpoint()
    (bench.paths.table / "_delta_log" / f"{0:020d}.json").unlink()
    table = bench.table()
    assert table is not None
    (owed,) = list_pending_versions(bench.paths, SINK, table)
    assert (owed.run_id, owed.rows) == ("", 4)


def test_a_missing_commit_is_named_by_both_numbers(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench.publish()
    bench.publish()
    bench.feed()
    bench.paths.table.rename(tmp_path / "away")
    bench.batches = 0
    bench.publish()
    bench.feed()
    bench.publish()
    bench.publish()
    table = bench.table()
    (bench.paths.table / "_delta_log" / f"{2:020d}.json").unlink()
    assert table is not None
    with pytest.raises(SinkFault, match=r"up to version 3 \(version 1 of the table\), and .* version 2"):
        list_pending_versions(bench.paths, SINK, table)


def test_numbers_are_raised_once_for_a_sink_that_is_away(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    for _ in range(2):
        bench.publish()
    bench.feed()
    bench.paths.table.rename(tmp_path / "away")
    bench.batches = 0
    bench.publish()
    (bench.paths.job / "fail").write_text("1")
    versions = []
    for _ in range(3):
        with pytest.raises(SinkFault):
            bench.feed()
        table = bench.table()
        assert table is not None and table.offset == 2
        versions.append(table.version)
    assert len(set(versions)) == 1
    (bench.paths.job / "fail").unlink()
    bench.feed()
    assert bench.fed()[-1][1] == 3


def test_each_sink_is_told_of_by_a_dry_run(bench: Bench) -> None:
    sinks = [SINK, ForeachSink(type="foreach", writer="told.py:Writer"), KafkaSink(type="kafka", topic="t")]
    code = "class Writer:\n    def begin_version(self, version, replaces): ...\n    def process(self, row): ...\n"
    (bench.paths.job / "told.py").write_text(code)
    source = {"type": "files", "path": "in", "format": "json", "schema": "id BIGINT"}
    spec = PipelineSpec.read({"version": 1, "name": "orders", "sources": {"s": source}, "sinks": sinks})
    for sink in sinks[:2]:
        begin_sink(bench.paths, sink.name, None, "begin")
    bench.publish()
    bench.feed()
    untold, told, unknown = describe_effects(bench.paths, spec, bench.table(), "whole table")
    assert "above 0" in untold and "does not take `replaces`" in untold and SINK.name in untold
    assert "replaces all that it has" in told and "does not take" not in told
    assert "was not fed yet" in unknown


def test_a_version_that_replaces_all_columns_is_the_first_one_that_a_sink_gets(bench: Bench) -> None:
    bench.begin()
    bench.publish()
    bench.publish()
    table = bench.table()
    assert table is not None
    old = list_data_files(bench.paths.table)
    moved = [replace(file, path=f"new-{number}.parquet") for number, file in enumerate(old)]
    for file, new in zip(old, moved, strict=True):
        shutil.copy(bench.paths.table / file.path, bench.paths.table / new.path)
    metadata = {"tidegate.outcome": "published", "tidegate.run_id": "fresh"}
    schema = make_schema(id="string", day="date")
    commit = Commit("refresh", 0, add=moved, schema_json=schema, partition_by=["day"], custom_metadata=metadata)
    with pytest.raises(UsageError, match="SCHEMA_CHANGE"):
        commit_files(bench.paths.table, replace(commit, remove=old))
    with pytest.raises(DisagreementError, match="COLUMNS_IN_USE"):  # a file with the old columns would stay
        commit_files(bench.paths.table, replace(commit, remove=old[1:], replaces_schema=True))
    commit_files(bench.paths.table, replace(commit, remove=old, replaces_schema=True))
    table = bench.table()
    assert table is not None and fields_of(table.schema_json) == fields_of(schema)
    (only,) = list_pending_versions(bench.paths, SINK, table)
    assert (only.version, only.partitions, only.rows) == (2, ({},), sum(file.rows for file in old))
