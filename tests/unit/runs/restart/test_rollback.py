"""A table that goes back to an earlier version: its rows by three readers, whatever is stopped where."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.keyed import Keyed, roll_back
from tests.support.readers import Rows, canonical, read_agreed
from tests.support.staged import Stager
from tests.support.storage_calls import KilledHere, StorageCalls, kill, split_devices
from tidegate.core import storage
from tidegate.core.errors import SourceLostError, TryAgainError, UsageError
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.facts import Situation
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.report import load_report
from tidegate.runs.restart.recorded import load_rollback, record_rollback
from tidegate.runs.restart.versions import find_leave_out_hindrance, find_reread_hindrance, look_back
from tidegate.sinks.feed import begin_sink, last_fed, note_fed
from tidegate.state.lease import Lease
from tidegate.state.published import read_published
from tidegate.table.log.files import LOG_FOLDER, commit_name
from tidegate.table.log.state import read_commit_metadata, read_table_state
from tidegate.table.publish.delivery import list_deliveries


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def version_of(keyed: Keyed) -> int:
    state = read_table_state(keyed.paths.table)
    assert state is not None
    return state.version


def publish(keyed: Keyed, *rows: tuple[int, str, int]) -> tuple[int, Rows]:
    """One run; the version it made, and the rows of the table."""
    keyed.stage([{"id": one, "city": city, "n": n} for one, city, n in rows])
    assert keyed.run().outcome == "published"
    return version_of(keyed), read_agreed(keyed.paths.table)


def three_versions(root: Path, **more: Any) -> tuple[Keyed, list[tuple[int, Rows]]]:
    """A table with keys: a row replaced in each version, one partition that goes empty and one that comes."""
    keyed = Keyed(root, **{"partition_by": ["city"], **more})
    told = [
        publish(keyed, (1, "Oslo", 0), (2, "Köln/Deutz", 0), (3, "Oslo", 0)),
        publish(keyed, (1, "Oslo", 1), (2, "Rom", 1)),
        publish(keyed, (3, "Oslo", 2), (4, "Rom", 2)),
    ]
    return keyed, told


def same(one: Rows, two: Rows) -> bool:
    return canonical(one) == canonical(two)


@pytest.mark.parametrize("partition_by", [[], ["city"]])
@pytest.mark.parametrize("number", [0, 1])
def test_rows_of_a_version_come_back_with_keys_and_partitions(
    tmp_path: Path, number: int, partition_by: list[str]
) -> None:
    keyed, told = three_versions(tmp_path, partition_by=partition_by)
    version, rows = told[number]
    report = roll_back(keyed, version)
    assert report is not None and report.outcome == "published"
    assert same(read_agreed(keyed.paths.table), rows)
    table = report.table
    assert table["rows_added"] - table["rows_removed"] == len(rows) - len(told[2][1])
    assert (table["version"], table["rolled_back_to"]) == (version_of(keyed), version)
    assert table["left_out"]["records"] == 0 or table["left_out"]["batches"], "the batches are named"
    assert keyed.leftovers() == []
    assert load_rollback(keyed.paths) is None
    note = read_published(keyed.paths)
    assert note is not None and note.version == version_of(keyed)
    # What comes next replaces rows by their keys, as ever.
    assert publish(keyed, (1, "Oslo", 9))[1] != rows
    assert [row["n"] for row in read_agreed(keyed.paths.table) if row["id"] == 1] == [9]


def test_forward_again_and_back_again(tmp_path: Path) -> None:
    keyed, told = three_versions(tmp_path)
    for number, back_to in enumerate([0, 2, 1, 0, 1, 2]):
        roll_back(keyed, told[back_to][0], f"back {number}")
        assert same(read_agreed(keyed.paths.table), told[back_to][1])
    assert keyed.leftovers() == []


def test_in_append_mode_with_a_column_that_came_since(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, mode="append", keys=[])
    version, rows = publish(keyed, (1, "Oslo", 0))
    keyed.stager = Stager(keyed.paths, {**keyed.columns, "more": "long"}, [])
    keyed.stage([{"id": 2, "city": "Rom", "n": 1, "more": 5}])
    assert keyed.run().outcome == "published"
    roll_back(keyed, version)
    state = read_table_state(keyed.paths.table)
    assert state is not None and [one["name"] for one in json.loads(state.schema_json)["fields"]][-1] == "more"
    from deltalake import DeltaTable

    found = DeltaTable(str(keyed.paths.table)).to_pyarrow_table().to_pylist()
    assert found == [{**rows[0], "more": None}]


def test_killed_at_every_storage_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain readers never see a row twice, Delta readers see the version before or after; the next run completes it."""
    for at, after in ((n // 2, bool(n % 2)) for n in itertools.count(2)):
        keyed, told = three_versions(tmp_path / f"{at}-{after}")
        (version, rows), newest = told[0], told[2][1]
        with monkeypatch.context() as patch:
            calls = StorageCalls(patch, at, kill, after=after)
            try:
                roll_back(keyed, version)
                killed = False
            except KilledHere:
                killed = True
        from deltalake import DeltaTable

        by_log = DeltaTable(str(keyed.paths.table)).to_pyarrow_table().to_pylist()
        assert same(by_log, rows) or same(by_log, newest), calls.names
        plain = plain_rows(keyed)
        assert max(plain.values(), default=0) <= 1, f"a row is seen twice: {calls.names}"
        was_decided = keyed.paths.rollback.exists() or load_report(keyed.paths, "back") is not None
        keyed.run("next")
        assert same(read_agreed(keyed.paths.table), rows if was_decided else newest), calls.names
        assert keyed.leftovers() == [], calls.names
        report = roll_back(keyed, version)
        assert report is not None and report.outcome == "published"
        assert same(read_agreed(keyed.paths.table), rows)
        if not killed:
            break
    assert at > 20


def plain_rows(keyed: Keyed) -> dict[str, int]:
    from tests.support.readers import read_with_duckdb

    return dict(canonical([{"id": row["id"]} for row in read_with_duckdb(keyed.paths.table)]))


def test_frozen_at_every_storage_call_while_the_next_run_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that slept changes nothing once it wakes up: another has the lease, and one more increment is in."""
    slept = 0
    for at in itertools.count(1):
        keyed, told = three_versions(tmp_path / str(at))
        lost: list[Rows] = []

        def sleep(name: str, keyed: Keyed = keyed, lost: list[Rows] = lost) -> None:
            if keyed.paths.rollback.exists():
                monkeypatch.undo()
                monkeypatch.setattr(os, "fsync", lambda handle: None)
                lost.append(publish(keyed, (7, "Rom", 7))[1])

        with monkeypatch.context() as patch:
            calls = StorageCalls(patch, at, sleep)
            try:
                roll_back(keyed, told[0][0], holds=lambda lost=lost: not lost)  # type: ignore[misc]
            except (TryAgainError, FileNotFoundError):
                assert lost
        if lost:
            slept += 1
            assert same(read_agreed(keyed.paths.table), lost[0]), calls.names
            assert same(lost[0], [*told[0][1], {"id": 7, "city": "Rom", "n": 7}])
            keyed.run("after")
            assert same(read_agreed(keyed.paths.table), lost[0])
            assert keyed.leftovers() == []
        if calls.count < at:
            break
    assert slept > 10


def test_across_devices_the_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed, told = three_versions(tmp_path)
    real = os.link

    def link(source: Any, target: Any, **more: Any) -> None:
        if Path(target).is_relative_to(keyed.paths.state) and not Path(source).is_relative_to(keyed.paths.state):
            raise OSError(18, "Invalid cross-device link")
        real(source, target, **more)

    split_devices(monkeypatch, keyed.paths.state)
    monkeypatch.setattr(os, "link", link)
    roll_back(keyed, told[0][0])
    assert same(read_agreed(keyed.paths.table), told[0][1])
    assert keyed.leftovers() == []


def test_a_vacuumed_version_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    keyed, told = three_versions(tmp_path)
    log = keyed.paths.table / LOG_FOLDER
    for version in range(told[1][0] + 1):  # the first replacement was eight days ago
        path = log / commit_name(version)
        actions = [json.loads(line) for line in path.read_bytes().split(b"\n")]
        for action in actions:
            for name, key in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
                if name in action:
                    action[name][key] -= 8 * 86_400_000
        path.write_text("\n".join(json.dumps(action) for action in actions))
    publish(keyed, (9, "Rom", 9))
    with pytest.raises(SourceLostError, match=rf"the nearest version that is available is {told[1][0]}\n") as refused:
        look_back(keyed.paths, gather_facts(keyed.paths, keyed.spec), told[0][0])
    assert refused.value.code == "VERSION_VACUUMED" and refused.value.exit_code == 66
    roll_back(keyed, told[1][0])
    assert same(read_agreed(keyed.paths.table), told[1][1])


def test_a_version_that_the_log_no_longer_goes_back_to(tmp_path: Path) -> None:
    keyed, told = three_versions(tmp_path)
    from tidegate.table.log.compaction import compact_log

    compact_log(keyed.paths.table, lambda: None)
    (keyed.paths.table / LOG_FOLDER / commit_name(0)).unlink()
    with pytest.raises(SourceLostError, match="the table's log does not go back to it"):
        look_back(keyed.paths, gather_facts(keyed.paths, keyed.spec), told[0][0])


def test_one_that_is_vacuumed_after_it_was_decided_is_dropped_and_said(tmp_path: Path) -> None:
    keyed, told = three_versions(tmp_path)
    context = keyed.context("back")
    record_rollback(context, look_back(keyed.paths, recover_run(context), told[0][0]), "leave-out")
    for path in keyed.paths.table.rglob("*.replaced"):
        path.unlink()
    with pytest.raises(SourceLostError):
        recover_run(keyed.context("next"))
    assert load_rollback(keyed.paths) is None
    keyed.run("next")
    assert same(read_agreed(keyed.paths.table), told[2][1])


def test_one_that_was_written_down_late_is_dropped(tmp_path: Path) -> None:
    """By a process that slept while the table went on: it was decided on another table."""
    keyed, told = three_versions(tmp_path)
    context = keyed.context("back")
    record_rollback(context, look_back(keyed.paths, recover_run(context), told[0][0]), "leave-out")
    late = storage.read(keyed.paths.rollback)
    storage.remove(keyed.paths.rollback)
    _, rows = publish(keyed, (9, "Rom", 9))
    storage.replace(keyed.paths.rollback, late)
    keyed.run("next")
    assert same(read_agreed(keyed.paths.table), rows) and load_rollback(keyed.paths) is None


def test_a_sink_gets_what_was_published_and_what_the_rollback_replaces(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, sinks=[{"type": "console"}], keep_versions="0 seconds")
    begin_sink(keyed.paths, "console", None, "before")
    versions = [publish(keyed, (1, "Oslo", n))[0] for n in range(3)]
    state = read_table_state(keyed.paths.table)
    assert state is not None
    note_fed(keyed.paths, "console", state, versions[0], 0, "r")  # and is behind by two
    roll_back(keyed, versions[1])
    state = read_table_state(keyed.paths.table)
    assert state is not None and last_fed(keyed.paths, "console", state) == versions[0]
    owed = list(list_deliveries(keyed.paths.table, versions[0], state.version))
    assert [one.version for one in owed] == [*versions[1:], state.version]
    assert owed[-1].partitions == ({},) and [one.keys for one in owed] == [("id",), ("id",), ()]
    assert all((keyed.paths.table / file.path).exists() for one in owed for file in one.files)
    later, _ = publish(keyed, (1, "Oslo", 8))
    owed = list(list_deliveries(keyed.paths.table, versions[0], later))
    assert [one.version for one in owed] == [*versions[1:], state.version, later]
    assert all((keyed.paths.table / file.path).exists() for one in owed for file in one.files)


def test_what_the_commit_carries_names_the_batches_left_out(tmp_path: Path) -> None:
    keyed, told = three_versions(tmp_path, mode="append", keys=[])
    roll_back(keyed, told[0][0])
    info = read_commit_metadata(keyed.paths.table, version_of(keyed))
    left_out = json.loads(info["tidegate.left_out"])
    assert [batches[1:] for batches in left_out["batches"]] == [[1, 1], [2, 2]] and left_out["rows"] == 4


def test_a_query_with_state_has_seen_the_records(tmp_path: Path) -> None:
    keyed, told = three_versions(tmp_path)
    facts = gather_facts(keyed.paths, keyed.spec)
    look = look_back(keyed.paths, facts, told[0][0])
    project = keyed.context("x").project
    situation = Situation(project, keyed.spec, keyed.paths, facts)
    again = find_reread_hindrance(situation, look)
    assert isinstance(again, UsageError) and again.code == "STATE_NEEDED" and "counted twice" in again.message
    assert "tidegate reset orders --from-beginning --confirm orders" in str(again.fix)
    left_out = find_leave_out_hindrance(situation, look)
    assert left_out is not None and left_out.code == "STATE_NEEDED" and "same key" in left_out.message
    assert cast(Lease, keyed.context("x").lease).is_current()
