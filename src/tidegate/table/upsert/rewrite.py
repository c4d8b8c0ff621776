"""Copying parquet files without some of their rows, in the same schema, with a few row groups in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage

HELD_BYTES = 64 << 20
"""The size of a written row group: the remains of many small row groups are combined."""

_SAMPLE_ROWS = 1 << 16
_DISTINCT_ROWS = _SAMPLE_ROWS * 9 // 10
"""With so many distinct values in a sample, a dictionary would have nearly one entry per row."""


def copy_rows(sources: Sequence[tuple[Path, pa.ChunkedArray]], target: Path) -> None:
    """Write the rows of ``sources`` (files of one schema, each with a boolean per row: whether it stays) durably to
    ``target``."""
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


def open_writer(target: Path, schema: pa.Schema, rows: pa.Table | None = None) -> pq.ParquetWriter:
    """Open a writer for a file of the table. ``rows``, the first rows of the file, show for which columns a dictionary
    is of no use; without them each column begins with one.

    The schema is that of the files that Spark wrote, with its metadata for Spark's reader and none of Arrow's, so that
    all readers treat old and rewritten files alike.
    """
    unlike = set[str]() if rows is None else _columns_without_repeats(rows)
    return pq.ParquetWriter(
        storage.address(target),
        schema,
        store_schema=False,
        store_decimal_as_integer=True,
        use_dictionary=[path for path in _leaf_paths(schema) if path not in unlike] if unlike else True,
    )


def _columns_without_repeats(rows: pa.Table) -> set[str]:
    """Columns of primitive type with hardly any repeated values. So many in 65,536 unordered rows mean over 300,000 in
    all: more than parquet's default dictionary page of 1 MiB can hold, so that the encoder would fill one, discard it
    and start again."""
    if rows.num_rows < _SAMPLE_ROWS:
        return set()
    rows = rows.slice(0, _SAMPLE_ROWS)
    return {
        column
        for column, kind in zip(rows.column_names, rows.schema.types, strict=True)
        if not pa.types.is_nested(kind) and len(rows[column].unique()) > _DISTINCT_ROWS
    }


def _leaf_paths(schema: pa.Schema) -> list[str]:
    """The columns of a file with this schema by their parquet paths: ``a.list.element`` for the elements of a list."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, store_schema=False)
    columns = pq.ParquetFile(pa.py_buffer(sink.getvalue())).schema
    return [columns.column(number).path for number in range(len(columns))]


def _kept_groups(sources: Sequence[tuple[Path, pa.ChunkedArray]]) -> Iterator[pa.Table]:
    """The remaining rows of each row group."""
    for source, keep in sources:
        with pq.ParquetFile(storage.address(source)) as file:
            begin = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                kept = rows.filter(keep.slice(begin, rows.num_rows))
                begin += rows.num_rows
                if kept.num_rows:
                    yield kept
