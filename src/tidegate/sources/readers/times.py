"""Parses dates and times in the default format: year-month-day hour:minute:second, and a zone."""

from __future__ import annotations

import datetime as dt
import re

from tidegate.spec.notations import find_zone, is_offset

_EPOCH = dt.datetime(1970, 1, 1)
_DATE_FORM = re.compile(r"([+-]?)([0-9]{4,9})-([0-9]{1,2})-([0-9]{1,2})\s*")
_TIME_FORM = re.compile(
    r"([+-]?)([0-9]{4,9})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[T ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:[.]([0-9]*))?)?\s*([^0-9.:\s].*?)?)?\s*"
)
FINER = "finer than a microsecond"
FORMATS = {"date": "dateFormat", "timestamp": "timestampFormat", "timestamp_ntz": "timestampNTZFormat"}
"""The option with the pattern of each type."""


def outside_years(name: str) -> str:
    """Why a date or time of the type ``name`` cannot be held."""
    return f"{name} outside the years 1 to 9999"


def read_date(text: str) -> tuple[dt.date | None, str | None]:
    """The date that ``text`` is, year-month-day, and why it is none."""
    match = _DATE_FORM.fullmatch(text)
    if match is None:
        is_more = re.match(r"[0-9]{4,}(?:-[0-9]{1,2}(?:-[0-9]{1,2}[T ].*)?)?$|[0-9]+$", text)
        return None, "not a date alone (year-month-day)" if is_more else "not a DATE"
    sign, year, month, day = match.groups()
    if sign == "-" or not 1 <= int(year) <= 9999:
        return None, outside_years("DATE")
    try:
        return dt.date(int(year), int(month), int(day)), None
    except ValueError:
        return None, "not a DATE"


def read_epoch(text: str) -> tuple[dt.datetime | None, str | None]:
    """The time that a whole number of seconds since 1970 UTC is, and why it is none."""
    if not re.fullmatch("-?[0-9]{1,40}", text):
        return None, "not a TIMESTAMP"
    try:
        return _EPOCH + dt.timedelta(seconds=int(text)), None
    except OverflowError:
        return None, outside_years("TIMESTAMP")


def read_time(text: str, kind: str, zone: dt.tzinfo = dt.UTC) -> tuple[dt.datetime | None, str | None]:
    """The time, in UTC where ``kind`` is timestamp, that ``text`` is, and why it is none; one without a time zone is
    in ``zone``."""
    name = kind.upper()
    match = _TIME_FORM.fullmatch(text)
    if match is None:
        is_part = re.match(r"[0-9]{4,}(?:-[0-9]{1,2})?$|[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}T[0-9]{1,2}$", text)
        is_clock = re.match(r"T?[0-9]{1,2}:[0-9]{1,2}", text)
        whole = "not a whole date and time (year-month-day hour:minute:second)"
        return None, whole if is_part or is_clock else f"not a {name}"
    sign, year, month, day, hour, minute, second, fraction, zone_name = match.groups()
    fraction = (fraction or "").rstrip("0")
    if len(fraction) > 6:
        return None, f"{FINER}; a {FORMATS[kind]} with 7 to 9 S drops the digits after the sixth"
    if sign == "-" or not 1 <= int(year) <= 9999:
        return None, outside_years(name)
    try:
        of_day = int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "0").ljust(6, "0"))
        time = dt.datetime(int(year), int(month), int(day), *of_day)
    except ValueError:
        return None, f"not a {name}"
    if kind != "timestamp":
        return (time, None) if not zone_name else (None, f"not a {name}")
    if not zone_name:
        return to_utc(time, zone)
    written, fault = read_zone(zone_name)
    return (None, fault) if written is None else to_utc(time, written)


def read_zone(name: str) -> tuple[dt.tzinfo | None, str | None]:
    """The time zone that a value names, and why it is none: short names such as BST are those of several."""
    zone = find_zone(name) if is_offset(name) or "/" in name else None
    if zone is not None:
        return zone, None
    if is_offset(name):
        return None, "not a TIMESTAMP"
    return None, "its time zone is ambiguous or unknown: write +02:00 or Europe/Paris"


def to_utc(time: dt.datetime, zone: dt.tzinfo) -> tuple[dt.datetime | None, str | None]:
    """``time`` of the clocks of ``zone`` in UTC, and why it has none."""
    if zone is dt.UTC:
        return time, None
    early, late = time.replace(tzinfo=zone), time.replace(tzinfo=zone, fold=1)
    try:
        if early.utcoffset() != late.utcoffset():
            back = early.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None)
            return (
                None,
                "ambiguous: its time zone has this time twice, as the clock was put back"
                if back == time
                else "a time that does not exist in its time zone: the clock was put forward",
            )
        return early.astimezone(dt.UTC).replace(tzinfo=None), None
    except OverflowError:
        return None, outside_years("TIMESTAMP")
