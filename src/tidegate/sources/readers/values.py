"""Converts values of a record to the types of its columns: exactly, or malformed with the reason.

These functions are the definition for every format whose values are texts or JSON tokens. Faster paths of the readers
give the same results for values in common forms.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from tidegate.sources.readers.times import read_epoch
from tidegate.sources.readers.ways import Ways, read_decimal
from tidegate.spec.ddl import Node

LONE = "half of a surrogate pair, which is not a character"
TWICE = "this key is there twice"
MISSING = "missing or null, but NOT NULL"


class Number(str):
    """A number of JSON, with the digits that are written; also ``NaN`` and the infinities without quotes."""

    __slots__ = ()


class Pairs(list[tuple[str, object]]):
    """An object of JSON, in the order in which it is written: a key that is there twice comes twice."""

    __slots__ = ()


class Fault(NamedTuple):
    """Why a value does not fit; ``path`` is empty for the record as a whole."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class Findings:
    """Faults and unknown fields of one record."""

    __slots__ = ("faults", "unknown")

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.unknown: list[str] = []
        """Paths of the keys that the schema lacks, such as ``a.b``, ``list[].c`` and ``by{}.d``."""

    def refuse(self, path: str, text: str) -> None:
        """Note that the value at ``path`` does not fit."""
        self.faults.append(Fault(path, text))

    def require(self, names: Iterable[str], values: Mapping[str, object]) -> None:
        """Refuse the record where one of the columns ``names`` has no value, and no other fault says why."""
        faulty = {fault.path for fault in self.faults}
        for name in names:
            if values.get(name) is None and name not in faulty:
                self.refuse(name, MISSING)


Convert = Callable[[object, str, Findings], object]
"""(value, path, findings) -> the value of the column as Arrow takes it; None and a fault where it does not fit."""
Define = Callable[[object], tuple[object, str | None]]
"""A value, not null -> the value of the column, and why it does not fit."""


def make_converter(node: Node, ways: Ways) -> Convert:
    """The function that makes a value of the type ``node`` of a value of JSON: None, bool, str, :class:`Number`,
    list or :class:`Pairs`."""
    if node.kind == "struct":
        return make_record_converter(node, ways)
    if node.kind == "array":
        return _make_array(node, ways)
    if node.kind == "map":
        return _make_map(node, ways)
    define = _LEAVES[node.kind](node, ways)

    def leaf(value: object, path: str, findings: Findings) -> object:
        if value is None:
            return None
        found, fault = define(value)
        if fault is None:
            return found
        findings.refuse(path, fault)
        return None

    return leaf


def describe_misfit(node: Node) -> str:
    """Why a value is refused that cannot be one of the type ``node``."""
    return f"not {'an' if node.type[:1] in 'aeiou' else 'a'} {node.shown}"


def make_record_converter(node: Node, ways: Ways) -> Callable[[object, str, Findings], dict[str, object] | None]:
    """The same of a struct: its values by the names of their fields."""
    converters = {name: make_converter(inner, ways) for name, inner in node.fields}

    def convert(value: object, path: str, findings: Findings) -> dict[str, object] | None:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            findings.refuse(path, describe_misfit(node))
            return None
        before = f"{path}." if path else ""
        found: dict[str, object] = {}
        seen: set[str] = set()
        for name, inner in value:
            if name in seen:
                findings.refuse(before + name, TWICE)
                continue
            seen.add(name)
            known = converters.get(name)
            if known is not None:
                found[name] = known(inner, before + name, findings)
            elif not _is_text(name):
                findings.refuse(path, LONE)
            else:
                findings.unknown.append(before + name)
                _look_for_faults(inner, before + name, findings)
        return found

    return convert


def _make_array(node: Node, ways: Ways) -> Convert:
    item = make_converter(node.item, ways)

    def convert(value: object, path: str, findings: Findings) -> object:
        if value is None:
            return None
        if isinstance(value, Pairs) or not isinstance(value, list):
            findings.refuse(path, describe_misfit(node))
            return None
        inside = f"{path}[]"
        return [item(one, inside, findings) for one in value]

    return convert


