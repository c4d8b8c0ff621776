"""Values of Arrow in columns: what fits is held at every depth, and what does not is refused alone, with its path."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.parts import faults, read
from tests.support.sweep import examples
from tidegate.sources.readers.arrow_nested import TOP, Refusals, take
from tidegate.sources.readers.arrow_values import Mismatches, make_fit
from tidegate.sources.readers.rows import Calendar
from tidegate.spec.ddl import read_type

_EPOCH = dt.datetime(1970, 1, 1)
_OUT = "outside the years 1 to 9999"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _whole(low: int, high: int, fault: str) -> Callable[[Any], Any]:
    return lambda value: int(value) if value == int(value) and low <= value <= high else fault


def _decimal(digits: int, scale: int) -> Callable[[Any], Any]:
    def held(value: Any) -> Any:
        name = f"DECIMAL({digits},{scale})"
        scaled = Decimal(value).scaleb(scale) if isinstance(value, int) else value.scaleb(scale)
        if scaled != int(scaled):
            return f"more decimals than {name} holds"
        return Decimal(value) if abs(scaled) < 10**digits else f"not a {name}"

    return held


def _double(value: int) -> Any:
    return float(value) if int(float(value)) == value else "a whole number with more digits than DOUBLE holds"


def _float(value: float) -> Any:
    try:
        held = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return "too large for FLOAT"
    return held if held == value else "more digits than FLOAT holds"


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "not valid UTF-8"


def _time(unit: str) -> Callable[[int], Any]:
    def held(value: int) -> Any:
        micros, rest = divmod(value * 10**6, _PER_SECOND[unit])
        if rest:
            return "finer than a microsecond; as BIGINT the column has nanoseconds"
        try:
            return _EPOCH + dt.timedelta(microseconds=micros)
        except OverflowError:
            return f"TIMESTAMP_NTZ {_OUT}"

    return held


def _date(days: int) -> Any:
    try:
        return _EPOCH.date() + dt.timedelta(days=days)
    except OverflowError:
        return f"DATE {_OUT}"


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    edges = [value for n in range(bits) for value in ((1 << n) - 1, 1 << n, -(1 << n), -(1 << n) - 1)]
    return st.integers(low, high) | st.sampled_from([value for value in edges if low <= value <= high])


def _millis(value: int) -> Any:
    return "not a DATE" if value % 86_400_000 else _date(value // 86_400_000)


_MICROS = st.integers(-62135596800 * 10**6 - 2, 253402300800 * 10**6 + 2)
_TINY = _whole(-128, 127, "not a TINYINT")
_LONG = _whole(-(2**63), 2**63 - 1, "not a BIGINT")
_DECIMALS = st.decimals(-(10**9), 10**9, places=4).map(lambda value: value + 0)
CASES: dict[str, tuple[pa.DataType, str, st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "narrow": (pa.int64(), "tinyint", _integers(64), _TINY),
    "unsigned": (pa.uint64(), "bigint", _integers(64, signed=False), _LONG),
    "wide": (pa.uint16(), "int", _integers(16, signed=False), int),
    "decimal to whole": (pa.decimal128(14, 4), "tinyint", _DECIMALS | st.integers(-200, 200).map(Decimal), _TINY),
    "whole to decimal": (pa.int64(), "decimal(12,2)", _integers(64), _decimal(12, 2)),
    "unsigned to decimal": (pa.uint64(), "decimal(20,0)", _integers(64, signed=False), Decimal),
    "decimal": (pa.decimal128(14, 4), "decimal(9,2)", _DECIMALS, _decimal(9, 2)),
    "wide decimal": (pa.decimal256(60, 4), "decimal(9,2)", _DECIMALS, _decimal(9, 2)),
    "whole to double": (pa.int64(), "double", _integers(64), _double),
    "double to float": (pa.float64(), "float", st.floats(allow_nan=False, allow_infinity=False), _float),
    "bytes to text": (pa.large_binary(), "string", st.binary(max_size=4), _text),
    "views to text": (pa.binary_view(), "string", st.binary(max_size=20), _text),
    "days": (pa.date32(), "date", st.integers(-(2**31), 2**31 - 1) | st.integers(-719165, -719160), _date),
    "days in milliseconds": (
        pa.date64(), "date", _integers(64) | st.integers(-(2**36), 2**36).map(lambda n: n * 86_400_000), _millis,
    ),
    **{
        f"time in {unit}": (pa.timestamp(unit), "timestamp_ntz", _integers(64) | spread, _time(unit))
        for unit, spread in {
            "s": _MICROS.map(lambda value: value // 10**6),
            "ms": _MICROS.map(lambda value: value // 1000),
            "us": _MICROS,
            "ns": st.integers(-(2**63 // 1000), 2**63 // 1000).map(lambda value: value * 1000),
        }.items()
    },
}  # fmt: skip
WRAPPED: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "{}": (lambda kind: kind, lambda value: value, lambda value: value, "v"),
    "struct<c:{}>": (lambda kind: pa.struct([("C", kind)]), lambda one: {"C": one}, lambda one: {"c": one}, "v.c"),
    "array<{}>": (pa.list_, lambda one: [one, None], lambda one: [one, None], "v[]"),
    "map<string,{}>": (
        lambda kind: pa.map_(pa.string(), kind), lambda one: [("k", one)], lambda one: [("k", one)], "v{}",
    ),
    "array<struct<c:{}>>": (
        lambda kind: pa.large_list(pa.struct([("c", kind)])),
        lambda one: [None, {"c": one}], lambda one: [None, {"c": one}], "v[].c",
    ),
}  # fmt: skip


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Dates and times as their numbers, decimals as whole ones."""
    if pa.types.is_decimal(kind):
        with localcontext(prec=200):
            numbers = [0 if value is None else int(value.scaleb(kind.scale)) for value in values]
        content = b"".join(number.to_bytes(kind.byte_width, "little", signed=True) for number in numbers)
        valid = pa.array([value is not None for value in values], pa.bool_())
        return pa.Array.from_buffers(kind, len(values), [valid.buffers()[1], pa.py_buffer(content)])
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
    return pa.array(values, kind)


