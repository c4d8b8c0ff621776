"""Metrics, sent by Airflow's own client as ``[metrics]`` of Airflow's configuration says.

Each is sent under its name with tags. While ``[metrics] legacy_names_on`` is true, it is also sent under a name that
contains the values of the tags, for servers without tags, as Airflow's own metrics are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from logging import Logger
from typing import TYPE_CHECKING, Protocol

from tidegate.core.errors import Caught, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.limit import call_within
from tidegate.rework.held import list_held_work
from tidegate.spec.project import Project
from tidegate.table.log.state import has_log, list_data_files, read_table_state
from tidegate.views.faults import STATE_FAULTS
from tidegate.views.pages.ahead import look_at_ahead
from tidegate.views.signals.metrics import (
    Sample,
    measure_failure,
    measure_lag,
    measure_run,
    measure_table,
    measure_undecided,
)

if TYPE_CHECKING:
    from tidegate.airflow.alerts import TaskEnd

_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_LOOK_SECONDS = 10.0
"""How long measuring the backlog may delay the end of a task."""


def _are_on() -> bool:
    """Return whether Airflow sends metrics at all."""
    from airflow.providers.common.compat.sdk import conf

    return any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES)


def _send(samples: Iterable[Sample]) -> None:
    """Send the values by Airflow's client."""
    from airflow.providers.common.compat.sdk import conf

    client, also_long = _open_client(), conf.getboolean("metrics", "legacy_names_on", fallback=True)
    for sample in samples:
        name, tags = sample.metric.name, {key: _plain(value) for key, value in sample.tags.items()}
        emit = client.incr if sample.metric.kind == "counter" else client.gauge
        value = int(sample.value) if sample.metric.kind == "counter" else sample.value
        emit(name, value, tags=tags)
        if also_long:
            emit(Sample(sample.metric, sample.value, tags).long_name, value)


def send_for_task(end: TaskEnd, log: Logger) -> None:
    """Send the metrics of a task at its end; never raises, so that metrics fail no task."""
    if not _are_on():
        return
    now, report, paths = datetime.now(UTC), end.report, end.project.paths(end.pipeline)
    with Caught() as caught:  # the client, a broker or a report may raise anything
        samples = [] if report is None else measure_run(report, end.before, now)
        samples = [one for one in samples if not end.is_overtaken or one.metric.kind == "counter"]
        if end.failed and (report is None or report["outcome"] is None):
            samples += measure_failure(end.pipeline, end.mode if report is None else report["mode"])
        if report is not None and report["outcome"] == "published" and end.before != "published":
            samples += _measure_table(paths.pinned())
        samples += _measure_undecided(paths)
        _send(samples + (_look(end.project, end.pipeline, now) if end.looks else []))
    if caught.text is not None:
        log.warning("the metrics of this task were not sent: %s", caught.text)


class _Client(Protocol):
    def incr(self, name: str, value: float, *, tags: dict[str, str] = ...) -> None: ...

    def gauge(self, name: str, value: float, *, tags: dict[str, str] = ...) -> None: ...


def _open_client() -> _Client:
    try:
        from airflow.sdk.observability import stats
    except ImportError:  # before Airflow 3.2
        from airflow.stats import Stats as stats
    return stats


def _plain(value: str) -> str:
    """The value of a tag in characters that every server accepts."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "_" for char in value) or "_"


def _measure_table(paths: PipelinePaths) -> list[Sample]:
    try:
        state = read_table_state(paths.table) if has_log(paths.table) else None
        sizes = [] if state is None else [file.size_bytes for file in list_data_files(paths.table)]
    except (TidegateError, OSError):
        return []  # the next step that reads the table raises the error
    return [] if state is None else measure_table(paths.name, state.version, sizes)


def _measure_undecided(paths: PipelinePaths) -> list[Sample]:
    try:
        return [measure_undecided(paths.name, len(list_held_work(paths)))]
    except STATE_FAULTS:
        return []  # the run itself raises the error


def _look(project: Project, pipeline: str, now: datetime) -> list[Sample]:
    """Measure the backlog; nothing when that takes too long or fails: the gauges then keep their values."""
    with Caught():  # whatever it is, this run or the next one reports it
        page = call_within(_LOOK_SECONDS, lambda: look_at_ahead(project, pipeline))
        return [] if page.unknown is not None else measure_lag(pipeline, page.backlog, now)
    return []
