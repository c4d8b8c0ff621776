"""Reads the records of a part of a csv file, and the header or ``sep=`` line at the beginning of the file."""

from __future__ import annotations

import codecs
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.csv_rows import Splitter, is_blank
from tidegate.sources.readers.csv_values import CsvOptions
from tidegate.sources.readers.lines import (
    BLOCK_BYTES,
    BOM,
    KEPT_BYTES,
    Records,
    Refused,
    count_breaks,
    last_end,
    longest_end,
    pass_line,
    read_blocks,
    refuse_large,
    split_lines,
)
from tidegate.sources.readers.opening import decode_file
from tidegate.sources.readers.unreadable import DamagedFile
from tidegate.spec.encodings import is_wide

_NEAR_BYTES = 256


def read_spans(file: BinaryIO, options: CsvOptions) -> Iterator[Records | Refused]:
    """The records of ``file``, among them blank lines and comments."""
    spans, rest, is_last = _Spans(options), file.read(BLOCK_BYTES).removeprefix(BOM), False
    while True:
        texts, numbers, end = spans.take(rest, is_last)
        if texts:
            yield from refuse_large(Records(rest[:end], texts, numbers), "a record")
        rest = rest[end:]
        if spans.is_too_long:
            begun, number = rest[:KEPT_BYTES], spans.pass_line()
            passed = pass_line(file, rest, spans.ending)
            rest = passed.rest
            yield Refused.too_large(begun, number, passed.size)
            continue
        if end and rest:
            continue  # what was read ahead, for an open quote, is given out in pieces
        if is_last:
            return
        chunk = file.read(BLOCK_BYTES)
        rest, is_last = rest + chunk, not chunk


def strip_returns(lines: list[bytes], text: bytes, ending: bytes | None) -> list[bytes]:
    """The ``lines`` of ``text``; where a line feed ends one, a carriage return before it is removed."""
    if ending == b"\n" and b"\r" in text:
        return [line.removesuffix(b"\r") for line in lines]
    return lines


class _Spans:
    def __init__(self, options: CsvOptions) -> None:
        self._next = 1  # the number of the line that comes next
        self._quote = options.quote.encode()
        self.ending = None if options.ending is None else options.ending.encode()
        self.is_too_long = False
        """Whether the line behind what was taken last is longer than a record may be."""
        pattern = _Pattern(options)
        self._break = re.compile(pattern.breaks)
        if self._quote:  # without one a line is a record
            self._row, self._open = re.compile(pattern.row(), re.DOTALL), re.compile(pattern.open(), re.DOTALL)

    def take(self, text: bytes, is_last: bool) -> tuple[list[bytes], list[int], int]:
        """(the first records in ``text`` that are there whole, their numbers, where the last of them ends)."""
        texts, numbers, at = list[bytes](), list[int](), 0
        self.is_too_long = False
        while at < min(len(text), BLOCK_BYTES):
            quote = text.find(self._quote, at) if self._quote else -1
            end = self._end_of_lines(text, at, quote, is_last)
            if end > at:
                some = strip_returns(split_lines(text[at:end], self.ending), text, self.ending)
                begins: Sequence[int] = range(self._next, self._next + len(some))
                self._next += len(some)
            elif quote < 0:
                self.is_too_long = len(text) - at > LONGEST_RECORD_BYTES + longest_end(self.ending)
                break
            else:
                some, end = self._take_fitting(text, at, is_last)
                if not some:
                    found = self._end_alone(text, at, is_last)
                    if found is None:
                        self.is_too_long = len(text) - at > LONGEST_RECORD_BYTES + longest_end(self.ending)
                        break
                    some, end = [text[at : found[0]]], found[1]
                begins = self._number(some, text[at:end])
            texts += some
            numbers += begins
            at = end
        return texts, numbers, at

    def pass_line(self) -> int:
        """The number of the line that comes next, which is skipped."""
        self._next += 1
        return self._next - 1

    def _number(self, records: Sequence[bytes], text: bytes) -> Sequence[int]:
        """The lines that ``records``, which follow each other in ``text``, begin with."""
        first, breaks = self._next, count_breaks(text, self.ending)
        self._next += breaks
        is_ended = count_breaks(text[-len(self.ending or b"\n") :], self.ending)
        if breaks <= len(records) - (not is_ended):
            return range(first, first + len(records))
        begins = (count_breaks(record, self.ending) + 1 for record in records[:-1])
        return list(itertools.accumulate(begins, initial=first))

    def _end_of_lines(self, text: bytes, at: int, quote: int, is_last: bool) -> int:
        """Return where the lines behind ``at`` end that are there whole and before the one with the quote."""
        is_far = (quote < 0 or quote > at + BLOCK_BYTES) and len(text) > at + BLOCK_BYTES
        if is_far and (found := last_end(text[at : at + BLOCK_BYTES], self.ending)):
            return at + found
        if quote < 0:
            return len(text) if is_last else at + last_end(text[at:], self.ending)
        if self.ending is not None:
            found = text.rfind(self.ending, at, quote)
            return at if found < 0 else found + len(self.ending)
        return max(text.rfind(b"\n", at, quote), text.rfind(b"\r", at, quote), at - 1) + 1

    def _take_fitting(self, text: bytes, at: int, is_last: bool) -> tuple[list[bytes], int]:
        """(the records from ``at`` on whose quotes fit, where they end)."""
        records, size = list[bytes](), len(text)
        for match in iter(self._row.scanner(text, at).match, None):  # type: ignore[attr-defined]
            start, end = match.span(1)
            if (end == size and not self._is_sure(text, (start, end), is_last)) or end - at > LONGEST_RECORD_BYTES:
                break
            records.append(text[at:start])
            at = end
            # Lines without a quote are split faster.
            if at >= BLOCK_BYTES or text.find(self._quote, at, at + _NEAR_BYTES) < 0:
                break
        return records, at

    def _end_alone(self, text: bytes, at: int, is_last: bool) -> tuple[int, int] | None:
        """(the end of the line at ``at``, the end of its line end); None where more has to be read: to know of a quote
        that is open, or the line's end."""
        match = self._row.match(text, at)
        is_open = match.end() == len(text) if match else self._open.match(text, at)
        if is_open and not is_last and len(text) - at <= LONGEST_RECORD_BYTES + longest_end(self.ending):
            return None
        line = self._break.search(text, at)
        if line is not None and self._is_sure(text, line.span(), is_last):
            return line.span()
        return (len(text), len(text)) if is_last else None

    @staticmethod
    def _is_sure(text: bytes, ending: tuple[int, int], is_last: bool) -> bool:
        """Return whether ``ending`` is a line end whatever follows ``text``; a carriage return may be half of one."""
        start, end = ending
        return is_last or (start < end and not (end == len(text) and text.endswith(b"\r")))


