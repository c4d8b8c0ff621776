"""The text of one record of JSON, taken apart without loss: digits as written, keys in order, each as often as it is
there."""

from __future__ import annotations

import json
import re
from typing import Any

from tidegate.sources.readers.values import Fault, Findings, Number, Pairs, make_converter
from tidegate.spec.ddl_tree import Node

_BLANKS = " \t\r\n"
MANY_LEVELS = "more levels than can be read"
_SPELLED = re.compile(r'"(?:[^"\\]|\\.)*"|[+-]?\bINF\b|\+Infinity\b')
_DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=Number)


class RecordReader:
    """Reads records of JSON as values of the columns of ``root``, a struct."""

    def __init__(self, root: Node, required: frozenset[str] = frozenset()) -> None:
        self._convert = make_converter(root)
        self._required = [name for name, _ in root.fields if name in required]

    def read(self, text: str, findings: Findings) -> dict[str, Any]:
        """The values of a record; what is wrong with it, and what the schema lacks, is added to ``findings``."""
        value = read_object(text)
        if isinstance(value, Fault):
            findings.faults.append(value)
            return {}
        found: dict[str, Any] = self._convert(value, "", findings)
        faulty = {fault.path for fault in findings.faults}
        for name in self._required:
            if found.get(name) is None and name not in faulty:
                findings.refuse(name, "missing or null, but NOT NULL")
        return found


def read_object(text: str) -> Pairs | Fault:
    """The one object of JSON that ``text`` is, or why it is none."""
    begin = len(text) - len(text.lstrip(_BLANKS))
    if begin == len(text):
        return Fault("", "empty")
    if text[begin] != "{":
        return Fault("", "not a JSON object")
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except RecursionError:
        return Fault("", MANY_LEVELS)
    except json.JSONDecodeError:
        # Spark takes these for infinities, as JSON of numerical programs has them; Python's reader knows others.
        spelled = _SPELLED.sub(_spell, text)
        return Fault("", "not valid JSON") if spelled == text else read_object(spelled)
    if text[end:].strip(_BLANKS):
        return Fault("", "text after the JSON object")
    return value if isinstance(value, Pairs) else Fault("", "not a JSON object")


def _spell(match: re.Match[str]) -> str:
    text = match[0]
    return text if text.startswith('"') else "-Infinity" if text.startswith("-") else "Infinity"
