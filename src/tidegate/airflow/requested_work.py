"""Work of a run that reads nothing new: the days of a backfill, or a refresh, a replay or a decision that its form
requests.

A scheduled run reads what is new, whatever its date. A run of an Airflow backfill (the button, ``airflow backfill
create``) is recognized by its type. It rebuilds the days that begin in its interval: from its logical date up to the
next tick of the schedule. If a pipeline runs every ten minutes, the run of midnight rebuilds the day and the others
have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from tidegate.airflow.decision import in_turn, mark_held
from tidegate.airflow.form import DECIDE, AskedDecision, TriggerForm, read_form, refuse
from tidegate.spec.cron import find_next_tick

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

    from tidegate.core.outputs import RunReport
    from tidegate.core.paths import PipelinePaths
    from tidegate.runs.recovery.context import Submit
    from tidegate.spec.project import Project


_ONE_DAY = timedelta(days=1)


def is_backfill(dag_run: DagRunProtocol) -> bool:
    """Return whether Airflow made this run for a backfill."""
    return str(getattr(dag_run.run_type, "value", dag_run.run_type)) == "backfill"


def days_of(dag_run: DagRunProtocol, schedule: str | None) -> tuple[str, str] | None:
    """The first and the last day (UTC) that begin in the interval of a backfill run; None when none does."""
    begin, end = dag_run.data_interval_start, dag_run.data_interval_end
    if begin is None or end is None or begin == end:
        begin = dag_run.logical_date
        end = find_next_tick(schedule, begin) if schedule is not None else begin + _ONE_DAY
    first = datetime.combine(begin.astimezone(UTC).date(), time(), UTC)
    if first < begin:
        first += _ONE_DAY
    days = []
    while first < end:
        days.append(first.date().isoformat())
        first += _ONE_DAY
    return (days[0], days[-1]) if days else None


def find_target_run(context: Context) -> str:
    """The run that the tasks of a DAG run work on: the run that its form decides on, else the DAG run itself (also
    for ``reread``, which it carries out). Raises UsageError TRIGGER_FORM_REFUSED."""
    dag_run = context["dag_run"]
    asked = read_form(context["params"], dag_run.conf, of_backfill=is_backfill(dag_run)).decision
    return str(context["run_id"] if asked is None or asked.decision == "reread" else asked.run_id)


def run_side_job(project: Project, name: str, run_id: str, form: TriggerForm, *, submit: Submit) -> RunReport:
    """Carry out the refresh or the replay that ``form`` requests, and return its report."""
    if form.refresh is not None:
        from tidegate.rework.backfill.command import refresh_table

        return refresh_table(project, name, run_id, keeps_older=form.refresh == "keep-older", submit=submit)
    from tidegate.rework.replay.choose import Selection
    from tidegate.rework.replay.command import replay_records
    from tidegate.table.quarantine.filters import QuarantineFilter

    assert form.replay is not None
    wanted = QuarantineFilter(run_id=form.replay.run_id, reason=form.replay.reason)
    return replay_records(project, name, run_id, Selection(wanted), submit=submit)


def decide_held(
    project: Project, name: str, asked: AskedDecision, who: str, log: Callable[[str], object]
) -> RunReport | None:
    """Carry out a decision. Deciding the same again changes nothing. Raises the errors of the commands.

    Returns:
        The report of the run that was held; None where the next ingest reads its records again.
    """
    from tidegate.rework.held import decide_held_work
    from tidegate.runs.decide import decide_reread
    from tidegate.runs.reports.verdicts import Answer

    ruling, run_id, why = asked.decision, asked.run_id, asked.reason
    held_now = None if asked.of is None else mark_held(project.paths(name), run_id)
    if held_now not in (None, asked.of):
        fault = f"other records are held under {run_id} now: look at them, and decide again"
        raise refuse(fault, DECIDE)
    if ruling == "reread":
        if not _is_being_read_again(project.paths(name), run_id):
            in_turn(lambda: decide_reread(project, name, run_id, reason=why, who=who), log)
        return None
    report = in_turn(lambda: decide_held_work(project, name, run_id, Answer(ruling, why, who)), log)
    log(f"{who} decided to {ruling} {run_id}: {why}")
    return report


def _is_being_read_again(paths: PipelinePaths, run_id: str) -> bool:
    """Return whether ``reread`` was decided and is recorded or begun, as a retry of the task finds it."""
    from tidegate.runs.reports.report import load_report
    from tidegate.runs.reports.verdicts import load_decision, load_verdict

    verdict = load_verdict(paths, run_id)
    if verdict is not None:
        ruling = load_decision(paths, verdict)
        return ruling is not None and ruling.decision == "reread"
    report = load_report(paths, run_id)
    return report is not None and report.decision is not None and report.decision["decision"] == "reread"
