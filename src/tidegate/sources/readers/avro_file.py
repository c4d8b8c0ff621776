"""Avro object container files: their header, whether they are whole, and how large their blocks are.

(Format: Avro 1.12 specification, "Object Container Files".)
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa

from tidegate.sources.readers.avro_types import NotAvro as NotAvro

CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
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
    """The header of a file. Raises NotAvro, OSError."""
    with path.open("rb") as file:
        return _read_header(file)


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of a file to its end; what is in them is not read. Raises NotAvro where it is damaged; OSError."""
    size = path.stat().st_size
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
            yield block


def count_records(path: Path) -> int:
    """How many records the blocks of a file say they have. Raises NotAvro, OSError."""
    return sum(block.records for block in read_blocks(path))


def make_empty() -> bytes:
    """A file of no rows and no columns."""
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
        raise NotAvro(f"its codec {codec[:40]!r} is not one of {', '.join(CODECS)}")
    try:
        schema = json.loads(entries[b"avro.schema"])
        texts = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in entries.items()}
        return Header(schema, codec, sync, texts)
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


def unpack_block(content: bytes, codec: str, limit: int) -> bytes:
    """What the content of a block is unpacked, no more than ``limit`` bytes and one. Raises NotAvro."""
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
    except NotAvro:
        raise
    except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, pa.ArrowException) as error:
        raise NotAvro("a block cannot be unpacked") from error


def _unpack_snappy(content: bytes, limit: int) -> bytes:
    """It ends with a checksum."""
    length = _snappy_length(content)
    if length > limit:
        return bytes(limit + 1)
    unpacked = bytes(pa.Codec("snappy").decompress(content[:-4], length, asbytes=True))
    if zlib.crc32(unpacked) != int.from_bytes(content[-4:]):
        raise NotAvro("the checksum of a block is wrong")
    return unpacked


def _snappy_length(content: bytes) -> int:
    """The length that a snappy block says it has when unpacked: it begins with it, seven bits a byte."""
    value = 0
    for number, byte in enumerate(content[:5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value
    raise ValueError("not a snappy block")
