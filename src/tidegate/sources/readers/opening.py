"""Files as workers open them: unpacked by their ending, and with the fault of a file told from that of a record."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tidegate.sources.readers.unreadable import PartUnreadable


@contextlib.contextmanager
def open_part(path: str) -> Iterator[BinaryIO]:
    """The file at ``path``, unpacked. Raises PartUnreadable, here and for what is read within."""
    try:
        with _open(path) as file:
            yield file
    except OSError as error:
        raise PartUnreadable(path, error.strerror or str(error), error.errno) from error
    except (EOFError, zlib.error, pa.ArrowInvalid) as error:
        raise PartUnreadable(path, str(error)) from error


def _open(path: str) -> BinaryIO:
    opener = _OPENERS.get(Path(path).suffix)
    if opener is not None:
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
            self._left = self._left or self._file.read(_CHUNK_BYTES)
            if not self._left:
                return None
            self._stream = bz2.BZ2Decompressor()
        elif self._stream.needs_input:
            self._left = self._file.read(_CHUNK_BYTES)
            if not self._left:
                raise EOFError("the file ends within a bzip2 stream")
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
            raise EOFError("the file ends within a zlib stream")
        text: bytes = self._stream.decompress(self._left, _CHUNK_BYTES)
        self._left = self._stream.unconsumed_tail
        if self._stream.eof:
            self._left, self._stream = self._stream.unused_data, None
        return text


class _Blocks(_Packed):
    """A file in Hadoop's framing: blocks of the length of their text, then pieces of a length and as many bytes, each
    length in 4 bytes, the high one first."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._codec = _BLOCKS[Path(path).suffix]
        self._missing = 0

    def _unpack(self) -> bytes | None:
        if not self._missing:
            self._missing = int.from_bytes(self._file.read(4))
            if not self._missing:
                return None
        piece = self._file.read(int.from_bytes(self._file.read(4)))
        try:
            size = measure_piece(piece, self._codec, self._missing)
        except ValueError as error:
            raise EOFError(f"a block is damaged: {error}") from error
        self._missing -= size
        return bytes(pa.Codec(self._codec).decompress(piece, size, asbytes=True))


def measure_piece(piece: bytes, codec: str, at_most: int) -> int:
    """The bytes of text in a piece. Raises ValueError when it is damaged, or has more than ``at_most``."""

    def fits(size: int) -> bool:
        try:
            pa.Codec(codec).decompress(piece, decompressed_size=size)
        except (OSError, ValueError):
            return False
        return True

    at_most = min(at_most, len(piece) * _MOST_TEXT_OF_A_BYTE, _LARGEST_PIECE_BYTES)
    if not fits(at_most):
        raise ValueError("a piece cannot be unpacked")
    # No codec says how long its text is, only that there is no room for it; nearly always it is the whole block.
    low, high = (at_most - 1, at_most) if not fits(at_most - 1) else (0, at_most - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


_CHUNK_BYTES = 1 << 18
_MOST_TEXT_OF_A_BYTE = 255
"""Of lz4; of snappy it is less."""
_LARGEST_PIECE_BYTES = 64 << 20
"""A piece is what a writer had in its buffer, 256 KiB by default. Bytes that are no length may say gigabytes."""
_BLOCKS = {".snappy": "snappy", ".lz4": "lz4_raw"}


def _buffered(kind: type[_Packed]) -> Callable[[str], io.BufferedReader]:
    return lambda path: io.BufferedReader(kind(path), _CHUNK_BYTES)


_OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": _buffered(_Bzip2),
    ".zst": _open_zstd,
    ".deflate": _buffered(_Deflate),
    **dict.fromkeys(_BLOCKS, _buffered(_Blocks)),
}
