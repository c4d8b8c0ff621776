"""Avro object container files without Spark: the types that the header tells, whether the file is whole, how large its
blocks are.

Spark reads a file of no bytes as one without rows, a long as a time where the schema says so, and fails with a
NullPointerException where the end of a file is missing; it must not come to that. (Format: Avro 1.12 specification,
"Object Container Files". Types: Spark 4.2's ``SchemaConverters``, each tried.)
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow as pa

SPARK_FORMAT = "org.apache.spark.sql.avro.AvroFileFormat"
"""Spark's own jars have this class; the short name ``avro`` asks for the jar of spark-avro."""
CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONGEST_VARINT = 10
_LONGEST_HEADER_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20


class NotAvro(ValueError):
    """Why a file cannot be read as Avro, in words."""


@dataclass(frozen=True)
class Header:
    """What a file begins with: its schema as JSON, the codec of its blocks, and the mark that ends each block."""

    schema: object
    codec: str
    sync: bytes


@dataclass(frozen=True)
class Block:
    """``records`` in ``length`` bytes at ``begin``, packed by the codec."""

    records: int
    begin: int
    length: int


def read_header(path: Path) -> Header:
    """The header of a file. Raises NotAvro, OSError."""
    with path.open("rb") as file:
        return _read_header(file)


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of a file to its end; what is in them is not read. Raises NotAvro where it is damaged, and where Spark
    would take the middle of the file for its end; OSError."""
    size = path.stat().st_size
    empty = 0
    with path.open("rb") as file:
        header = _read_header(file)
        while file.tell() < size:
            begin = file.tell()
            records, length = _read_long(file), _read_long(file)
            if records < 0 or not 0 <= length <= size - file.tell() - _SYNC_BYTES:
                raise NotAvro(f"cut off or damaged in the block at byte {begin:,} of {size:,}")
            block = Block(records, file.tell(), length)
            file.seek(length, os.SEEK_CUR)
            if file.read(_SYNC_BYTES) != header.sync:
                raise NotAvro(f"the block at byte {begin:,} of {size:,} does not end with the file's sync marker")
            if records and empty > 1:  # Spark's reader looks behind one of them only
                raise NotAvro(f"the block at byte {begin:,} of {size:,} follows {empty} empty ones; Spark skips it")
            empty = 0 if records else empty + 1
            yield block


def count_records(path: Path) -> int:
    """How many records the blocks of a file say they have. Raises NotAvro, OSError."""
    return sum(block.records for block in read_blocks(path))


def find_large_blocks(path: Path, limit: int) -> Iterator[str]:
    """Blocks that take more than ``limit`` bytes in memory, in words. Raises NotAvro, OSError.

    A writer ends a block as soon as it has some ten kilobytes, so a block that is far larger ends with a record that
    is; which one it is only decoding would tell.
    """
    codec = read_header(path).codec
    before = 0
    with path.open("rb") as file:
        for block in read_blocks(path):
            file.seek(block.begin)
            if block.length > limit or _is_larger(file.read(block.length), codec, limit):
                first, last = before + 1, before + block.records
                which = f"record {first:,}" if first == last else f"one of the records {first:,} to {last:,}"
                yield f"{which}: the block has more than {limit:,} bytes"
            before += block.records


def read_columns(header: Header) -> dict[str, pa.DataType]:
    """{name: arrow type} of a file's columns, as Spark sees them. Raises NotAvro where Spark cannot read them."""
    try:
        kind = _Types().arrow(header.schema, "")
    except NotAvro:
        raise
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise NotAvro("its header has no schema that can be read") from error
    if not pa.types.is_struct(kind):
        raise NotAvro("its schema is not a record, so it has no columns")
    return {field.name: field.type for field in kind}


def make_empty() -> bytes:
    """A file of no rows and no columns: Spark fills the missing ones with nulls, of which there are none."""
    schema = b'{"type":"record","name":"nothing","fields":[]}'
    return _MAGIC + b"\x02" + _text(b"avro.schema") + _text(schema) + b"\x00" + bytes(_SYNC_BYTES)


def _read_header(file: IO[bytes]) -> Header:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise NotAvro("it does not begin as an Avro object container file")
    entries: dict[bytes, bytes] = {}
    while count := _read_long(file):
        if count < 0:  # followed by the bytes of the entries
            count = -count
            _read_long(file)
        for _ in range(count):
            key = _read_bytes(file)
            entries[key] = _read_bytes(file)
    sync = file.read(_SYNC_BYTES)
    if len(sync) < _SYNC_BYTES:
        raise NotAvro("it is cut off in its header")
    codec = entries.get(b"avro.codec", b"null").decode("ascii", "replace")
    if codec not in CODECS:
        raise NotAvro(f"its codec {codec[:40]!r} is none of {', '.join(CODECS)}")
    try:
        return Header(json.loads(entries[b"avro.schema"]), codec, sync)
    except (KeyError, ValueError, RecursionError) as error:
        raise NotAvro("its header has no schema that can be read") from error