def _nest(wrapped: str, leaf: pa.Array) -> pa.Array:
    """Each value of ``leaf`` in a value of its own."""
    count = len(leaf)
    if wrapped == "{}":
        return leaf
    if wrapped == "struct<c:{}>":
        return pa.StructArray.from_arrays([leaf], ["C"])
    ends = pa.array(range(count + 1), pa.int32())
    if wrapped.startswith("map"):
        return pa.MapArray.from_arrays(ends, pa.array(["k"] * count, pa.string()), leaf)
    places = [place for at in range(count) for place in (at, None)]
    twice = take(leaf, pa.array(places, pa.int64()))
    doubled = pa.array(range(0, 2 * count + 1, 2), pa.int64())
    if wrapped == "array<{}>":
        return pa.ListArray.from_arrays(doubled.cast(pa.int32()), twice)
    return pa.LargeListArray.from_arrays(doubled, pa.StructArray.from_arrays([twice], ["c"]))


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_each_value_alone(case: str, wrapped: str, data: st.DataObject) -> None:
    kind, declared, strategy, define = CASES[case]
    values = data.draw(st.lists(strategy | st.none(), max_size=6))
    path = WRAPPED[wrapped][3]
    mismatches, found = Mismatches(), Refusals()
    array = _nest(wrapped, _array(kind, [None, *values, None]))
    node = read_type(wrapped.format(declared))
    column = make_fit(array.type, node, "v", Calendar(), mismatches)(array.slice(1, len(values)), TOP.below("v"), found)
    column.validate(full=True)
    assert not mismatches
    wanted, refused = [], {}
    for row, value in enumerate(values):
        held = None if value is None else define(value)
        if (isinstance(held, str) and declared != "string") or held == "not valid UTF-8":
            refused[row] = [f"{path}: {held}"]
            held = None
        wanted.append(held)
    assert {row: [str(fault) for fault in some] for row, some in found.faults.items()} == refused
    leaf = column
    while pa.types.is_nested(leaf.type):
        leaf = leaf.items if pa.types.is_map(leaf.type) else leaf.flatten()
        leaf = leaf[0] if isinstance(leaf, list) else leaf
    got = leaf.to_pylist()
    assert (got[::2] if wrapped.startswith("array") else got) == wanted


