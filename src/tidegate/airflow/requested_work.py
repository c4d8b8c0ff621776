"""Work that a trigger form requests instead of reading what is new: a refresh, a replay, or a decision on what is held
under another run id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.airflow import errors
from tidegate.airflow.backfills import is_backfill
from tidegate.airflow.decision import in_turn, mark_held
from tidegate.airflow.form import AskedDecision, TriggerForm, read_form

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport
    from tidegate.core.paths import PipelinePaths
    from tidegate.runs.recovery.context import Submit
    from tidegate.spec.project import Project


def find_target_run(context: Any) -> str:
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
    from tidegate.rework.backfill.held import decide_backfill, find_decided, is_held_backfill
    from tidegate.runs.steps import decide, decide_reread

    ruling, run_id, why = asked.decision, asked.run_id, asked.reason
    held_now = None if asked.of is None else mark_held(project.paths(name), run_id)
    if held_now not in (None, asked.of):
        fault = f"other records are held under {run_id} now: look at them, and decide again"
        raise errors.TRIGGER_FORM_REFUSED(where="conf of the DAG run", fault=fault)
    if ruling == "reread":
        if not _is_being_read_again(project.paths(name), run_id):
            in_turn(lambda: decide_reread(project, name, run_id, reason=why, who=who), log)
        return None
    if is_held_backfill(project, name, run_id):
        report = in_turn(
            lambda: decide_backfill(project, name, run_id, decision=ruling, reason=why, who=who, submit=None), log
        )
    elif (before := find_decided(project, name, run_id, ruling)) is not None:
        report = before
    else:
        report = in_turn(lambda: decide(project, name, run_id, decision=ruling, reason=why, who=who), log)
    log(f"{who} decided to {ruling} {run_id}: {why}")
    return report


def _is_being_read_again(paths: PipelinePaths, run_id: str) -> bool:
    """Whether ``reread`` was decided and is recorded or begun, as a retry of the task finds it."""
    from tidegate.runs.reports.report import load_report
    from tidegate.runs.reports.verdicts import load_decision, load_verdict

    verdict = load_verdict(paths, run_id)
    if verdict is not None:
        ruling = load_decision(paths, verdict)
        return ruling is not None and ruling.decision == "reread"
    report = load_report(paths, run_id)
    return report is not None and report.decision is not None and report.decision["decision"] == "reread"
