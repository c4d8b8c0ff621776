"""The line of a raw record in its file, for positions in quarantine."""

from __future__ import annotations

import base64
import bz2
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.sources.files.content import is_compressed
from tidegate.spec.encodings import is_wide, line_pattern, wide_codec

_CHUNK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


def line_numbers(
    path: str | os.PathLike[str],
    raw_lines: Sequence[str],
    *,
    start: int = 1,
    limit_bytes: int = 64 << 20,
    line_separator: str | None = None,
    encoding: str = "UTF-8",
) -> list[int | None]:
    """The lines of a text file, plain, .gz or .bz2, at which the records stand, in one pass.

    Equal records get successive lines. None where a record is not found, the file is gone, torn or compressed in a way
    that cannot be read here, or stands behind the first ``limit_bytes`` of text: the work is bounded. Lines end as
    Spark ends them, at \\n, \\r\\n or \\r, unless ``line_separator`` is given. In another ``encoding`` than UTF-8 a
    line that cannot be decoded is found by its base64.
    """
    waiting: dict[bytes, list[int]] = {}
    for index in range(len(raw_lines) - 1, -1, -1):
        waiting.setdefault(_comparable(raw_lines[index]), []).append(index)
    # A record with bytes that are no UTF-8 has come through as replacement characters.
    loose = any("\ufffd" in raw for raw in raw_lines)
    found: list[int | None] = [None] * len(raw_lines)
    left = len(raw_lines)
    if not left:
        return found
    try:
        for number, line in enumerate(_lines_in(path, encoding, limit_bytes, line_separator), start=1):
            if number < start:
                continue
            indexes = waiting.get(line)
            if not indexes and loose:
                indexes = waiting.get(_comparable(line.decode("utf-8", "replace")))
            if indexes:
                found[indexes.pop()] = number
                left -= 1
                if not left:
                    break
    except (OSError, EOFError, zlib.error):
        pass  # what was found before the tear still stands
    return found


def _comparable(raw: str) -> bytes:
    if "\ufffd" in raw:
        # Java and Python do not put the same number of replacement characters for the same bytes.
        while "\ufffd\ufffd" in raw:
            raw = raw.replace("\ufffd\ufffd", "\ufffd")
    return raw.encode("utf-8", "surrogateescape")


def _lines_in(
    path: str | os.PathLike[str], encoding: str, limit_bytes: int, line_separator: str | None
) -> Iterator[bytes]:
    """The lines as UTF-8."""
    if encoding == "UTF-8":
        yield from _lines(path, limit_bytes, line_separator)
        return
    codec, lines = encoding, _lines(path, limit_bytes, line_separator)
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if is_wide(encoding):
        if _is_closed(suffix):
            return
        with _open(path, suffix) as handle:
            text = handle.read(limit_bytes)  # such files are bounded
        codec, mark = wide_codec(encoding, text[:4])
        found = re.finditer(line_pattern(codec, line_separator).encode("latin-1"), text[mark:])
        lines = (one[1] for one in found)
    for line in lines:
        try:
            yield line.decode(codec).encode()
        except UnicodeDecodeError:
            yield base64.b64encode(line)


def _lines(path: str | os.PathLike[str], limit_bytes: int, line_separator: str | None) -> Iterator[bytes]:
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if _is_closed(suffix):
        return
    with _open(path, suffix) as handle:
        rest = b""
        is_first = True
        while limit_bytes > 0 and (chunk := handle.read(min(_CHUNK_BYTES, limit_bytes))):
            limit_bytes -= len(chunk)
            if is_first:
                is_first = False
                chunk = chunk.removeprefix(_BOM)
            text = rest + chunk
            # A carriage return at the end of a chunk may be half of a \r\n.
            held = b"\r" if line_separator is None and text.endswith(b"\r") else b""
            lines = _split(text.removesuffix(held), line_separator)
            rest = lines.pop() + held
            yield from lines
        if rest and limit_bytes > 0:
            yield from _split(rest, line_separator)


def _is_closed(suffix: str) -> bool:
    """Whether a file with this ending cannot be unpacked here."""
    return is_compressed(suffix) and suffix not in (".gz", ".bz2")


def _open(path: str | os.PathLike[str], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.open(path, "rb")
    if suffix == ".bz2":
        return bz2.open(path, "rb")
    return open(path, "rb")


def _split(text: bytes, line_separator: str | None) -> list[bytes]:
    """The lines of ``text``; the last one is what follows the last separator, maybe nothing."""
    if line_separator is not None:
        return text.split(line_separator.encode())
    lines = text.splitlines()
    if not lines or text.endswith((b"\n", b"\r")):
        lines.append(b"")
    return lines