_PRECISIONS = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}


@st.composite
def _decimal_types(draw: st.DrawFn) -> pa.DataType:
    make = draw(st.sampled_from(list(_PRECISIONS)))
    digits = draw(st.integers(1, _PRECISIONS[make]) | st.just(_PRECISIONS[make]))
    return make(digits, draw(st.integers(0, digits) | st.sampled_from([0, digits, -3])))


@st.composite
def _declared_decimals(draw: st.DrawFn) -> tuple[int, int]:
    digits = draw(st.integers(1, 38) | st.just(38))
    return digits, draw(st.integers(0, digits) | st.sampled_from([0, digits]))


def _numbers_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type: any, and those of few digits that are not zero."""
    if pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
        high = (1 << kind.bit_width) - 1 + low
        short = st.builds(lambda digit, power: digit * 10**power, st.integers(-99, 99), st.integers(0, 18))
        return st.integers(low, high) | short.filter(lambda value: low <= value <= high)
    most = 10**kind.precision - 1
    digits = st.integers(-most, most) | st.builds(
        lambda digit, power: digit * 10**power, st.integers(-99, 99), st.integers(0, kind.precision)
    ).filter(lambda value: abs(value) <= most)
    return digits.map(lambda value: Decimal((value < 0, tuple(map(int, str(abs(value)))), -kind.scale)))


_INTEGERS = [make() for make in (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64)]


def _fit(array: pa.Array, declared: str) -> tuple[pa.Array, dict[int, list[str]]]:
    mismatches, found = Mismatches(), Refusals()
    column = make_fit(array.type, read_type(declared), "v", Calendar(), mismatches)(array, TOP.below("v"), found)
    assert not mismatches
    column.validate(full=True)
    return column, {row: [str(fault) for fault in some] for row, some in found.faults.items()}


@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_decimals_of_any_size(data: st.DataObject) -> None:
    kind = data.draw(_decimal_types() | st.sampled_from(_INTEGERS))
    values = data.draw(st.lists(_numbers_of(kind) | st.none(), min_size=1, max_size=3))
    digits, scale = data.draw(_declared_decimals())
    with localcontext(prec=200):
        column, refused = _fit(_array(kind, values), f"decimal({digits},{scale})")
        held = [None if value is None else _decimal(digits, scale)(value) for value in values]
    assert refused == {row: [f"v: {one}"] for row, one in enumerate(held) if isinstance(one, str)}
    assert column.to_pylist() == [None if isinstance(one, str) else one for one in held]


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data())
def test_whole_numbers_of_any_size(data: st.DataObject) -> None:
    kind = data.draw(_decimal_types() | st.sampled_from(_INTEGERS))
    values = data.draw(st.lists(_numbers_of(kind) | st.none(), min_size=1, max_size=3))
    declared, bits = data.draw(st.sampled_from([("tinyint", 7), ("smallint", 15), ("int", 31), ("bigint", 63)]))
    with localcontext(prec=200):
        column, refused = _fit(_array(kind, values), declared)
    fits = [None if one is None else one == int(one) and -(1 << bits) <= one < (1 << bits) for one in values]
    assert list(refused) == [row for row, is_held in enumerate(fits) if is_held is False]
    assert column.to_pylist() == [int(one) if is_held else None for one, is_held in zip(values, fits, strict=True)]


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data())
def test_floating_numbers_of_any_size(data: st.DataObject) -> None:
    floats = st.floats() | st.sampled_from([0.0, -0.0, 0.1, 1e300, 1e-300, 2.0**24 + 1])
    strategies: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.float64(): floats,
        pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0]),
        pa.float16(): st.floats(width=16) | st.sampled_from([0.0, -0.0]),
        **{kind: _numbers_of(kind) for kind in _INTEGERS},
    }
    kind = data.draw(st.sampled_from(list(strategies)))
    values = data.draw(st.lists(strategies[kind] | st.none(), min_size=1, max_size=4))
    array = pa.array(values, kind)
    declared = data.draw(st.sampled_from(["double", "float"]))
    column, refused = _fit(array, declared)
    for row, (value, got) in enumerate(zip(array.to_pylist(), column.to_pylist(), strict=True)):
        if row in refused:
            try:
                narrow = float(value) if declared == "double" else struct.unpack("f", struct.pack("f", value))[0]
            except OverflowError:
                continue
            assert narrow != value
        elif isinstance(value, float):
            assert repr(got) == repr(value)
        else:
            assert got == value


@pytest.mark.parametrize(
    ("kind", "value", "declared"),
    [
        (pa.decimal128(38, 0), Decimal(4 * 10**20), "decimal(38,18)"),
        (pa.decimal128(38, 2), Decimal("400000000000000000000.00"), "decimal(38,18)"),
        (pa.decimal256(76, 0), Decimal(4 * 10**60), "decimal(38,18)"),
        (pa.int64(), 4, "decimal(38,38)"),
        (pa.int16(), 400, "decimal(38,36)"),
        (pa.int64(), 4 * 10**18, "decimal(38,20)"),
    ],
)
def test_numbers_that_are_too_large(kind: pa.DataType, value: Any, declared: str) -> None:
    column, refused = _fit(pa.array([value, None], kind), declared)
    assert column.to_pylist() == [None, None] and refused == {0: [f"v: not a {declared.upper()}"]}


def test_long_numbers_beside_one_that_does_not_fit() -> None:
    column, refused = _fit(pa.array([9007199254740993, 10**18], pa.int64()), "decimal(18,0)")
    assert column.to_pylist() == [Decimal(9007199254740993), None] and list(refused) == [1]


MISFITS = [
    (pa.string(), "INT", "v is string, the schema wants INT"),
    (pa.int32(), "STRING", "v is int32, the schema wants STRING"),
    (pa.int32(), "BOOLEAN", "v is int32, the schema wants BOOLEAN"),
    (pa.float64(), "DECIMAL(12,2)", "v is double, the schema wants DECIMAL(12,2)"),
    (pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ", "v is timestamp[us, tz=UTC], the schema wants TIMESTAMP_NTZ"),
    (pa.date32(), "TIMESTAMP", "v is date32[day], the schema wants TIMESTAMP"),
    (pa.list_(pa.string()), "ARRAY<INT>", "v[] is string, the schema wants INT"),
    (pa.struct([("a", pa.bool_())]), "STRUCT<a: INT>", "v.a is bool, the schema wants INT"),
    (pa.map_(pa.int32(), pa.string()), "MAP<STRING, STRING>", "v{} is int32, the schema wants STRING"),
    (pa.struct([("a", pa.int32()), ("A", pa.int32())]), "STRUCT<a: INT>", None),
    (pa.uuid(), "INT", "v is arrow.uuid, the schema wants INT"),
]


@pytest.mark.parametrize(("kind", "declared", "reason"), MISFITS)
def test_types_that_have_nothing_in_common(kind: pa.DataType, declared: str, reason: str | None) -> None:
    mismatches = Mismatches()
    node = read_type(declared.lower().replace(": ", ":").replace(", ", ","))
    make_fit(kind, node, "v", Calendar(), mismatches)
    assert mismatches == ([] if reason is None else [reason])


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    maps = [[("a", 1), ("b", 2)], [("a", 1), ("b", 2), ("a", 3)], None, [], [("b", None)]]
    pq.write_table(pa.table({"v": pa.array(maps, pa.map_(pa.string(), pa.int32()))}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", "v MAP<STRING, INT>")
    assert faults(rows) == {2: "v: this key is there twice"}
    assert [row["v"] for row in rows] == [maps[0], None, None, [], maps[4]]
    assert rows[1]["_raw"] == '{"v":{"a":1,"b":2,"a":3}}'


_NAN = struct.unpack("d", b"\1\0\0\0\0\0\xf8\x7f")[0]
_KEYS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "ARRAY<INT>": (pa.list_(pa.int32()), [[1], [2], [], [1, 2], [1, None]], [[1], [1]]),
    "STRUCT<a: INT, b: ARRAY<DOUBLE>>": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]),
        [{"a": 1, "b": [0.0]}, {"a": 2, "b": [0.0]}, {"a": None, "b": [0.0]}, {"a": 1, "b": None}],
        [{"a": 1, "b": [0.0, math.nan]}, {"a": 1, "b": [-0.0, _NAN]}],
    ),
    "DOUBLE": (pa.float64(), [0.0, 1.0, math.nan], [0.0, 1.0, -0.0]),
    "FLOAT": (pa.float32(), [-0.0, 1.0], [0.0, -0.0]),
    "DECIMAL(3,1)": (pa.decimal128(3, 1), [Decimal("1.0"), Decimal("0.1")], [Decimal("1.0"), Decimal("1.0")]),
    "BOOLEAN": (pa.bool_(), [True, False], [True, True]),
    "DATE": (pa.date32(), [dt.date(2026, 1, 1), dt.date(2026, 1, 2)], [dt.date(2026, 1, 1)] * 2),
    "ARRAY<TIMESTAMP>": (pa.list_(pa.timestamp("us", "UTC")), [[0], [1]], [[1], [1]]),
    "BINARY": (pa.binary(), [b"", b"a"], [b"a", b"a"]),
}


@pytest.mark.parametrize("declared", _KEYS)
def test_keys_of_any_type(tmp_path: Path, declared: str) -> None:
    kind, one, other = _KEYS[declared]
    maps = pa.array([[(key, 1) for key in keys] for keys in (one, other, one)], pa.map_(kind, pa.int32()))
    pq.write_table(pa.table({"v": maps}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", f"v MAP<{declared}, INT>")
    assert faults(rows) == {2: "v: this key is there twice"}
    assert [len(row["v"] or ()) for row in rows] == [len(one), 0, len(one)]


def test_nan_keys_of_other_bits() -> None:
    keys = pa.array(np.array([math.nan, _NAN]))
    maps = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2], pa.int32()))
    assert _fit(maps, "map<double,int>")[1] == {0: ["v: this key is there twice"]}


def test_zeros_beside_a_value_that_does_not_fit() -> None:
    column, _ = _fit(pa.array([0.0, -0.0, 0.1, 0.0], pa.float64()), "float")
    assert list(map(repr, column.to_pylist())) == ["0.0", "-0.0", "None", "0.0"]


def test_keys_that_do_not_fit(tmp_path: Path) -> None:
    maps = [[(300, "a"), (1, "b")], [(2, "c")]]
    pq.write_table(pa.table({"v": pa.array(maps, pa.map_(pa.int32(), pa.string()))}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", "v MAP<TINYINT, STRING>")
    assert faults(rows) == {1: "v{}: not a TINYINT"} and rows[1]["v"] == [(2, "c")]


def test_a_record_with_a_wrong_key_before_one_with_a_wrong_value(tmp_path: Path) -> None:
    """The second is not published with a null in the place of its value."""
    keys = pa.array([b"\xff", b"a", b"b", b"c"], pa.binary()).view(pa.string())
    values = pa.array([b"x", b"y", b"\xff", b"z"], pa.binary()).view(pa.string())
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), keys, values)
    pq.write_table(pa.table({"v": maps, "l": pa.array([[one] for one in maps])}), tmp_path / "a.parquet")
    ddl = "v MAP<STRING, STRING>, l ARRAY<MAP<STRING, STRING>>"
    rows = read(tmp_path / "a.parquet", ddl)
    why = "v{}: not valid UTF-8; l[]{}: not valid UTF-8"
    assert faults(rows) == {1: why, 3: why}
    assert [row["v"] for row in rows] == [None, [("a", "y")], None, [("c", "z")]]
