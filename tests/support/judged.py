"""What a value of a record is worth in its column, judged by Python's own ``json``, ``decimal`` and ``datetime``."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

from tools.values_table import TYPES, Case, Tried, value_at

REFUSED = object()
"""What a value is worth that its type cannot hold, or that is no value of its type."""

BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_MANY = Context(prec=1000, Emax=100_000, Emin=-100_000)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?")


class Number(str):
    """A number of JSON, as it is written."""


def _read_json(text: str) -> Any:
    """With numbers as they are written, and objects as tuples of pairs: a key that comes twice is there twice."""
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=tuple)


def _has_twice(value: Any) -> bool:
    if isinstance(value, tuple):
        names = [name for name, _ in value]
        return len(names) != len(set(names)) or any(_has_twice(inner) for _, inner in value)
    return isinstance(value, list) and any(_has_twice(inner) for inner in value)


def _decimal(text: str, digits: int, scale: int) -> Any:
    if not _NUMBER.fullmatch(text):
        return REFUSED
    value = Decimal(text, _MANY)
    if value != value.quantize(Decimal(1).scaleb(-scale), context=_MANY) or abs(value) >= 10 ** (digits - scale):
        return REFUSED
    return value


def _double(text: str, *, single: bool) -> Any:
    if text in ("NaN", "Infinity", "-Infinity"):
        return "nan" if text == "NaN" else float(text)
    if not _NUMBER.fullmatch(text):
        return REFUSED
    value = float(text)
    if single:
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return REFUSED
    lost = math.isinf(value) or (value == 0 and Decimal(text, _MANY) != 0)
    if lost or (re.fullmatch("-?[0-9]{1,18}", text) and int(value) != int(text)):
        return REFUSED
    if re.fullmatch("-?[0-9]{19,}", text):
        if len(text.strip("-0")) > (6 if single else 15):
            return REFUSED
        assert single or Decimal(repr(value)) == Decimal(text), "what is taken comes out as it went in"
    return value


def _same_document(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def _string(value: Any, written: str) -> Any:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str):
        return REFUSED if value and not _is_text(value) else value
    return ("document", _same_document(written)) if _is_text(json.dumps(value, ensure_ascii=False)) else REFUSED


def _is_text(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _date(text: str) -> Any:
    match = re.fullmatch(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})\s*", text)
    try:
        return str(dt.date(*(int(part) for part in match.groups()))) if match else REFUSED
    except ValueError:
        return REFUSED


def _time(text: str, *, zoned: bool) -> Any:
    match = re.fullmatch(
        r"(\d{4}-\d{1,2}-\d{1,2})(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.](\d*))?)?\s*(.*))?", text
    )
    if match is None or _date(match[1]) is REFUSED or (match[5] or "").rstrip("0")[6:]:
        return REFUSED
    hour, minute, second = (int(part or 0) for part in match.group(2, 3, 4))
    if hour > 23 or second > 59:
        return REFUSED
    value = dt.datetime.fromisoformat(_date(match[1]))
    value = value.replace(hour=hour, minute=minute, second=second, microsecond=int((match[5] or "").ljust(6, "0")[:6]))
    if match[6] and match[6] != "Z":
        offset = {"+02:00": dt.timedelta(hours=2), "-11:30": -dt.timedelta(hours=11, minutes=30)}.get(match[6])
        if match[6] == "Europe/Paris":
            offset, later = (value.replace(tzinfo=ZoneInfo(match[6]), fold=fold).utcoffset() for fold in (0, 1))
            offset = offset if offset == later else None  # that time comes twice or never
        if offset is None:
            return REFUSED
        value -= offset
    return value if zoned or not match[6] else REFUSED


def _binary(text: str) -> Any:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return REFUSED


def judge_value(type_: str, value: Any, written: str) -> Any:
    """What the declared type has to hold for ``value``, a token of JSON or the text of a csv field or xml element."""
    kind, _, rest = type_.partition("(")
    if value is None:
        return None
    if kind == "STRING":
        return _string(value, written)
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else REFUSED
    if not isinstance(value, str):
        return REFUSED
    if kind == "DECIMAL":
        return _decimal(value, *(int(part) for part in rest.rstrip(")").split(",")))
    if kind in ("DOUBLE", "FLOAT"):
        return _double(value, single=kind == "FLOAT")
    if kind in BITS:
        whole = re.fullmatch(r"[+-]?\d+", value)  # digits of any script
        return int(value) if whole and -(2 ** BITS[kind]) <= int(value) < 2 ** BITS[kind] else REFUSED
    if kind == "DATE":
        return REFUSED if isinstance(value, Number) else _date(value)
    if kind == "BINARY":
        return REFUSED if isinstance(value, Number) else _binary(value)
    if isinstance(value, Number):
        epoch = re.fullmatch("-?[0-9]+", value)
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(value)) if epoch else REFUSED
    return _time(value, zoned=kind == "TIMESTAMP")


def judge(case: Case) -> Any:
    """The value that the column has to hold for ``case``, or REFUSED."""
    return {"json": _judge_json, "csv": _judge_csv, "xml": _judge_xml}[case.format](case)


def _judge_json(case: Case) -> Any:
    if _has_twice(_read_json(case.record)):
        return REFUSED
    type_, value = TYPES[case.path], _read_json(case.written)
    if value is not None and type_.startswith(("STRUCT", "ARRAY", "MAP")):
        return _judge_whole(type_, value)
    if type_ in BITS and not isinstance(value, Number) and value is not None:
        return REFUSED  # a text is no number, whatever it shows
    return judge_value(type_, value, case.written)


def _judge_whole(type_: str, value: Any) -> Any:
    """An object is a STRUCT or a MAP, an array an ARRAY; what is inside is null or a number."""
    if type_.startswith("ARRAY"):
        item = type_.removeprefix("ARRAY<").removesuffix(">")
        return [judge_value(item, one, "") for one in value] if isinstance(value, list) else REFUSED
    if not isinstance(value, tuple):
        return REFUSED
    return list(value) if type_.startswith("MAP") else {"c": None, "s": None, "n": None, **dict(value)}


def _judge_csv(case: Case) -> Any:
    type_, text = TYPES[case.path], case.written.strip('"')
    if not text:
        return None
    if type_ == "BOOLEAN":
        return {"true": True, "false": False}.get(text.lower(), REFUSED)
    return judge_value(type_, text, text)


def _judge_xml(case: Case) -> Any:
    if case.written.startswith("<"):
        return REFUSED  # an element that is there twice
    type_, text = TYPES[case.path], case.written.strip()
    if not text and type_ != "STRING":
        return {"o": {"c": None, "s": None, "n": None}, "list": [None], "by": []}.get(case.path)
    if type_ == "BOOLEAN":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), REFUSED)
    return REFUSED if type_ in BITS and not text.isascii() else judge_value(type_, text, text)


_WHOLE = {"int8", "int16", "int32", "int64", "uint8", "uint64"}
_EXACT = {*_WHOLE, "decimal(15,3)"}
_NANOS = "timestamp in nanoseconds"
_TIMES = {"timestamp without a zone", _NANOS}
_FIT = {
    "BOOLEAN": {"boolean"}, "TINYINT": _EXACT, "SMALLINT": _EXACT, "INT": {*_EXACT, "time"},
    "BIGINT": {*_EXACT, "time", _NANOS}, "FLOAT": {*_WHOLE, "float", "double"}, "DOUBLE": {*_WHOLE, "float", "double"},
    "DECIMAL(12,2)": _EXACT, "STRING": {"string", "binary", "time"}, "BINARY": {"string", "binary"},
    "DATE": {"date"}, "TIMESTAMP": {*_TIMES, "timestamp of an instant"}, "TIMESTAMP_NTZ": _TIMES,
    "STRUCT<c: INT>": {"struct<c: int64>"}, "ARRAY<INT>": {"list<int64>"}, "MAP<STRING, INT>": {"map<string, int64>"},
}  # fmt: skip
"""By the type of a column: the types of a file that suit it."""


def suits(tried: Tried) -> bool:
    """Whether values of a type of a file may be held by a column of the declared type."""
    if (tried.format, tried.declared) == ("orc", "BIGINT") and tried.of_file == _NANOS:
        return False  # orc has one type of times
    return tried.of_file in _FIT[tried.declared]


def judge_of_file(of_file: str, declared: str, value: Any) -> Any:
    """What a column has to hold for a value of a file whose type suits it, or REFUSED."""
    if isinstance(value, list | dict):
        inside = value if isinstance(value, list) else list(value.values())
        if not all(-(2**31) <= one < 2**31 for one in inside):
            return REFUSED
        return list(value.items()) if declared.startswith("MAP") else value
    if of_file == "date":
        return _add(dt.timedelta(days=value), lambda moment: str(moment.date()))
    if of_file.startswith("timestamp") and declared != "BIGINT":
        whole, finer = divmod(value, 1000) if of_file.endswith("nanoseconds") else (value, 0)
        return REFUSED if finer else _add(dt.timedelta(microseconds=whole), lambda moment: moment)
    if of_file == "time" and declared == "STRING":
        return str((dt.datetime.min + dt.timedelta(microseconds=value)).time())
    if declared == "STRING":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return REFUSED
    if declared in BITS:
        bits = BITS[declared]
        return int(value) if int(value) == value and -(2**bits) <= value < 2**bits else REFUSED
    if declared in ("FLOAT", "DOUBLE"):
        nearest = float(value)
        if declared == "FLOAT":
            nearest = struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 1e38 else math.inf
        return nearest if nearest == value else REFUSED
    return _decimal(str(value), 12, 2) if declared.startswith("DECIMAL") else value


def _add(since: dt.timedelta, show: Callable[[dt.datetime], Any]) -> Any:
    try:
        return show(dt.datetime(1970, 1, 1) + since)
    except OverflowError:
        return REFUSED


def held(case: Case, row: dict[str, Any]) -> Any:
    """What the column holds for ``case``."""
    return plain(value_at(row, case.path))


def plain(value: Any) -> Any:
    """A value of a column as the judges write it."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return str(value) if isinstance(value, dt.date) else value


def agrees(want: Any, value: Any) -> bool:
    """Whether the column holds what it should."""
    if isinstance(want, tuple):
        return bool(_same_document(value) == want[1])
    return want is not REFUSED and type(want) is type(value) and bool(want == value)
