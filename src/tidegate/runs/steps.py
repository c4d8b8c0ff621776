"""A run, composed of its steps: ingest >> audit >> publish >> deliver (with further sinks), and the ingest step.

Each step may be its own process (Airflow tasks) or all of them one (``tidegate run``). A step trusts nothing but what
is on disk, first finishes what an earlier process began, and leaves a run report that the next step continues. Running
a step again after it finished changes nothing and gives the same figures.

The modules of the later steps are imported where these begin: most runs find nothing new, and take less time than
these imports.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.core.process.machine import now_text
from tidegate.runs.drain import drain_sources
from tidegate.runs.opening import open_run, recover_run, refuse_other_kind
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.tables import check_damage
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import FINAL_OUTCOMES, check_balance, fill_from_manifests, unjudged
from tidegate.runs.reports.verdicts import check_reason, find_hold, load_waiting
from tidegate.sources.files.findings import unread_error
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
    check_reason(accept_loss, "the acceptance of a loss", "--accept-loss")
    refuse_other_kind(project, name, run_id)
    with open_run(project, name, run_id, "run") as context:
        context.listeners = listeners
        if context.report.outcome not in FINAL_OUTCOMES:
            _ingest(context, submit, accept_loss)
        if context.report.outcome is None:
            from tidegate.runs.gate_steps import audit_step, publish_step

            audit_step(context)
            if context.report.outcome is None:
                publish_step(context)
        _deliver(context, submit)
        return context.report.to_json()


def ingest_run(
    project: Project, name: str, run_id: str, *, submit: Submit, accept_loss: str | None = None
) -> outputs.RunReport:
    """The ingest step: what is new goes into staging. ``outcome`` is ``nothing_new`` when no later step is needed.

    Raises SourceLostError FILES_UNREAD where nothing is new and there are files that cannot be read, TryAgainError
    STORAGE_FAILED where a retry may read all of them."""
    check_reason(accept_loss, "the acceptance of a loss", "--accept-loss")
    refuse_other_kind(project, name, run_id)
    with open_run(project, name, run_id, "ingest", next_step=True) as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            _ingest(context, submit, accept_loss)
        if context.report.outcome in FINAL_OUTCOMES:
            _deliver(context, submit)
        return context.report.to_json()


def _ingest(context: RunContext, submit: Submit, accept_loss: str | None) -> None:
    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    check_agreement(facts, context.name)
    check_damage(context.paths)
    # What an earlier run left; a sink that fails must not keep the table waiting.
    _deliver(context, submit, at_end=False)
    _defer_holds(context, facts)
    context.report.quality = unjudged()  # of an earlier attempt: the audit judges what is staged then
    drain_sources(context, submit, accept_loss)
    assert context.facts is not None
    unpublished = context.facts.unpublished
    note = read_open_state(context.paths, context.facts.query_id)
    if note is not None:
        context.report.state = describe_open_state(note)
        context.report.watermark = text_of_ms(note.watermark_ms)
    context.note_step("ingest", began)
    if not unpublished:
        unread = unread_error(context.paths, context.report.sources)
        if unread is not None:
            raise unread
        context.report.outcome = "nothing_new"
        context.report.ended_at = now_text()
        context.save()
        return
    fill_from_manifests(context.report, unpublished)
    check_balance(context.report.rows, published=False)
    context.save()


def _defer_holds(context: RunContext, facts: Facts) -> None:
    if load_waiting(context.paths, context.report.run_id) or find_hold(context.paths, facts.unpublished):
        from tidegate.runs.gate_steps import defer_holds

        defer_holds(context)


def _deliver(context: RunContext, submit: Submit, *, at_end: bool = True) -> None:
    if context.spec.sinks:
        from tidegate.runs.deliver import deliver

        deliver(context, submit, at_end=at_end)
