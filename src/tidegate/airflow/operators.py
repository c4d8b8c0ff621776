"""The operators of a pipeline's DAG. Each returns the run report, which Airflow stores as its XCom."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator

from tidegate.airflow.backfills import days_of, is_backfill
from tidegate.airflow.decision import ASKED, Answer, ask, in_turn, mark_held, name_responder, read_answer
from tidegate.airflow.ending import ReportsOutcome, reports_outcome
from tidegate.airflow.form import read_form
from tidegate.airflow.requested_work import decide_held, find_target_run, run_side_job
from tidegate.airflow.retries import as_final, as_turn
from tidegate.airflow.supervision import bind_to_supervisor, stop_python_step
from tidegate.core.errors import HeldError, SourceLostError, TidegateError, UsageError
from tidegate.runs.reports.run_ids import RUN_ID_AT_MOST
from tidegate.spark.driver.progress import describe_report
from tidegate.views.signals.asset_event import shrink_report

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from tidegate.airflow.form import AskedDecision, TriggerForm
    from tidegate.airflow.hook import DriverHook
    from tidegate.core.outputs import RunReport
    from tidegate.spec.models import PipelineSpec
    from tidegate.spec.project import Project
    from tidegate.views.signals.lineage import Lineage


class ReportsRunOutcome(ReportsOutcome):
    """Reports the outcome of a task that is a step of a run."""

    def find_reported_run(self, context: Context) -> str:
        """The run that the step belongs to; the DAG run's own id when its form is refused."""
        try:
            return find_target_run(context)
        except UsageError:
            return str(context["run_id"])

    def make_lineage(self, task_instance: Any, find: Callable[[Project, PipelineSpec, RunReport], Lineage]) -> Any:
        """The lineage of the step's run, for the OpenLineage provider."""
        from tidegate.airflow.lineage import make_lineage

        run_id = self.reported_run or str(task_instance.run_id)
        return make_lineage(self.project_root, self.pipeline, run_id, find)


