"""The texts of an error that ended a side job: most conditions are worded for a run."""

from __future__ import annotations

import re

from tidegate.core.errors import TidegateError
from tidegate.runs.reports.verdicts import quote_word

_STARTS_AGAIN = {"backfill": "--run-id", "refresh": "--run-id", "replay": "--as"}
"""Side jobs that start the failed part again, and the option that takes the run id."""
_OF_RUNS = (
    "finishes what this run had begun",
    "continues from the last staged batch",
    "continues where this one stopped",
    "reads the batch again",
    "reads the same batch again",
)
_NEXT_RUN = "continues with its own work; nothing is lost, and the same command starts the failed part again"


def describe_for_side_job(error: TidegateError, kind: str, name: str, run_id: str) -> None:
    """Reword an error for a side job, where its text is about a run's own batches."""
    option = _STARTS_AGAIN.get(kind)
    if option is None or error.next_run is None or not error.next_run.startswith(_OF_RUNS):
        return
    again = f"run the same command again with {option} {quote_word(run_id)}"
    words = rf"`tidegate run {re.escape(name)}`|run (?:the same command |it )?again"
    error.next_run = _NEXT_RUN
    fix, found = re.subn(words, lambda _: again, error.fix or "", count=1)
    error.fix = fix if found else "; then ".join(filter(None, (fix, again)))
