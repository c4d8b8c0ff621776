"""Which days a run of an Airflow backfill rebuilds.

A scheduled run reads what is new, whatever its date. A run of a backfill (the button, ``airflow backfill create``) is
recognized by its type. It rebuilds the days that begin in its interval: from its logical date up to the next tick of
the schedule. If a pipeline runs every ten minutes, the run of midnight rebuilds the day and the others have nothing to
do.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from tidegate.spec.cron import find_next_tick

_ONE_DAY = timedelta(days=1)


def is_backfill(dag_run: Any) -> bool:
    """Whether Airflow made this run for a backfill."""
    return str(getattr(dag_run.run_type, "value", dag_run.run_type)) == "backfill"


def days_of(dag_run: Any, schedule: str | None) -> tuple[str, str] | None:
    """The first and the last day (UTC) that begin in the interval of a backfill run; None when none does."""
    begin, end = dag_run.data_interval_start, dag_run.data_interval_end
    if begin is None or end is None or begin == end:
        begin = dag_run.logical_date
        end = find_next_tick(schedule, begin) if schedule is not None else begin + _ONE_DAY
    first = datetime.combine(begin.astimezone(UTC).date(), time(), UTC)
    if first < begin:
        first += _ONE_DAY
    days = []
    while first < end:
        days.append(first.date().isoformat())
        first += _ONE_DAY
    return (days[0], days[-1]) if days else None
