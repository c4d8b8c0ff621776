"""The tasks of a pipeline's DAG. Each returns the run report, which Airflow keeps as its XCom."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator

from tidegate.airflow.backfills import days_of, is_backfill
from tidegate.airflow.beside import decide_held, run_of, work_beside
from tidegate.airflow.decision import ASKED, Answer, ask, in_turn, mark_held, name_responder, read_answer
from tidegate.airflow.ending import TellsItsEnd, tells
from tidegate.airflow.form import read_form
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
    from tidegate.spec.project import Project


class TellsOfRun(TellsItsEnd):
    """The end of a task that is a step of a run."""

    def find_told_run(self, context: Context) -> str:
        """The run that the step is of; with a form that is refused, the DAG run's own."""
        try:
            return run_of(context)
        except UsageError:
            return str(context["run_id"])

    def of_lineage(self, task_instance: Any) -> str:
        """The run that lineage speaks of."""
        return self.told_run or str(task_instance.run_id)


class DriverOperator(TellsOfRun, SparkSubmitOperator):
    """A step that may start a Spark driver, through the project's connection.

    ``pipeline`` and ``project_root`` (an absolute path) say which; ``conn_id`` names the Spark connection.
    ``takes_turns``: several runs of the DAG are active, and each waits until the lease is free.
    """

    # Nothing here is a template: text from a trigger form must not be rendered into a command.
    template_fields: Sequence[str] = ()

    def __init__(self, *, pipeline: str, project_root: str, takes_turns: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root
        self.takes_turns = takes_turns
        self._driver: DriverHook | None = None

    def make_driver(self) -> DriverHook:
        """The hook that starts the driver, known to :meth:`on_kill`. Raises UsageError for a bad connection."""
        from tidegate.airflow.hook import DriverHook

        self._driver = DriverHook(conn_id=self._conn_id, name=self.name)
        return self._driver

    def on_kill(self) -> None:
        """End the driver with everything it started, within 4 s; without one, stop the step itself."""
        if self._driver is not None and self._driver.is_running:
            self._driver.on_kill()
        else:
            stop_python_step()


class IngestOperator(DriverOperator):
    """Drain what arrived: pre-check without a JVM, then one spark-submit.

    Nothing new and nothing owed: the task is skipped, and with it those behind it. Raises the errors of
    :func:`tidegate.runs.steps.ingest_run`, and :class:`UsageError` for a bad connection or a bad trigger form.
    """

    ui_color = "#d7ecff"
    looks = True

    def __init__(self, *, pipeline: str, cron: str | None = None, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, name=f"tidegate-{pipeline}", **kwargs)
        self.cron = cron

    @tells
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
                return self._work_beside(context, form)
            driver = self.make_driver()
            report = ingest_run(
                open_project(self.project_root).on_master(driver.master),
                self.pipeline,
                context["run_id"],
                accept_loss=form.accept_loss,
                submit=driver.run,
            )
        return self._tell(context, report)

    def _tell(self, context: Context, report: RunReport) -> RunReport:
        self.log.info("%s", describe_report(report))
        if report["outcome"] == "nothing_new":
            context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"{self.pipeline}: nothing new")
        return report

    def _work_beside(self, context: Context, form: TriggerForm) -> RunReport:
        """A refresh or a replay instead of what is new. The tasks behind this one find the run published."""
        driver = self.make_driver()
        project = open_project(self.project_root).on_master(driver.master)
        return self._tell(context, work_beside(project, self.pipeline, context["run_id"], form, submit=driver.run))

    def _decide(self, context: Context, asked: AskedDecision) -> RunReport | None:
        """Decide on what is held under another run id; its report, of which the tasks behind this one speak, or None
        where it is read again: this run does that first."""
        who = name_responder({"name": getattr(context["dag_run"], "triggering_user_name", None)})
        report = decide_held(open_project(self.project_root), self.pipeline, asked, who, self.log.info)
        if report is None:
            return None
        self.log.info("%s", describe_report(report))
        if report["outcome"] is None:  # of a backfill, one part
            context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"{self.pipeline}: clear run {asked.run_id}, and it goes on with what is left")
        return report

    def _rebuild(self, context: Context, asked: tuple[str, str] | None) -> RunReport:
        """Rebuild days instead of reading what is new: those ``asked`` for, else those of the run's own interval. The
        tasks behind this one find the run published."""
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


