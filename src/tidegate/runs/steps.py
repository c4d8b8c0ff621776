"""The steps of a run, and the run that composes them: ingest >> audit >> publish >> deliver (with further sinks).

Each step may be its own process (Airflow tasks) or all of them one (``tidegate run``). A step trusts nothing but what
is on disk, first finishes what an earlier process began, and leaves a run report that the next step continues. Running
a step again after it finished changes nothing and gives the same figures.

What judges, publishes, decides and feeds sinks is imported where it is called: most runs find nothing new, and take
less time than these imports.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.core.process.machine import now_text
from tidegate.core.words import is_wordless
from tidegate.runs import errors
from tidegate.runs.drain import drain_sources
from tidegate.runs.opening import open_run, recover_run, refuse_other_kind
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.tables import check_damage
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import (
    FINAL_OUTCOMES,
    check_balance,
    check_run_id,
    fill_from_manifests,
    load_report,
)
from tidegate.runs.reports.verdicts import (
    Ruling,
    WaitingIncrement,
    find_hold,
    held_error,
    load_verdict,
    load_waiting,
    not_audited,
    waiting_error,
)
from tidegate.runs.restart.new_query import check_reason
from tidegate.spec.project import Project
from tidegate.state.open_state import describe_open_state, read_open_state, text_of_ms

if TYPE_CHECKING:
    from tidegate.core import outputs
    from tidegate.sources.generators.sockets import Listeners


def run_pipeline(
    project: Project,
    name: str,
    run_id: str,
    *,
    submit: Submit,
    accept_loss: str | None = None,
    listeners: Listeners | None = None,
) -> outputs.RunReport:
    """``tidegate run``: all steps under one lease. Returns the report; raises TidegateError.

    ``listeners`` are the connections that a caller keeps from run to run.
    """
    check_reason(accept_loss)
    refuse_other_kind(project, name, run_id)
    with open_run(project, name, run_id, "run") as context:
        context.listeners = listeners
        if context.report.outcome not in FINAL_OUTCOMES:
            _ingest(context, submit, accept_loss)
        if context.report.outcome is None:
            audit_step(context)
        if context.report.outcome is None:
            publish_step(context)
        _deliver(context, submit)
        return context.report.to_json()


def ingest_run(
    project: Project, name: str, run_id: str, *, submit: Submit, accept_loss: str | None = None
) -> outputs.RunReport:
    """The ingest step: what is new goes into staging. ``outcome`` is ``nothing_new`` when no later step is needed."""
    check_reason(accept_loss)
    refuse_other_kind(project, name, run_id)
    with open_run(project, name, run_id, "ingest", next_step=True) as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            _ingest(context, submit, accept_loss)
        if context.report.outcome in FINAL_OUTCOMES:
            _deliver(context, submit)
        return context.report.to_json()


def audit_run(project: Project, name: str, run_id: str) -> outputs.RunReport:
    """The audit step: Great Expectations judges what is staged, or again a deferred increment.

    Raises HeldError when a critical rule fails.
    """
    refuse_other_kind(project, name, run_id, also_over=False)
    with open_run(project, name, run_id, "audit", next_step=True) as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            audit_step(context)
        return context.report.to_json()


def publish_run(project: Project, name: str, run_id: str) -> outputs.RunReport:
    """The publish step: one version of the table. Raises what the audit would, when the audit did not pass."""
    refuse_other_kind(project, name, run_id, also_over=False)
    with open_run(project, name, run_id, "publish") as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            publish_step(context)
        return context.report.to_json()


def deliver_run(project: Project, name: str, run_id: str, *, submit: Submit) -> outputs.RunReport:
    """The deliver step: every sink gets its pending versions, whichever run published them. Raises TryAgainError
    SINK_FAILED.

    The report of a run that is not over stays as it is; a run id that is new gets a report that says ``nothing_new``.
    """
    check_run_id(run_id)
    is_new = load_report(project.paths(name), run_id) is None
    with open_run(project, name, run_id, "deliver", note_failure=False) as context:
        if is_new:
            context.report.outcome, context.report.ended_at = "nothing_new", now_text()
        _deliver(context, submit)
        return context.report.to_json()


def _timed(context: RunContext, step: str, began: float) -> None:
    context.report.duration_seconds[step] = round(time.monotonic() - began, 3)


def _ingest(context: RunContext, submit: Submit, accept_loss: str | None) -> None:
    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    check_agreement(facts, context.name)
    check_damage(context.paths)
    _feed_sinks(context, submit)  # what an earlier run left; a sink that fails must not keep the table waiting
    _pass_over_holds(context)
    drain_sources(context, submit, accept_loss)
    assert context.facts is not None
    unpublished = context.facts.unpublished
    note = read_open_state(context.paths, context.facts.query_id)
    if note is not None:
        context.report.state = describe_open_state(note)
        context.report.watermark = text_of_ms(note.watermark_ms)
    _timed(context, "ingest", began)
    if not unpublished:
        context.report.outcome = "nothing_new"
        context.report.ended_at = now_text()
        context.save()
        return
    fill_from_manifests(context.report, unpublished)
    check_balance(context.report.rows, published=False)
    context.save()


def _find_waiting(context: RunContext) -> WaitingIncrement | None:
    """The increment of the context's run, when it is deferred."""
    return load_waiting(context.paths, context.report.run_id)


