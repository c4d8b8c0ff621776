"""What kinds of values a field has throughout a sample, and the narrowest type of Spark that holds them all unchanged.

Rather a text too many: what is not one kind of value throughout is STRING, and so is a number that begins with a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from itertools import combinations
from typing import Any

from tidegate.spec.ddl import DdlError, quote_name, refuse_twins

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_CODE_LIKE = re.compile(r"[+-]?0\d")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d:\d\d)\.\d{1,6}0*)?(?:Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_MOST_DIGITS = 38
_DIGITS_OF_A_DOUBLE = 15
_DEEPEST = 30
_FIELDS_AT_MOST = 50
_OBJECTS_TO_COMPARE = 60
_FEWEST_OBJECTS = 3


class Kinds:
    """The kinds of the values at one place of the records; ``fields`` and ``elements`` are the places inside."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.fields: dict[str, Kinds] = {}
        self._elements: Kinds | None = None
        self._whole_digits = 0
        self._decimals = 0
        self._in_bigint = True
        self._in_double = True
        self._objects = 0
        self._keys = 0
        self._key_sets: list[frozenset[str]] = []

    def add(self, value: Any, depth: int = 0) -> None:
        """Note a value of JSON, its numbers with a fraction as Decimal; None says nothing."""
        if value is None:
            return
        if isinstance(value, (dict, list)) and depth >= _DEEPEST:
            self.kinds.add("text")
        elif isinstance(value, dict):
            self._add_object(value, depth)
        elif isinstance(value, list):
            self.kinds.add("array")
            self._elements = self._elements or Kinds()
            for one in value:
                self._elements.add(one, depth + 1)
        elif isinstance(value, bool):
            self.kinds.add("boolean")
        elif isinstance(value, (int, Decimal)):
            self._add_number(value)
        elif isinstance(value, float):  # NaN and the infinite
            self.kinds.add("nan")
        else:
            self.kinds.add(_kind_of_time(value) or "text")

    def add_text(self, text: str) -> None:
        """Note a field of csv, whose kind is in its spelling; an empty one says nothing."""
        if not text:
            return
        if text.lower() in ("true", "false"):
            self.kinds.add("boolean")
        elif _NUMBER.fullmatch(text) is None or _CODE_LIKE.match(text):
            self.kinds.add(_kind_of_time(text) or "text")
        elif _INTEGER.fullmatch(text) and len(text) <= _MOST_DIGITS + 1:
            self._add_number(int(text))
        else:
            self._add_number(Decimal(text))

    def _add_object(self, value: dict[str, Any], depth: int) -> None:
        self.kinds.add("object")
        self._objects += 1
        self._keys += len(value)
        if len(self._key_sets) < _OBJECTS_TO_COMPARE:
            self._key_sets.append(frozenset(value))
        for key, one in value.items():
            if key not in self.fields:
                self.fields[key] = Kinds()
            self.fields[key].add(one, depth + 1)

    def _add_number(self, value: int | Decimal) -> None:
        whole = isinstance(value, int)
        self.kinds.add("integer" if whole else "fraction")
        sign_digits_power = Decimal(value).as_tuple()
        power = int(sign_digits_power.exponent)
        digits = len(sign_digits_power.digits)
        self._whole_digits = max(self._whole_digits, digits + power)
        self._decimals = max(self._decimals, -power)
        if whole and not -(1 << 63) <= value < 1 << 63:
            self._in_bigint = False
        if digits > _DIGITS_OF_A_DOUBLE or abs(power) > 300:
            self._in_double = self._in_double and _is_same_as_double(value)

    def show_type(self) -> str:
        """The type as DDL."""
        if self.kinds == {"integer"} and self._in_bigint:
            return "BIGINT"
        if self.kinds and self.kinds <= {"integer", "fraction", "nan"}:
            return self._show_number()
        if self.kinds == {"array"} and self._elements is not None:
            return f"ARRAY<{self._elements.show_type()}>"
        if self.kinds == {"object"}:
            return self._show_object()
        if self.kinds == {"date", "timestamp"}:  # Spark reads a date as the time at which it begins
            return "TIMESTAMP"
        kind = next(iter(self.kinds)) if len(self.kinds) == 1 else "text"
        return {"boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP"}.get(kind, "STRING")

    def _show_number(self) -> str:
        if self._in_double and self.kinds != {"integer"}:
            return "DOUBLE"
        if "nan" in self.kinds or self._whole_digits + self._decimals > _MOST_DIGITS:
            return "STRING"
        roomy = 18 if self._decimals and self._whole_digits <= _MOST_DIGITS - 18 else 0
        return f"DECIMAL({_MOST_DIGITS}, {max(self._decimals, roomy)})"

    def _show_object(self) -> str:
        if self._has_keys_like_data():
            values = Kinds()
            for one in self.fields.values():
                values.merge(one)
            return f"MAP<STRING, {values.show_type()}>"
        try:
            refuse_twins(list(self.fields), None)
        except DdlError:
            return "STRING"
        if not self.fields or "" in self.fields:
            return "STRING"
        return f"STRUCT<{', '.join(f'{quote_name(name)}: {one.show_type()}' for name, one in self.fields.items())}>"

    def _has_keys_like_data(self) -> bool:
        """Whether the keys of the objects are values rather than names: very many, most of which each object lacks, or
        no two objects with mostly the same."""
        if len(self.fields) > _FIELDS_AT_MOST and self._keys < self._objects * len(self.fields) / 2:
            return True
        filled = [keys for keys in self._key_sets if keys]
        if len(filled) < _FEWEST_OBJECTS:
            return False
        return not any(2 * len(one & other) > min(len(one), len(other)) for one, other in combinations(filled, 2))

    def merge(self, other: Kinds) -> None:
        """Note all that ``other`` has seen."""
        self.kinds |= other.kinds
        self._whole_digits = max(self._whole_digits, other._whole_digits)
        self._decimals = max(self._decimals, other._decimals)
        self._in_bigint = self._in_bigint and other._in_bigint
        self._in_double = self._in_double and other._in_double
        self._objects += other._objects
        self._keys += other._keys
        self._key_sets = (self._key_sets + other._key_sets)[:_OBJECTS_TO_COMPARE]
        if other._elements is not None:
            self._elements = self._elements or Kinds()
            self._elements.merge(other._elements)
        for key, one in other.fields.items():
            self.fields.setdefault(key, Kinds()).merge(one)


def note_all(objects: Iterable[dict[str, Any]]) -> Kinds:
    """The kinds of records; their columns are ``fields``."""
    seen = Kinds()
    for one in objects:
        seen.add(one)
    return seen


def _is_same_as_double(value: int | Decimal) -> bool:
    try:
        as_double = float(value)
    except OverflowError:
        return False
    if isinstance(value, int):
        return as_double == value
    return as_double not in (float("inf"), float("-inf")) and Decimal(repr(as_double)) == value


def _kind_of_time(text: str) -> str | None:
    """``date`` or ``timestamp`` when Spark reads the text as such without a format, and loses no digit."""
    try:
        if _DATE.fullmatch(text):
            datetime.strptime(text, "%Y-%m-%d")
            return "date"
        if len(text) <= 40 and (match := _TIME.fullmatch(text)):
            datetime.fromisoformat(f"{match[1]}T{match[2]}")
            return "timestamp"
    except ValueError:
        return None
    return None
