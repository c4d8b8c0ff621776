"""Rows as JSON text with the conventions of Spark's ``to_json``, and nulls kept.

Timestamps are ISO 8601 in UTC with microseconds, dates ISO, decimals plain numbers, binary base64, NaN and the
infinities text; keys of maps are text.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Encode = Callable[[Any], str]


def make_encoders(schema_json: str) -> dict[str, Encode]:
    """Return for each column a function from its value (as :func:`to_plain` returns it) to JSON text."""
    return {field["name"]: _or_null(field["type"]) for field in json.loads(schema_json)["fields"]}


def encode_row(row: dict[str, Any], encoders: dict[str, Encode]) -> str:
    """A row as a JSON object, its columns in the schema's order."""
    return "{" + ",".join(f"{_text(name)}:{encode(row[name])}" for name, encode in encoders.items()) + "}"


def to_plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert an Arrow batch to Python rows, with times as microseconds and dates as days since 1970.

    Python's own types for them end in the year 9999."""
    columns = []
    for column in batch.columns:
        for target in (_retype(column.type, micros=False), _retype(column.type, micros=True)):
            column = column.cast(target) if column.type != target else column
        columns.append(column)
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    return rows


def _retype(kind: pa.DataType, *, micros: bool) -> pa.DataType:
    """The type with every timestamp in microseconds (``micros``: as their number), and every date as its number."""
    if pa.types.is_timestamp(kind):
        return pa.int64() if micros else pa.timestamp("us", kind.tz)
    if pa.types.is_date32(kind):
        return pa.int32() if micros else kind
    if pa.types.is_list(kind):
        return pa.list_(_retype(kind.value_type, micros=micros))
    if pa.types.is_map(kind):
        return pa.map_(_retype(kind.key_type, micros=micros), _retype(kind.item_type, micros=micros))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _retype(field.type, micros=micros)) for field in kind])
    return kind


def _or_null(kind: pa.DataType) -> Encode:
    encode = _encoder(kind)
    return lambda value: "null" if value is None else encode(value)


def _encoder(kind: pa.DataType) -> Encode:
    if isinstance(kind, dict):
        if kind["type"] == "array":
            item = _or_null(kind["elementType"])
            return lambda value: "[" + ",".join(item(one) for one in value) + "]"
        if kind["type"] == "map":
            key, item = _encoder(kind["keyType"]), _or_null(kind["valueType"])
            return lambda value: "{" + ",".join(f"{_as_name(key(k))}:{item(v)}" for k, v in value) + "}"
        inner = {field["name"]: _or_null(field["type"]) for field in kind["fields"]}
        return lambda value: encode_row(value, inner)
    if str(kind).startswith("decimal"):
        return lambda value: format(Decimal(value), "f")
    return _PRIMITIVES.get(str(kind), lambda value: _text(str(value)))


def key_encoder(kind: pa.DataType) -> Callable[[Any], str | bytes]:
    """A value as the text of a key: as in JSON, without quotes. Binary stays as it is."""
    if kind == "string":
        return str
    if kind == "binary":
        return bytes
    encode = _encoder(kind)
    return lambda value: encode(value).strip('"') if isinstance(kind, str) else encode(value)


def _as_name(encoded: str) -> str:
    return encoded if encoded.startswith('"') else _text(encoded)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')


def _short_float(value: float) -> str:
    """A 32-bit float with the fewest digits that identify it: 0.1, not 0.10000000149011612."""
    return str(np.float32(value)) if math.isfinite(value) else _float(value)


def _timestamp(micros: int) -> str:
    return f'"{np.datetime64(micros, "us")}Z"'


def _date(days: int) -> str:
    return f'"{np.datetime64(days, "D")}"'


_PRIMITIVES: dict[str, Encode] = {
    "string": _text,
    "long": str,
    "integer": str,
    "short": str,
    "byte": str,
    "double": _float,
    "float": _short_float,
    "boolean": lambda value: "true" if value else "false",
    "binary": lambda value: f'"{base64.b64encode(value).decode()}"',
    "timestamp": _timestamp,
    "date": _date,
}
