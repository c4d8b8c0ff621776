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
_LARGEST_PIECE_BYTES = 64 << 20
"""A piece is what a writer had in its buffer, 256 KiB by default. Bytes that are no length may say gigabytes."""
BLOCK_SUFFIXES = (".snappy", ".lz4")
PARTLY_READABLE_SUFFIXES = (".gz", ".bz2")
"""Of files that break off the lines before the tear can be read."""
CHECKED_SUFFIXES = (*PARTLY_READABLE_SUFFIXES, *BLOCK_SUFFIXES)
"""Of files with these it is known exactly where they break off."""
EMPTY_FILES = {
    ".gz": zlib.compress(b"", wbits=_GZIP),
    ".bz2": bz2.compress(b""),
    ".deflate": zlib.compress(b""),
    ".zst": b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00",
}
"""A compressed file of no text, by suffix; for other codecs that Spark knows, a file of no bytes is one."""


class TornFile(Exception):
    """Why a compressed file cannot be read to its end."""


def check_compressed(path: Path) -> None:
    """Read a .gz, .bz2, .snappy or .lz4 file to its end. Raises TornFile with the reason."""
    if path.suffix in BLOCK_SUFFIXES:
        _check_blocks(path)
        return
    for _ in _pieces(path):
        pass


def _check_blocks(path: Path) -> None:
    """Read a file in Hadoop's framing of snappy and lz4 to its end: blocks of a length of text, then one piece or more,
    each a length and as many bytes; lengths of 4 bytes, the high one first. A length of 0 ends the file, and Hadoop's
    reader (BlockDecompressorStream) takes whatever it cannot make out for that end, without an error."""
    from tidegate.sources.readers.opening import measure_piece

    name = path.suffix.removeprefix(".")
    expected = f"it is not in Hadoop's framing of {name}, the only one that is read: write .gz or .zst"
    with open(path, "rb") as stream:
        left = os.fstat(stream.fileno()).st_size
        block = 0
        while left:
            header = stream.read(4)
            missing = int.from_bytes(header)
            left -= len(header)
            if len(header) < 4 or not missing:
                raise TornFile(f"{name} data breaks off behind block {block:,}", False)
            while missing:
                size = int.from_bytes(stream.read(4))
                left -= 4
                if not 0 < size <= min(left, _LARGEST_PIECE_BYTES):
                    raise TornFile(f"{name} data breaks off in block {block + 1:,}" if block else expected, False)
                try:
                    missing -= measure_piece(stream.read(size), "lz4_raw" if name == "lz4" else name, missing)
                except ValueError as error:
                    why = f"{name} data does not fit in block {block + 1:,}: {error}" if block else expected
                    raise TornFile(why, False) from error
                left -= size
            block += 1


def write_readable_part(path: Path, target: Path, ending: bytes = b"\n") -> None:
    """Write the whole lines of ``path`` that can be trusted to ``target``, compressed as it is; a line ends with
    ``ending``."""
    trusted = _count_trusted_bytes(path, ending)
    left = trusted
    packer: Any = bz2.BZ2Compressor() if path.suffix == ".bz2" else zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    with open(target, "wb") as out:
        if left:
            for text, _ in _pieces(path, stop_at_fault=True):
                out.write(packer.compress(text[:left]))
                left -= min(left, len(text))
                if not left:
                    break
        out.write(packer.flush())
        out.flush()
        os.fsync(out.fileno())


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
    except TornFile as error:
        return line_end if error.args[1] else verified
    return line_end


def _pieces(path: Path, *, stop_at_fault: bool = False) -> Iterator[tuple[bytes, bool]]:
    """(text, whether everything up to its end was verified). Raises TornFile(reason, whether only the end is gone)."""
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
                raise TornFile(f"{_kind(path)} does not fit: {error}", False) from error
            fed = True
            data = machine.unused_data
            # bz2 checks each block of a member before it gives any of its text.
            yield text, machine.eof or path.suffix == ".bz2"
            if machine.eof:
                machine, fed, ended = _open_member(path), False, True
        if fed or not ended:
            if stop_at_fault:
                return
            raise TornFile(f"{_kind(path)} breaks off: the end of the file is missing", True)


def _open_member(path: Path) -> Any:
    return bz2.BZ2Decompressor() if path.suffix == ".bz2" else zlib.decompressobj(_GZIP)


def _kind(path: Path) -> str:
    return "bzip2 data" if path.suffix == ".bz2" else "gzip data"
