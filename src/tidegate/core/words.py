"""Counts and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``2 files``, ``1,000 files``; ``plural`` for a noun that does not take an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def list_first(texts: Sequence[str], at_most: int, between: str = ", ") -> str:
    """``a, b and 3 more``: the first of some texts, and how many there are besides. Sentences have ``; `` between."""
    listed = between.join(texts[:at_most])
    left = len(texts) - at_most
    return listed if left <= 0 else f"{listed}{';' if between == '; ' else ''} and {left:,} more"


def is_wordless(reason: str) -> bool:
    """Return whether a text that a person has to give says nothing: it is empty, or ``...`` as the fixes print it."""
    return not any(map(str.isalnum, reason))
