"""Looking at a table without Spark and without pandas: size, first rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.table.log import has_log, open_table


@dataclass(frozen=True)
class TableSize:
    """What the newest version of a table holds."""

    version: int
    files: int
    rows: int
    size_bytes: int


def measure_table(table_path: Path) -> TableSize | None:
    """Files, rows and bytes of the newest version, from the log alone; None when there is no table."""
    if not has_log(table_path):
        return None
    table = open_table(table_path)
    actions = table.get_add_actions()
    return TableSize(
        version=table.version(),
        files=len(actions),
        rows=sum(count or 0 for count in actions["num_records"].to_pylist()),
        size_bytes=sum(actions["size_bytes"].to_pylist()),
    )


def read_rows(table_path: Path, limit: int = 20) -> list[dict[str, Any]]:
    """The first ``limit`` rows, in no order that is promised, as JSON values; an empty list when there is no table."""
    if not has_log(table_path):
        return []
    head = open_table(table_path).to_pyarrow_dataset().head(limit)
    return [{name: to_json_value(value) for name, value in row.items()} for row in head.to_pylist()]


def to_json_value(value: Any) -> Any:
    """A value of a row as JSON can hold it: times in ISO form, decimals as text, bytes as text where they are UTF-8."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    return value
