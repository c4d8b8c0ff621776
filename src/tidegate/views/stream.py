"""``tidegate stream``: the same pipeline as a long-running command, a run after the other under the same promises.

Each run is what a scheduled one is: lease, checkpoint, gate, one commit. So a stream can be stopped or killed at any
moment, run beside scheduled runs (one of the two waits), and be given up for a schedule. What is new is looked for
without a JVM; a run that finds something starts Spark, so rows are in the table some seconds after they came. Between
two runs it keeps the connections of its socket sources.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.core import storage
from tidegate.core.errors import HeldError, TidegateError, TryAgainError
from tidegate.core.outputs import RunReport
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.steps import run_pipeline
from tidegate.sources.generators.socket_listener import Listeners
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.project import Project

IDLE_SECONDS = 1.0
"""Without a rhythm of its own a stream looks for something new so often while there is nothing."""


def stream_pipeline(
    project: Project,
    name: str,
    *,
    every_seconds: float | None,
    submit: Callable[[SubmitPlan], int],
    tell: Callable[[RunReport], None],
    complain: Callable[[TidegateError], None],
) -> None:
    """Run the pipeline again and again, ``every_seconds`` from start to start (None: as fast as it can), until stopped.

    ``tell`` gets the report of each run that did something, ``complain`` what may be over by the next run (a broker
    away, a lease held), and of an increment that waits alone. Any other error ends the stream and is raised, that of a
    held increment which later runs do not pass too. Returns when it is stopped (TryAgainError STOPPED out of a signal
    handler) between two runs; in the middle of a run that error is raised.
    """
    with Listeners() as listeners:
        while True:
            began = time.monotonic()
            idle = True
            try:
                run_id = new_run_id("stream")
                report = run_pipeline(project, name, run_id, submit=submit, listeners=listeners)
                idle = report["outcome"] == "nothing_new"
                if idle:
                    storage.remove(project.paths(name).report(run_id))  # a look a second would push all others out
                else:
                    tell(report)
            except TryAgainError as error:
                if error.code == "STOPPED":
                    raise
                complain(error)
            except HeldError as error:
                if error.code != "INCREMENT_WAITS":
                    raise
                idle = False
                complain(error)
            pause = IDLE_SECONDS * idle if every_seconds is None else every_seconds - (time.monotonic() - began)
            try:
                time.sleep(max(pause, 0.0))
            except TryAgainError:
                return
