"""What a value of a record is worth in its column: held exactly, or malformed with the reason.

This is the definition for every format whose values are texts or tokens of JSON. Readers may know faster ways for
values beyond doubt; what they give is what these functions give.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import functools
import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from tidegate.spec.ddl_tree import Node, digits_of_decimal

LONE = "half of a surrogate pair, which is not a character"
TWICE = "this key is there twice"


class Number(str):
    """A number of JSON, with the digits that are written; also ``NaN`` and the infinities without quotes."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object of JSON, in the order in which it is written: a key that is there twice comes twice."""

    __slots__ = ()


class Fault(NamedTuple):
    """Why a value does not fit; ``path`` is empty for the record as a whole."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class Findings:
    """What was found in one record beside its values."""

    __slots__ = ("faults", "unknown")

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.unknown: list[str] = []
        """Paths of the keys that the schema lacks, such as ``a.b``, ``list[].c`` and ``by{}.d``."""

    def refuse(self, path: str, text: str) -> None:
        """Note that the value at ``path`` does not fit; returns None, which is what its column gets."""
        self.faults.append(Fault(path, text))


Convert = Callable[[Any, str, Findings], Any]
"""(value, path, findings) -> the value of the column as Arrow takes it; None and a fault where it does not fit."""


def make_converter(node: Node) -> Convert:
    """The function that makes a value of the type ``node`` of a value of JSON: None, bool, str, :class:`Number`,
    list or :class:`Pairs`."""
    if node.kind == "struct":
        return _make_struct(node)
    if node.kind == "array":
        return _make_array(node)
    if node.kind == "map":
        return _make_map(node)
    convert = _LEAVES[node.kind](node)

    def leaf(value: Any, path: str, findings: Findings) -> Any:
        return None if value is None else convert(value, path, findings)

    return leaf


def name_type(node: Node) -> str:
    """A type with its article, as messages name it."""
    text = node.type if node.fields else node.type.upper()
    return f"{'an' if node.type[:1] in 'aeiou' else 'a'} {text}"


def _refuse(node: Node, path: str, findings: Findings) -> None:
    findings.refuse(path, f"not {name_type(node)}")


def _make_struct(node: Node) -> Convert:
    converters = {name: make_converter(inner) for name, inner in node.fields}

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            return _refuse(node, path, findings)
        before = f"{path}." if path else ""
        found: dict[str, Any] = {}
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


def _make_array(node: Node) -> Convert:
    item = make_converter(node.item)

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if value is None:
            return None
        if isinstance(value, Pairs) or not isinstance(value, list):
            return _refuse(node, path, findings)
        inside = f"{path}[]"
        return [item(one, inside, findings) for one in value]

    return convert


def _make_map(node: Node) -> Convert:
    item = make_converter(node.item)

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            return _refuse(node, path, findings)
        inside = f"{path}{{}}"
        found: dict[str, Any] = {}
        for name, one in value:
            if name in found:
                findings.refuse(path, TWICE)
            elif not _is_text(name):
                findings.refuse(inside, LONE)
            found[name] = item(one, inside, findings)
        return list(found.items())

    return convert


def _look_for_faults(value: Any, path: str, findings: Findings) -> None:
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
    """Whether it can be written in UTF-8: half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boolean(node: Node) -> Convert:
    def convert(value: Any, path: str, findings: Findings) -> Any:
        return value if isinstance(value, bool) else _refuse(node, path, findings)

    return convert


_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def _whole(node: Node) -> Convert:
    low, high = -(1 << _BITS[node.kind]), (1 << _BITS[node.kind]) - 1
    written = re.compile("-?[0-9]{1,40}")

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if isinstance(value, Number) and written.fullmatch(value) and low <= (number := int(value)) <= high:
            return number
        return _refuse(node, path, findings)

    return convert


_SPECIAL = {
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
    "NaN": math.nan,
}
_WHOLE_DIGITS = {"float": 7, "double": 15}
_DIGITS_KEPT = {"float": 6, "double": 15}
"""Any number with so many digits comes out as it went in (FLT_DIG and DBL_DIG of C)."""


