"""Converts files in other encodings to UTF-8, with bytes that are invalid in their encoding marked.

Each invalid byte becomes three bytes that never occur in UTF-8: a mark, and the two halves of the byte. Such texts are
then found like any text that is not UTF-8, and the original bytes can be restored.
"""

from __future__ import annotations

import base64
import codecs
import io
import re
from typing import Any, BinaryIO

from tidegate.spec.encodings import is_wide, unit_bytes, wide_codec

_CHUNK_BYTES = 1 << 20
_LOST = re.compile(b"\xff([\x80-\x8f])([\x80-\x8f])")
_MARKS = "tidegate_marks"


def is_utf8(text: bytes) -> bool:
    """Whether all of ``text`` is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_file(file: BinaryIO, encoding: str) -> BinaryIO:
    """Open ``file``, at its beginning, as a file in UTF-8 without its byte order mark."""
    if codecs.lookup(encoding).name == "utf-8":
        return file
    return io.BufferedReader(_Decoded(file, encoding), _CHUNK_BYTES)


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
            chunk = self._file.read(_CHUNK_BYTES)
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
