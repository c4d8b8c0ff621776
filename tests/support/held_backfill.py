"""A backfill that is held, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.kept import Kept
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.runs.reports.report import new_report, save_report
from tidegate.table.log.state import digest_files, list_data_files, read_table_state
from tidegate.table.publish.intent import FileToRemove, PublishIntent
from tidegate.table.publish.plan import Rework


def hold(tmp_path: Path, *, is_last: bool, rebuilt: tuple[str, ...] = ()) -> Kept:
    """A table of two cities, and a backfill B1 that would take the rows of Oslo out, and is held."""
    kept = Kept(tmp_path, partition_by=["city"])
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}, {"id": 2, "city": "Bergen", "n": 1}])
    report = new_report("orders", "B1")
    report.mode, report.rebuilt = "backfill", list(rebuilt)
    report.table = {"version": 7} if rebuilt else {}
    report.outcome, report.error = "failed", {"code": "BACKFILL_HELD", "message": "m"}
    save_report(kept.paths, report)
    before = replace(report)
    report.outcome, report.error = "published" if is_last else None, None
    report.rebuilt = [*rebuilt, "city=Oslo"]
    files, state = list_data_files(kept.paths.table), read_table_state(kept.paths.table)
    assert state is not None
    intent = PublishIntent(
        "orders",
        "B1",
        "table",
        state.schema_json,
        ["city"],
        Rework("orders", "backfill", "B1").app_id,
        0,
        -1,
        files_to_remove=[
            FileToRemove(file.path, file.rows, file.size_bytes, file.partition)
            for file in files
            if file.partition["city"] == "Oslo"
        ],
        table_files=digest_files(files),
        report=dict(report.to_json()),
    )
    side = kept.paths.beside(f"backfills/{intent.app_id}/token")
    keep_held(side, intent, Interval({"city": ["Oslo"]}), before)
    return kept
