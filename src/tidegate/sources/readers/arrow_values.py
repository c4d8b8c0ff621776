"""Converts Arrow values to the type of a column: exactly, or refused with the reason.

Each type has a definition for one value in plain Python, and a kernel that converts a whole array or raises. When the
kernel raises, the definition is used, so both give the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from tidegate.sources.readers.arrow_nested import (
    Refusals,
    Spot,
    is_bytes,
    is_list,
    is_text,
    null_mask,
    open_list,
    open_map,
)
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.rows import Calendar
from tidegate.sources.readers.times import FINER, outside_years
from tidegate.sources.readers.values import BITS, TWICE, describe_misfit
from tidegate.sources.readers.ways import read_decimal
from tidegate.spec.ddl import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOT_UTF8 = "not valid UTF-8"
_DIGITS_OF_LONG, _BITS_OF_DECIMAL = 19, 128
_FLOATING = ("float", "double")
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000
_FIRST_MICRO, _LAST_MICRO = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_Value = TypeVar("_Value")
_Define = Callable[[_Value], tuple[object, str | None]]
"""A value, not null -> the value of the column, and why it does not fit."""
Fit = Callable[[pa.Array, Spot, Refusals], pa.Array]
"""(values, where they are, faults) -> the same values in the type of the column; what does not fit is null."""


class Mismatches(list[str]):
    """Reasons why columns of a file do not match the schema, whatever their values are."""

    def refuse(self, actual: object, node: Node, path: str) -> None:
        """Add types that cannot be converted."""
        self.append(f"{path} is {actual}, the schema wants {node.shown}")


def pick_fields(actual: pa.StructType, node: Node, path: str, mismatches: Mismatches) -> dict[str, int]:
    """{declared name: number of the field}: the one of that name, else the one that differs by case alone."""
    exact: dict[str, list[int]] = {}
    loose: dict[str, list[int]] = {}
    for number, field in enumerate(actual):
        exact.setdefault(field.name, []).append(number)
        loose.setdefault(field.name.lower(), []).append(number)
    picked = {}
    for name, _ in node.fields:
        found = exact.get(name) or loose.get(name.lower(), [])
        if len(found) > 1:
            names = [actual.field(number).name for number in found]
            if len(set(names)) == 1:
                mismatches.append(f"the file has {len(names)} columns called {path}{names[0]}")
            else:
                mismatches.append(f"{path}{name} matches several columns: {', '.join(names)}")
        elif found:
            picked[name] = found[0]
    return picked


def find_unknown(actual: pa.DataType, node: Node, path: str = "") -> list[str]:
    """Paths of the fields of a type that the declared one lacks, such as ``a.b``, ``list[].c`` and ``by{}.d``."""
    if node.kind == "struct" and kinds.is_struct(actual):
        before = f"{path}." if path else ""
        picked = {number: name for name, number in pick_fields(actual, node, "", Mismatches()).items()}
        declared = dict(node.fields)
        inside: list[str] = []
        for number, name in picked.items():
            inside += find_unknown(actual.field(number).type, declared[name], before + name)
        return [before + field.name for number, field in enumerate(actual) if number not in picked] + inside
    if node.kind == "array" and is_list(actual):
        return find_unknown(actual.value_type, node.item, f"{path}[]")
    if node.kind == "map" and kinds.is_map(actual):
        return find_unknown(actual.item_type, node.item, f"{path}{{}}")
    return []


def make_fit(actual: pa.DataType, node: Node, path: str, calendar: Calendar, mismatches: Mismatches) -> Fit:
    """Make the conversion from arrays of the type ``actual`` to a column of the type ``node``; when there is none, the
    reason is added to ``mismatches``."""
    if kinds.is_null(actual):
        return lambda array, spot, found: pa.nulls(len(array), arrow_type(node))
    if kinds.is_dictionary(actual):
        inner = make_fit(actual.value_type, node, path, calendar, mismatches)
        return lambda array, spot, found: inner(array.dictionary_decode(), spot, found)
    if isinstance(actual, pa.BaseExtensionType):
        if actual.extension_name == "arrow.uuid" and node.kind == "string":
            return lambda array, spot, found: show_uuids(array)
        of_storage = Mismatches()
        inner = make_fit(actual.storage_type, node, path, calendar, of_storage)
        if of_storage:
            mismatches.refuse(actual.extension_name, node, path)
        return lambda array, spot, found: inner(array.storage, spot, found)
    if node.kind == "struct" and kinds.is_struct(actual):
        return _fit_struct(actual, node, path, calendar, mismatches)
    if node.kind == "array" and is_list(actual):
        return _fit_list(make_fit(actual.value_type, node.item, f"{path}[]", calendar, mismatches), node)
    if node.kind == "map" and kinds.is_map(actual):
        assert node.key is not None
        keys = make_fit(actual.key_type, node.key, f"{path}{{}}", calendar, mismatches)
        return _fit_map(keys, make_fit(actual.item_type, node.item, f"{path}{{}}", calendar, mismatches), node)
    found = _fit_leaf(actual, node, calendar)
    if found is None:
        mismatches.refuse(actual, node, path)
        return lambda array, spot, found: array
    return found


def _fit_struct(actual: pa.StructType, node: Node, path: str, calendar: Calendar, mismatches: Mismatches) -> Fit:
    before = f"{path}." if path else ""
    picked = pick_fields(actual, node, before, mismatches)
    fits = {
        name: make_fit(actual.field(picked[name]).type, inner, before + name, calendar, mismatches)
        for name, inner in node.fields
        if name in picked
    }
    type_ = arrow_type(node)

    def fit(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
        parts = array.flatten()  # a field of a null is null
        columns = [
            fits[field.name](parts[picked[field.name]], spot.below(field.name), found)
            if field.name in fits
            else pa.nulls(len(array), field.type)
            for field in type_
        ]
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=null_mask(array))

    return fit


def _fit_list(item: Fit, node: Node) -> Fit:
    type_ = arrow_type(node)

    def fit(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
        ends, items = open_list(array)
        column = item(items, spot.inside("[]", ends), found)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), column, type=type_, mask=null_mask(array))

    return fit


def _fit_map(key: Fit, item: Fit, node: Node) -> Fit:
    type_ = arrow_type(node)

    def fit(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
        ends, keys, items = open_map(array)
        inside = spot.inside("{}", ends)
        column = key(keys, inside, found)
        if column.null_count:  # refused, and a key cannot be null
            held = column.is_valid()
            counts = np.concatenate([[0], np.cumsum(held.to_numpy(zero_copy_only=False))])
            ends, column, items = counts[ends], column.filter(held), items.filter(held)
            inside = spot.inside("{}", ends)
        _refuse_twice(column, ends, spot, found)
        values = item(items, inside, found)
        offsets = pa.array(ends, pa.int32())
        return pa.MapArray.from_arrays(offsets, column, values, type=type_, mask=null_mask(array))

    return fit


def _refuse_twice(keys: pa.Array, ends: NDArray[np.int64], spot: Spot, found: Refusals) -> None:
    """Refuse maps with a duplicate key: it is not known which of the values is meant."""
    lengths = np.diff(ends)
    if not len(keys) or lengths.max() < 2:
        return
    numbers = _number(keys)
    maps = np.repeat(np.arange(len(lengths)), lengths)
    pairs = np.sort(maps * len(keys) + numbers)
    twice = np.unique(pairs[1:][pairs[1:] == pairs[:-1]] // len(keys))
    found.refuse(spot, twice, TWICE)


def _number(keys: pa.Array) -> NDArray[np.int64]:
    """A number for each key, the same for equal ones: 0.0 and -0.0 are equal to Spark, as are NaN and NaN."""
    if kinds.is_nested(keys.type):
        known: dict[object, int] = {}
        return np.array([known.setdefault(_make_plain(key), len(known)) for key in keys.to_pylist()], np.int64)
    if kinds.is_floating(keys.type):
        keys = pc.if_else(pc.is_nan(keys), pa.scalar(np.nan, keys.type), pc.add(keys, pa.scalar(0.0, keys.type)))
    return keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _make_plain(key: object) -> object:
    """A value that Python can look up, with what is equal to Spark alike."""
    if isinstance(key, dict):
        return tuple(map(_make_plain, key.values()))
    if isinstance(key, list | tuple):
        return tuple(map(_make_plain, key))
    return "NaN" if isinstance(key, float) and key != key else key


def _fit_leaf(actual: pa.DataType, node: Node, calendar: Calendar) -> Fit | None:
    kind = node.kind
    is_number = kinds.is_integer(actual) or kinds.is_decimal(actual)
    if kind == "boolean" and kinds.is_boolean(actual):
        return lambda array, spot, found: array
    if kind in BITS and is_number:
        return _by_cast(node, _cast_to_whole, _define_whole(node))
    if kind in _FLOATING and kinds.is_integer(actual):
        return _by_cast(node, _cast, _define_floating(node))
    if kind in _FLOATING and kinds.is_floating(actual):
        return _by_cast(node, _cast_floating, _define_floating(node))
    if kind == "decimal" and is_number:
        return _by_cast(node, _cast_to_decimal, _define_decimal(node))
    if kind == "string" and (is_text(actual) or is_bytes(actual)):
        return _by_cast(node, _cast_to_text, _define_text)
    if kind == "string" and kinds.is_time(actual):
        return lambda array, spot, found: array.cast(pa.string())
    if kinds.is_time(actual) and kind in ("int", "bigint"):
        return _by_cast(node, _cast_number_of_time, _define_whole(node))
    if kind == "binary" and (is_text(actual) or is_bytes(actual)):
        return lambda array, spot, found: _cast_plain(array).cast(pa.binary())
    if kind == "date" and kinds.is_date(actual):
        return _fit_dates(calendar)
    return _fit_timestamp(actual, node, calendar) if kinds.is_timestamp(actual) else None


def _fit_timestamp(actual: pa.TimestampType, node: Node, calendar: Calendar) -> Fit | None:
    if node.kind == "timestamp" or (node.kind == "timestamp_ntz" and actual.tz is None):
        return _fit_times(node, actual.unit, calendar)
    if node.kind == "bigint" and actual.unit == "ns":
        return lambda array, spot, found: array.view(pa.int64())
    return None


def _by_cast(node: Node, cast: Callable[[pa.Array, pa.DataType], pa.Array], define: _Define[_Value]) -> Fit:
    type_ = arrow_type(node)

    def fit(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
        if array.type == type_ and cast in (_cast, _cast_to_whole):
            return array
        try:
            return cast(array, type_)
        except pa.ArrowInvalid:
            return _fit_each(array, type_, define, spot, found)

    return fit


def _fit_each(array: pa.Array, type_: pa.DataType, define: _Define[_Value], spot: Spot, found: Refusals) -> pa.Array:
    """Convert value by value; each distinct value once."""
    if is_text(array.type):
        array = _cast_plain(array).cast(pa.large_binary())  # what is not UTF-8 has no text in Python
    if kinds.is_time(array.type):
        array = array.view(pa.int32() if kinds.is_time32(array.type) else pa.int64())
    known: dict[object, tuple[object, str | None]] = {}
    values: list[object] = []
    places: list[int] = []
    texts: list[str] = []
    for place, value in enumerate(array.to_pylist()):
        if value is None:
            values.append(None)
            continue
        if (defined := known.get(value) if value else None) is None:  # 0.0 and -0.0 are not the same
            defined = known[value] = define(value)
        held, fault = defined
        values.append(held if fault is None else None)
        if fault is not None:
            places.append(place)
            texts.append(fault)
    found.refuse(spot, places, texts)
    return pa.array(values, type_)


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array.cast(type_)


def _cast_floating(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if type_.bit_width >= array.type.bit_width:
        return array.cast(type_)
    narrow = array.cast(type_, safe=False)
    same = pc.or_(pc.equal(narrow.cast(array.type), array), pc.is_nan(array))
    if pc.all(same).as_py() is False:
        raise pa.ArrowInvalid
    return narrow


def _cast_to_whole(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if kinds.is_decimal(array.type):
        array = _bound(array, _DIGITS_OF_LONG)
    return array.cast(type_)


def _cast_to_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if kinds.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    array = _bound(array, type_.precision - type_.scale)
    if array.type.bit_width > type_.bit_width:
        array = array.cast(pa.decimal256(76, type_.scale))
    return array.cast(type_)


def _bound(array: pa.Array, digits: int) -> pa.Array:
    """Raise for decimals with more than ``digits`` digits before the point: Arrow does not notice an overflow when it
    changes the scale."""
    if array.type.bit_width < _BITS_OF_DECIMAL:
        array = array.cast(pa.decimal128(38, array.type.scale))
    edges = pc.min_max(array)
    bound = Decimal((0, (1,), digits))
    if edges["min"].is_valid and not -bound < edges["min"].as_py() <= edges["max"].as_py() < bound:
        raise pa.ArrowInvalid
    return array


def _cast_to_text(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if is_text(array.type):
        array = _cast_plain(array)
        array = array.cast(pa.large_binary() if kinds.is_large_string(array.type) else pa.binary())
    return array.cast(type_)  # looks at the bytes


def _cast_plain(array: pa.Array) -> pa.Array:
    """Texts and bytes without the layout of views."""
    if kinds.is_string_view(array.type) or kinds.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def _cast_number_of_time(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array.view(pa.int32() if kinds.is_time32(array.type) else pa.int64()).cast(type_)


def show_uuids(array: pa.ExtensionArray) -> pa.Array:
    """UUIDs as texts."""
    digits = b"".join(value or bytes(16) for value in array.storage.to_pylist()).hex().encode()
    table = np.frombuffer(digits, "S1").reshape(len(array), 32)
    dashed = np.insert(table, (8, 12, 16, 20), b"-", axis=1)
    texts = pa.Array.from_buffers(pa.binary(36), len(array), [None, pa.py_buffer(dashed.tobytes())])
    return pc.if_else(array.is_valid(), texts.cast(pa.string()), None)


def _define_whole(node: Node) -> _Define[int | Decimal]:
    low, high, fault = -(1 << BITS[node.kind]), (1 << BITS[node.kind]) - 1, describe_misfit(node)

    def define(value: int | Decimal) -> tuple[int, str | None]:
        whole = int(value)
        return whole, None if whole == value and low <= whole <= high else fault

    return define


def _define_floating(node: Node) -> _Define[float]:
    name, is_short = node.type.upper(), node.kind == "float"

    def define(value: float) -> tuple[float, str | None]:
        number = float(value)
        if is_short:
            try:
                number = struct.unpack("f", struct.pack("f", number))[0]
            except OverflowError:
                return number, f"too large for {name}"
        if number == value or number != number:
            return number, None
        whole = "a whole number with more digits" if isinstance(value, int) else "more digits"
        return number, f"{whole} than {name} holds"

    return define


def _define_decimal(node: Node) -> _Define[int | Decimal]:
    digits, scale = node.digits
    return lambda value: read_decimal(str(value), digits, scale)


def _define_text(value: bytes) -> tuple[str, str | None]:
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return "", NOT_UTF8


def _fit_dates(calendar: Calendar) -> Fit:
    def fit(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
        if kinds.is_date32(array.type):
            days = array.view(pa.int32())
        else:
            days = _divide(array.view(pa.int64()), _DAY // 1000, "not a DATE", spot, found)
        days = calendar.rebase(days, 1, spot, found, "DATE")
        return _within(days, _FIRST_DAY, _LAST_DAY, "DATE", spot, found).cast(pa.int32()).view(pa.date32())

    return fit


def _fit_times(node: Node, unit: str, calendar: Calendar) -> Fit:
    type_, name = arrow_type(node), node.type.upper()
    per_second = PER_SECOND[unit]

    def fit(array: pa.Array, spot: Spot, found: Refusals) -> pa.Array:
        numbers = array.view(pa.int64())
        if unit == "ns":
            micros = _divide(numbers, 1000, f"{FINER}; as BIGINT the column has nanoseconds", spot, found)
        else:
            edges = _FIRST_MICRO * per_second // 10**6, _LAST_MICRO * per_second // 10**6
            micros = _within(numbers, *edges, name, spot, found)
            micros = pc.multiply(micros, 10**6 // per_second) if unit != "us" else micros
        micros = calendar.rebase(micros, _DAY, spot, found, name)
        return _within(micros, _FIRST_MICRO, _LAST_MICRO, name, spot, found).view(type_)

    return fit


def _divide(numbers: pa.Array, divisor: int, fault: str, spot: Spot, found: Refusals) -> pa.Array:
    """``numbers`` divided by ``divisor``; those with a remainder are refused."""
    quotients = pc.divide(numbers, divisor)
    uneven = pc.not_equal(pc.multiply(quotients, divisor), numbers)
    if not pc.any(uneven).as_py():
        return quotients
    found.refuse(spot, _where(uneven), fault)
    return pc.if_else(uneven, None, quotients)


def _within(numbers: pa.Array, low: int, high: int, name: str, spot: Spot, found: Refusals) -> pa.Array:
    """``numbers`` of days or parts of a second; those outside of the years that a column holds are refused."""
    edges = pc.min_max(numbers)
    if edges["min"].as_py() is None or (edges["min"].as_py() >= low and edges["max"].as_py() <= high):
        return numbers
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    found.refuse(spot, _where(outside), outside_years(name))
    return pc.if_else(outside, None, numbers)


def _where(wrong: pa.Array) -> NDArray[np.int64]:
    return pc.indices_nonzero(pc.fill_null(wrong, False)).to_numpy()
