"""Retention: remove partitions that are older than the spec allows, in one version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from tidegate.rework import errors
from tidegate.rework.maintain.commits import Change, publish_change
from tidegate.rework.maintain.waiting import find_held_partitions, without_partitions
from tidegate.runs.recovery.context import RunContext
from tidegate.spec.models import MaintenanceSpec
from tidegate.table.log.state import DataFile, TableState


def expire_partitions(context: RunContext, table: TableState, now: datetime) -> bool:
    """Remove partitions that are too old from the table, and return whether there were any. Their files stay, hidden,
    for ``keep_versions``.

    Raises UsageError NO_DATE_PARTITION, and what :func:`tidegate.runs.gate.increment.publish_plan` does.
    """
    column = find_date_column(context.name, table, context.spec.maintenance)
    if column is None:
        return False
    age = context.spec.maintenance.expire.partitions or 0.0
    held = find_held_partitions(context.paths)

    def make(_work: object, files: Sequence[DataFile]) -> Change | None:
        old = find_expired(without_partitions(files, held), column, age, now)
        return Change("expire", old) if old else None

    return publish_change(context, make) is not None


def find_date_column(name: str, table: TableState, settings: MaintenanceSpec) -> str | None:
    """The first partition column of type date; None without retention, or if only the project's defaults ask for it and
    the table has no such column. Raises UsageError NO_DATE_PARTITION if the pipeline's own spec asks for it."""
    if settings.expire.partitions is None:
        return None
    types = {field["name"]: field["type"] for field in json.loads(table.schema_json)["fields"]}
    dates = [column for column in table.partition_columns if types.get(column) == "date"]
    if dates:
        return dates[0]
    if "partitions" in settings.expire.fields_set:
        named = ", ".join(f"{one} {str(types.get(one)).upper()}" for one in table.partition_columns) or "nothing"
        raise errors.NO_DATE_PARTITION(
            where=f"jobs/{name}/pipeline.yaml, maintenance.expire.partitions", columns=named, name=name
        )
    return None


def find_expired(files: Sequence[DataFile], column: str, age_seconds: float, now: datetime) -> list[DataFile]:
    """Find the files of partitions whose day ended ``age_seconds`` ago, in UTC; a partition without a date stays."""
    found = []
    for file in files:
        value = next((value for name, value in file.partition.items() if name.lower() == column.lower()), None)
        day = _read_date(value)
        if day is not None and _end_of(day) <= now - timedelta(seconds=age_seconds):
            found.append(file)
    return found


def _end_of(day: date) -> datetime:
    if day >= date.max:
        return datetime.max.replace(tzinfo=UTC)
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)


def _read_date(value: str | None) -> date | None:
    try:
        return None if not value else date.fromisoformat(value)
    except ValueError:  # before the year 1 or after 9999, which Spark allows
        return None
