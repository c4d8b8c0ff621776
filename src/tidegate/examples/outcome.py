"""What the runs of a pipeline with memory must come to, computed in plain Python, independently of Spark.

A stateful pipeline's rows cannot be counted off a single delivery: a row may appear runs after the record it came from.
So each of these examples has a ``list_outcomes`` that takes the deliveries in their order, one a run, and says for each
which rows must appear, and which records cannot count.

A run here is what tidegate makes of one delivery: one batch with the data, and, when the watermark moved, one without.
The watermark is that of one query that never ended, whichever sources a run had news of. Records are
judged late by the watermark that the run before ended with; rows leave the state by the one this run ends with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Any

from tidegate.examples.truth import Fault

Row = tuple[Any, ...]
Record = tuple[str, Fault | None]
"""A record as it is offered, and its fault, if it has one."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Spark's watermark before the first record."""
FIRST_DAY = date(2026, 3, 2)
FIRST_MOMENT = datetime.combine(FIRST_DAY, time(), UTC)


@dataclass
class Outcome:
    """What one run must come to. ``rows`` and ``rejected`` are in the order of the table's columns.

    ``rows`` is what the run adds to the table (append) or puts in the place of rows with the same keys (update).
    ``rejected`` maps a quarantine rule to the rows that break it. ``late`` records count nowhere; of a ``partly_late``
    one some windows were closed, and the others have it.
    """

    offered: int
    rows: list[Row] = field(default_factory=list)
    rejected: dict[str, list[Row]] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    partly_late: list[str] = field(default_factory=list)
    watermark: datetime | None = None

    def add(self, row: Row, broken_rule: str | None = None) -> None:
        """Take in a row that leaves the transform; ``broken_rule`` is the quarantine rule it breaks."""
        if broken_rule is None:
            self.rows.append(row)
        else:
            self.rejected.setdefault(broken_rule, []).append(row)

    @property
    def transformed(self) -> list[Row]:
        """Every row that leaves the transform, whatever the suite says of it."""
        return self.rows + [row for rows in self.rejected.values() for row in rows]

    def to_dict(self) -> dict[str, object]:
        """The counts, as the makers print them."""
        return {
            "offered": self.offered,
            "malformed": len(self.malformed),
            "late": len(self.late),
            "partly_late": len(self.partly_late),
            "rows": len(self.rows),
            "rejected_by_rule": {rule: len(rows) for rule, rows in sorted(self.rejected.items())},
            "watermark": show_time(self.watermark) if self.watermark else None,
        }


def show_time(moment: datetime) -> str:
    """A UTC time as the examples write it: to the millisecond, in which Spark's watermark counts."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def read_time(text: str) -> datetime:
    """The inverse of :func:`show_time`."""
    return datetime.fromisoformat(text)


def dump(record: Mapping[str, object]) -> str:
    """A record as one line of JSON."""
    return json.dumps(record, separators=(",", ":"))
