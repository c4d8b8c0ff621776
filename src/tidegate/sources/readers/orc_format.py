"""Reads ORC metadata that pyarrow does not expose: types, stripes, calendar, zones, nanoseconds.

(Format: ORC v1 specification; messages are those of its ``orc_proto.proto``.)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.sources.readers.unreadable import DamagedFile

_CODECS = {2: "snappy", 4: "lz4_raw"}
_ZLIB, _LZO, _ZSTD = 1, 3, 5
LONG, TIMESTAMP, TIMESTAMP_INSTANT = 4, 9, 18
_DATA, _LENGTH, _DICTIONARY_DATA, _SECONDARY = 1, 2, 3, 5
_LIST, _MAP, _DECIMAL = 10, 11, 14
_LARGEST_SCALE = 128
"""More than twice the digits of a decimal: scales have a sign, which is not looked at."""
_WITH_DICTIONARY, _SECOND_VERSIONS = (1, 3), (2, 3)
_MOST_ITEMS = 1 << 28
"""Items of the lists, or maps, of one column of a stripe."""
_DIRECT_V2 = 2
_ALL_BITS = (1 << 64) - 1
_JULIAN = 1
_JAVA = 0
_WIDTHS = [*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64]


@dataclass(frozen=True)
class Stripe:
    """``rows`` in the bytes from ``begin``: indexes, then data, then a footer."""

    begin: int
    index: int
    data: int
    footer: int
    rows: int
    message: bytes


@dataclass(frozen=True)
class Type:
    """A type by its number in the file: types inside come behind the one that has them."""

    kind: int
    inside: tuple[int, ...]


class _StripeFooter(NamedTuple):
    """What a stripe says of its columns, by their numbers, and the zone of its writer."""

    encodings: list[int]
    dictionary_sizes: list[int]
    places: dict[tuple[int, int], tuple[int, int]]
    """(column, kind of the stream) -> (where it begins, its bytes)."""
    zone: str


class OrcFooter:
    """The footer of an open file. Raises DamagedFile."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        size = file.seek(0, 2)
        file.seek(max(0, size - 256))
        end = file.read()
        length = end[-1] if end else 0
        if b"ORC" not in end[-1 - length :] or length >= len(end):
            raise DamagedFile("it has no footer: it is cut off, or not an orc file")
        try:
            self._read(end[-1 - length : -1], size)
        except (IndexError, KeyError, ValueError, OverflowError, pa.ArrowException, zlib.error) as error:
            raise DamagedFile("its footer is damaged") from error

    def _read(self, postscript: bytes, size: int) -> None:
        self._postscript = list(read_message(postscript))
        fields = dict(self._postscript)
        self.codec = int(fields.get(2, 0))
        self._block = int(fields.get(3, 262_144))
        length, metadata = int(fields[1]), int(fields.get(5, 0))
        behind = size - 1 - len(postscript)
        self.data_end = behind - length - metadata
        if self.data_end < 0:
            raise ValueError
        self._file.seek(behind - length)
        self._fields = list(read_message(self.unpack(self._file.read(length))))
        self.types = [_read_type(value) for field, value in self._fields if field == 4]
        self.stripes = [_read_stripe(value) for field, value in self._fields if field == 3]
        names = dict(self._fields)
        if sum(stripe.rows for stripe in self.stripes) != names.get(6, 0):
            raise ValueError
        writer, calendar = names.get(9, _JAVA), names.get(11, 0)
        # Java's writers say so since 1.6; before, they all counted so.
        self.is_julian = calendar == _JULIAN or (calendar == 0 and writer == _JAVA)

    def unpack(self, content: bytes) -> bytes:
        """Bytes without compression. What is behind the end of the last piece may be zeros."""
        if self.codec == 0:
            return content
        if self.codec == _LZO:
            raise DamagedFile("its codec lzo is not known")
        pieces, at = [], 0
        while at < len(content):
            head = int.from_bytes(content[at : at + 3], "little")
            piece = content[at + 3 : at + 3 + (head >> 1)]
            at += 3 + (head >> 1)
            pieces.append(piece if head & 1 else self._unpack(piece))
        return b"".join(pieces)

    def _unpack(self, piece: bytes) -> bytes:
        if self.codec == _ZLIB:
            return zlib.decompress(piece, -zlib.MAX_WBITS)
        if self.codec == _ZSTD:
            return bytes(pa.CompressedInputStream(pa.BufferReader(piece), "zstd").read())
        size = self._block
        if _CODECS[self.codec] == "snappy":
            size, _ = _read_varint(piece, 0)
        return bytes(pa.Codec(_CODECS[self.codec]).decompress(piece, size, asbytes=True))

    def tail_of(self, stripe: Stripe) -> bytes:
        """What a file of this one stripe has behind its data, with the seconds of times as whole numbers."""
        fields: list[tuple[int, int | bytes]] = [
            (field, _as_number(value) if field == 4 else value)
            for field, value in self._fields
            if (field != 3 or value is stripe.message) and field not in (6, 7)
        ]
        footer = self._pack(write_message([*fields, (6, stripe.rows)]))
        postscript = write_message(
            [(field, {1: len(footer), 5: 0}.get(field, value)) for field, value in self._postscript]
        )
        return footer + postscript + bytes([len(postscript)])

    def _pack(self, content: bytes) -> bytes:
        """In the framing of compressed pieces, though nothing is compressed."""
        if self.codec == 0:
            return content
        pieces = (content[at : at + self._block] for at in range(0, len(content), self._block))
        return b"".join((len(piece) << 1 | 1).to_bytes(3, "little") + piece for piece in pieces)

    def _read_stripe_footer(self, stripe: Stripe) -> _StripeFooter:
        self._file.seek(stripe.begin + stripe.index + stripe.data)
        footer = list(read_message(self.unpack(self._file.read(stripe.footer))))
        encodings = [dict(read_message(_bytes(value))) for field, value in footer if field == 2]
        begin, places = stripe.begin, dict[tuple[int, int], tuple[int, int]]()
        for field, value in footer:
            if field == 1:
                stream = dict(read_message(_bytes(value)))
                length = _int(stream.get(3, 0))
                places[_int(stream.get(2, 0)), _int(stream.get(1, 0))] = begin, length
                begin += length
        kinds, sizes = ([_int(one.get(field, 0)) for one in encodings] for field in (1, 2))
        return _StripeFooter(kinds, sizes, places, _bytes(dict(footer).get(3, b"UTC")).decode())

    def _read_stream(self, begin: int, length: int) -> bytes:
        self._file.seek(begin)
        return self.unpack(self._file.read(length))

    def read_nanoseconds(self, stripe: Stripe, columns: set[int]) -> tuple[dict[int, NanosecondStream], str]:
        """(the nanoseconds of columns of times, by number; the zone of the writer)."""
        footer, found = self._read_stripe_footer(stripe), {}
        for (column, kind), place in footer.places.items():
            if kind == _SECONDARY and column in columns:
                if footer.encodings[column] != _DIRECT_V2:
                    raise DamagedFile("its times are in the encoding of ORC 0.11")
                found[column] = NanosecondStream(self._read_stream(*place))
        return found, footer.zone

    def check_lengths(self, stripe: Stripe, columns: set[int]) -> None:
        """Look at the lengths of texts, lists and maps of columns, and at the scales of decimals.

        pyarrow believes them: a negative length ends the process, and it counts up to any scale. Raises DamagedFile;
        ValueError and IndexError where they cannot be read.
        """
        footer = self._read_stripe_footer(stripe)
        for (column, kind), place in footer.places.items():
            is_scale = kind == _SECONDARY and self.types[column].kind == _DECIMAL
            if column not in columns or not (kind == _LENGTH or is_scale):
                continue
            encoding = footer.encodings[column]
            most = _MOST_ITEMS
            if not is_scale and self.types[column].kind not in (_LIST, _MAP):
                data = _DICTIONARY_DATA if encoding in _WITH_DICTIONARY else _DATA
                most = self._most_bytes(*footer.places.get((column, data), (0, 0)))
            content = self._read_stream(*place)
            count = total = 0
            for run in _read_runs(content) if encoding in _SECOND_VERSIONS else _read_old_runs(content):
                if is_scale and int(run.max()) > _LARGEST_SCALE:
                    raise DamagedFile("a stripe has decimals with digits that no type has")
                if int(run.max()) > most:  # a negative one is a very large one here
                    raise DamagedFile("a stripe has lengths that are negative, or reach behind its data")
                count, total = count + len(run), total + int(run.sum())
            if (total > most and not is_scale) or (
                encoding in _WITH_DICTIONARY and count < footer.dictionary_sizes[column]
            ):
                raise DamagedFile("a stripe has lengths that are negative, or reach behind its data")

    def _most_bytes(self, begin: int, length: int) -> int:
        """The bytes that a stream of ``length`` at ``begin`` has at most when unpacked."""
        if self.codec == 0:
            return length
        at, most = begin, 0
        while at < begin + length:
            self._file.seek(at)
            head = int.from_bytes(self._file.read(3), "little")
            most += max(head >> 1, self._block)
            at += 3 + (head >> 1)
        return most


