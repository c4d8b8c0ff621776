"""Splits multi-line JSON files into the texts of their records: the elements of an array, or consecutive values.

This module looks only at quotes, brackets and commas; the text of a record is parsed later.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.lines import BLOCK_BYTES, BOM, KEPT_BYTES, Records, Refused, count_breaks

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLANKS = b" \t\r\n"
_FROM_HERE = "from here on"
_BROKEN = f"not valid JSON {_FROM_HERE}"
NOT_CLOSED = f"{_BROKEN}: an array, an object or a text is not closed"
TEXT_BEHIND = f"{_BROKEN}: text after the array"
NO_VALUE = "not valid JSON: no value before a comma or a bracket"


def find_break(file: BinaryIO) -> str | None:
    """Why ``file`` cannot be cut to its end, with the line; None where it can. What is before that line may be half of
    what was to be sent, and comes again with the corrected file: so nothing of such a file is read."""
    for some in read_documents(file):
        if isinstance(some, Refused) and some.detail.startswith(_BROKEN):
            return some.detail.replace(_FROM_HERE, f"from line {some.number:,} on", 1)
    return None


def read_documents(file: BinaryIO) -> Iterator[Records | Refused]:
    """The records of ``file``. From where it cannot be cut any more, the rest of it is one that is refused."""
    pieces, number = _read_pieces(file), 1
    for piece in pieces:
        text = piece.lstrip(_BLANKS)
        number += count_breaks(piece[: len(piece) - len(text)])
        if text:
            is_array = text.startswith(b"[")
            cutter = _Cutter(is_array=is_array, number=number)
            for one in itertools.chain([text[is_array:]], pieces):
                yield from cutter.take(one)
            yield from cutter.finish()


def _read_pieces(file: BinaryIO) -> Iterator[bytes]:
    """The text of ``file`` in pieces that end neither behind half of an escape nor within a line end."""
    begun = file.read(len(BOM)).removeprefix(BOM)
    while piece := begun + file.read(BLOCK_BYTES):
        begun = b""
        while (piece.endswith(b"\r") or (len(piece) - len(piece.rstrip(b"\\"))) % 2) and (more := file.read(1)):
            piece += more
        yield piece


class _Cutter:
    """Takes the text of a file piece by piece. Of an array it begins behind the bracket that opens it."""

    def __init__(self, *, is_array: bool, number: int) -> None:
        self._is_array = is_array
        self._outline = _Outline(is_array=is_array)
        self._rest = b""
        """The record that is not complete, without the blanks before it."""
        self._number = self._first = number
        """The line that ``_rest`` begins with; the former is as many lines before the next one as ``_rest`` has."""
        self._passed = 0
        """The bytes of the record that are not kept, since it is too long."""
        self._mark = b"[" if is_array else b""
        """What is before it: a value may be missing, and something has to be shown of it."""
        self._is_behind = False
        self._fault: str | None = None
        """Why what is left of the file is not looked at."""

    def take(self, piece: bytes) -> Iterator[Records | Refused]:
        """The records that end in ``piece``."""
        text = self._rest + piece
        breaks = _find_breaks(text)
        if self._fault is not None or self._is_behind:
            self._hold(text, 0, breaks)
            return
        ends, stop = self._outline.look(piece)
        is_end, begin = stop == b"]" and self._is_array, 0
        if len(ends):
            ends = ends + len(self._rest)
            begins: list[int] = [0, *(ends + self._is_array).tolist()]
            begin = begins.pop()
            raws = [text[first:end].lstrip(_BLANKS) for first, end in zip(begins, ends.tolist(), strict=True)]
            starts = ends - np.fromiter(map(len, raws), np.int64, len(raws))
            if not (is_end and self._mark == b"[" and raws == [b""]):  # an empty array
                numbers = (np.searchsorted(breaks, starts) + self._number).tolist()
                texts = [raw.rstrip(_BLANKS) for raw in raws]
                if self._passed:
                    numbers[0], texts[0] = self._first, raws[0]
                yield from self._give(text[starts[0] : ends[-1]], texts, numbers)
            self._passed, self._mark = 0, b"," if self._is_array else b""
        if is_end:
            self._is_behind = True
        elif stop is not None:
            self._fault = f"{_BROKEN}: an unexpected {stop.decode()}"
        self._hold(text, begin, breaks)

    def finish(self) -> Iterator[Records | Refused]:
        """The record at the end of the file, where something is left."""
        text = self._rest if self._passed else self._rest.rstrip(_BLANKS)
        number = self._first if self._passed else self._number
        if self._fault is None and not self._is_behind and (self._is_array or self._outline.is_open):
            self._fault = NOT_CLOSED
        if self._fault is None and text:
            yield from self._give(text, [text], [number])
        elif self._fault is not None:
            size = self._passed + len(text)
            more = f"; it has {size:,} bytes; {TOO_LARGE}" if size > LONGEST_RECORD_BYTES else ""
            yield Refused(text[:KEPT_BYTES] if more else text or self._mark, number, self._fault + more)

    def _hold(self, text: bytes, begin: int, breaks: NDArray[np.int64]) -> None:
        """Keep what is in ``text`` from ``begin`` on, or the beginning of what is too long."""
        rest = text[begin:].lstrip(_BLANKS)
        self._number += int(np.searchsorted(breaks, len(text) - len(rest)))
        if self._is_behind and rest:
            self._fault = self._fault or TEXT_BEHIND
        if len(rest) > LONGEST_RECORD_BYTES + BLOCK_BYTES:
            self._first = self._first if self._passed else self._number
            self._passed += len(rest) - KEPT_BYTES
            self._number += count_breaks(rest[KEPT_BYTES:])
            rest = rest[:KEPT_BYTES]
        self._rest = rest

    def _give(self, block: bytes, texts: list[bytes], numbers: list[int]) -> Iterator[Records | Refused]:
        """Records, each that cannot be looked at by itself; the first of them has ``_passed`` bytes more."""
        sizes = list(map(len, texts))
        sizes[0] += self._passed
        is_plain = all(sizes) if self._is_array else all(text.startswith((b"{", b"[")) for text in texts)
        if is_plain and max(sizes) <= LONGEST_RECORD_BYTES:
            yield Records(block, texts, numbers)
            return
        for text, number, size in zip(texts, numbers, sizes, strict=True):
            if size > LONGEST_RECORD_BYTES:
                yield Refused.too_large(text, number, size, "a record")
            elif not self._is_array:
                yield _divide(text, number)
            elif text:
                yield Records(text, [text], [number])
            else:
                yield Refused(self._mark, number, NO_VALUE)
            self._mark = b","


class _Outline:
    """Where values end, by the brackets and quotes of a text that is looked at piece by piece."""

    def __init__(self, *, is_array: bool) -> None:
        self._is_array = is_array
        self._depth = 0
        self._is_in_text = False

    @property
    def is_open(self) -> bool:
        """Return whether a value is not complete."""
        return self._is_in_text or self._depth > 0

    def look(self, text: bytes) -> tuple[NDArray[np.int64], bytes | None]:
        """(an array of the ends of the values in ``text``; the comma or bracket behind which nothing is looked at).

        The values of an array end before a comma or the last bracket, those one after the other behind a bracket.
        """
        plain = text
        if b"\\" in text:
            plain = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        marks = np.frombuffer(plain.translate(_MARKS), np.uint8)
        at = np.flatnonzero(marks != _NONE)
        marks = marks[at]
        is_quote = marks == _QUOTE
        quotes = np.cumsum(is_quote) + self._is_in_text
        is_bare = ~is_quote & (quotes % 2 == 0)
        if len(quotes):
            self._is_in_text = bool(quotes[-1] % 2)
        at, marks = at[is_bare], marks[is_bare]
        depths = np.cumsum(_STEPS[marks], dtype=np.int64) + self._depth
        if len(depths):
            self._depth = int(depths[-1])
        commas = (depths == 0) & (marks == _COMMA)
        wrong = at[(depths < 0) if self._is_array else (depths < 0) | commas]
        ends = at[commas] if self._is_array else at[(depths == 0) & (marks == _CLOSING)] + 1
        if not len(wrong):
            return ends, None
        first = int(wrong[0])
        stop = text[first : first + 1]
        ends = ends[ends <= first]
        return np.append(ends, first) if self._is_array and stop == b"]" else ends, stop


_NONE, _QUOTE, _OPENING, _CLOSING, _COMMA = range(5)
_STEPS = np.array([0, 0, 1, -1, 0], np.int8)
_MARKS = bytes(
    {34: _QUOTE, 91: _OPENING, 123: _OPENING, 93: _CLOSING, 125: _CLOSING, 44: _COMMA}.get(byte, _NONE)
    for byte in range(256)
)
_BARE = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{\[].*+|[^ \t\r\n"{\[]++|"', re.DOTALL)


def _divide(text: bytes, number: int) -> Records:
    """Values one after the other of which at most the last has brackets: texts and bare words."""
    found = list(_BARE.finditer(text))
    numbers = [number + count_breaks(text[: match.start()]) for match in found]
    return Records(text, [match[0] for match in found], numbers)


def _find_breaks(text: bytes) -> NDArray[np.int64]:
    """Return where the line ends are, as an array."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
    return np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
