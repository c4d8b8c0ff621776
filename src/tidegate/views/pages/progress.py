"""The micro-batches and Spark applications of a run, from the progress log of its drivers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths

_READ_AT_MOST = 4 << 20
"""Bytes of the log that are read, from its end."""
_BATCHES_AT_MOST = 500


class Batch(TypedDict):
    """A micro-batch as Spark reported it; ``seconds`` is None until it was committed."""

    batch_id: int
    at: str | None
    rows: int
    seconds: float | None
    rows_per_second: float | None
    watermark: str | None


class Application(TypedDict):
    """A Spark application. ``ui`` is the URL of its web UI while it runs, or None; a history server shows it when it
    ``is_logged``."""

    application_id: str
    ui: str | None
    is_logged: bool


class Progress(TypedDict):
    """Both, oldest first; a run with retries has several applications."""

    batches: list[Batch]
    applications: list[Application]


def read_progress(paths: PipelinePaths, run_id: str) -> Progress:
    """Read the progress of a run; empty where there is no log. A line that was cut off by a kill is skipped."""
    batches: dict[tuple[int, int], Batch] = {}
    applications: dict[str, Application] = {}
    try:
        data = storage.read_end(paths.progress(run_id), _READ_AT_MOST)
    except OSError:
        data = b""
    for line in data.split(b"\n"):
        try:
            event = json.loads(line)
            if event["event"] == "session":
                made = _application(event)
                applications[made["application_id"]] = made
            else:
                key = len(applications), int(event["batchId"])
                _update(batches.setdefault(key, _new_batch(key[1])), event)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    # Each driver of a backfill begins with batch 0; that of a retry repeats a batch that was not committed.
    begun_again = {key for key, one in batches.items() if one["seconds"] is None and (key[0] + 1, key[1]) in batches}
    return {
        "batches": [batches[key] for key in sorted(batches) if key not in begun_again][-_BATCHES_AT_MOST:],
        "applications": list(applications.values()),
    }


def _application(event: Mapping[str, Any]) -> Application:
    ui = event.get("ui")
    return {
        "application_id": str(event["application"]),
        "ui": ui if isinstance(ui, str) and ui.startswith(("http://", "https://")) else None,
        "is_logged": event.get("eventLog") is True,
    }


def _update(batch: Batch, event: Mapping[str, Any]) -> None:
    if event["event"] == "staged":
        batch["rows"] = int(event["rows"])
    elif event["event"] == "progress" and (event.get("numInputRows") or batch["seconds"] is None):
        batch["at"] = str(event["timestamp"])
        batch["rows"] = batch["rows"] or int(event.get("numInputRows") or 0)
        batch["seconds"] = float(event.get("batchDuration") or 0) / 1000
        speed = event.get("processedRowsPerSecond")
        batch["rows_per_second"] = float(speed) if speed is not None else None
        batch["watermark"] = (event.get("eventTime") or {}).get("watermark")


def _new_batch(number: int) -> Batch:
    return {
        "batch_id": number,
        "at": None,
        "rows": 0,
        "seconds": None,
        "rows_per_second": None,
        "watermark": None,
    }
