"""What an error says of the next run, where it ended work beside the runs: most texts speak of a run."""

from __future__ import annotations

import re

from tidegate.core.errors import TidegateError
from tidegate.runs.reports.verdicts import quote_word

_BEGINS_ANEW = {"backfill": "--run-id", "refresh": "--run-id", "replay": "--as"}
"""Work that begins the part that failed anew, and the option that names it."""
_OF_RUNS = (
    "finishes what this run had begun",
    "goes on from the last staged batch",
    "goes on where this one stopped",
    "reads the batch again",
    "reads the same batch again",
)
_NEXT_RUN = "goes on with its own work; nothing is lost, and the same command begins the part that failed anew"


def tell_of_work(error: TidegateError, kind: str, name: str, run_id: str) -> None:
    """Let the error speak of this work, where it speaks of what the next run does with a run's own batches."""
    option = _BEGINS_ANEW.get(kind)
    if option is None or error.next_run is None or not error.next_run.startswith(_OF_RUNS):
        return
    again = f"run the same command again with {option} {quote_word(run_id)}"
    words = rf"`tidegate run {re.escape(name)}`|run (?:the same command |it )?again"
    error.next_run = _NEXT_RUN
    fix, found = re.subn(words, lambda _: again, error.fix or "", count=1)
    error.fix = fix if found else "; then ".join(filter(None, (fix, again)))
