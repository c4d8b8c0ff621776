"""The options of csv that say how records are written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidegate.spec.csv_marks import unescape


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
