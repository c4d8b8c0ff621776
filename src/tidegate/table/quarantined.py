"""The schema of the quarantine table, which is the same for every pipeline and never changes."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TypedDict

TEXT_COLUMNS = ("pipeline", "run_id", "source", "position", "raw", "reason", "detail")
TIME_COLUMN = "quarantined_at"
QUARANTINE_SCHEMA_JSON = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in [*((name, "string") for name in TEXT_COLUMNS), (TIME_COLUMN, "timestamp")]
        ],
    }
)
"""In the format of Spark's ``df.schema.json()`` and of Delta. ``position`` is JSON: {"file", "line"} or {"topic",
"partition", "offset"}; ``raw`` is the record as it was read;
``reason`` is ``malformed``, ``late`` or the rule's name."""


class CapturedRecord(TypedDict):
    """A row of the quarantine table without the run: the record's origin, its text, and the reason."""

    source: str | None
    position: str | None
    raw: str | None
    reason: str
    detail: str | None


class QuarantineRow(CapturedRecord):
    """A row of the quarantine table."""

    pipeline: str
    run_id: str
    quarantined_at: datetime
