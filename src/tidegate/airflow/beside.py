"""What a run does instead of reading what is new, because its trigger form asks for it: a refresh, a replay, a decision
on what is held under another run id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.airflow.backfills import is_backfill
from tidegate.airflow.decision import in_turn, mark_held
from tidegate.airflow.form import AskedDecision, TriggerForm, read_form
from tidegate.core.errors import catalogue

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport
    from tidegate.core.paths import PipelinePaths
    from tidegate.runs.recovery.context import Submit
    from tidegate.spec.project import Project


def run_of(context: Any) -> str:
    """The run that the tasks of a DAG run speak of: the one that its form decides on, else itself. One that is read
    again is read by the DAG run itself. Raises UsageError TRIGGER_FORM_REFUSED."""
    dag_run = context["dag_run"]
    asked = read_form(context["params"], dag_run.conf, of_backfill=is_backfill(dag_run)).decision
    return str(context["run_id"] if asked is None or asked.decision == "reread" else asked.run_id)


def work_beside(project: Project, name: str, run_id: str, form: TriggerForm, *, submit: Submit) -> RunReport:
    """The refresh or the replay that ``form`` asks for; its report. Raises what these raise."""
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
    project: Project, name: str, asked: AskedDecision, who: str, tell: Callable[[str], object]
) -> RunReport | None:
    """Carry out a decision; the report of what was held, or None where the next ingest reads it again. Deciding the
    same again changes nothing. Raises as the commands do."""
    from tidegate.rework.backfill.held import decide_backfill, find_decided, is_held_backfill
    from tidegate.runs.steps import decide, decide_reread

    ruling, run_id, why = asked.decision, asked.run_id, asked.reason
    held_now = None if asked.of is None else mark_held(project.paths(name), run_id)
    if held_now not in (None, asked.of):
        fault = f"what it decides on is not what is held under {run_id} now: look at that, and decide again"
        raise catalogue.TRIGGER_FORM_REFUSED(where="conf of the DAG run", fault=fault)
    if ruling == "reread":
        if not _is_being_read_again(project.paths(name), run_id):
            in_turn(lambda: decide_reread(project, name, run_id, reason=why, who=who), tell)
        return None
    if is_held_backfill(project, name, run_id):
        report = in_turn(
            lambda: decide_backfill(project, name, run_id, decision=ruling, reason=why, who=who, submit=None), tell
        )
    elif (before := find_decided(project, name, run_id, ruling)) is not None:
        report = before
    else:
        report = in_turn(lambda: decide(project, name, run_id, decision=ruling, reason=why, who=who), tell)
    tell(f"{who} decided to {ruling} {run_id}: {why}")
    return report


def _is_being_read_again(paths: PipelinePaths, run_id: str) -> bool:
    """Whether that is decided, and recorded or begun: a second try of a task finds it so."""
    from tidegate.runs.reports.report import load_report
    from tidegate.runs.reports.verdicts import load_decision, load_verdict

    verdict = load_verdict(paths, run_id)
    if verdict is not None:
        ruling = load_decision(paths, verdict)
        return ruling is not None and ruling.decision == "reread"
    report = load_report(paths, run_id)
    return report is not None and report.decision is not None and report.decision["decision"] == "reread"
