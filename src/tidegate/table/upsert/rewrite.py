"""Copying parquet files without some of their rows, in the same schema, with a few row groups in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage

HELD_BYTES = 64 << 20
"""The size of a written row group: the remains of many small row groups are combined."""


def copy_rows(sources: Sequence[tuple[Path, pa.ChunkedArray]], target: Path) -> None:
    """Write the rows of ``sources`` (files of one schema, each with a boolean per row: whether it stays) durably to
    ``target``."""
    storage.make_folder(target.parent)
    schema = pq.read_schema(storage.open_input(sources[0][0]))
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


def open_writer(target: Path, schema: pa.Schema, compression: str = "snappy") -> pq.ParquetWriter:
    """Open a writer for a file of the table.

    The schema is that of the files that Spark wrote, with its metadata for Spark's reader and none of Arrow's, so that
    all readers treat old and rewritten files alike.
    """
    settings = {"store_schema": False, "store_decimal_as_integer": True, "compression": compression}
    writer = pq.ParquetWriter(storage.address(target), schema, **settings)
    if schema.metadata:
        writer.add_key_value_metadata(schema.metadata)  # which is left out with Arrow's
    return writer


def _kept_groups(sources: Sequence[tuple[Path, pa.ChunkedArray]]) -> Iterator[pa.Table]:
    """The remaining rows of each row group."""
    for source, keep in sources:
        with pq.ParquetFile(storage.open_input(source)) as file:
            begin = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                kept = rows.filter(keep.slice(begin, rows.num_rows))
                begin += rows.num_rows
                if kept.num_rows:
                    yield kept
