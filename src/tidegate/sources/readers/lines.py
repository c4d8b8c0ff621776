"""The lines of a part of a file: a range of bytes, from the first line that begins in it to the last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE

PART_BYTES = 32 << 20
"""The longest part of a file of lines, so that all cores work on a large file."""
PACKED_SUFFIXES = (".gz", ".bz2", ".deflate", ".snappy", ".lz4", ".zst")
"""Files with these endings are packed, and can be read from their beginning alone."""
BLOCK_BYTES = 1 << 20
_ANY_END = re.compile(rb"\r\n|\n|\r")
KEPT_BYTES = 1000
"""What is kept of a line that is too long."""
BOM = b"\xef\xbb\xbf"


def is_packed(path: str) -> bool:
    """Return whether a file can be read from its beginning alone."""
    return path.endswith(PACKED_SUFFIXES)


class Records(NamedTuple):
    """The texts of some records, with the number of the line that each begins with; ``block`` holds all of them."""

    block: bytes
    texts: list[bytes]
    numbers: Sequence[int]


class Refused(NamedTuple):
    """A record that is not looked at: what is kept of it, the number of the line that it begins with, and why."""

    text: bytes
    number: int
    detail: str

    @classmethod
    def too_large(cls, text: bytes, number: int, size: int, what: str = "a line") -> Refused:
        """One of so many bytes, of which ``text`` is the beginning."""
        return cls(text[:KEPT_BYTES], number, f"{what} of {size:,} bytes; {TOO_LARGE}")


def read_blocks(file: BinaryIO, begin: int, end: int | None, ending: bytes | None) -> Iterator[Records | Refused]:
    """The lines of ``file`` that begin in [begin, end), in blocks of about 1 MiB; ``end`` None is the end of the file.

    ``ending`` ends a line; None is a line feed, a carriage return, or both together. The last line of a file needs
    none. Lines are numbered from 1 in the range. A line that has more bytes than a record may have is refused.
    """
    at, rest = begin, b""
    if begin:
        at, rest = _skip_line(file, begin, ending)
        if end is not None and at >= end:
            return
    else:
        rest = file.read(BLOCK_BYTES)
        if rest.startswith(BOM):
            rest, at = rest[len(BOM) :], len(BOM)
    number, is_last = 1, False
    while not is_last:
        chunk = file.read(BLOCK_BYTES)
        rest += chunk
        is_last = not chunk
        cut = len(rest) if is_last else last_end(rest, ending)
        if end is not None and at + cut >= end:
            cut, is_last = _end_behind(rest, end - at, ending, cut), True
        if cut == 0:
            if len(rest) > LONGEST_RECORD_BYTES + longest_end(ending):
                begun = rest[:KEPT_BYTES]
                passed = pass_line(file, rest, ending)
                yield Refused.too_large(begun, number, passed.size)
                at, rest, number = at + passed.size_with_end, passed.rest, number + 1
                is_last = end is not None and at >= end
            continue
        text, rest, at = rest[:cut], rest[cut:], at + cut
        lines = split_lines(text, ending)
        yield from refuse_large(Records(text, lines, range(number, number + len(lines))))
        number += len(lines)


def refuse_large(records: Records, what: str = "a line") -> Iterator[Records | Refused]:
    """The same; each that is too long is refused."""
    if len(records.block) <= LONGEST_RECORD_BYTES or max(map(len, records.texts)) <= LONGEST_RECORD_BYTES:
        yield records
        return
    for text, number in zip(records.texts, records.numbers, strict=True):
        if len(text) > LONGEST_RECORD_BYTES:
            yield Refused.too_large(text, number, len(text), what)
        else:
            yield Records(text, [text], [number])


class Passed(NamedTuple):
    """A line that was skipped: its bytes, without and with its end, and what was read behind it."""

    size: int
    size_with_end: int
    rest: bytes


def pass_line(file: BinaryIO, begun: bytes, ending: bytes | None) -> Passed:
    """Pass over the line of which ``begun`` is the beginning."""
    size = 0
    while True:
        found = _find_end(begun, 0, ending)
        if found is not None and (found < len(begun) or ending is not None or begun.endswith(b"\n")):
            end = len(ending) if ending is not None else 2 if begun.endswith(b"\r\n", 0, found) else 1
            return Passed(size + found - end, size + found, begun[found:])
        keep = min(len(begun), len(ending) - 1 if ending is not None else 1)
        size, begun = size + len(begun) - keep, begun[len(begun) - keep :]
        chunk = file.read(BLOCK_BYTES)
        if not chunk:
            size += len(begun)
            is_ended = ending is None and begun.endswith(b"\r")  # one at the very end might have been half of one
            return Passed(size - is_ended, size, b"")
        begun += chunk


def split_lines(text: bytes, ending: bytes | None) -> list[bytes]:
    """The lines of ``text``, without their ends; what is behind the last end is a line if it is not empty."""
    if ending is not None:
        lines = text.split(ending)
    elif b"\r" in text:
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    else:
        lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def count_breaks(text: bytes, ending: bytes | None = None) -> int:
    """Count the line ends in ``text``; ``ending`` None is a line feed, a carriage return, or both together."""
    if ending is not None:
        return text.count(ending)
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def longest_end(ending: bytes | None) -> int:
    """The bytes of a line's end, at most."""
    return 2 if ending is None else len(ending)


def last_end(text: bytes, ending: bytes | None) -> int:
    """The bytes up to the end of the last whole line; a carriage return at the very end may be half of one."""
    if ending is not None:
        # From the left, as lines are divided: the first two of `|||` are `||`.
        return len(text) - len(text.split(ending)[-1])
    return max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1


def _end_behind(text: bytes, at: int, ending: bytes | None, whole: int) -> int:
    """The bytes up to the end of the line that has the byte before ``at``; ``whole`` are those of all whole lines."""
    found = _find_end(text, at - (len(ending) if ending is not None else 1), ending)
    return whole if found is None else min(found, whole)


def _find_end(text: bytes, start: int, ending: bytes | None) -> int | None:
    """Return where the first line end that ends behind ``start`` ends."""
    start = max(start, 0)
    if ending is not None:
        found = text.find(ending, start)
        return None if found < 0 else found + len(ending)
    match = _ANY_END.search(text, start)
    return None if match is None else match.end()


def _skip_line(file: BinaryIO, begin: int, ending: bytes | None) -> tuple[int, bytes]:
    """The position of the first line that begins at ``begin`` or behind it, and what was read of it."""
    position = max(begin - (len(ending) if ending is not None else 1), 0)
    file.seek(position)
    passed = pass_line(file, file.read(BLOCK_BYTES), ending)
    return position + passed.size_with_end, passed.rest