def _make_map(node: Node, ways: Ways) -> Convert:
    item = make_converter(node.item, ways)

    def convert(value: object, path: str, findings: Findings) -> object:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            findings.refuse(path, describe_misfit(node))
            return None
        inside = f"{path}{{}}"
        found: dict[str, object] = {}
        for name, one in value:
            if name in found:
                findings.refuse(path, TWICE)
            elif not _is_text(name):
                findings.refuse(inside, LONE)
            found[name] = item(one, inside, findings)
        return list(found.items())

    return convert


def _look_for_faults(value: object, path: str, findings: Findings) -> None:
    """Faults of a record that are none of a type, in a field that the schema lacks."""
    if isinstance(value, str) and not isinstance(value, Number) and not _is_text(value):
        findings.refuse(path, LONE)
    elif isinstance(value, Pairs):
        names = [name for name, _ in value]
        if len(set(names)) < len(names):
            findings.refuse(path, TWICE)
        if not all(map(_is_text, names)):
            findings.refuse(path, LONE)
        for _, inner in value:
            _look_for_faults(inner, path, findings)
    elif isinstance(value, list):
        for inner in value:
            _look_for_faults(inner, path, findings)


def _is_text(value: str) -> bool:
    """Return whether it can be written in UTF-8: half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boolean(node: Node, ways: Ways) -> Define:
    misfit = describe_misfit(node)
    return lambda value: (value, None) if isinstance(value, bool) else (None, misfit)


BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
"""The bits of whole numbers, without the sign."""


def make_whole_reader(node: Node, written: re.Pattern[str]) -> Callable[[str], tuple[int | None, str | None]]:
    """The function that makes a whole number of a text in the form ``written``."""
    low, high, misfit = -(1 << BITS[node.kind]), (1 << BITS[node.kind]) - 1, describe_misfit(node)

    def read(text: str) -> tuple[int | None, str | None]:
        if written.fullmatch(text) and low <= (number := int(text)) <= high:
            return number, None
        return None, misfit

    return read


def _whole(node: Node, ways: Ways) -> Define:
    read, misfit = make_whole_reader(node, re.compile("-?[0-9]{1,40}")), describe_misfit(node)
    return lambda value: read(value) if isinstance(value, Number) else (None, misfit)


_SPECIAL = {
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
    "NaN": math.nan,
}
_WHOLE_DIGITS = {"float": 7, "double": 15}
_DIGITS_KEPT = {"float": 6, "double": 15}
"""Any number with so many digits comes out as it went in (FLT_DIG and DBL_DIG of C)."""


def _floating(node: Node, ways: Ways) -> Define:
    kind, misfit = node.kind, describe_misfit(node)
    specials = _SPECIAL if ways.switches.not_finite else {}

    def define(value: object) -> tuple[float | None, str | None]:
        if not isinstance(value, str):
            return None, misfit
        if (special := specials.get(value)) is not None:
            return special, None
        return read_floating(value, kind) if isinstance(value, Number) else (None, misfit)

    return define


def read_floating(text: str, kind: str) -> tuple[float, str | None]:
    """The nearest DOUBLE or FLOAT to a number as JSON or Python writes it, and why it is not to be had."""
    digits = text.lstrip("-")
    number = float(text) + 0.0 if digits.isdigit() else float(text)  # a whole -0 is 0
    if kind == "float":
        try:
            number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError:
            number = math.inf
    if math.isinf(number):
        return number, f"too large for {kind.upper()}"
    mantissa = text.lower().partition("e")[0]
    if number == 0 and mantissa.strip("+-0."):
        return number, f"too small for {kind.upper()}"
    if len(digits) >= _WHOLE_DIGITS[kind] and digits.isdigit():
        significant = len(digits.strip("0"))
        is_held = int(number) == int(text) if len(digits) <= 18 else significant <= _DIGITS_KEPT[kind]
        if not is_held:
            return number, f"a whole number with more digits than {kind.upper()} holds"
    return number, None


_NUMBER = re.compile(r"-?[0-9]+(?:[.][0-9]*)?(?:[eE][+-]?[0-9]+)?")


def _decimal(node: Node, ways: Ways) -> Define:
    digits, scale = node.digits
    misfit = describe_misfit(node)

    def define(value: object) -> tuple[Decimal | None, str | None]:
        if isinstance(value, str) and not isinstance(value, Number):
            return ways.read_decimal(value, digits, scale)
        if isinstance(value, Number) and _NUMBER.fullmatch(value):  # not NaN
            return read_decimal(value, digits, scale)
        return None, misfit

    return define


def _string(node: Node, ways: Ways) -> Define:
    def define(value: object) -> tuple[str, str | None]:
        if isinstance(value, bool):
            return "true" if value else "false", None
        text = value if isinstance(value, str) else "".join(write_json(value))
        return text, None if _is_text(text) else LONE

    return define


def write_json(value: object) -> Iterator[str]:
    """A value of JSON as text without blanks, in pieces; numbers keep their digits. What JSON has not is written as
    JSON has it: NaN in quotes, 007 as 7."""
    if isinstance(value, Pairs):
        yield "{"
        for number, (name, inner) in enumerate(value):
            yield f"{',' if number else ''}{json.dumps(name, ensure_ascii=False)}:"
            yield from write_json(inner)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for number, inner in enumerate(value):
            if number:
                yield ","
            yield from write_json(inner)
        yield "]"
    elif isinstance(value, Number) and value not in _SPECIAL:
        yield _LEADING_ZEROS.sub(r"\1", value)
    else:
        yield json.dumps(value, ensure_ascii=False)


_LEADING_ZEROS = re.compile("^(-?)0+(?=[0-9])")


def _binary(node: Node, ways: Ways) -> Define:
    misfit = describe_misfit(node)

    def define(value: object) -> tuple[bytes | None, str | None]:
        if isinstance(value, str) and not isinstance(value, Number):
            try:
                return base64.b64decode(value.encode("ascii"), validate=True), None
            except (binascii.Error, UnicodeEncodeError):
                pass
        return None, misfit

    return define


def _time(node: Node, ways: Ways) -> Define:
    """Dates and times: texts, and of a TIMESTAMP also whole seconds since 1970."""
    kind, misfit = node.kind, describe_misfit(node)

    def define(value: object) -> tuple[dt.date | None, str | None]:
        if isinstance(value, Number):
            return read_epoch(value) if kind == "timestamp" else (None, misfit)
        if not isinstance(value, str):
            return None, misfit
        return ways.read(value, kind)

    return define


_LEAVES: dict[str, Callable[[Node, Ways], Define]] = {
    "boolean": _boolean,
    **dict.fromkeys(BITS, _whole),
    **dict.fromkeys(_WHOLE_DIGITS, _floating),
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _time),
}


def write_unknown(value: object, node: Node) -> str:
    """What ``value`` has that the type ``node`` lacks, as JSON. A RecursionError where it has too many levels."""
    return "".join(write_json(pick_unknown(value, node)))


def pick_unknown(value: object, node: Node) -> object:
    """What ``value`` has that the type ``node`` lacks, each field where it was, items of arrays at their places; None
    where there is nothing."""
    if node.kind == "array" and isinstance(value, list) and not isinstance(value, Pairs):
        items = [pick_unknown(one, node.item) for one in value]
        return None if all(item is None for item in items) else items
    if not isinstance(value, Pairs):
        return None
    if node.kind == "map":
        found = [(name, pick_unknown(one, node.item)) for name, one in value]
    elif node.kind == "struct":
        known = dict(node.fields)
        found = [(name, pick_unknown(one, known[name])) for name, one in value if name in known]
        unknown = [(name, one) for name, one in value if name not in known]
        return Pairs(unknown + [pair for pair in found if pair[1] is not None]) or None
    else:
        return None
    return Pairs(pair for pair in found if pair[1] is not None) or None
