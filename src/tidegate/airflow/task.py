"""The base of the operators: a process bound to its supervisor, errors that are explained, an outcome that is reported.

Metrics and alerts never change the task's outcome. A task that waits for a person reports that its run is held; one
that is rescheduled until the lease is free reports nothing. What a killed task did not report, the next task reports
(:mod:`tidegate.views.signals.unsent`).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from airflow.sdk import BaseOperator

from tidegate.airflow import alerts, errors
from tidegate.airflow.next_steps import reword
from tidegate.airflow.requested_work import find_target_run
from tidegate.airflow.retries import as_final, as_turn
from tidegate.airflow.supervision import bind_to_supervisor, stop_python_step
from tidegate.core.errors import Caught, HeldError, TidegateError, UsageError
from tidegate.core.outputs import RunReport
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import escape_controls
from tidegate.runs.reports.report import list_reports, load_report
from tidegate.spark.driver.progress import describe_report
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
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

_LEFT_SECONDS = 60.0
"""How long a task may spend on reports that killed tasks did not send: it begins no further one after that."""

_Step = TypeVar("_Step", bound=Callable[..., RunReport])


class PipelineTask(BaseOperator):
    """A task of a pipeline.

    ``project_root`` is an absolute path. ``takes_turns``: several runs of the DAG may be active, and each waits until
    the lease is free.
    """

    looks: ClassVar[bool] = False
    """Whether the task measures the backlog of the sources."""
    work: ClassVar[str] = "incremental"
    """The mode of the run reports that it writes."""

    reported_run: str | None = None
    """The run whose outcome the task reports; None before the task has begun."""
    is_reporting = False

    def __init__(self, *, pipeline: str, project_root: str, takes_turns: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root
        self.takes_turns = takes_turns

    def name_report(self, run_id: str) -> str:
        """The run id of the report that the task writes in DAG run ``run_id``."""
        return run_id

    def find_reported_run(self, context: Context) -> str:
        """The run whose outcome is reported: in a DAG run that carries out a decision, the run that is decided on.

        It is the DAG run's own id when its form is refused.
        """
        try:
            return self.name_report(find_target_run(context))
        except UsageError:
            return self.name_report(context["run_id"])

    def open_project(self) -> Project:
        """Load the project again: its settings may have changed since the DAG was parsed."""
        return load_project(Path(self.project_root))

    def log_report(self, report: RunReport) -> RunReport:
        """Log the report of a step in a line, and return it."""
        self.log.info("%s", describe_report(report))
        return report

    def on_kill(self) -> None:
        """Stop the step at once. A step may be killed anywhere: the next one finishes or undoes what it began."""
        stop_python_step()


class HasLineage(PipelineTask):
    """A step with lineage of its run, for the OpenLineage provider."""

    lineage: ClassVar[Literal["audit", "publish", "deliver"]]

    def get_openlineage_facets_on_complete(self, task_instance: RuntimeTaskInstanceProtocol) -> OperatorLineage:
        """The inputs and outputs of the step."""
        from tidegate.airflow.lineage import make_lineage

        run_id = self.reported_run or str(task_instance.run_id)
        return make_lineage(self.project_root, self.pipeline, run_id, self.lineage)

    def get_openlineage_facets_on_failure(self, task_instance: RuntimeTaskInstanceProtocol) -> None:
        """Nothing: a later run publishes or delivers what this one did not, and reports that."""


def pipeline_step(execute: _Step) -> _Step:
    """Wrap the method that an operator's task begins or resumes with."""
    is_begin = execute.__name__ == "execute"

    @functools.wraps(execute)
    def carry_out(self: PipelineTask, context: Context, *args: object, **kwargs: object) -> RunReport:
        # A task that was resumed must not be rescheduled: it would begin anew, and forget why it was resumed.
        explained = explain_errors(self.log, self.project_root, takes_turns=self.takes_turns and is_begin)
        if self.is_reporting:  # called by another wrapped method
            with explained:
                return execute(self, context, *args, **kwargs)
        bind_to_supervisor()
        with _Reporting(self, context), explained:
            return execute(self, context, *args, **kwargs)

    return cast("_Step", carry_out)


@contextlib.contextmanager
def explain_errors(log: Logger, project_root: str, *, takes_turns: bool = False) -> Iterator[None]:
    """Log what happened, where, and what to do, in lines that can be read without the traceback.

    ``takes_turns``: while another run has the lease, the task is rescheduled, which costs no retry.
    """
    from tidegate.core.extras import explain_missing
    from tidegate.core.storage import name_cause

    try:
        yield
    except (TidegateError, OSError, ImportError) as error:
        if isinstance(error, TidegateError):
            known: TidegateError | None = error
        else:
            known = explain_missing(error) or name_cause(error, project_root)
        if known is None:
            raise
        if takes_turns and known.code == "LEASE_HELD":
            log.info("%s", escape_controls(known.message))
            raise as_turn() from error
        for line in str(reword(known)).splitlines():
            log.error("%s", line)
        final = as_final(known)
        if final is error:
            raise
        raise final from error


