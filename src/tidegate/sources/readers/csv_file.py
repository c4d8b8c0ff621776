"""Reads the records of a part of a csv file, and the header or ``sep=`` line at the beginning of the file."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from tidegate.sources.readers.csv_options import CsvOptions
from tidegate.sources.readers.csv_rows import Splitter, is_blank
from tidegate.sources.readers.csv_spans import read_spans, strip_returns
from tidegate.sources.readers.decoding import decode_file
from tidegate.sources.readers.lines import Records, Refused, read_blocks
from tidegate.spec.encodings import is_wide

HEAD_BYTES = 1 << 20
"""A header ends within so many bytes."""
_SHOWN = 1000
_SEPARATOR_LINE = re.compile("(?i:sep)=(.)")


class Head(NamedTuple):
    """The options with those that the file sets, and the number of lines before its first record."""

    options: CsvOptions
    lines: int


class HeaderDiffers(Exception):
    """The header of a file does not match the schema; the text says why."""


def read_head(file: BinaryIO, names: Sequence[str], options: CsvOptions) -> Head:
    """Read the head of ``file``; ``names`` are those of the schema. Raises HeaderDiffers."""
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
            named = [name.lower() for name in (found[:-1] if is_longer else found)]
            if row.fault is not None or named != [name.lower() for name in names]:
                garbled = _explain_garbled(content, max(line, text[at : row.end], key=len), options.encoding)
                shown = f"its header is {_show(found)}; the schema wants {', '.join(names)}"
                raise HeaderDiffers(garbled or (f"its header has {row.fault}" if row.fault else shown))
            inside = len(breaks.findall(text, at, row.end)) - 1 if options.spans_lines else 0
            return Head(options.with_layout(options.separator, is_longer), number + inside)
        at = max(end.end(), at + 1)
    return Head(options, number)


def _explain_garbled(content: bytes, header: str, encoding: str) -> str | None:
    """Explain a ``header`` that seems to be in another encoding; the file begins with ``content``."""
    if codecs.lookup(encoding).name != "utf-8" and content.startswith(
        decode_file(io.BytesIO(codecs.BOM_UTF8), encoding).read()
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
    for block in read_blocks(file, begin, end, ending):
        first = block.before + 1
        if block.size:
            yield Refused.too_large(block.text, first, block.size)
        else:
            lines = strip_returns(block.lines, block.text, ending)
            yield Records(block.text, lines, range(first, first + len(lines)))


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
