"""Every metric that the tasks send, and how its values follow from a report or from the pending records of the sources.

``docs/reference/metrics.md`` and the Grafana dashboard are made from :data:`METRICS`. There are only counters and
gauges: Airflow's backends treat timers differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidegate.core.outputs import RowKey, RunReport
from tidegate.quality.verdict import Quarantined
from tidegate.runs.reports.report import FINAL_OUTCOMES
from tidegate.views.pages.ahead import Backlog

PREFIX = "tidegate"
Kind = Literal["counter", "gauge"]
When = Literal["outcome", "end", "records", "published", "task", "state", "look"]
Unit = Literal[
    "runs",
    "records",
    "rows",
    "files",
    "bytes",
    "offsets",
    "seconds",
    "version",
    "verdicts",
    "rules",
    "share",
    "decisions",
]

WHEN: Mapping[When, str] = {
    "outcome": "when the run's outcome has changed",
    "end": "when the run is over: published, discarded, or nothing new",
    "records": "when a run that took records is over: published, or discarded",
    "published": "when the run has published",
    "task": "at the end of every task, from the report of its run",
    "state": "at the end of every task, from the state of the pipeline: also where its run has no report",
    "look": "at the end of `ingest`, of what no run has taken yet",
}
"""When a metric is sent, in words."""


@dataclass(frozen=True)
class Metric:
    """A metric. ``tags`` have the order in which their values are appended to the name where tags are not supported."""

    key: str
    kind: Kind
    unit: Unit
    tags: tuple[str, ...]
    when: When
    meaning: str

    @property
    def name(self) -> str:
        """The name, without the prefix that Airflow adds (by default ``airflow``)."""
        return f"{PREFIX}.{self.key}"


@dataclass(frozen=True)
class Sample:
    """A value of a metric; ``tags`` has a value for each of its tags."""

    metric: Metric
    value: float
    tags: Mapping[str, str]

    @property
    def long_name(self) -> str:
        """The name with the values of the tags, for a server without tags."""
        values = (self.tags[tag].replace(".", "__") for tag in self.metric.tags)
        return ".".join((self.metric.name, *values))


_RUN = ("pipeline", "mode")
_SOURCE = ("pipeline", "source")

RUNS = Metric(
    "runs",
    "counter",
    "runs",
    (*_RUN, "outcome"),
    "outcome",
    "runs by outcome: published, nothing_new, discarded, held or failed. One that was held and then released counts as "
    "both; one that failed and was tried again as failed once",
)
_ROWS: tuple[tuple[RowKey, Unit, str], ...] = (
    ("read", "records", "records that came out of the sources"),
    ("malformed", "records", "records that do not parse or do not fit the schema"),
    ("late", "records", "records that came after everything they belong to was closed"),
    ("rejected", "rows", "rows that broke a quarantine rule"),
    ("published", "rows", "new rows of the table"),
    ("superseded", "rows", "rows that a newer row of the same run or of the table replaced"),
    ("duplicates", "rows", "rows that a deduplication dropped"),
)
ROWS: Mapping[RowKey, Metric] = {
    key: Metric(f"rows.{key}", "counter", unit, _RUN, "records", meaning) for key, unit, meaning in _ROWS
}
"""The metrics of counts of a report."""
ROWS_QUARANTINED = Metric(
    "rows.quarantined", "counter", "rows", _RUN, "records", "malformed and late records and rejected rows together"
)
QUARANTINE_SHARE = Metric(
    "quarantine.share", "gauge", "share", _RUN, "records", "the share of its records that is in quarantine, 0 to 1"
)
SOURCE_ROWS = Metric("source.rows", "counter", "records", _SOURCE, "records", "records read of a source")
SOURCE_FILES = Metric("source.files", "counter", "files", _SOURCE, "records", "files read of a source")
SOURCE_BYTES = Metric("source.bytes", "counter", "bytes", _SOURCE, "records", "bytes of these files")
VERDICTS = Metric(
    "verdicts",
    "counter",
    "verdicts",
    ("pipeline", "verdict"),
    "outcome",
    "verdicts of the gate: passed, warned, failed, unchecked",
)
RULES_FAILED = Metric(
    "rules.failed",
    "counter",
    "rules",
    ("pipeline", "rule", "severity"),
    "outcome",
    "how often a rule of the suite did not hold",
)
STEP_SECONDS = Metric(
    "step.seconds",
    "gauge",
    "seconds",
    ("pipeline", "step"),
    "task",
    "how long a step of the last run took: ingest, audit, publish, deliver",
)
RUN_SECONDS = Metric(
    "run.seconds", "gauge", "seconds", _RUN, "end", "from the start of a run to its end; waiting for a person counts"
)
LAG_FILES = Metric("lag.files", "gauge", "files", _SOURCE, "look", "pending files")
LAG_BYTES = Metric("lag.bytes", "gauge", "bytes", _SOURCE, "look", "bytes of the pending files")
LAG_OFFSETS = Metric("lag.offsets", "gauge", "offsets", _SOURCE, "look", "pending Kafka offsets")
LAG_OLDEST = Metric(
    "lag.oldest.seconds",
    "gauge",
    "seconds",
    _SOURCE,
    "look",
    "age of the oldest pending file or record, by its own time; 0 when there is none",
)
LAG_WATERMARK = Metric(
    "lag.watermark.seconds",
    "gauge",
    "seconds",
    ("pipeline",),
    "task",
    "how far the watermark is behind the clock; not sent for a pipeline without one",
)
TABLE_VERSION = Metric(
    "table.version", "gauge", "version", ("pipeline",), "published", "the newest version of the table"
)
TABLE_FILES = Metric("table.files", "gauge", "files", ("pipeline",), "published", "files of that version")
TABLE_BYTES = Metric("table.bytes", "gauge", "bytes", ("pipeline",), "published", "bytes of these files")
PUBLISHED_AT = Metric(
    "published.at",
    "gauge",
    "seconds",
    ("pipeline",),
    "published",
    "when rows were last published, in seconds since 1970 UTC: `time()` minus this is the time since then",
)
SINK_BEHIND = Metric(
    "sink.behind", "gauge", "version", ("pipeline", "sink"), "task", "published versions that a further sink lacks"
)
UNDECIDED = Metric(
    "undecided",
    "gauge",
    "decisions",
    ("pipeline",),
    "state",
    "increments, backfills and refreshes that wait for a person's decision",
)

METRICS: tuple[Metric, ...] = tuple(
    metric
    for one in list(globals().values())
    for metric in (ROWS.values() if one is ROWS else (one,))
    if isinstance(metric, Metric)
)
"""All metrics: those of :data:`ROWS`, and each constant above."""


def measure_run(report: RunReport, before: str | None, now: datetime) -> list[Sample]:
    """Measure a run at the end of a task.

    ``before`` is the outcome that the stored report had when the task began: what was done before is not counted
    again."""
    samples = [*_of_task(report, now)]
    if report["outcome"] is not None and report["outcome"] != before:
        samples += _of_outcome(report)
        if report["outcome"] in FINAL_OUTCOMES and before not in FINAL_OUTCOMES:
            samples += _of_end(report)
    return samples


def measure_failure(pipeline: str, mode: str) -> list[Sample]:
    """Measure a task that failed before its run had a report."""
    return [Sample(RUNS, 1, {"pipeline": pipeline, "mode": mode, "outcome": "failed"})]


def measure_lag(pipeline: str, waiting: Iterable[Backlog], now: datetime) -> list[Sample]:
    """Measure what is pending in the sources."""
    samples = []
    for one in waiting:
        tags = {"pipeline": pipeline, "source": one["source"]}
        figures = ((LAG_FILES, one["files"]), (LAG_BYTES, one["bytes"]), (LAG_OFFSETS, one["offsets"]))
        samples += [Sample(metric, value, tags) for metric, value in figures if value is not None]
        age = None if one["oldest"] is None else _seconds_since(one["oldest"], now)
        if age is None and not one["files"] and not one["offsets"]:
            age = 0.0
        if age is not None:
            samples.append(Sample(LAG_OLDEST, age, tags))
    return samples


def measure_undecided(pipeline: str, count: int) -> Sample:
    """Measure how many decisions a person has still to take."""
    return Sample(UNDECIDED, count, {"pipeline": pipeline})


def measure_table(pipeline: str, version: int, sizes: Sequence[int]) -> list[Sample]:
    """Measure a version of the table by the sizes of its files."""
    tags = {"pipeline": pipeline}
    figures = ((TABLE_VERSION, version), (TABLE_FILES, len(sizes)), (TABLE_BYTES, sum(sizes)))
    return [Sample(metric, value, tags) for metric, value in figures]


def _of_task(report: RunReport, now: datetime) -> Iterable[Sample]:
    name = report["pipeline"]
    for step, seconds in report["duration_seconds"].items():
        yield Sample(STEP_SECONDS, seconds, {"pipeline": name, "step": step})
    if report["watermark"] is not None:
        yield Sample(LAG_WATERMARK, _seconds_since(report["watermark"], now), {"pipeline": name})
    for sink in report["sinks"]:
        if sink["behind"] is not None:
            yield Sample(SINK_BEHIND, sink["behind"], {"pipeline": name, "sink": sink["name"]})


def _of_outcome(report: RunReport) -> Iterable[Sample]:
    name, quality = report["pipeline"], report["quality"]
    yield Sample(RUNS, 1, {"pipeline": name, "mode": report["mode"], "outcome": str(report["outcome"])})
    was_counted = report["decision"] is not None or report["published_by"] is not None
    if report["outcome"] not in ("published", "held") or was_counted:
        return  # not judged, or counted before: when it was held, or for the run that published it
    if quality["verdict"] is not None:
        yield Sample(VERDICTS, 1, {"pipeline": name, "verdict": quality["verdict"]})
    for result in quality["results"]:
        if not result["success"]:
            tags = {"pipeline": name, "rule": result["rule"], "severity": result["severity"]}
            yield Sample(RULES_FAILED, 1, tags)


def _of_end(report: RunReport) -> Iterable[Sample]:
    run = {"pipeline": report["pipeline"], "mode": report["mode"]}
    if report["ended_at"] is not None:
        yield Sample(RUN_SECONDS, _seconds_since(report["started_at"], datetime.fromisoformat(report["ended_at"])), run)
    if report["outcome"] == "nothing_new" or report["published_by"] is not None:
        return  # nothing to count, or counted for the run that published it
    rows, quarantined = report["rows"], Quarantined.of(report["rows"])
    for key, metric in ROWS.items():
        yield Sample(metric, rows[key], run)
    yield Sample(ROWS_QUARANTINED, quarantined.count, run)
    yield Sample(QUARANTINE_SHARE, float(quarantined.share), run)
    for name, source in report["sources"].items():
        tags = {"pipeline": report["pipeline"], "source": name}
        figures = ((SOURCE_ROWS, source.get("rows")), (SOURCE_FILES, source.get("files")))
        for metric, value in (*figures, (SOURCE_BYTES, source.get("bytes"))):
            if value is not None:
                yield Sample(metric, value, tags)
    if report["outcome"] == "published" and rows["published"] and report["ended_at"] is not None:
        at = datetime.fromisoformat(report["ended_at"]).timestamp()
        yield Sample(PUBLISHED_AT, round(at, 3), {"pipeline": report["pipeline"]})


def _seconds_since(moment: str, now: datetime) -> float:
    return round(max((now - datetime.fromisoformat(moment)).total_seconds(), 0.0), 3)
