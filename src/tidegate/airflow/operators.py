"""The operators of a pipeline's DAG. Each returns the run report, which Airflow stores as its XCom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowSkipException

from tidegate.airflow.decision import ASKED, AnswerEvent, ask, mark_held, name_responder, read_answer
from tidegate.airflow.form import REFUSED, AskedDecision, TriggerForm, read_form
from tidegate.airflow.next_steps import reword
from tidegate.airflow.requested_work import days_of, decide_held, find_target_run, is_backfill, run_side_job
from tidegate.airflow.task import HasLineage, PipelineTask, pipeline_step
from tidegate.core.errors import HeldError, SourceLostError, TidegateError, UsageError
from tidegate.core.words import escape_controls
from tidegate.runs.reports.report import RUN_ID_AT_MOST
from tidegate.views.signals.asset_event import shrink_report

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from tidegate.airflow.hook import DriverHook
    from tidegate.core.outputs import RunReport
    from tidegate.runs.recovery.context import Submit
    from tidegate.spec.project import Project


class DriverOperator(PipelineTask, SparkSubmitOperator):
    """A step that may start a Spark driver, through the connection that ``conn_id`` names."""

    # No templates: text from a trigger form must not be rendered into a command.
    template_fields: Sequence[str] = ()

    _driver: DriverHook | None = None

    def make_driver(self) -> DriverHook:
        """Make the hook that starts the driver, which :meth:`on_kill` ends. Raises UsageError for a bad connection."""
        from tidegate.airflow.hook import DriverHook

        self._driver = DriverHook(conn_id=self._conn_id, name=self.name)
        return self._driver

    def open_with_driver(self) -> tuple[Project, Submit]:
        """Load the project, with the master of the connection, and make the function that runs a driver there."""
        driver = self.make_driver()
        return self.open_project().on_master(driver.master), driver.run

    def on_kill(self) -> None:
        """End the driver's process tree within 4 s; without a driver, stop the step itself."""
        if self._driver is not None and self._driver.is_running:
            self._driver.on_kill()
        else:
            PipelineTask.on_kill(self)


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

    @pipeline_step
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report so far."""
        of_backfill = is_backfill(context["dag_run"])
        form = read_form(context["params"], context["dag_run"].conf, of_backfill=of_backfill)
        try:
            return self._carry_out(context, form, of_backfill=of_backfill)
        except (UsageError, SourceLostError) as error:
            if of_backfill or form.asks_for_side_job:  # such a run has no report before it has begun
                context["ti"].xcom_push(key=REFUSED, value=error.to_dict())
            raise

    def _carry_out(self, context: Context, form: TriggerForm, *, of_backfill: bool) -> RunReport:
        from tidegate.runs.steps import ingest_run

        if form.backfill is not None or of_backfill:
            return self._rebuild(context, form.backfill)
        if form.decision is not None and (held := self._decide(context, form.decision)) is not None:
            return held
        project, submit = self.open_with_driver()
        run_id = context["run_id"]
        if form.refresh is not None or form.replay is not None:  # the downstream tasks find the run published
            return self._finish(context, run_side_job(project, self.pipeline, run_id, form, submit=submit))
        report = ingest_run(project, self.pipeline, run_id, accept_loss=form.accept_loss, submit=submit)
        return self._finish(context, report)

    def _finish(self, context: Context, report: RunReport) -> RunReport:
        self.log_report(report)
        if report["outcome"] == "nothing_new":
            skip(context, report, f"{self.pipeline}: nothing new")
        return report

    def _decide(self, context: Context, asked: AskedDecision) -> RunReport | None:
        """Carry out the decision on what is held under another run id.

        Returns:
            The report of that run, which the downstream tasks continue with; None for ``reread``, which this run does.
        """
        who = name_responder({"name": getattr(context["dag_run"], "triggering_user_name", None)})
        report = decide_held(self.open_project(), self.pipeline, asked, who, self.log.info)
        if report is None:
            return None
        self.log_report(report)
        if report["outcome"] is None:  # of a backfill, one part
            skip(context, report, f"{self.pipeline}: clear run {asked.run_id} to continue with the parts left")
        return report

    def _rebuild(self, context: Context, asked: tuple[str, str] | None) -> RunReport:
        """Rebuild the days ``asked`` for, else those of the run's interval, instead of reading what is new. The
        downstream tasks find the run published."""
        from tidegate.rework.backfill.command import backfill_table
        from tidegate.rework.backfill.span import Wanted

        days = asked or days_of(context["dag_run"], self.cron)
        if days is None:
            raise AirflowSkipException(f"{self.pipeline}: no day begins in this run's interval, so another rebuilds it")
        project, submit = self.open_with_driver()
        try:
            report = backfill_table(project, self.pipeline, context["run_id"], Wanted(*days), submit=submit)
        except TidegateError as error:
            if asked is not None or error.code != "BACKFILL_NO_SUCH_PARTITION":
                raise
            raise AirflowSkipException(f"{self.pipeline}: {error.message}") from None
        return self.log_report(report)


class AuditOperator(HasLineage):
    """Check the increment that the run staged. If it is held, the task opens a Required Action, waits for the answer
    without a process, and carries it out.
    """

    ui_color = "#fff3c4"
    lineage = "audit"

    @pipeline_step
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report with the verdict. Raises the step's errors, also when another run's
        increment is held."""
        from tidegate.runs.gate_steps import audit_run

        run_id = find_target_run(context)
        try:
            report = audit_run(self.open_project(), self.pipeline, run_id)
        except HeldError as held:
            if held.code not in ASKED:
                raise
            for line in str(reword(held)).splitlines():
                self.log.warning("%s", line)
            of = mark_held(self.open_project().paths(self.pipeline), run_id)
            ask(self, context, self.pipeline, held, "execute_decision", of)
            raise
        return self._finish(report)

    @pipeline_step
    def execute_decision(self, context: Context, event: AnswerEvent, of: str | None = None) -> RunReport:
        """Carry out a person's answer. The task asks again when the answer is refused, or when other records are held
        under this run id than the answer was about (``of``).

        The first decision counts: if somebody decided in a terminal in the meantime, this run ends with that decision.
        """
        try:
            answer = read_answer(event)
            run_id = find_target_run(context)
            held_now = mark_held(self.open_project().paths(self.pipeline), run_id)
            if None not in (of, held_now) and of != held_now:
                self.log.warning("the answer was about another increment than the one held now: asking again")
                return self.execute(context)
            asked = AskedDecision(answer.decision, run_id, answer.reason)
            report = decide_held(self.open_project(), self.pipeline, asked, answer.who, self.log.info)
            if report is not None:
                return self._finish(report)
        except (UsageError, SourceLostError) as error:
            for line in str(reword(error)).splitlines():
                self.log.error("%s", line)
            return self.execute(context)
        raise AirflowSkipException(
            f"{answer.who} decided that run {context['run_id']} is read again; the next run of {self.pipeline} does "
            "that first"
        )

    def _finish(self, report: RunReport) -> RunReport:
        self.log_report(report)
        for warning in report["quality"].get("warnings") or ():
            self.log.warning("%s", escape_controls(warning))
        return report


