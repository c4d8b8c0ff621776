"""Reads csv records as record batches: most are split and converted column by column; doubtful ones are read by the
functions that define rows and values."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers.columns import Doubts, Texts, arrow_type, find_doubtful
from tidegate.sources.readers.csv_rows import RowReader, too_long
from tidegate.sources.readers.csv_values import CsvOptions, Read, make_field_reader
from tidegate.sources.readers.opening import encode_original, is_utf8
from tidegate.sources.readers.records import Batch, Wrong, arrange
from tidegate.sources.readers.values import MISSING, Fault, Findings
from tidegate.sources.readers.ways import PLAIN, Ways
from tidegate.spec.ddl import Node

ToArrow = Callable[[pa.Array], tuple[pa.Array, Doubts]]
"""(texts and nulls) -> (the column, which has any value in the place of a doubtful text; the doubtful positions)."""

_DIGITS_OF_ARROW = 38
_DIGITS_HELD = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}


def make_column_reader(node: Node, options: CsvOptions, ways: Ways) -> ToArrow:
    """How texts become a column of the type ``node``."""
    kind = node.kind
    if kind == "string":
        return lambda texts: (texts, set())
    if kind == "boolean":
        return _read_booleans
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return Texts(node, ways).read_texts
    if kind in ("float", "double"):
        return _floating(node, options)
    if kind == "decimal":
        return _decimal(node, ways)
    return _whole(node)


def _read_booleans(texts: pa.Array) -> tuple[pa.Array, Doubts]:
    is_true = pc.equal(texts, "true")
    doubtful = pc.invert(pc.or_(is_true, pc.equal(texts, "false")))
    return is_true, find_doubtful(doubtful)


def _cast(texts: pa.Array, type_: pa.DataType, plain: str) -> tuple[pa.Array, Doubts]:
    """``texts`` cast at once where all of them can be, else those that match the regular expression ``plain``."""
    try:
        return texts.cast(type_), set()
    except pa.ArrowInvalid:
        return _cast_plain(texts, type_, plain)


def _cast_plain(texts: pa.Array, type_: pa.DataType, plain: str) -> tuple[pa.Array, Doubts]:
    fits = pc.match_substring_regex(texts, plain)
    if pc.all(fits).as_py() is not False:
        return texts.cast(type_), set()
    return pc.if_else(fits, texts, None).cast(type_), find_doubtful(pc.invert(fits))


def _whole(node: Node) -> ToArrow:
    type_, plain = arrow_type(node), f"^-?[0-9]{{1,{_DIGITS_HELD[node.kind]}}}$"

    def read(texts: pa.Array) -> tuple[pa.Array, Doubts]:
        if pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():  # 0x10 is a number to Arrow
            return _cast_plain(texts, type_, plain)
        return _cast(texts, type_, plain)

    return read


def _decimal(node: Node, ways: Ways) -> ToArrow:
    type_, (digits, scale) = arrow_type(node), node.digits
    # Arrow does not notice an overflow of its 128 bits, so the regular expression limits the digits.
    whole = f"[0-9]{{1,{digits - scale}}}" if digits > scale else "0"
    zeros = f"0{{0,{_DIGITS_OF_ARROW - digits}}}"
    decimals = f"[0-9]{{1,{scale}}}{zeros}" if scale else zeros
    plain = f"^[+-]?(?:{whole}(?:[.](?:{decimals})?)?{f'|[.]{decimals}' if scale else ''})$"
    if ways.symbols is None:
        return lambda texts: _cast_plain(texts, type_, plain)
    localized, decimal, group = ways.symbols.match_plain(scale), ways.symbols.decimal, ways.symbols.group

    def read(texts: pa.Array) -> tuple[pa.Array, Doubts]:
        is_plain = pc.match_substring_regex(texts, localized)
        texts = pc.replace_substring(pc.replace_substring(texts, group, ""), decimal, ".")
        column, doubts = _cast_plain(pc.if_else(is_plain, texts, None), type_, plain)
        return column, doubts | find_doubtful(pc.invert(is_plain))

    return read


def _floating(node: Node, options: CsvOptions) -> ToArrow:
    type_ = arrow_type(node)
    words = pa.array({options.nan, *options.infinities} - {"NaN", "Inf", "-Inf"}, pa.string())
    # Below it every whole number is held; above it what was written has to be looked at.
    bound = 1e6 if node.kind == "float" else 1e15

    def read(texts: pa.Array) -> tuple[pa.Array, Doubts]:
        doubles, doubts = _cast(texts, pa.float64(), "^-?[0-9]{1,15}(?:[.][0-9]{1,30})?$")
        sizes = pc.abs(doubles)
        is_common = pc.and_(pc.less(sizes, bound), pc.greater_equal(sizes, 1e-30))
        if pc.all(is_common).as_py() is False:
            # 1e-400 is not 0, but -0 is.
            is_common = pc.or_(is_common, pc.match_substring_regex(texts, "^(?:0+|0*[.]0+)$"))
            doubts = doubts | find_doubtful(pc.invert(is_common))
        if len(words):  # which may be written as a number
            doubts = doubts | find_doubtful(pc.is_in(texts, words))
        return doubles.cast(type_, safe=False), doubts

    return read


class _Field(NamedTuple):
    """How the values of a column are read: all at once, and one whose text is doubtful."""

    type: pa.DataType
    read_all: ToArrow
    read: Read

    @classmethod
    def of(cls, node: Node, options: CsvOptions, ways: Ways) -> _Field:
        return cls(arrow_type(node), make_column_reader(node, options, ways), make_field_reader(node, options, ways))


class CsvReader:
    """Reads records of csv with the columns of ``root``, a struct; ``required`` ones are NOT NULL."""

    def __init__(self, root: Node, required: frozenset[str], options: CsvOptions, ways: Ways = PLAIN) -> None:
        self._root, self._options = root, options
        self._exact = RowReader(root, required, options, ways)
        self._names = [name for name, _ in root.fields]
        self._fields = [_Field.of(node, options, ways) for _, node in root.fields]
        self._required = [number for number, name in enumerate(self._names) if name in required]
        self._width = len(self._names) + options.ends_with_separator
        self._quote = options.quote.encode()
        self._split_rows = functools.partial(
            csv.reader, delimiter=options.separator[:1], quotechar=options.quote or None, strict=True
        )

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of ``lines``; ``block`` is the text that they are the lines of."""
        doubts = self._find_odd(lines, block)
        wrong = dict[int, Wrong]()
        order, split, hard = self._split(lines, block, doubts, wrong)
        if hard:
            more, of_hard = self._split_hard(lines, hard, doubts)
            order = [*order, *more]
            split = [pa.concat_arrays(pair) for pair in zip(split, of_hard, strict=True)]
        columns, faults = self._convert(split)
        if self._options.ends_with_separator:
            doubts |= {order[at] for at in find_doubtful(pc.not_equal(split[-1], ""))}
        wrong |= {order[at]: Wrong.of(found, lines[order[at]]) for at, found in faults.items()}
        if hard or doubts or wrong:
            others = {at: self._read_closely(lines[at], at, wrong) for at in sorted(doubts)}
            columns = arrange(self._root, columns, order, others, wrong)
        return Batch(columns, wrong, {})

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same with only the functions that define rows and values: far slower."""
        wrong: dict[int, Wrong] = {}
        nothing = [pa.nulls(0, field.type) for field in self._fields]
        rows = {at: self._read_closely(line, at, wrong) for at, line in enumerate(lines)}
        return Batch(arrange(self._root, nothing, (), rows, wrong), wrong, {})

    def _find_odd(self, lines: Sequence[bytes], block: bytes) -> set[int]:
        """The records that the definition alone reads: with text that is none, or quotes that options explain."""
        options, quote = self._options, self._quote
        doubts = set[int]()
        if options.columns_at_most is not None and self._width > options.columns_at_most:
            return set(range(len(lines)))
        if not block.isascii() and not is_utf8(block):
            doubts |= {at for at, line in enumerate(lines) if not is_utf8(line)}
        if options.ending is not None and (ending := options.ending.encode()) in block:
            doubts |= {at for at, line in enumerate(lines) if ending in line}
        if not quote or quote not in block:
            return doubts
        if options.trims_left or options.trims_right or len(options.separator) != 1:
            return doubts | {at for at, line in enumerate(lines) if quote in line}
        marks = {mark for mark in (options.escape, options.escape_of_escape) if mark not in ("", options.quote)}
        if options.null or options.empty:
            marks.add(options.quote * 2)
        if options.ending is not None:
            marks |= {"\r", "\n"}
        for mark in (one.encode() for one in marks):
            if mark in block:
                doubts |= {at for at, line in enumerate(lines) if mark in line and quote in line}
        return doubts

    def _split(
        self, lines: Sequence[bytes], block: bytes, doubts: set[int], wrong: dict[int, Wrong]
    ) -> tuple[Sequence[int], list[pa.Array], list[int]]:
        """(the places of the records that are split, the texts of each column, the places of those with quotes that a
        separator alone does not split); ``wrong`` is given those with another number of columns."""
        places: Sequence[int] = range(len(lines))
        if doubts:
            places = [at for at in places if at not in doubts]
            lines = [lines[at] for at in places]
        texts, width, breaks = pa.array(lines, pa.string()), self._width, None
        has_quotes = self._quote != b"" and self._quote in block
        if self._options.ending is None and block.count(b"\n") + block.count(b"\r") >= len(lines):
            texts, breaks = _strip_breaks(texts)
        rows = pc.split_pattern(texts, self._options.separator)
        fit = pc.equal(pc.list_value_length(rows), width)
        if breaks is not None:
            fit = pc.and_not(fit, breaks)
        if width == 1:
            fit = pc.and_not(fit, pc.match_substring_regex(texts, r"^[ \t\n\r\v\f]*$"))
        hard: list[int] = []
        if found := find_doubtful(pc.invert(fit)):
            hard = [
                places[at] for at in found if has_quotes and self._quote in lines[at] and not _ends_twice(lines[at])
            ]
            others = pc.not_equal(pc.list_value_length(rows), width)
            others = find_doubtful(others if breaks is None else pc.and_not(others, breaks))
            refused = self._refuse_widths(lines, sorted(others), self._quote if has_quotes else b"")
            wrong |= {places[at]: one for at, one in refused.items()}
            doubts |= {places[at] for at in found if at not in refused}.difference(hard)
            places, rows = [place for at, place in enumerate(places) if at not in found], rows.filter(fit)
        fields = rows.flatten()
        split = [fields.take(pa.array(np.arange(number, len(fields), width))) for number in range(width)]
        if has_quotes:
            split, unusable = self._take_off_quotes(split)
            if found := find_doubtful(unusable):
                hard += [places[at] for at in found]
                places = [place for at, place in enumerate(places) if at not in found]
                split = [column.filter(pc.invert(unusable)) for column in split]
        return places, split, hard

    def _refuse_widths(self, lines: Sequence[bytes], places: Sequence[int], quote: bytes) -> dict[int, Wrong]:
        """Those of ``lines`` at ``places``, which have another number of columns, that have no quote and are not blank:
        there may be very many."""
        if self._options.columns_at_most is not None or self._options.may_end_with_separator:
            return {}
        separator, detail = self._options.separator.encode(), self._exact.other_width
        return {
            at: Wrong(detail, line)
            for at in places
            if (line := lines[at]).strip() or separator in line
            if not quote or quote not in line
        }

    def _take_off_quotes(self, split: Sequence[pa.Array]) -> tuple[list[pa.Array], pa.Array]:
        """Fields without the quotes around them, and the records with one whose quotes are other ones."""
        quote = self._options.quote
        mark = re.escape(quote)
        columns, unusable = [], pa.repeat(pa.scalar(False), len(split[0]))
        for texts in split:
            quoted = pc.match_substring(texts, quote)
            if pc.any(quoted).as_py():
                is_simple = pc.match_substring_regex(texts, rf"^{mark}[^{mark}]*{mark}$")
                unusable = pc.or_(unusable, pc.and_not(quoted, is_simple))
                texts = pc.if_else(quoted, pc.utf8_trim(texts, characters=quote), texts)
            columns.append(texts)
        return columns, unusable

    def _split_hard(
        self, lines: Sequence[bytes], places: list[int], doubts: set[int]
    ) -> tuple[list[int], list[pa.Array]]:
        """(the places of the records that are split, the texts of each column), by the standard library."""
        texts = [lines[at].decode() for at in places]
        try:
            rows = list(self._split_rows(texts))
        except csv.Error:
            rows = []
        if len(rows) != len(texts):  # one is not closed, or has text behind its closing quote
            rows = [self._split_alone(text) for text in texts]
        width = self._width
        if any(len(row) != width for row in rows):
            doubts |= {at for at, row in zip(places, rows, strict=True) if len(row) != width}
            places = [at for at in places if at not in doubts]
            rows = [row for row in rows if len(row) == width]
        columns = zip(*rows, strict=True) if rows else [()] * width
        return places, [pa.array(column, pa.string()) for column in columns]

    def _split_alone(self, text: str) -> list[str]:
        try:
            rows = list(self._split_rows([text]))
        except csv.Error:
            return []
        return rows[0] if len(rows) == 1 else []

    def _convert(self, split: Sequence[pa.Array]) -> tuple[list[pa.Array], dict[int, list[Fault]]]:
        """The columns, and what is wrong with some records, by their position."""
        options, columns = self._options, list[pa.Array]()
        faults: dict[int, list[Fault]] = {}
        for texts, name, field in zip(split, self._names, self._fields, strict=False):
            if options.trims_left:
                texts = pc.utf8_ltrim(texts, characters=CsvOptions.BLANKS)
            if options.trims_right:
                texts = pc.utf8_rtrim(texts, characters=CsvOptions.BLANKS)
            texts = pc.if_else(pc.equal(texts, ""), None, texts)
            if options.null:
                texts = pc.if_else(pc.equal(texts, options.null), None, texts)
            if options.characters_at_most is not None:
                is_long = pc.fill_null(pc.greater(pc.utf8_length(texts), options.characters_at_most), False)
                for at in find_doubtful(is_long):
                    faults.setdefault(at, []).append(Fault(name, too_long(options.characters_at_most)))
                texts = pc.if_else(is_long, None, texts)
            columns.append(self._convert_column(texts, name, field, faults))
        for number in self._required:
            name = self._names[number]
            for at in find_doubtful(columns[number].is_null()) if columns[number].null_count else ():
                found = faults.setdefault(at, [])
                if all(fault.path != name for fault in found):
                    found.append(Fault(name, MISSING))
        return columns, faults

    def _convert_column(self, texts: pa.Array, name: str, field: _Field, faults: dict[int, list[Fault]]) -> pa.Array:
        """A column; the doubtful ones of its values are those of the definition."""
        column, doubts = field.read_all(texts)
        if not doubts:
            return column
        values, places = [], np.arange(len(texts))
        for number, at in enumerate(sorted(doubts)):
            value, fault = field.read(texts[at].as_py())
            values.append(None if fault is not None else value)
            places[at] = len(texts) + number
            if fault is not None:
                faults.setdefault(at, []).append(Fault(name, fault))
        return pa.concat_arrays([column, pa.array(values, field.type)]).take(pa.array(places))

    def _read_closely(self, line: bytes, at: int, wrong: dict[int, Wrong]) -> dict[str, object]:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            encoding = self._options.encoding
            wrong[at] = Wrong(f"not valid {encoding}", encode_original(line, encoding))
            return {}
        findings = Findings()
        values = self._exact.read(text, findings)
        if not findings.faults:
            return values
        wrong[at] = Wrong.of(findings.faults, line)
        return {}


def _ends_twice(line: bytes) -> bool:
    """Return whether there are two line ends behind a record; the standard library passes over the second."""
    return line.endswith((b"\n", b"\r")) and line.removesuffix(b"\n").removesuffix(b"\r").endswith((b"\n", b"\r"))


def _strip_breaks(texts: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """``texts`` without the end of a line behind them, and which of them have one inside, if any has."""
    breaks = pc.or_(pc.match_substring(texts, "\n"), pc.match_substring(texts, "\r"))
    if not pc.any(breaks).as_py():
        return texts, None
    if pc.any(pc.or_(pc.ends_with(texts, "\n"), pc.ends_with(texts, "\r"))).as_py():
        texts = pc.replace_substring_regex(texts, r"(?:\r\n|\n|\r)\z", "")
        breaks = pc.match_substring_regex(texts, "[\r\n]")
    return texts, breaks
