"""Which changes of a table's schema every reader can follow, with files from before and after the change.

docs/how-to/schema-changes.md and the rules in tidegate.table.schema rely on it.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.delta_spark import DeltaSpark
from tests.support.frames import publish
from tests.support.readers import Rows, canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tidegate.sinks.rows import read_file
from tidegate.table.footer import read_footer
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile, list_data_files, read_table_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NESTED = {
    "actor": ("STRUCT<id: BIGINT>", "STRUCT<kind: STRING, id: BIGINT, at: STRUCT<zip: INT>>"),
    "items": ("ARRAY<STRUCT<sku: STRING, n: INT>>", "ARRAY<STRUCT<sku: STRING, tags: ARRAY<STRING>, n: INT>>"),
    "labels": ("MAP<STRING, STRUCT<x: INT>>", "MAP<STRING, STRUCT<x: INT, y: MAP<STRING, INT>>>"),
    "deep": ("STRUCT<a: ARRAY<STRUCT<b: INT>>>", "STRUCT<a: ARRAY<STRUCT<b: INT, c: DATE>>>"),
}
"""Each column with its type before and after a field was added."""
OLD = """[{"id": 1, "actor": {"id": 7}, "items": [{"sku": "a", "n": 1}, null], "labels": {"k": {"x": 1}},
"deep": {"a": [{"b": 1}]}}, {"id": 2, "actor": {}, "items": [], "labels": {}, "deep": {}}, {"id": 3}]"""
NEW = """[{"id": 4, "actor": {"kind": "bot", "id": 8, "at": {"zip": 150}}, "items": [{"sku": "b", "tags": ["t", null],
"n": 2}], "labels": {"k": {"x": 2, "y": {"z": 3}}}, "deep": {"a": [{"b": 2, "c": "2026-01-31"}, null]}}, {"id": 5}]"""


def nested_rows(spark: SparkSession, text: str, *, after: bool) -> DataFrame:
    columns = ", ".join(f"{name} {types[after]}" for name, types in NESTED.items())
    lines = [(json.dumps(row),) for row in json.loads(text)]
    parsed = spark.createDataFrame(lines, "line STRING").selectExpr(f"from_json(line, 'id INT, {columns}') AS row")
    return parsed.select("row.*")


def test_a_field_inside_of_a_column_is_null_in_older_rows_for_every_reader(
    spark: SparkSession, delta: DeltaSpark, tmp_path: Path
) -> None:
    publish(tmp_path, 0, nested_rows(spark, OLD, after=False), [])
    table = publish(tmp_path, 1, nested_rows(spark, NEW, after=True), [])
    rows = {row["id"]: row for row in read_agreed(table, spark)}
    assert rows[1]["actor"] == {"id": 7, "kind": None, "at": None}
    assert rows[1]["items"] == [{"sku": "a", "n": 1, "tags": None}, None]
    assert dict(rows[1]["labels"]) == {"k": {"x": 1, "y": None}}
    assert rows[1]["deep"] == {"a": [{"b": 1, "c": None}]}
    assert rows[3]["actor"] is None and rows[5]["deep"] is None
    assert rows[4]["actor"]["at"] == {"zip": 150} and rows[4]["items"][0]["tags"] == ["t", None]
    by_delta = {row["id"]: row for row in delta.read(table)}
    assert by_delta[1]["items"] == [{"sku": "a", "n": 1, "tags": None}, None]
    assert by_delta[1]["labels"] == {"k": {"x": 1, "y": None}} and by_delta[2]["actor"]["kind"] is None
    state = read_table_state(table)
    assert state is not None
    batches = [batch for file in list_data_files(table) for batch in read_file(table, file, state.schema_json)]
    assert canonical([row for batch in batches for row in batch.to_pylist()]) == canonical(
        [*rows.values()]
    )  # for sinks


WIDENED: dict[str, tuple[pa.DataType, pa.DataType, str, list[Any], list[Any]]] = {
    "SMALLINT to INT": (pa.int16(), pa.int32(), "integer", [1, None], [2, 300_000]),
    "INT to BIGINT": (pa.int32(), pa.int64(), "long", [1, None], [2, 2**40]),
    "INT to DOUBLE": (pa.int32(), pa.float64(), "double", [1, None], [2.5]),
    "FLOAT to DOUBLE": (pa.float32(), pa.float64(), "double", [0.5, None], [1e300]),
    "DECIMAL(12,2) to DECIMAL(14,2)": (
        pa.decimal128(12, 2),
        pa.decimal128(14, 2),
        "decimal(14,2)",
        [Decimal("1.25"), None],
        [Decimal("999999999999.99")],
    ),
    "DECIMAL(12,2) to DECIMAL(20,4)": (
        pa.decimal128(12, 2),
        pa.decimal128(20, 4),
        "decimal(20,4)",
        [Decimal("1.25"), None],
        [Decimal("9999999999999999.9999")],
    ),
    "INT to BIGINT in a STRUCT": (
        pa.struct([("x", pa.int32())]),
        pa.struct([("x", pa.int64())]),
        "struct",
        [{"x": 1}, None],
        [{"x": 2**40}],
    ),
}


def mixed_table(table: Path, change: str) -> Rows:
    """A table with a file from before and one from after a column got a wider type; returns its rows."""
    old, new, name, before, after = WIDENED[change]
    kind: Any = name
    if name == "struct":
        kind = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    files = []
    for path, arrow, values in (("a.parquet", old, before), ("b.parquet", new, after)):
        table.mkdir(exist_ok=True)
        pq.write_table(pa.table({"v": pa.array(values, arrow)}), table / path, store_decimal_as_integer=True)
        footer = read_footer(table / path)
        assert footer is not None
        files.append(DataFile(path, len(values), (table / path).stat().st_size, stats=footer.stats))
    fields = [{"name": "v", "type": kind, "nullable": True, "metadata": {}}]
    commit_files(table, Commit("q", add=files, schema_json=json.dumps({"type": "struct", "fields": fields})))
    return [{"v": value} for value in pa.array([*before, *after], new).to_pylist()]


@pytest.mark.parametrize("change", WIDENED)
def test_files_of_both_types_are_no_table_for_spark_without_delta(
    spark: SparkSession, delta: DeltaSpark, tmp_path: Path, change: str
) -> None:
    table = tmp_path / "t"
    expected = mixed_table(table, change)
    assert canonical(read_with_duckdb(table)) == canonical(read_with_deltalake(table)) == canonical(expected)
    assert sorted(str(row["v"]) for row in delta.read(table)) == sorted(str(row["v"]) for row in expected)
    try:
        rows = spark.read.parquet(str(table)).toArrow().to_pylist()
    except Exception as error:
        assert "UNSUPPORTED" in str(error) or "CANNOT" in str(error) or "FAILED_READ" in str(error)
    else:  # the older file's type, into which the newer values do not fit
        assert canonical(rows) != canonical(expected)
