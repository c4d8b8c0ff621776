"""Every batch's progress event, kept with its run: one JSON object a line in ``runs/<run>.progress.jsonl``.

Spark reports a batch's progress after it was committed, so a kill in between would lose it. The batch's own figures are
therefore written first (``"event": "staged"``), while it is being run, and Spark's event (``"event": "progress"``)
follows. Before the first batch comes the Spark application (``"event": "session"``), and while a batch is read how far
the run is (:data:`tidegate.spark.driver.progress.READING`).

Only pages, ``status`` and ``logs`` use it: an event that cannot be written is skipped, and no batch fails.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tidegate.spark.driver.progress import READING
from tidegate.state.manifest import BatchManifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class ProgressLog:
    """The file at ``path``, which a retry of the run continues."""

    path: Path
    _logged: set[tuple[str, str]] = field(default_factory=set)

    def note_session(self, spark: SparkSession) -> None:
        """Log the Spark application, the address of its UI, and whether it keeps a log for a history server."""
        context = spark.sparkContext
        self._append(
            {
                "event": "session",
                "application": context.applicationId,
                "master": context.master,
                "ui": context.uiWebUrl,
                "eventLog": spark.conf.get("spark.eventLog.enabled", "false") == "true",
            }
        )

    def note_staged(self, manifest: BatchManifest) -> None:
        """Log a batch that is computed and that Spark has not committed yet."""
        self._append(
            {
                "event": "staged",
                "batchId": manifest.batch_id,
                "rows": manifest.read,
                "transformed": manifest.transformed,
                "late": manifest.late,
                "watermarkMs": manifest.watermark_ms,
                "stateOperators": manifest.state,
            }
        )

    def note_progress(self, query: StreamingQuery) -> None:
        """Log Spark's events that are new since the last call; Spark keeps the last hundred."""
        for event in query.recentProgress:
            value: dict[str, object] = json.loads(event.json) if hasattr(event, "json") else dict(event)
            key = (str(value["batchId"]), str(value["timestamp"]))
            if key not in self._logged:
                self._logged.add(key)
                value.pop("observedMetrics", None)  # tidegate's own, with the quarantined records in them
                self._append({"event": "progress", **value})

    def note_reading(self, figures: Mapping[str, int]) -> None:
        """Log how far the run has read."""
        self._append({"event": READING, **figures})

    def _append(self, value: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab+") as handle:
                torn = handle.tell() > 0 and _last_byte(handle) != b"\n"  # by a kill, or a disk that was full
                line = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
                handle.write((b"\n" if torn else b"") + line + b"\n")


def _last_byte(handle: BinaryIO) -> bytes:
    handle.seek(-1, os.SEEK_END)
    return handle.read(1)
