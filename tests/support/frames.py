"""Data frames staged by Spark's own writer, and published without a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.staged import QUERY, make_paths
from tidegate.state.files import list_staged_files
from tidegate.state.manifest import BatchManifest
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage(root: Path, batch_id: int, frame: DataFrame, partition_by: list[str]) -> BatchManifest:
    """A batch written with Spark's own writer."""
    paths = make_paths(root)
    folder = paths.staging / QUERY / f"{batch_id:012d}" / "a1" / "rows"
    frame.coalesce(1).write.partitionBy(*partition_by).parquet(str(folder))
    files = list_staged_files(folder, paths.state)
    return BatchManifest(
        pipeline="orders",
        run_id="r",
        query_id=QUERY,
        batch_id=batch_id,
        attempt="a1",
        sources={},
        transformed=sum(file.rows for file in files),
        rejected=0,
        staged=sum(file.rows for file in files),
        files=files,
        quarantine_files=[],
        quarantined=0,
        schema_json=frame.schema.json(),
    )


def publish(root: Path, batch_id: int, frame: DataFrame, partition_by: list[str]) -> Path:
    """Stage, then publish."""
    paths = make_paths(root)
    manifest = stage(root, batch_id, frame, partition_by)
    intent = plan_publish([manifest], run_id="r", partition_by=partition_by, app_version_before=batch_id - 1)
    result = finish_intent(paths, write_intent(paths, intent), is_current=lambda: True)
    assert result.rows_added == manifest.staged
    return paths.table
