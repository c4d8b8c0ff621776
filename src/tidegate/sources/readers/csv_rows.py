"""The fields of a csv row: the definition, for every option.

As RFC 4180 has it, with two leniencies that change no value: a quote within a field that does not begin with one is a
character, and blanks between a closing quote and what follows it are none. A doubled quote is a quote also where
another escape character is set.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from tidegate.core.words import count_of
from tidegate.sources.readers.csv_values import CsvOptions, make_field_reader
from tidegate.sources.readers.values import Fault, Findings
from tidegate.sources.readers.ways import PLAIN, Ways
from tidegate.spec.ddl import Node

OPEN = "a quote that is not closed"
UNESCAPED = "text behind a closing quote; a quote inside of quotes is doubled or escaped"


def is_blank(text: str, separator: str) -> bool:
    """Return whether a text is blank, and so not a record."""
    return not text.strip(" \t\n\r\v\f") and separator not in text


def too_long(limit: int) -> str:
    """Make the message for a field with more characters than ``limit``."""
    return f"more than {limit:,} characters (maxCharsPerColumn)"


class Row(NamedTuple):
    """A row; None is null. ``end`` is where its line end begins; with a ``fault`` nothing is known behind it."""

    fields: list[str | None]
    end: int
    fault: str | None = None
    """What is wrong with the field behind ``fields``."""


class Splitter:
    """Splits texts into fields. ``breaks`` is a regular expression of what ends a row."""

    def __init__(self, options: CsvOptions, breaks: str | None = None) -> None:
        self.options, self.breaks = options, options.breaks if breaks is None else breaks
        self._separator, self._quote, self._escape = options.separator, options.quote, options.escape
        self._escaped = {options.escape_of_escape + options.escape, options.escape + options.quote, options.quote * 2}
        self._is_lenient = options.handling != "RAISE_ERROR"

    @cached_property
    def _stop(self) -> re.Pattern[str]:
        """Behind a field."""
        return re.compile(rf"{re.escape(self._separator)}|{self.breaks}|\Z")

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """What may be more than a character, inside of quotes."""
        marks = {self._quote, self._escape, self.options.escape_of_escape} - {""}
        return re.compile("|".join(map(re.escape, marks)))

    def split(self, text: str, start: int = 0) -> Row:
        """The row that begins at ``start``."""
        fields: list[str | None] = []
        at = start
        while True:
            value, at, fault = self._read_field(text, at)
            if fault is not None:
                return Row(fields, at, fault)
            fields.append(None if value == self.options.null else value)
            if not text.startswith(self._separator, at):
                return Row(fields, at)
            at += len(self._separator)

    def _read_field(self, text: str, at: int) -> tuple[str | None, int, str | None]:
        """(the value, where it ends, why there is none)."""
        begin = self._skip_blanks(text, at) if self.options.trims_left else at
        if self._quote and text.startswith(self._quote, begin):
            return self._read_quoted(text, begin)
        end = self._end_behind(text, begin)
        value = text[begin:end]
        if self.options.trims_right:
            value = value.rstrip(CsvOptions.BLANKS)
        return value or None, end, None

    def _read_quoted(self, text: str, begin: int) -> tuple[str | None, int, str | None]:
        size, pieces = len(self._quote), list[str]()
        at = begin + size
        while (match := self._special.search(text, at)) is not None:
            pieces.append(text[at : match.start()])
            at = match.start()
            pair = text[at : at + 2]
            if pair in self._escaped and len(pair) == 2:
                pieces.append(pair[1])
                at += 2
            elif match[0] != self._quote:
                pieces.append(match[0])
                at += 1
            else:
                end = self._skip_blanks(text, at + size)
                if self._stop.match(text, end):
                    return "".join(pieces) or self.options.empty, end, None
                if self.options.handling != "STOP_AT_CLOSING_QUOTE":
                    return self._read_unescaped(text, begin, at + size)
                pieces.append(self._quote)
                at += size
        return None, len(text), OPEN

    def _read_unescaped(self, text: str, begin: int, behind: int) -> tuple[str | None, int, str | None]:
        """Read a field with text after a closing quote, by ``unescapedQuoteHandling``."""
        if not self._is_lenient:
            return None, behind, UNESCAPED
        end = self._end_behind(text, begin if self.options.handling == "BACK_TO_DELIMITER" else behind)
        return None if self.options.handling == "SKIP_VALUE" else text[begin:end], end, None

    def _end_behind(self, text: str, at: int) -> int:
        match = self._stop.search(text, at)
        assert match is not None, "the end of the text is one"
        return match.start()

    def _skip_blanks(self, text: str, at: int) -> int:
        while at < len(text) and text[at] <= " " and not self._stop.match(text, at):
            at += 1
        return at


class RowReader:
    """Reads rows as values of the columns of ``root``, a struct."""

    def __init__(self, root: Node, required: frozenset[str], options: CsvOptions, ways: Ways = PLAIN) -> None:
        self.splitter = Splitter(options, options.breaks_of_texts)
        self._options = options
        self._columns = [(name, make_field_reader(node, options, ways)) for name, node in root.fields]
        self._required = [name for name, _ in root.fields if name in required]
        wanted = count_of(len(root.fields), "column")
        self.other_width = f"not {wanted}{' and a separator at the end' if options.ends_with_separator else ''}"
        """What is said of a row with another number of columns."""

    def read(self, text: str, findings: Findings) -> dict[str, object]:
        """The values of a row; what is wrong with it is added to ``findings``."""
        found: dict[str, object] = {}
        fields = self._split(text)
        if isinstance(fields, Fault):
            findings.faults.append(fields)
            return found
        limit = self._options.characters_at_most
        for (name, read), field in zip(self._columns, fields, strict=True):
            if limit is not None and field is not None and len(field) > limit:
                findings.refuse(name, too_long(limit))
            elif field is not None:
                found[name], fault = read(field)
                if fault is not None:
                    findings.refuse(name, fault)
        findings.require(self._required, found)
        return found

    def _split(self, text: str) -> list[str | None] | Fault:
        """A text for each column, or why there are none."""
        if is_blank(text, self._options.separator):
            return Fault("", "empty")
        row = self.splitter.split(text)
        count, limit = len(row.fields), self._options.columns_at_most
        if row.fault is not None:
            return Fault(self._columns[count][0] if count < len(self._columns) else "", row.fault)
        if not re.fullmatch(rf"{self.splitter.breaks}|\Z", text[row.end :]):
            return Fault("", "a line break outside of quotes")
        if limit is not None and count > limit:
            return Fault("", f"more than {limit:,} columns (maxColumns)")
        is_ended = count == len(self._columns) + 1 and row.fields[-1] is None
        if self._options.ends_with_separator or (self._options.may_end_with_separator and is_ended):
            return row.fields[:-1] if is_ended else Fault("", self.other_width)
        return row.fields if count == len(self._columns) else Fault("", self.other_width)
