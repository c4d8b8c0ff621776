"""The kinds of values that a field has in a sample, and the narrowest Spark type that holds them all unchanged.

In doubt it is STRING: for values of several kinds, and for numbers that begin with a zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import combinations

from tidegate.core.words import shorten
from tidegate.sources.readers.ways import Ways
from tidegate.spec.ddl import DdlError, quote_name, refuse_twins

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
CODE_LIKE = re.compile(r"[+-]?0\d")
"""The beginning of a number whose zeros would be lost."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d:\d\d)\.\d{1,6}(\d*))?(?:Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_MOST_DIGITS = 38
_DIGITS_OF_A_DOUBLE = 15
_MOST_DIGITS_OF_A_FORM = 9
_DEEPEST = 30
_FIELDS_AT_MOST = 50
_OBJECTS_TO_COMPARE = 60
_FEWEST_OBJECTS = 3
_LONGEST_EXAMPLE = 30
_WORDS = {
    "integer": "a whole number",
    "fraction": "a number with a fraction",
    "nan": "no finite number",
    "boolean": "true or false",
    "date": "a date",
    "timestamp": "a time",
    "fine": "a time finer than a microsecond",
    "array": "an array",
    "object": "an object",
    "text": "a text",
}


class Kinds:
    """The kinds of the values at one place of the records; ``fields`` and ``elements`` are the places inside."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self._seen: dict[str, tuple[int, object]] = {}
        """{kind: how many, the first}."""
        self.fields: dict[str, Kinds] = {}
        self._elements: Kinds | None = None
        self._whole_digits = 0
        self._decimals = 0
        self._in_bigint = True
        self._in_double = True
        self._objects = 0
        self._keys = 0
        self._key_sets: list[frozenset[str]] = []

    def add(self, value: object, depth: int = 0) -> None:
        """Note a JSON value, in which numbers with a fraction are Decimal; None is ignored."""
        if value is None:
            return
        if isinstance(value, (dict, list)) and depth >= _DEEPEST:
            self._note("text", value)
        elif isinstance(value, dict):
            self._add_object(value, depth)
        elif isinstance(value, list):
            self._note("array", value)
            self._elements = self._elements or Kinds()
            for one in value:
                self._elements.add(one, depth + 1)
        elif isinstance(value, bool):
            self._note("boolean", value)
        elif isinstance(value, (int, Decimal)):
            self._add_number(value)
        elif isinstance(value, float):  # NaN and the infinite
            self._note("nan", value)
        else:
            self._note(_kind_of_time(str(value)) or "text", value)

    def add_text(self, text: str) -> None:
        """Note a csv field by its text; an empty one is ignored."""
        if not text:
            return
        if text.lower() in ("true", "false"):
            self._note("boolean", text)
        elif _NUMBER.fullmatch(text) is None or CODE_LIKE.match(text):
            self._note(_kind_of_time(text) or "text", text)
        elif _INTEGER.fullmatch(text) and len(text) <= _MOST_DIGITS + 1:
            self._add_number(int(text))
        else:
            self._add_number(Decimal(text))

    def _note(self, kind: str, value: object) -> None:
        self.kinds.add(kind)
        count, first = self._seen.get(kind, (0, value))
        self._seen[kind] = (count + 1, first)

    def _add_object(self, value: dict[str, object], depth: int) -> None:
        self._note("object", value)
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
        self._note("integer" if whole else "fraction", value)
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

    def describe_mixed(self, place: str) -> Iterator[str]:
        """Why this place, or one inside it, is STRING although most of its values are of another kind."""
        if "fine" in self.kinds and self.kinds <= {"fine", "timestamp"}:
            yield _describe_fine(place, str(self._seen["fine"][1]))
            return
        if len(self.kinds) > 1 and self.show_type() == "STRING":
            seen = sorted(self._seen.items(), key=lambda one: -one[1][0])
            kinds = [
                f"{_WORDS[kind]} {_times(count)}" + f" ({_show(first)})" * (n > 0)
                for n, (kind, (count, first)) in enumerate(seen)
            ]
            yield f"{place} is STRING: {', '.join(kinds)}"
            return
        if "object" in self.kinds and not self._has_keys_like_data():
            for name, inner in self.fields.items():
                yield from inner.describe_mixed(f"{place}.{name}" if place else name)
        if self._elements is not None and self.kinds == {"array"}:
            yield from self._elements.describe_mixed(f"{place}[]")

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
        """Return whether the keys of the objects are data rather than names: many keys, most of which each object
        lacks, or no two objects that share most of them."""
        if len(self.fields) > _FIELDS_AT_MOST and self._keys < self._objects * len(self.fields) / 2:
            return True
        filled = [keys for keys in self._key_sets if keys]
        if len(filled) < _FEWEST_OBJECTS:
            return False
        return not any(2 * len(one & other) > min(len(one), len(other)) for one, other in combinations(filled, 2))

    def merge(self, other: Kinds) -> None:
        """Note all that ``other`` has seen."""
        self.kinds |= other.kinds
        for kind, (count, first) in other._seen.items():
            before, known = self._seen.get(kind, (0, first))
            self._seen[kind] = (before + count, known)
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


def note_all(objects: Iterable[dict[str, object]]) -> Kinds:
    """Note all records; their columns are the ``fields`` of the result."""
    seen = Kinds()
    for one in objects:
        seen.add(one)
    return seen


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _show(value: object) -> str:
    """A value as JSON, without its middle where it is long."""
    return shorten(json.dumps(value, ensure_ascii=False, default=str), _LONGEST_EXAMPLE)


def _is_same_as_double(value: int | Decimal) -> bool:
    try:
        as_double = float(value)
    except OverflowError:
        return False
    if isinstance(value, int):
        return as_double == value
    return as_double not in (float("inf"), float("-inf")) and Decimal(repr(as_double)) == value


def _describe_fine(place: str, example: str) -> str:
    """What can be done with times like ``example``, which are finer than a microsecond."""
    digits = re.findall(r"\.(\d+)", example)[0]
    separator, zone = "'T'" if "T" in example else " ", "XXX" if re.search(r"(Z|[+-]\d\d:\d\d)$", example) else ""
    form = f"yyyy-MM-dd{separator}HH:mm:ss[.{'S' * len(digits)}]{zone}"
    ways = [f"`CAST({place} AS TIMESTAMP)` in the transform"]
    if (
        len(digits) <= _MOST_DIGITS_OF_A_FORM
        and Ways.of({"timestampFormat": form}).read(example, "timestamp")[1] is None
    ):
        ways.insert(0, f'TIMESTAMP with options: {{timestampFormat: "{form}"}}')
    return (
        f"{place} is STRING: times finer than a microsecond, such as {example}, are malformed in a TIMESTAMP; to drop "
        f"the digits after the sixth: {', or '.join(ways)}"
    )


def _kind_of_time(text: str) -> str | None:
    """``date`` or ``timestamp`` when Spark reads the text as such without a format, and loses no digit; ``fine`` for a
    time of which it would lose some."""
    try:
        if _DATE.fullmatch(text):
            datetime.strptime(text, "%Y-%m-%d")
            return "date"
        if len(text) <= 40 and (match := _TIME.fullmatch(text)):
            datetime.fromisoformat(f"{match[1]}T{match[2]}")
            return "fine" if (match[3] or "").strip("0") else "timestamp"
    except ValueError:
        return None
    return None
