"""Conventions of a locale: names of months, halves of the day and eras; decimal points and groups of numbers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from babel import Locale

_DEFAULT = "en-US"
"""What Spark takes where there is no option ``locale``."""


class Symbols(NamedTuple):
    """The decimal separator, the group separator, and the minus sign."""

    decimal: str
    group: str
    minus: str

    def match_plain(self, scale: int, mark: str = "") -> str:
        """A regular expression of common numbers with at most so many decimals, between two of ``mark``."""
        decimals = f"(?:{re.escape(self.decimal)}[0-9]{{1,{scale}}})?" if scale else ""
        return f"^{mark}-?(?:[0-9]+|[0-9]{{1,3}}(?:{re.escape(self.group)}[0-9]{{3}})+){decimals}{mark}$"


def find_symbols(locale: str) -> Symbols:
    """How numbers are written in ``locale``, a tag such as ``de-DE``."""
    found = _find(locale)
    symbols = found.number_symbols[found.default_numbering_system]
    return Symbols(symbols.get("decimal", "."), symbols.get("group", ","), symbols.get("minusSign", "-"))


def list_months(locale: str, *, full: bool, alone: bool) -> Mapping[str, int]:
    """The numbers of the months by their names; ``alone`` is the form that some languages have without a day."""
    names: Mapping[int, str] = _find(locale).months["stand-alone" if alone else "format"][_width(full)]
    return {name: number for number, name in names.items()}


def list_halves(locale: str) -> Mapping[str, int]:
    """0 and 1 by the marks of the hours before and after noon."""
    periods = _find(locale).day_periods["format"]
    widths: Sequence[Mapping[str, str]] = [periods[width] for width in ("abbreviated", "wide", "narrow")]
    marks = next((marks for marks in widths if "am" in marks and "pm" in marks), {"am": "AM", "pm": "PM"})
    return {marks["am"]: 0, marks["pm"]: 1}


def list_eras(locale: str, *, full: bool) -> Mapping[str, int]:
    """0 and 1 by the names of the eras before and after the year 1."""
    eras: Mapping[int, str] = _find(locale).eras[_width(full)]
    return {eras[number]: number for number in (0, 1)}


def list_gmt(locale: str) -> set[str]:
    """What may be before an offset from Greenwich, as in ``GMT+2``."""
    return {"GMT", str(_find(locale).zone_formats["gmt"]).replace("%s", "").strip()}


def _width(full: bool) -> str:
    return "wide" if full else "abbreviated"


@functools.lru_cache(maxsize=64)
def _find(locale: str) -> Locale:
    from babel import Locale, UnknownLocaleError  # 30 ms that most sources do without

    try:
        return Locale.parse(locale or _DEFAULT, sep="-")
    except UnknownLocaleError as error:
        raise ValueError(f"{locale!r} is not the tag of a known language") from error