def _floating(node: Node) -> Convert:
    kind = node.kind

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if not isinstance(value, str):
            return _refuse(node, path, findings)
        if (special := _SPECIAL.get(value)) is not None:
            return special
        if not isinstance(value, Number):
            return _refuse(node, path, findings)
        number, fault = read_floating(value, kind)
        return number if fault is None else findings.refuse(path, fault)

    return convert


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


_DIGITS = Context(prec=38)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?")


def _decimal(node: Node) -> Convert:
    digits, scale = digits_of_decimal(node.type)

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if not isinstance(value, str):
            return _refuse(node, path, findings)
        if not _NUMBER.fullmatch(value):
            is_grouped = not isinstance(value, Number) and re.search("[0-9]", value) and re.search("[,.٠-٩]", value)
            text = "not written as a plain number; with commas or groups it needs the option locale"
            return findings.refuse(path, text) if is_grouped else _refuse(node, path, findings)
        number, fault = read_decimal(value, digits, scale)
        if fault is None:
            return number
        return findings.refuse(path, fault)

    return convert


def read_decimal(text: str, digits: int, scale: int) -> tuple[Decimal | None, str | None]:
    """A number as DECIMAL(digits, scale), and why it cannot be one. Costs the same for any exponent."""
    name = f"DECIMAL({digits},{scale})"
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits
        return None, f"not a {name}"
    _, figures, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, figures)).strip("0")
    if not significant:
        return Decimal((0, (0,), -scale)), None
    lowest = exponent + len(figures) - len("".join(map(str, figures)).rstrip("0"))
    if lowest < -scale:
        return None, f"more decimals than {name} holds"
    if number.adjusted() >= digits - scale:
        return None, f"not a {name}"
    return number.quantize(Decimal((0, (1,), -scale)), context=_DIGITS), None


def _string(node: Node) -> Convert:
    def convert(value: Any, path: str, findings: Findings) -> Any:
        if isinstance(value, str):
            return value if _is_text(value) else findings.refuse(path, LONE)
        if isinstance(value, bool):
            return "true" if value else "false"
        text = "".join(write_json(value))
        return text if _is_text(text) else findings.refuse(path, LONE)

    return convert


def write_json(value: Any) -> Iterator[str]:
    """A value of JSON as text without blanks, in pieces; numbers keep their digits."""
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
    else:
        yield value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _binary(node: Node) -> Convert:
    def convert(value: Any, path: str, findings: Findings) -> Any:
        if isinstance(value, str) and not isinstance(value, Number):
            try:
                return base64.b64decode(value.encode("ascii"), validate=True)
            except (binascii.Error, UnicodeEncodeError):
                pass
        return _refuse(node, path, findings)

    return convert


_EPOCH = dt.datetime(1970, 1, 1)
_DATE_FORM = re.compile(r"([+-]?)([0-9]{4,9})-([0-9]{1,2})-([0-9]{1,2})\s*")
_TIME_FORM = re.compile(
    r"([+-]?)([0-9]{4,9})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[T ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:[.]([0-9]*))?)?\s*([^0-9.:\s].*?)?)?\s*"
)
_LARGEST_OFFSET = dt.timedelta(hours=18)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")


def _date(node: Node) -> Convert:
    def convert(value: Any, path: str, findings: Findings) -> Any:
        if not isinstance(value, str) or isinstance(value, Number):
            return _refuse(node, path, findings)
        day, fault = read_date(value)
        return day if fault is None else findings.refuse(path, fault)

    return convert


def read_date(text: str) -> tuple[dt.date | None, str | None]:
    """The date that ``text`` is, year-month-day, and why it is none."""
    match = _DATE_FORM.fullmatch(text)
    if match is None:
        is_more = re.match(r"[0-9]{4,}(?:-[0-9]{1,2}(?:-[0-9]{1,2}[T ].*)?)?$|[0-9]+$", text)
        return None, "not a date alone (year-month-day)" if is_more else "not a DATE"
    sign, year, month, day = match.groups()
    if sign == "-" or not 1 <= int(year) <= 9999:
        return None, "DATE outside the years 1 to 9999"
    try:
        return dt.date(int(year), int(month), int(day)), None
    except ValueError:
        return None, "not a DATE"


