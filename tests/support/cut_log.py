"""Another engine cleans a table's log up, as deltalake and Spark's Delta do by themselves after a month."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable


def clean_log(table_path: Path) -> None:
    """A checkpoint at the newest version; the commit files before it are removed."""
    table = DeltaTable(str(table_path))
    table.alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "true"}
    )
    table = DeltaTable(str(table_path))
    table.create_checkpoint()
    table.cleanup_metadata()
