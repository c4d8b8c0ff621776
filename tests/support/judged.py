"""What a value of a record is worth in its column, judged by Python's own ``json``, ``decimal`` and ``datetime``."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from decimal import Context, Decimal
from typing import Any

from tools.values_table import COLUMNS, INNER, Case, value_at

REFUSED = object()
"""What a value is worth that its type cannot hold, or that is no value of its type."""

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
    if text in ("NaN", "nan"):
        return "nan"
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
        offset = {"+02:00": 120, "-11:30": -690, "Europe/Paris": 60}.get(match[6])
        if offset is None:
            return REFUSED
        value -= dt.timedelta(minutes=offset)
    return value if zoned or not match[6] else REFUSED


def judge_value(type_: str, value: Any, written: str) -> Any:
    """What the declared type has to hold for ``value``, a token of JSON or the text of a csv field."""
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
    if kind in ("INT", "BIGINT"):
        bits = 31 if kind == "INT" else 63
        whole = re.fullmatch(r"[+-]?\d+", value)  # digits of any script
        return int(value) if whole and -(2**bits) <= int(value) < 2**bits else REFUSED
    if kind == "DATE":
        return _date(value)
    if isinstance(value, Number):
        epoch = re.fullmatch("-?[0-9]+", value)
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(value)) if epoch else REFUSED
    return _time(value, zoned=kind == "TIMESTAMP")


def judge(case: Case) -> Any:
    """The value that the table has to hold for ``case``, or REFUSED."""
    if case.format == "csv":
        text = case.written.strip('"')
        if COLUMNS[case.column] == "BOOLEAN":
            return {"true": True}.get(text.lower(), REFUSED)
        return judge_value(COLUMNS[case.column], text, text)
    if _has_twice(_read_json(case.record)):
        return REFUSED
    type_, value = COLUMNS.get(case.path) or INNER[case.path], _read_json(case.written)
    if type_ in ("INT", "BIGINT") and not isinstance(value, Number) and value is not None:
        return REFUSED  # a text is no number, whatever it shows
    return judge_value(type_, value, case.written)


def held(case: Case, row: dict[str, Any]) -> Any:
    """What the table holds for ``case``."""
    value = value_at(row, case.path)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return str(value) if isinstance(value, dt.date) else value


def agrees(want: Any, value: Any) -> bool:
    """Whether the table holds what it should."""
    if isinstance(want, tuple):
        return bool(_same_document(value) == want[1])
    return want is not REFUSED and type(want) is type(value) and bool(want == value)
