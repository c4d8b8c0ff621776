"""Opens files in workers: decompressed by their suffix, with faults of the file distinguished from those of a
record."""

from __future__ import annotations

import base64
import bz2
import codecs
import contextlib
import gzip
import io
import os
import re
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tidegate.sources.readers.unreadable import PartUnreadable
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


def decode_file(file: BinaryIO, encoding: str) -> BinaryIO:
    """Open ``file``, at its beginning, as a file in UTF-8 without its byte order mark."""
    if codecs.lookup(encoding).name == "utf-8":
        return file
    return io.BufferedReader(_Decoded(file, encoding), _DECODED_BYTES)


def codec_of(file: BinaryIO, encoding: str) -> str:
    """The codec of a file that :func:`decode_file` has opened: of ``encoding``, in the byte order that the file has."""
    raw = getattr(file, "raw", None)
    return raw.codec if isinstance(raw, _Decoded) else encoding


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


class _Decoded(io.RawIOBase):
    def __init__(self, file: BinaryIO, encoding: str) -> None:
        head = b""
        if is_wide(encoding):
            head = file.read(unit_bytes(encoding))
            encoding, mark = wide_codec(encoding, head)
            head = head[mark:]
        self._file, self._head, self.codec = file, head, encoding
        self._decoder: Any = codecs.getincrementaldecoder(encoding)(errors=_MARKS)
        self._left, self._is_last = memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and not self._is_last:
            chunk = self._file.read(_DECODED_BYTES)
            self._is_last = not chunk
            text = self._decoder.decode(self._head + chunk, final=self._is_last)
            self._head = b""
            self._left = memoryview(text.encode("utf-8", "surrogateescape"))
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(chr(0xDC00 | one) for byte in lost for one in (0xFF, 0x80 | byte >> 4, 0x80 | byte & 15)), error.end


codecs.register_error(_MARKS, _mark)


@contextlib.contextmanager
def open_part(path: str) -> Iterator[BinaryIO]:
    """The file at ``path``, unpacked. Raises PartUnreadable, here and for what is read within."""
    try:
        with _open(path) as file:
            yield file
    except PackedDamaged as error:
        raise PartUnreadable(path, str(error)) from error
    except EOFError as error:
        raise PartUnreadable(path, f"{_kind_of(path)} breaks off: the end of the file is missing") from error
    except OSError as error:
        if error.errno is None:  # gzip, bz2 and zstd say so what they find in the data
            raise PartUnreadable(path, f"{_kind_of(path)} does not fit: {error}") from error
        raise PartUnreadable(path, error.strerror or str(error), error.errno) from error
    except (zlib.error, pa.ArrowInvalid) as error:
        raise PartUnreadable(path, f"{_kind_of(path)} does not fit: {error}") from error


def _kind_of(path: str) -> str:
    suffix = Path(path).suffix
    return f"{_NAMES.get(suffix, suffix.removeprefix('.'))} data"


def _open(path: str) -> BinaryIO:
    suffix = Path(path).suffix
    opener = _OPENERS.get(suffix)
    if opener is not None:
        if suffix not in _BLOCKS and os.stat(path).st_size == 0:
            raise EOFError  # no writer has an empty file of these, and some readers take one for no text
        return cast("BinaryIO", opener(path))
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    begin = file.peek(_LONGEST_BEGIN)
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


def _open_zstd(path: str) -> Any:
    return pa.CompressedInputStream(path, "zstd")


