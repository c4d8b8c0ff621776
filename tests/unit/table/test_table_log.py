"""Reading the log: what is there, what is torn, what a checkpoint of the log keeps."""

from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.staged import QUERY, make_schema
from tidegate.core.errors import DisagreementError, TryAgainError, UsageError
from tidegate.table.log.commit import AlreadyCommittedError, Commit, commit_files, rename_files
from tidegate.table.log.files import torn_versions
from tidegate.table.log.snapshot import read_snapshot, remember_snapshots
from tidegate.table.log.state import (
    DataFile,
    find_commit,
    has_log,
    list_data_files,
    read_commit_metadata,
    read_log,
    read_table_state,
)
from tidegate.table.publish.delivery import list_deliveries

SCHEMA = make_schema(id="long")


def commit(table: Path, batch_id: int, before: int, app_id: str = QUERY, schema: str = SCHEMA) -> int:
    return commit_files(
        table,
        Commit(
            schema_json=schema,
            app_id=app_id,
            app_version=batch_id,
            app_version_before=before,
            custom_metadata={"tidegate.run_id": f"run-{batch_id}"},
        ),
    )


def test_no_folder_no_log_or_an_empty_log_is_no_table(tmp_path: Path) -> None:
    assert read_table_state(tmp_path / "none") is None
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json#1").write_text("{")  # a commit that was killed before its link
    assert not has_log(tmp_path / "t")
    assert read_table_state(tmp_path / "t") is None
    assert list_data_files(tmp_path / "none") == list_data_files(tmp_path / "t") == []
    assert commit(tmp_path / "t", 0, -1) == 0
    assert list_data_files(tmp_path / "t") == []


def test_each_query_has_its_own_last_batch(tmp_path: Path) -> None:
    commit(tmp_path / "t", 4, -1)
    commit(tmp_path / "t", 0, -1, app_id="second")
    state = read_table_state(tmp_path / "t", (QUERY, "second", "third"))
    assert state is not None
    assert state.txns == {QUERY: 4, "second": 0}
    assert state.metadata == {"tidegate.run_id": "run-0"}
    assert find_commit(tmp_path / "t", QUERY, 4) == 0
    assert find_commit(tmp_path / "t", QUERY, 3) is None


def test_two_tables_at_one_place_have_two_ids(tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b"):
        commit(tmp_path / name, 0, -1)
        state = read_table_state(tmp_path / name)
        assert state is not None
        ids.add(state.table_id)
    assert len(ids) == 2


def test_a_commit_that_was_planned_on_another_state_is_refused(tmp_path: Path) -> None:
    commit(tmp_path / "t", 0, -1)
    for batch_id, before in ((0, -1), (3, 1), (5, -1)):
        with pytest.raises(AlreadyCommittedError):
            commit(tmp_path / "t", batch_id, before)
    state = read_table_state(tmp_path / "t", (QUERY,))
    assert state is not None
    assert (state.version, state.txns) == (0, {QUERY: 0})


@pytest.mark.parametrize("content", ['{"add', '{"commitInfo":{}}\n{"txn":{"appId":"x"'], ids=["torn", "half"])
def test_a_torn_log_is_a_disagreement_that_names_the_file(tmp_path: Path, content: str) -> None:
    commit(tmp_path / "t", 0, -1)
    commit(tmp_path / "t", 1, 0)
    torn = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    torn.write_text(content)
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE") as caught:
        read_table_state(tmp_path / "t", (QUERY,))
    assert torn.name in caught.value.message
    assert "\n" not in caught.value.message


def test_a_commit_emptied_by_a_power_cut_is_made_again(tmp_path: Path) -> None:
    commit(tmp_path / "t", 0, -1)
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")  # linked, its bytes never reached the disk
    state = read_table_state(tmp_path / "t", (QUERY,))
    assert state is not None
    assert state.txns == {QUERY: 0}
    assert commit(tmp_path / "t", 1, 0) == 2


def test_a_missing_commit_in_the_middle_is_a_disagreement(tmp_path: Path) -> None:
    for batch_id in range(3):
        commit(tmp_path / "t", batch_id, batch_id - 1)
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE"):
        read_table_state(tmp_path / "t", (QUERY,))


def test_a_checkpoint_of_the_log_keeps_the_batches_and_the_id(tmp_path: Path) -> None:
    commit(tmp_path / "t", 0, -1)
    before = read_table_state(tmp_path / "t", (QUERY,))
    for batch_id in range(1, 4):
        commit(tmp_path / "t", batch_id, batch_id - 1)
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    after = read_table_state(tmp_path / "t", (QUERY,))
    assert before is not None
    assert after is not None
    assert (after.version, after.txns, after.table_id) == (3, {QUERY: 3}, before.table_id)
    assert commit(tmp_path / "t", 4, 3) == 4


def test_a_commit_whose_follow_up_fails_counts_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path / "t", 0, -1)
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.core.storage.files.sync_folder", _fail(errno.EIO))
        with pytest.raises(TryAgainError, match="COMMIT_FAILED"):
            commit(tmp_path / "t", 1, 0)
    with pytest.raises(AlreadyCommittedError):
        commit(tmp_path / "t", 1, 0)


