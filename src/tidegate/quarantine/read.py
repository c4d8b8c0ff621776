"""Looking at quarantined records: how many by run and reason, and the records themselves. No Spark, no pandas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.quarantine.schema import TIME_COLUMN
from tidegate.table.log import files_of, has_log, open_table


@dataclass(frozen=True)
class QuarantineFilter:
    """Which records are meant; None lets all pass. Times are ISO texts, ``until`` exclusive."""

    run_id: str | None = None
    source: str | None = None
    reason: str | None = None
    since: str | None = None
    until: str | None = None


def list_quarantine(table_path: Path, wanted: QuarantineFilter | None = None) -> list[dict[str, Any]]:
    """Counts per run, source and reason, newest first.

    Each is {"run_id", "source", "reason", "records", "first_at", "last_at"}. An empty list when nothing was ever
    quarantined.
    """
    table = _read(table_path, wanted, ["run_id", "source", "reason", TIME_COLUMN])
    if table is None or not table.num_rows:
        return []
    grouped = table.group_by(["run_id", "source", "reason"]).aggregate(
        [([], "count_all"), (TIME_COLUMN, "min"), (TIME_COLUMN, "max")]
    )
    counts = [
        {
            "run_id": row["run_id"],
            "source": row["source"],
            "reason": row["reason"],
            "records": row["count_all"],
            "first_at": _to_json(row[f"{TIME_COLUMN}_min"]),
            "last_at": _to_json(row[f"{TIME_COLUMN}_max"]),
        }
        for row in grouped.to_pylist()
    ]
    return sorted(
        counts, key=lambda row: (row["last_at"] or "", row["run_id"] or "", row["reason"] or ""), reverse=True
    )


def show_quarantine(table_path: Path, wanted: QuarantineFilter | None = None, limit: int = 20) -> list[dict[str, Any]]:
    """The newest ``limit`` records as JSON values, with ``position`` as a JSON object; empty when there is no table."""
    table = _read(table_path, wanted, None)
    if table is None:
        return []
    import pyarrow.compute as pc

    order = pc.sort_indices(table, sort_keys=[(TIME_COLUMN, "descending"), ("run_id", "ascending")])
    newest = table.take(order[:limit])
    return [{**_to_json(row), "position": _parse_position(row["position"])} for row in newest.to_pylist()]


def _read(table_path: Path, wanted: QuarantineFilter | None, columns: list[str] | None) -> Any:
    """The wanted records as a pyarrow table; None when there is no quarantine table."""
    if not has_log(table_path):
        return None
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import fs

    wanted = wanted or QuarantineFilter()
    condition: Any = None
    tests = [ds.field(name) == value for name in ("run_id", "source", "reason") if (value := getattr(wanted, name))]
    kind = pa.timestamp("us", tz="UTC")
    if wanted.since:
        tests.append(ds.field(TIME_COLUMN) >= pa.scalar(_parse_time(wanted.since), kind))
    if wanted.until:
        tests.append(ds.field(TIME_COLUMN) < pa.scalar(_parse_time(wanted.until), kind))
    for test in tests:
        condition = test if condition is None else condition & test
    table = open_table(table_path)
    paths = [str(table_path / file.path) for file in files_of(table)]
    # Not through deltalake's dataset: Arrow's threads would read by way of Python, and one that is still at it when the
    # command ends aborts the process (seen in 1 of 30 filtered reads on a busy machine).
    dataset = ds.dataset(paths, schema=pa.schema(table.schema()), format="parquet", filesystem=fs.LocalFileSystem())
    return dataset.to_table(columns=columns, filter=condition)


def _parse_time(text: str) -> Any:
    from datetime import UTC, datetime

    from tidegate.errors import UsageError

    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            "BAD_TIME", f"{text!r} is not a time", fix='write it like "2026-01-31" or "2026-01-31T12:00:00+00:00"'
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _parse_position(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _to_json(value: Any) -> Any:
    """A value of a row as JSON can hold it: times in ISO form, decimals as text, bytes as text where they are UTF-8."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, dict):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value