def _timestamp(node: Node) -> Convert:
    kind = node.kind

    def convert(value: Any, path: str, findings: Findings) -> Any:
        if isinstance(value, Number) and kind == "timestamp":
            time, fault = read_epoch(value)
        elif isinstance(value, str) and not isinstance(value, Number):
            time, fault = read_time(value, kind)
        else:
            return _refuse(node, path, findings)
        return time if fault is None else findings.refuse(path, fault)

    return convert


def read_epoch(text: str) -> tuple[dt.datetime | None, str | None]:
    """The time that a whole number of seconds since 1970 UTC is, and why it is none."""
    if not re.fullmatch("-?[0-9]{1,40}", text):
        return None, "not a TIMESTAMP"
    try:
        return _EPOCH + dt.timedelta(seconds=int(text)), None
    except OverflowError:
        return None, "TIMESTAMP outside the years 1 to 9999"


def read_time(text: str, kind: str) -> tuple[dt.datetime | None, str | None]:
    """The time, in UTC where ``kind`` is timestamp, that ``text`` is, and why it is none."""
    name = kind.upper()
    match = _TIME_FORM.fullmatch(text)
    if match is None:
        is_part = re.match(r"[0-9]{4,}(?:-[0-9]{1,2})?$|[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}T[0-9]{1,2}$", text)
        is_clock = re.match(r"T?[0-9]{1,2}:[0-9]{1,2}", text)
        whole = "not a whole date and time (year-month-day hour:minute:second)"
        return None, whole if is_part or is_clock else f"not a {name}"
    sign, year, month, day, hour, minute, second, fraction, zone = match.groups()
    fraction = (fraction or "").rstrip("0")
    if len(fraction) > 6:
        return None, "finer than a microsecond"
    if sign == "-" or not 1 <= int(year) <= 9999:
        return None, f"{name} outside the years 1 to 9999"
    try:
        of_day = int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "0").ljust(6, "0"))
        time = dt.datetime(int(year), int(month), int(day), *of_day)
    except ValueError:
        return None, f"not a {name}"
    if not zone:
        return time, None
    if kind != "timestamp":
        return None, f"not a {name}"
    return _to_utc(time, zone)


def _to_utc(time: dt.datetime, zone: str) -> tuple[dt.datetime | None, str | None]:
    if zone in ("Z", "UTC", "GMT", "UT"):
        return time, None
    outside = "TIMESTAMP outside the years 1 to 9999"
    if (match := _OFFSET.fullmatch(zone)) is not None:
        sign, hours, minutes, seconds = match.groups()
        offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if offset > _LARGEST_OFFSET or int(minutes or 0) > 59 or int(seconds or 0) > 59:
            return None, "not a TIMESTAMP"
        try:
            return (time - offset if sign == "+" else time + offset), None
        except OverflowError:
            return None, outside
    if "/" not in zone or (region := _find_region(zone)) is None:
        return None, "its time zone is ambiguous or unknown: write +02:00 or Europe/Paris"
    early, late = (time.replace(tzinfo=region, fold=fold) for fold in (0, 1))
    if early.utcoffset() != late.utcoffset():
        back = early.astimezone(dt.UTC).astimezone(region).replace(tzinfo=None)
        return (
            None,
            "ambiguous: its time zone has this time twice, as the clock was put back"
            if back == time
            else "a time that does not exist in its time zone: the clock was put forward",
        )
    try:
        return early.astimezone(dt.UTC).replace(tzinfo=None), None
    except OverflowError:
        return None, outside


@functools.lru_cache(maxsize=1024)
def _find_region(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


_LEAVES: dict[str, Callable[[Node], Convert]] = {
    "boolean": _boolean,
    **dict.fromkeys(_BITS, _whole),
    **dict.fromkeys(_WHOLE_DIGITS, _floating),
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
}
