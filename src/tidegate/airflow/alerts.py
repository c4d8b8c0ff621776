"""The ``alerts:`` of a spec on Airflow.

- held, and much in quarantine: sent at the end of the task that finds it;
- failing: sent by Airflow's ``on_failure_callback``, which also runs when the task's process was killed;
- behind: sent by a deadline alert of the DAG, whose callback runs in a triggerer.

A notifier is made with the arguments of the spec and called with the context, whose key ``alert`` holds the
:class:`tidegate.views.signals.alerts.Alert`. Arguments that are texts are templates; the values of an alert are
inserted as they are and never rendered. A notifier that fails is logged and changes nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from logging import Logger
from typing import TYPE_CHECKING, Protocol, TypedDict, cast

from tidegate.airflow.errors import TRIGGER_FORM_REFUSED
from tidegate.airflow.form import SIDE_JOB_KEYS
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.outputs import Error, RunReport
from tidegate.core.process.limit import call_within
from tidegate.runs.reports.report import list_reports
from tidegate.spec.models import AlertsSpec, NotifierSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.signals.alerts import Alert, find_alerts, find_behind, find_failure, use_notifier

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from tidegate.spec.models import PipelineSpec

_LOOKED_THROUGH = 50
"""How many reports are searched for the previous run; side jobs may be among them."""

_NOTIFY_SECONDS = 60.0
"""How long a notifier may delay the end of a task."""

_log = logging.getLogger(__name__)


class _Task(Protocol):
    """What an alert reads of a :class:`tidegate.airflow.task.PipelineTask`, which imports this module."""

    pipeline: str
    project_root: str
    work: str

    def name_report(self, run_id: str) -> str: ...


@dataclass(frozen=True)
class TaskEnd:
    """A task at its end: the report of its run, if there is one, and the outcome that it had ``before`` the task.

    ``mode`` is the mode of a run without a report. ``looks``: the backlog is measured too. ``is_overtaken``: a later
    run has published; only counters are sent then, its gauges are newer."""

    project: Project
    pipeline: str
    report: RunReport | None
    before: str | None
    mode: str
    failed: bool = False
    looks: bool = False
    is_overtaken: bool = False


def send_due_alerts(project: Project, report: RunReport, before: str | None, context: Context, log: Logger) -> None:
    """Send the alerts that are due for a run at the end of a task; never raises. ``before`` is the outcome that the
    report had when the task began: nothing is due when it has not changed."""
    try:
        alerts = load_pipeline(project, report["pipeline"]).alerts
        if not alerts.notify or report["outcome"] == before:
            return
        due = find_alerts(alerts, report, _list_earlier(project, report["pipeline"], report["run_id"]))
    except (TidegateError, OSError) as error:
        log.warning("could not find out whether an alert is due: %s", error)
        return
    for alert in due:
        send(alert, alerts.notify, context, log)


def alert_on_failure(context: Context) -> None:
    """``on_failure_callback`` of every task of a pipeline: the task failed and is not retried."""
    task = cast("_Task", context["task"])
    run_id = task.name_report(context["run_id"])
    error = _find_error(context.get("exception"))
    if error is not None and error["code"] == TRIGGER_FORM_REFUSED.code:
        return  # the run did nothing, and the next one reads what this one would have read
    try:
        project = load_project(task.project_root)
        alerts = load_pipeline(project, task.pipeline).alerts
        if not alerts.notify or not alerts.failing or (error is not None and error["exit_code"] == HeldError.exit_code):
            return
        earlier = _list_earlier(project, task.pipeline, run_id)
    except (TidegateError, OSError) as trouble:
        _log.warning("could not find out whether an alert is due: %s", trouble)
        return
    alert = find_failure(task.pipeline, run_id, error, context["ti"].task_id, task.work, earlier)
    if alert is not None:
        send(alert, alerts.notify, context, _log)


class _DagRun(TypedDict, total=False):
    dag_run_id: str
    run_type: str
    conf: Mapping[str, object] | None


class DeadlineContext(TypedDict, total=False):
    """The context of a deadline's callback, as far as it is read here."""

    dag_run: _DagRun


