"""Run ids: made, and checked when a person or Airflow gives one."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from tidegate.runs import errors

RUN_ID_AT_MOST = 250
"""Characters of a run id: as many as Airflow allows."""


def new_run_id(kind: str = "manual") -> str:
    """A run id nobody else has."""
    return f"{kind}__{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%S')}_{secrets.token_hex(3)}"


def check_run_id(run_id: str) -> str:
    """``run_id`` when it can be one. Raises UsageError BAD_RUN_ID."""
    if run_id.isprintable() and 0 < len(run_id) <= RUN_ID_AT_MOST:
        return run_id
    what = f"it has {len(run_id)} characters" if run_id.isprintable() else "it holds characters that cannot be printed"
    raise errors.BAD_RUN_ID(run_id=run_id[:80], why=what, longest=RUN_ID_AT_MOST)
