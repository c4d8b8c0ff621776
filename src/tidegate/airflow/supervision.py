"""The task process and its supervisor: neither may outlive the other with a driver still at work."""

from __future__ import annotations

import os
import signal
import threading

from tidegate.core.errors import catalogue
from tidegate.core.process.tree import die_with_parent

STOP_SECONDS = 3.5


def bind_to_supervisor() -> bool:
    """Have the kernel SIGKILL this task process when its supervisor dies, and with it (see hook) the driver.

    Only where Airflow runs the task in a process of its own: under ``dag.test()`` the parent is somebody's shell.
    Call it before the first request to the supervisor: one that died earlier is then found out by that request.
    Returns whether the bond was made.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    supervised = isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), CommsDecoder)
    if supervised:
        die_with_parent()
    return supervised


def stop_python_step() -> None:
    """Stop a step that runs in this process: raise in its main thread now, end the process if that is not heeded.

    Called from the SIGTERM handler. Every step may be cut anywhere: what it began is finished or undone by the next.
    """
    timer = threading.Timer(STOP_SECONDS, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()
    raise catalogue.PYTHON_TASK_KILLED()
