"""Files as workers open them: unpacked by their ending, and with the fault of a file told from that of a record."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tidegate.sources.readers.lines import LineTooLong
from tidegate.sources.readers.unreadable import PartUnreadable

_BLOCKS = {".snappy": "snappy", ".lz4": "lz4_raw"}


@contextlib.contextmanager
def open_part(path: str) -> Iterator[BinaryIO]:
    """The file at ``path``, unpacked. Raises PartUnreadable, here and for what is read within."""
    try:
        with _open(path) as file:
            yield file
    except (OSError, EOFError, zlib.error, pa.ArrowInvalid, LineTooLong) as error:
        raise PartUnreadable(path, str(error)) from error


def _open(path: str) -> BinaryIO:
    opener = _OPENERS.get(Path(path).suffix)
    return open(path, "rb") if opener is None else cast("BinaryIO", opener(path))


def _open_zstd(path: str) -> Any:
    return pa.CompressedInputStream(path, "zstd")


def _open_deflate(path: str) -> Any:
    return io.BytesIO(zlib.decompress(Path(path).read_bytes()))


def _open_blocks(path: str) -> Any:
    return io.BufferedReader(_Blocks(path))


class _Blocks(io.RawIOBase):
    """A file in Hadoop's framing: blocks of the length of their text, then pieces of a length and as many bytes, each
    length in 4 bytes, the high one first."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed with this
        self._codec = pa.Codec(_BLOCKS[Path(path).suffix])
        self._left, self._text = 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            if not self._left and not (length := self._file.read(4)):
                return 0
            elif not self._left:
                self._left = int.from_bytes(length)
                if not self._left:
                    return 0
            piece = self._file.read(int.from_bytes(self._file.read(4)))
            self._text = memoryview(self._codec.decompress(piece, self._left, asbytes=True))
            self._left -= len(self._text)
        count = min(len(buffer), len(self._text))
        buffer[:count], self._text = self._text[:count], self._text[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


_OPENERS: dict[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".zst": _open_zstd,
    ".deflate": _open_deflate,
    **dict.fromkeys(_BLOCKS, _open_blocks),
}
