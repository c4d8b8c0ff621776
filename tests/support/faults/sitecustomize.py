"""Loaded by every Python process of a run under test (PYTHONPATH): stops the run at the N-th durable step it takes.

A step is a call of os.rename, os.replace, os.link, os.symlink, os.unlink or os.fsync on something inside the project
under test, in whichever process it happens: the command line or the Spark driver. The count is shared through one file.
At step N (or at the first whose text, "unlink data/...", a pattern is found in) the run is killed (the command's
process; its children die with it) or frozen there until somebody thaws it. "appears GLOB" stops it after the first step
that leaves a new path of that pattern behind. Nothing here knows tidegate's own names, but one: heartbeats of the lease
come by the clock and not by the work, so they are not counted, and step N is the same one each time.
"""

import fcntl
import glob
import os
import re
import signal
import sys
import threading

_SPEC = os.environ.get("FAULT_AT")


def _arm(root: str, counter_path: str, wanted: str, mode: str) -> None:
    number_wanted = int(wanted) if wanted.isdigit() else None
    appearing = os.path.join(root, wanted.removeprefix("appears ")) if wanted.startswith("appears ") else None
    # Those of the command's beginning: a driver that starts later must not take what is new for old.
    if appearing is not None and "FAULT_THERE" not in os.environ:
        os.environ["FAULT_THERE"] = os.pathsep.join(glob.glob(appearing))
    there = set(os.environ.get("FAULT_THERE", "").split(os.pathsep))

    def stop() -> None:
        if mode == "kill":
            os.kill(int(os.environ["FAULT_COMMAND_PID"]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)

    def step(name: str, path: object) -> None:
        if threading.current_thread().name.startswith("tidegate-lease-"):
            return
        try:
            text = f"/proc/self/fd/{path}" if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
            if text.startswith("/proc/self/fd/"):
                text = os.path.realpath(text)
        except (TypeError, OSError):
            return
        if not text.startswith(root):
            return
        handle = real["open"](counter_path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            number = os.pread(handle, 1 << 24, 0).count(b"\n") + 1
            os.write(handle, f"{number} {name} {text[len(root) :]}\n".encode("utf-8", "replace"))
        finally:
            os.close(handle)
        if number == number_wanted or (number_wanted is None and re.search(wanted, f"{name} {text[len(root) :]}")):
            stop()

    real = {"open": os.open}

    def wrap(name: str) -> None:
        original = getattr(os, name)

        def wrapped(*args, **kwargs):
            step(name, args[1 if name == "symlink" else 0])
            result = original(*args, **kwargs)
            if appearing is not None and not there.issuperset(glob.glob(appearing)):
                stop()
            return result

        setattr(os, name, wrapped)

    for name in ("rename", "replace", "link", "symlink", "unlink", "fsync"):
        wrap(name)


if _SPEC:
    # The first process to come here is the command itself; its children inherit its pid.
    os.environ.setdefault("FAULT_COMMAND_PID", str(os.getpid()))
    _root, _counter, _wanted, _mode = _SPEC.split("|")
    if "pytest" not in sys.modules:
        _arm(_root, _counter, _wanted, _mode)
