"""Avro files made by hand, for rows in plain Python: nothing of Spark's or tidegate's reading is believed."""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

SYNC = bytes(range(16))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def number(value: int) -> bytes:
    """A zigzag number."""
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def datum(schema: Any, value: Any) -> bytes:
    """A value of a schema; of a union a pair: which choice, and its value."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, list):
        return number(value[0]) + datum(schema[value[0]], value[1])
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([value])
    if kind in ("int", "long"):
        return number(value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind in ("bytes", "string"):
        return text(value.encode() if isinstance(value, str) else value)
    if kind == "fixed":
        return bytes(value)
    if kind == "enum":
        return number(schema["symbols"].index(value))
    if kind == "array":
        items = b"".join(datum(schema["items"], one) for one in value)
        return (number(len(value)) + items if value else b"") + b"\0"
    if kind == "map":
        items = b"".join(datum("string", key) + datum(schema["values"], one) for key, one in value.items())
        return (number(len(value)) + items if value else b"") + b"\0"
    return b"".join(datum(one["type"], value[one["name"]]) for one in schema["fields"])


def record(fields: dict[str, Any], name: str = "row") -> dict[str, Any]:
    """A schema of named fields."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def header(schema: Any, codec: str | None = "null") -> bytes:
    entries = {"avro.schema": json.dumps(schema)} | ({"avro.codec": codec} if codec else {})
    pairs = b"".join(text(key.encode()) + text(value.encode()) for key, value in entries.items())
    return b"Obj\x01" + number(len(entries)) + pairs + b"\0" + SYNC


def pack(schema: Any, rows: Sequence[Any], codec: str = "null", rows_in_block: int = 2) -> bytes:
    """A whole file."""
    blocks = []
    for first in range(0, len(rows), rows_in_block):
        some = rows[first : first + rows_in_block]
        content = PACK[codec](b"".join(datum(schema, row) for row in some))
        blocks.append(number(len(some)) + number(len(content)) + content + SYNC)
    return header(schema, codec) + b"".join(blocks)
