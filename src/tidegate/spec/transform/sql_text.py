"""Check without Spark whether a text is one SELECT; Spark decides when it analyses the query."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<open_comment>/\*)
  | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
  | (?P<open_text>['"`])
  | (?P<word>\w+)
  | (?P<end>;)
  | (?P<other>\S)
    """,
    re.VERBOSE | re.DOTALL,
)


def describe_unusable_sql(text: str) -> tuple[int | None, str, str] | None:
    """None when ``text`` is one SELECT (or WITH ... SELECT); else (line, what is wrong, fix)."""
    first: str | None = None
    ended: int | None = None
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        line = text.count("\n", 0, match.start()) + 1
        if kind == "comment":
            continue
        if kind == "open_comment":
            return line, "a comment is not closed", "close it with */"
        if kind == "open_text":
            return line, f"a {match.group()} is not closed", "close it"
        if ended is not None and kind != "end":
            return line, "there is more than one statement", "keep one SELECT"
        if kind == "end":
            ended = line
        elif first is None:
            first = match.group()
            if first != "(" and first.upper() not in ("SELECT", "WITH"):
                return line, f"the statement begins with {first[:40]!r}", "write one SELECT over the source names"
    if first is None:
        return None, "the file has no statement", "write one SELECT over the source names"
    return None
