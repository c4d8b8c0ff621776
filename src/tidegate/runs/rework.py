"""Side jobs on a table (backfill, replay, rollback, maintenance), under the pipeline's lease like a run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.core.process.machine import now_text
from tidegate.runs import errors
from tidegate.runs.opening import open_run, recover_run, refuse_other_kind
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import FINAL_OUTCOMES, RunReport, load_report
from tidegate.spec.project import Project
from tidegate.table.log.features import append_only

_REMOVES_ROWS = ("backfill", "refresh", "rollback")


@contextlib.contextmanager
def open_rework(
    project: Project, name: str, run_id: str, kind: str, *, asked: str | None = None, note_failure: bool = True
) -> Iterator[RunContext]:
    """The context of one side job; ``kind`` is its word in reports, and in the error of a second one about the lease.

    What an earlier process began is finished first, this work's own last part included: ``context.report`` is final
    then, where that was all (:func:`is_over`). ``asked`` is what it was asked for (:func:`describe_options`), kept in
    the report; None where nothing can be chosen. ``note_failure`` is off for decisions on it. Raises UsageError
    OTHER_ARGUMENTS when the run id is that of another kind of run, or was given for something else, TryAgainError
    LEASE_HELD when a run, or another side job, is active.
    """
    refuse_other_kind(project, name, run_id, kind)
    if (other := _find_other(name, load_report(project.paths(name), run_id), asked)) is not None:
        raise other  # before the work that was begun for something else is resumed
    with open_run(project, name, run_id, kind, note_failure=note_failure) as context:
        context.report.mode = kind
        facts = recover_run(context)
        if kind in _REMOVES_ROWS and facts.table is not None and facts.table.is_append_only:
            raise append_only(Path(facts.table_folder))  # before rows are made that could not take the place of others
        other = _find_other(name, context.report, asked)
        if other is None:
            if not is_over(context):
                context.report.asked = asked or context.report.asked
            yield context
    if other is not None:
        raise other  # behind the lease: the report is that of the work it was begun for, which has not failed


def describe_options(**options: object) -> str:
    """The options that were given, as they are typed, so that a retry differs from another command."""
    given = [
        f"--{name.replace('_', '-')} {shlex.quote(str(one))}"
        for name, value in options.items()
        for one in (value if isinstance(value, list | tuple) else [value])
        if one is not None
    ]
    return " ".join(given) or "no options"


def _find_other(name: str, report: RunReport | None, asked: str | None) -> UsageError | None:
    """The error of a run id that was given for something else. Reports of earlier versions do not say for what."""
    if report is None or asked in (None, report.asked) or report.asked is None or not _has_begun(report):
        return None
    where = f"pipeline {name}"
    return errors.OTHER_ARGUMENTS(where=where, run_id=report.run_id, before=report.asked, asked=asked)


def note_begun(context: RunContext) -> None:
    """Put the work on record before it does what takes long: killed there, what was asked for is known. A report that
    is there stays: a stale process may find that of its successor."""
    context.lease.check()
    storage.put_if_absent(context.paths.report(context.report.run_id), storage.dump_json(context.report.view()))


def is_over(context: RunContext) -> bool:
    """Return whether the work under this run id was done before: a retry changes nothing, and says the same."""
    return context.report.outcome in FINAL_OUTCOMES


def end_with_nothing(context: RunContext, why: str) -> None:
    """There was nothing to do: the report says why."""
    context.report.outcome, context.report.ended_at = "nothing_new", now_text()
    context.report.add_note(why)
    context.save()


def _has_begun(report: RunReport) -> bool:
    """True if something was done under the run id, or waits. A replay that failed or is held has left nothing, nor has
    a backfill that failed at its first part: what was wrong may be corrected under the same run id."""
    is_held = report.outcome == "held" and report.mode != "replay"
    return report.outcome in FINAL_OUTCOMES or bool(report.rebuilt) or is_held or report.mode == "rollback"
