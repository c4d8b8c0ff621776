"""Guess the options ``dateFormat``, ``timestampFormat`` and ``locale`` from the texts of csv columns.

A text counts as a date or a number when the reader of the runs reads it with the option.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from tidegate.cli.scaffold.value_kinds import CODE_LIKE
from tidegate.sources.readers.times import FORMATS
from tidegate.sources.readers.ways import Ways

_SLASHED = ("dd/MM/yyyy", "MM/dd/yyyy", "d/M/yyyy", "M/d/yyyy")
_DAYS = ("dd.MM.yyyy", "d.M.yyyy", *_SLASHED, *(form.replace("/", "-") for form in _SLASHED))
_CLOCKS = ("HH:mm:ss", "HH:mm", "HH:mm:ss.SSS", "H:m:s", "H:m")
_TIMES = tuple(f"{day} {clock}" for clock, day in product(_CLOCKS, _DAYS))
_LOCALES = ("en-US", "de-DE", "fr-FR", "de-CH")
_DIGITS, _SCALE = 38, 18
_MARKS = ",.'- \u00a0\u202f\u2019"
"""What a number of a locale has that a whole number has not."""

Texts = Mapping[str, Iterable[str]]
"""{column: its texts that are not empty, each once}."""


def list_forms(text: str) -> list[str]:
    """The patterns of a date, or of a date with a time; of those with which the text means the same, the first."""
    kind, patterns = ("timestamp", _TIMES) if " " in text else ("date", _DAYS)
    found: dict[object, str] = {}
    for pattern in patterns:
        content, fault = Ways.of({FORMATS[kind]: pattern}).read(text, kind)
        if fault is None:
            found.setdefault(content, pattern)
    return list(found.values())


@dataclass
class LocalForms:
    """The result: types by column, the options that these need, and notes for people."""

    types: dict[str, str] = field(default_factory=dict)
    options: dict[str, bool | str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def guess_local_forms(texts: Texts, plain: Mapping[str, str]) -> LocalForms:
    """Guess how the columns whose type is STRING in ``plain`` are written; ``plain`` has the types without options."""
    found = LocalForms()
    strings = {name: set(some) for name, some in texts.items() if plain[name] == "STRING" and some}
    for type_, option, patterns in (("DATE", "dateFormat", _DAYS), ("TIMESTAMP", "timestampFormat", _TIMES)):
        if _guess(found, type_, option, patterns, strings) and type_ in plain.values():
            found.options["enableDateTimeParsingFallback"] = True
    numbers = {name: some for name, some in strings.items() if _has_mark(some) and not any(map(CODE_LIKE.match, some))}
    if _guess(found, f"DECIMAL({_DIGITS}, {_SCALE})", "locale", _LOCALES, numbers):
        _convert_plain(found, texts, plain)
    return found


def _guess(found: LocalForms, type_: str, option: str, values: Iterable[str], columns: Texts) -> bool:
    """Add the value of ``option`` with which most of ``columns`` are of the type ``type_``. Values with which the same
    columns have other contents are named instead, and nothing is chosen."""
    read = {value: dict(_read(columns, type_, option, value)) for value in values}
    most = max(map(len, read.values()))
    best = [value for value in read if most and len(read[value]) == most]
    if not best:
        return False
    first = read[best[0]]
    if other := next((value for value in best if read[value] != first), None):
        for name in first:
            example = min(columns[name])
            why = f"{example!r} is a {type_} with {option}: {best[0]} or {other}"
            found.notes.append(f"{name} is STRING: {why}; set the one that is right, and the type")
        return False
    found.types |= dict.fromkeys(first, type_)
    found.options[option] = best[0]
    found.notes.append(f"{option}: {best[0]} is a guess from {', '.join(first)}; if that is wrong, correct the option")
    return True


def _read(columns: Texts, type_: str, option: str, value: str) -> Iterator[tuple[str, list[object]]]:
    """(column, its values) for the columns whose texts all have the type ``type_``."""
    ways = Ways.of({option: value})
    for name, texts in columns.items():
        contents: list[object] = []
        for text in sorted(texts):
            is_number = option == "locale"
            content, fault = ways.read_decimal(text, _DIGITS, _SCALE) if is_number else ways.read(text, type_.lower())
            if fault is not None:
                break
            contents.append(content)
        else:
            yield name, contents


def _has_mark(texts: Iterable[str]) -> bool:
    return any(mark in text for text in texts for mark in _MARKS)


def _convert_plain(found: LocalForms, texts: Texts, plain: Mapping[str, str]) -> None:
    """Give the columns of numbers with a decimal point a type that can be read with the guessed locale: DOUBLE cannot,
    and to a DECIMAL its marks may mean something else."""
    if found.options["locale"] == "en-US":
        return
    points = {name: texts[name] for name, type_ in plain.items() if type_ == "DOUBLE" or type_.startswith("DECIMAL")}
    fitting = dict(_read(points, "DECIMAL", "locale", str(found.options["locale"])))
    for name in points:
        found.types[name] = f"DECIMAL({_DIGITS}, {_SCALE})" if name in fitting else "STRING"
        meaning = "read" if name in fitting else "STRING, as they are not written"
        found.notes.append(f"the numbers of {name} are {meaning} with locale: {found.options['locale']}")
