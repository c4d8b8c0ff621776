"""Checks of the content of a file that take a few reads: its mark, and where its lines end.

A mark is a digest of the first and the last 16 KiB of the bytes that were read. It distinguishes appended from
replaced content, at the same cost for a file of any size; up to 32 KiB it covers every byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidegate.sources.files.listing import is_inside
from tidegate.sources.readers.lines import PACKED_SUFFIXES
from tidegate.spec.encodings import is_wide, unit_bytes, wide_codec
from tidegate.spec.models import LINE_FORMATS, FilesSource
from tidegate.spec.reader_options import has_documents

_MARKED_BYTES = 16 << 10
_CHUNK_BYTES = 1 << 20
_HEADER_AT_MOST_BYTES = 1 << 20
_COMPRESSED = (*PACKED_SUFFIXES, ".zstd", ".lzo", ".xz", ".zip")


class Mark(NamedTuple):
    """A digest of the first ``size`` bytes of a file."""

    size: int
    digest: bytes

    @property
    def is_whole(self) -> bool:
        """Return whether it covers every byte."""
        return self.size <= 2 * _MARKED_BYTES


class NotTaken(Exception):
    """A file is no longer the one that was listed; the next run looks at it again."""


@contextlib.contextmanager
def opened(path: str, roots: Sequence[str], judged: tuple[int, int] | None = None) -> Iterator[int]:
    """Open a handle (O_PATH) on the regular file at ``path``, for fstat, :func:`reopen` and ``/proc/self/fd``.

    The handle stays on this file when the name is given to another. Raises NotTaken when the file is outside
    ``roots``, is not a regular file, or is not ``judged`` (device, inode); OSError when it is gone.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise NotTaken("not a regular file any more")
        if judged is not None and (found.st_dev, found.st_ino) != judged:
            raise NotTaken("another file has taken its name since it was listed")
        real = os.readlink(f"/proc/self/fd/{handle}")
        if not is_inside(real, roots):
            raise NotTaken(f"leads outside the source's folder, to {real}")
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def reopen(handle: int) -> Iterator[int]:
    """Open the file of an O_PATH handle for reading."""
    link = f"/proc/self/fd/{handle}"
    try:
        reader = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        error.filename = os.readlink(link)
        raise
    try:
        yield reader
    finally:
        os.close(reader)


def mark_of(reader: int, size: int) -> Mark:
    """The mark of the first ``size`` bytes."""
    digest = hashlib.blake2b(digest_size=16)
    head = min(size, _MARKED_BYTES)
    digest.update(os.pread(reader, head, 0))
    if size > head:
        begin = max(head, size - _MARKED_BYTES)
        digest.update(os.pread(reader, size - begin, begin))
    return Mark(size, digest.digest())


def is_line_format(spec: FilesSource, path: str = "") -> bool:
    """Return whether a record is a line, according to the spec and the file name.

    It is not for wholetext, JSON over several lines, and compressed files.
    """
    if spec.format not in LINE_FORMATS or _option(spec, "wholetext") == "true" or has_documents(spec):
        return False
    return not is_compressed(path)


def is_compressed(name: str) -> bool:
    """Return whether a file is compressed according to its name, in a supported format or not."""
    return name.lower().endswith(_COMPRESSED)


def line_end(spec: FilesSource) -> bytes:
    """The line separator: lineSep, or a line feed."""
    return str(spec.options.get("lineSep", "\n")).encode()


def ends_in_line_break(reader: int, size: int, spec: FilesSource) -> bool:
    """Return whether the last line is complete, by one read."""
    ending = line_end(spec)
    if is_wide(encoding := _option(spec, "encoding")):
        codec, _ = wide_codec(encoding, os.pread(reader, 4, 0))
        ending = ending.decode().encode(codec)
        # An incomplete character, or the same bytes across two characters, are not a line break.
        if size % unit_bytes(codec):
            return False
    return os.pread(reader, len(ending), max(0, size - len(ending))) == ending


def last_line_end(reader: int, begin: int, end: int, ending: bytes) -> int:
    """The offset behind the last complete line in [begin, end); ``begin`` when there is none."""
    stop = end
    while stop > begin:
        start = max(begin, stop - _CHUNK_BYTES)
        # A line separator of several bytes may be split across two chunks.
        text = os.pread(reader, min(stop + len(ending) - 1, end) - start, start)
        found = text.rfind(ending)
        if found >= 0:
            return start + found + len(ending)
        stop = start
    return begin


def first_line_end(reader: int, begin: int, end: int, ending: bytes) -> int | None:
    """The offset behind the first line break at or after ``begin``; None when there is none before ``end``."""
    start = begin
    while start < end:
        text = os.pread(reader, min(_CHUNK_BYTES + len(ending) - 1, end - start), start)
        found = text.find(ending)
        if found >= 0:
            return start + found + len(ending)
        start += _CHUNK_BYTES
    return None


def header_end(reader: int, end: int, spec: FilesSource) -> int | None:
    """The offset after the header line of a csv file and the comments before it; 0 where files have no header, None
    when it is incomplete."""
    if spec.format != "csv" or _option(spec, "header") != "true":
        return 0
    ending, comment = line_end(spec), str(spec.options.get("comment", "")).encode()
    text = os.pread(reader, min(end, _HEADER_AT_MOST_BYTES), 0)
    start = 0
    while (found := text.find(ending, start)) >= 0:
        line = text[start:found].removeprefix(b"\xef\xbb\xbf").strip()
        start = found + len(ending)
        if line and not (comment and line.startswith(comment)):
            return start
    return None


class LineCounter:
    """Counts lines as :func:`tidegate.sources.readers.lines.count_breaks` does, over chunks of one text."""

    def __init__(self, ending: bytes) -> None:
        self.count = 0
        self._ending = ending
        self._last = b""

    def add(self, chunk: bytes) -> None:
        """Count the lines of the next ``chunk``."""
        if self._ending != b"\n":
            held = len(self._ending) - 1
            text = self._last + chunk
            self.count += text.count(self._ending)
            self._last = text[-held:] if held and not text.endswith(self._ending) else b""
            return
        self.count += chunk.count(b"\n") + chunk.count(b"\r") - chunk.count(b"\r\n")
        self.count -= self._last == b"\r" and chunk.startswith(b"\n")
        self._last = chunk[-1:]


def count_lines(reader: int, end: int, ending: bytes) -> int:
    """Count the lines that end in the first ``end`` bytes. Reads all of them."""
    counter = LineCounter(ending)
    for chunk in read_range(reader, 0, end):
        counter.add(chunk)
    return counter.count


def read_range(reader: int, begin: int, until: int) -> Iterator[bytes]:
    """Yield the bytes [begin, until) in chunks. Raises NotTaken when the file is shorter."""
    while begin < until:
        chunk = os.pread(reader, min(_CHUNK_BYTES, until - begin), begin)
        if not chunk:
            raise NotTaken("it became shorter while it was taken")
        yield chunk
        begin += len(chunk)


def _option(spec: FilesSource, name: str) -> str:
    return str(spec.options.get(name, "")).lower()
