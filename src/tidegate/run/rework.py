"""Work on a table beside its runs (backfill, replay, rollback, maintenance), under the pipeline's lease like a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidegate.process.machine import now_text
from tidegate.project import Project
from tidegate.recovery.context import RunContext
from tidegate.reports.report import FINAL_OUTCOMES
from tidegate.run.opening import open_run, recover_run, refuse_other_kind


@contextlib.contextmanager
def open_rework(
    project: Project, name: str, run_id: str, kind: str, *, note_failure: bool = True
) -> Iterator[RunContext]:
    """The context of one piece of work; ``kind`` is its word in reports, and in what a second one is told of the lease.

    What an earlier process began is finished first, this work's own last part included: ``context.report`` is final
    then, where that was all (:func:`is_over`). ``note_failure`` is off for decisions on it. Raises UsageError
    OTHER_KIND_OF_RUN when the run id is that of another kind of run, TryAgainError LEASE_HELD when a run, or other
    work, is going on.
    """
    refuse_other_kind(project, name, run_id, kind)
    with open_run(project, name, run_id, kind, note_failure=note_failure) as context:
        context.report.mode = kind
        recover_run(context)
        yield context


def is_over(context: RunContext) -> bool:
    """Whether the work under this run id was done before: a retry changes nothing, and says the same."""
    return context.report.outcome in FINAL_OUTCOMES


def end_with_nothing(context: RunContext, why: str) -> None:
    """There was nothing to do: the report says why."""
    context.report.outcome, context.report.ended_at = "nothing_new", now_text()
    context.report.add_note(why)
    context.save()