class NanosecondStream:
    """The nanoseconds of times, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._runs = _read_runs(content)
        self._left = np.empty(0, np.uint64)

    def take(self, count: int) -> np.ndarray:
        """The next ``count``. Raises ValueError and IndexError where there are fewer."""
        parts, missing = [self._left], count - len(self._left)
        while missing > 0:
            run = next(self._runs, None)
            if run is None:
                raise ValueError
            parts.append(run)
            missing -= len(parts[-1])
        values = np.concatenate(parts)
        self._left = values[count:]
        # Numbers without a sign, and yet pyarrow writes the nanoseconds of times before 1970 as negative ones.
        coded = values[:count].view(np.int64)
        zeros = coded & 7
        return (coded >> 3) * np.where(zeros == 0, 1, 10 ** (zeros + 1))


def _read_runs(content: bytes) -> Iterator[np.ndarray]:
    """Runs of numbers without sign, in the second version of ORC's encoding."""
    at = 0
    while at < len(content):
        head, kind = content[at], content[at] >> 6
        if kind == 0:
            width = ((head >> 3) & 7) + 1
            value = int.from_bytes(content[at + 1 : at + 1 + width])
            yield np.full((head & 7) + 3, value, np.uint64)
            at += 1 + width
            continue
        code, length = (head >> 1) & 31, ((head & 1) << 8 | content[at + 1]) + 1
        width = _WIDTHS[code]
        at += 2
        if kind == 1:
            yield _unpack_bits(content, at, length, width)
            at += (length * width + 7) // 8
        elif kind == 2:
            base_bytes, patch_width = (content[at] >> 5) + 1, _WIDTHS[content[at] & 31]
            gap_width, patches = (content[at + 1] >> 5) + 1, content[at + 1] & 31
            at += 2
            base = int.from_bytes(content[at : at + base_bytes])
            sign = 1 << (8 * base_bytes - 1)
            base = -(base ^ sign) if base & sign else base
            at += base_bytes
            values = _unpack_bits(content, at, length, width)
            at += (length * width + 7) // 8
            patch_bits = next(one for one in _WIDTHS if one >= gap_width + patch_width)
            place = 0
            for patch in _unpack_bits(content, at, patches, patch_bits).tolist():
                place += patch >> patch_width
                values[place] |= np.uint64((patch & ((1 << patch_width) - 1)) << width)
            at += (patches * patch_bits + 7) // 8
            yield values + np.uint64(base & _ALL_BITS)
        else:
            base, at = _read_varint(content, at)
            delta, at = _read_varint(content, at)
            delta = (delta >> 1) ^ -(delta & 1)
            steps = np.full(length - 1, delta, np.int64)
            if code and length > 2:
                steps[1:] = _unpack_bits(content, at, length - 2, width).astype(np.int64) * (-1 if delta < 0 else 1)
                at += ((length - 2) * width + 7) // 8
            yield np.concatenate([[0], np.cumsum(steps)]).astype(np.uint64) + np.uint64(base & _ALL_BITS)


