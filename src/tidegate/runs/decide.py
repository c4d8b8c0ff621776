"""Decisions on held increments: release, discard, reread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.core.process.machine import now_text
from tidegate.runs.deliver import deliver
from tidegate.runs.gate.decisions import check_decided, find_held, publish_waiting, record
from tidegate.runs.gate_steps import report_published
from tidegate.runs.opening import open_run, recover_run
from tidegate.runs.recovery.context import Submit
from tidegate.runs.reports.report import FINAL_OUTCOMES, load_report
from tidegate.runs.reports.verdicts import Answer, check_reason, load_verdict, load_waiting
from tidegate.runs.restart.recorded import record_reread, refuse_waiting
from tidegate.runs.steps import run_pipeline
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core import outputs


def decide(
    project: Project, name: str, run_id: str, answer: Answer, *, submit: Submit | None = None
) -> outputs.RunReport:
    """``release`` or ``discard`` a held increment: recorded with who and why, then carried out at once.

    Without ``submit`` further sinks are fed by the next run. Deciding the same again changes nothing.

    Raises UsageError NOT_HELD when nothing is held under this run id or DECIDED_ALREADY, TryAgainError LEASE_HELD.
    """
    check_reason(answer.reason)
    with open_run(project, name, run_id, answer.decision, note_failure=False) as context:
        began = time.monotonic()
        facts = recover_run(context)
        decided_before = context.report.outcome in FINAL_OUTCOMES
        if not decided_before:
            waiting = load_waiting(context.paths, context.report.run_id)
            if waiting is not None:
                publish_waiting(context, waiting, answer.decide_on(waiting.verdict))
            else:
                verdict = find_held(context.paths, facts, name, run_id)
                record(context, verdict, answer.decide_on(verdict))
            recover_run(context)
        check_decided(context, answer.decision)
        if not decided_before:
            report_published(context, began)
        if submit is not None:
            deliver(context, submit)
        return context.report.to_json()


def decide_reread(project: Project, name: str, run_id: str, *, reason: str, who: str) -> None:
    """Record that a held increment is read again, without a driver: the next run of the pipeline does it first.

    Raises as :func:`reread_run`.
    """
    check_reason(reason)
    with open_run(project, name, run_id, "reread", note_failure=False) as context:
        facts = recover_run(context)
        refuse_waiting(context.paths, name, run_id)
        record_reread(context, find_held(context.paths, facts, name, run_id), reason, who)
        report = load_report(context.paths, run_id)
        if report is not None:  # it stays what it is, a run that is held, and says who decided what
            report.decision = {"decision": "reread", "who": who, "reason": reason.strip(), "at": now_text()}
            context.report = report
            context.save()


def reread_run(project: Project, name: str, run_id: str, *, reason: str, submit: Submit) -> outputs.RunReport:
    """``tidegate reread``: a held increment is dropped, read again from the source, judged and published by the run
    that it was held under, with schema, suite and transform as they are now. Returns its report.

    Raises what :func:`record_reread` raises, UsageError NOT_HELD, DECIDED_ALREADY or REASON_MISSING, and whatever a run
    does.
    """
    check_reason(reason)
    with open_run(project, name, run_id, "reread", note_failure=False) as context:
        facts = recover_run(context)
        decided = context.report.decision["decision"] if context.report.decision is not None else None
        has_begun = decided == "reread" and load_verdict(context.paths, run_id) is None
        if not has_begun:
            refuse_waiting(context.paths, name, run_id)
            record_reread(context, find_held(context.paths, facts, name, run_id), reason)
            recover_run(context)
            if context.report.outcome in FINAL_OUTCOMES:  # another person was faster
                check_decided(context, "reread")
    return run_pipeline(project, name, run_id, submit=submit)
