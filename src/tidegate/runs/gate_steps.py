"""The audit and publish steps of a run, and what becomes of held increments before others are read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.core.errors import HeldError
from tidegate.runs import errors
from tidegate.runs.deliver import report_sinks
from tidegate.runs.gate.decisions import audit_waiting, may_wait, publish_waiting, set_waiting
from tidegate.runs.gate.increment import audit_increment, check_rules, publish_increment
from tidegate.runs.opening import open_run, recover_run, refuse_other_kind
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import FINAL_OUTCOMES, fill_from_manifests, unjudged
from tidegate.runs.reports.verdicts import (
    StoredVerdict,
    WaitingIncrement,
    find_hold,
    held_error,
    load_verdict,
    load_waiting,
    not_audited,
    waiting_error,
)
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core import outputs


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


def defer_holds(context: RunContext, *, own: bool = True) -> None:
    """Defer what is held, where later runs continue. Raises HeldError where they do not, and when what is held is
    this run's (``own`` is off for the step that judges it)."""
    run_id = context.report.run_id
    waiting = load_waiting(context.paths, context.report.run_id)
    if waiting is not None:
        raise waiting_error(context.name, waiting.verdict)
    assert context.facts is not None
    hold = find_hold(context.paths, context.facts.unpublished)
    while hold is not None and (own or hold.run_id != run_id):
        if not may_wait(context, context.facts, hold):
            raise held_error(context.name, hold, earlier=hold.run_id != run_id)
        set_waiting(context, context.facts, hold)
        recover_run(context)
        if hold.run_id == run_id:
            raise waiting_error(context.name, hold)
        hold = find_hold(context.paths, context.facts.unpublished)


def audit_step(context: RunContext) -> None:
    """Judge what is staged. Raises HeldError when it does not pass."""
    began = time.monotonic()
    _forget_verdict(context)
    recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    if (waiting := load_waiting(context.paths, context.report.run_id)) is not None:
        _judge_again(context, waiting, began)
        return
    defer_holds(context, own=False)
    facts = context.facts
    assert facts is not None
    _need_unpublished(context, facts)
    fill_from_manifests(context.report, facts.unpublished)
    verdict = audit_increment(context, facts)
    context.report.quality = verdict.quality
    context.note_step("audit", began)
    context.save()
    if verdict.passed:
        return
    if not may_wait(context, facts, verdict):
        raise held_error(context.name, verdict, earlier=False)
    set_waiting(context, facts, verdict)
    recover_run(context)
    raise waiting_error(context.name, verdict)


def _forget_verdict(context: RunContext) -> None:
    """Remove the verdict of an earlier audit from the report, also from the stored one: this audit may fail, or be
    killed. A verdict that is still valid is kept in its own file."""
    if context.report.quality != unjudged():
        context.report.quality = unjudged()
        context.save()


def _judge_again(context: RunContext, waiting: WaitingIncrement, began: float) -> None:
    """The audit of a deferred increment: the same rows, the current suite."""
    assert context.facts is not None
    check_agreement(context.facts, context.name)
    waiting = audit_waiting(context, waiting)
    fill_from_manifests(context.report, waiting.manifests)
    context.report.quality = waiting.verdict.quality
    context.note_step("audit", began)
    context.save()
    if not waiting.verdict.passed:
        raise waiting_error(context.name, waiting.verdict)


def publish_step(context: RunContext) -> None:
    """Publish what the audit of this run passed. Raises HeldError, or that nothing is staged or audited."""
    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    context.report.quality = unjudged()  # until the verdict is known to be on these rows, by the current rules
    if (waiting := load_waiting(context.paths, context.report.run_id)) is not None:
        _check_verdict(context, waiting.verdict, waiting_error(context.name, waiting.verdict))
        publish_waiting(context, waiting, None)
        recover_run(context)
        report_published(context, began)
        return
    _need_unpublished(context, facts)
    check_agreement(facts, context.name)
    verdict = load_verdict(context.paths, context.report.run_id)
    if verdict is None or not verdict.covers(facts.unpublished):
        raise not_audited(context.name, context.report.run_id)
    _check_verdict(context, verdict, held_error(context.name, verdict, earlier=False))
    publish_increment(context, facts, verdict)
    recover_run(context)
    report_published(context, began)


def _check_verdict(context: RunContext, verdict: StoredVerdict, held: HeldError) -> None:
    """Put the verdict into the report. Raises ``held`` if it failed, TryAgainError NOT_AUDITED if it is outdated."""
    if verdict.passed:
        check_rules(context, verdict)
    context.report.quality = verdict.quality
    if not verdict.passed:
        raise held


def report_published(context: RunContext, began: float) -> None:
    """Add what only this process knows to the report that recovery has finished."""
    context.note_step("publish", began)
    if context.spec.sinks:
        report_sinks(context)
    context.save()


def _need_unpublished(context: RunContext, facts: Facts) -> None:
    if not facts.unpublished:
        raise errors.NOTHING_STAGED(run_id=context.report.run_id, pipeline=context.name)