class PublishOperator(HasLineage):
    """Publish the checked increment; the event of the table's asset carries the report as its extra."""

    ui_color = "#d9f2d9"
    lineage = "publish"

    def __init__(self, *, asset: Asset, **kwargs: Any) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.asset = asset

    @pipeline_step
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the finished run report."""
        from tidegate.runs.gate_steps import publish_run

        report = self.log_report(publish_run(self.open_project(), self.pipeline, find_target_run(context)))
        if report["outcome"] != "published":
            # No asset event: no other DAG should start for a table that did not change.
            skip(context, report, f"{self.pipeline}: {report['outcome']}")
        context["outlet_events"][self.asset].extra = shrink_report(report)
        return report


class DeliverOperator(HasLineage, DriverOperator):
    """Deliver what was published to the further sinks. This is a separate task because it may need Spark, and because
    the table and its asset event must not depend on sinks; the next run's ingest first delivers what failed here.
    """

    ui_color = "#e8def8"
    lineage = "deliver"

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, name=f"tidegate-{pipeline}-sinks", **kwargs)

    @pipeline_step
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report with the progress of each sink. Raises TryAgainError SINK_FAILED."""
        from tidegate.runs.deliver import deliver_run

        project, submit = self.open_with_driver()
        return self.log_report(deliver_run(project, self.pipeline, find_target_run(context), submit=submit))


class MaintainOperator(PipelineTask):
    """Runs ``tidegate maintain``. It starts no Spark driver, so it needs no slot of the project's pool."""

    ui_color = "#e6e6e6"
    work = "maintain"

    @pipeline_step
    def execute(self, context: Context) -> RunReport:
        """Maintain the pipeline; returns the report. Raises TryAgainError LEASE_HELD while a run is active."""
        from tidegate.rework.maintain.command import maintain_pipeline

        return self.log_report(
            maintain_pipeline(self.open_project(), self.pipeline, self.name_report(context["run_id"]))
        )

    def name_report(self, run_id: str) -> str:
        """The run id with a prefix: runs of the pipeline's own DAG may have the same id."""
        return f"maintain__{run_id}"[:RUN_ID_AT_MOST]


def skip(context: Context, report: RunReport, why: str) -> NoReturn:
    """Skip the task and those downstream of it; its XCom is the report all the same."""
    context["ti"].xcom_push(key="return_value", value=report)
    raise AirflowSkipException(why)
