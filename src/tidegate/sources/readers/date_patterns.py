"""Parses dates and times that are written in a pattern such as ``dd.MM.yyyy HH:mm``.

A pattern becomes one regular expression without backtracking, like Java's parser. Values are checked strictly, as in
Spark: no 30 February, no 24:00, no hour 13 in the afternoon. Parts that the pattern lacks are those of
1970-01-01 00:00.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidegate.sources.readers import locales
from tidegate.spec.notations import Token, read_pattern

Parts = dict[str, int]
"""What a text says, by the letter of a pattern: ``y``, ``M`` ...; ``S`` in nanoseconds, ``X``: an offset in seconds."""

_OFFSETS = {
    1: "[+-][0-9]{2}(?:[0-9]{2})?+",
    2: "[+-][0-9]{4}",
    3: "[+-][0-9]{2}:[0-9]{2}",
    4: "[+-][0-9]{4}(?:[0-9]{2})?+",
    5: "[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?+",
}
_ZONE = "[+-][0-9]{2}(?::[0-9]{2}){0,2}+|[A-Za-z][A-Za-z0-9]*+(?:[/_+-][A-Za-z0-9]++)*+(?::[0-9]{2}){0,2}+"
_ZONE_NAME = rf"(?:{_ZONE})(?: [^\W\d_]++)*+"
"""Of those with letters, which are refused by name: Pacific Standard Time is two hours."""
_SIGNED = re.compile(r".*?([+-])([0-9]{1,2}):?([0-9]{2})?:?([0-9]{2})?", re.DOTALL)
_LARGEST_OFFSET = 18 * 3600
_FIRST_JULIAN_DAY = dt.date(1858, 11, 17).toordinal()
_AHEAD = "@"
"""Where a number of any length leaves digits to the fixed ones behind it: of 20260131 four are the year."""


class OutsideYears(ValueError):
    """A date outside the years 1 to 9999."""


class Written(NamedTuple):
    """A text taken apart: ``zone`` is the name of its time zone, where it has one."""

    parts: Parts
    zone: str | None


class _Field(NamedTuple):
    """A group of the expression: the letter whose value it is, and how that is found in its text."""

    letter: str
    read: Callable[[str], int | None]


class DatePattern:
    """Takes texts apart that are written by ``pattern``; names are those of ``locale``, or else English."""

    def __init__(self, pattern: str, locale: str = "") -> None:
        self._pattern, self.locale = pattern, locale
        self.tokens = read_pattern(pattern)
        self._fields: list[_Field] = []
        self._has_era = any(token.kind == "letters" and token.text[0] == "G" for token in self.tokens)
        self._form = re.compile(self._translate(), re.IGNORECASE)

    def __reduce__(self) -> tuple[type[DatePattern], tuple[str, str]]:
        return DatePattern, (self._pattern, self.locale)

    def take_apart(self, text: str) -> Written | None:
        """What ``text`` says; None where it is not written by the pattern."""
        match = self._form.fullmatch(text)
        if match is None:
            return None
        parts: Parts = {}
        zone = None
        for (letter, read), found in zip(self._fields, match.groups(), strict=True):
            if found is None:
                continue
            if letter == _ZONE_LETTER:
                zone = found
                continue
            value = read(found)
            if value is None or parts.setdefault(letter, value) != value:
                return None
        if self._has_era and "y" in parts:
            if "G" not in parts or parts["y"] < 1:
                return None
            parts["y"] = parts["y"] if parts["G"] else 1 - parts["y"]
        return Written(parts, zone)

    def _translate(self) -> str:
        """The regular expression; the fields are noted in the order of its groups."""
        pieces: list[str] = []
        first, digits, behind = -1, "", 0  # of a row of numbers: its place, its form, the digits of the fixed ones
        for token in self.tokens:
            number = _describe_number(token)
            if number is None:
                first = -1
                pieces.append(self._describe_text(token))
                continue
            form, width = number
            letter = token.text[0]
            read = {"yy": _read_century, "S": _read_fraction}.get(token.text, int)
            self._fields.append(_Field(_SAME.get(letter, letter), read))
            if first < 0 or not width:
                first, digits, behind = len(pieces), form, 0
            else:
                behind += width
                pieces[first] = f"(?>({digits.replace(_AHEAD, f'(?=[0-9]{{{behind}}}(?![0-9]))')}))"
            pieces.append(f"(?>({form.replace(_AHEAD, '')}))")
        return "".join(pieces)

    def _describe_text(self, token: Token) -> str:
        if token.kind == "begin":
            return "(?:"
        if token.kind == "end":
            return ")?+"
        if token.kind == "text":
            return re.escape(token.text)
        letter, count = token.text[0], len(token.text)
        if letter in "MLaG":
            names = self._list_names(letter, full=count == 4)
            numbers = {name.casefold(): number for name, number in names.items()}
            self._fields.append(_Field(_SAME.get(letter, letter), lambda text: numbers.get(text.casefold())))
            form = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        elif letter == "S":
            self._fields.append(_Field("S", _read_fraction))
            form = f"[0-9]{{1,{count}}}"
        elif letter in "Vzv":
            self._fields.append(_Field(_ZONE_LETTER, int))
            form = _ZONE if letter == "V" else _ZONE_NAME
        else:
            self._fields.append(_Field("X", _read_offset))
            form = self._describe_offset(letter, count)
        return f"(?>({form}))"

    def _list_names(self, letter: str, *, full: bool) -> Mapping[str, int]:
        if letter == "a":
            return locales.list_halves(self.locale)
        if letter == "G":
            return locales.list_eras(self.locale, full=full)
        return locales.list_months(self.locale, full=full, alone=letter == "L")

    def _describe_offset(self, letter: str, count: int) -> str:
        if letter == "O" or (letter, count) == ("Z", 4):
            hours = "[0-9]{1,2}" if count == 1 else "[0-9]{2}"
            rest = "(?::[0-9]{2}(?::[0-9]{2})?+)" + ("?+" if count == 1 else "")
            before = "|".join(re.escape(text) for text in sorted(locales.list_gmt(self.locale)))
            return f"(?:{before})(?:[+-]{hours}{rest})?+"
        if letter == "Z":
            return f"Z|{_OFFSETS[5]}" if count == 5 else _OFFSETS[2]
        return f"Z|{_OFFSETS[count]}" if letter == "X" else _OFFSETS[count]


_SAME = {"L": "M"}
_ZONE_LETTER = "V"


def _describe_number(token: Token) -> tuple[str, int] | None:
    """(the form of a number, how many digits it always has, or 0); None where the token is none."""
    letter, count = token.text[:1], len(token.text)
    if token.kind != "letters" or letter not in "yMLdDgHhKkmsS" or (letter in "ML" and count > 2):
        return None
    if letter == "S":
        return ("[0-9]", 1) if count == 1 else None
    if letter == "y" and count >= 4:
        return f"[0-9]{{{count}}}|[+][0-9]{{{count + 1},19}}{_AHEAD}|-[0-9]{{{count},19}}{_AHEAD}", 0
    if letter == "g" or (letter == "y" and count != 2):
        return f"-?[0-9]{{{count},19}}{_AHEAD}", 0
    if count == 1 or (letter == "D" and count == 2):
        return f"[0-9]{{{count},{19 if count == 1 else 3}}}{_AHEAD}", 0
    return f"[0-9]{{{count}}}", count


def _read_century(text: str) -> int:
    return 2000 + int(text)


def _read_fraction(text: str) -> int:
    return int(text.ljust(9, "0"))


def _read_offset(text: str) -> int | None:
    match = _SIGNED.fullmatch(text)
    if match is None:
        return 0  # Z, GMT
    sign, hours, minutes, seconds = match[1], int(match[2]), int(match[3] or 0), int(match[4] or 0)
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _LARGEST_OFFSET:
        return None
    return total if sign == "+" else -total


def make_date(parts: Parts) -> dt.date:
    """The day that ``parts`` are; a ValueError where they are none."""
    year = parts.get("y", 1970)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        raise OutsideYears
    if "g" in parts:
        day = _count_days(_FIRST_JULIAN_DAY + parts["g"])
    elif "D" in parts and not {"M", "d"} <= parts.keys():
        day = _count_days(dt.date(year, 1, 1).toordinal() + parts["D"] - 1)
        if day.year != year:
            raise ValueError
    else:
        day = dt.date(year, parts.get("M", 1), parts.get("d", 1))
    found = {"y": day.year, "M": day.month, "d": day.day}
    if "D" in parts:
        found["D"] = day.timetuple().tm_yday
    if any(parts.get(letter, value) != value for letter, value in found.items()):
        raise ValueError
    return day


def _count_days(ordinal: int) -> dt.date:
    if not 1 <= ordinal <= dt.date.max.toordinal():
        raise OutsideYears
    return dt.date.fromordinal(ordinal)


def make_clock(parts: Parts) -> dt.time:
    """The time of day that ``parts`` are, without digits finer than a microsecond; a ValueError where they are none."""
    hours = {_check(parts[letter], low, low + 23) % 24 for letter, low in (("H", 0), ("k", 1)) if letter in parts}
    halves = {_check(parts[letter], low, low + 11) % 12 for letter, low in (("K", 0), ("h", 1)) if letter in parts}
    half = parts.get("a")
    if hours:
        hour = hours.pop()
        halves.discard(hour % 12)
        if hours or halves or half not in (None, hour // 12):
            raise ValueError
    else:
        hour = (halves.pop() if halves else 0) + 12 * (half or 0)
        if halves:
            raise ValueError
    return dt.time(hour, parts.get("m", 0), parts.get("s", 0), parts.get("S", 0) // 1000)


def _check(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError
    return value
