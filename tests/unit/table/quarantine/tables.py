"""Quarantine tables made by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.staged import QUERY
from tidegate.core.paths import PipelinePaths
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_quarantine
from tidegate.table.publish.publish import finish_intent
from tidegate.table.quarantine.read import write_quarantine_rows

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def record(number: int, reason: str = "malformed", run_id: str = "run-1", **more: Any) -> dict[str, Any]:
    return {
        "pipeline": "orders",
        "run_id": run_id,
        "source": "trades",
        "position": json.dumps({"file": "in/x.json", "line": number}),
        "raw": f"line {number}",
        "reason": reason,
        "detail": "torn",
        "quarantined_at": NOON + timedelta(minutes=number),
        **more,
    }


def publish(paths: PipelinePaths, batch_id: int, rows: list[dict[str, Any]]) -> None:
    path = paths.staging / QUERY / str(batch_id) / "a1" / "quarantine" / "captured.parquet"
    count = write_quarantine_rows(path, rows)
    staged = StagedFile(str(path.relative_to(paths.state)), count, path.stat().st_size)
    manifest = BatchManifest(
        pipeline="orders",
        run_id="run",
        query_id=QUERY,
        batch_id=batch_id,
        attempt="a1",
        sources={},
        transformed=0,
        rejected=0,
        staged=0,
        files=[],
        quarantine_files=[staged],
        quarantined=count,
        schema_json="{}",
    )
    intent = plan_quarantine([manifest], app_version_before=batch_id - 1)
    finish_intent(paths, write_intent(paths, intent), is_current=lambda: True)
