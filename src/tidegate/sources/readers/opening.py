"""Opens files in workers: decompressed by their suffix, with faults of the file distinguished from those of a
record."""

from __future__ import annotations

import base64
import bz2
import codecs
import contextlib
import functools
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tidegate.sources.readers.links import find_source, open_link, size_link
from tidegate.sources.readers.unreadable import DamagedFile, PartUnreadable, make_fault
from tidegate.spec.encodings import is_wide, unit_bytes, wide_codec

_DECODED_BYTES = 1 << 20
_LOST = re.compile(b"\xff([\x80-\x8f])([\x80-\x8f])")
_MARKS = "tidegate_marks"


def is_utf8(text: bytes) -> bool:
    """Return whether all of ``text`` is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_file(file: BinaryIO, encoding: str) -> tuple[BinaryIO, str]:
    """(``file``, at its beginning, as a file in UTF-8 without its byte order mark; its codec, in its byte order)."""
    if codecs.lookup(encoding).name == "utf-8":
        return file, encoding
    head = b""
    if is_wide(encoding):
        head = file.read(unit_bytes(encoding))
        encoding, mark = wide_codec(encoding, head)
        head = head[mark:]
    return io.BufferedReader(_Pieces(_decode(file, head, encoding)), _DECODED_BYTES), encoding


def encode_original(text: bytes, codec: str) -> bytes:
    """The bytes that ``text`` had in its file, as base64."""
    if codecs.lookup(codec).name == "utf-8":
        return base64.b64encode(text)
    codec = wide_codec(codec, b"")[0] if is_wide(codec) else codec
    pieces, at = [], 0
    for match in _LOST.finditer(text):
        high, low = match[1][0] & 15, match[2][0] & 15
        pieces += [text[at : match.start()].decode().encode(codec), bytes([high << 4 | low])]
        at = match.end()
    return base64.b64encode(b"".join([*pieces, text[at:].decode().encode(codec)]))


class _Pieces(io.RawIOBase):
    """The ``pieces``, some of which may be empty, as a file; ``file`` is closed with it."""

    def __init__(self, pieces: Iterator[bytes], file: BinaryIO | None = None) -> None:
        self._pieces, self._file = pieces, file
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def _decode(file: BinaryIO, begun: bytes, codec: str) -> Iterator[bytes]:
    """The text of ``file``, of which ``begun`` was read already, in UTF-8."""
    decoder = codecs.getincrementaldecoder(codec)(errors=_MARKS)
    while chunk := file.read(_DECODED_BYTES):
        yield decoder.decode(begun + chunk).encode("utf-8", "surrogateescape")
        begun = b""
    yield decoder.decode(begun, final=True).encode("utf-8", "surrogateescape")


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(chr(0xDC00 | one) for byte in lost for one in (0xFF, 0x80 | byte >> 4, 0x80 | byte & 15)), error.end


codecs.register_error(_MARKS, _mark)


@contextlib.contextmanager
def open_part(path: str) -> Iterator[BinaryIO]:
    """The file at ``path``, unpacked. Raises PartUnreadable or StoreFault, here and for what is read within."""
    try:
        with _open(path) as file:
            yield file
    except DamagedFile as error:
        raise PartUnreadable(path, str(error)) from error
    except EOFError as error:
        raise PartUnreadable(path, f"{_kind_of(path)} breaks off: the end of the file is missing") from error
    except OSError as error:
        if error.errno is None:  # gzip, bz2 and zstd say so what they find in the data
            raise PartUnreadable(path, f"{_kind_of(path)} does not fit: {error}") from error
        raise make_fault(path, error) from error
    except (zlib.error, pa.ArrowInvalid) as error:
        raise PartUnreadable(path, f"{_kind_of(path)} does not fit: {error}") from error


def _kind_of(path: str) -> str:
    suffix = Path(path).suffix
    return f"{_NAMES.get(suffix, suffix.removeprefix('.'))} data"


def _open(path: str) -> BinaryIO:
    suffix = Path(path).suffix
    opener = _OPENERS.get(suffix)
    if opener is not None:
        if suffix[1:] not in _BLOCKS and size_link(path) == 0:
            raise EOFError  # no writer has an empty file of these, and some readers take one for no text
        return cast("BinaryIO", opener(path))
    file = open_link(path)
    begin = cast("io.BufferedReader", file).peek(_LONGEST_BEGIN)
    for magic, kind in _PACKED_BEGINS.items():
        if begin.startswith(magic):
            file.close()
            raise PartUnreadable(path, f"it is {kind}")
    return file


_PACKED_BEGINS = {
    b"\x1f\x8b\x08": "gzip data, which is unpacked only with the ending .gz",
    b"BZh91AY&SY": "bzip2 data, which is unpacked only with the ending .bz2",
    b"\x28\xb5\x2f\xfd": "zstd data, which is unpacked only with the ending .zst",
    b"\x04\x22\x4d\x18": "lz4 data in frames, which cannot be read: write .gz or .zst",
    b"\xfd7zXZ\0": "xz data, which cannot be read: write .gz or .zst",
    b"PK\x03\x04": "a zip archive, which cannot be read: write .gz or .zst",
}
"""How packed files begin, and what to say of one whose name has another ending."""
_LONGEST_BEGIN = max(map(len, _PACKED_BEGINS))


def _unpack_bzip2(file: BinaryIO) -> Iterator[bytes]:
    """One bzip2 stream behind another, as pbzip2 writes.

    Python's own reader takes a damaged one for trailing garbage, and ends in silence.
    """
    rest = b""
    while rest := rest or file.read(_CHUNK_BYTES):
        if not (rest := rest.lstrip(b"\0")):  # padding
            continue
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not (rest := rest or file.read(_CHUNK_BYTES)):
                raise EOFError
            yield stream.decompress(rest, _CHUNK_BYTES)
            rest = b""
        rest = stream.unused_data


def _unpack_deflate(file: BinaryIO) -> Iterator[bytes]:
    """One zlib stream behind another."""
    rest = b""
    while rest := rest or file.read(_CHUNK_BYTES):
        stream = zlib.decompressobj()
        while not stream.eof:
            if not (rest := rest or file.read(_CHUNK_BYTES)):
                raise EOFError
            yield stream.decompress(rest, _CHUNK_BYTES)
            rest = stream.unconsumed_tail
        rest = stream.unused_data


def _unpack_blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """A file in Hadoop's framing of the codec ``name``.

    Blocks have the length of their text, then pieces of a length and as many bytes, each length in 4 bytes, the high
    one first. Hadoop's reader takes anything that it cannot parse for the end of the file.
    """
    codec, done = pa.Codec(_BLOCKS[name]), 0
    while header := file.read(4):
        if header == _NO_TEXT and not done and not file.read(1):
            return
        missing = int.from_bytes(header)
        if len(header) < 4 or not missing:
            raise _explain_block(name, done, f"breaks off behind block {done:,}")
        while missing:
            size = int.from_bytes(file.read(4))
            piece = file.read(size) if size <= _LARGEST_PIECE_BYTES else b""
            if not size or len(piece) < size:
                raise _explain_block(name, done, f"breaks off in block {done + 1:,}")
            try:
                length = _measure_piece(piece, codec, missing)
            except ValueError as error:
                raise _explain_block(name, done, f"does not fit in block {done + 1:,}: {error}") from error
            missing -= length
            yield codec.decompress(piece, length, asbytes=True)
        done += 1


def _explain_block(name: str, done: int, why: str) -> DamagedFile:
    if done:
        return DamagedFile(f"{name} data {why}")
    framing = f"it is not whole, or not in Hadoop's framing of {name}, the only one that is read"
    return DamagedFile(f"{framing}: write .gz or .zst")


def _measure_piece(piece: bytes, codec: pa.Codec, at_most: int) -> int:
    """The bytes of text in a piece. Raises ValueError when it is damaged, or has more than ``at_most``."""

    def fits(size: int) -> bool:
        try:
            codec.decompress(piece, decompressed_size=size)
        except (OSError, ValueError):
            return False
        return True

    at_most = min(at_most, len(piece) * _MOST_TEXT_OF_A_BYTE, _LARGEST_PIECE_BYTES)
    if not fits(at_most):
        raise ValueError("a piece cannot be unpacked")
    # A codec does not report the length of its text, only that the buffer is too small; mostly it is the whole block.
    low, high = (at_most - 1, at_most) if not fits(at_most - 1) else (0, at_most - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


_CHUNK_BYTES = 1 << 18
_MOST_TEXT_OF_A_BYTE = 255
"""Of lz4; of snappy it is less."""
_LARGEST_PIECE_BYTES = 64 << 20
"""A piece has the size of a writer's buffer, 256 KiB by default. Bytes that are not a length may look like
gigabytes."""
_BLOCKS = {"snappy": "snappy", "lz4": "lz4_raw"}
_NO_TEXT = bytes(4)
"""All of a file without text, as Hadoop's writer leaves it."""
_NAMES = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def _buffered(unpack: Callable[[BinaryIO], Iterator[bytes]]) -> Callable[[str], object]:
    def open_packed(path: str) -> io.BufferedReader:
        file = open_link(path)  # closed with what is returned
        return io.BufferedReader(_Pieces(unpack(file), file), _CHUNK_BYTES)

    return open_packed


_OPENERS: dict[str, Callable[[str], object]] = {
    ".gz": lambda path: gzip.open(find_source(path)),  # noqa: SIM115 - the caller closes it
    ".bz2": _buffered(_unpack_bzip2),
    ".zst": lambda path: pa.CompressedInputStream(find_source(path), "zstd"),
    ".deflate": _buffered(_unpack_deflate),
    **{f".{name}": _buffered(functools.partial(_unpack_blocks, name=name)) for name in _BLOCKS},
}
