"""Writing a few quarantined records into one parquet file, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.table.quarantine.schema import TEXT_COLUMNS, TIME_COLUMN


def write_quarantine_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    """Write the rows to the new parquet file ``path``, on disk when this returns; how many there were.

    Each row has the columns of the quarantine schema (missing ones are null, others are refused with KeyError);
    ``quarantined_at`` is an aware datetime, ``raw`` may be bytes: what is not UTF-8 in it is kept as ``\\xNN``.
    """
    columns: dict[str, list[object]] = {name: [] for name in (*TEXT_COLUMNS, TIME_COLUMN)}
    count = 0
    for row in rows:
        unknown = row.keys() - columns.keys()
        if unknown:
            raise KeyError(f"the quarantine table has no column {sorted(unknown)}")
        for name in TEXT_COLUMNS:
            columns[name].append(_to_text(row.get(name)))
        columns[TIME_COLUMN].append(row.get(TIME_COLUMN))
        count += 1
    schema = pa.schema([*((name, pa.string()) for name in TEXT_COLUMNS), (TIME_COLUMN, pa.timestamp("us", tz="UTC"))])
    table = pa.table(columns, schema=schema)
    with storage.create(path) as handle:
        pq.write_table(table, handle, compression="snappy")
    return count


def _to_text(value: object) -> str | None:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")  # lone surrogates
    return None if value is None else str(value)
