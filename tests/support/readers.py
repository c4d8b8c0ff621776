"""The three readers that must always agree on a table: a DuckDB glob, plain Spark, and deltalake.

Each returns rows as dicts of plain Python values (times aware, in UTC), in no order. ``read_agreed`` compares them.
"""

from __future__ import annotations

import glob
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.object_servers import folder_of
from tidegate.table.log.state import read_table_state
from tidegate.table.schema import fields_of

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


def read_with_duckdb(table_path: Path) -> Rows:
    """What a person gets from ``read_parquet('table/**/*.parquet', union_by_name = true)``: no log, no schema given."""
    table_path = folder_of(table_path)
    if not glob.glob(f"{glob.escape(str(table_path))}/**/*.parquet", recursive=True, include_hidden=True):
        return []
    pattern = glob.escape(str(table_path)).replace("'", "''") + "/**/*.parquet"
    with open_duckdb() as connection:
        query = f"SELECT * FROM read_parquet('{pattern}', union_by_name = true)"
        rows: Rows = connection.sql(query).to_arrow_table().to_pylist()
    return rows


def open_duckdb() -> duckdb.DuckDBPyConnection:
    """A connection to the one DuckDB of all tests: a database of its own would cost ten times what a query does."""
    return _start_duckdb(os.getpid()).cursor()


@cache
def _start_duckdb(pid: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    # Nothing is remembered of a file that a test writes again. A forked process starts its own: its parent's hangs.
    database = duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database


def read_with_deltalake(table_path: Path) -> Rows:
    """The newest version by its log; an empty list when there is no table."""
    from deltalake import DeltaTable

    table_path = folder_of(table_path)
    if not DeltaTable.is_deltatable(str(table_path)):
        return []
    rows: Rows = DeltaTable(str(table_path)).to_pyarrow_table().to_pylist()
    return rows


def read_with_spark(spark: SparkSession, table_path: Path) -> Rows:
    """What ``spark.read.parquet(table)`` gives, without Delta and without a schema."""
    table_path = folder_of(table_path)
    if not any(Path(table_path).rglob("*.parquet")):
        return []
    frame = spark.read.option("mergeSchema", "true").parquet(glob.escape(str(table_path)))
    rows: Rows = frame.toArrow().to_pylist()
    return rows


def canonical(rows: Rows) -> Counter[str]:
    """Rows as a multiset, for comparing: keys in order, each value with its type (1 is not "1")."""
    return Counter(json.dumps(row, sort_keys=True, ensure_ascii=False, default=_text) for row in rows)


def read_agreed(table_path: Path, spark: SparkSession | None = None) -> Rows:
    """The rows of the table, after every reader gave the same ones; plain Spark takes part when a session is given.

    A reader without the log may take texts of a partition column for dates or whole numbers: their text counts.
    Raises AssertionError naming the readers and rows that differ.
    """
    expected = read_with_deltalake(table_path)
    others = {"DuckDB": read_with_duckdb(table_path)}
    if spark is not None:
        others["plain Spark"] = read_with_spark(spark, table_path)
    texts = _text_partitions(table_path)
    for reader, found in others.items():
        rows = [
            {name: str(value) if name in texts and value is not None else value for name, value in row.items()}
            for row in found
        ]
        missing = canonical(expected) - canonical(rows)
        extra = canonical(rows) - canonical(expected)
        assert not missing and not extra, (
            f"{reader} and deltalake differ on {table_path}: only deltalake has {_some(missing)}; "
            f"only {reader} has {_some(extra)}"
        )
    return expected


def _text_partitions(table_path: Path) -> set[str]:
    state = read_table_state(table_path)
    types = {} if state is None else {field["name"]: field["type"] for field in fields_of(state.schema_json)}
    return {name for name in ([] if state is None else state.partition_columns) if types[name] == "string"}


def _text(value: Any) -> Any:
    return {type(value).__name__: value.isoformat() if hasattr(value, "isoformat") else str(value)}


def _some(rows: Counter[str]) -> str:
    return f"{rows.total()} rows, such as {list(rows)[:3]}" if rows else "nothing"