@pytest.mark.parametrize(("code", "name"), [(errno.ENOSPC, "DISK_FULL"), (errno.EACCES, "COMMIT_FAILED")])
def test_a_commit_that_cannot_be_written_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    commit(tmp_path / "t", 0, -1)
    monkeypatch.setattr(os, "link", _fail(code))
    with pytest.raises(TryAgainError, match=name):
        commit(tmp_path / "t", 1, 0)
    monkeypatch.undo()
    assert commit(tmp_path / "t", 1, 0) == 1


def _fail(code: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("name", ["a b", "a#b?c", "c:d", "[x]{y}*", "100%", "é"])
def test_a_table_can_be_kept_in_a_folder_with_an_odd_name(tmp_path: Path, name: str) -> None:
    commit(tmp_path / name / "t", 0, -1)
    commit(tmp_path / name / "t", 1, 0)
    state = read_table_state(tmp_path / name / "t", (QUERY,))
    assert state is not None
    assert state.txns == {QUERY: 1}


@pytest.mark.parametrize("name", ["a%20b", "back\\slash"])
def test_a_folder_whose_name_deltalake_misreads_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="TABLE_PATH"):
        read_table_state(tmp_path / name / "t")


def test_reading_a_state_stays_light(tmp_path: Path) -> None:
    commit(tmp_path / "t", 0, -1)
    code = (
        "import sys, json; from pathlib import Path;"
        "import tidegate.table.publish.publish, tidegate.table.quarantined;"
        "before = 'deltalake' in sys.modules;"
        "from tidegate.table.log.state import read_table_state; read_table_state(Path(sys.argv[1]), ('q',));"
        "print(json.dumps([before, [m for m in ('pyarrow', 'pandas', 'pyspark') if m in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, []]


BREAKS = "a\u2028b\x85c\u2029d\x0be"
"""What Python takes for line breaks; in strings of JSON they may stand as they are."""


def test_line_breaks_that_json_does_not_know_are_part_of_a_value(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(2):
        commit_files(
            table,
            Commit(
                schema_json=make_schema(id="long", k="string"),
                partition_by=["k"],
                add=[DataFile(f"part-{number}.parquet", 1, 400, {"k": BREAKS})],
                app_id=QUERY,
                app_version=number,
                app_version_before=number - 1,
                custom_metadata={"tidegate.outcome": "published", "tidegate.run_id": "r", "tidegate.reason": BREAKS},
            ),
        )
    assert "\u2028" in (table / "_delta_log" / f"{1:020d}.json").read_text()  # raw, as deltalake writes it too
    state = read_table_state(table, (QUERY,))
    assert state is not None
    assert (state.txns, state.metadata["tidegate.reason"]) == ({QUERY: 1}, BREAKS)
    assert find_commit(table, QUERY, 0) == 0
    assert read_commit_metadata(table, 1)["tidegate.reason"] == BREAKS
    owed = [file.partition for delivery in list_deliveries(table, -1, 1) for file in delivery.files]
    assert owed == [{"k": BREAKS}, {"k": BREAKS}]
    assert torn_versions(table) == {}
    (table / "_delta_log" / f"{1:020d}.json").write_text("{")
    assert [*torn_versions(table)] == [1]
    compact = read_snapshot(table, 0)
    assert [file.partition for file in compact.files()] == [{"k": BREAKS}]


@pytest.mark.parametrize("who", ["Zoë", "no Unicode: \udcff"])
def test_versions_made_in_one_block_are_known_as_their_files_have_them(tmp_path: Path, who: str) -> None:
    table, files = tmp_path / "t", [DataFile(f"day=1 2/{n}.parquet", n, 10 * n, {"day": "1 2"}, n) for n in range(4)]
    more: dict[str, Any] = {"schema_json": make_schema(id="long", day="string"), "partition_by": ["day"]}
    told = {"tidegate.who": who}
    thresholds = gc.get_threshold()
    with remember_snapshots():
        for number, file in enumerate(files):
            remove = files[number - 1 : number] if number > 1 else []
            more |= {"app_version": number, "app_version_before": number - 1}
            commit_files(table, Commit(add=[file], remove=remove, app_id=QUERY, custom_metadata=told, **more))
        hidden = ".3.parquet.replaced"
        rename_files(table, [(files[3], f"day=1 2/{hidden}")], app_id=QUERY, app_version=3)
        known = read_log(table)
    assert gc.get_threshold() == thresholds
    assert known == read_snapshot(table)
    assert [file.path for file in known.files()] == [f"day=1 2/{hidden}", "day=1 2/0.parquet"]
