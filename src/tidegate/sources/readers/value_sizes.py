"""Measures Arrow values, to find those that are too large for a record.

A few hundred bytes of a file can decode to gigabytes: an array of the same number, forty million times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from tidegate.sources.readers.arrow_nested import is_bytes, is_list, is_text, open_list, open_map


def measure(array: pa.Array) -> Any:
    """The bytes of each value, as integers of numpy; those of what is inside it included."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return measure(array.storage)
    if kinds.is_dictionary(kind):
        return measure(array.dictionary_decode())
    if kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return measure(array.cast(pa.large_binary()))
    if has_any_length(kind):
        return pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if kinds.is_struct(kind):
        return sum((measure(part) for part in array.flatten()), np.zeros(len(array), np.int64))
    if is_list(kind):
        ends, items = open_list(array)
        return _sum_inside(ends, items)
    if kinds.is_map(kind):
        ends, keys, items = open_map(array)
        return _sum_inside(ends, pa.StructArray.from_arrays([keys, items], ["key", "value"]))
    return np.full(len(array), _width(kind) or 1, np.int64)


def has_any_length(kind: pa.DataType) -> bool:
    """Whether a value is a text, or bytes, of any length."""
    return is_text(kind) or (is_bytes(kind) and not kinds.is_fixed_size_binary(kind))


def _sum_inside(ends: Any, items: pa.Array) -> Any:
    if (width := _width(items.type)) is not None:
        return np.diff(ends) * width
    # A text, or a list, in a list takes a few bytes even where it is empty.
    until = np.concatenate([[0], np.cumsum(measure(items) + 4)])
    return until[ends[1:]] - until[ends[:-1]]


def _width(kind: pa.DataType) -> int | None:
    """The bytes of each value of a type; None where they differ."""
    is_any = has_any_length(kind) or kinds.is_nested(kind) or kinds.is_dictionary(kind)
    if is_any or isinstance(kind, pa.BaseExtensionType):
        return None
    return 1 if kinds.is_null(kind) else max(1, int(kind.bit_width) // 8)
