"""How far a run has read its sources, how fast, and the time that is left, by the reports of its tasks."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidegate.sources.readers.meter import Report, ReportAddress
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.order import IngestOrder, emit
from tidegate.spark.driver.progress import READING
from tidegate.state.batch_files import BatchFiles
from tidegate.state.topics import RangePart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LARGEST_REPORT_BYTES = 64 << 10
_REPORTS_AT_ONCE = 10_000
"""Another program may send faster than reports are read."""
_WINDOW_SECONDS = 60.0
"""The rate is that of the last minute."""
_PAUSE_SECONDS = 10.0


class ReportListener:
    """Receives the reports of tasks (:class:`tidegate.sources.readers.meter.Meter`) on ``host``. Raises OSError where
    it cannot."""

    def __init__(self, host: str, *, is_local: bool) -> None:
        self._host, self._token = host, secrets.token_hex(8)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind((host if is_local else "", 0))
        self._newest: dict[tuple[str, str], Report] = {}

    def address_of(self, source: str) -> ReportAddress:
        """Where tasks report on ``source``."""
        return ReportAddress(self._host, self._socket.getsockname()[1], self._token, source, _PAUSE_SECONDS / 10)

    def receive(self) -> Mapping[tuple[str, str], Report]:
        """Receive what has come, and return of each (source, task) the report with the most."""
        with contextlib.suppress(OSError):  # also BlockingIOError: no more has come
            for _ in range(_REPORTS_AT_ONCE):
                with contextlib.suppress(ValueError):
                    report = Report.of(self._socket.recv(_LARGEST_REPORT_BYTES), self._token)
                    if report is not None and report.done >= self._done_by(report):
                        self._newest[report.source, report.task] = report
        return self._newest

    def close(self) -> None:
        """Receive no more."""
        self._socket.close()

    def _done_by(self, report: Report) -> int:
        before = self._newest.get((report.source, report.task))
        return 0 if before is None else before.done


class Amount(NamedTuple):
    """An amount of records: bytes of files, and offsets of topics."""

    bytes: int
    offsets: int


class Sample(NamedTuple):
    """What was read ``at`` a time in seconds."""

    at: float
    rows: int
    done: Amount


@dataclass
class Pace:
    """The rate of the last minute, and what is left of ``pending`` (0: not known)."""

    pending: Amount
    _samples: deque[Sample] = field(default_factory=deque)

    def note(self, sample: Sample) -> dict[str, int]:
        """Note a sample, and return the figures of a line of progress."""
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at <= sample.at - _WINDOW_SECONDS:
            self._samples.popleft()
        first = self._samples[0]
        seconds = max(sample.at - first.at, 1e-6)
        figures = {"rows": sample.rows, "rows_per_second": round((sample.rows - first.rows) / seconds)}
        left = []
        units = zip(Amount._fields, self.pending, first.done, sample.done, strict=True)
        for unit, pending, before, done in units:
            if not pending and not done:
                continue
            figures |= {unit: min(done, pending or done), f"{unit}_pending": pending}
            rate = (done - before) / seconds
            figures[f"{unit}_per_second"] = round(rate)
            if pending > done:
                left.append((pending - done) / rate if rate > 0 else float("inf"))
        if left and max(left) < float("inf"):
            figures["seconds_left"] = round(max(left))
        return figures


def count_pending(checkpoint: Path, order: IngestOrder, topics: Iterable[str]) -> Amount:
    """Count what is in no committed batch of a run or a side job."""
    size = sum(file["size"] for links in order.links.values() for file in links.values())
    offsets = 0
    with contextlib.suppress(ValueError):  # of a batch file, which the query itself reports
        for files in (BatchFiles(checkpoint, name) for name in topics):
            ranges = [part for one in (*files.list_in_flight(), *files.list_open()) for part in one.parts]
            offsets += sum(part.end - part.begin for part in ranges if isinstance(part, RangePart))
    return Amount(size, offsets)


class ReadingProgress:
    """Emits a line every ten seconds while a run reads."""

    def __init__(self, pending: Amount, reports: ReportListener | None, topics: Collection[str]) -> None:
        self._reports, self._topics = reports, topics
        self._pace = Pace(pending)
        self._last = Sample(time.monotonic(), 0, Amount(0, 0))
        self._pace.note(self._last)

    def emit_when_due(self) -> dict[str, int] | None:
        """Emit a line when the last one is ten seconds old and more was read since; return its figures."""
        if self._reports is None:
            return None
        reports = self._reports.receive().values()
        now = time.monotonic()
        if now - self._last.at < _PAUSE_SECONDS:
            return None
        done = Amount(
            sum(one.done for one in reports if one.source not in self._topics),
            sum(one.done for one in reports if one.source in self._topics),
        )
        before, self._last = self._last, Sample(now, sum(one.rows for one in reports), done)
        if before.done == done:
            return None
        figures = self._pace.note(self._last)
        emit(READING, **figures)
        return figures


class TaskProgress:
    """Emits how many tasks of the running stages are done."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._emitted = (0, 0)

    def emit_changes(self, event: str) -> None:
        """Emit a line where some tasks are done and the last line said otherwise."""
        stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage)
        tasks = sum(stage.numTasks for stage in stages if stage)
        if done and (done, tasks) != self._emitted:
            self._emitted = (done, tasks)
            emit(event, tasks=f"{done} of {tasks}")


@contextlib.contextmanager
def watching_tasks(spark: SparkSession, event: str) -> Iterator[None]:
    """Emit the tasks that are done within, every ten seconds."""
    progress, has_ended = TaskProgress(spark), threading.Event()

    def watch() -> None:
        with contextlib.suppress(*SPARK_ERRORS):  # the session has ended
            while not has_ended.wait(_PAUSE_SECONDS):
                progress.emit_changes(event)

    watcher = threading.Thread(target=watch, name="tidegate-tasks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        watcher.join()
