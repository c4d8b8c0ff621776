"""The footers of parquet files: the number of rows, and of nulls in columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core import storage

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData


@dataclass(frozen=True)
class Footer:
    """``stats`` has Delta's ``nullCount``, and intentionally no bounds of values.

    If a file has bounds for some columns only, filters of deltalake 1.6.6 lose rows by the other columns. Not every
    column can have bounds (nested ones, long texts, columns of nulls), and readers prune by the footers' bounds anyway.
    """

    rows: int
    stats: dict[str, object]


def read_footer(path: Path) -> Footer | None:
    """Read the footer of a finished file; None when it is torn or not a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(storage.address(path))
    except pa.ArrowException:
        return None
    return Footer(metadata.num_rows, {"nullCount": count_nulls(metadata)})


def count_nulls(metadata: FileMetaData) -> dict[str, int]:
    """{column: nulls} of the top-level plain columns whose nulls are counted in all row groups."""
    counts: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name = column.path_in_schema
            statistics = column.statistics
            if metadata.schema.column(index).max_definition_level > 1 or "." in name:
                continue
            if statistics is None or not statistics.has_null_count:
                unknown.add(name)
            else:
                counts[name] = counts.get(name, 0) + statistics.null_count
    return {name: count for name, count in counts.items() if name not in unknown}
