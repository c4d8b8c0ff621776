"""Tables with many commits, made without a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.support.staged import QUERY, make_schema
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile, read_log

SCHEMA = make_schema(id="long")


def add_file(table: Path, number: int) -> DataFile:
    """A file of one row, in place as a publish leaves it."""
    table.mkdir(parents=True, exist_ok=True)
    path = table / f"part-{QUERY[:8]}-{number:08d}-a-00000.parquet"
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)
    return DataFile(path.name, 1, path.stat().st_size)


def commit(table: Path, number: int, **more: Any) -> int:
    """The version of batch ``number``, without files unless some are given."""
    options: dict[str, Any] = {
        "schema_json": SCHEMA,
        "partition_by": [],
        "add": [],
        "remove": [],
        "app_id": QUERY,
        "app_version": number,
        "app_version_before": number - 1,
        "custom_metadata": {"tidegate.run_id": f"run-{number}"},
    }
    return commit_files(table, Commit(**{**options, **more}))


def describe(table: Path) -> Any:
    """What deltalake, which reads the commits alone, says of a table."""
    delta = DeltaTable(str(table))
    return (
        delta.version(),
        delta.transaction_version(QUERY),
        sorted(delta.get_add_actions()["path"].to_pylist()),
        json.loads(delta.schema().to_json()),
    )


def described_here(table: Path) -> Any:
    log = read_log(table)
    return (log.version, log.transaction_version(QUERY), sorted(log.added), json.loads(log.schema_json))
