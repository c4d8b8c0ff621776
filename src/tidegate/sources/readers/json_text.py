"""The text of one record of JSON, taken apart without loss: digits as written, keys in order, each as often as it is
there."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import NamedTuple

from tidegate.sources.readers.values import Fault, Findings, Number, Pairs, make_record_converter
from tidegate.sources.readers.ways import PLAIN, Switches, Ways
from tidegate.spec.ddl import Node

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
        """Return where the next token begins."""
        found = self._forms.between.match(self._text, at)
        assert found is not None  # it may be empty
        return found.end()

    def read(self, at: int) -> tuple[object, int]:
        """(the value that begins at ``at``, where it ends); a ValueError where there is none."""
        first = self._text[at : at + 1]
        if first == "{":
            return self.read_object(at)
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

    def read_object(self, at: int) -> tuple[Pairs, int]:
        """The same of an object, whose bracket is at ``at``."""
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

    def _read_array(self, at: int) -> tuple[list[object], int]:
        items: list[object] = []
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


_BLANKS = " \t\r\n"
_INVALID = "not valid JSON"
MANY_LEVELS = "more levels than can be read"


def _make_decoder(read_constant: Callable[[str], Number]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=read_constant)


def _refuse_constant(text: str) -> Number:
    raise ValueError(text)


_DECODERS = {True: _make_decoder(Number), False: _make_decoder(_refuse_constant)}
"""By whether NaN and the infinities may be there without quotes."""


class RecordReader:
    """Reads records of JSON as values of the columns of ``root``, a struct."""

    def __init__(self, root: Node, required: frozenset[str] = frozenset(), ways: Ways = PLAIN) -> None:
        self._convert = make_record_converter(root, ways)
        self._switches = ways.switches
        self._required = [name for name, _ in root.fields if name in required]

    def read(self, text: str, findings: Findings) -> dict[str, object]:
        """The values of a record; what is wrong with it, and what the schema lacks, is added to ``findings``."""
        value = read_object(text, self._switches)
        if isinstance(value, Fault):
            findings.faults.append(value)
            return {}
        found = self._convert(value, "", findings) or {}
        findings.require(self._required, found)
        return found


def read_object(text: str, switches: Switches) -> Pairs | Fault:
    """The one object of JSON that ``text`` is, or why it is none."""
    value = _read_strictly(text, switches)
    if isinstance(value, Pairs) or not text.strip(_BLANKS):
        return value
    # Spark takes INF for infinity, as JSON of numerical programs has it; Python's reader knows other spellings.
    if switches.are_strict and not (switches.not_finite and any(word in text for word in ("INF", "+Infinity"))):
        return value
    lenient = LenientText(text, switches)
    begin = lenient.skip(0)
    if text[begin : begin + 1] != "{":
        return Fault("", "not a JSON object")
    try:
        found, end = lenient.read_object(begin)
    except RecursionError:
        return Fault("", MANY_LEVELS)
    except ValueError:
        return Fault("", _INVALID)
    return found if lenient.skip(end) == len(text) else Fault("", "text after the JSON object")


def _read_strictly(text: str, switches: Switches) -> Pairs | Fault:
    begin = len(text) - len(text.lstrip(_BLANKS))
    if begin == len(text):
        return Fault("", "empty")
    if text[begin] != "{":
        return Fault("", "not a JSON object")
    try:
        value, end = _DECODERS[switches.not_finite].raw_decode(text, begin)
    except RecursionError:
        return Fault("", MANY_LEVELS)
    except ValueError as error:
        return _explain(text, begin, error)
    if text[end:].strip(_BLANKS):
        return Fault("", "text after the JSON object")
    return value


_MARK = "\ufdd0"
"""No character of a text, by Unicode."""
_ANY_CHARACTER = json.JSONDecoder(object_pairs_hook=Pairs, strict=False)


def _explain(text: str, begin: int, error: ValueError) -> Fault:
    """Why the object at ``begin`` is not valid JSON; a control character in a text is named, by the path of its
    value."""
    at = error.pos if isinstance(error, json.JSONDecodeError) else len(text)
    found = text[at : at + 1]
    if not "" < found < " ":
        return Fault("", _INVALID)
    why = f"the control character U+{ord(found):04X} has to be escaped in JSON, as {json.dumps(found)[1:-1]}"
    try:
        value, _ = _ANY_CHARACTER.raw_decode(f"{text[:at]}{_MARK}{text[at + 1 :]}", begin)
        path = _find_mark(value, "")
    except (ValueError, RecursionError):
        path = None
    return Fault("", f"{_INVALID}: {why}") if path is None else Fault(path, why)


def _find_mark(value: object, path: str) -> str | None:
    """The path of the text that holds the mark; None where none does, or a key."""
    if isinstance(value, str):
        return path if _MARK in value else None
    inside: list[tuple[str, object]] = []
    if isinstance(value, Pairs):
        inside = [(f"{path}.{key}" if path else key, one) for key, one in value]
    elif isinstance(value, list):
        inside = [(f"{path}[]", one) for one in value]
    return next((found for at, one in inside if (found := _find_mark(one, at)) is not None), None)
