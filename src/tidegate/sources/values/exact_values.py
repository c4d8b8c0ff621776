"""SQL that says whether a value, written as text, is held exactly by its declared type: for JSON and csv.

Each test speaks of what Spark 4.2 reads without an error and changes; what it refuses is malformed without them. The
results are listed, next to what Spark makes of each, in docs/reference/values.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tidegate.spec.ddl_tree import Node

CHECKED = ("decimal", "float", "double", "date", "timestamp", "timestamp_ntz")
"""Types whose values Spark changes when it reads them from text."""

_WHOLE_DIGITS = {"float": 7, "double": 15}
_DIGITS_KEPT = {"float": 6, "double": 15}
"""Any number with so many digits comes out as it went in (FLT_DIG and DBL_DIG of C)."""
_DATE = "[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}"
_TIME = "[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:[.][0-9]{0,6}0*)?)?"
_FORMATS = {"date": "dateFormat", "timestamp": "timestampFormat", "timestamp_ntz": "timestampNTZFormat"}


class Separators(NamedTuple):
    """What a locale writes before the decimals, and between groups of digits; no grouping without a locale."""

    decimal: str = "."
    group: str = ""


def has_format(kind: str, options: Mapping[str, str]) -> bool:
    """Whether the user says how values of ``kind`` are written."""
    return _FORMATS.get(kind, "") in options


def describe_inexact(node: Node, text: str, options: Mapping[str, str], separators: Separators) -> str | None:
    """SQL: why ``text`` (SQL, a value that Spark has read as ``node``) is not held exactly, else NULL. None when there
    is nothing to look for."""
    if node.kind == "decimal":
        return _decimal(node, text, separators)
    if node.kind in ("float", "double"):
        return _floating(node.kind, text)
    if node.kind in _FORMATS and not has_format(node.kind, options):
        return _time(node.kind, text)
    return None


def plain_pattern(node: Node, options: Mapping[str, str], separators: Separators) -> str | None:
    """A regular expression of texts that ``node`` holds exactly, beyond doubt; None when it holds every text so.

    What :func:`describe_inexact` finds a fault in must not match: nobody would look at it a second time.
    """
    if node.kind == "decimal":
        decimals = f"(?:[.][0-9]{{0,{node.scale}}}+)?+" if separators == Separators() else ""
        return f"-?[0-9]++{decimals}"
    if node.kind in _WHOLE_DIGITS:
        return f"-?[0-9]{{1,{_WHOLE_DIGITS[node.kind]}}}+(?:[.][0-9]{{1,30}}+)?+"
    if node.kind == "date" and not has_format("date", options):
        return "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    if node.kind in _FORMATS and not has_format(node.kind, options):
        zone = "(?:Z|[+-][0-9]{2}:[0-9]{2})?+"
        return f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.][0-9]{{1,6}}+)?+{zone}"
    return None


def _decimal(node: Node, text: str, separators: Separators) -> str:
    decimal, group = separators
    whole = "[0-9]+"
    if group:
        # Groups of three; where hundreds of thousands are counted otherwise, of two above the last.
        whole += f"|[0-9]{{1,3}}(?:{_any_of(group)}[0-9]{{2,3}})*{_any_of(group)}[0-9]{{3}}"
    written = literal(rf"^\s*[+-]?(?:{whole})?(?:{_any_of(decimal)}[0-9]*)?(?:[eE][+-]?[0-9]+)?\s*$")
    plain = f"replace({text}, {literal(group)}, '')" if group else text
    plain = f"replace({plain}, {literal(decimal)}, '.')" if decimal != "." else plain
    fraction = f"regexp_extract({plain}, '[.]([0-9]*)', 1)"
    digits = f"regexp_replace(regexp_replace({plain}, '[eE].*', ''), '[^0-9]', '')"
    power = f"coalesce(try_cast(nullif(regexp_extract({plain}, '[eE]([+-]?[0-9]+)', 1), '') AS BIGINT), "
    power += f"if({plain} RLIKE '[eE]', -1000000, 0))"
    idle = f"(length({digits}) - length(trim(TRAILING '0' FROM {digits})))"
    too_fine = f"trim(TRAILING '0' FROM {digits}) != '' AND length({fraction}) - {idle} - {power} > {node.scale}"
    how = "the option locale says" if group else "a plain number; with commas or groups it needs the option locale"
    return (
        f"CASE WHEN NOT {text} RLIKE {written} THEN {literal(f'not written as {how}')} "
        f"WHEN {too_fine} THEN {literal(f'more decimals than {node.type.upper()} holds')} END"
    )


def _floating(kind: str, text: str) -> str:
    number = f"try_cast({text} AS {kind})"
    has_digit = r"'^\\s*[+-]?[0.]*[1-9]'"
    infinite = f"abs({number}) = CAST('Infinity' AS {kind})"
    says = literal(r"^\s*[+-]?(?i:inf)")  # a record may say infinity; 1e400 does not
    odd = literal(r"^\s*[+-]?(?:0[xX].*|[0-9.].*[dDfF]\s*)$")
    changed = f"CAST({number} AS BIGINT) != try_cast({text} AS BIGINT)"
    kept = f"(?:[1-9][0-9]{{0,{_DIGITS_KEPT[kind] - 1}}}0*)?"
    unsure = f"{text} RLIKE '^-?[0-9]{{19,}}$' AND NOT {text} RLIKE '^-?0*{kept}$'"
    return (
        f"CASE WHEN {text} RLIKE '^-?[0-9]{{{_WHOLE_DIGITS[kind]},18}}$' AND {changed} OR {unsure} "
        f"THEN {literal(f'a whole number with more digits than {kind.upper()} holds')} "
        f"WHEN {text} RLIKE {odd} THEN 'not a plain number' "
        f"WHEN {infinite} AND NOT {text} RLIKE {says} THEN {literal(f'too large for {kind.upper()}')} "
        f"WHEN {number} = 0 AND {text} RLIKE {has_digit} THEN {literal(f'too small for {kind.upper()}')} END"
    )


def _time(kind: str, text: str) -> str:
    if kind == "date":
        written = literal(rf"^\s*{_DATE}\s*$")
        return f"CASE WHEN NOT {text} RLIKE {written} THEN 'not a date alone (year-month-day)' END"
    written = rf"^\s*{_DATE}(?:[T ]{_TIME}\s*(?:[^0-9.:\s].*)?)?\s*$"
    fine = r"^\s*[^.]*[.][0-9]{6}[0-9]*[1-9]"
    return (
        f"CASE WHEN {text} RLIKE {literal(fine)} THEN 'finer than a microsecond' "
        f"WHEN NOT {text} RLIKE {literal(written)} "
        "THEN 'not a whole date and time (year-month-day hour:minute:second)' END"
    )


def _any_of(letters: str) -> str:
    """A class of one of ``letters``; a blank stands for each of the blanks that locales group with."""
    return "[" + "".join(f"\\x{{{ord(letter):x}}}" for letter in letters) + "]"


def literal(text: str) -> str:
    """``text`` as a SQL string literal, whatever it holds; Spark fills in ``${...}``, so ``$`` is escaped too."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def trie_pattern(names: list[str]) -> str:
    """A regular expression for any of ``names``, tried letter by letter: as fast for a thousand as for one."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]
    for name in names:
        here = root
        for letter in name:
            here = here.setdefault(letter, {})
        here[""] = {}
    return _trie(root)


def _trie(node: dict[str, dict]) -> str:  # type: ignore[type-arg]
    branches = []
    for letter, below in sorted(node.items()):
        if letter:
            text = re.escape(letter) if letter.isascii() else letter
            while len(below) == 1 and "" not in below:
                ((letter, below),) = below.items()
                text += re.escape(letter) if letter.isascii() else letter
            branches.append(text + _trie(below))
    if "" in node:
        branches.append("")
    if branches == [""]:
        return ""
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