class _Packed(io.RawIOBase):
    """A packed file as its text; a subclass says how the next piece of it is had."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed with this
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            piece = self._unpack()
            if piece is None:
                return 0
            self._text = memoryview(piece)
        count = min(len(buffer), len(self._text))
        buffer[:count], self._text = self._text[:count], self._text[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    @abstractmethod
    def _unpack(self) -> bytes | None:
        """The next piece of the text, perhaps empty; None at the end. Raises OSError, EOFError or zlib.error."""


class _Bzip2(_Packed):
    """One bzip2 stream behind another, as pbzip2 writes. Python's own reader takes a damaged one for trailing garbage,
    and ends in silence."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._stream: bz2.BZ2Decompressor | None = None
        self._left = b""

    def _unpack(self) -> bytes | None:
        if self._stream is None:
            packed = self._left or self._file.read(_CHUNK_BYTES)
            if not packed:
                return None
            self._left = packed.lstrip(b"\0")  # padding
            if not self._left:
                return b""
            self._stream = bz2.BZ2Decompressor()
        elif self._stream.needs_input:
            self._left = self._file.read(_CHUNK_BYTES)
            if not self._left:
                raise EOFError
        text = self._stream.decompress(self._left, _CHUNK_BYTES)
        self._left = b""
        if self._stream.eof:
            self._left, self._stream = self._stream.unused_data, None
        return text


class _Deflate(_Packed):
    """One zlib stream behind another."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._stream: Any = None
        self._left = b""

    def _unpack(self) -> bytes | None:
        self._left = self._left or self._file.read(_CHUNK_BYTES)
        if self._stream is None:
            if not self._left:
                return None
            self._stream = zlib.decompressobj()
        elif not self._left:
            raise EOFError
        text: bytes = self._stream.decompress(self._left, _CHUNK_BYTES)
        self._left = self._stream.unconsumed_tail
        if self._stream.eof:
            self._left, self._stream = self._stream.unused_data, None
        return text


class PackedDamaged(Exception):
    """What does not fit in a packed file."""


class _Blocks(_Packed):
    """A file in Hadoop's framing: blocks of the length of their text, then pieces of a length and as many bytes, each
    length in 4 bytes, the high one first. Hadoop's reader takes anything that it cannot parse for the end of the
    file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._name = Path(path).suffix.removeprefix(".")
        self._missing = self._blocks = 0

    def _unpack(self) -> bytes | None:
        if not self._missing:
            header = self._file.read(4)
            if not header or (header == _NO_TEXT and not self._blocks and not self._file.read(1)):
                return None
            self._missing = int.from_bytes(header)
            if len(header) < 4 or not self._missing:
                raise self._damaged("breaks off", behind=True)
            self._blocks += 1
        size = int.from_bytes(self._file.read(4))
        piece = self._file.read(size) if size <= _LARGEST_PIECE_BYTES else b""
        if not size or len(piece) < size:
            raise self._damaged("breaks off")
        codec = pa.Codec(_BLOCKS[f".{self._name}"])
        try:
            length = _measure_piece(piece, codec, self._missing)
        except ValueError as error:
            raise self._damaged("does not fit", f": {error}") from error
        self._missing -= length
        return bytes(codec.decompress(piece, length, asbytes=True))

    def _damaged(self, what: str, why: str = "", *, behind: bool = False) -> PackedDamaged:
        if self._blocks + behind <= 1:
            framing = f"it is not whole, or not in Hadoop's framing of {self._name}, the only one that is read"
            return PackedDamaged(f"{framing}: write .gz or .zst")
        return PackedDamaged(f"{self._name} data {what} {'behind' if behind else 'in'} block {self._blocks:,}{why}")


def _measure_piece(piece: bytes, codec: Any, at_most: int) -> int:
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
_BLOCKS = {".snappy": "snappy", ".lz4": "lz4_raw"}
_NO_TEXT = bytes(4)
"""All of a file without text, as Hadoop's writer leaves it."""
_NAMES = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def _buffered(kind: type[_Packed]) -> Callable[[str], io.BufferedReader]:
    return lambda path: io.BufferedReader(kind(path), _CHUNK_BYTES)


_OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": _buffered(_Bzip2),
    ".zst": _open_zstd,
    ".deflate": _buffered(_Deflate),
    **dict.fromkeys(_BLOCKS, _buffered(_Blocks)),
}
