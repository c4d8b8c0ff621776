"""Recovers the valid part of a damaged compressed text file.

Of a truncated file everything before the end is valid. Of one with a wrong checksum only the parts with a correct
checksum are: after a flipped bit, gzip continues with wrong text.
"""

from __future__ import annotations

import bz2
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 16
_GZIP = 31
PARTLY_READABLE_SUFFIXES = (".gz", ".bz2")
"""Of damaged files with these suffixes the lines before the damage can be read."""
EMPTY_FILES = {
    ".gz": zlib.compress(b"", wbits=_GZIP),
    ".bz2": bz2.compress(b""),
    ".deflate": zlib.compress(b""),
    ".zst": b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00",
}
"""A compressed file of empty text, by suffix; for other suffixes it is an empty file."""


class _Torn(Exception):
    """A compressed file cannot be read to its end; ``is_cut``: it is truncated, and valid so far."""

    def __init__(self, is_cut: bool) -> None:
        super().__init__(is_cut)
        self.is_cut = is_cut


def write_readable_part(path: Path, target: Path, ending: bytes = b"\n") -> int:
    """Write the valid whole lines of ``path`` to ``target``, with the same compression. Returns how many. A line ends
    with ``ending``."""
    trusted = _count_trusted_bytes(path, ending)
    left, lines, before = trusted, 0, b""
    packer: Any = bz2.BZ2Compressor() if path.suffix == ".bz2" else zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    with open(target, "wb") as out:
        if left:
            for text, _ in _pieces(path, stop_at_fault=True):
                text = text[:left]
                out.write(packer.compress(text))
                left -= len(text)
                lines += (before + text).count(ending)
                before = (before + text)[-len(ending) + 1 :] if len(ending) > 1 else b""
                if not left:
                    break
        out.write(packer.flush())
        out.flush()
        os.fsync(out.fileno())
    return lines


def _count_trusted_bytes(path: Path, ending: bytes) -> int:
    """Length of the valid text up to its last line break."""
    seen = line_end = verified = 0
    before = b""  # a line break may be split across two pieces
    try:
        for text, is_verified in _pieces(path):
            looked_at = before + text
            found = looked_at.rfind(ending)
            if found >= 0:
                line_end = seen - len(before) + found + len(ending)
            seen += len(text)
            before = looked_at[max(0, len(looked_at) - len(ending) + 1) :]
            if is_verified:
                verified = line_end
    except _Torn as torn:
        return line_end if torn.is_cut else verified
    return line_end


def _pieces(path: Path, *, stop_at_fault: bool = False) -> Iterator[tuple[bytes, bool]]:
    """(text, whether everything up to its end was verified). Raises _Torn."""
    with open(path, "rb") as stream:
        machine = _open_member(path)
        # Whether the decompressor of this member has got data, and whether a member has ended.
        fed = ended = False
        data = b""
        while True:
            if not data:
                data = stream.read(_CHUNK_BYTES)
            if not data:
                break
            if not fed and ended:
                data = data.lstrip(b"\0")  # padding between and after members
                if not data:
                    continue
            try:
                text = machine.decompress(data)
            except (zlib.error, OSError, EOFError) as error:
                if stop_at_fault:
                    return
                raise _Torn(is_cut=False) from error
            fed = True
            data = machine.unused_data
            # bz2 checks each block of a member before it returns its text.
            yield text, machine.eof or path.suffix == ".bz2"
            if machine.eof:
                machine, fed, ended = _open_member(path), False, True
        if fed or not ended:
            if stop_at_fault:
                return
            raise _Torn(is_cut=True)


def _open_member(path: Path) -> Any:
    return bz2.BZ2Decompressor() if path.suffix == ".bz2" else zlib.decompressobj(_GZIP)
