"""Parses JSON with the extensions that a source's options allow: comments, single quotes, unquoted names and so on.

Each extension works as in Spark's parser. This parser is far slower than the strict one, which is tried first.
"""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from tidegate.sources.readers.values import Number, Pairs
from tidegate.sources.readers.ways import Switches

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_WORDS = {"true": True, "false": False, "null": None}
_SPELLINGS = {"INF": "Infinity", "+INF": "Infinity", "+Infinity": "Infinity", "-INF": "-Infinity"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class _Forms(NamedTuple):
    """The regular expressions of the tokens."""

    between: re.Pattern[str]
    string: re.Pattern[str]
    name: re.Pattern[str]
    number: re.Pattern[str]
    escapes: dict[str, str]
    any_escape: bool


@functools.lru_cache(maxsize=64)
def _make_forms(switches: Switches) -> _Forms:
    control = "" if switches.control_characters else r"\x00-\x1f"
    string = rf'"((?:[^"\\{control}]++|\\[^{control}])*+)"' if control else r'"((?:[^"\\]++|\\.)*+)"'
    if switches.single_quotes:
        string += "|" + string.replace('"', "'")
    name = rf"{string}|([\w$@#*+-]++)" if switches.unquoted_names else string
    whole = "-?[0-9]++" if switches.leading_zeros else "-?(?:0|[1-9][0-9]*+)"
    number = rf"{whole}(?:[.][0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
    if switches.not_finite:
        number += "|NaN|[+-]?INF|[+-]?Infinity"
    between = r"(?:[ \t\r\n]++|/\*.*?\*/|//[^\r\n]*+)*+" if switches.comments else r"[ \t\r\n]*+"
    escapes = _ESCAPES | ({"'": "'"} if switches.single_quotes else {})
    found = [re.compile(form, re.DOTALL) for form in (between, string, name, number)]
    return _Forms(found[0], found[1], found[2], found[3], escapes, switches.any_escape)


class LenientText:
    """A text of JSON with the freedoms of ``switches``."""

    def __init__(self, text: str, switches: Switches) -> None:
        self._text, self._forms = text, _make_forms(switches)

    def skip(self, at: int) -> int:
        """Where the next token begins."""
        found = self._forms.between.match(self._text, at)
        assert found is not None  # it may be empty
        return found.end()

    def read(self, at: int) -> tuple[Any, int]:
        """(the value that begins at ``at``, where it ends); a ValueError where there is none."""
        first = self._text[at : at + 1]
        if first == "{":
            return self._read_object(at)
        if first == "[":
            return self._read_array(at)
        if (string := self._forms.string.match(self._text, at)) is not None:
            return self._unescape(string), string.end()
        if (number := self._forms.number.match(self._text, at)) is not None:
            return Number(_SPELLINGS.get(number[0], number[0])), number.end()
        for word, value in _WORDS.items():
            if self._text.startswith(word, at):
                return value, at + len(word)
        raise ValueError

    def _read_object(self, at: int) -> tuple[Pairs, int]:
        pairs = Pairs()
        at = self.skip(at + 1)
        if self._text[at : at + 1] == "}":
            return pairs, at + 1
        while True:
            name = self._forms.name.match(self._text, at)
            if name is None:
                raise ValueError
            at = self.skip(name.end())
            if self._text[at : at + 1] != ":":
                raise ValueError
            value, at = self.read(self.skip(at + 1))
            pairs.append((self._unescape(name), value))
            at, is_last = self._end_item(at, "}")
            if is_last:
                return pairs, at

    def _read_array(self, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self.skip(at + 1)
        if self._text[at : at + 1] == "]":
            return items, at + 1
        while True:
            value, at = self.read(at)
            items.append(value)
            at, is_last = self._end_item(at, "]")
            if is_last:
                return items, at

    def _end_item(self, at: int, end: str) -> tuple[int, bool]:
        """(where the next item begins, or the end of all of them, whether it was the last one)."""
        at = self.skip(at)
        mark = self._text[at : at + 1]
        if mark == end:
            return at + 1, True
        if mark != ",":
            raise ValueError
        return self.skip(at + 1), False

    def _unescape(self, match: re.Match[str]) -> str:
        text = match[match.lastindex or 0]
        if "\\" not in text:
            return text
        plain = _ESCAPE.sub(self._replace, text)
        # Two halves of a pair, each written by its number, are one character.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def _replace(self, match: re.Match[str]) -> str:
        letter = match[1]
        if len(letter) > 1:
            return chr(int(letter[1:], 16))
        if (character := self._forms.escapes.get(letter)) is not None:
            return character
        if self._forms.any_escape and letter != "u":
            return letter
        raise ValueError
