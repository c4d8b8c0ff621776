"""``tidegate stream``: the same pipeline as a long-running command, one run after another with the same guarantees.

Each run does what a scheduled one does: lease, checkpoint, gate, one commit. So a stream can be stopped or killed at
any moment, run concurrently with scheduled runs (one of the two waits), and be replaced by a schedule. New data is
looked for without a JVM; a run that finds some starts Spark, so rows are in the table some seconds after they arrived.
Between runs the connections of socket sources stay open.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.core import storage
from tidegate.core.errors import HeldError, SourceLostError, TidegateError, TryAgainError
from tidegate.core.outputs import RunReport
from tidegate.runs.reports.report import new_run_id
from tidegate.runs.steps import run_pipeline
from tidegate.sources.errors import FILES_UNREAD
from tidegate.sources.generators.sockets import Listeners
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.project import Project

IDLE_SECONDS = 1.0
"""How often a stream without an interval looks for new data while there is none."""


def stream_pipeline(
    project: Project,
    name: str,
    *,
    every_seconds: float | None,
    submit: Callable[[SubmitPlan], int],
    on_report: Callable[[RunReport], None],
    on_error: Callable[[TidegateError], None],
) -> None:
    """Run the pipeline again and again until stopped.

    Returns when it is stopped (TryAgainError STOPPED, raised by a signal handler) between two runs; during a run that
    error is raised.

    Args:
        every_seconds: From start to start; None: as fast as possible.
        on_report: Called with the report of each run that did something.
        on_error: Called with errors that the next run may not have (a broker unavailable, a lease held), with that of a
            deferred increment, and once with that of files that cannot be read. Other errors end the stream and are
            raised, also that of a held increment.
    """
    unread = ""
    with Listeners() as listeners:
        while True:
            began = time.monotonic()
            idle = True
            try:
                run_id = new_run_id("stream")
                report = run_pipeline(project, name, run_id, submit=submit, listeners=listeners)
                idle = report["outcome"] == "nothing_new"
                if idle and not unread:
                    storage.remove(project.paths(name).report(run_id))  # a report a second would displace all others
                elif not idle:
                    on_report(report)
                unread = ""
            except SourceLostError as error:
                if error.code != FILES_UNREAD.code:
                    raise
                if error.message == unread:
                    storage.remove(project.paths(name).report(run_id))
                else:
                    on_error(error)
                unread = error.message
            except TryAgainError as error:
                if error.code == "STOPPED":
                    raise
                on_error(error)
            except HeldError as error:
                if error.code != "INCREMENT_WAITS":
                    raise
                idle = False
                on_error(error)
            pause = IDLE_SECONDS * idle if every_seconds is None else every_seconds - (time.monotonic() - began)
            try:
                time.sleep(max(pause, 0.0))
            except TryAgainError:
                return
