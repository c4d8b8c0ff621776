"""Files that newer versions replaced go once no reader can need them, by what the log says."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable

from tests.support.keyed import Keyed
from tests.support.readers import read_agreed
from tests.support.staged import QUERY
from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.sinks.feed import begin_sink, note_fed
from tidegate.sinks.rows import read_file
from tidegate.spec.models import PipelineSpec
from tidegate.state.manifest import write_manifest
from tidegate.table.log.commit import rename_files
from tidegate.table.log.files import LOG_FOLDER, commit_name
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.delivery import list_deliveries
from tidegate.table.publish.replace import bring_back, find_replaced, hidden_name

CONSOLE = {"type": "console"}


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def parquet(table: Path) -> list[str]:
    """Every file of rows in the table folder, hidden ones too."""
    return sorted(path.name for path in table.rglob("*") if ".parquet" in path.name)


def update(keyed: Keyed, n: int) -> None:
    """One run that replaces the row of key 1."""
    keyed.stage([{"id": 1, "city": "Oslo", "n": n}])
    assert keyed.run().outcome == "published"


def read_rows(keyed: Keyed, file: DataFile) -> list[dict[str, Any]]:
    """What a sink gets of a file."""
    state = read_table_state(keyed.paths.table)
    assert state is not None
    return [row for batch in read_file(keyed.paths.table, file, state.schema_json) for row in batch.to_pylist()]


def test_ten_updates_of_one_key_leave_one_file_when_nothing_is_kept(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, keep_versions="0 seconds")
    for n in range(10):
        update(keyed, n)
    assert parquet(keyed.paths.table) == [file.path for file in list_data_files(keyed.paths.table)]
    assert len(parquet(keyed.paths.table)) == 1
    assert [row["n"] for row in read_agreed(keyed.paths.table)] == [9]


def test_older_versions_can_be_read_as_long_as_the_spec_says(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    published = []
    for n in range(4):
        update(keyed, n)
        published.append(DeltaTable(str(keyed.paths.table)).version())
    for n, version in enumerate(published[1:]):  # what the table held before: the version below names the hidden files
        older = DeltaTable(str(keyed.paths.table), version=version - 1)
        assert older.to_pyarrow_table()["n"].to_pylist() == [n]
    log = keyed.paths.table / LOG_FOLDER
    for version in range(published[1] + 1):  # the first replacement was eight days ago
        _age(log / commit_name(version), days=8)
    update(keyed, 4)
    assert len(parquet(keyed.paths.table)) == 4
    older = DeltaTable(str(keyed.paths.table), version=published[2] - 1)
    assert older.to_pyarrow_table()["n"].to_pylist() == [1]
    with pytest.raises(Exception, match=r"not found|No such file"):
        DeltaTable(str(keyed.paths.table), version=published[1] - 1).to_pyarrow_table()


def _age(path: Path, days: float) -> None:
    """Make a commit older."""
    actions = [json.loads(line) for line in path.read_bytes().split(b"\n")]
    for action in actions:
        for name, key in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
            if name in action:
                action[name][key] -= int(days * 86_400_000)
    path.write_text("\n".join(json.dumps(action) for action in actions))


def test_a_sink_that_is_behind_still_finds_the_files_of_its_versions(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, keep_versions="0 seconds", sinks=[CONSOLE])
    begin_sink(keyed.paths, "console", None, "before")
    for n in range(3):
        update(keyed, n)
    state = read_table_state(keyed.paths.table)
    assert state is not None
    for delivery in list_deliveries(keyed.paths.table, -1, state.version):
        rows = [row for file in delivery.files for row in read_rows(keyed, file)]
        assert rows == [{"id": 1, "city": "Oslo", "n": [0, 2, 4].index(delivery.version)}]
    note_fed(keyed.paths, "console", state, state.version, 0, "r")
    update(keyed, 3)  # takes what the sink had
    assert (
        len(parquet(keyed.paths.table)) == 2
    )  # and not what version 4 replaced: the sink is behind by versions 5 and 6
    note_fed(keyed.paths, "console", state, state.version + 2, 0, "r")
    update(keyed, 4)
    assert len(parquet(keyed.paths.table)) == 2


def test_an_answer_that_the_disk_did_not_give_is_no_version_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(tmp_path, keys=[], mode="complete")
    for n in range(2):
        update(keyed, n)
    for failure, expected in ((OSError(errno.EIO, "broken"), OSError), (FileNotFoundError("gone"), DisagreementError)):
        failing = Mock(side_effect=failure)
        monkeypatch.setattr("tidegate.table.publish.delivery.read_log_at", failing)
        with pytest.raises(expected):
            list(list_deliveries(keyed.paths.table, 0, 2))
        assert failing.called


def test_files_that_are_hidden_without_the_logs_word_stay(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, keep_versions="0 seconds")
    update(keyed, 0)
    strange = keyed.paths.table / ".part-00000000-00000000-a-00000.parquet.replaced"
    strange.write_bytes(b"not ours")
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"elsewhere")
    update(keyed, 1)
    assert strange.exists()
    log = keyed.paths.table / LOG_FOLDER
    path = log / commit_name(2)
    removes = [{"remove": {"path": name, "deletionTimestamp": 1}} for name in ("../../outside.parquet", str(outside))]
    path.write_text(path.read_text() + "\n" + "\n".join(map(json.dumps, removes)))
    assert find_replaced(keyed.paths.table, after=-1, up_to=2, before_ms=2**60, needed=()) == (2, [])
    assert outside.exists()


def test_files_in_use_and_files_of_a_begun_publish_stay(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    update(keyed, 0)
    update(keyed, 1)
    (kept,) = [name for name in parquet(keyed.paths.table) if name.startswith(".")]
    assert find_replaced(keyed.paths.table, after=-1, up_to=2, before_ms=2**60, needed={kept}) == (1, [])
    assert len(parquet(keyed.paths.table)) == 2
    found = keyed.paths.table / kept  # looked at again once nothing needs it
    assert find_replaced(keyed.paths.table, after=1, up_to=2, before_ms=2**60, needed=()) == (2, [found])


DAY = 86_400_000


@pytest.mark.parametrize("days", [30, -30], ids=["behind", "ahead"])
def test_a_version_that_a_wrong_clock_made_is_as_old_as_the_next_one(tmp_path: Path, days: float) -> None:
    keyed = Keyed(tmp_path)
    for n in range(4):
        update(keyed, n)
    log = keyed.paths.table / LOG_FOLDER
    names = [commit_name(version) for version in range(7)]
    made = [json.loads((log / name).read_bytes().split(b"\n")[0])["commitInfo"]["timestamp"] for name in names]
    for name in names[3:5]:
        _age(log / name, days)
    week_ago = made[0] - 7 * DAY
    assert find_replaced(keyed.paths.table, after=-1, up_to=6, before_ms=week_ago, needed=()) == (-1, [])
    done, found = find_replaced(keyed.paths.table, after=-1, up_to=4, before_ms=made[4], needed=())
    assert (done, len(found)) == (2, 1)  # nothing says how old the next ones are
    done, found = find_replaced(keyed.paths.table, after=-1, up_to=6, before_ms=made[6], needed=())
    assert (done, len(found)) == (6, 3)


def test_a_kill_at_any_removal_leaves_the_rest_to_the_next_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(tmp_path)
    for n in range(4):
        update(keyed, n)
    keyed.keep_versions = "0 seconds"
    remove, left = storage.remove, [2]

    def die(path: Path) -> None:
        if path.name.endswith(".replaced"):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        remove(path)

    keyed.stage([{"id": 1, "city": "Oslo", "n": 4}])
    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", die)
        with pytest.raises(KeyboardInterrupt):
            keyed.run()
    assert [row["n"] for row in read_agreed(keyed.paths.table)] == [4]
    update(keyed, 5)
    assert len(parquet(keyed.paths.table)) == 1
    assert [row["n"] for row in read_agreed(keyed.paths.table)] == [5]


def test_a_table_that_was_replaced_is_looked_through_from_its_beginning(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, keep_versions="0 seconds")
    for n in range(3):
        update(keyed, n)
    note = keyed.paths.removed("table")
    value = storage.read_json(note)
    state = read_table_state(keyed.paths.table, (QUERY,))
    assert state is not None and value is not None
    assert value["table_id"] == state.table_id
    storage.replace(note, storage.dump_json({"table_id": "another", "version": 10_000}))
    update(keyed, 3)
    assert len(parquet(keyed.paths.table)) == 1


def test_how_long_files_stay_is_seven_days_unless_the_spec_says_otherwise() -> None:
    spec = {"version": 1, "name": "orders", "sources": {"s": {"type": "rate"}}}
    assert PipelineSpec.read(spec).maintenance.keep_versions == 7 * 86_400
    keep = {"maintenance": {"keep_versions": "0 seconds"}}
    assert PipelineSpec.read({**spec, **keep}).maintenance.keep_versions == 0


def test_a_file_that_was_brought_back_stays(tmp_path: Path) -> None:
    """A repair undoes a replacement that was begun: the log has removed the name once, and has it again."""
    keyed = Keyed(tmp_path)
    update(keyed, 0)
    (file,) = list_data_files(keyed.paths.table)
    hidden = hidden_name(file.path)
    os.link(keyed.paths.table / file.path, keyed.paths.table / hidden)
    rename_files(keyed.paths.table, [(file, hidden)], app_id=QUERY, app_version=1)
    bring_back(keyed.paths.table, app_id="repair", check_lease=lambda: None)
    (delivery,) = list_deliveries(keyed.paths.table, -1, 2)
    assert [len(read_rows(keyed, one)) for one in delivery.files] == [1]  # what a sink has not received yet can be read
    done, found = find_replaced(keyed.paths.table, after=-1, up_to=2, before_ms=2**60, needed=())
    assert (done, found) == (2, [keyed.paths.table / hidden])
    found[0].unlink()
    assert len(parquet(keyed.paths.table)) == len(read_agreed(keyed.paths.table)) == 1


def test_numbers_of_versions_that_are_given_again_are_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(tmp_path, keep_versions="0 seconds")
    for n in range(3):
        update(keyed, n)
    shutil.copytree(keyed.paths.table, tmp_path / "older")
    for n in range(3, 8):
        update(keyed, n)
    shutil.rmtree(keyed.paths.table)
    shutil.move(tmp_path / "older", keyed.paths.table)
    # As repair leaves it, but for its birth record: how the state agrees with the table is not looked at here.
    storage.remove_tree(keyed.paths.published)
    storage.remove(keyed.paths.birth)
    monkeypatch.setattr("tidegate.runs.gate_steps.check_agreement", lambda *_: None)
    keyed.stager.query_id = "2f0c7a52-9a1e-4a55-8f5e-000000000002"
    for batch in range(3):
        manifest = keyed.stager.stage(batch, [{"id": 1, "city": "Rome", "n": batch}])
        write_manifest(keyed.paths.manifest(manifest.query_id, batch), manifest)
        assert keyed.run(f"again {batch}").outcome == "published"
    assert len(parquet(keyed.paths.table)) == 1


def test_a_file_to_rename_that_the_log_has_under_neither_name(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    update(keyed, 0)
    (file,) = list_data_files(keyed.paths.table)
    foreign = replace(file, path="of-another-table.parquet")
    with pytest.raises(DisagreementError, match=r"REPLACED_FILES_GONE: 1 files .* for example of-another-table"):
        rename_files(keyed.paths.table, [(foreign, hidden_name(foreign.path))], app_id=QUERY, app_version=1)
