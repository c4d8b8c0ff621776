"""What a parquet file's footer says: rows, and the bounds of columns that a Delta reader can skip files by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tidegate.errors import DefectError


@dataclass(frozen=True)
class Footer:
    """``stats`` holds Delta's ``minValues``, ``maxValues``, ``nullCount``, of columns with sure bounds only."""

    rows: int
    size_bytes: int
    stats: dict[str, Any]


def read_footer(path: Path) -> Footer:
    """The footer of a finished file. Raises DefectError STAGED_FILE_DAMAGED when it is torn or no parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        size_bytes = path.stat().st_size
        metadata = pq.read_metadata(path)
        return Footer(metadata.num_rows, size_bytes, _collect_stats(metadata))
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        raise DefectError(
            "STAGED_FILE_DAMAGED",
            f"a file that was staged whole is no longer a parquet file: {error}",
            where=str(path),
            next_run="stops in the same way; no reader has seen the file",
            fix="look at the disk; discard the increment's staged batch with tidegate repair",
        ) from error


def _collect_stats(metadata: Any) -> dict[str, Any]:
    """Bounds of top-level integer, date and timestamp columns: exact in a footer, never shortened like long strings."""
    lows: dict[str, list[Any]] = {}
    highs: dict[str, list[Any]] = {}
    nulls: dict[str, int] = {}
    unsure: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name = column.path_in_schema
            if metadata.schema.column(index).max_definition_level > 1 or "." in name:
                continue
            stats = column.statistics
            if stats is None or not stats.has_null_count:
                unsure.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + stats.null_count
            if stats.has_min_max and _bound(stats.min) is not None:
                lows.setdefault(name, []).append(stats.min)
                highs.setdefault(name, []).append(stats.max)
            elif stats.null_count < row_group.num_rows:
                unsure.add(name)
    sure = [name for name in lows if name not in unsure]
    return {
        "minValues": {name: _bound(min(lows[name])) for name in sure},
        "maxValues": {name: _bound(max(highs[name]), up=True) for name in sure},
        "nullCount": {name: count for name, count in nulls.items() if name not in unsure},
    }


def _bound(value: Any, *, up: bool = False) -> Any:
    """A bound in Delta's JSON form, timestamps rounded outwards to milliseconds; None: no sure bound."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        milliseconds, rest = divmod(value.astimezone(UTC).microsecond, 1000)
        base = value.astimezone(UTC).replace(microsecond=0)
        milliseconds += 1 if up and rest else 0
        if milliseconds == 1000:
            base = datetime.fromtimestamp(base.timestamp() + 1, UTC)
            milliseconds = 0
        return f"{base:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z" if base.year >= 1000 else None
    if isinstance(value, date):
        return value.isoformat()
    return None