def _pass_over_holds(context: RunContext, *, own: bool = True) -> None:
    """Defer what is held, where later runs continue. Raises HeldError where they do not, and when what is held is
    this run's (``own`` is off for the step that judges it)."""
    run_id = context.report.run_id
    waiting = _find_waiting(context)
    if waiting is not None:
        raise waiting_error(context.name, waiting.verdict)
    assert context.facts is not None
    hold = find_hold(context.paths, context.facts.unpublished)
    while hold is not None and (own or hold.run_id != run_id):
        from tidegate.runs.gate.decisions import may_wait, set_waiting

        if not may_wait(context, context.facts, hold):
            raise held_error(context.name, hold, earlier=hold.run_id != run_id)
        set_waiting(context, context.facts, hold)
        recover_run(context)
        if hold.run_id == run_id:
            raise waiting_error(context.name, hold)
        hold = find_hold(context.paths, context.facts.unpublished)


def audit_step(context: RunContext) -> None:
    """Judge what is staged. Raises HeldError when it does not pass."""
    from tidegate.runs.gate.decisions import may_wait, set_waiting
    from tidegate.runs.gate.increment import audit_increment

    began = time.monotonic()
    recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    if (waiting := _find_waiting(context)) is not None:
        _judge_again(context, waiting, began)
        return
    _pass_over_holds(context, own=False)
    facts = context.facts
    assert facts is not None
    _need_unpublished(context, facts)
    fill_from_manifests(context.report, facts.unpublished)
    verdict = audit_increment(context, facts)
    context.report.quality = verdict.quality
    _timed(context, "audit", began)
    context.save()
    if verdict.passed:
        return
    if not may_wait(context, facts, verdict):
        raise held_error(context.name, verdict, earlier=False)
    set_waiting(context, facts, verdict)
    recover_run(context)
    raise waiting_error(context.name, verdict)


def _judge_again(context: RunContext, waiting: WaitingIncrement, began: float) -> None:
    """The audit of a deferred increment: the same rows, the current suite."""
    from tidegate.runs.gate.decisions import audit_waiting

    assert context.facts is not None
    check_agreement(context.facts, context.name)
    waiting = audit_waiting(context, waiting)
    fill_from_manifests(context.report, waiting.manifests)
    context.report.quality = waiting.verdict.quality
    _timed(context, "audit", began)
    context.save()
    if not waiting.verdict.passed:
        raise waiting_error(context.name, waiting.verdict)


