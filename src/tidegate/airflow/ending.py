"""Metrics and alerts at the end of a task, however it ends. They never change the task's outcome.

:func:`reports_outcome` wraps the methods of the operators. A task that waits for a person reports that its run is held;
one that is rescheduled until the lease is free reports nothing. What a killed task did not report, the next task
reports (:mod:`tidegate.views.signals.unsent`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from logging import Logger
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from tidegate.airflow import alerts
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.outputs import RunReport
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.report import list_reports, load_report
from tidegate.spec.project import Project, load_project
from tidegate.views.signals.unsent import (
    UnsentOutcome,
    claim_unsent_run,
    list_unsent_runs,
    note_run_sent,
    note_sent,
    note_unsent,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

_LEFT_SECONDS = 60.0
"""How long a task may spend on reports that killed tasks did not send: it begins no further one after that."""

F = TypeVar("F", bound=Callable[..., Any])


class ReportsOutcome:
    """Attributes and methods of an operator whose outcome is reported."""

    pipeline: str
    project_root: str
    looks: ClassVar[bool] = False
    """Whether the task measures the backlog of the sources."""
    work: ClassVar[str] = "incremental"
    """The mode of the run reports that it writes."""
    log: Logger
    is_reporting = False

    reported_run: str | None = None
    """The run whose outcome the task reports; None before the task has begun."""

    def name_report(self, run_id: str) -> str:
        """The run id of the report that the task writes in DAG run ``run_id``."""
        return run_id

    def find_reported_run(self, context: Context) -> str:
        """The run whose outcome is reported; in a DAG run that carries out a decision, the run that is decided on."""
        return self.name_report(context["run_id"])


def reports_outcome(execute: F) -> F:
    """Wrap an operator's method, whose first argument is the context, to report the outcome when it ends."""

    @functools.wraps(execute)
    def execute_and_report(self: ReportsOutcome, context: Context, *args: Any, **kwargs: Any) -> Any:
        if self.is_reporting:  # called by another wrapped method
            return execute(self, context, *args, **kwargs)
        self.is_reporting, end = True, _begin(self, context)
        try:
            result = execute(self, context, *args, **kwargs)
        except BaseException as error:
            end(error)
            raise
        else:
            end(None)
            return result
        finally:
            self.is_reporting = False

    return cast("F", execute_and_report)


def _begin(operator: ReportsOutcome, context: Context) -> Callable[[BaseException | None], None]:
    """Read the state of the run before the task; return the function to call at its end, with the error if any."""
    run_id = operator.reported_run = operator.find_reported_run(context)
    project = _open(operator)
    if project is None:
        untold = UnsentOutcome(None)
    else:
        outcome = _outcome(_load(project, operator.pipeline, run_id))
        untold = note_unsent(project.paths(operator.pipeline), run_id, outcome)

    def end(error: BaseException | None) -> None:
        try:
            _report(operator, context, run_id, untold, error)
        except Exception as trouble:  # noqa: BLE001 - the task's own end counts, whatever happens here
            operator.log.warning(
                "not all metrics and alerts of this task were sent: %s: %s", type(trouble).__name__, trouble
            )

    return end


def _report(
    operator: ReportsOutcome, context: Context, run_id: str, untold: UnsentOutcome, error: BaseException | None
) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException
    from airflow.sdk.exceptions import AirflowRescheduleException

    from tidegate.airflow import metrics  # not at the top: parsing a DAG file does not need its imports

    project = _open(operator)
    if project is None or isinstance(error, AirflowRescheduleException):
        return
    report = _load(project, operator.pipeline, run_id)
    outcome = _outcome(report)
    ends_by = error.code if isinstance(error, TidegateError) else ""
    was_stopped = ends_by.endswith("_TASK_KILLED")
    if _is_of_another(outcome, untold.sent, ends_by, was_stopped=was_stopped):
        return
    paths = project.paths(operator.pipeline)
    _report_left(project, paths, run_id, context, operator.log)  # first: the last value of a gauge counts
    before = untold.reload_sent(paths, run_id, outcome)
    is_complete = report is None or outcome is not None
    # A task that waits for a person also ends its process, with a BaseException of Airflow's.
    failed = isinstance(error, Exception) and not isinstance(error, AirflowSkipException | HeldError)
    is_of_decision = run_id != operator.name_report(context["run_id"])
    if failed and is_of_decision and outcome == before:
        report = None  # the DAG run failed, and the run that it was to decide on is unchanged
    if metrics.are_on():
        look = operator.looks and not was_stopped
        work = operator.work
        metrics.send_for_task(project, paths.name, report, before, operator.log, mode=work, failed=failed, look=look)
    if report is not None:
        alerts.send_due_alerts(project, report, before, context, operator.log)
    if is_complete:
        note_sent(paths, run_id, untold, outcome)


def _report_left(project: Project, paths: PipelinePaths, own: str, context: Context, log: Logger) -> None:
    """Report runs whose own tasks were killed before they had reported."""
    from tidegate.airflow import metrics

    began = time.monotonic()
    for left in list_unsent_runs(paths, own, datetime.now(UTC)):
        report, before = left.report, left.sent
        if time.monotonic() - began > _LEFT_SECONDS:
            return  # the next task continues
        if not claim_unsent_run(paths, left, datetime.now(UTC)):
            continue
        log.info(
            "run %s (%s) is reported now: its own task was killed before it could", report["run_id"], report["outcome"]
        )
        if metrics.are_on():
            metrics.send_for_task(
                project, paths.name, report, before, log, mode=report["mode"], is_overtaken=_is_overtaken(paths, report)
            )
        alerts.send_due_alerts(project, report, before, context, log)
        note_run_sent(paths, left)


def _is_overtaken(paths: PipelinePaths, report: RunReport) -> bool:
    """Whether a later run has published in the meantime."""
    ended = str(report["ended_at"])
    later = (one for one in list_reports(paths) if one.outcome == "published" and one.run_id != report["run_id"])
    return any(str(one.ended_at) > ended for one in later)


def _is_of_another(outcome: str | None, before: str | None, ends_by: str, *, was_stopped: bool) -> bool:
    """Whether another process is to report the outcome: this one lost its lease, or was stopped in the middle of its
    step, so the outcome in the report is not its doing."""
    if ends_by == "LEASE_LOST":
        return True
    return was_stopped and outcome not in (None, "failed", before)


def _open(operator: ReportsOutcome) -> Project | None:
    """The project; None when its file has a fault, which the task itself raises."""
    try:
        return load_project(operator.project_root)
    except (TidegateError, OSError):
        return None


def _load(project: Project | None, pipeline: str, run_id: str) -> RunReport | None:
    try:
        found = None if project is None else load_report(project.paths(pipeline), run_id)
    except (TidegateError, OSError):
        return None
    return None if found is None else found.to_json()


def _outcome(report: RunReport | None) -> str | None:
    return None if report is None else report["outcome"]
