"""What the footers of parquet files tell before Spark has read any of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.ingest.columns import find_conflicts, find_misfits, read_footers
from tidegate.spec.models import FilesSource

_AT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
_FIX = "is timestamp[ns]; Spark reads ms and us: write with coerce_timestamps='us'"


def _spec(schema: str) -> FilesSource:
    return FilesSource(type="files", path="in", format="parquet", schema=schema)


def _table(**columns: pa.DataType) -> pa.Table:
    empty: dict[str, Any] = {name: pa.array([None], kind) for name, kind in columns.items()}
    return pa.table(empty)


def test_files_as_pandas_writes_them_are_all_found_at_once(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["a"], "at": pandas.to_datetime([_AT]).astype("datetime64[ns, UTC]")})
    names = [f"{number}.parquet" for number in range(60)]
    for name in names:
        frame.to_parquet(tmp_path / name)
    footers = read_footers(tmp_path, names, _spec("id STRING, at TIMESTAMP"))
    assert {footer.fault for footer in footers.values()} == {f"at {_FIX}"} and len(footers) == 60
    frame.to_parquet(tmp_path / "as_advised.parquet", coerce_timestamps="us")
    assert read_footers(tmp_path, ["as_advised.parquet"], _spec("id STRING, at TIMESTAMP")) == {}


def test_what_spark_itself_wrote_in_96_bits_is_no_fault(tmp_path: Path) -> None:
    kind = pa.struct([("at", pa.timestamp("ns")), ("more", pa.list_(pa.timestamp("ns")))])
    table = _table(at=pa.timestamp("ns"), inner=kind)
    pq.write_table(table, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(_table(at=pa.timestamp("us")), tmp_path / "new.parquet")
    schema = "at TIMESTAMP, inner STRUCT<at: TIMESTAMP, more: ARRAY<TIMESTAMP>>"
    assert read_footers(tmp_path, ["old.parquet"], _spec(schema)) == {}
    assert find_conflicts(tmp_path, {"old.parquet": "old", "new.parquet": "new"}, "parquet") is None


def test_columns_that_are_not_declared_are_not_read_and_no_fault(tmp_path: Path) -> None:
    pq.write_table(_table(id=pa.string(), at=pa.timestamp("ns")), tmp_path / "a.parquet")
    footer = read_footers(tmp_path, ["a.parquet"], _spec("id STRING"))["a.parquet"]
    assert (footer.unknown, footer.fault) == (("at",), None)


def test_places_inside_a_column() -> None:
    ns = pa.timestamp("ns")
    actual = pa.struct([("b", pa.list_(pa.struct([("c,d", ns), ("e", pa.map_(pa.string(), ns)), ("n", pa.int64())])))])
    declared = "struct<b:array<struct<`c,d`:timestamp,e:map<string,timestamp>,g:decimal(10,2),n:{}>>>"
    assert find_misfits(actual, declared.format("bigint"), "a", "orc") == []
    assert find_misfits(actual, declared.format("int"), "a", "parquet") == [
        f"a.b[].c,d {_FIX}",
        f"a.b[].e[value] {_FIX}",
        "a.b[].n is int64, the schema wants INT",
    ]
    assert find_misfits(pa.int64(), "array<int>", "a", "parquet") == ["a is int64, the schema wants ARRAY<INT>"]
