"""Find regular expressions that mean different things to Python (pandas engine) and to Java (Spark).

Both are brought to one meaning by a flag in front: ``(?a)`` lets Python's ``\\w \\d \\s \\b`` and ``(?i)`` mean ASCII,
as Java's do; ``(?d)`` lets Java's ``.``, ``^`` and ``$`` know only ``\\n``, as Python's do. What remains is refused.
"""

from __future__ import annotations

PYTHON_PREFIX = "(?a)"
JAVA_PREFIX = "(?d)"

_GROUPS = {
    "(?P": "named groups are written in two ways; a plain group ( ) does",
    "(?(": "conditional groups exist in Python only",
    "(?L": "the flag L exists in Python only",
    "(?u": "the flag u means two things; the pattern is read as ASCII classes over Unicode text",
    "(?a": "the flag a exists in Python only, and is set anyway",
    "(?x": "the flag x treats blanks in classes in two ways; write the pattern without blanks",
}


def find_dialect_difference(pattern: str) -> str | None:
    """Why ``pattern`` (valid in Python) could match other texts in Java, or None when it is the same in both."""
    position, in_class, class_start = 0, False, 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest[0] == "\\":
            reason = _find_escape_difference(rest)
            if reason:
                return reason
            position += 2
            continue
        if in_class:
            reason = _find_class_difference(rest)
            if reason:
                return reason
            if rest[0] == "]" and position > class_start:
                in_class = False
        elif rest[0] == "[":
            in_class = True
            position += 2 if rest.startswith("[^") else 1
            class_start = position
            if pattern[position : position + 1] == "]":
                return r"`]` first in a class: write `\]`"
            continue
        else:
            reason = _find_group_difference(rest)
            if reason:
                return reason
        position += 1
    return None


def _find_class_difference(rest: str) -> str | None:
    if rest[0] == "[":
        return r"`[` inside a class opens a class in Java; write `\[`"
    if rest.startswith("&&"):
        return r"`&&` inside a class is an intersection in Java; write `\&\&`"
    return None


def _find_group_difference(rest: str) -> str | None:
    for start, reason in _GROUPS.items():
        if rest.startswith(start):
            return reason
    if rest[0] == "{" and not _is_repeat(rest):
        return r"`{` that is not a repeat is an error in Java; write `\{`"
    return None


def _find_escape_difference(rest: str) -> str | None:
    letter = rest[1:2]
    if letter == "Z":
        return r"`\Z` is before a final line break in Java and the very end in Python; write `$`"
    if letter == "N":
        return r"`\N` means a named character in Python and something else in Java"
    if letter == "0" or (letter.isdigit() and rest[2:3].isdigit()):
        return rf"`{rest[:3]}` is read as an octal number or a back reference; write \x with two digits"
    return None


def _is_repeat(rest: str) -> bool:
    body, closed, _ = rest[1:].partition("}")
    low, _, high = body.partition(",")
    return bool(closed) and low.isdigit() and (high == "" or high.isdigit())
