"""Whether a pipeline is behind its schedule: for how long no run that takes records in has ended well."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidegate.runs.reports.report import FINAL_OUTCOMES
from tidegate.spec.cron import find_previous_ticks

_SHORTEST_INTERVAL = timedelta(minutes=1)
"""No schedule ticks more often; croniter, which is slow, is asked only after two of these."""


def find_last_success(runs: Iterable[tuple[str | None, str | None]]) -> str | None:
    """When the last of these runs ended that ended well; each is its outcome and its end. A run that found nothing new
    ended well."""
    return max((ended for outcome, ended in runs if outcome in FINAL_OUTCOMES and ended), default=None)


def is_behind(schedule: str, since: str, now: datetime) -> bool:
    """Whether two whole intervals of a schedule have passed since a moment, and a run has been due in between.

    Two, so that a run that takes as long as the last one has time to end. False without croniter."""
    success = datetime.fromisoformat(since)
    if now - success < _SHORTEST_INTERVAL * 2:
        return False
    ticks = find_previous_ticks(schedule, now, 2)
    if not ticks:
        return False
    newest, before = ticks
    return success < before and now - success >= (newest - before) * 2
