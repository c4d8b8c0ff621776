"""Values of the reader options that say how a place writes its dates and numbers: patterns, locale, time zone.

Spark takes most of the wrong ones in silence and reads other values: with ``dd/mm/yyyy`` every date is in January
(``mm`` are minutes), and a locale that it does not know is that of the United States.
"""

from __future__ import annotations

import re

from tidegate.spec.java_patterns import read_pattern
from tidegate.spec.time_zones import find_zone

_LOCALE = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?")


def describe_wrong_place(key: str, text: str) -> str | None:
    """What to write instead of ``text`` for the option ``key``; None for a value that means what it seems to, and for
    options of other kinds."""
    if key in ("dateFormat", "timestampFormat", "timestampNTZFormat"):
        return _describe_wrong_pattern(text)
    if key == "locale":
        return _describe_wrong_locale(text)
    if key == "timeZone" and find_zone(text) is None:
        return "write a time zone such as Europe/Berlin, UTC or +02:00"
    return None


def _describe_wrong_locale(text: str) -> str | None:
    if not _LOCALE.fullmatch(text):
        language, _, region = text.replace("_", "-").partition("-")
        nearest = f"{language.lower()}-{region.upper()}" if region else language.lower()
        example = nearest if _LOCALE.fullmatch(nearest) else "de-DE"
        return f"write a language tag such as {example}"
    from babel import Locale, UnknownLocaleError  # 30 ms that most specs do without

    try:
        Locale.parse(text, sep="-")
    except UnknownLocaleError:
        return "write the tag of a known language, such as de-DE"
    return None


def _describe_wrong_pattern(text: str) -> str | None:
    if "%" in text:
        return "this is a pattern of Python's: write one such as dd.MM.yyyy HH:mm:ss"
    if not text:
        return "write a pattern such as yyyy-MM-dd, or remove it"
    try:
        letters = {token.text[0] for token in read_pattern(text) if token.kind == "letters"}
    except ValueError as error:
        return str(error)
    if not letters & set("yMLdD"):
        return None  # a time of day alone
    if "D" in letters and letters & set("ML"):
        return "D is the day of the year: days of the month are d"
    if letters & set("dm") and not letters & set("MLD"):
        return "it has no month: mm are minutes, months are MM" if "m" in letters else "it has no month: months are MM"
    if "y" not in letters:
        return "it has no year: years are yyyy"
    return None
