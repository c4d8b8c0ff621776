"""The quarantine table's schema: the same for every pipeline; it never changes."""

from __future__ import annotations

import json
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
"""As Spark's ``df.schema.json()`` and Delta write it. ``position`` is JSON: {"file", "line"} or {"topic", "partition",
"offset"}; ``raw`` is the record as it came; ``reason`` is ``malformed``, ``late`` or the rule's name."""


class CapturedRecord(TypedDict):
    """A quarantined record: where it came from, its text, and why; a row of the table without the run."""

    source: str | None
    position: str | None
    raw: str | None
    reason: str
    detail: str | None
