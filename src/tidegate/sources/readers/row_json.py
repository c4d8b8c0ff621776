"""Writes Arrow rows as JSON texts, for quarantined records that had no text.

Times have the digits of their unit, decimals are plain numbers, bytes are base64, NaN and the infinities texts, keys of
maps texts; a byte that is not UTF-8 is U+FFFD; the least time is its number.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from tidegate.sources.readers.arrow_nested import is_bytes, is_list, is_text, open_list, open_map
from tidegate.sources.readers.arrow_values import show_uuids

_MILLISECONDS_OF_DAY = 86_400_000


def write_rows(names: list[str], columns: list[pa.Array], count: int) -> list[str]:
    """Each of ``count`` rows as an object of JSON."""
    return _join(names, [write_values(column) for column in columns], count)


def write_values(array: pa.Array) -> list[str]:
    """Each value of ``array`` as JSON."""
    kind = array.type
    if kinds.is_dictionary(kind):
        return write_values(array.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return write_values(show_uuids(array) if kind.extension_name == "arrow.uuid" else array.storage)
    if kinds.is_struct(kind):
        texts = _join([field.name for field in kind], [write_values(part) for part in array.flatten()], len(array))
    elif is_list(kind):
        ends, items = open_list(array)
        inside = write_values(items)
        texts = [f"[{','.join(inside[begin:end])}]" for begin, end in itertools.pairwise(ends)]
    elif kinds.is_map(kind):
        ends, keys, items = open_map(array)
        named = [key if key.startswith('"') else json.dumps(key, ensure_ascii=False) for key in write_values(keys)]
        pairs = [f"{key}:{value}" for key, value in zip(named, write_values(items), strict=True)]
        texts = [f"{{{','.join(pairs[begin:end])}}}" for begin, end in itertools.pairwise(ends)]
    else:
        write, plain = _writer(array)
        return ["null" if value is None else write(value) for value in plain.to_pylist()]
    if not array.null_count:
        return texts
    return [text if valid else "null" for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)]


def _join(names: list[str], columns: list[list[str]], count: int) -> list[str]:
    if not names:
        return ["{}"] * count
    heads = [json.dumps(name, ensure_ascii=False) for name in names]
    return [
        "{" + ",".join(f"{head}:{text}" for head, text in zip(heads, row, strict=True)) + "}"
        for row in zip(*columns, strict=True)
    ]


def _writer(array: pa.Array) -> tuple[Callable[[Any], str], pa.Array]:
    """How a value of ``array`` is written, and the array in a type whose values Python has."""
    kind = array.type
    if kinds.is_boolean(kind):
        return lambda value: "true" if value else "false", array
    if kinds.is_decimal(kind):
        return lambda value: format(value, "f"), array
    if kinds.is_floating(kind):
        return (_write_double, array) if kinds.is_float64(kind) else (_write_float, array.cast(pa.float32()))
    if is_text(kind):
        return lambda value: json.dumps(value.decode(errors="replace"), ensure_ascii=False), array.cast(
            pa.large_binary()
        )
    if is_bytes(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"', array
    if kinds.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return lambda value: _write_time(value, kind.unit, zone), array.view(pa.int64())
    if kinds.is_date32(kind):
        return lambda value: _write_time(value, "D"), array.view(pa.int32())
    if kinds.is_date64(kind):
        return _write_day, array.view(pa.int64())
    if kinds.is_time(kind):
        return lambda value: f'"{value}"', array.cast(pa.string())
    if kinds.is_duration(kind):
        return str, array.view(pa.int64())
    return lambda value: str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False), array


def _write_time(value: int, unit: Any, zone: str = "") -> str:
    time = np.datetime64(value, unit)
    return str(value) if np.isnat(time) else f'"{time}{zone}"'  # the least number has no text in numpy


def _write_day(value: int) -> str:
    """Milliseconds, of which a day has no part; with its time if it has one."""
    days, rest = divmod(value, _MILLISECONDS_OF_DAY)
    return _write_time(value, "ms") if rest else _write_time(days, "D")


def _write_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')


def _write_float(value: float) -> str:
    """With the fewest digits that identify it: 0.1, not 0.10000000149011612."""
    return str(np.float32(value)) if math.isfinite(value) else _write_double(value)
