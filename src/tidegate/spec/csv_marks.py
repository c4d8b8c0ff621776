"""The marks of csv that a spec sets: what separates fields and ends lines, quotes, escapes and comments.

Marks that are the same, or are within each other, leave open what a text means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "u0000": "\0"}
_ESCAPED = re.compile(r"\\(u0000|[trbf\"'\\])")
_ENDS = ("\n", "\r")
_OTHER = "write another character for one of the two"


def unescape(separator: str) -> str:
    r"""A separator as it is meant: two characters ``\t`` are a tab."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match[1]], separator)


def find_clashes(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(key, what is wrong with it, what to write instead) for the marks among the options of a csv source."""
    key = "delimiter" if "delimiter" in options and "sep" not in options else "sep"
    separator = unescape(options.get(key, ","))
    if wrong := _describe_separator(separator):
        yield (key, *wrong)
        return
    marks = {"quote": options.get("quote", '"'), "escape": options.get("escape", "\\")}
    marks["comment"] = options.get("comment", "")
    marks["charToEscapeQuoteEscaping"] = options.get("charToEscapeQuoteEscaping", "")
    ended = [name for name, mark in marks.items() if mark in _ENDS]
    for name in ended:
        yield name, "a line end cannot be this mark", "write another character"
    for name, mark in marks.items():
        if mark and name not in ended and (mark == separator or (name in ("quote", "comment") and mark in separator)):
            yield (
                key if key in options else name,
                f"{key} and {name} are both {mark!r}, so a text may mean two things",
                _OTHER,
            )
    if marks["comment"] and marks["comment"] == marks["quote"]:
        yield "comment", "comment and quote are the same, so a record that begins with a quote is a comment", _OTHER
    ending = options.get("lineSep")
    if not ending:
        return
    if ending in separator:
        message = f"lineSep {ending!r} is within {key} {separator!r}, so a line ends within a separator"
        yield "lineSep", message, f"write another lineSep or another {key}"
    elif separator in ending and options.get("multiLine") == "true":
        message = f"{key} {separator!r} is within lineSep {ending!r}, so with multiLine no line ends"
        yield "lineSep", message, f"write another lineSep or another {key}, or remove multiLine"
    if marks["quote"] and marks["quote"] in ending:
        yield "lineSep", f"the quote {marks['quote']!r} is within lineSep {ending!r}", "write another lineSep or quote"


def _describe_separator(separator: str) -> tuple[str, str] | None:
    example = r"write what is between two fields, such as ';' or '\t'"
    if not separator:
        return "an empty text separates no fields", example
    if any(end in separator for end in _ENDS):
        return "a line end cannot separate fields", example
    if separator == "\\":
        return "a backslash alone cannot separate fields: it begins an escape", example
    return None
