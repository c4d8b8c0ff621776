"""What a task says when it ends, whichever way: its metrics, and the alerts that are due. It never changes the end.

:func:`tells` goes around what an operator does. A task that waits for a person says that it is held; one that is put
off until the lease is free says nothing. What a killed task has left untold, the next one tells
(:mod:`tidegate.views.signals.untold`).
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
from tidegate.views.signals.untold import Untold, list_left, note_left_told, note_told, note_untold, take_left

if TYPE_CHECKING:
    from airflow.sdk import Context

_LEFT_SECONDS = 60.0
"""How long what others have left untold may keep a task from its end: after it no further one is begun with."""

F = TypeVar("F", bound=Callable[..., Any])


class TellsItsEnd:
    """What an operator of a pipeline has, so that its end can be told."""

    pipeline: str
    project_root: str
    looks: ClassVar[bool] = False
    """Whether it is the task that looks at the sources."""
    work: ClassVar[str] = "incremental"
    """The mode of the reports that it writes."""
    log: Logger
    is_telling = False

    told_run: str | None = None
    """The run that the task speaks of at its end, once it has begun."""

    def name_report(self, run_id: str) -> str:
        """The run id of the report that the task writes in the DAG run ``run_id``."""
        return run_id

    def find_told_run(self, context: Context) -> str:
        """The run that the task speaks of: of a DAG run that carries a decision out, the one that is decided on."""
        return self.name_report(context["run_id"])


def tells(execute: F) -> F:
    """A method of an operator that is given the context, and says at its end how it went."""

    @functools.wraps(execute)
    def execute_and_tell(self: TellsItsEnd, context: Context, *args: Any, **kwargs: Any) -> Any:
        if self.is_telling:  # within another one
            return execute(self, context, *args, **kwargs)
        self.is_telling, end = True, _begin(self, context)
        try:
            result = execute(self, context, *args, **kwargs)
        except BaseException as error:
            end(error)
            raise
        else:
            end(None)
            return result
        finally:
            self.is_telling = False

    return cast("F", execute_and_tell)


def _begin(operator: TellsItsEnd, context: Context) -> Callable[[BaseException | None], None]:
    """Look at how the run stands before the task; gives what is to be called with the error that ends it."""
    run_id = operator.told_run = operator.find_told_run(context)
    project = _open(operator)
    if project is None:
        untold = Untold(None)
    else:
        outcome = _outcome(_load(project, operator.pipeline, run_id))
        untold = note_untold(project.paths(operator.pipeline), run_id, outcome)

    def end(error: BaseException | None) -> None:
        try:
            _tell(operator, context, run_id, untold, error)
        except Exception as trouble:  # noqa: BLE001 - the task's own end counts, whatever happens here
            operator.log.warning(
                "not all metrics and alerts of this task were sent: %s: %s", type(trouble).__name__, trouble
            )

    return end


def _tell(operator: TellsItsEnd, context: Context, run_id: str, untold: Untold, error: BaseException | None) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException
    from airflow.sdk.exceptions import AirflowRescheduleException

    from tidegate.airflow import metrics  # a DAG file needs nothing of what it looks at

    project = _open(operator)
    if project is None or isinstance(error, AirflowRescheduleException):
        return
    report = _load(project, operator.pipeline, run_id)
    outcome = _outcome(report)
    ends_by = error.code if isinstance(error, TidegateError) else ""
    was_stopped = ends_by.endswith("_TASK_KILLED")
    if _is_of_another(outcome, untold.told, ends_by, was_stopped=was_stopped):
        return
    paths = project.paths(operator.pipeline)
    _tell_left(project, paths, run_id, context, operator.log)  # first: of a gauge the last value counts
    before = untold.look_again(paths, run_id, outcome)
    is_all_told = report is None or outcome is not None
    # What waits for a person ends the process too, by a BaseException of Airflow's own.
    failed = isinstance(error, Exception) and not isinstance(error, AirflowSkipException | HeldError)
    is_of_decision = run_id != operator.name_report(context["run_id"])
    if failed and is_of_decision and outcome == before:
        report = None  # the DAG run has failed, and the run that it was to decide on is what it was
    if metrics.are_on():
        look = operator.looks and not was_stopped
        work = operator.work
        metrics.tell(project, paths.name, report, before, operator.log, mode=work, failed=failed, look=look)
    if report is not None:
        alerts.tell_of_report(project, report, before, context, operator.log)
    if is_all_told:
        note_told(paths, run_id, untold, outcome)


def _tell_left(project: Project, paths: PipelinePaths, own: str, context: Context, log: Logger) -> None:
    """Tell of runs whose tasks were killed before they had told."""
    from tidegate.airflow import metrics

    began = time.monotonic()
    for left in list_left(paths, own, datetime.now(UTC)):
        report, told = left.report, left.told
        if time.monotonic() - began > _LEFT_SECONDS:
            return  # the next task goes on with them
        if not take_left(paths, left, datetime.now(UTC)):
            continue
        log.info(
            "run %s (%s) is told of now: its own task was ended before it could", report["run_id"], report["outcome"]
        )
        if metrics.are_on():
            metrics.tell(
                project, paths.name, report, told, log, mode=report["mode"], is_overtaken=_is_overtaken(paths, report)
            )
        alerts.tell_of_report(project, report, told, context, log)
        note_left_told(paths, left)


def _is_overtaken(paths: PipelinePaths, report: RunReport) -> bool:
    """Whether a later run has published since."""
    ended = str(report["ended_at"])
    later = (one for one in list_reports(paths) if one.outcome == "published" and one.run_id != report["run_id"])
    return any(str(one.ended_at) > ended for one in later)


def _is_of_another(outcome: str | None, before: str | None, ends_by: str, *, was_stopped: bool) -> bool:
    """Whether how the run ended is another process's to tell: this one has lost its lease, or was stopped within its
    step, so it has not brought about what the report says now."""
    if ends_by == "LEASE_LOST":
        return True
    return was_stopped and outcome not in (None, "failed", before)


def _open(operator: TellsItsEnd) -> Project | None:
    """The project, None when its file has a fault: the task itself says so."""
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