class DriverOperator(ReportsRunOutcome, SparkSubmitOperator):
    """A step that may start a Spark driver, through the project's connection.

    ``project_root`` is an absolute path; ``conn_id`` names the Spark connection. ``takes_turns``: several runs of the
    DAG may be active, and each waits until the lease is free.
    """

    # No templates: text from a trigger form must not be rendered into a command.
    template_fields: Sequence[str] = ()

    def __init__(self, *, pipeline: str, project_root: str, takes_turns: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root
        self.takes_turns = takes_turns
        self._driver: DriverHook | None = None

    def make_driver(self) -> DriverHook:
        """Make the hook that starts the driver, which :meth:`on_kill` ends. Raises UsageError for a bad connection."""
        from tidegate.airflow.hook import DriverHook

        self._driver = DriverHook(conn_id=self._conn_id, name=self.name)
        return self._driver

    def on_kill(self) -> None:
        """End the driver's process tree within 4 s; without a driver, stop the step itself."""
        if self._driver is not None and self._driver.is_running:
            self._driver.on_kill()
        else:
            stop_python_step()


class IngestOperator(DriverOperator):
    """Ingest what is new: a check without a JVM, then one spark-submit.

    If nothing is new or pending, the task and those downstream of it are skipped. Raises the errors of
    :func:`tidegate.runs.steps.ingest_run`, and :class:`UsageError` for a bad connection or a bad trigger form.
    """

    ui_color = "#d7ecff"
    looks = True

    def __init__(self, *, pipeline: str, cron: str | None = None, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, name=f"tidegate-{pipeline}", **kwargs)
        self.cron = cron

    @reports_outcome
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report so far."""
        bind_to_supervisor()
        from tidegate.runs.steps import ingest_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            of_backfill = is_backfill(context["dag_run"])
            form = read_form(context["params"], context["dag_run"].conf, of_backfill=of_backfill)
            if form.backfill is not None or of_backfill:
                return self._rebuild(context, form.backfill)
            if form.decision is not None and (held := self._decide(context, form.decision)) is not None:
                return held
            if form.refresh is not None or form.replay is not None:
                return self._run_side_job(context, form)
            driver = self.make_driver()
            report = ingest_run(
                open_project(self.project_root).on_master(driver.master),
                self.pipeline,
                context["run_id"],
                accept_loss=form.accept_loss,
                submit=driver.run,
            )
        return self._finish(context, report)

    def _finish(self, context: Context, report: RunReport) -> RunReport:
        self.log.info("%s", describe_report(report))
        if report["outcome"] == "nothing_new":
            context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"{self.pipeline}: nothing new")
        return report

    def _run_side_job(self, context: Context, form: TriggerForm) -> RunReport:
        """Refresh or replay instead of reading what is new. The downstream tasks find the run published."""
        driver = self.make_driver()
        project = open_project(self.project_root).on_master(driver.master)
        return self._finish(context, run_side_job(project, self.pipeline, context["run_id"], form, submit=driver.run))

    def _decide(self, context: Context, asked: AskedDecision) -> RunReport | None:
        """Carry out the decision on what is held under another run id.

        Returns:
            The report of that run, which the downstream tasks continue with; None for ``reread``, which this run does.
        """
        who = name_responder({"name": getattr(context["dag_run"], "triggering_user_name", None)})
        report = decide_held(open_project(self.project_root), self.pipeline, asked, who, self.log.info)
        if report is None:
            return None
        self.log.info("%s", describe_report(report))
        if report["outcome"] is None:  # of a backfill, one part
            context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"{self.pipeline}: clear run {asked.run_id} to continue with the parts left")
        return report

    def _rebuild(self, context: Context, asked: tuple[str, str] | None) -> RunReport:
        """Rebuild the days ``asked`` for, else those of the run's interval, instead of reading what is new. The
        downstream tasks find the run published."""
        from tidegate.rework.backfill.command import backfill_table
        from tidegate.rework.backfill.span import Wanted

        days = asked or days_of(context["dag_run"], self.cron)
        if days is None:
            raise AirflowSkipException(f"{self.pipeline}: no day begins in this run's interval, so another rebuilds it")
        driver = self.make_driver()
        project = open_project(self.project_root).on_master(driver.master)
        try:
            report = backfill_table(project, self.pipeline, context["run_id"], Wanted(*days), submit=driver.run)
        except TidegateError as error:
            if asked is not None or error.code != "BACKFILL_NO_SUCH_PARTITION":
                raise
            raise AirflowSkipException(f"{self.pipeline}: {error.message}") from None
        self.log.info("%s", describe_report(report))
        return report


class AuditOperator(ReportsRunOutcome, BaseOperator):
    """Check the increment that the run staged. If it is held, the task opens a Required Action, waits for the answer
    without a process, and carries it out.
    """

    ui_color = "#fff3c4"

    def __init__(self, *, pipeline: str, project_root: str, takes_turns: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root
        self.takes_turns = takes_turns

    @reports_outcome
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report with the verdict. Raises the step's errors, also when another run's
        increment is held."""
        bind_to_supervisor()
        from tidegate.runs.steps import audit_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            try:
                report = audit_run(open_project(self.project_root), self.pipeline, find_target_run(context))
            except HeldError as held:
                if held.code not in ASKED:
                    raise
                for line in str(held).splitlines():
                    self.log.warning("%s", line)
                of = mark_held(open_project(self.project_root).paths(self.pipeline), find_target_run(context))
                ask(self, context, self.pipeline, held, "execute_decision", of)
                raise
        return self._finish(report)

    @reports_outcome
    def execute_decision(self, context: Context, event: dict[str, Any], of: str | None = None) -> RunReport:
        """Carry out a person's answer. The task asks again when the answer is refused, or when other records are held
        under this run id than the answer was about (``of``).

        The first decision counts: if somebody decided in a terminal in the meantime, this run ends with that decision.
        """
        bind_to_supervisor()
        with explain_errors(self.log, self.project_root):
            try:
                answer = read_answer(event)
                held_now = mark_held(open_project(self.project_root).paths(self.pipeline), find_target_run(context))
                if None not in (of, held_now) and of != held_now:
                    self.log.warning("the answer was about another increment than the one held now: asking again")
                    return self.execute(context)
                if (report := self._carry_out(answer, find_target_run(context))) is not None:
                    return self._finish(report)
            except (UsageError, SourceLostError) as error:
                for line in str(error).splitlines():
                    self.log.error("%s", line)
                return self.execute(context)
        raise AirflowSkipException(
            f"{answer.who} decided that run {context['run_id']} is read again; the next run of {self.pipeline} does "
            "that first"
        )

    def _carry_out(self, answer: Answer, run_id: str) -> RunReport | None:
        """Carry out the decision; returns the finished report, or None when the next run does it."""
        from tidegate.runs.steps import decide, decide_reread

        project, why, who = open_project(self.project_root), answer.reason, answer.who
        if answer.decision == "reread":
            in_turn(lambda: decide_reread(project, self.pipeline, run_id, reason=why, who=who), self.log.info)
            return None
        ruling = answer.decision
        report = in_turn(
            lambda: decide(project, self.pipeline, run_id, decision=ruling, reason=why, who=who), self.log.info
        )
        self.log.info("%s decided to %s it: %s", who, ruling, why)
        return report

    def _finish(self, report: RunReport) -> RunReport:
        self.log.info("%s", describe_report(report))
        for warning in report["quality"].get("warnings") or ():
            self.log.warning("%s", warning)
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the OpenLineage provider: the results of the rules."""
        from tidegate.views.signals.lineage import of_audit

        return self.make_lineage(task_instance, of_audit)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Nothing: an increment that fails the audit is not in the table."""
        return None

    def on_kill(self) -> None:
        """Stop the step at once."""
        stop_python_step()


class PublishOperator(ReportsRunOutcome, BaseOperator):
    """Publish the checked increment; the event of the table's asset carries the report as its extra."""

    ui_color = "#d9f2d9"

    def __init__(
        self, *, pipeline: str, project_root: str, asset: Asset, takes_turns: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.takes_turns = takes_turns
        self.pipeline = pipeline
        self.project_root = project_root
        self.asset = asset

    @reports_outcome
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the finished run report."""
        bind_to_supervisor()
        from tidegate.runs.steps import publish_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            report = publish_run(open_project(self.project_root), self.pipeline, find_target_run(context))
        self.log.info("%s", describe_report(report))
        if report["outcome"] != "published":
            # No asset event: no other DAG should start for a table that did not change.
            context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"{self.pipeline}: {report['outcome']}")
        context["outlet_events"][self.asset].extra = shrink_report(report)
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the OpenLineage provider: from the sources to the table."""
        from tidegate.views.signals.lineage import of_publish

        return self.make_lineage(task_instance, of_publish)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Nothing: the next run publishes the increment, or finds it published, and reports that."""
        return None

    def on_kill(self) -> None:
        """Stop the step at once; the next run finishes a publish that has begun."""
        stop_python_step()


class DeliverOperator(DriverOperator):
    """Deliver what was published to the further sinks. This is a separate task because it may need Spark, and because
    the table and its asset event must not depend on sinks; the next run's ingest first delivers what failed here.
    """

    ui_color = "#e8def8"

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, name=f"tidegate-{pipeline}-sinks", **kwargs)

    @reports_outcome
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report with the progress of each sink. Raises TryAgainError SINK_FAILED."""
        bind_to_supervisor()
        from tidegate.runs.steps import deliver_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            driver = self.make_driver()
            project = open_project(self.project_root).on_master(driver.master)
            report = deliver_run(project, self.pipeline, find_target_run(context), submit=driver.run)
        self.log.info("%s", describe_report(report))
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the OpenLineage provider: from the table to the topics that were written."""
        from tidegate.views.signals.lineage import of_delivery

        return self.make_lineage(task_instance, of_delivery)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Nothing: a later run delivers what a sink does not have."""
        return None


class MaintainOperator(ReportsOutcome, BaseOperator):
    """Runs ``tidegate maintain``. It starts no Spark driver, so it needs no slot of the project's pool."""

    ui_color = "#e6e6e6"
    work = "maintain"

    def __init__(self, *, pipeline: str, project_root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root

    @reports_outcome
    def execute(self, context: Context) -> RunReport:
        """Maintain the pipeline; returns the report. Raises TryAgainError LEASE_HELD while a run is active."""
        bind_to_supervisor()
        from tidegate.rework.maintain.command import maintain_pipeline

        with explain_errors(self.log, self.project_root):
            run_id = self.name_report(context["run_id"])
            report = maintain_pipeline(open_project(self.project_root), self.pipeline, run_id)
        self.log.info("%s", describe_report(report))
        return report

    def name_report(self, run_id: str) -> str:
        """The run id with a prefix: runs of the pipeline's own DAG may have the same id."""
        return f"maintain__{run_id}"[:RUN_ID_AT_MOST]

    def on_kill(self) -> None:
        """Stop at once; the next run finishes a version that has begun."""
        stop_python_step()


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
            log.info("%s", known.message)
            raise as_turn() from error
        for line in str(known).splitlines():
            log.error("%s", line)
        final = as_final(known)
        if final is error:
            raise
        raise final from error


def open_project(root: str) -> Project:
    """Load the project at ``root`` again: its settings may have changed since the DAG was parsed."""
    from tidegate.spec.project import load_project

    return load_project(Path(root))