def publish_step(context: RunContext) -> None:
    """Publish what the audit of this run passed. Raises HeldError, or that nothing is staged or audited."""
    from tidegate.runs.gate.decisions import publish_waiting
    from tidegate.runs.gate.increment import check_rules, publish_increment

    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    if (waiting := _find_waiting(context)) is not None:
        if not waiting.verdict.passed:
            raise waiting_error(context.name, waiting.verdict)
        check_rules(context, waiting.verdict)
        publish_waiting(context, waiting, None)
        recover_run(context)
        _tell_published(context, began)
        return
    _need_unpublished(context, facts)
    check_agreement(facts, context.name)
    verdict = load_verdict(context.paths, context.report.run_id)
    if verdict is None or not verdict.covers(facts.unpublished):
        raise not_audited(context.name, context.report.run_id)
    if not verdict.passed:
        raise held_error(context.name, verdict, earlier=False)
    check_rules(context, verdict)
    publish_increment(context, facts, verdict)
    recover_run(context)
    _tell_published(context, began)


def _tell_published(context: RunContext, began: float) -> None:
    """Add what only this process knows to the report that recovery has finished."""
    _timed(context, "publish", began)
    if context.spec.sinks:
        from tidegate.runs.deliver import report_sinks

        report_sinks(context)
    context.save()


def _feed_sinks(context: RunContext, submit: Submit) -> None:
    if context.spec.sinks:
        from tidegate.runs.deliver import feed_sinks
        from tidegate.sinks.user_code import check_user_code

        check_user_code(context.project, context.spec)
        feed_sinks(context, submit)


def _deliver(context: RunContext, submit: Submit) -> None:
    """Feed the versions that the sinks are behind; a report that is final gets how far they are, and why one is
    behind."""
    if not context.spec.sinks:
        return
    from tidegate.runs.deliver import sinks_error

    began = time.monotonic()
    if context.facts is None:
        check_agreement(recover_run(context), context.name)
    _feed_sinks(context, submit)
    error = sinks_error(context)
    if context.report.outcome in FINAL_OUTCOMES:
        _timed(context, "deliver", began)
        context.report.error = None if error is None else error.to_dict()
        context.save()
    if error is not None:
        raise error


def _need_unpublished(context: RunContext, facts: Facts) -> None:
    if not facts.unpublished:
        raise errors.NOTHING_STAGED(run_id=context.report.run_id, pipeline=context.name)


def _need_reason(reason: str) -> None:
    if is_wordless(reason):
        raise errors.REASON_MISSING(action="a decision", option="--reason")


def decide(
    project: Project,
    name: str,
    run_id: str,
    *,
    decision: Ruling,
    reason: str,
    who: str | None = None,
    submit: Submit | None = None,
) -> outputs.RunReport:
    """``release`` or ``discard`` a held increment: recorded with who and why, then carried out at once.

    Without ``submit`` further sinks are fed by the next run; ``who`` is by default the person at this terminal.
    Deciding the same again changes nothing.

    Raises UsageError NOT_HELD when nothing is held under this run id or DECIDED_ALREADY, TryAgainError LEASE_HELD.
    """
    from tidegate.runs.gate.decisions import check_decided, decide_waiting, find_held, record

    _need_reason(reason)
    with open_run(project, name, run_id, decision, note_failure=False) as context:
        began = time.monotonic()
        facts = recover_run(context)
        decided_before = context.report.outcome in FINAL_OUTCOMES
        if not decided_before:
            waiting = _find_waiting(context)
            if waiting is not None:
                decide_waiting(context, waiting, decision, reason, who)
            else:
                record(context, find_held(context.paths, facts, name, run_id), decision, reason, who)
            recover_run(context)
        check_decided(context, decision)
        if not decided_before:
            _tell_published(context, began)
        if submit is not None:
            _deliver(context, submit)
        return context.report.to_json()


def decide_reread(project: Project, name: str, run_id: str, *, reason: str, who: str) -> None:
    """Record that a held increment is read again, without a driver: the next run of the pipeline does it first.

    Raises as :func:`reread_run`.
    """
    from tidegate.runs.gate.decisions import find_held
    from tidegate.runs.restart.recorded import record_reread, refuse_waiting

    _need_reason(reason)
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
    from tidegate.runs.gate.decisions import check_decided, find_held
    from tidegate.runs.restart.recorded import record_reread, refuse_waiting

    _need_reason(reason)
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
