"""Footers of parquet and orc files: what is inside columns counts as the columns do."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tidegate.sources.files.columns import Footer, find_conflicts, find_misfits, read_footers
from tidegate.spec.ddl_tree import read_type
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

FITS = [
    (pa.decimal128(10, 2), Decimal("1.25"), "DECIMAL(12,2)", True),
    (pa.decimal128(10, 4), Decimal("1.2345"), "DECIMAL(12,2)", False),
    (pa.decimal128(14, 2), Decimal("1.25"), "DECIMAL(12,2)", False),
    (pa.int64(), 2**40, "INT", False),
    (pa.int32(), 5, "BIGINT", True),
    (pa.int64(), 2**60 + 1, "DOUBLE", False),
    (pa.int32(), 5, "DOUBLE", True),
    (pa.int32(), 2**24 + 1, "FLOAT", False),
    (pa.float64(), 0.1, "FLOAT", False),
    (pa.float32(), 0.5, "DOUBLE", True),
    (pa.string(), "x", "INT", False),
    (pa.string(), "x", "STRING", True),
    (pa.int32(), 5, "STRING", False),
    (pa.float64(), 0.1, "DECIMAL(12,2)", False),
    (pa.int8(), 5, "DECIMAL(5,2)", True),
    (pa.int32(), 5, "DECIMAL(11,2)", False),
    (pa.date32(), None, "DATE", True),
    (pa.string(), "2026-01-01", "DATE", False),
    (pa.bool_(), True, "INT", False),
    (pa.int32(), 1, "BOOLEAN", False),
]
WRAPPED: dict[str, Any] = {
    "{}": (lambda kind: kind, lambda value: value, "v"),
    "STRUCT<c: {}>": (lambda kind: pa.struct([("c", kind)]), lambda value: {"c": value}, "v.c"),
    "ARRAY<{}>": (pa.list_, lambda value: [value], "v[]"),
    "MAP<STRING, {}>": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)], "v{}"),
    "ARRAY<STRUCT<c: {}>>": (lambda k: pa.list_(pa.struct([("c", k)])), lambda value: [{"c": value}], "v[].c"),
}


def _write(folder: Path, kind: str, rows: list[dict[str, Any]], types: dict[str, Any]) -> str:
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))
    (pq if kind == "parquet" else orc).write_table(table, folder / f"one.{kind}")
    return f"one.{kind}"


def _footer(folder: Path, kind: str, link: str, ddl: str) -> Footer:
    spec = FilesSource.model_validate({"type": "files", "path": "x", "format": kind, "schema": ddl})
    return read_footers(folder, [link], spec).get(link, Footer())


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_fields_inside_that_the_schema_lacks_are_named_by_path(tmp_path: Path, kind: str) -> None:
    link = _write(tmp_path, kind, [ROW], TYPES)
    assert _footer(tmp_path, kind, link, KNOWN) == Footer(("deep", "a.lost", "rows[].lost", "by{}.lost"))
    nested = f"{KNOWN}, deep ARRAY<ARRAY<STRUCT<b: INT, lost: STRING>>>"
    assert _footer(tmp_path, kind, link, nested).unknown == ("a.lost", "rows[].lost", "by{}.lost")


@pytest.mark.parametrize("kind", ["parquet", "orc"])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_types_that_cannot_be_held_are_named_by_path(tmp_path: Path, kind: str, wrapped: str) -> None:
    as_type, as_value, path = WRAPPED[wrapped]
    for actual, value, declared, fits in FITS:
        link = _write(tmp_path, kind, [{"v": as_value(value)}], {"v": as_type(actual)})
        fault = _footer(tmp_path, kind, link, f"v {wrapped.format(declared)}").fault
        wanted = None if fits else f"{path} is {actual}, the schema wants {declared}"
        assert fault == wanted, (actual, declared)


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


def _write_96_bits(path: Path, moments: list[str | None]) -> None:
    """Moments with nine decimals, alone and inside a struct, a list and a map."""
    import numpy as np

    flat = pa.array(np.array([one or "NaT" for one in moments], "datetime64[ns]"))
    length = len(moments)
    offsets = pa.array(range(length + 1), pa.int32())
    listed = pa.ListArray.from_arrays(offsets, flat)
    mapped = pa.MapArray.from_arrays(offsets, pa.array(["k"] * length), flat)
    inner = pa.StructArray.from_arrays([flat, listed], ["at", "more"])
    table = pa.table({"at": flat, "inner": inner, "by": mapped, "n": pa.array(range(length))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)


_IN_96_BITS = "at TIMESTAMP, Inner STRUCT<at: TIMESTAMP, more: ARRAY<TIMESTAMP>>, by MAP<STRING, TIMESTAMP>, n BIGINT"
_CUT = "holds nanoseconds (INT96), which Spark cuts to microseconds: write with coerce_timestamps='us'"


def test_nanoseconds_in_96_bits_are_found_by_the_values(tmp_path: Path) -> None:
    whole: list[str | None] = ["2026-01-31T12:00:00.123456000", None, "1950-06-01T00:00:00.000001000"]
    _write_96_bits(tmp_path / "whole.parquet", whole)
    _write_96_bits(tmp_path / "fine.parquet", [*whole, "2026-01-31T12:00:00.123456001"])
    _write_96_bits(tmp_path / "early.parquet", [*whole, "1950-06-01T00:00:00.000001999"])
    names = ["whole.parquet", "fine.parquet", "early.parquet"]
    found = read_footers(tmp_path, names, _spec(_IN_96_BITS))
    places = ("at", "Inner.at", "Inner.more[]", "by{}")
    assert found == dict.fromkeys(names[1:], Footer((), "; ".join(f"{place} {_CUT}" for place in places)))
    as_spark = _spec(_IN_96_BITS).model_copy(update={"values": "as_spark"})
    assert read_footers(tmp_path, names, as_spark) == {}
    undeclared = read_footers(tmp_path, names, _spec("n BIGINT"))
    assert {footer.fault for footer in undeclared.values()} == {None}


def test_years_in_96_bits_beyond_what_64_bits_of_nanoseconds_hold(tmp_path: Path) -> None:
    """Arrow gives 9999-12-31 as a moment of 1816: the bits above are lost, and digits that nobody wrote appear."""
    _write_96_bits(tmp_path / "a.parquet", ["1816-03-30T05:56:08.066277376"])
    data = (tmp_path / "a.parquet").read_bytes()
    written, meant = (struct.pack("<qi", *one) for one in (_days_of(1816, 3, 30), (0, 5373484)))
    assert data.count(written) >= 4
    (tmp_path / "a.parquet").write_bytes(data.replace(written, meant))
    assert read_footers(tmp_path, ["a.parquet"], _spec(_IN_96_BITS)) == {}


def _days_of(year: int, month: int, day: int) -> tuple[int, int]:
    nanos = (5 * 3600 + 56 * 60 + 8) * 10**9 + 66277376
    return nanos, dt.date(year, month, day).toordinal() + 1721425


def test_columns_that_are_not_declared_are_not_read_and_no_fault(tmp_path: Path) -> None:
    pq.write_table(_table(id=pa.string(), at=pa.timestamp("ns")), tmp_path / "a.parquet")
    footer = read_footers(tmp_path, ["a.parquet"], _spec("id STRING"))["a.parquet"]
    assert (footer.unknown, footer.fault) == (("at",), None)


def test_places_inside_a_column() -> None:
    ns = pa.timestamp("ns")
    actual = pa.struct([("b", pa.list_(pa.struct([("c,d", ns), ("e", pa.map_(pa.string(), ns)), ("n", pa.int64())])))])
    declared = "struct<b:array<struct<`c,d`:timestamp,e:map<string,timestamp>,g:decimal(10,2),n:{}>>>"
    assert list(find_misfits(actual, read_type(declared.format("bigint")), "a", "orc")) == []
    assert list(find_misfits(actual, read_type(declared.format("int")), "a", "parquet")) == [
        f"a.b[].c,d {_FIX}",
        f"a.b[].e{{}} {_FIX}",
        "a.b[].n is int64, the schema wants INT",
    ]
    misfit = find_misfits(pa.int64(), read_type("array<int>"), "a", "parquet")
    assert list(misfit) == ["a is int64, the schema wants ARRAY<INT>"]
    keyed = find_misfits(pa.map_(pa.int64(), pa.string()), read_type("map<int,string>"), "a", "parquet")
    assert list(keyed) == ["a{key} is int64, the schema wants INT"]
