"""How the values of a source are written, by its options: dates and times, numbers, extensions of JSON."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property

from tidegate.sources.readers.date_patterns import DatePattern, OutsideYears, make_clock, make_date
from tidegate.sources.readers.locales import Symbols, find_symbols
from tidegate.sources.readers.times import FORMATS, outside_years, read_date, read_time, read_zone, to_utc
from tidegate.spec.notations import find_zone

_DIGITS = Context(prec=38)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?")
_ALIKE = (" \u00a0\u202f", "'\u2019")
"""Marks of groups that people write for one another: keyboards have the first of each."""


@dataclass(frozen=True)
class Switches:
    """The extensions of JSON that a source allows."""

    comments: bool = False
    leading_zeros: bool = False
    single_quotes: bool = False
    unquoted_names: bool = False
    any_escape: bool = False
    control_characters: bool = False
    not_finite: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Switches:
        """Those that ``options`` set. With one of them Spark's default for single quotes holds, which is true."""

        def has(name: str, default: bool = False) -> bool:
            return options.get(name, str(default)).lower() == "true"

        return cls(
            comments=has("allowComments"),
            leading_zeros=has("allowNumericLeadingZeros"),
            single_quotes=has("allowSingleQuotes", any(name.startswith("allow") for name in options)),
            unquoted_names=has("allowUnquotedFieldNames"),
            any_escape=has("allowBackslashEscapingAnyCharacter"),
            control_characters=has("allowUnquotedControlChars"),
            not_finite=has("allowNonNumericNumbers", True),
        )

    @property
    def are_strict(self) -> bool:
        """Return whether nothing is allowed but NaN and the infinities."""
        return self in (Switches(), Switches(not_finite=False))


@dataclass(frozen=True)
class Ways:
    """How values are written. Where nothing is said: dates and times in the form of :mod:`.times`, numbers with a
    point."""

    patterns: Mapping[str, DatePattern] = field(default_factory=dict)
    """Those of dates and times, by the type."""
    falls_back: bool = False
    """Whether a text that is not written by its pattern may be in the form without one."""
    zone: dt.tzinfo = dt.UTC
    """The time zone of times that name none."""
    symbols: Symbols | None = None
    """The marks of a locale within numbers."""
    switches: Switches = Switches()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Ways:
        """What the reader options say; a ValueError that names what cannot be read."""
        locale, zone_name = options.get("locale", ""), options.get("timeZone", "UTC")
        zone = find_zone(zone_name)
        if zone is None:
            raise ValueError(f"{zone_name!r} is not a time zone")
        return cls(
            patterns={kind: DatePattern(options[key], locale) for kind, key in FORMATS.items() if key in options},
            falls_back=options.get("enableDateTimeParsingFallback", "").lower() == "true",
            zone=zone,
            symbols=find_symbols(locale) if locale else None,
            switches=Switches.of(options),
        )

    def read(self, text: str, kind: str) -> tuple[dt.date | None, str | None]:
        """The date or time, in UTC where ``kind`` is timestamp, that ``text`` is, and why it is none."""
        first = None
        if (pattern := self.patterns.get(kind)) is not None:
            found, first = self._read_by_pattern(text, kind, pattern)
            if first is None or not self.falls_back:
                return found, first
        found, fault = read_date(text) if kind == "date" else read_time(text, kind, self.zone)
        if fault is not None and first is not None and not first.startswith("not a "):
            return found, first  # it says more
        return found, fault

    def read_decimal(self, text: str, digits: int, scale: int) -> tuple[Decimal | None, str | None]:
        """The number that ``text`` is as DECIMAL(digits, scale), and why it cannot be one."""
        plain = self._to_plain(text)
        if plain is not None and _NUMBER.fullmatch(plain):
            return read_decimal(plain, digits, scale)
        has_marks = re.search(r"[,.]|(?![0-9])\d", text) or (self.symbols and self.symbols.group in text)
        if not (has_marks and re.search(r"\d", text)):
            return None, f"not a DECIMAL({digits},{scale})"
        if self.symbols:
            return None, "not written as the option locale says"
        return None, "not written as a plain number; with commas or groups it needs the option locale"

    def _read_by_pattern(self, text: str, kind: str, pattern: DatePattern) -> tuple[dt.date | None, str | None]:
        name, written = kind.upper(), pattern.take_apart(text)
        refused = f"not a {name}"
        if written is None:
            return None, refused
        parts, zone_name = written
        try:
            day, clock = make_date(parts), make_clock(parts)
        except OutsideYears:
            return None, outside_years(name)
        except ValueError:
            return None, refused
        if kind == "date":
            return day, None
        time = dt.datetime.combine(day, clock)
        if kind != "timestamp":
            return (time, None) if zone_name is None and "X" not in parts else (None, refused)
        offset = dt.timedelta(seconds=parts["X"]) if "X" in parts else None
        if zone_name is None:
            return to_utc(time, self.zone if offset is None else dt.timezone(offset))
        zone, fault = read_zone(zone_name)
        if zone is None:
            return None, fault
        if offset is None:
            return to_utc(time, zone)
        if offset not in {time.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}:
            return None, "its offset is not that of its time zone"
        return to_utc(time, dt.timezone(offset))

    def _to_plain(self, text: str) -> str | None:
        """A number that is written as its locale says with a point and without groups; None where it is not so."""
        if self.symbols is None:
            return text
        decimal, _, minus = self.symbols
        for sign in ("-", minus):
            text = f"-{text.removesuffix(sign)}" if text.endswith(sign) else text  # as SAP writes it
        match = self._form.fullmatch("-" + text.removeprefix(minus) if text.startswith(minus) else text)
        if match is None:
            return None
        sign, whole, rest = match.groups()
        return sign + re.sub("[^0-9]", "", whole or "") + (rest or "").replace(decimal, ".")

    @cached_property
    def _form(self) -> re.Pattern[str]:
        """(sign, digits in groups or not, the rest) of a number as its locale says: groups of three digits, and where
        hundreds of thousands are counted otherwise of two above the last."""
        assert self.symbols is not None
        group = f"[{re.escape(next((all_ for all_ in _ALIKE if self.symbols.group in all_), self.symbols.group))}]"
        whole = f"[0-9]+|[0-9]{{1,3}}(?:{group}[0-9]{{2,3}})*{group}[0-9]{{3}}"
        return re.compile(f"([+-]?)({whole})?((?:{re.escape(self.symbols.decimal)}[0-9]*)?(?:[eE][+-]?[0-9]+)?)")


PLAIN = Ways()
"""Those of a source without options."""


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