def _read_old_runs(content: bytes) -> Iterator[np.ndarray]:
    """Runs of numbers without sign, in the first version of the encoding."""
    at = 0
    while at < len(content):
        head = content[at]
        if head < 128:
            step = content[at + 1] - 256 if content[at + 1] > 127 else content[at + 1]
            base, at = _read_varint(content, at + 2)
            numbers = [base + step * number for number in range(head + 3)]
        else:
            numbers, at = [], at + 1
            for _ in range(256 - head):
                number, at = _read_varint(content, at)
                numbers.append(number)
        yield np.array([number & _ALL_BITS for number in numbers], np.uint64)


def _unpack_bits(content: bytes, at: int, count: int, width: int) -> np.ndarray:
    """``count`` numbers of ``width`` bits each, the high bit first."""
    size = (count * width + 7) // 8
    bits = np.unpackbits(np.frombuffer(content, np.uint8, size, at), count=count * width).reshape(count, width)
    padded = np.zeros((count, 64), np.uint8)
    padded[:, 64 - width :] = bits
    return np.packbits(padded, axis=1).view(">u8").reshape(count).astype(np.uint64)


def read_message(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of the fields of a message; zeros behind it are skipped."""
    at = 0
    while at < len(content) and content[at]:
        tag, at = _read_varint(content, at)
        if tag & 7 == 0:
            value, at = _read_varint(content, at)
            yield tag >> 3, value
            continue
        if tag & 7 == 2:
            length, at = _read_varint(content, at)
        elif tag & 7 in (1, 5):
            length = 8 if tag & 7 == 1 else 4
        else:
            raise ValueError
        if at + length > len(content):
            raise ValueError
        yield tag >> 3, content[at : at + length]
        at += length


def write_message(fields: list[tuple[int, int | bytes]]) -> bytes:
    """The reverse, of fields that are whole numbers or bytes."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            parts.append(_varint(number << 3 | 2) + _varint(len(value)) + value)
    return b"".join(parts)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_type(content: int | bytes) -> Type:
    inside: list[int] = []
    kind = 0
    for field, value in read_message(_bytes(content)):
        if field == 1:
            kind = _int(value)
        elif field == 2 and isinstance(value, int):
            inside.append(value)
        elif field == 2:
            at, packed = 0, _bytes(value)
            while at < len(packed):
                one, at = _read_varint(packed, at)
                inside.append(one)
    return Type(kind, tuple(inside))


def _as_number(content: int | bytes) -> bytes:
    """A type with its times as whole numbers."""
    fields = list(read_message(_bytes(content)))
    return write_message(
        [(field, LONG if field == 1 and value in (TIMESTAMP, TIMESTAMP_INSTANT) else value) for field, value in fields]
    )


def _read_stripe(content: int | bytes) -> Stripe:
    fields = {field: _int(value) for field, value in read_message(_bytes(content)) if isinstance(value, int)}
    begin, index, data, footer, rows = (fields.get(number, 0) for number in range(1, 6))
    return Stripe(begin, index, data, footer, rows, _bytes(content))


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError
    return value
