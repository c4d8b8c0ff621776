"""Takes nested Arrow arrays apart, ignoring values outside of slices and below nulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from tidegate.sources.readers.values import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rows = Callable[["NDArray[np.int64]"], "NDArray[np.int64]"]
"""Places in an array of numpy -> the records that these values belong to."""


class Spot(NamedTuple):
    """Where the values of an array are: the path of their field, and the record of each."""

    path: str
    rows: Rows

    def below(self, name: str) -> Spot:
        """The field ``name`` of the structs here."""
        return Spot(f"{self.path}.{name}" if self.path else name, self.rows)

    def inside(self, mark: str, ends: NDArray[np.int64]) -> Spot:
        """The items of the lists here; ``ends`` are the bounds of each."""
        return Spot(self.path + mark, lambda places: self.rows(np.searchsorted(ends, places, side="right") - 1))


class Refusals:
    """Faults of the records of a batch, by their place in it."""

    def __init__(self) -> None:
        self.faults: dict[int, list[Fault]] = {}

    def refuse(self, spot: Spot, places: Sequence[int] | NDArray[np.int64], texts: Sequence[str] | str) -> None:
        """Note why the values at ``places`` of ``spot`` do not fit: one text for all, or one for each."""
        if len(places):
            reasons = [texts] * len(places) if isinstance(texts, str) else texts
            for row, text in zip(spot.rows(np.asarray(places)).tolist(), reasons, strict=True):
                self.faults.setdefault(row, []).append(Fault(spot.path, text))


TOP = Spot("", lambda places: places)


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists, of any layout."""
    tests = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_list_view, kinds.is_large_list_view)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are texts, valid or not."""
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values are bytes, of any layout."""
    tests = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def open_list(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """(the bounds of each list in the items, the items); a null has none."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), array.flatten()


def open_map(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """(the bounds of each map in the pairs, the keys, the values); a null has none."""
    ends = array.offsets.to_numpy().astype(np.int64)
    if array.null_count and np.diff(ends)[array.is_null().to_numpy(zero_copy_only=False)].any():
        array = take(array, pa.array(np.arange(len(array))))
        ends = array.offsets.to_numpy().astype(np.int64)
    begin, count = int(ends[0]), int(ends[-1] - ends[0])
    return ends - begin, array.keys.slice(begin, count), array.items.slice(begin, count)


def null_mask(array: pa.Array) -> pa.Array | None:
    """Which values are null; None where none is."""
    return array.is_null() if array.null_count else None


def take(array: pa.Array, places: pa.Array) -> pa.Array:
    """The values at ``places``; where a place is null, a null."""
    try:
        return array.take(places)
    except pa.ArrowNotImplementedError:  # views, and what has them inside
        nothing = pa.nulls(1, array.type)
        one_by_one = (nothing if at is None else array.slice(at, 1) for at in places.to_pylist())
        return pa.concat_arrays([nothing.slice(1), *one_by_one])


def measure(array: pa.Array) -> NDArray[np.int64]:
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
    """Return whether a value is a text, or bytes, of any length."""
    return is_text(kind) or (is_bytes(kind) and not kinds.is_fixed_size_binary(kind))


def _sum_inside(ends: NDArray[np.int64], items: pa.Array) -> NDArray[np.int64]:
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
