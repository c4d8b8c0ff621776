"""``alerts:`` of a spec on Airflow: its notifiers, run where the thing happens.

- held, and much in quarantine: by the task that finds it, at its end;
- failing: by Airflow's ``on_failure_callback``, which also comes when the task's process was killed;
- behind: by a deadline alert of the DAG, whose callback a triggerer runs.

A notifier is made with the arguments of the spec and called with the context, in which ``alert`` is what to tell
(:class:`tidegate.views.signals.alerts.Alert`). Texts of the arguments are templates: what is in an alert is put in as
it is, and never read as a template. One that fails is named in the log, and changes nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from logging import Logger
from typing import TYPE_CHECKING, Any

from tidegate.airflow.form import BESIDE_KEYS
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.outputs import Error, RunReport
from tidegate.runs.reports.report import list_reports
from tidegate.spec.models import AlertsSpec, NotifierSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.notifiers import make_notifier
from tidegate.views.signals.alerts import Alert, find_alerts, find_behind, find_failure

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidegate.spec.models import PipelineSpec

_LOOKED_THROUGH = 50
"""Runs among which the one before is looked for; other work may be among them."""

_NOTIFY_SECONDS = 60.0
"""How long a notifier may keep a task from its end."""

_log = logging.getLogger(__name__)


def tell_of_report(project: Project, report: RunReport, before: str | None, context: Context, log: Logger) -> None:
    """Send what is due of a run at the end of a task; never raises. ``before`` is the outcome that the report had when
    the task began: of a run that is as it was, nothing is."""
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


def tell_failing(context: Context) -> None:
    """``on_failure_callback`` of every task of a pipeline: it has failed, and is not tried again."""
    task: Any = context["task"]
    run_id = task.name_report(context["run_id"])
    error = _find_error(context.get("exception"))
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


async def tell_behind(pipeline: str, project_root: str, context: Mapping[str, Any] | None = None) -> None:
    """The callback of the DAG's deadline alert. ``context`` is the little that Airflow knows where it runs."""
    await asyncio.to_thread(_tell_behind, pipeline, project_root, context or {})


def _tell_behind(pipeline: str, project_root: str, context: Mapping[str, Any]) -> None:
    dag_run = context.get("dag_run") or {}
    run_id = str(dag_run.get("dag_run_id") or "unknown")
    if dag_run.get("run_type") == "backfill" or any((dag_run.get("conf") or {}).get(key) for key in BESIDE_KEYS):
        return  # it takes nothing in, however long it waits or is at work
    project = load_project(project_root)
    alerts = load_pipeline(project, pipeline).alerts
    if alerts.behind is None:  # taken out of the spec since the run was queued
        return
    runs = [report.to_json() for report in list_reports(project.paths(pipeline), _LOOKED_THROUGH)]
    alert = find_behind(pipeline, run_id, alerts.behind, runs, datetime.now(UTC))
    if alert is not None:
        send(alert, alerts.notify, context, _log)


def send(alert: Alert, notifiers: Sequence[NotifierSpec], context: Mapping[str, Any], log: Logger) -> None:
    """Give an alert to every notifier. One that fails is named in the log, and keeps it from no other."""
    alert = replace(alert, page=_find_page(alert))
    for one in notifiers:
        try:
            _call(make_notifier(one), {**context, "alert": alert})
        except Exception as error:  # noqa: BLE001 - a notifier is anybody's code
            log.error("alert not sent by %s: %s: %s", one.notifier, type(error).__name__, error)
        else:
            log.info("alert sent by %s: %s", one.notifier, alert.title)


def _find_page(alert: Alert) -> str:
    """The run's page in Airflow's UI, by the address that the UI is said to have; '' without one."""
    from airflow.sdk.configuration import conf

    from tidegate.airflow.ui.places import Places

    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return Places(base).airflow_run_report(alert.pipeline, alert.run_id) if base else ""


def _call(notifier: Callable[[dict[str, Any]], object], context: dict[str, Any]) -> None:
    """Call a notifier, for at most so long: one that hangs must not keep the task, and with it all later runs. Raises
    what it raises, TimeoutError."""
    ended: Future[None] = Future()
    within = contextvars.copy_context()

    def call() -> None:
        try:
            within.run(notifier, context)
        except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=call, name="tidegate-notifier", daemon=True).start()
    try:
        ended.result(_NOTIFY_SECONDS)
    except TimeoutError:
        if ended.done():
            raise
        raise TimeoutError(f"it takes longer than {_NOTIFY_SECONDS:.0f} seconds; nobody waits for it") from None


def failure_arguments(alerts: AlertsSpec, default_args: Mapping[str, object] | None) -> dict[str, Any]:
    """The arguments of a task that has :func:`tell_failing` behind what ``default_args`` says for the same occasion;
    none where nobody is to be told."""
    if not alerts.notify or not alerts.failing:
        return {}
    theirs = (default_args or {}).get("on_failure_callback")
    before = theirs if isinstance(theirs, list | tuple) else [] if theirs is None else [theirs]
    return {"on_failure_callback": [*before, tell_failing]}


def make_deadline(spec: PipelineSpec, project_root: str) -> dict[str, Any]:
    """The argument of the DAG that watches ``alerts.behind``; none where nobody is to be told."""
    if not spec.alerts.notify or spec.alerts.behind is None:
        return {}
    from airflow.sdk.definitions.deadline import AsyncCallback, DeadlineAlert, DeadlineReference

    callback = AsyncCallback(tell_behind, kwargs={"pipeline": spec.name, "project_root": project_root})
    interval = timedelta(seconds=spec.alerts.behind)
    return {
        "deadline": DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=interval, callback=callback)
    }


def _list_earlier(project: Project, name: str, run_id: str) -> list[RunReport]:
    """Older runs than this one, newest first."""
    reports = [report.to_json() for report in list_reports(project.paths(name), _LOOKED_THROUGH)]
    began = next((report["started_at"] for report in reports if report["run_id"] == run_id), None)
    return [
        report for report in reports if report["run_id"] != run_id and (began is None or report["started_at"] < began)
    ]


def _find_error(error: object) -> Error | None:
    """What ended the task, as its report would have it; None when its process could say nothing."""
    if isinstance(error, TidegateError):
        return error.to_dict()
    cause = getattr(error, "__cause__", None)
    if isinstance(cause, TidegateError):  # before Airflow 3.3 a final error is one of Airflow's own
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
