"""Values of the reader options that say how a place writes its dates and numbers: patterns, locale, time zone.

Spark takes most of the wrong ones in silence and reads other values: with ``dd/mm/yyyy`` every date is in January
(``mm`` are minutes), and a locale that it does not know is that of the United States.
"""

from __future__ import annotations

import re
import zoneinfo

_LOCALE = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?")
_OFFSET = re.compile(r"Z|(UTC|GMT|UT)?([+-][0-9]{1,2}(:[0-9]{2}){0,2})?|[A-Z]{3}")
_QUOTED = re.compile(r"'[^']*'")
_NOT_READ = {
    "Y": "Y is the year of a week, which Spark does not read: years are y",
    "w": "w is the week of a year, which Spark does not read",
    "W": "W is the week of a month, which Spark does not read",
    "u": "u is the day of a week, which Spark does not read: years are y",
}
"""Letters of other libraries' patterns (docs: Spark's page "Datetime Patterns")."""


def describe_wrong_place(key: str, text: str) -> str | None:
    """What to write instead of ``text`` for the option ``key``; None for a value that means what it seems to, and for
    options of other kinds."""
    if key in ("dateFormat", "timestampFormat", "timestampNTZFormat"):
        return _describe_wrong_pattern(text)
    if key == "locale" and not _LOCALE.fullmatch(text):
        language, _, region = text.replace("_", "-").partition("-")
        nearest = f"{language.lower()}-{region.upper()}" if region else language.lower()
        example = nearest if _LOCALE.fullmatch(nearest) else "de-DE"
        return f"write a language tag such as {example}; Spark takes any other text for en-US"
    if key == "timeZone" and not _OFFSET.fullmatch(text):
        known = zoneinfo.available_timezones()
        if known and text not in known:
            return "write a time zone such as Europe/Berlin, UTC or +02:00"
    return None


def _describe_wrong_pattern(text: str) -> str | None:
    letters = set(re.sub(r"[^A-Za-z]", "", _QUOTED.sub("", text)))
    for letter, reason in _NOT_READ.items():
        if letter in letters:
            return reason
    if not letters & set("yMLdD"):
        return None  # a time of day alone
    if "D" in letters and letters & set("ML"):
        return "D is the day of the year: days of the month are d"
    if letters & set("dm") and not letters & set("MLDQq"):
        return "it has no month: mm are minutes, months are MM" if "m" in letters else "it has no month: months are MM"
    if "y" not in letters:
        return "it has no year: years are yyyy"
    return None
