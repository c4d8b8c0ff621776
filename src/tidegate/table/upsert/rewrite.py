"""Parquet files copied without some of their rows, in the same schema, a few row groups in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate import storage

HELD_BYTES = 64 << 20
"""So much is gathered for one row group; else what stays of many small row groups would be as many smaller ones."""


def copy_rows(sources: Sequence[tuple[Path, pa.ChunkedArray]], target: Path) -> None:
    """Write the rows of ``sources`` (files of one schema, each with a boolean per row: whether it stays) to ``target``,
    durably."""
    storage.make_folder(target.parent)
    schema = pq.read_schema(storage.address(sources[0][0]))
    with open_writer(target, schema) as writer:
        held: list[pa.Table] = []
        size = 0
        for kept in _kept_groups(sources):
            held.append(kept)
            size += kept.nbytes
            if size >= HELD_BYTES:
                writer.write_table(pa.concat_tables(held))
                held, size = [], 0
        if held:
            writer.write_table(pa.concat_tables(held))
    storage.sync_file(target)


def open_writer(target: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of one of the table's files.

    It has the schema that Spark gave the files, its remarks for Spark's own reader included, and none of Arrow's: every
    reader takes old and rewritten files for one table.
    """
    return pq.ParquetWriter(storage.address(target), schema, store_schema=False, store_decimal_as_integer=True)


def _kept_groups(sources: Sequence[tuple[Path, pa.ChunkedArray]]) -> Iterator[pa.Table]:
    """What stays of each row group."""
    for source, keep in sources:
        with pq.ParquetFile(storage.address(source)) as file:
            begin = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                kept = rows.filter(keep.slice(begin, rows.num_rows))
                begin += rows.num_rows
                if kept.num_rows:
                    yield kept