class AuditOperator(TellsOfRun, BaseOperator):
    """Check the increment that the run staged. When it is held the task asks a person (a Required Action) and waits
    for the answer without a process; the answer is carried out by this task.
    """

    ui_color = "#fff3c4"

    def __init__(self, *, pipeline: str, project_root: str, takes_turns: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root
        self.takes_turns = takes_turns

    @tells
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report with the verdict. Raises the step's errors; what is held under another
        run is one of them."""
        bind_to_supervisor()
        from tidegate.runs.steps import audit_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            try:
                report = audit_run(open_project(self.project_root), self.pipeline, run_of(context))
            except HeldError as held:
                if held.code not in ASKED:
                    raise
                for line in str(held).splitlines():
                    self.log.warning("%s", line)
                of = mark_held(open_project(self.project_root).paths(self.pipeline), run_of(context))
                ask(self, context, self.pipeline, held, "execute_decision", of)
                raise
        return self._tell(report)

    @tells
    def execute_decision(self, context: Context, event: dict[str, Any], of: str | None = None) -> RunReport:
        """Carry out what a person answered; an answer that cannot be taken is asked for again, and so is one to
        what was held before (``of``), when other records have been held under this run id since.

        Of two decisions the first counts: what was decided in a terminal meanwhile stays, and is what this run ends
        with.
        """
        bind_to_supervisor()
        with explain_errors(self.log, self.project_root):
            try:
                answer = read_answer(event)
                held_now = mark_held(open_project(self.project_root).paths(self.pipeline), run_of(context))
                if None not in (of, held_now) and of != held_now:
                    self.log.warning("this answer was to another increment than is held now: it is asked for again")
                    return self.execute(context)
                if (report := self._carry_out(answer, run_of(context))) is not None:
                    return self._tell(report)
            except (UsageError, SourceLostError) as error:
                for line in str(error).splitlines():
                    self.log.error("%s", line)
                return self.execute(context)
        raise AirflowSkipException(
            f"{answer.who} decided that run {context['run_id']} is read again; the next run of {self.pipeline} does "
            "that first"
        )

    def _carry_out(self, answer: Answer, run_id: str) -> RunReport | None:
        """Do what was decided; the finished report, or None when the next run does it."""
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

    def _tell(self, report: RunReport) -> RunReport:
        self.log.info("%s", describe_report(report))
        for warning in report["quality"].get("warnings") or ():
            self.log.warning("%s", warning)
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the OpenLineage provider: what the rules came to."""
        from tidegate.airflow.lineage import tell_lineage
        from tidegate.views.signals.lineage import of_audit

        return tell_lineage(self.project_root, self.pipeline, self.of_lineage(task_instance), of_audit)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Nothing: the table has nothing of what failed the audit."""
        return None

    def on_kill(self) -> None:
        """Stop the step at once."""
        stop_python_step()


class PublishOperator(TellsOfRun, BaseOperator):
    """Add the checked increment to the table, and say so: the table's asset, with the report as the event's extra."""

    ui_color = "#d9f2d9"

    def __init__(
        self, *, pipeline: str, project_root: str, asset: Asset, takes_turns: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.takes_turns = takes_turns
        self.pipeline = pipeline
        self.project_root = project_root
        self.asset = asset

    @tells
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the finished run report."""
        bind_to_supervisor()
        from tidegate.runs.steps import publish_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            report = publish_run(open_project(self.project_root), self.pipeline, run_of(context))
        self.log.info("%s", describe_report(report))
        if report["outcome"] != "published":
            # No asset event: nobody downstream should start for a table that did not change.
            context["ti"].xcom_push(key="return_value", value=report)
            raise AirflowSkipException(f"{self.pipeline}: {report['outcome']}")
        context["outlet_events"][self.asset].extra = shrink_report(report)
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the OpenLineage provider: from the sources to the table."""
        from tidegate.airflow.lineage import tell_lineage
        from tidegate.views.signals.lineage import of_publish

        return tell_lineage(self.project_root, self.pipeline, self.of_lineage(task_instance), of_publish)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Nothing: the next run publishes it, or finds that it is published, and says so."""
        return None

    def on_kill(self) -> None:
        """Stop the step at once; the next run finishes a publish that was begun."""
        stop_python_step()


class DeliverOperator(DriverOperator):
    """Feed further sinks with what was published. A task of its own: it may need Spark, and when a sink is away the
    table is published anyway, with its asset event; what it could not feed, the next run's ingest feeds first.
    """

    ui_color = "#e8def8"

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, name=f"tidegate-{pipeline}-sinks", **kwargs)

    @tells
    def execute(self, context: Context) -> RunReport:
        """Run the step; returns the run report with how far each sink is. Raises TryAgainError SINK_FAILED."""
        bind_to_supervisor()
        from tidegate.runs.steps import deliver_run

        with explain_errors(self.log, self.project_root, takes_turns=self.takes_turns):
            driver = self.make_driver()
            project = open_project(self.project_root).on_master(driver.master)
            report = deliver_run(project, self.pipeline, run_of(context), submit=driver.run)
        self.log.info("%s", describe_report(report))
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the OpenLineage provider: from the table to the topics that were fed."""
        from tidegate.airflow.lineage import tell_lineage
        from tidegate.views.signals.lineage import of_delivery

        return tell_lineage(self.project_root, self.pipeline, self.of_lineage(task_instance), of_delivery)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Nothing: what a sink lacks is fed by a later run."""
        return None


class MaintainOperator(TellsItsEnd, BaseOperator):
    """``tidegate maintain`` of one pipeline. It starts no Spark driver, and so needs no slot of the project's pool."""

    ui_color = "#e6e6e6"
    work = "maintain"

    def __init__(self, *, pipeline: str, project_root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.project_root = project_root

    @tells
    def execute(self, context: Context) -> RunReport:
        """Do the work; returns its report. Raises TryAgainError LEASE_HELD while a run is at work."""
        bind_to_supervisor()
        from tidegate.rework.maintain.command import maintain_pipeline

        with explain_errors(self.log, self.project_root):
            run_id = self.name_report(context["run_id"])
            report = maintain_pipeline(open_project(self.project_root), self.pipeline, run_id)
        self.log.info("%s", describe_report(report))
        return report

    def name_report(self, run_id: str) -> str:
        """Runs of two DAGs may have the same id, and a report belongs to one piece of work."""
        return f"maintain__{run_id}"[:RUN_ID_AT_MOST]

    def on_kill(self) -> None:
        """Stop at once; the next run finishes a version that was begun."""
        stop_python_step()


@contextlib.contextmanager
def explain_errors(log: Logger, project_root: str, *, takes_turns: bool = False) -> Iterator[None]:
    """Put what happened, where, and what to do into the task log, as lines that can be read without the traceback.

    ``takes_turns``: while another run has the lease the task is put off, which costs it none of its retries.
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
    """The project at ``root``, read afresh: its settings may have changed since the DAG was parsed."""
    from tidegate.spec.project import load_project

    return load_project(Path(root))
