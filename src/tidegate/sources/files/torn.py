"""Compressed text that breaks off: how much of it can be trusted, and a readable file of just that.

Of a file that ends too early, everything before the end is what was written. Of one whose checksum does not fit, only
the parts whose own checksum was met are: behind a flipped bit gzip goes on to give wrong letters.
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
"""Of files that break off the lines before the tear can be read."""
EMPTY_FILES = {
    ".gz": zlib.compress(b"", wbits=_GZIP),
    ".bz2": bz2.compress(b""),
    ".deflate": zlib.compress(b""),
    ".zst": b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00",
}
"""A compressed file of no text, by suffix; with another suffix, a file of no bytes is one."""


class _Torn(Exception):
    """A compressed file cannot be read to its end; ``is_cut``: what there is of it fits."""

    def __init__(self, is_cut: bool) -> None:
        super().__init__(is_cut)
        self.is_cut = is_cut


def write_readable_part(path: Path, target: Path, ending: bytes = b"\n") -> int:
    """Write the whole lines of ``path`` that can be trusted to ``target``, compressed as it is; returns how many. A
    line ends with ``ending``."""
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
    """Length of the text up to the last line break that can be trusted."""
    seen = line_end = verified = 0
    before = b""  # the begin of a line break may stand at the end of a piece
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
        # What has been fed to the machine of this member, and whether any member has ended.
        fed = ended = False
        data = b""
        while True:
            if not data:
                data = stream.read(_CHUNK_BYTES)
            if not data:
                break
            if not fed and ended:
                data = data.lstrip(b"\0")  # padding between and behind members
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
            # bz2 checks each block of a member before it gives any of its text.
            yield text, machine.eof or path.suffix == ".bz2"
            if machine.eof:
                machine, fed, ended = _open_member(path), False, True
        if fed or not ended:
            if stop_at_fault:
                return
            raise _Torn(is_cut=True)


def _open_member(path: Path) -> Any:
    return bz2.BZ2Decompressor() if path.suffix == ".bz2" else zlib.decompressobj(_GZIP)
