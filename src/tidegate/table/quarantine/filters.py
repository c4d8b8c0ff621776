"""Filters of quarantined records, for ``list``, ``show``, ``export`` and ``replay``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.core.errors import UsageError
from tidegate.core.words import list_first
from tidegate.spec.faults import name_nearest
from tidegate.table import errors
from tidegate.table.quarantined import TEXT_COLUMNS, TIME_COLUMN

WITHOUT_RULE = ("malformed", "late")
"""Reasons that are not the name of a rule."""
_CONDITION = re.compile(r"\s*(?P<column>[A-Za-z_]+)\s*(?P<sign>[=~])(?P<value>.*)", re.DOTALL)
_NAMED_AT_MOST = 20
_WHERE_COLUMNS = tuple(name for name in TEXT_COLUMNS if name != "pipeline")


class Where(NamedTuple):
    """A condition on a text column: it equals ``value``, or ``contains`` it."""

    column: str
    value: str
    contains: bool


@dataclass(frozen=True)
class QuarantineFilter:
    """Selects records; None or an empty value matches all.

    ``reason`` must be equal, ``rule`` is one of the rules that a row breaks; all conditions of ``where`` must hold.
    """

    run_id: str | None = None
    reason: str | None = None
    rule: str | None = None
    where: tuple[Where, ...] = ()

    @property
    def columns(self) -> set[str]:
        """The columns of the conditions, and those by which records are counted and sorted."""
        return {"run_id", "source", "reason", "detail", TIME_COLUMN, *(one.column for one in self.where)}


def parse_where(texts: Sequence[str]) -> tuple[Where, ...]:
    """Parse ``COLUMN=TEXT`` (equals) and ``COLUMN~TEXT`` (contains). Raises UsageError QUARANTINE_WHERE."""
    found = []
    for text in texts:
        parts = _CONDITION.fullmatch(text)
        if parts is None or parts["column"] not in _WHERE_COLUMNS:
            nearest = None if parts is None else name_nearest(parts["column"], _WHERE_COLUMNS)
            hint = f"; did you mean {nearest}?" if nearest else ""
            raise errors.QUARANTINE_WHERE(given=text, columns=", ".join(_WHERE_COLUMNS), hint=hint)
        found.append(Where(parts["column"], parts["value"], parts["sign"] == "~"))
    return tuple(found)


def unknown_name(
    wanted: QuarantineFilter, reasons: Iterable[str], rules: Iterable[str], name: str
) -> UsageError | None:
    """The error for a reason or a rule that neither a record nor the suite has: it is probably misspelled. For a filter
    that matched no record; ``reasons`` are those of the table, ``rules`` those of the suite and the table."""
    known = {"reason": {*WITHOUT_RULE, *reasons, *rules}, "rule": {*rules, *reasons} - set(WITHOUT_RULE)}
    for kind, names in known.items():
        given = getattr(wanted, kind)
        if given and given not in names:
            return unknown_value(name, kind, given, names)
    return None


def unknown_value(pipeline: str, kind: str, given: str, names: Collection[str]) -> UsageError:
    """The error for a value of a filter that is not one of ``names``."""
    nearest = name_nearest(given, sorted(names))
    hint = f"; did you mean {nearest}?" if nearest else ""
    known = list_first(sorted(names), _NAMED_AT_MOST) or "none"
    return errors.QUARANTINE_UNKNOWN(
        where=f"pipeline {pipeline}", kind=kind, given=given, hint=hint, known=known, name=pipeline
    )
