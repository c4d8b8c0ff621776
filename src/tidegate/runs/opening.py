"""Start and end of a run, or of a side job, under a pipeline's lease.

Its lease, its report, its error, and what an earlier process left. Between two intervals of a backfill a run that was
refused in the meantime comes first (:func:`give_way`): it ends at once and is tried again by its caller, and without a
note of it, a backfill of many intervals would hold the lease each time it comes back.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

from tidegate.core import storage
from tidegate.core.errors import AFTER_THE_FIX, RESUMED, HeldError, TidegateError, TryAgainError, UsageError
from tidegate.core.extras import explain_missing
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import recover
from tidegate.runs.recovery.upkeep import hide_left
from tidegate.runs.reports.report import (
    FINAL_OUTCOMES,
    LIVE_MODES,
    RUN_ID_OPTIONS,
    RunReport,
    check_run_id,
    describe_left,
    load_report,
    new_report,
    prune_reports,
    remove_unfinished,
    save_report,
)
from tidegate.runs.reports.verdicts import list_decided, list_rereads, quote_word
from tidegate.runs.restart.new_query import pin_paths
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.lease import Lease, acquire
from tidegate.table.publish.intent import is_handing_over

_PARK_AT_LEAST_SECONDS = 60.0
_SIDE_JOBS = ("adopt", "backfill", "refresh", "replay", "rollback")
"""Not ``maintain``, which nobody types: a refusal repeats, and only the failed report shows it."""


@contextlib.contextmanager
def open_run(
    project: Project,
    name: str,
    run_id: str,
    command: str,
    *,
    next_step: bool = False,
    note_failure: bool = True,
) -> Iterator[RunContext]:
    """The context of a step. Afterwards the report is stored, and the lease released, or parked for the next step.

    ``note_failure`` is off for decisions: a decision that cannot be taken says nothing about the run. Wrong use of a
    side job before anything was begun is not a failure of the pipeline.
    """
    check_run_id(run_id)
    spec = load_pipeline(project, name)
    paths = project.paths(name)
    expires = project.spec.lease.expires_after
    requests = storage.count_requests()
    try:
        lease = acquire(paths, run_id=run_id, command=command, expires_after_seconds=expires)
    except TryAgainError:
        note_refused(paths, run_id)
        raise
    if paths.mirror is None or paths.refused.name in lease.names:  # or a request is sent for nothing
        note_admitted(paths, run_id)
    with contextlib.ExitStack() as on_error:
        on_error.callback(lease.release)
        paths = pin_paths(paths, lease)
        report = _load_open_report(paths, run_id) or new_report(name, run_id)
        own = project.for_pipeline(spec)
        context = RunContext(own, as_read(spec, paths), paths, lease, report, requests_before=requests)
        _take_over_reports(context)
        on_error.pop_all()
    is_side_job = command in _SIDE_JOBS
    try:
        with storage.listed_once(paths.table, paths.quarantine):
            yield context
    except BaseException as error:  # also a stop, and whatever code of the user raises: the report has to name it
        known = _name_cause(error, lease, paths)
        if isinstance(known, TidegateError) and known.code == errors.RUN_STOPPED.code:
            known.where = ", ".join(filter(None, (f"{command} of run {run_id} of pipeline {name}", known.where)))
        if is_side_job and isinstance(known, TidegateError):
            describe_for_side_job(known, command, name, run_id)
        if note_failure and not (is_side_job and _is_wrong_use(context, known)):
            _note_failure(context, known, command if is_side_job else None)
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


def refuse_other_kind(
    project: Project, name: str, run_id: str, kind: str = "incremental", *, also_over: bool = True
) -> None:
    """Raise UsageError OTHER_ARGUMENTS when the run id is that of another kind of run: its report is about one thing.
    A live run may have been begun by a reread.

    Without ``also_over`` a run that is over may be of any kind: what comes behind it, such as the later tasks of a DAG
    run that has backfilled, finds nothing left to do.
    """
    check_run_id(run_id)
    before = load_report(project.paths(name), run_id)
    kinds = LIVE_MODES if kind in LIVE_MODES else (kind,)
    if before is None or before.mode in kinds or (before.outcome in FINAL_OUTCOMES and not also_over):
        return
    raise errors.OTHER_ARGUMENTS(
        where=f"pipeline {name}", run_id=run_id, before=f"a run of kind {before.mode}", asked=f"one of kind {kind}"
    )


def recover_run(context: RunContext) -> Facts:
    """Finish what was begun, and carry out what people decided; the facts after it. The report is read again:
    recovery may have finished it. Its notes name the other runs that were finished."""
    finished: list[RunReport] = []
    is_another = is_handing_over(context.paths)
    context.facts = facts = recover(context.project, context.paths, context.spec, context.lease, finished)
    if is_another:
        context.lease.check()
        context.paths = context.paths.newest().pinned()
        context.spec = as_read(load_pipeline(context.project, context.name), context.paths)
    while _carry_out_decided(context, facts):
        context.facts = facts = recover(context.project, context.paths, context.spec, context.lease, finished)
    notes = context.report.notes
    context.report = _load_open_report(context.paths, context.report.run_id) or context.report
    if context.report.mode not in LIVE_MODES and context.report.outcome in FINAL_OUTCOMES:
        notes = []  # the final report of a side job was planned whole: it lacks notes on what was held then
    others = [one for one in finished if one.run_id != context.report.run_id and not one.published_by]
    hidden = hide_left(context.paths, context.spec, context.lease, facts)
    for note in (*notes, *map(_describe_finished, others), *hidden):
        context.report.add_note(note)
    return facts


def _carry_out_decided(context: RunContext, facts: Facts) -> bool:
    """Carry out what people decided first; whether there was anything."""
    paths = context.paths
    if not (storage.exists(paths.rollback) or list_decided(paths) or list_rereads(paths)):
        return False
    # Hardly ever needed, and the import takes longer than all that a run does which finds nothing new.
    from tidegate.runs.restart.recorded import carry_out_recorded

    return carry_out_recorded(context, facts)


def _describe_finished(report: RunReport) -> str:
    rows = count_of(report.rows["published" if report.outcome == "published" else "staged"], "row")
    return f"finished run {report.run_id}: {report.outcome} {rows}"


def _take_over_reports(context: RunContext) -> None:
    """Say what is left of a run that was killed, and keep it from storing its report if it was only suspended."""
    left_by = context.lease.left_by
    if left_by is None or left_by.run_id is None:
        return
    remove_unfinished(context.paths, left_by.run_id)
    if left_by.run_id == context.report.run_id:
        return
    before = load_report(context.paths, left_by.run_id)
    if before is None or before.outcome is None:
        context.report.add_note(describe_left(left_by, "this run"))


def _clear_exchange(paths: PipelinePaths, run_id: str) -> None:
    """Remove the messages between a run that is over and its drivers; the log of one that failed stays."""
    with contextlib.suppress(OSError):
        storage.remove(paths.driver_results(run_id))
        storage.remove_tree(paths.spill(run_id))
        storage.remove_empty_folder(paths.exchange(run_id))


def _load_open_report(paths: PipelinePaths, run_id: str) -> RunReport | None:
    """The report of a run that continues: the failure or hold of an earlier attempt is over."""
    report = load_report(paths, run_id)
    if report is not None and report.outcome in ("failed", "held"):
        report.outcome, report.error, report.ended_at = None, None, None
    return report


def _is_wrong_use(context: RunContext, error: BaseException) -> bool:
    """Whether a command was refused before it began: no driver was started, and there is no report of its run id."""
    if not isinstance(error, UsageError) or context.drivers:
        return False
    with contextlib.suppress(OSError):
        return not storage.exists(context.paths.report(context.report.run_id))
    return False


def _note_failure(context: RunContext, error: BaseException, work: str | None) -> None:
    """Write the failure into the run's report, unless the run was finished by another process or lost its lease.
    ``work`` is the kind of side job."""
    try:
        if not context.lease.is_current():
            return
    except OSError:
        return  # whether the report is still this process's cannot be asked now
    known = error if isinstance(error, TidegateError) else _as_known(error, context.name)
    report = context.report
    if work is not None and known is not error:
        describe_for_side_job(known, work, context.name, report.run_id)
    if report.outcome in FINAL_OUTCOMES or _is_stored_final(context):
        return
    report.outcome = "held" if isinstance(error, HeldError) else "failed"
    report.error = known.to_dict()
    report.ended_at = now_text()
    with contextlib.suppress(TidegateError, OSError):
        save_report(context.paths, report)


def _is_stored_final(context: RunContext) -> bool:
    """Whether the publish of this work stored its report, and the process was stopped before it knew."""
    with contextlib.suppress(TidegateError, OSError):
        stored = load_report(context.paths, context.report.run_id)
        return stored is not None and stored.outcome in FINAL_OUTCOMES
    return False


def _name_cause(error: BaseException, lease: Lease, paths: PipelinePaths) -> BaseException:
    """The cause of an error: the new holder of the lease moves and removes files under a suspended run."""
    if isinstance(error, Exception) and not isinstance(error, TryAgainError):
        try:
            lease.check()
        except TryAgainError as lost:
            return lost
        except OSError:
            pass  # whether it is lost cannot be asked now
    return explain_missing(error) or storage.name_cause(error, paths.state, paths.state) or error


def _as_known(error: BaseException, name: str) -> TidegateError:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return errors.RUN_STOPPED(where=f"pipeline {name}", name=name)
    return errors.UNEXPECTED(name=type(error).__name__, error=error)


_WAIT_SECONDS = 90.0
"""Airflow tries a refused task again after 30 seconds, then after 60 (:mod:`tidegate.airflow.retries`)."""
_POLL_SECONDS = 0.5


def note_refused(paths: PipelinePaths, run_id: str) -> None:
    """The run found the lease taken, and will come again."""
    with contextlib.suppress(OSError):  # a courtesy: the refusal itself is what counts
        storage.replace(paths.refused, storage.dump_json({"run_id": run_id, "at": now_text(), "at_s": time.time()}))


def note_admitted(paths: PipelinePaths, run_id: str) -> None:
    """The run has the lease now."""
    with contextlib.suppress(OSError, ValueError):
        note = storage.read_json(paths.refused)
        if note is not None and note["run_id"] == run_id:
            storage.remove(paths.refused)


def give_way(paths: PipelinePaths) -> str | None:
    """Wait until a run that was refused has had its turn, 90 seconds at most; a sentence about it, None for no wait."""
    began = time.monotonic()
    note = storage.read_json(paths.refused)
    if note is None:
        return None
    if not 0 <= time.time() - float(note["at_s"]) < _WAIT_SECONDS:
        storage.remove(paths.refused)  # it has stopped trying, or had its turn under another run id
        return None
    while storage.exists(paths.refused) and time.monotonic() - began < _WAIT_SECONDS:
        time.sleep(_POLL_SECONDS)
    with contextlib.suppress(FileNotFoundError):
        storage.remove(paths.refused)
    return f"gave way to run {note['run_id']}, for {time.monotonic() - began:.0f} seconds"


_OF_RUNS = (
    RESUMED,
    AFTER_THE_FIX,
    "continues from the last staged batch",
    "continues where this one stopped",
    "reads the batch again",
    "reads the same batch again",
)
_NEXT_RUN = "continues with its own work; nothing is lost, and the same command starts the failed part again"


def describe_for_side_job(error: TidegateError, kind: str, name: str, run_id: str) -> None:
    """Reword an error for a side job, where its text is about a run's own batches."""
    option = RUN_ID_OPTIONS.get(kind) if kind in _SIDE_JOBS else None
    if option is None or error.next_run is None or not error.next_run.startswith(_OF_RUNS):
        return
    again = f"run the same command again with {option} {quote_word(run_id)}"
    words = rf"`tidegate run {re.escape(name)}`|run (?:the same command |it )?again"
    error.next_run = _NEXT_RUN
    fix, found = re.subn(words, lambda _: again, error.fix or "", count=1)
    error.fix = fix if found else "; then ".join(filter(None, (fix, again)))
