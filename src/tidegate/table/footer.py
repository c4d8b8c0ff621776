"""The footers of parquet files, and the rows of those that are read without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
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


def _load_pyarrow() -> ModuleType:
    """pyarrow with its module for parquet: loading it takes a tenth of a second, which most commands do not need."""
    import pyarrow.parquet

    return pyarrow


def read_footer(path: Path) -> Footer | None:
    """Read the footer of a finished file; None when it is torn or not a parquet file."""
    pa = _load_pyarrow()
    try:
        metadata = pa.parquet.read_metadata(storage.open_input(path))
    except pa.ArrowException:
        return None
    return Footer(metadata.num_rows, {"nullCount": count_nulls(metadata)})


def count_rows(path: Path, *, by_footer: bool) -> int:
    """The number of rows of a file, by its footer or by reading all of them. Raises ValueError for a file that is not
    parquet, or damaged."""
    pa = _load_pyarrow()
    try:
        with pa.parquet.ParquetFile(storage.open_input(path)) as parquet:
            if by_footer:
                return sum(parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups))
            return sum(batch.num_rows for batch in parquet.iter_batches())
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def read_rows(path: Path) -> list[dict[str, object]]:
    """The rows of a small file, with maps as dictionaries. Raises ValueError as :func:`count_rows`."""
    pa = _load_pyarrow()
    try:
        rows: list[dict[str, object]] = pa.parquet.read_table(storage.open_input(path)).to_pylist(
            maps_as_pydicts="strict"
        )
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    return rows


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
