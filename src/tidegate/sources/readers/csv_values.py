"""Converts the text of a csv field to the type of its column: exactly, or malformed with the reason.

These functions define csv values, as :mod:`tidegate.sources.readers.values` defines those of JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tidegate.sources.readers.csv_options import CsvOptions
from tidegate.sources.readers.values import BITS, name_type, read_floating
from tidegate.sources.readers.ways import PLAIN, Ways
from tidegate.spec.ddl_tree import Node, digits_of_decimal

Read = Callable[[str], tuple[Any, str | None]]
"""(text of a field) -> (the value as Arrow takes it, why it is none)."""

_WHOLE = re.compile(r"[+-]?\d{1,4000}")
_NUMBER = r"(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"
_PLAIN = re.compile(f"[+-]?{_NUMBER}")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf}
_HEXADECIMAL = "0[xX](?:[0-9a-fA-F]+[.]?[0-9a-fA-F]*|[.][0-9a-fA-F]+)[pP][+-]?[0-9]+"
_OF_A_LANGUAGE = re.compile(f"[+-]?(?:{_HEXADECIMAL}|{_NUMBER})[dDfF]?")


def make_field_reader(node: Node, options: CsvOptions, ways: Ways = PLAIN) -> Read:
    """The function that makes a value of the type ``node`` of the text of a field, which is not null."""
    kind = node.kind
    if kind == "string":
        return lambda text: (text, None)
    if kind == "boolean":
        return _boolean(node)
    if kind in BITS:
        return _whole(node)
    if kind in ("float", "double"):
        return _floating(node, options)
    if kind == "decimal":
        digits, scale = digits_of_decimal(node.type)
        return lambda text: ways.read_decimal(text, digits, scale)
    strip = str if kind in ways.patterns else str.strip
    if kind == "date":
        return lambda text: ways.read_date(strip(text))
    return lambda text: ways.read_time(strip(text), kind)


def _boolean(node: Node) -> Read:
    values = {"true": (True, None), "false": (False, None)}
    refused = (None, f"not {name_type(node)}")
    return lambda text: values.get(text.lower(), refused)


def _whole(node: Node) -> Read:
    low, high = -(1 << BITS[node.kind]), (1 << BITS[node.kind]) - 1

    def read(text: str) -> tuple[int | None, str | None]:
        if _WHOLE.fullmatch(text) and low <= (number := int(text)) <= high:
            return number, None
        return None, f"not {name_type(node)}"

    return read


def _floating(node: Node, options: CsvOptions) -> Read:
    positive, negative = options.infinities
    words = {positive: math.inf, negative: -math.inf, options.nan: math.nan}

    def read(text: str) -> tuple[float | None, str | None]:
        if (word := words.get(text)) is not None:
            return word, None
        plain = text.strip(CsvOptions.BLANKS)
        if (special := _SPECIAL.get(plain[plain[:1] in ("+", "-") :])) is not None:
            return (-special if plain.startswith("-") else special), None
        if not _PLAIN.fullmatch(plain):
            is_odd = _OF_A_LANGUAGE.fullmatch(plain)
            return None, "not a plain number" if is_odd else f"not {name_type(node)}"
        number, fault = read_floating(plain.removeprefix("+"), node.kind)
        return (number, None) if fault is None else (None, fault)

    return read