async def tell_behind(pipeline: str, project_root: str, context: DeadlineContext | None = None) -> None:
    """The callback of the DAG's deadline alert, which Airflow's database names by its path. ``context`` is smaller
    than that of a task."""
    await asyncio.to_thread(_alert_behind, pipeline, project_root, context or {})


def _alert_behind(pipeline: str, project_root: str, context: DeadlineContext) -> None:
    dag_run: _DagRun = context.get("dag_run") or {}
    run_id = str(dag_run.get("dag_run_id") or "unknown")
    if dag_run.get("run_type") == "backfill" or any((dag_run.get("conf") or {}).get(key) for key in SIDE_JOB_KEYS):
        return  # it reads nothing new, however long it waits or runs
    project = load_project(project_root)
    alerts = load_pipeline(project, pipeline).alerts
    if alerts.behind is None:  # removed from the spec since the run was queued
        return
    runs = [report.to_json() for report in list_reports(project.paths(pipeline), _LOOKED_THROUGH)]
    alert = find_behind(pipeline, run_id, alerts.behind, runs, datetime.now(UTC))
    if alert is not None:
        send(alert, alerts.notify, context, _log)


def send(alert: Alert, notifiers: Sequence[NotifierSpec], context: Mapping[str, object], log: Logger) -> None:
    """Send an alert by every notifier. One that fails is logged; the others still send."""
    values = {**context, "alert": replace(alert, page=_find_page(alert))}
    for one in notifiers:
        # One that hangs must not block the task, and with it all later runs.
        why_not = use_notifier(one, lambda notify: call_within(_NOTIFY_SECONDS, partial(notify, values)))
        if why_not is not None:
            log.error("alert not sent by %s: %s", one.notifier, why_not)
        else:
            log.info("alert sent by %s: %s", one.notifier, alert.title)


def _find_page(alert: Alert) -> str:
    """The address of the run's page in Airflow's UI; '' where ``[api] base_url`` is not set."""
    from airflow.sdk.configuration import conf

    from tidegate.airflow.ui.places import Places

    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return Places(base).airflow_run_report(alert.pipeline, alert.run_id) if base else ""


class FailureArguments(TypedDict, total=False):
    """Arguments of a task."""

    on_failure_callback: list[object]


def failure_arguments(alerts: AlertsSpec, default_args: Mapping[str, object] | None) -> FailureArguments:
    """The task arguments that add :func:`alert_on_failure` after the callbacks of ``default_args``; {} where no alert
    is wanted."""
    if not alerts.notify or not alerts.failing:
        return {}
    theirs = (default_args or {}).get("on_failure_callback")
    before = theirs if isinstance(theirs, list | tuple) else [] if theirs is None else [theirs]
    return {"on_failure_callback": [*before, alert_on_failure]}


def make_deadline(spec: PipelineSpec, project_root: str) -> DeadlineAlert | None:
    """The deadline of the DAG that watches ``alerts.behind``; None where no alert is wanted."""
    if not spec.alerts.notify or spec.alerts.behind is None:
        return None
    from airflow.sdk.definitions.deadline import AsyncCallback, DeadlineAlert, DeadlineReference

    callback = AsyncCallback(tell_behind, kwargs={"pipeline": spec.name, "project_root": project_root})
    interval = timedelta(seconds=spec.alerts.behind)
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=interval, callback=callback)


def _list_earlier(project: Project, name: str, run_id: str) -> list[RunReport]:
    """The runs before this one, newest first."""
    reports = [report.to_json() for report in list_reports(project.paths(name), _LOOKED_THROUGH)]
    began = next((report["started_at"] for report in reports if report["run_id"] == run_id), None)
    return [
        report for report in reports if report["run_id"] != run_id and (began is None or report["started_at"] < began)
    ]


def _find_error(error: object) -> Error | None:
    """The error that ended the task, as in a run report; None when its process was killed."""
    if isinstance(error, TidegateError):
        return error.to_dict()
    cause = getattr(error, "__cause__", None)
    if isinstance(cause, TidegateError):  # before Airflow 3.3 a final error is wrapped in one of Airflow's
        return cause.to_dict()
    if isinstance(error, BaseException):
        return {
            "code": type(error).__name__,
            "message": str(error),
            "where": None,
            "next_run": None,
            "fix": None,
            "exit_code": 70,
        }
    return None
