"""The steps of a run, and the run that composes them: ingest >> audit >> publish >> deliver (with further sinks).

Each step may be its own process (Airflow tasks) or all of them one (``tidegate run``). A step trusts nothing but what
is on disk, first finishes what an earlier process began, and leaves a run report that the next step continues. Running
a step again after it finished changes nothing and gives the same figures.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from tidegate import outputs, storage
from tidegate.errors import HeldError, TidegateError, TryAgainError, catalogue
from tidegate.extras import explain_missing
from tidegate.gate.decisions import carry_out, check_decided, find_decidable, record
from tidegate.gate.increment import audit_increment, check_rules, publish_increment
from tidegate.lease import Lease, acquire
from tidegate.paths import PipelinePaths
from tidegate.pipeline import load_pipeline
from tidegate.preflight.agreement import check_agreement
from tidegate.preflight.facts import Facts
from tidegate.process.machine import now_text
from tidegate.project import Project
from tidegate.recovery.context import RunContext, Submit
from tidegate.recovery.recover import recover
from tidegate.reports.report import (
    FINAL_OUTCOMES,
    RunReport,
    check_balance,
    describe_ended,
    fill_from_manifests,
    load_report,
    new_report,
    prune_reports,
    save_report,
)
from tidegate.reports.run_ids import check_run_id
from tidegate.reports.verdicts import Ruling, find_hold, held_error, load_verdict, not_audited
from tidegate.restart.losses import check_reason
from tidegate.restart.rebirth import pin_paths
from tidegate.restart.reread import carry_out_rereads, record_reread
from tidegate.run.deliver import feed_sinks, report_sinks, sinks_error
from tidegate.run.drain import drain_sources
from tidegate.sink.user_code import check_user_code
from tidegate.sources.generators.socket_listener import Listeners
from tidegate.staging.birth import as_read
from tidegate.staging.open_state import describe_open_state, read_open_state, text_of_ms
from tidegate.words import count_of, is_wordless

_PARK_AT_LEAST_SECONDS = 60.0


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
    with _open_run(project, name, run_id, "run") as context:
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
    with _open_run(project, name, run_id, "ingest", next_step=True) as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            _ingest(context, submit, accept_loss)
        if context.report.outcome in FINAL_OUTCOMES:
            _deliver(context, submit)
        return context.report.to_json()


def audit_run(project: Project, name: str, run_id: str) -> outputs.RunReport:
    """The audit step: quarantine is published, Great Expectations judges.

    Raises HeldError when a critical rule fails.
    """
    with _open_run(project, name, run_id, "audit", next_step=True) as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            audit_step(context)
        return context.report.to_json()


def publish_run(project: Project, name: str, run_id: str) -> outputs.RunReport:
    """The publish step: one version of the table. Raises what the audit would, when the audit did not pass."""
    with _open_run(project, name, run_id, "publish") as context:
        if context.report.outcome not in FINAL_OUTCOMES:
            publish_step(context)
        return context.report.to_json()


def deliver_run(project: Project, name: str, run_id: str, *, submit: Submit) -> outputs.RunReport:
    """The deliver step: every sink gets what it is owed, whichever run published it. Raises TryAgainError SINK_FAILED.

    The report of a run that is not over stays as it is; a run id that is new gets a report that says ``nothing_new``.
    """
    check_run_id(run_id)
    is_new = load_report(project.paths(name), run_id) is None
    with _open_run(project, name, run_id, "deliver", note_failure=False) as context:
        if is_new:
            context.report.outcome, context.report.ended_at = "nothing_new", now_text()
        _deliver(context, submit)
        return context.report.to_json()


@contextlib.contextmanager
def _open_run(
    project: Project, name: str, run_id: str, command: str, *, next_step: bool = False, note_failure: bool = True
) -> Iterator[RunContext]:
    """The context of a step. Afterwards the report is stored, and the lease released, or parked for the next step.

    ``note_failure`` is off for decisions: a decision that cannot be taken says nothing about the run.
    """
    check_run_id(run_id)
    spec = load_pipeline(project, name)
    paths = project.paths(name)
    expires = project.spec.lease.expires_after
    lease = acquire(paths, run_id=run_id, command=command, expires_after_seconds=expires)
    paths = pin_paths(paths, lease)
    report = _load_open_report(paths, run_id) or new_report(name, run_id)
    context = RunContext(project, as_read(spec, paths), paths, lease, report)
    _note_predecessor(context)
    try:
        yield context
    except BaseException as error:
        known = _name_cause(error, lease, paths)
        if note_failure:
            _note_failure(context, known)
        with contextlib.suppress(TidegateError, OSError):  # what cannot be given back ends with this process
            lease.release()
        if known is error:
            raise
        raise known from error
    report = context.report
    if report.outcome in FINAL_OUTCOMES or not next_step:
        _clear_exchange(paths, run_id)
        lease.release()
        prune_reports(paths)
    else:
        context.save()
        lease.park(max(expires, _PARK_AT_LEAST_SECONDS))


def recover_run(context: RunContext) -> Facts:
    """Finish what was begun, and carry out what people decided; the facts after it. The report is read again:
    recovery may have finished it. Its notes name the other runs that were finished."""
    finished: list[RunReport] = []
    context.facts = facts = recover(context.project, context.paths, context.spec, context.lease, finished)
    while carry_out(context, facts) or carry_out_rereads(context, facts):
        context.facts = facts = recover(context.project, context.paths, context.spec, context.lease, finished)
    notes = context.report.notes
    context.report = _load_open_report(context.paths, context.report.run_id) or context.report
    others = [one for one in finished if one.run_id != context.report.run_id and not one.published_by]
    for note in (*notes, *map(_describe_finished, others)):
        context.report.add_note(note)
    return facts


def _describe_finished(report: RunReport) -> str:
    rows = count_of(report.rows["published" if report.outcome == "published" else "staged"], "row")
    return f"finished run {report.run_id}: {report.outcome} {rows}"


def _note_predecessor(context: RunContext) -> None:
    """A run that was killed could write nothing: who takes over from it says so."""
    left_by = context.lease.left_by
    if left_by is None or left_by.run_id in (None, context.report.run_id):
        return
    before = load_report(context.paths, left_by.run_id)
    if before is None or before.outcome is None:
        note = f"{describe_ended(left_by)}; this run goes on with what it had begun"
        context.report.add_note(note)


def _clear_exchange(paths: PipelinePaths, run_id: str) -> None:
    """Take away what a run that is over and its drivers told each other; the log of one that failed stays."""
    with contextlib.suppress(OSError):
        storage.remove(paths.driver_results(run_id))
        storage.remove_empty_folder(paths.exchange(run_id))


def _load_open_report(paths: PipelinePaths, run_id: str) -> RunReport | None:
    """The report of a run that goes on: what an earlier attempt failed of, or was held for, is over."""
    report = load_report(paths, run_id)
    if report is not None and report.outcome in ("failed", "held"):
        report.outcome, report.error, report.ended_at = None, None, None
    return report


def _note_failure(context: RunContext, error: BaseException) -> None:
    """Write the failure into the run's report, unless the run was finished by another process or lost its lease."""
    if not context.lease.is_current():
        return
    known = error if isinstance(error, TidegateError) else _as_known(error, context.name)
    report = context.report
    if report.outcome in FINAL_OUTCOMES:
        return
    report.outcome = "held" if isinstance(error, HeldError) else "failed"
    report.error = known.to_dict()
    report.ended_at = now_text()
    with contextlib.suppress(TidegateError, OSError):
        save_report(context.paths, report)


