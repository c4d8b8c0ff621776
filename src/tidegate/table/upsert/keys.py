"""The keys of a table in update mode: which columns can be keys, and which rows have equal keys.

NULL equals NULL here: a new row without a customer replaces the one row without a customer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.spec.faults import name_nearest
from tidegate.table import errors
from tidegate.table.schema import normalise_schema, type_text

KeyTypes = Mapping[str, str]
"""Each key column, spelled as in the rows, with its Delta type."""

_KEY_TYPES = ("string", "long", "integer", "short", "byte", "boolean", "date", "timestamp", "binary")


def check_keys(keys: Sequence[str], schema_json: str) -> dict[str, str]:
    """The key columns, spelled as in the rows, with their types.

    Raises UsageError TABLE_KEYS when the rows do not have one, or its values cannot be compared reliably: floats have
    NaN and two zeros, and engines disagree on lists and structs.
    """
    types = {field["name"]: field["type"] for field in json.loads(normalise_schema(schema_json))["fields"]}
    spelt = {name.lower(): name for name in types}
    found: dict[str, str] = {}
    faults = []
    for key in keys:
        name = spelt.get(key.lower())
        if name is None:
            nearest = name_nearest(key, types)
            faults.append(f"the rows have no column {key!r}" + (f" (is it {nearest!r}?)" if nearest else ""))
        elif not (types[name] in _KEY_TYPES or str(types[name]).startswith("decimal")):
            faults.append(
                f"column {name!r} is {type_text(types[name])}, and values of this type cannot be compared reliably"
            )
        else:
            found[name] = types[name]
    if not keys:
        faults.append("there are none")
    if faults:
        raise errors.TABLE_KEYS(where="pipeline.yaml, table.keys", faults="; ".join(faults), columns=", ".join(types))
    return found


def read_keys(path: Path, partition: Mapping[str, str | None], types: KeyTypes, groups: Sequence[int]) -> pa.Table:
    """Read the keys of the rows in some row groups of a file, as an Arrow table of the columns of ``types``, in order.

    A column that is not in the file is a partition column, or was added to the table later (NULL).
    """
    with pq.ParquetFile(storage.address(path)) as file:
        stored = [name for name in types if name in file.schema_arrow.names]
        part = file.read_row_groups(list(groups), columns=stored)
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
    columns = {}
    for name, kind in types.items():
        if name in stored:
            columns[name] = part.column(name).cast(arrow_type(kind), safe=False)
        else:
            text = pa.scalar(partition.get(name) or None, pa.string())
            columns[name] = pa.chunked_array([pa.repeat(text.cast(arrow_type(kind)), rows)])
    return pa.table(columns)


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type in which the values of a key column are compared; strings may exceed 2 GB in total."""
    if kind.startswith("decimal"):
        precision, _, scale = kind.removeprefix("decimal").strip("()").partition(",")
        return pa.decimal128(int(precision or 10), int(scale or 0))
    return {
        "string": pa.large_string(), "binary": pa.large_binary(), "long": pa.int64(), "integer": pa.int32(),
        "short": pa.int16(), "byte": pa.int8(), "boolean": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[kind]  # fmt: skip


class KeyIndex:
    """Gives each of the known keys a number, by which rows are compared.

    The values of the first column are numbered, then the pairs (number so far, number in the next column), and so on.
    So keys are not concatenated as text, and NULL needs no special case.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        self._number(keys, learn=True)

    def find(self, keys: pa.Table) -> pa.ChunkedArray:
        """The number of each row's key; NULL for an unknown key."""
        return self._number(keys, learn=False)

    def _number(self, keys: pa.Table, *, learn: bool) -> pa.ChunkedArray:
        total: pa.ChunkedArray | None = None
        for position, column in enumerate(keys.columns):
            if learn:
                self._values.append(pc.unique(column))
            values = self._values[position]
            number = pc.index_in(column, value_set=values)
            if total is None:
                total = number
                continue
            pair = pc.add(pc.multiply(total.cast(pa.int64()), len(values)), number.cast(pa.int64()))
            if learn:
                self._pairs.append(pc.unique(pair))
            total = pc.index_in(pair, value_set=self._pairs[position - 1])
        return total


def find_repeated(keys: pa.Table, numbers: pa.ChunkedArray, at_most: int = 3) -> list[str]:
    """A few keys that more than one row has, as text; ``numbers`` are from a :class:`KeyIndex`."""
    if len(pc.unique(numbers)) == len(numbers):
        return []
    counts = pc.value_counts(numbers)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1)).slice(0, at_most)
    rows = keys.take(pa.array([pc.index(numbers, number).as_py() for number in repeated], pa.int64()))
    return [
        ", ".join(f"{name}={_text(rows.column(name)[row])}" for name in rows.column_names) for row in range(len(rows))
    ]


def _text(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    shown = repr(value.as_py()) if pa.types.is_large_binary(value.type) else str(value.cast(pa.string()))
    return shown if len(shown) <= 80 else shown[:77] + "..."


def join_keys(tables: Iterable[pa.Table], types: KeyTypes) -> pa.Table:
    """Concatenate tables of :func:`read_keys`; without tables, the result has no rows."""
    empty = pa.table({name: pa.array([], arrow_type(kind)) for name, kind in types.items()})
    return pa.concat_tables([empty, *tables])
