"""What a parquet file's footer says: its rows, and the nulls of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core import storage

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData


@dataclass(frozen=True)
class Footer:
    """``stats`` holds Delta's ``nullCount``.

    Bounds of values are left out on purpose. deltalake 1.6.6 takes a column without bounds, in a file that has them for
    another column, for one whose values are all below null: its filters then lose rows. Bounds cannot be had for every
    column (nested ones, long texts, columns of nulls), and readers prune by the footers' own bounds anyway.
    """

    rows: int
    stats: dict[str, object]


def read_footer(path: Path) -> Footer | None:
    """The footer of a finished file; None when it is torn or no parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(storage.address(path))
    except pa.ArrowException:
        return None
    return Footer(metadata.num_rows, {"nullCount": count_nulls(metadata)})


def count_nulls(metadata: FileMetaData) -> dict[str, int]:
    """Nulls per top-level plain column, of those whose every row group counts them."""
    counts: dict[str, int] = {}
    unsure: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name = column.path_in_schema
            statistics = column.statistics
            if metadata.schema.column(index).max_definition_level > 1 or "." in name:
                continue
            if statistics is None or not statistics.has_null_count:
                unsure.add(name)
            else:
                counts[name] = counts.get(name, 0) + statistics.null_count
    return {name: count for name, count in counts.items() if name not in unsure}
