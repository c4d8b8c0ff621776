"""A parquet file copied without some of its rows, in the same schema, one row group in memory at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate import storage


def copy_rows(source: Path, target: Path, keep: Any) -> None:
    """Write the rows of ``source`` for which ``keep`` (a boolean per row) is true to ``target``, durably.

    The copy has the schema that Spark gave the file, its remarks for Spark's own reader included, and none of Arrow's:
    every reader takes old and rewritten files for one table.
    """
    import pyarrow.parquet as pq

    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        pq.ParquetFile(source) as file,
        pq.ParquetWriter(target, file.schema_arrow, store_schema=False, store_decimal_as_integer=True) as writer,
    ):
        begin = 0
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            kept = rows.filter(keep.slice(begin, rows.num_rows))
            begin += rows.num_rows
            if kept.num_rows:
                writer.write_table(kept)
    storage.fsync_file(target)


def make_names_durable(folder: Path) -> None:
    """Make the names of everything in ``folder``, and its own, durable."""
    if folder.is_dir():
        for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            storage.fsync_dir(inner)
        storage.fsync_dir(folder.parent)
