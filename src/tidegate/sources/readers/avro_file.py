"""Avro object container files: their header, whether they are whole, and how large their blocks are.

(Format: Avro 1.12 specification, "Object Container Files".)
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from tidegate.sources.readers.links import open_link, size_link
from tidegate.sources.readers.unreadable import DamagedFile


@dataclass(frozen=True)
class Datum:
    """A type of Avro: ``kind`` is how its values are written, ``arrow`` what holds them.

    A record has its fields, an array its items, a map its values, a union its choices ``inside``. ``detail`` is the
    size of a fixed type, or the symbols of an enum.
    """

    kind: str
    arrow: pa.DataType
    inside: tuple[Datum, ...] = ()
    detail: int | Sequence[bytes] | None = None


def read_schema(schema: object) -> Datum:
    """Read the record of a schema. Raises DamagedFile when it is not a record."""
    try:
        found = _Types().read(schema, "")
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise DamagedFile("its header has no schema that can be read") from error
    if found.kind != "record":
        raise DamagedFile("its schema is not a record, so it has no columns")
    return found


class _Types:
    """Reads types; ``_named`` are the records, enums and fixed types that were met, None for a record that is still
    being read."""

    def __init__(self) -> None:
        self._named: dict[str, Datum | None] = {}

    def read(self, schema: object, namespace: str) -> Datum:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._plain(schema, {}, namespace)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise DamagedFile(f"its schema has no type at {json.dumps(schema)[:80]}")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace)
        if kind == "array":
            item = self.read(schema.get("items"), namespace)
            return Datum(kind, pa.list_(item.arrow), (item,))
        if kind == "map":
            item = self.read(schema.get("values"), namespace)
            return Datum(kind, pa.map_(pa.string(), item.arrow), (item,))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, namespace)
        return self._plain(kind, schema, namespace)

    def _define(self, kind: str, schema: Mapping[str, object], namespace: str) -> Datum:
        name = str(schema.get("name", ""))
        inside = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace) or "")
        full = _full_name(name, inside)
        if kind == "enum":
            found = Datum(kind, pa.string(), detail=_read_symbols(schema.get("symbols"), name))
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or size < 0:
                raise DamagedFile(f"its fixed type {name} has no size")
            found = Datum(kind, _decimal(schema) or pa.binary(size), detail=size)
        else:
            self._named[full] = None
            fields = schema.get("fields")
            if not isinstance(fields, list):
                raise DamagedFile(f"its record {name} has no fields")
            read = tuple(self.read(one.get("type"), inside) for one in fields)
            names = [str(one.get("name")) for one in fields]
            arrow = pa.struct([(name, one.arrow) for name, one in zip(names, read, strict=True)])
            found = Datum("record", arrow, read)
        self._named[full] = found
        return found

    def _plain(self, kind: str, schema: Mapping[str, object], namespace: str) -> Datum:
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
            return Datum(kind, decimal or logical.get((kind, str(schema.get("logicalType"))), plain[kind]))
        for full in (_full_name(kind, namespace), kind):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise DamagedFile(f"its record {kind} contains itself, which no column can hold")
                return found
        raise DamagedFile(f"its schema has the unknown type {kind[:80]!r}")

    def _union(self, choices: list[object], namespace: str) -> Datum:
        """Null and another type is that type; whole numbers, or floating ones, are the wider of the two; other choices
        are a struct with a member for each, of which one is filled."""
        read = tuple(self.read(one, namespace) for one in choices)
        kinds = [one.arrow for one in read if one.kind != "null"]
        if len(kinds) < 2:
            return Datum("union", kinds[0] if kinds else pa.null(), read)
        if len(kinds) == 2:
            for narrow, wide in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
                if narrow in kinds and wide in kinds:
                    return Datum("union", wide, read)
        return Datum("union", pa.struct([(f"member{number}", kind) for number, kind in enumerate(kinds)]), read)


def _read_symbols(symbols: object, name: str) -> list[bytes]:
    if not isinstance(symbols, list):
        raise DamagedFile(f"its enum {name} has no symbols")
    return [str(symbol).encode() for symbol in symbols]


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    if schema.get("logicalType") != "decimal":
        return None
    try:
        return pa.decimal256(int(schema["precision"]), int(schema.get("scale", 0)))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"its decimal {json.dumps(schema)[:80]} cannot be read") from error


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
EMPTY = _MAGIC + b'\x02\x16avro.schema\\{"type":"record","name":"nothing","fields":[]}\0' + bytes(_SYNC_BYTES)
"""A file of no rows and no columns: one entry, its key and its value with their lengths, no further one, the mark."""
_LONGEST_VARINT = 10
_LONGEST_HEADER_BYTES = 64 << 20


@dataclass(frozen=True)
class Header:
    """What a file begins with: its schema as JSON, the codec of its blocks, the mark that ends each block, and all
    entries as texts."""

    schema: object
    codec: str
    sync: bytes
    entries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """``records`` in ``length`` bytes at ``begin``, packed by the codec."""

    records: int
    begin: int
    length: int


def read_header(path: Path) -> Header:
    """The header of a file. Raises DamagedFile, OSError."""
    with open_link(path) as file:
        return _read_header(file)


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of a file to its end; what is in them is not read. Raises DamagedFile where it is damaged; OSError."""
    size = size_link(path)
    with open_link(path) as file:
        header = _read_header(file)
        while file.tell() < size:
            begin = file.tell()
            records, length = _read_long(file), _read_long(file)
            if records < 0 or not 0 <= length <= size - file.tell() - _SYNC_BYTES:
                raise DamagedFile(f"cut off or damaged in the block at byte {begin:,} of {size:,}")
            block = Block(records, file.tell(), length)
            file.seek(length, os.SEEK_CUR)
            if file.read(_SYNC_BYTES) != header.sync:
                raise DamagedFile(f"the block at byte {begin:,} of {size:,} does not end with the file's sync marker")
            yield block


