"""Counts in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``2 files``, ``1,000 files``; ``plural`` for a noun that does not take an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def is_wordless(reason: str) -> bool:
    """Whether a text that a person has to give says nothing: it is empty, or ``...`` as the fixes print it."""
    return not any(map(str.isalnum, reason))
