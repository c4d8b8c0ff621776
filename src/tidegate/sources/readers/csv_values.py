"""Converts the text of a csv field to the type of its column: exactly, or malformed with the reason.

These functions define csv values, as :mod:`tidegate.sources.readers.values` defines those of JSON.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidegate.sources.readers.values import BITS, describe_misfit, make_whole_reader, read_floating
from tidegate.sources.readers.ways import PLAIN, Ways
from tidegate.spec.ddl import Node
from tidegate.spec.notations import unescape


@dataclass(frozen=True)
class CsvOptions:
    """How csv is written. An unused mark is empty; ``ending`` None is any line break."""

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    escape_of_escape: str = "\\"
    comment: str = ""
    null: str = ""
    empty: str = ""
    nan: str = "NaN"
    infinities: tuple[str, str] = ("Inf", "-Inf")
    trims_left: bool = False
    trims_right: bool = False
    columns_at_most: int | None = None
    characters_at_most: int | None = None
    handling: str = "RAISE_ERROR"
    """How a field with text after its closing quote is read (``unescapedQuoteHandling``)."""
    has_header: bool = False
    spans_lines: bool = False
    ending: str | None = None
    encoding: str = "UTF-8"
    ends_with_separator: bool = False
    """Whether each line has one more separator at its end; a file's header says so."""
    may_end_with_separator: bool = False
    """Whether some lines may have it: of their file it is only known that it has a header."""

    BLANKS: ClassVar = "".join(map(chr, range(33)))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CsvOptions:
        """The options by their names in a spec."""
        quote, escape = options.get("quote", '"'), options.get("escape", "\\")
        characters = int(options.get("maxCharsPerColumn", "-1"))
        return cls(
            separator=unescape(options.get("sep", options.get("delimiter", ","))),
            quote=quote,
            escape=escape,
            escape_of_escape=options.get("charToEscapeQuoteEscaping", "" if escape == quote else escape),
            comment=options.get("comment", ""),
            null=options.get("nullValue", ""),
            empty=options.get("emptyValue", ""),
            nan=options.get("nanValue", "NaN"),
            infinities=(options.get("positiveInf", "Inf"), options.get("negativeInf", "-Inf")),
            trims_left=_is_set(options, "ignoreLeadingWhiteSpace"),
            trims_right=_is_set(options, "ignoreTrailingWhiteSpace"),
            columns_at_most=int(options["maxColumns"]) if "maxColumns" in options else None,
            characters_at_most=characters if characters >= 0 else None,
            handling=options.get("unescapedQuoteHandling", "RAISE_ERROR"),
            has_header=_is_set(options, "header"),
            spans_lines=_is_set(options, "multiLine"),
            ending=options.get("lineSep"),
            encoding=options.get("encoding", "UTF-8"),
        )

    @property
    def breaks(self) -> str:
        r"""A regular expression of what ends a record outside of quotes; where ``\n`` does, ``\r`` may be before it."""
        if self.ending is None:
            return "\r\n|\n|\r"
        return "\r\n|\n|\r\\Z" if self.ending == "\n" else re.escape(self.ending)

    @property
    def breaks_of_texts(self) -> str:
        r"""The same for the text of one record, whose own end was taken off: a ``\r`` at its end is a character."""
        return "\r\n|\n" if self.ending == "\n" else self.breaks

    def with_layout(self, separator: str, ends_with_separator: bool) -> CsvOptions:
        """The same with what the beginning of a file says."""
        return dataclasses.replace(self, separator=separator, ends_with_separator=ends_with_separator)


def _is_set(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


Read = Callable[[str], tuple[object, str | None]]
"""(text of a field) -> (the value as Arrow takes it, why it is none)."""

_WHOLE = re.compile(r"[+-]?\d{1,4000}")
_NUMBER = r"(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"
_PLAIN = re.compile(f"[+-]?{_NUMBER}")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf}
_HEXADECIMAL = "0[xX](?:[0-9a-fA-F]+[.]?[0-9a-fA-F]*|[.][0-9a-fA-F]+)[pP][+-]?[0-9]+"
_OF_A_LANGUAGE = re.compile(f"[+-]?(?:{_HEXADECIMAL}|{_NUMBER})[dDfF]?")


def make_field_reader(node: Node, options: CsvOptions, ways: Ways = PLAIN) -> Read:
    """The function that makes a value of the type ``node`` of the text of a field, which is not null."""
    kind = node.kind
    if kind == "string":
        return lambda text: (text, None)
    if kind == "boolean":
        values, refused = {"true": (True, None), "false": (False, None)}, (None, describe_misfit(node))
        return lambda text: values.get(text.lower(), refused)
    if kind in BITS:
        return make_whole_reader(node, _WHOLE)
    if kind in ("float", "double"):
        return _floating(node, options)
    if kind == "decimal":
        digits, scale = node.digits
        return lambda text: ways.read_decimal(text, digits, scale)
    strip = str if kind in ways.patterns else str.strip
    return lambda text: ways.read(strip(text), kind)


def _floating(node: Node, options: CsvOptions) -> Read:
    positive, negative = options.infinities
    words = {positive: math.inf, negative: -math.inf, options.nan: math.nan}

    def read(text: str) -> tuple[float | None, str | None]:
        if (word := words.get(text)) is not None:
            return word, None
        plain = text.strip(CsvOptions.BLANKS)
        if (special := _SPECIAL.get(plain[plain[:1] in ("+", "-") :])) is not None:
            return (-special if plain.startswith("-") else special), None
        if not _PLAIN.fullmatch(plain):
            return None, "not a plain number" if _OF_A_LANGUAGE.fullmatch(plain) else describe_misfit(node)
        number, fault = read_floating(plain.removeprefix("+"), node.kind)
        return (number, None) if fault is None else (None, fault)

    return read
