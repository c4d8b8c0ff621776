"""The text of one record of JSON, taken apart without loss: digits as written, keys in order, each as often as it is
there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tidegate.sources.readers.lenient_json import LenientText
from tidegate.sources.readers.values import Fault, Findings, Number, Pairs, make_converter
from tidegate.sources.readers.ways import PLAIN, Switches, Ways
from tidegate.spec.ddl_tree import Node

_BLANKS = " \t\r\n"
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
        self._convert = make_converter(root, ways)
        self._switches = ways.switches
        self._required = [name for name, _ in root.fields if name in required]

    def read(self, text: str, findings: Findings) -> dict[str, Any]:
        """The values of a record; what is wrong with it, and what the schema lacks, is added to ``findings``."""
        value = read_object(text, self._switches)
        if isinstance(value, Fault):
            findings.faults.append(value)
            return {}
        found: dict[str, Any] = self._convert(value, "", findings)
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
        found, end = lenient.read(begin)
    except RecursionError:
        return Fault("", MANY_LEVELS)
    except ValueError:
        return Fault("", "not valid JSON")
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
    except ValueError:
        return Fault("", "not valid JSON")
    if text[end:].strip(_BLANKS):
        return Fault("", "text after the JSON object")
    return value
