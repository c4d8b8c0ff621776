"""Lines too long for a record: found before Spark reads the file, since it would hold each of them several times over.

A line without an end (a file that is not text, a writer that forgot its line breaks) ends the driver for want of
memory, and the same batch comes again forever. So such a file is kept whole, like others that cannot be read, and
Spark is given its other lines.
"""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.spec.encodings import encoding_of
from tidegate.spec.models import LINE_FORMATS, FilesSource
from tidegate.spec.reader_options import has_documents, has_line_records, is_read_whole, parser_options

LONGEST_LINE_BYTES = LONGEST_RECORD_BYTES

LARGEST_DOCUMENT_BYTES = 16 << 20
"""The same for a file that is read as a whole: JSON over several lines, XML, json and text in UTF-16 or UTF-32."""

_CHUNK_BYTES = 1 << 20
_UNPACKED_BYTES = {".gz": 1032, ".bz2": 1 << 30}
"""What a byte of a compressed file can at most become."""
_LINES_NAMED = 10


def why_too_long(path: Path, spec: FilesSource) -> str | None:
    """:func:`find_too_long`; None also for a file that cannot be read."""
    try:
        return find_too_long(path, spec)
    except (OSError, EOFError, zlib.error):
        return None


def find_too_long(path: Path, spec: FilesSource) -> str | None:
    """The lines of a file, plain, .gz or .bz2, that are too long, in words; None where there are none. A file that is
    not larger than such a line costs a look at its size; other files are read once. Raises OSError, EOFError or
    zlib.error when that cannot be done."""
    if is_read_whole(spec):
        return _find_too_large(path, spec)
    if spec.format not in LINE_FORMATS or path.stat().st_size * _unpacked(path) <= LONGEST_LINE_BYTES:
        return None
    with _open(path) as stream:
        lines = [(number, size) for number, size, _ in _split(stream, _separator(spec)) if size]
    if not lines:
        return None
    named = ", ".join(f"line {number:,} has {size:,} bytes" for number, size in lines[:_LINES_NAMED])
    more = f", and {len(lines) - _LINES_NAMED:,} more are as long" if len(lines) > _LINES_NAMED else ""
    rest = (
        "and the other lines of this file are read"
        if has_line_records(spec)
        else "and in this file a line is not a record"
    )
    return f"{named}{more}; the limit is {LONGEST_LINE_BYTES:,} bytes, {rest}"


def _unpacked(path: Path) -> int:
    """What a byte of the file can at most become."""
    return _UNPACKED_BYTES.get(path.suffix, 1)


def _find_too_large(path: Path, spec: FilesSource) -> str | None:
    """The same for files that Spark holds at once."""
    if path.stat().st_size * _unpacked(path) <= LARGEST_DOCUMENT_BYTES:
        return None
    with _open(path) as stream:
        left = LARGEST_DOCUMENT_BYTES
        while left >= 0 and (chunk := stream.read(_CHUNK_BYTES)):
            left -= len(chunk)
    if left >= 0:
        return None
    if spec.format == "xml":
        which, way = "an xml file", "split it"
    elif has_documents(spec):
        which, way = "with multiLine a file", "split it, or write one object a line"
    else:
        which, way = f"in {encoding_of(spec)} a file", "split it, or convert it to UTF-8"
    return f"{which} is read as a whole, and it has more than {LARGEST_DOCUMENT_BYTES:,} bytes: {way}"


def write_other_lines(path: Path, target: Path, spec: FilesSource) -> None:
    """Write ``path`` without its long lines to ``target``, compressed as it is. In their places json and csv get
    empty lines, which are not records, so that the others keep their numbers."""
    with _open(path) as stream, _open(target, "wb") as out:
        for _, size, text in _split(stream, _separator(spec)):
            if not size or spec.format != "text":
                out.write(text)
    with open(target, "rb") as written:
        os.fsync(written.fileno())


def _split(stream: object, separator: bytes | None) -> Iterator[tuple[int, int, bytes]]:
    """The text in stretches no longer than the longest line and a chunk: (number of its first line, 0, text). For a
    line that is too long (number, size in bytes, its line break)."""
    number, held, dropped = 1, b"", 0  # ``held`` is the begin of a line, ``dropped`` the bytes of one that is too long
    while chunk := _read(stream, separator):
        if dropped:
            end = _first_break(chunk, separator)
            rest = len(chunk) if end is None else _size(chunk[:end], separator)
            dropped += rest
            if end is None:
                continue
            yield number, dropped, chunk[rest:end]
            number, dropped, chunk = number + 1, 0, chunk[end:]
        text = held + chunk
        end = _last_break(text, separator)
        first = _first_break(text, separator)
        if first is not None and (size := _size(text[:first], separator)) > LONGEST_LINE_BYTES:
            yield number, size, text[size:first]
            number, text, end = number + 1, text[first:], (end or first) - first
        if end:
            yield number, 0, text[:end]
            number += _count_breaks(text[:end], separator)
        held = text[end:] if end else text
        if len(held) > LONGEST_LINE_BYTES:
            held, dropped = b"", len(held)
    if dropped:
        yield number, dropped, b""
    elif held:
        yield number, 0, held


def _read(stream: Any, separator: bytes | None) -> bytes:
    """The next chunk, which does not end in the middle of a line break."""
    chunk: bytes = stream.read(_CHUNK_BYTES)
    halves = (b"\r",) if separator is None else tuple(separator[:size] for size in range(1, len(separator)))
    while halves and chunk.endswith(halves) and (more := stream.read(1)):
        chunk += more
    return chunk


def _size(line: bytes, separator: bytes | None) -> int:
    """Of a line without its line break."""
    return len(line.rstrip(b"\r\n") if separator is None else line.removesuffix(separator))


def _first_break(text: bytes, separator: bytes | None) -> int | None:
    """Where the first line ends, its line break included."""
    if separator is not None:
        found = text.find(separator)
        return None if found < 0 else found + len(separator)
    ends = [found for found in (text.find(b"\n"), text.find(b"\r")) if found >= 0]
    if not ends:
        return None
    end = min(ends) + 1
    return end + 1 if text[end - 1 : end + 1] == b"\r\n" else end


def _last_break(text: bytes, separator: bytes | None) -> int | None:
    if separator is not None:
        # From the left, as Spark looks for it: the first two of `|||` are `||`.
        return len(text) - len(text.split(separator)[-1]) or None
    found = max(text.rfind(b"\n"), text.rfind(b"\r"))
    return None if found < 0 else found + 1


def _count_breaks(text: bytes, separator: bytes | None) -> int:
    if separator is not None:
        return text.count(separator)
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _separator(spec: FilesSource) -> bytes | None:
    told = parser_options(spec).get("lineSep")
    return None if told is None else told.encode()


def _open(path: Path, mode: str = "rb") -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, mode)
    if path.suffix == ".bz2":
        return bz2.open(path, mode)
    return open(path, mode)
