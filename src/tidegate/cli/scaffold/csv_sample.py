"""Infer encoding, delimiter, quotes and header of a csv file from its first lines, and read its rows."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections import Counter
from dataclasses import dataclass

from tidegate.cli.scaffold.value_kinds import Kinds
from tidegate.core.words import count_of

_DELIMITERS = ",;\t|"
_BACKSLASH_BEFORE_QUOTE = re.compile(r'(?<!\\)\\"(?=[^,;\t|\r\n])')
"""Not the end of a field such as ``"C:\\"``."""
_OF_WINDOWS = re.compile(rb"[\x80-\x9f]")
_BEYOND_ASCII = re.compile(r"\w*[^\x00-\x7f]\w*")


class UnreadableSample(ValueError):
    """A sample from which no columns can be inferred, with the reason."""


@dataclass(frozen=True)
class CsvSample:
    """Column names, rows of texts, the reader options that Spark needs, and what they were inferred from."""

    names: list[str]
    rows: list[list[str]]
    options: dict[str, bool | str]
    inferred_from: str | None = None
    note: str | None = None
    """A remark on a guess."""


def read_csv_sample(head: bytes, has_more: bool) -> CsvSample:
    """Read the first lines of a file; ``has_more``: more follow. Raises UnreadableSample."""
    text, encoding = _decode(head)
    if not text.strip():
        raise UnreadableSample("it is empty")
    if text.lstrip()[0] in "{[":
        raise UnreadableSample("its first line looks like JSON")
    by_backslash = _BACKSLASH_BEFORE_QUOTE.search(text) is not None
    delimiter, rows = _split(text, has_more, by_backslash)
    width, count = Counter(len(row) for row in rows).most_common(1)[0]
    odd = next((number for number, row in enumerate(rows) if len(row) != width), None)
    if odd is not None and (odd == 0 or 2 * count <= len(rows)):
        first, other = len(rows[0]), next(number for number, row in enumerate(rows) if len(row) != len(rows[0]))
        raise UnreadableSample(
            f"its rows do not have one number of fields: row 1 has {first}, row {other + 1} has {len(rows[other])}"
        )
    whole = [row for row in rows if len(row) == width]
    header = _has_header(whole)
    if header and width > 1 and not any(row[-1] for row in whole):
        whole = [row[:-1] for row in whole]  # each line ends with a delimiter, which the reader knows from the header
    options: dict[str, bool | str] = {"header": header}
    if delimiter != ",":
        options["sep"] = delimiter
    if '"' in text and not by_backslash:
        options["escape"] = '"'
    if any("\n" in cell or "\r" in cell for row in whole for cell in row):
        options["multiLine"] = True
    if encoding != "UTF-8":
        options["encoding"] = encoding
    names = [name or f"_c{at}" for at, name in enumerate(whole[0])] if header else [f"f{at}" for at in range(width)]
    left = len(rows) - len(whole)
    inferred_from = f"{count_of(len(whole) - header, 'row')}; rows without {width} fields: {left:,}" if left else None
    note = None if encoding.startswith("UTF") else _describe_guess(text, encoding)
    return CsvSample(names, whole[1:] if header else whole, options, inferred_from, note)


def _decode(head: bytes) -> tuple[str, str]:
    """(text, Spark's name of its encoding); a character that the end of the sample cuts is dropped."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text, encoding = _decode_as(head, "utf-16"), "UTF-16"
    else:
        try:
            text, encoding = _decode_as(head.removeprefix(codecs.BOM_UTF8), "utf-8"), "UTF-8"
        except UnicodeDecodeError:
            text, encoding = _decode_bytes(head)
    if "\0" in text:
        raise UnreadableSample("it holds zero bytes: it is not csv, or in UTF-32, or UTF-16 without a byte order mark")
    return text, encoding


def _decode_bytes(head: bytes) -> tuple[str, str]:
    """(text, Spark's name of its encoding) where each byte is a character.

    Where ISO-8859-1 has control characters, Windows has the euro sign, quotation marks and dashes: a file with such
    bytes was written by Windows."""
    if _OF_WINDOWS.search(head):
        with contextlib.suppress(UnicodeDecodeError):
            return head.decode("cp1252"), "windows-1252"
    return head.decode("latin-1"), "ISO-8859-1"


def _describe_guess(text: str, encoding: str) -> str:
    """The remark on an encoding that the file does not name."""
    found = _BEYOND_ASCII.search(text)
    word = f": it makes {found[0]!r} of a word in the file" if found else ""
    return f"encoding {encoding} is a guess, since the file is not UTF-8{word}; if that is wrong, correct the option"


def _decode_as(head: bytes, encoding: str) -> str:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError as error:
        if encoding == "utf-16":
            raise UnreadableSample(f"it begins as UTF-16 does, but is not: {error.reason}") from error
        raise


def _split(text: str, has_more: bool, by_backslash: bool) -> tuple[str, list[list[str]]]:
    """(delimiter, rows): the delimiter that cuts the most rows into the same number of fields, and then into more."""
    best: tuple[tuple[float, int], str, list[list[str]]] | None = None
    for delimiter in _DELIMITERS:
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=delimiter,
            doublequote=not by_backslash,
            escapechar="\\" if by_backslash else None,
        )
        try:
            rows = [row for row in reader if row]
        except csv.Error as error:
            raise UnreadableSample(str(error)) from error
        rows = rows[:-1] if has_more and len(rows) > 1 else rows  # the last one may be cut
        width, count = Counter(len(row) for row in rows).most_common(1)[0]
        rank = (count / len(rows) if width > 1 else 0.0, width)
        if best is None or rank > best[0]:
            best = (rank, delimiter, rows)
    assert best is not None
    return best[1], best[2]


def _has_header(rows: list[list[str]]) -> bool:
    """Return whether the first row has names: a text above other kinds of values, or only texts that do not recur in
    their columns.

    In doubt it does: then a file without the header is refused, while an unexpected header would become a record.
    """
    first, rest = rows[0], rows[1:]
    only_names = True
    for number, name in enumerate(first):
        kinds, below = Kinds(), Kinds()
        kinds.add_text(name)
        for row in rest:
            below.add_text(row[number])
        is_text = kinds.kinds == {"text"}
        if is_text and below.kinds and "text" not in below.kinds:
            return True
        only_names = only_names and (is_text or not name) and not any(name and row[number] == name for row in rest)
    return only_names