def _name_cause(error: BaseException, lease: Lease, paths: PipelinePaths) -> BaseException:
    """What is behind an error: whoever took over the lease moves and removes files under a run that was frozen."""
    if isinstance(error, Exception) and not isinstance(error, TryAgainError):
        try:
            lease.check()
        except TryAgainError as lost:
            return lost
    return explain_missing(error) or storage.name_cause(error, paths.state, paths.state) or error


def _as_known(error: BaseException, name: str) -> TidegateError:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return catalogue.RUN_STOPPED(where=f"pipeline {name}", name=name)
    return catalogue.UNEXPECTED(name=type(error).__name__, error=error)


def _timed(context: RunContext, step: str, began: float) -> None:
    context.report.duration_seconds[step] = round(time.monotonic() - began, 3)


def _ingest(context: RunContext, submit: Submit, accept_loss: str | None) -> None:
    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    check_agreement(facts, context.name)
    _feed_sinks(context, submit)  # what an earlier run left; a sink that fails must not keep the table waiting
    hold = find_hold(context.paths, facts.owed)
    if hold is not None:
        raise held_error(context.name, hold, earlier=hold.run_id != context.report.run_id)
    drain_sources(context, submit, accept_loss)
    assert context.facts is not None
    owed = context.facts.owed
    note = read_open_state(context.paths, context.facts.query_id)
    if note is not None:
        context.report.state = describe_open_state(note)
        context.report.watermark = text_of_ms(note.watermark_ms)
    _timed(context, "ingest", began)
    if not owed:
        context.report.outcome = "nothing_new"
        context.report.ended_at = now_text()
        context.save()
        return
    fill_from_manifests(context.report, owed)
    check_balance(context.report.rows, published=False)
    context.save()


