"""The task process and its supervisor: neither may outlive the other while a driver runs."""

from __future__ import annotations

import os
import signal
import threading

from tidegate.airflow import errors
from tidegate.core.process.tree import die_with_parent

STOP_SECONDS = 3.5


def bind_to_supervisor() -> bool:
    """Have the kernel SIGKILL this task process, and with it the driver (see hook), when its supervisor dies.

    Only where Airflow runs the task in a separate process: under ``dag.test()`` the parent is a person's shell. Call
    this before the first request to the supervisor: that request fails if the supervisor has died before. Returns
    whether the processes were bound.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    supervised = isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), CommsDecoder)
    if supervised:
        die_with_parent()
    return supervised


def stop_python_step() -> None:
    """Stop a step that runs in this process: raise in its main thread, then kill the process if it does not end.

    Called from the SIGTERM handler. A step may be killed anywhere: the next one finishes or undoes what it began.
    """
    timer = threading.Timer(STOP_SECONDS, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()
    raise errors.TASK_KILLED(driver="")
