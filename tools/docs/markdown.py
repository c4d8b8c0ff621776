"""Small pieces of Markdown that the pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code by `python -m tools.docs`; do not edit. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars and line breaks in cells are escaped."""
    lines = [_row(headings), _row(["---"] * len(headings))]
    lines += [_row([_cell(value) for value in row]) for row in rows]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """``text`` as inline code, also when it holds backticks."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    """``text`` on one line; outside of inline code ``<`` is not a tag."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