class _Reporting:
    """Sends the metrics and alerts of a task at its end, compared with the state of its run at the beginning."""

    def __init__(self, operator: PipelineTask, context: Context) -> None:
        self._operator, self._context = operator, context
        self._run_id = operator.find_reported_run(context)
        self._unsent = UnsentOutcome(None)

    def __enter__(self) -> None:
        operator = self._operator
        operator.reported_run = self._run_id
        if (project := _open(operator)) is not None:
            outcome = _outcome(_load(project, operator.pipeline, self._run_id))
            self._unsent = note_unsent(project.paths(operator.pipeline), self._run_id, outcome)
        operator.is_reporting = True

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._operator.is_reporting = False
        with Caught() as caught:  # the task's own end counts, whatever happens here
            self._report(error)
        if caught.text is not None:
            self._operator.log.warning("not all metrics and alerts of this task were sent: %s", caught.text)

    def _report(self, error: BaseException | None) -> None:
        from airflow.providers.common.compat.sdk import AirflowSkipException
        from airflow.sdk.exceptions import AirflowRescheduleException

        operator, run_id, unsent = self._operator, self._run_id, self._unsent
        project = _open(operator)
        if project is None or isinstance(error, AirflowRescheduleException):
            return
        report = _load(project, operator.pipeline, run_id)
        outcome = _outcome(report)
        ends_by = error.code if isinstance(error, TidegateError) else ""
        was_stopped = ends_by == errors.TASK_KILLED.code
        if _is_of_another(outcome, unsent.sent, ends_by, was_stopped=was_stopped):
            return
        paths = project.paths(operator.pipeline)
        _report_left(project, paths, run_id, self._context, operator.log)  # first: the last value of a gauge counts
        before = unsent.reload_sent(paths, run_id, outcome)
        is_complete = report is None or outcome is not None
        # A task that waits for a person also ends its process, with a BaseException of Airflow's.
        failed = isinstance(error, Exception) and not isinstance(error, AirflowSkipException | HeldError)
        is_of_decision = run_id != operator.name_report(self._context["run_id"])
        if failed and is_of_decision and outcome == before:
            report = None  # the DAG run failed, and the run that it was to decide on is unchanged
        looks = operator.looks and not was_stopped
        _send(
            alerts.TaskEnd(project, paths.name, report, before, operator.work, failed, looks),
            self._context,
            operator.log,
        )
        if is_complete:
            note_sent(paths, run_id, unsent, outcome)


def _send(end: alerts.TaskEnd, context: Context, log: Logger) -> None:
    from tidegate.airflow.metrics import send_for_task  # not at the top: parsing a DAG file does not need its imports

    send_for_task(end, log)
    if end.report is not None:
        alerts.send_due_alerts(end.project, end.report, end.before, context, log)


def _report_left(project: Project, paths: PipelinePaths, own: str, context: Context, log: Logger) -> None:
    """Report runs whose own tasks were killed before they had reported."""
    began = time.monotonic()
    for report, before in list_unsent_runs(paths, own, datetime.now(UTC)):
        if time.monotonic() - began > _LEFT_SECONDS:
            return  # the next task continues
        if not claim_unsent_run(paths, report["run_id"], datetime.now(UTC)):
            continue
        log.info(
            "run %s (%s) is reported now: its own task was killed before it could", report["run_id"], report["outcome"]
        )
        is_overtaken = _is_overtaken(paths, report)
        _send(
            alerts.TaskEnd(project, paths.name, report, before, report["mode"], is_overtaken=is_overtaken), context, log
        )
        note_run_sent(paths, report)


def _is_overtaken(paths: PipelinePaths, report: RunReport) -> bool:
    """Return whether a later run has published in the meantime."""
    ended = str(report["ended_at"])
    later = (one for one in list_reports(paths) if one.outcome == "published" and one.run_id != report["run_id"])
    return any(str(one.ended_at) > ended for one in later)


def _is_of_another(outcome: str | None, before: str | None, ends_by: str, *, was_stopped: bool) -> bool:
    """Return whether another process is to report the outcome: this one lost its lease, or was stopped in the middle of
    its step, so the outcome in the report is not its doing."""
    if ends_by == "LEASE_LOST":
        return True
    return was_stopped and outcome not in (None, "failed", before)


def _open(operator: PipelineTask) -> Project | None:
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
