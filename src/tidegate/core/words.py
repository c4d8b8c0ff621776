"""Counts and lists in sentences, and text from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls (C0 but for tab and line feed, DEL, C1), line and paragraph separators, overrides of the direction of text,
and surrogates, which stand for bytes of a file name that is not Unicode."""


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``2 files``, ``1,000 files``; ``plural`` for a noun that does not take an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def list_first(texts: Sequence[str], at_most: int = 5, between: str = ", ") -> str:
    """``a, b and 3 more``: the first of some texts, and how many there are besides. Sentences have ``; `` between."""
    listed = between.join(texts[:at_most])
    left = len(texts) - at_most
    return listed if left <= 0 else f"{listed}{';' if between == '; ' else ''} and {left:,} more"


def is_wordless(reason: str) -> bool:
    """Return whether a text that a person has to give says nothing: it is empty, or ``...`` as the fixes print it."""
    return not any(map(str.isalnum, reason))


def escape_controls(text: str) -> str:
    """Escape control characters as JSON does, ``\\u001b``: a terminal would obey them, and a page would hide them.

    Line feed and tab stay. JSON remains JSON of the same value.
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_line(text: str) -> str:
    """:func:`escape_controls` for a text that must not begin another line or column."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def shorten(text: str, at_most: int) -> str:
    """``text`` without its middle where it is longer: beginning and end say the most."""
    end = at_most // 3
    return text if len(text) <= at_most else f"{text[: at_most - end - 5]} ... {text[-end:]}"