class _Pattern:
    """Regular expressions of a row as :class:`tidegate.sources.readers.csv_rows.Splitter` reads it."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._quote, self._escape = options.quote.encode(), options.escape.encode()
        self._escape_of_escape, self._separator = options.escape_of_escape.encode(), options.separator.encode()
        self.breaks = options.breaks.encode()
        self._stops = b"%s|%s" % (re.escape(self._separator), self.breaks)
        ends = (b"\r", b"\n") if options.ending in (None, "\n") else (options.ending.encode()[:1],)
        self._begins = (self._separator[:1], *ends)
        self._is_simple = options.ending is None and len(self._separator) == 1
        if self._is_simple:
            self._stops = b"[\\r\\n\\x%02x]" % self._separator[0]
        self._behind = b"(?=%s|\\Z)" % self._stops
        self._blanks = b"(?:(?!%s)[\\x00-\\x20])*+" % self._stops
        self._before = self._blanks if options.trims_left else b""

    def row(self) -> bytes:
        """A row whose quotes fit, or a comment, and as a group its line end."""
        field, separator = self._field(), re.escape(self._separator)
        fields = b"%s(?:%s%s)*+" % (field, separator, field)
        if comment := re.escape(self._options.comment.encode()):
            fields = b"(?:%s(?:(?!%s).)*+|%s)" % (comment, self.breaks, fields)
        return b"%s(%s|\\Z)" % (fields, self.breaks)

    def open(self) -> bytes:
        """A row up to the end of the text, with a quote that is open."""
        return b"(?:%s%s)*+%s%s%s\\Z" % (
            *(self._field(), re.escape(self._separator), self._before),
            *(re.escape(self._quote), self._content()),
        )

    def _field(self) -> bytes:
        quote = re.escape(self._quote)
        plain = _none_of(*self._begins)
        # Most often each mark is one byte.
        to_stop = plain + b"*+" if self._is_simple else b"(?:%s++|(?!%s).)*+" % (plain, self._stops)
        quoted = b"%s%s%s" % (quote, self._content(), quote)
        fits = quoted + self._blanks + self._behind
        handling = self._options.handling
        if handling in ("STOP_AT_DELIMITER", "SKIP_VALUE"):
            fits = quoted + to_stop
        elif handling == "BACK_TO_DELIMITER":
            # Once a field fits, it is not taken another way because a quote behind it is open.
            fits = b"(?>%s|(?=%s)%s)" % (fits, quoted, to_stop)
        return b"%s(?:%s|(?!%s)%s)" % (self._before, fits, quote, to_stop)

    def _content(self) -> bytes:
        """What is between quotes."""
        quote, escape, other = self._quote, self._escape, self._escape_of_escape
        pairs = [other + escape] * bool(other and escape) + [escape + quote] * bool(escape) + [quote * 2]
        marks = {mark for mark in (quote, escape, other) if mark}
        within = b"|".join([b"(?:%s)++" % _none_of(*sorted(marks)), *map(re.escape, pairs), _none_of(quote)])
        if self._options.handling == "STOP_AT_CLOSING_QUOTE":
            within += b"|%s(?!%s%s)" % (re.escape(quote), self._blanks, self._behind)
        return b"(?:%s)*+" % within


def _none_of(*texts: bytes) -> bytes:
    """One byte that does not begin any of ``texts``."""
    if all(len(text) == 1 for text in texts):
        return b"[^" + b"".join(b"\\x%02x" % text[0] for text in texts) + b"]"
    return b"(?!" + b"|".join(map(re.escape, texts)) + b")."


HEAD_BYTES = 1 << 20
"""A header ends within so many bytes."""
_SHOWN = 1000
_SEPARATOR_LINE = re.compile("(?i:sep)=(.)")


class Head(NamedTuple):
    """The options with those that the file sets, and the number of lines before its first record."""

    options: CsvOptions
    lines: int


def read_head(file: BinaryIO, names: Sequence[str], options: CsvOptions) -> Head:
    """Read the head of ``file``; ``names`` are those of the schema. Raises DamagedFile where its header differs."""
    content = file.read(HEAD_BYTES)
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    breaks = re.compile(rf"{options.breaks}|\Z")
    at, number = 0, 0
    while at < len(text):
        end = breaks.search(text, at)
        assert end is not None, "the end of the text is one"
        line, number = text[at : end.start()], number + 1
        separator = _SEPARATOR_LINE.fullmatch(line) if number == 1 and len(names) > 1 else None
        if separator is not None:
            options = options.with_layout(separator[1], False)
        elif not is_blank(line, options.separator) and not (options.comment and line.startswith(options.comment)):
            if not options.has_header:
                return Head(options, number - 1)
            row = Splitter(options).split(text if options.spans_lines else line, at if options.spans_lines else 0)
            found = [name or "" for name in row.fields]
            is_longer = len(found) == len(names) + 1 and not found[-1]
            named = [name.lower() or f"_c{at}" for at, name in enumerate(found[:-1] if is_longer else found)]
            if row.fault is not None or named != [name.lower() for name in names]:
                garbled = _explain_garbled(content, max(line, text[at : row.end], key=len), options.encoding)
                shown = f"its header is {_show(found)}; the schema wants {', '.join(names)}"
                raise DamagedFile(garbled or (f"its header has {row.fault}" if row.fault else shown))
            inside = len(breaks.findall(text, at, row.end)) - 1 if options.spans_lines else 0
            return Head(options.with_layout(options.separator, is_longer), number + inside)
        at = max(end.end(), at + 1)
    return Head(options, number)


def _explain_garbled(content: bytes, header: str, encoding: str) -> str | None:
    """Explain a ``header`` that seems to be in another encoding; the file begins with ``content``."""
    if codecs.lookup(encoding).name != "utf-8" and content.startswith(
        decode_file(io.BytesIO(codecs.BOM_UTF8), encoding)[0].read()
    ):
        return f"the file begins with the byte order mark of UTF-8, but the option encoding is {encoding}"
    if "\0" in header and not is_wide(encoding):
        return "its header has NUL characters: for a file in UTF-16 set options: {encoding: UTF-16}"
    return f"its header is not valid {encoding}" if "\ufffd" in header else None


def _show(names: Sequence[str]) -> str:
    """Names on one line, as a terminal may have them."""
    text = ", ".join(names)
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:_SHOWN])
    return shown if len(text) <= _SHOWN else f"{shown}..."


def read_records(file: BinaryIO, begin: int, end: int | None, head: Head) -> Iterator[Records | Refused]:
    """The records of ``file`` that begin in [begin, end)."""
    options = head.options
    every = read_spans(file, options) if options.spans_lines else _read_lines(file, begin, end, options)
    before = head.lines if begin == 0 else 0
    for records in every:
        if isinstance(records, Refused):
            yield records
        elif some := _drop(records, before, options):
            yield some


def _read_lines(file: BinaryIO, begin: int, end: int | None, options: CsvOptions) -> Iterator[Records | Refused]:
    ending = None if options.ending is None else options.ending.encode()
    for records in read_blocks(file, begin, end, ending):
        if isinstance(records, Records):
            records = records._replace(texts=strip_returns(records.texts, records.block, ending))
        yield records


def _drop(records: Records, before: int, options: CsvOptions) -> Records | None:
    """``records`` without the first lines, blank lines and comments."""
    block, texts, numbers = records
    comment, separator = options.comment.encode(), options.separator.encode()
    is_clean = numbers[0] > before and all(map(bytes.strip, texts))
    if is_clean and not (comment and comment in block):
        return records
    kept = [
        at
        for at, text in enumerate(texts)
        if numbers[at] > before and (text.strip() or separator in text) and not (comment and text.startswith(comment))
    ]
    return Records(block, [texts[at] for at in kept], [numbers[at] for at in kept]) if kept else None
