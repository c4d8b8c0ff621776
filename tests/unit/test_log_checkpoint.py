"""A table with a long log: plain globs see rows alone, and opening it stays cheap."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tidegate.table.log_checkpoint import is_checkpoint_due, list_checkpoints, write_checkpoint

from tests.keyed import FakeLease, Keyed
from tests.readers import read_agreed
from tests.staged import QUERY, make_schema
from tidegate.lease import Lease
from tidegate.run.upkeep import tend_tables
from tidegate.table.commit import commit_files
from tidegate.table.log import DataFile, commit_name, list_data_files, read_table_state

SCHEMA = make_schema(id="long")
LEASE = cast(Lease, FakeLease())


def commit(table: Path, number: int, **more: Any) -> int:
    """A version with one file of one row, in place as a publish leaves it."""
    table.mkdir(parents=True, exist_ok=True)
    path = table / f"part-{QUERY[:8]}-{number:08d}-a-00000.parquet"
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)
    options = {
        "schema_json": SCHEMA,
        "partition_by": [],
        "add": [DataFile(path.name, 1, path.stat().st_size)],
        "remove": [],
        "app_id": QUERY,
        "app_version": number,
        "app_version_before": number - 1,
        "custom_metadata": {"tidegate.run_id": f"run-{number}"},
    }
    return commit_files(table, **{**options, **more})


def write_log(table: Path, versions: int) -> None:
    """A log of so many versions, of a file each that is nowhere: the first by tidegate, the others by hand."""
    commit(table, 0)
    for number in range(1, versions):
        stats = json.dumps({"numRecords": 1, "minValues": {"id": number}, "maxValues": {"id": number}})
        name = f"part-{QUERY[:8]}-{number:08d}-a-00000.parquet"
        add = {"path": name, "partitionValues": {}, "size": 400, "modificationTime": number, "dataChange": True}
        actions = [
            {"add": {**add, "stats": stats}},
            {"txn": {"appId": QUERY, "version": number}},
            {"commitInfo": {"timestamp": number, "operation": "WRITE", "tidegate.run_id": f"run-{number}"}},
        ]
        path = table / "_delta_log" / commit_name(number)
        path.write_text("\n".join(map(json.dumps, actions)))


def log_names(table: Path) -> list[str]:
    return sorted(path.name for path in (table / "_delta_log").iterdir() if not path.name[:20].isdigit())


def test_every_reader_agrees_after_each_tenth_of_300_commits(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    for number in range(300):
        commit(keyed.paths.table, number)
        if number < 150:
            commit(keyed.paths.quarantine, number)
        tend_tables(keyed.paths, keyed.spec, LEASE, read_table_state(keyed.paths.table))
        if number % 10 == 9:
            assert len(read_agreed(keyed.paths.table)) == number + 1
            assert not list((keyed.paths.table / "_delta_log").rglob("*.parquet"))
        if number % 10 == 9 and number < 150:
            assert len(read_agreed(keyed.paths.quarantine)) == number + 1
    assert len(list_checkpoints(keyed.paths.table)) == 2
    assert len(list_checkpoints(keyed.paths.quarantine)) == 1
    state = read_table_state(keyed.paths.table, (QUERY,))
    assert state is not None
    assert (state.txns, state.metadata["tidegate.run_id"]) == ({QUERY: 299}, "run-299")
    for version in (5, 99, 150, 250):  # whatever the newest checkpoint is
        older = DeltaTable(str(keyed.paths.table), version=version)
        assert older.version() == version
    assert len(DeltaTable(str(keyed.paths.table), version=50).get_add_actions()) == 51


def test_a_log_of_20000_versions_opens_in_under_half_a_second_of_cpu(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_log(table, 20_000)
    assert is_checkpoint_due(table, 19_999)
    # Made from a tenth first, because without any checkpoint the log itself takes many seconds to open.
    write_checkpoint(table, lambda: None)
    before = time.process_time()
    state = read_table_state(table, (QUERY,))
    spent = time.process_time() - before
    assert state is not None
    assert state.txns == {QUERY: 19_999}
    assert spent < 0.5
    assert len(list_data_files(table)) == 20_000
