"""Columns of parquet and orc files against those of a schema: what is inside columns counts as the columns do."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.support.parts import faults, read
from tidegate.sources.files.columnar_files import find_conflicts
from tidegate.sources.files.forms import find_fault
from tidegate.spec.models import FilesSource

INNER = pa.struct([("b", pa.int32()), ("lost", pa.string())])
ROW = {
    "id": 1,
    "a": {"b": 1, "lost": "x"},
    "rows": [{"b": 1, "lost": "x"}],
    "by": [("k", {"b": 1, "lost": "x"})],
    "deep": [[{"b": 1, "lost": "x"}]],
}
TYPES = {"id": pa.int32(), "a": INNER, "rows": pa.list_(INNER), "by": pa.map_(pa.string(), INNER),
         "deep": pa.list_(pa.list_(INNER))}  # fmt: skip
KNOWN = "id INT, a STRUCT<B: INT>, rows ARRAY<STRUCT<b: INT>>, by MAP<STRING, STRUCT<b: INT>>"

MISFIT = "misfit"
FITS = [
    (pa.decimal128(10, 2), Decimal("1.25"), "DECIMAL(12,2)", None),
    (pa.decimal128(10, 4), Decimal("1.2345"), "DECIMAL(12,2)", "more decimals than DECIMAL(12,2) holds"),
    (pa.decimal128(14, 2), Decimal("1.25"), "DECIMAL(12,2)", None),
    (pa.decimal128(14, 2), Decimal("123456789012.25"), "DECIMAL(12,2)", "not a DECIMAL(12,2)"),
    (pa.int64(), 5, "INT", None),
    (pa.int64(), 2**40, "INT", "not an INT"),
    (pa.int32(), 5, "BIGINT", None),
    (pa.int64(), 2**60 + 1, "DOUBLE", "a whole number with more digits than DOUBLE holds"),
    (pa.int32(), 5, "DOUBLE", None),
    (pa.int32(), 2**24 + 1, "FLOAT", "a whole number with more digits than FLOAT holds"),
    (pa.float64(), 0.1, "FLOAT", "more digits than FLOAT holds"),
    (pa.float64(), 0.5, "FLOAT", None),
    (pa.float32(), 0.5, "DOUBLE", None),
    (pa.int8(), 5, "DECIMAL(5,2)", None),
    (pa.int32(), 5, "DECIMAL(11,2)", None),
    (pa.int32(), 10**9, "DECIMAL(10,2)", "not a DECIMAL(10,2)"),
    (pa.date32(), None, "DATE", None),
    (pa.string(), "x", "STRING", None),
    (pa.string(), "x", "INT", MISFIT),
    (pa.int32(), 5, "STRING", MISFIT),
    (pa.float64(), 0.1, "DECIMAL(12,2)", MISFIT),
    (pa.float64(), 1.0, "INT", MISFIT),
    (pa.string(), "2026-01-01", "DATE", MISFIT),
    (pa.string(), "2026-01-01", "TIMESTAMP", MISFIT),
    (pa.string(), "x", "STRUCT<A: INT>", MISFIT),
    (pa.int64(), 1, "ARRAY<INT>", MISFIT),
    (pa.bool_(), True, "INT", MISFIT),
    (pa.int32(), 1, "BOOLEAN", MISFIT),
]
WRAPPED: dict[str, Any] = {
    "{}": (lambda kind: kind, lambda value: value, "v"),
    "STRUCT<c: {}>": (lambda kind: pa.struct([("c", kind)]), lambda value: {"c": value}, "v.c"),
    "ARRAY<{}>": (pa.list_, lambda value: [value], "v[]"),
    "MAP<STRING, {}>": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)], "v{}"),
    "ARRAY<STRUCT<c: {}>>": (lambda k: pa.list_(pa.struct([("c", k)])), lambda value: [{"c": value}], "v[].c"),
}


def _write(folder: Path, kind: str, rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> Path:
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))
    (pq if kind == "parquet" else orc).write_table(table, folder / f"one.{kind}")
    return folder / f"one.{kind}"


def _fault(path: Path, ddl: str) -> str | None:
    return find_fault(path, FilesSource(type="files", path="in", format=path.suffix[1:], schema=ddl))


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_fields_inside_that_the_schema_lacks_are_named_by_path(tmp_path: Path, kind: str) -> None:
    path = _write(tmp_path, kind, [ROW], TYPES)
    assert read(path, KNOWN)[0]["_unknown"] == ["deep", "a.lost", "rows[].lost", "by{}.lost"]
    nested = f"{KNOWN}, deep ARRAY<ARRAY<STRUCT<b: INT>>>"
    assert read(path, nested)[0]["_unknown"] == ["a.lost", "rows[].lost", "by{}.lost", "deep[][].lost"]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_does_not_fit_is_named_by_path(tmp_path: Path, kind: str, wrapped: str) -> None:
    """Types with nothing in common are a fault of the file; else each value that does not fit is one of its record."""
    as_type, as_value, place = WRAPPED[wrapped]
    for actual, value, declared, why in FITS:
        path = _write(tmp_path, kind, [{"v": as_value(value)}, {"v": None}], {"v": as_type(actual)})
        ddl = f"v {wrapped.format(declared)}"
        told = f"{place} is {actual}, the schema wants {declared}"
        assert _fault(path, ddl) == (told if why == MISFIT else None), (actual, declared)
        if why == MISFIT:
            continue
        rows = read(path, ddl)
        assert faults(rows) == ({} if why is None else {1: f"{place}: {why}"}), (actual, declared)
        assert why is not None or rows[0]["v"] == as_value(value), (actual, declared)


@pytest.mark.parametrize(
    ("actual", "value", "declared", "why"),
    [
        (pa.uint32(), 2**31, "INT", "v: not an INT"),
        (pa.uint32(), 2**32 - 1, "BIGINT", None),
        (pa.uint64(), 2**63, "BIGINT", "v: not a BIGINT"),
        (pa.dictionary(pa.int32(), pa.string()), "x", "STRING", None),
        (pa.binary(), b"x", "STRING", None),
        (pa.timestamp("ms"), dt.datetime(2026, 1, 31), "TIMESTAMP_NTZ", None),
    ],
)
def test_types_that_parquet_alone_has(tmp_path: Path, actual: Any, value: Any, declared: str, why: str | None) -> None:
    path = _write(tmp_path, "parquet", [{"v": value}], {"v": actual})
    assert _fault(path, f"v {declared}") is None
    rows = read(path, f"v {declared}")
    assert faults(rows) == ({} if why is None else {1: why})
    assert why is not None or rows[0]["v"] == (value.decode() if isinstance(value, bytes) else value)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_all_misfits_of_a_file_are_told_at_once(tmp_path: Path, kind: str) -> None:
    inner = pa.list_(pa.struct([("c,d", pa.bool_()), ("e", pa.map_(pa.string(), pa.string())), ("n", pa.int64())]))
    path = _write(tmp_path, kind, [], {"a": pa.struct([("b", inner)]), "k": pa.map_(pa.int64(), pa.string())})
    ddl = "a STRUCT<b: ARRAY<STRUCT<`c,d`: {}, e: MAP<STRING, {}>, g: DECIMAL(10,2), n: BIGINT>>>, k MAP<{}, STRING>"
    assert _fault(path, ddl.format("BOOLEAN", "STRING", "INT")) is None
    assert _fault(path, ddl.format("INT", "DATE", "STRING")) == (
        "a.b[].c,d is bool, the schema wants INT; a.b[].e{} is string, the schema wants DATE; "
        "k{} is int64, the schema wants STRING"
    )


def test_nanoseconds_as_pandas_writes_them_are_read(tmp_path: Path) -> None:
    """Spark could not: such a file was refused. A time that has more digits is refused alone."""
    at = [dt.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=dt.UTC)] * 2
    moments = (pd.to_datetime(at) + pd.to_timedelta([0, 1], unit="ns")).astype("datetime64[ns, UTC]")
    pd.DataFrame({"id": ["a", "b"], "at": moments}).to_parquet(tmp_path / "a.parquet")
    kind = pq.read_schema(tmp_path / "a.parquet").field("at").type
    assert kind == pa.timestamp("ns", "UTC") and _fault(tmp_path / "a.parquet", "id STRING, at TIMESTAMP") is None
    rows = read(tmp_path / "a.parquet", "id STRING, at TIMESTAMP")
    finer = "at: finer than a microsecond; as BIGINT the column has nanoseconds"
    assert rows[0]["at"] == at[0] and faults(rows) == {2: finer}
    whole = read(tmp_path / "a.parquet", "at BIGINT")
    of_duckdb = duckdb.sql(f"SELECT epoch_ns(\"at\") FROM '{tmp_path}/a.parquet'").fetchall()
    assert [row["at"] for row in whole] == [one for (one,) in of_duckdb] == [1769860800123456000, 1769860800123456001]
    assert faults(read(tmp_path / "a.parquet", "id STRING")) == {}


def test_nanoseconds_of_96_bits_in_a_map_and_in_no_column(tmp_path: Path) -> None:
    moments = ["2026-01-31T12:00:00.123456000", "2026-01-31T12:00:00.123456001", "1950-06-01T00:00:00.000001999"]
    flat = pa.array(np.array(moments, "datetime64[ns]"))
    mapped = pa.MapArray.from_arrays(pa.array(range(4), pa.int32()), pa.array(["k"] * 3), flat)
    inner = pa.StructArray.from_arrays([mapped], ["by"])
    path = tmp_path / "a.parquet"
    table = pa.table({"by": mapped, "o": inner, "n": pa.array(range(3))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    rows = read(path, "by MAP<STRING, TIMESTAMP>, o STRUCT<by: MAP<STRING, TIMESTAMP_NTZ>>, n BIGINT")
    finer = "by{}: finer than a microsecond; o.by{}: finer than a microsecond"
    assert faults(rows) == {2: finer, 3: finer}
    assert rows[0]["o"]["by"] == [("k", dt.datetime(2026, 1, 31, 12, 0, 0, 123456))]
    undeclared = read(path, "n BIGINT")
    assert faults(undeclared) == {} and undeclared[1]["_unknown"] == ["by", "o"]


def test_columns_that_files_hold_in_different_types(tmp_path: Path) -> None:
    """Times of 96 bits are times in microseconds, as those that are written today."""
    old = pa.table({"at": pa.array([None], pa.timestamp("ns")), "n": pa.array([1])})
    new = pa.table({"n": pa.array([1]), "at": pa.array([None], pa.timestamp("us"))})
    other = pa.table({"n": pa.array(["1"])})
    pq.write_table(old, tmp_path / "1", use_deprecated_int96_timestamps=True)
    pq.write_table(new, tmp_path / "2")
    pq.write_table(other, tmp_path / "3")
    (tmp_path / "4").write_bytes(b"torn")
    assert find_conflicts(tmp_path, {"1": "old", "2": "new", "4": "torn", "5": "gone"}, "parquet") is None
    told = find_conflicts(tmp_path, {"1": "old", "2": "new", "3": "other"}, "parquet")
    assert told == "n is int64 in old and string in other"