def _read_header(file: IO[bytes]) -> Header:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DamagedFile("it does not begin as an Avro object container file")
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
        raise DamagedFile("it is cut off in its header")
    codec = entries.get(b"avro.codec", b"null").decode("ascii", "replace")
    if codec not in CODECS:
        raise DamagedFile(f"its codec {codec[:40]!r} is not one of {', '.join(CODECS)}")
    try:
        schema = json.loads(entries[b"avro.schema"])
        texts = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in entries.items()}
        return Header(schema, codec, sync, texts)
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFile("its header has no schema that can be read") from error


def _read_long(file: IO[bytes]) -> int:
    """A zigzag number of at most 64 bits."""
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = file.read(1)
        if not byte:
            raise DamagedFile("it is cut off within a number")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise DamagedFile(f"a number before byte {file.tell():,} is too long")


def _read_bytes(file: IO[bytes]) -> bytes:
    length = _read_long(file)
    if not 0 <= length <= _LONGEST_HEADER_BYTES:
        raise DamagedFile("its header is damaged")
    value = file.read(length)
    if len(value) < length:
        raise DamagedFile("it is cut off in its header")
    return value


def unpack_block(content: bytes, codec: str, limit: int) -> bytes:
    """What the content of a block is unpacked, no more than ``limit`` bytes and one. Raises DamagedFile."""
    try:
        if codec == "null":
            return content
        if codec == "deflate":
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, limit + 1)
        if codec == "bzip2":
            return bz2.BZ2Decompressor().decompress(content, limit + 1)
        if codec == "xz":
            return lzma.LZMADecompressor().decompress(content, limit + 1)
        if codec == "snappy":
            return _unpack_snappy(content, limit)
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            return bytes(stream.read(limit + 1))
    except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, pa.ArrowException) as error:
        raise DamagedFile("a block cannot be unpacked") from error


def _unpack_snappy(content: bytes, limit: int) -> bytes:
    """It ends with a checksum."""
    length = _snappy_length(content)
    if length > limit:
        return bytes(limit + 1)
    unpacked = bytes(pa.Codec("snappy").decompress(content[:-4], length, asbytes=True))
    if zlib.crc32(unpacked) != int.from_bytes(content[-4:]):
        raise DamagedFile("the checksum of a block is wrong")
    return unpacked


def _snappy_length(content: bytes) -> int:
    """The length that a snappy block says it has when unpacked: it begins with it, seven bits a byte."""
    value = 0
    for number, byte in enumerate(content[:5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value
    raise ValueError("not a snappy block")