def audit_step(context: RunContext) -> None:
    """Judge what is staged. Raises HeldError when it does not pass."""
    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    _need_owed(context, facts)
    hold = find_hold(context.paths, facts.owed)
    if hold is not None and hold.run_id != context.report.run_id:
        raise held_error(context.name, hold, earlier=True)
    fill_from_manifests(context.report, facts.owed)
    verdict = audit_increment(context, facts)
    context.report.quality = verdict.quality
    _timed(context, "audit", began)
    context.save()
    if not verdict.passed:
        raise held_error(context.name, verdict, earlier=False)


def publish_step(context: RunContext) -> None:
    """Publish what the audit of this run passed. Raises HeldError, or that nothing is staged or audited."""
    began = time.monotonic()
    facts = recover_run(context)
    if context.report.outcome in FINAL_OUTCOMES:
        return
    _need_owed(context, facts)
    check_agreement(facts, context.name)
    verdict = load_verdict(context.paths, context.report.run_id)
    if verdict is None or not verdict.covers(facts.owed):
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
        report_sinks(context)
    context.save()


def _feed_sinks(context: RunContext, submit: Submit) -> None:
    if context.spec.sinks:
        check_user_code(context.project, context.spec)
        feed_sinks(context, submit)


def _deliver(context: RunContext, submit: Submit) -> None:
    """Feed the versions that the sinks are behind; a report that is final gets how far they are, and why one is
    behind."""
    if not context.spec.sinks:
        return
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


def _need_owed(context: RunContext, facts: Facts) -> None:
    if not facts.owed:
        raise catalogue.NOTHING_STAGED(run_id=context.report.run_id, pipeline=context.name)


def _need_reason(reason: str) -> None:
    if is_wordless(reason):
        raise catalogue.DECISION_REASON_MISSING()


def decide(
    project: Project, name: str, run_id: str, *, decision: Ruling, reason: str, submit: Submit | None = None
) -> outputs.RunReport:
    """``release`` or ``discard`` a held increment: recorded with who and why, then carried out at once.

    Without ``submit`` further sinks are fed by the next run. Deciding the same again changes nothing.

    Raises UsageError NOT_HELD when nothing is held under this run id or DECIDED_ALREADY, TryAgainError LEASE_HELD.
    """
    _need_reason(reason)
    with _open_run(project, name, run_id, decision, note_failure=False) as context:
        began = time.monotonic()
        facts = recover_run(context)
        decided_before = context.report.outcome in FINAL_OUTCOMES
        if not decided_before:
            record(context, find_decidable(context, facts), decision, reason)
            recover_run(context)
        check_decided(context, decision)
        if not decided_before:
            _tell_published(context, began)
        if submit is not None:
            _deliver(context, submit)
        return context.report.to_json()


def reread_run(project: Project, name: str, run_id: str, *, reason: str, submit: Submit) -> outputs.RunReport:
    """``tidegate reread``: a held increment is dropped, read again from the source, judged and published by the run
    that it was held under, with schema, suite and transform as they are now. Returns its report.

    Raises what :func:`record_reread` raises, UsageError NOT_HELD, DECIDED_ALREADY or REASON_MISSING, and whatever a run
    does.
    """
    _need_reason(reason)
    with _open_run(project, name, run_id, "reread", note_failure=False) as context:
        facts = recover_run(context)
        decided = context.report.decision["decision"] if context.report.decision is not None else None
        has_begun = decided == "reread" and load_verdict(context.paths, run_id) is None
        if not has_begun:
            record_reread(context, find_decidable(context, facts), reason)
            recover_run(context)
            if context.report.outcome in FINAL_OUTCOMES:  # another person was faster
                check_decided(context, "reread")
    return run_pipeline(project, name, run_id, submit=submit)
