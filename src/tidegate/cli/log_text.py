"""Shorten a driver's log for a terminal: a line or two of each stack trace, query plan and generated code."""

from __future__ import annotations

import re
from itertools import groupby

_LONGEST_LINE = 600
_SHOWN = 2
"""Lines that are kept of each folded block."""
_FRAME = re.compile(r"\s+at \S|\s*\.\.\. \d+ (?:more|common frames omitted)")
_PLAN = re.compile(r"[\s:|]*(?:\+- |:- |\*\(\d+\) )|[\s:|]*\S.*#\d+L?\b.*\[plan_id=\d+\]")
_CODE = re.compile(r"/\* \d{3,} \*/")
_KINDS = ((_FRAME, "of the stack trace"), (_PLAN, "of the query plan"), (_CODE, "of generated code"))


def fold_log(text: str) -> tuple[str, bool]:
    """Return ``text`` with long blocks and long lines cut short, and whether anything was cut."""
    kept: list[str] = []
    is_cut = False
    for kind, group in groupby(text.rstrip().split("\n"), _kind_of):
        lines = list(group)
        if kind is not None and len(lines) > _SHOWN + 1:
            left = len(lines) - _SHOWN
            lines = [*lines[:_SHOWN], f"    ... {left} more lines {kind}"]
            is_cut = True
        for line in lines:
            if len(line) > _LONGEST_LINE:
                line = f"{line[:_LONGEST_LINE]} ... {len(line) - _LONGEST_LINE:,} more characters"
                is_cut = True
            kept.append(line)
    return "\n".join(kept), is_cut


def _kind_of(line: str) -> str | None:
    return next((name for pattern, name in _KINDS if pattern.match(line)), None)
