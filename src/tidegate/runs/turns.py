"""Whose turn it is between two intervals of a backfill: a run that was refused in the meantime comes first.

A refused run ends at once and is tried again by its caller; without a note of it, a backfill of many intervals
would hold the lease each time it comes back.
"""

from __future__ import annotations

import contextlib
import time

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text

_WAIT_SECONDS = 90.0
"""Airflow tries a refused task again after 30 seconds, then after 60 (:mod:`tidegate.airflow.retries`)."""
_POLL_SECONDS = 0.5


def note_refused(paths: PipelinePaths, run_id: str) -> None:
    """The run found the lease taken, and will come again."""
    with contextlib.suppress(OSError):  # a courtesy: the refusal itself is what counts
        storage.replace(paths.refused, storage.dump_json({"run_id": run_id, "at": now_text(), "at_s": time.time()}))


def note_admitted(paths: PipelinePaths, run_id: str) -> None:
    """The run has the lease now."""
    with contextlib.suppress(OSError, ValueError):
        note = storage.read_json(paths.refused)
        if note is not None and note["run_id"] == run_id:
            storage.remove(paths.refused)


def give_way(paths: PipelinePaths) -> str | None:
    """Wait until a run that was refused has had its turn, 90 seconds at most; a sentence about it, None for no wait."""
    began = time.monotonic()
    note = storage.read_json(paths.refused)
    if note is None:
        return None
    if not 0 <= time.time() - float(note["at_s"]) < _WAIT_SECONDS:
        storage.remove(paths.refused)  # it has stopped trying, or had its turn under another run id
        return None
    while storage.exists(paths.refused) and time.monotonic() - began < _WAIT_SECONDS:
        time.sleep(_POLL_SECONDS)
    with contextlib.suppress(FileNotFoundError):
        storage.remove(paths.refused)
    return f"gave way to run {note['run_id']}, for {time.monotonic() - began:.0f} seconds"