def _read_long(file: IO[bytes]) -> int:
    """A zigzag number of at most 64 bits."""
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = file.read(1)
        if not byte:
            raise NotAvro("it is cut off within a number")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise NotAvro(f"a number before byte {file.tell():,} is too long")


def _read_bytes(file: IO[bytes]) -> bytes:
    length = _read_long(file)
    if not 0 <= length <= _LONGEST_HEADER_BYTES:
        raise NotAvro("its header is damaged")
    value = file.read(length)
    if len(value) < length:
        raise NotAvro("it is cut off in its header")
    return value


def _text(value: bytes) -> bytes:
    """A text of less than 64 bytes, or of less than 8,192, with its length before it."""
    length = len(value) << 1
    head = bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])
    return head + value


def _is_larger(content: bytes, codec: str, limit: int) -> bool:
    """Whether a block takes more than ``limit`` bytes when it is unpacked; it is unpacked no further than that. One
    that cannot be unpacked is left to Spark, which fails on it."""

    try:
        if codec == "null":
            return len(content) > limit
        if codec == "deflate":
            return len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, limit + 1)) > limit
        if codec == "bzip2":
            return len(bz2.BZ2Decompressor().decompress(content, limit + 1)) > limit
        if codec == "xz":
            return len(lzma.LZMADecompressor().decompress(content, limit + 1)) > limit
        if codec == "snappy":
            return _snappy_length(content) > limit
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            left = limit + 1
            while left > 0 and (some := stream.read(min(left, _CHUNK_BYTES))):
                left -= len(some)
            return left <= 0
    except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, pa.ArrowException):
        return False


def _snappy_length(content: bytes) -> int:
    """The length that a snappy block says it has when unpacked: it begins with it, seven bits a byte."""
    value = 0
    for number, byte in enumerate(content[:5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value
    raise ValueError("no snappy block")


class _Types:
    """Arrow types of Avro schemas; ``_named`` are the records, enums and fixed types that were met, None for a record
    that is still being read."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def arrow(self, schema: object, namespace: str) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._plain(schema, {}, namespace)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise NotAvro(f"its schema has no type at {json.dumps(schema)[:80]}")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.arrow(kind, namespace)
        if kind == "array":
            return pa.list_(self.arrow(schema.get("items"), namespace))
        if kind == "map":
            return pa.map_(pa.string(), self.arrow(schema.get("values"), namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, namespace)
        return self._plain(kind, schema, namespace)

    def _define(self, kind: str, schema: Mapping[str, object], namespace: str) -> pa.DataType:
        name = str(schema.get("name", ""))
        inside = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace) or "")
        full = _full_name(name, inside)
        found: pa.DataType
        if kind == "enum":
            found = pa.string()
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or size < 0:
                raise NotAvro(f"its fixed type {name} has no size")
            found = _decimal(schema) or pa.binary(size)
        else:
            self._named[full] = None
            fields = schema.get("fields")
            if not isinstance(fields, list):
                raise NotAvro(f"its record {name} has no fields")
            found = pa.struct([(str(one.get("name")), self.arrow(one.get("type"), inside)) for one in fields])
        self._named[full] = found
        return found

    def _plain(self, kind: str, schema: Mapping[str, object], namespace: str) -> pa.DataType:
        plain: dict[str, object] = {
            "null": pa.null(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "bytes": pa.binary(),
            "string": pa.string(),
        }
        logical = {
            ("int", "date"): pa.date32(),
            ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
            ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
            ("long", "local-timestamp-millis"): pa.timestamp("ms"),
            ("long", "local-timestamp-micros"): pa.timestamp("us"),
        }
        if kind in plain:
            decimal = _decimal(schema) if kind == "bytes" else None
            return decimal or logical.get((kind, str(schema.get("logicalType"))), plain[kind])
        for full in (_full_name(kind, namespace), kind):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise NotAvro(f"its record {kind} has itself inside, which Spark cannot read")
                return found
        raise NotAvro(f"its schema has the unknown type {kind[:80]!r}")

    def _union(self, choices: list[object], namespace: str) -> pa.DataType:
        """Null and another type is that type; whole numbers, or floating ones, are the wider of the two; other choices
        are a struct with a member for each, of which one is filled."""
        kinds = [self.arrow(one, namespace) for one in choices if one != "null" and one != {"type": "null"}]
        if len(kinds) < 2:
            return kinds[0] if kinds else pa.null()
        if len(kinds) == 2:
            for narrow, wide in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
                if narrow in kinds and wide in kinds:
                    return wide
        return pa.struct([(f"member{number}", kind) for number, kind in enumerate(kinds)])


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    if schema.get("logicalType") != "decimal":
        return None
    try:
        return pa.decimal256(int(schema["precision"]), int(schema.get("scale", 0)))
    except (KeyError, TypeError, ValueError) as error:
        raise NotAvro(f"its decimal {json.dumps(schema)[:80]} cannot be read") from error


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
