"""Patterns of dates and times such as ``dd.MM.yyyy HH:mm``, taken apart: those that Spark reads with.

The letters and their counts are those of Java's DateTimeFormatter, less what Spark refuses for reading (docs: Spark's
page "Datetime Patterns").
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo


class Token(NamedTuple):
    """A piece of a pattern: letters, as often as they are there; a text as it is; the bounds of what may be missing."""

    kind: Literal["letters", "text", "begin", "end"]
    text: str


_COUNTS: dict[str, tuple[int, ...]] = {
    "G": (1, 2, 3, 4),
    "y": (1, 2, 3, 4, 5, 6),
    **dict.fromkeys("ML", (1, 2, 3, 4)),
    "D": (1, 2, 3),
    **dict.fromkeys("dhHkKms", (1, 2)),
    "a": (1,),
    "S": tuple(range(1, 10)),
    "g": tuple(range(1, 20)),
    "V": (2,),
    "z": (1, 2, 3, 4),
    **dict.fromkeys("vO", (1, 4)),
    **dict.fromkeys("XxZ", (1, 2, 3, 4, 5)),
}
_NOT_READ = {
    "Y": "Y is the year of a week, which cannot be read: years are y",
    "w": "w is the week of a year, which cannot be read",
    "W": "W is the week of a month, which cannot be read",
    "u": "u is the day of a week, which cannot be read: years are y",
    **dict.fromkeys("Eec", "{} is the day of a week, which cannot be read"),
    "F": "F is the week of a month, which cannot be read",
    **dict.fromkeys("Qq", "{} is the quarter of a year, which cannot be read"),
}
_PIECE = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|.", re.DOTALL)


def read_pattern(pattern: str) -> list[Token]:
    """The pieces of ``pattern``; a ValueError that names the letter or the character where Spark refuses it."""
    tokens: list[Token] = []
    depth = 0
    for match in _PIECE.finditer(pattern):
        piece = match[0]
        if match[1]:
            _check_letters(match[1], len(piece))
            tokens.append(Token("letters", piece))
        elif piece == "[":
            depth += 1
            tokens.append(Token("begin", piece))
        elif piece == "]":
            depth -= 1
            if depth < 0:
                raise ValueError("it has ] without [ before it")
            tokens.append(Token("end", piece))
        elif piece == "'":
            raise ValueError("it has ' without a second one: quote text with two")
        elif piece in "{}#":
            raise ValueError(f"{piece} is reserved: write '{piece}'")
        else:
            # Two quotes are one, within a text and outside.
            tokens.append(Token("text", "'" if piece == "''" else piece.strip("'").replace("''", "'")))
    return tokens + [Token("end", "]")] * depth


def _check_letters(letter: str, count: int) -> None:
    if letter in _NOT_READ:
        raise ValueError(_NOT_READ[letter].format(letter))
    if letter not in _COUNTS:
        raise ValueError(f"{letter} is not a letter of a pattern; put text between quotes")
    if count not in (allowed := _COUNTS[letter]):
        raise ValueError(f"{letter} may be there {_list(allowed)} in a row, not {count} times")


def _list(counts: tuple[int, ...]) -> str:
    if counts == (1,):
        return "once"
    several = counts[-1] - counts[0] + 1 == len(counts) > 1
    return f"{counts[0]} to {counts[-1]} times" if several else f"{' or '.join(map(str, counts))} times"


_LARGEST_OFFSET = dt.timedelta(hours=18)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")


def is_offset(name: str) -> bool:
    """Return whether ``name`` is written as an offset from UTC, be it a possible one or not."""
    return name in ("Z", "UTC", "GMT", "UT") or _OFFSET.fullmatch(name) is not None


@functools.lru_cache(maxsize=1024)
def find_zone(name: str) -> dt.tzinfo | None:
    """The time zone that ``name`` is; None where it is none, or a short name of several, such as BST."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return dt.UTC
    if (match := _OFFSET.fullmatch(name)) is None:
        return _find_region(name)
    sign, hours, minutes, seconds = match.groups()
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if offset > _LARGEST_OFFSET or int(minutes or 0) > 59 or int(seconds or 0) > 59:
        return None
    return dt.timezone(offset if sign == "+" else -offset)


def _find_region(name: str) -> dt.tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


_ESCAPES = {"t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "u0000": "\0"}
_ESCAPED = re.compile(r"\\(u0000|[trbf\"'\\])")


def unescape(separator: str) -> str:
    r"""A separator of csv as it is meant: two characters ``\t`` are a tab."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match[1]], separator)
