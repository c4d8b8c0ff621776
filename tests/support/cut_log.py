"""Another engine cleans a table's log up, as deltalake and Spark's Delta do by themselves after a month."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable


def clean_log(table_path: Path) -> None:
    """Set properties, in a commit, so that all commit files before it can be removed, and remove them."""
    DeltaTable(str(table_path)).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "true"}
    )
    clean_below_newest(table_path)


def clean_below_newest(table_path: Path) -> None:
    """Write a checkpoint at the newest version of a table with these properties, and remove the commits before it."""
    table = DeltaTable(str(table_path))
    table.create_checkpoint()
    table.cleanup_metadata()
